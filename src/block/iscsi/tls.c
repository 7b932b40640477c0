// SPDX-License-Identifier: BSD-2-Clause
/*
 * tls.c - pre-shared keys of TLS that are made of a CHAP user's secret, and what the first message of a TLS connection
 * says about what it carries.
 *
 * Knows no sessions: those are in src/tls, and used by the transports.
 */
#include "block/iscsi/iscsi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/bytes.h"

/* An attacker who has recorded a handshake can try out secrets; each guess costs this many hashes. */
#define ROUNDS 4096

static const char iscsi_kind[] = "iscsi:", rdma_kind[] = "rdma:";
static const char salt_label[] = "stag block tls 1 ";

/* ---- keys ------------------------------------------------------------------------- */

static bool stretch(const char *user, const char *secret, uint8_t out[ISCSI_TLS_KEY_LEN])
{
	char salt[sizeof(salt_label) + ISCSI_TLS_IDENTITY_LEN];
	int len = snprintf(salt, sizeof(salt), "%s%s", salt_label, user);

	return PKCS5_PBKDF2_HMAC(secret, (int)strlen(secret), (const uint8_t *)salt, len, ROUNDS,
				 EVP_sha256(), ISCSI_TLS_KEY_LEN, out) == 1;
}

static bool derive(const uint8_t from[ISCSI_TLS_KEY_LEN], struct iscsi_tls_key *to)
{
	return HMAC(EVP_sha256(), from, ISCSI_TLS_KEY_LEN, (const uint8_t *)to->identity,
		    strlen(to->identity), to->key, NULL);
}

int iscsi_tls_keys(const char *user, const char *secret, struct iscsi_tls_key *iscsi,
		   struct iscsi_tls_key *rdma)
{
	uint8_t base[ISCSI_TLS_KEY_LEN];
	bool good;

	if (!*user || strlen(user) + sizeof(iscsi_kind) > ISCSI_TLS_IDENTITY_LEN)
		return -ENAMETOOLONG;
	snprintf(iscsi->identity, sizeof(iscsi->identity), "%s%s", iscsi_kind, user);
	snprintf(rdma->identity, sizeof(rdma->identity), "%s%s", rdma_kind, user);
	good = stretch(user, secret, base) && derive(base, iscsi) && derive(base, rdma);
	OPENSSL_cleanse(base, sizeof(base));
	return good ? 0 : -EIO;
}

const char *iscsi_tls_user(const char *identity)
{
	const char *colon = strchr(identity, ':');

	return colon ? colon + 1 : identity;
}

/* ---- the first message: RFC 8446 §4.1.2, §4.2.11 ------------------------------------ */

enum { RECORD_HEADER = 5, RECORD_HANDSHAKE = 22, CLIENT_HELLO = 1, PRE_SHARED_KEY = 41 };

/* The bytes that are left to read. */
struct rest {
	const uint8_t *at;
	size_t len;
};

static bool skip(struct rest *r, size_t n)
{
	if (n > r->len)
		return false;
	r->at += n;
	r->len -= n;
	return true;
}

/* Takes a vector out of r: its length, of `size` bytes, and as many bytes. */
static bool take(struct rest *r, size_t size, struct rest *out)
{
	size_t n = 0;

	if (size > r->len)
		return false;
	for (size_t i = 0; i < size; i++)
		n = n << 8 | r->at[i];
	if (!skip(r, size) || n > r->len)
		return false;
	*out = (struct rest){r->at, n};
	return skip(r, n);
}

/* Finds the extension that has the identities of pre-shared keys. */
static bool find_identities(struct rest *extensions, struct rest *out)
{
	while (extensions->len >= 4) {
		unsigned int type = get_be16(extensions->at);

		if (!skip(extensions, 2) || !take(extensions, 2, out))
			return false;
		if (type == PRE_SHARED_KEY)
			return true;
	}
	return false;
}

static bool carries_iscsi(struct rest r)
{
	struct rest hello, ignored, extensions, list, identities, first;

	if (!r.len || *r.at != CLIENT_HELLO || !skip(&r, 1) || !take(&r, 3, &hello))
		return false;
	return skip(&hello, 2 + 32) &&	    /* legacy_version, random */
	       take(&hello, 1, &ignored) && /* legacy_session_id */
	       take(&hello, 2, &ignored) && /* cipher_suites */
	       take(&hello, 1, &ignored) && /* legacy_compression_methods */
	       take(&hello, 2, &extensions) && find_identities(&extensions, &list) &&
	       take(&list, 2, &identities) && take(&identities, 2, &first) &&
	       first.len > sizeof(iscsi_kind) - 1 &&
	       memcmp(first.at, iscsi_kind, sizeof(iscsi_kind) - 1) == 0;
}

enum iscsi_tls_hello iscsi_tls_hello(const uint8_t *bytes, size_t len, size_t *wanted)
{
	size_t body;

	*wanted = RECORD_HEADER;
	if (len < RECORD_HEADER)
		return TLS_HELLO_SHORT;
	body = get_be16(bytes + 3);
	*wanted = RECORD_HEADER + body;
	if (*bytes != RECORD_HANDSHAKE || *wanted > ISCSI_TLS_HELLO_MAX)
		return TLS_HELLO_OTHER;
	if (len < *wanted)
		return TLS_HELLO_SHORT;
	return carries_iscsi((struct rest){bytes + RECORD_HEADER, body}) ? TLS_HELLO_ISCSI
									 : TLS_HELLO_OTHER;
}
