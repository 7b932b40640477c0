// SPDX-License-Identifier: BSD-2-Clause
/*
 * secure.c - TLS by the tokens of a store: the pre-shared key of a connection is derived from the digest that a right
 * keeps of a token, which the client can compute, too.
 *
 * Who has the key proves that it knows the token, or can read the server's table. The token itself is shown
 * inside the encrypted connection, so that the rights are decided as without TLS.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#define IDENTITY_BYTES 16
#define REASON_LEN     256

static const char identity_label[] = "stag store, identity of a token";
static const char key_label[] = "stag store, TLS key of a token";

/* Returns the SHA-256 of a label, with its zero, and the digest of a token. */
static int derive(const char *label, size_t label_len, const uint8_t kept[TOKEN_BYTES],
		  uint8_t out[TOKEN_BYTES])
{
	uint8_t text[64 + TOKEN_BYTES];

	memcpy(text, label, label_len);
	memcpy(text + label_len, kept, TOKEN_BYTES);
	if (EVP_Digest(text, label_len + TOKEN_BYTES, out, NULL, EVP_sha256(), NULL) != 1)
		return store_fail(ENOMEM, "cannot compute a SHA-256");
	return 0;
}

int secure_key(const uint8_t kept[TOKEN_BYTES], struct secure_key *k)
{
	uint8_t id[TOKEN_BYTES];
	int rc = derive(identity_label, sizeof(identity_label), kept, id);

	if (rc == 0)
		rc = derive(key_label, sizeof(key_label), kept, k->key);
	for (unsigned int i = 0; rc == 0 && i < IDENTITY_BYTES; i++)
		snprintf(k->identity + 2 * i, 3, "%02x", id[i]);
	return rc;
}

/* ---- a server's keys ---------------------------------------------------------------- */

static void forget_keys(struct secure_keys *keys)
{
	OPENSSL_cleanse(keys->key, keys->n * sizeof(*keys->key));
	free(keys->key);
}

static int add_key(struct secure_keys *to, const struct stag_store_right *r)
{
	struct secure_key *more;
	int rc;

	if (r->who != STAG_STORE_TOKEN)
		return 0;
	more = realloc(to->key, (to->n + 1) * sizeof(*more));
	if (!more)
		return store_fail(ENOMEM, "no memory");
	to->key = more;
	rc = secure_key(r->token, &to->key[to->n]);
	if (rc == 0)
		to->n++;
	return rc;
}

int secure_keys_read(struct secure_keys *keys, struct stag_store *store)
{
	struct secure_keys fresh = {.n = 0};
	struct stag_store_partition p;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && stag_store_next(store, &i, &p);)
		for (unsigned int r = 0; rc == 0 && r < p.num_rights; r++)
			rc = add_key(&fresh, &p.rights[r]);
	if (rc != 0) {
		forget_keys(&fresh);
		return rc;
	}
	lock_acquire(&keys->lock);
	forget_keys(keys);
	keys->key = fresh.key;
	keys->n = fresh.n;
	lock_release(&keys->lock);
	return 0;
}

int secure_find(void *arg, const char *identity, uint8_t *key)
{
	struct secure_keys *keys = arg;

	HOLD_FOR_SCOPE(&keys->lock);
	for (size_t i = 0; i < keys->n; i++) {
		if (strcmp(keys->key[i].identity, identity) != 0)
			continue;
		memcpy(key, keys->key[i].key, TOKEN_BYTES);
		return TOKEN_BYTES;
	}
	return -ENOENT;
}

void secure_keys_end(struct secure_keys *keys)
{
	forget_keys(keys);
	lock_destroy(&keys->lock);
}

/* ---- both sides ----------------------------------------------------------------------- */

int secure_context(const struct dv *dv, const struct stagdv_tls_attr *attr, struct stagdv_tls **out)
{
	char why[REASON_LEN] = "";
	int rc = dv->create_tls(out, attr, sizeof(*attr), why, sizeof(why));

	return rc == 0 ? 0 : store_fail(rc, "cannot use TLS: %s", *why ? why : strerror(rc));
}
