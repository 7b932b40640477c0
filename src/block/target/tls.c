// SPDX-License-Identifier: BSD-2-Clause
/*
 * tls.c - TLS of a target: keys made of the secrets of its CHAP users, and the share of the thread's time that handshakes
 * get. tcp_first.c does the handshakes of TCP, the adapter those of verbs.
 */
#include "block/target/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dv/dv.h"

/*
 * A handshake costs this side more than a stranger who begins one. Handshakes get a quarter of the time, and BURST at
 * once after a pause.
 */
#define SHARE	 4
#define BURST_NS ((int64_t)(20 * NS_PER_MS))
#define AGAIN_MS 2

_Static_assert((int)STAG_BLOCK_TLS_REQUIRED == (int)TLS_REQUIRED, "the same modes");
_Static_assert((int)STAGDV_TLS_REQUIRED == (int)TLS_REQUIRED, "the same modes");
_Static_assert(ISCSI_TLS_IDENTITY_LEN == TLS_IDENTITY_LEN, "the same identities");

/* ---- keys ------------------------------------------------------------------------------- */

static int find_key(void *arg, const char *identity, uint8_t *key)
{
	struct target_tls *s = arg;

	HOLD_FOR_SCOPE(&s->lock);
	for (size_t i = 0; i < s->num_keys; i++)
		if (strcmp(s->keys[i].identity, identity) == 0) {
			memcpy(key, s->keys[i].key, ISCSI_TLS_KEY_LEN);
			return ISCSI_TLS_KEY_LEN;
		}
	return -ENOKEY;
}

/* A user may occur in several rights, with the same secret: a connection's key does not say which right it is for. */
static int add_user(struct target_tls *s, const char *user, const char *secret)
{
	struct iscsi_tls_key *fresh = &s->keys[s->num_keys];
	int rc;

	if (!user)
		return 0;
	rc = iscsi_tls_keys(user, secret, &fresh[0], &fresh[1]);
	if (rc != 0)
		return block_fail(-rc, "TLS: user '%s': %s", user, strerror(-rc));
	for (const struct iscsi_tls_key *k = s->keys; k < fresh; k++)
		if (strcmp(k->identity, fresh->identity) == 0)
			return memcmp(k->key, fresh->key, sizeof(k->key)) == 0
				       ? 0
				       : block_fail(EINVAL, "TLS: user '%s' has several secrets",
						    user);
	s->num_keys += 2;
	return 0;
}

static int make_keys(struct target_tls *s, const struct target_login_rules *rules)
{
	int rc;

	s->keys = calloc(2 * ((size_t)rules->num_rights + 1), sizeof(*s->keys));
	if (!s->keys)
		return block_fail(ENOMEM, "out of memory");
	rc = add_user(s, rules->user, rules->secret);
	for (uint32_t i = 0; rc == 0 && i < rules->num_rights; i++)
		rc = add_user(s, rules->rights[i].user, rules->rights[i].secret);
	if (rc == 0 && s->num_keys == 0)
		rc = block_fail(EINVAL, "TLS needs a CHAP user and secret: its keys are made of "
					"them");
	return rc;
}

/* ---- contexts ------------------------------------------------------------------------------ */

static int create_rdma(struct target_tls *s)
{
	const struct dv *dv = dv_find();
	struct stagdv_tls_attr attr = {.find_psk = find_key, .arg = s};
	char why[TLS_WHY_LEN] = "";
	int rc;

	if (!dv && s->mode == TLS_ALLOWED)
		return 0;
	if (!dv)
		return block_fail(EOPNOTSUPP,
				  "TLS is required, and only the software adapter has "
				  "it, which this process does not use: serve TCP only");
	rc = dv->create_tls(&s->rdma, &attr, sizeof(attr), why, sizeof(why));
	return rc == 0 ? 0 : block_fail(rc, "TLS: %s", why);
}

