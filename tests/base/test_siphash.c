// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_siphash.c - SipHash-2-4 against the reference implementation's vectors, and OpenSSL's.
 */
#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

static const uint8_t key_bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static uint64_t hash_of(const void *bytes, size_t length)
{
	uint64_t key[2];

	memcpy(key, key_bytes, sizeof(key));
	return siphash(key, bytes, length);
}

/* The example of the paper, appendix A, and the empty input. */
static void published_vectors_match(void **state)
{
	uint8_t in[15];

	for (unsigned int i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)i;
	assert_int_equal(hash_of(in, sizeof(in)), 0xa129ca6149be45e5u);
	assert_int_equal(hash_of(in, 0), 0x726fdb47dd0e0e31u);
}

static void every_length_matches_openssl(void **state)
{
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
	EVP_MAC_CTX *c = EVP_MAC_CTX_new(mac);
	size_t size = 8, len;
	OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
			       OSSL_PARAM_construct_end()};
	uint8_t in[300], out[8];

	assert_non_null(c);
	for (unsigned int i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7 + 3);
	for (size_t length = 0; length <= sizeof(in); length++) {
		uint64_t want;

		assert_true(EVP_MAC_init(c, key_bytes, sizeof(key_bytes), params));
		assert_true(EVP_MAC_update(c, in, length));
		assert_true(EVP_MAC_final(c, out, &len, sizeof(out)));
		memcpy(&want, out, sizeof(want));
		assert_int_equal(hash_of(in, length), want);
	}
	EVP_MAC_CTX_free(c);
	EVP_MAC_free(mac);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vectors_match),
		cmocka_unit_test(every_length_matches_openssl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
