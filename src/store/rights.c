// SPDX-License-Identifier: BSD-2-Clause
/* rights.c - evaluates the rights of a partition. */
#include "store.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/export.h"

/* ---- secrets ------------------------------------------------------------- */

static int digest(const void *data, size_t len, uint8_t out[TOKEN_BYTES])
{
	if (EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) != 1)
		return store_fail(ENOMEM, "cannot compute a SHA-256");
	return 0;
}

int token_shown(const void *secret, size_t len, uint8_t shown[TOKEN_BYTES])
{
	if (len == 0)
		return store_fail(EINVAL, "a secret must have at least one byte");
	return digest(secret, len, shown);
}

int token_kept(const uint8_t shown[TOKEN_BYTES], uint8_t kept[TOKEN_BYTES])
{
	return digest(shown, TOKEN_BYTES, kept);
}

STAG_EXPORT int stag_store_token(const void *secret, size_t len, uint8_t token[32])
{
	uint8_t shown[TOKEN_BYTES];
	int rc = token_shown(secret, len, shown);

	return -(rc == 0 ? token_kept(shown, token) : rc);
}

/* Computes what a right keeps of the visitor's token. Returns false if none was shown. */
static bool digest_of(const struct visitor *v, uint8_t kept[TOKEN_BYTES])
{
	static const uint8_t none[TOKEN_BYTES];

	return token_kept(v->shown ? v->shown : none, kept) == 0 && v->shown;
}

/* ---- networks -------------------------------------------------------------- */

/* An IPv4 peer of an IPv6 socket counts as an IPv4 peer. */
static const uint8_t *address_of(const struct sockaddr *peer, uint8_t *family)
{
	const struct in6_addr *six;

	*family = (uint8_t)peer->sa_family;
	if (peer->sa_family == AF_INET)
		return (const uint8_t *)&((const struct sockaddr_in *)peer)->sin_addr;
	if (peer->sa_family != AF_INET6)
		return NULL;
	six = &((const struct sockaddr_in6 *)peer)->sin6_addr;
	if (!IN6_IS_ADDR_V4MAPPED(six))
		return six->s6_addr;
	*family = AF_INET;
	return six->s6_addr + 12;
}

static bool is_in_net(const struct sockaddr *peer, const struct stag_store_right *r)
{
	uint8_t family;
	const uint8_t *address = address_of(peer, &family);
	unsigned int whole = r->prefix / 8, bits = r->prefix % 8;

	if (!address || family != r->family || memcmp(address, r->address, whole) != 0)
		return false;
	return bits == 0 || ((address[whole] ^ r->address[whole]) & (0xff00 >> bits & 0xff)) == 0;
}

/* ---- visitors ---------------------------------------------------------------- */

static bool has_group(const struct visitor *v, uint32_t gid)
{
	for (size_t i = 0; i < v->num_gids; i++)
		if (v->gids[i] == gid)
			return true;
	return false;
}

/* kept: the digest of the visitor's token; NULL: none. */
static bool fits(const struct stag_store_right *r, const struct visitor *v, const uint8_t *kept)
{
	switch ((enum stag_store_who)r->who) {
	case STAG_STORE_LOCAL:
		return !v->peer;
	case STAG_STORE_USER:
		return !v->peer && v->uid == r->id;
	case STAG_STORE_GROUP:
		return !v->peer && has_group(v, r->id);
	case STAG_STORE_REMOTE:
		return v->peer;
	case STAG_STORE_NET:
		return v->peer && is_in_net(v->peer, r);
	case STAG_STORE_TOKEN:
		return kept && CRYPTO_memcmp(kept, r->token, TOKEN_BYTES) == 0;
	}
	return false;
}

/*
 * The first right that fits decides. All places are examined, and the token is digested once, even if
 * there is none: the time that it takes tells a stranger nothing about the partition.
 */
enum stag_store_access rights_of(const struct stag_store_partition *p, uint32_t owner,
				 const struct visitor *v)
{
	static const struct stag_store_right unused = {.who = STAG_STORE_TOKEN};
	enum stag_store_access access =
		!v->peer && v->uid == owner ? STAG_STORE_WRITE : STAG_STORE_NONE;
	uint8_t kept[TOKEN_BYTES] = {0};
	bool shows = v->peer && digest_of(v, kept);

	for (unsigned int i = STAG_STORE_MAX_RIGHTS; i-- > 0;) {
		bool used = i < p->num_rights;

		if (fits(used ? &p->rights[i] : &unused, v, shows ? kept : NULL) && used)
			access = (enum stag_store_access)p->rights[i].access;
	}
	return access;
}

enum stag_store_access rights_of_self(const struct stag_store_partition *p, uint32_t owner)
{
	CLEANUP_FREE gid_t *gids = NULL;
	struct visitor self = {.uid = geteuid()};
	int n = getgroups(0, NULL);

	if (n < 0)
		n = 0;
	gids = calloc((size_t)n + 1, sizeof(*gids));
	if (!gids)
		return STAG_STORE_NONE;
	gids[0] = getegid();
	if (n > 0)
		n = getgroups(n, gids + 1);
	self.gids = gids;
	self.num_gids = (size_t)(n > 0 ? n : 0) + 1;
	return rights_of(p, owner, &self);
}