int target_tls_create(struct stag_block_target *t, const struct stag_block_target_attr *attr)
{
	struct target_tls *s = &t->tls;
	struct tls_config config = {.find_psk = find_key, .arg = s};
	char why[TLS_WHY_LEN] = "";
	int rc;

	if (!(attr->comp_mask & STAG_BLOCK_TARGET_TLS) || attr->tls == STAG_BLOCK_TLS_OFF)
		return 0;
	if (attr->tls > STAG_BLOCK_TLS_REQUIRED)
		return block_fail(EINVAL, "tls is off, allowed or required");
	s->mode = (enum tls_mode)attr->tls;
	s->credit = BURST_NS;
	rc = make_keys(s, &t->config.rules);
	if (rc != 0)
		return rc;
	rc = tls_context_create(&s->context, &config, why);
	if (rc != 0)
		return block_fail(-rc, "TLS: %s", why);
	return attr->flags & STAG_BLOCK_NO_RDMA ? 0 : create_rdma(s);
}

static void free_keys(struct target_tls *s)
{
	if (s->keys)
		explicit_bzero(s->keys, s->num_keys * sizeof(*s->keys));
	free(s->keys);
	s->keys = NULL;
	s->num_keys = 0;
}

int target_tls_replace_keys(struct stag_block_target *t)
{
	struct target_tls fresh = {0}, before = {0};
	int rc = t->tls.mode == TLS_OFF ? 0 : make_keys(&fresh, &t->config.rules);

	if (rc == 0 && t->tls.mode != TLS_OFF) {
		HOLD_FOR_SCOPE(&t->tls.lock);
		before.keys = t->tls.keys;
		before.num_keys = t->tls.num_keys;
		t->tls.keys = fresh.keys;
		t->tls.num_keys = fresh.num_keys;
		fresh.keys = NULL;
	}
	free_keys(&before);
	free_keys(&fresh);
	return rc;
}

void target_tls_destroy(struct stag_block_target *t)
{
	struct target_tls *s = &t->tls;

	tls_context_put(s->context);
	if (s->rdma)
		dv_find()->destroy_tls(s->rdma);
	free_keys(s);
}

int target_tls_set_rdma(struct stag_block_target *t, struct rdma_cm_id *listener)
{
	struct target_tls *s = &t->tls;

	return s->rdma ? -dv_find()->set_tls(listener, s->rdma, (enum stagdv_tls_mode)s->mode) : 0;
}

void target_tls_inform(const struct target_conn *c, struct target_login *l)
{
	l->tls_user = c->tls.encrypted && c->tls.by_key ? iscsi_tls_user(c->tls.peer) : NULL;
	l->lacks_tls = c->target->tls.mode == TLS_REQUIRED && !c->tls.encrypted;
}

/* ---- the thread's time ------------------------------------------------------------------------ */

static bool has_credit(struct target_tls *s)
{
	uint64_t now = clock_ns();

	if (s->counted)
		s->credit += (int64_t)((now - s->counted) / SHARE);
	s->counted = now;
	if (s->credit > BURST_NS)
		s->credit = BURST_NS;
	return s->credit > 0;
}

bool target_tls_may_shake(struct target_tcp *c)
{
	struct target_tls *s = &c->conn.target->tls;

	if (list_empty(&s->waiting) && has_credit(s))
		return true;
	if (list_empty(&c->shake.link))
		list_add_tail(&s->waiting, &c->shake.link);
	return false;
}

void target_tls_shook(struct stag_block_target *t, uint64_t ns)
{
	t->tls.credit -= (int64_t)ns;
}

void target_tls_serve(struct stag_block_target *t)
{
	struct target_tls *s = &t->tls;

	while (!list_empty(&s->waiting) && has_credit(s)) {
		struct target_tcp *c = list_entry(s->waiting.next, struct target_tcp, shake.link);

		list_del(&c->shake.link);
		target_tcp_shake(c);
	}
}

int target_tls_sleep(const struct stag_block_target *t, int timeout_ms)
{
	return list_empty(&t->tls.waiting) || timeout_ms < AGAIN_MS ? timeout_ms : AGAIN_MS;
}
