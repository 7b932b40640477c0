// SPDX-License-Identifier: BSD-2-Clause
/* tls.c - encrypted connections of a pool: see tls.h. */
#include "pool/admit/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/admit/fail.h"
#include "pool/admit/mac.h"

_Static_assert((int)STAG_POOL_TLS_REQUIRED == (int)STAGDV_TLS_REQUIRED, "the same modes");

static bool make_hint(const char *secret, char hint[POOL_TLS_HINT_LEN + 1])
{
	static const struct mac_part part = {"stag pool hint 1", 16};
	uint8_t mac[ADMIT_MAC_LEN];

	if (!admit_mac(secret, strlen(secret), &part, 1, mac))
		return false;
	for (unsigned int i = 0; i < POOL_TLS_HINT_LEN / 2; i++)
		sprintf(hint + 2 * (size_t)i, "%02x", mac[i]);
	return true;
}

bool pool_tls_identity(enum admit_as as, const char *name, const char *secret,
		       char out[POOL_TLS_NAME_LEN])
{
	char hint[POOL_TLS_HINT_LEN + 1] = "";

	if (secret && !make_hint(secret, hint))
		return false;
	snprintf(out, POOL_TLS_NAME_LEN, "%s:%.*s%s%s", as == ADMIT_NODE ? "node" : "client",
		 ROLL_NAME_LEN - 1, name, secret ? ":" : "", hint);
	return true;
}

/* Returns the hint of "client:NAME:HINT", or NULL. */
static const char *hint_of(const char *identity)
{
	const char *name = strchr(identity, ':'), *hint = name ? strchr(name + 1, ':') : NULL;

	return hint ? hint + 1 : NULL;
}

const char *pool_tls_secret(const struct user *user, const char *identity)
{
	const char *hint = hint_of(identity), *secret;
	char ours[POOL_TLS_HINT_LEN + 1];

	if (!hint)
		return user->secret;
	for (unsigned int i = 0; (secret = user_secret(user, i)); i++)
		if (make_hint(secret, ours) && strcmp(ours, hint) == 0)
			return secret;
	return NULL;
}

bool pool_tls_key(const char *identity, const char *secret, uint8_t key[POOL_TLS_KEY_LEN])
{
	const struct mac_part parts[] = {{"stag pool tls 1 ", 16}, {identity, strlen(identity)}};

	_Static_assert(POOL_TLS_KEY_LEN == ADMIT_MAC_LEN, "the key is a MAC");
	return admit_mac(secret, strlen(secret), parts, 2, key);
}

/* ---- what a visitor connects with ---- */

int pool_tls_check(uint32_t mode, const struct pool_tls_files *files)
{
	bool any = files->cert || files->key || files->ca;

	if (mode > STAG_POOL_TLS_REQUIRED)
		return pool_fail(EINVAL, "tls is off, allowed or required");
	if (any && !(files->cert && files->key && files->ca))
		return pool_fail(EINVAL,
				 "a certificate, its key and the authorities come together: "
				 "tls-cert, tls-key and tls-ca");
	if (any && mode == STAG_POOL_TLS_OFF)
		return pool_fail(EINVAL, "certificates are of no use while tls is off");
	return 0;
}

static int create(struct stagdv_tls **out, const struct stagdv_tls_attr *attr)
{
	char why[256] = "";
	int rc = dv_find()->create_tls(out, attr, sizeof(*attr), why, sizeof(why));

	return rc == 0 ? 0 : pool_fail(rc, "TLS: %s", why);
}

static int open_psk(struct pool_tls *t, enum admit_as as, const char *name, const char *secret,
		    bool hinted)
{
	char identity[POOL_TLS_NAME_LEN];
	uint8_t key[POOL_TLS_KEY_LEN];
	struct stagdv_tls_attr attr = {.identity = identity, .psk = key, .psk_len = sizeof(key)};
	int rc;

	if (!pool_tls_identity(as, name, hinted ? secret : NULL, identity) ||
	    !pool_tls_key(identity, secret, key))
		return pool_fail(ENOMEM, "no memory");
	rc = create(&t->psk, &attr);
	explicit_bzero(key, sizeof(key));
	return rc;
}

static int create_for_host(const struct pool_tls *t, const char *host, struct stagdv_tls **out)
{
	const struct stagdv_tls_attr attr = {
		.cert = t->cert, .key = t->key, .ca = t->ca, .name = host};

	return create(out, &attr);
}

/* Reads the files once, so that an error is found now. Later it is read for each host. */
static int open_cert(struct pool_tls *t, const struct pool_tls_files *files)
{
	struct stagdv_tls *any;
	int rc;

	t->cert = strdup(files->cert);
	t->key = strdup(files->key);
	t->ca = strdup(files->ca);
	if (!t->cert || !t->key || !t->ca)
		return pool_fail(ENOMEM, "no memory");
	rc = create_for_host(t, NULL, &any);
	if (rc == 0)
		pool_tls_free(any);
	return rc;
}

int pool_tls_open(struct pool_tls *t, uint32_t mode, const struct pool_tls_files *files,
		  enum admit_as as, const char *name, const char *secret)
{
	int rc = pool_tls_check(mode, files);

