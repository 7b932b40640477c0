// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_chap.c - CHAP: the hashes, and that only the right response is accepted.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "block/iscsi/iscsi.h"

static const char secret[] = "correct horse battery";
static const uint8_t challenge[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Computed by another implementation: hash(0x2a, secret, challenge). */
static void responses_match_reference_values(void **state)
{
	uint8_t out[CHAP_MAX_DIGEST];
	char hex[2 * CHAP_MAX_DIGEST + 3];

	assert_int_equal(iscsi_chap_respond(CHAP_MD5, 0x2a, secret, challenge, 16, out), 0);
	iscsi_text_hex(out, 16, hex);
	assert_string_equal(hex, "0x7efffe0f324cdaeb9442b9216e36d904");
	assert_int_equal(iscsi_chap_respond(CHAP_SHA256, 0x2a, secret, challenge, 16, out), 0);
	iscsi_text_hex(out, 32, hex);
	assert_string_equal(hex,
			    "0x27750b3c27f8f918a878a6e96ac6ba3778f21ad55a7cd93fbd1424ab63cbe87b");
}

static void only_the_right_response_verifies(void **state)
{
	static const enum chap_algorithm both[] = {CHAP_MD5, CHAP_SHA256};

	for (int i = 0; i < 2; i++) {
		size_t len = iscsi_chap_digest_len(both[i]);
		uint8_t r[CHAP_MAX_DIGEST];

		assert_int_equal(iscsi_chap_respond(both[i], 1, secret, challenge, 16, r), 0);
		assert_true(iscsi_chap_verify(both[i], 1, secret, challenge, 16, r, len));
		assert_false(iscsi_chap_verify(both[i], 2, secret, challenge, 16, r, len));
		assert_false(
			iscsi_chap_verify(both[i], 1, "another secret", challenge, 16, r, len));
		assert_false(iscsi_chap_verify(both[i], 1, secret, challenge, 15, r, len));
		assert_false(iscsi_chap_verify(both[i], 1, secret, challenge, 16, r, len - 1));
		assert_false(iscsi_chap_verify(both[i], 1, secret, challenge, 16, r, 0));
		for (size_t byte = 0; byte < len; byte++) {
			r[byte] ^= 0x10;
			assert_false(iscsi_chap_verify(both[i], 1, secret, challenge, 16, r, len));
			r[byte] ^= 0x10;
		}
	}
}

static void the_stronger_hash_is_chosen(void **state)
{
	assert_int_equal(iscsi_chap_choose("5"), CHAP_MD5);
	assert_int_equal(iscsi_chap_choose("5,7"), CHAP_SHA256);
	assert_int_equal(iscsi_chap_choose("8,6,7"), CHAP_SHA256);
	assert_int_equal(iscsi_chap_choose("6"), CHAP_NONE);
	assert_int_equal(iscsi_chap_choose("57"), CHAP_NONE);
	assert_int_equal(iscsi_chap_choose(""), CHAP_NONE);
}

static void challenges_do_not_repeat(void **state)
{
	uint8_t seen[64][CHAP_CHALLENGE_LEN], id;

	for (int i = 0; i < 64; i++) {
		assert_int_equal(iscsi_chap_challenge(&id, seen[i]), 0);
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(seen[i], seen[j], CHAP_CHALLENGE_LEN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(responses_match_reference_values),
		cmocka_unit_test(only_the_right_response_verifies),
		cmocka_unit_test(the_stronger_hash_is_chosen),
		cmocka_unit_test(challenges_do_not_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
