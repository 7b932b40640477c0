// SPDX-License-Identifier: BSD-2-Clause
/*
 * chap.c - CHAP (RFC 1994) with the algorithms that iSCSI has for it: MD5 and SHA-256.
 *
 * Computes and compares responses. The callers (login_chap.c, login.c) choose the secret, and reject a challenge of their own
 * that a peer sends back.
 */
#include "block/iscsi/iscsi.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

enum chap_algorithm iscsi_chap_choose(const char *list)
{
	if (iscsi_text_list_has(list, "7"))
		return CHAP_SHA256;
	return iscsi_text_list_has(list, "5") ? CHAP_MD5 : CHAP_NONE;
}

size_t iscsi_chap_digest_len(enum chap_algorithm a)
{
	switch (a) {
	case CHAP_MD5:
		return 16;
	case CHAP_SHA256:
		return 32;
	case CHAP_NONE:
		break;
	}
	return 0;
}

int iscsi_chap_respond(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, uint8_t out[CHAP_MAX_DIGEST])
{
	const EVP_MD *md = a == CHAP_MD5 ? EVP_md5() : EVP_sha256();
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	bool good = c && EVP_DigestInit_ex(c, md, NULL) && EVP_DigestUpdate(c, &id, 1) &&
		    EVP_DigestUpdate(c, secret, strlen(secret)) &&
		    EVP_DigestUpdate(c, challenge, len) && EVP_DigestFinal_ex(c, out, NULL);

	EVP_MD_CTX_free(c);
	return good ? 0 : -EIO;
}

bool iscsi_chap_verify(enum chap_algorithm a, uint8_t id, const char *secret,
		       const uint8_t *challenge, size_t len, const uint8_t *response,
		       size_t response_len)
{
	uint8_t mine[CHAP_MAX_DIGEST];
	bool same;

	if (iscsi_chap_respond(a, id, secret, challenge, len, mine) != 0)
		return false;
	same = response_len == iscsi_chap_digest_len(a) &&
	       CRYPTO_memcmp(mine, response, response_len) == 0;
	OPENSSL_cleanse(mine, sizeof(mine));
	return same;
}

int iscsi_chap_challenge(uint8_t *id, uint8_t challenge[CHAP_CHALLENGE_LEN])
{
	return RAND_bytes(id, 1) == 1 && RAND_bytes(challenge, CHAP_CHALLENGE_LEN) == 1 ? 0 : -EIO;
}