	if (rc != 0 || mode == STAG_POOL_TLS_OFF)
		return rc;
	if (!dv_find())
		return mode == STAG_POOL_TLS_ALLOWED
			       ? 0
			       : pool_fail(EOPNOTSUPP, "TLS is required, and this process does not "
						       "use the software adapter, which has it");
	t->mode = mode;
	return files->cert ? open_cert(t, files) : open_psk(t, as, name, secret, true);
}

int pool_tls_rekey(struct pool_tls *t, enum admit_as as, const char *name, const char *secret,
		   bool hinted)
{
	struct stagdv_tls *before = t->psk;
	int rc;

	if (!before)
		return 0;
	rc = open_psk(t, as, name, secret, hinted);
	if (rc == 0)
		pool_tls_free(before); /* ids that use it keep it */
	else
		t->psk = before;
	return rc;
}

void pool_tls_close(struct pool_tls *t)
{
	pool_tls_free(t->psk);
	for (unsigned int i = 0; i < POOL_TLS_HOSTS; i++)
		pool_tls_free(t->hosts[i].tls);
	free(t->cert);
	free(t->key);
	free(t->ca);
	*t = (struct pool_tls){0};
}

void pool_tls_host_of(const char *address, char host[ROLL_ADDRESS_LEN])
{
	size_t len = *address == '[' ? strcspn(++address, "]%") : strcspn(address, ":");

	snprintf(host, ROLL_ADDRESS_LEN, "%.*s", (int)len, address);
}

static struct stagdv_tls *find_host(const struct pool_tls *t, const char *host)
{
	for (unsigned int i = 0; i < POOL_TLS_HOSTS; i++)
		if (t->hosts[i].tls && strcmp(t->hosts[i].name, host) == 0)
			return t->hosts[i].tls;
	return NULL;
}

/* Returns what connects to a host, or NULL, with the text of pool_fail(). */
static struct stagdv_tls *use_host(struct pool_tls *t, const char *address)
{
	struct pool_tls_host *h = &t->hosts[t->next % POOL_TLS_HOSTS];
	char host[ROLL_ADDRESS_LEN];
	struct stagdv_tls *tls;

	pool_tls_host_of(address, host);
	tls = find_host(t, host);
	if (tls || create_for_host(t, host, &tls) != 0)
		return tls;
	pool_tls_free(h->tls); /* ids that use it keep it */
	strcpy(h->name, host);
	h->tls = tls;
	t->next++;
	return tls;
}

int pool_tls_prepare(struct pool_tls *t, struct rdma_cm_id *id, const char *address)
{
	struct stagdv_tls *tls = t->psk;

	if (!pool_tls_is_on(t))
		return 0;
	if (!tls)
		tls = use_host(t, address);
	return tls ? pool_tls_set(id, tls, t->mode) : -EACCES;
}

bool pool_tls_is_on(const struct pool_tls *t)
{
	return t->psk || t->cert;
}

const char *pool_tls_why(const struct pool_tls *t, int status)
{
	if (!pool_tls_is_on(t))
		return NULL;
	switch (status) {
	case -EACCES:
		return t->cert ? "the node's certificate is not accepted: it is not of an "
				 "authority "
				 "in tls-ca, or not for this address"
			       : "no such user, or wrong secret, or the node uses certificates";
	case -EPROTONOSUPPORT:
		return "the node does not speak TLS, which is required here";
	case -EBADMSG: /* it says so after the handshake */
		return t->cert ? "the node does not accept our certificate (tls-cert)" : NULL;
	case -EPROTO:
		return t->cert ? "the node does not use certificates as we do: tls-cert, tls-key "
				 "and tls-ca belong on both sides"
			       : NULL;
	default:
		return NULL;
	}
}

/* ---- on an id ---- */

int pool_tls_set(struct rdma_cm_id *id, struct stagdv_tls *tls, uint32_t mode)
{
	return tls ? -dv_find()->set_tls(id, tls, (enum stagdv_tls_mode)mode) : 0;
}

bool pool_tls_query(struct rdma_cm_id *id, struct stagdv_tls_info *info)
{
	const struct dv *dv = dv_find();

	*info = (struct stagdv_tls_info){0};
	return dv && dv->query_tls(id, info, sizeof(*info)) == 0 && info->version[0];
}

void pool_tls_free(struct stagdv_tls *tls)
{
	if (tls)
		dv_find()->destroy_tls(tls);
}

/* Copies the name of "client:NAME" or "client:NAME:HINT". Returns false if it is of the other kind, or has no name. */
static bool name_of(const char *identity, enum admit_as as, char name[ROLL_NAME_LEN])
{
	const char *kind = as == ADMIT_NODE ? "node:" : "client:";

	if (strncmp(identity, kind, strlen(kind)) != 0)
		return false;
	snprintf(name, ROLL_NAME_LEN, "%.*s", (int)strcspn(identity + strlen(kind), ":"),
		 identity + strlen(kind));
	return name[0] != '\0';
}

bool pool_tls_is_of(struct rdma_cm_id *id, const struct admit_session *s)
{
	const struct dv *dv = dv_find();
	struct stagdv_tls_info info;
	uint8_t mark[ADMIT_MARK_LEN];
	char name[ROLL_NAME_LEN];

	if (!dv || dv->query_tls(id, &info, sizeof(info)) != 0 || !info.encrypted || !info.by_key)
		return true;
	return name_of(info.peer, s->as, name) && admit_mark_name(name, mark) &&
	       memcmp(mark, s->mark, sizeof(mark)) == 0;
}
