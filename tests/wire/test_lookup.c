// SPDX-License-Identifier: BSD-2-Clause
/* test_lookup.c - the messages of a lookup byte for byte, and invalid ones. */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/lookup.h"

#define CRC_AT (LOOKUP_LEN - 4)

static struct lookup_msg ask(void)
{
	struct lookup_msg m = {.kind = LOOKUP_ASK,
			       .id = 0x0102030405060708,
			       .cookie = 0x1112131415161718,
			       .private_len = LOOKUP_ASK_PRIVATE};

	fill_with_noise(m.private_data, m.private_len);
	return m;
}

static struct lookup_msg answer(void)
{
	struct lookup_msg m = {.kind = LOOKUP_ANSWER,
			       .id = 1,
			       .qpn = 0x80ff03,
			       .qkey = 0x01234567,
			       .private_len = LOOKUP_ANS_PRIVATE};

	fill_with_noise(m.private_data, m.private_len);
	return m;
}

static struct lookup_msg proof(void)
{
	return (struct lookup_msg){.kind = LOOKUP_PROVE, .id = UINT64_MAX, .cookie = 1};
}

/* Gives changed bytes the right CRC. */
static void repair(uint8_t buf[LOOKUP_LEN])
{
	crc32c_put(buf + CRC_AT, crc32c_update(CRC32C_INIT, buf, CRC_AT));
}

static void assert_refused(const uint8_t *buf, size_t len)
{
	struct lookup_msg seen = {.id = 77};

	assert_int_equal(lookup_decode(buf, len, &seen), -EPROTO);
	assert_int_equal(seen.id, 77);
}

static void assert_encoded_is_refused(const struct lookup_msg *m)
{
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(m, buf);
	assert_refused(buf, sizeof(buf));
}

static void assert_kept(struct lookup_msg m)
{
	uint8_t buf[LOOKUP_LEN], again[LOOKUP_LEN];
	struct lookup_msg seen;

	lookup_encode(&m, buf);
	assert_int_equal(lookup_decode(buf, sizeof(buf), &seen), 0);
	assert_int_equal(seen.id, m.id);
	assert_int_equal(seen.qpn, m.qpn);
	lookup_encode(&seen, again);
	assert_memory_equal(again, buf, sizeof(buf));
}

static void message_is_decoded_to_what_was_encoded(void **state)
{
	struct lookup_msg m = answer();

	assert_kept(ask());
	assert_kept(proof());
	assert_kept(m);
	for (m.private_len = 0; m.private_len < LOOKUP_ANS_PRIVATE; m.private_len++) {
		struct lookup_msg less = m;

		memset(less.private_data + m.private_len, 0,
		       sizeof(less.private_data) - m.private_len);
		assert_kept(less);
	}
}

static void header_is_32_bytes_in_order(void **state)
{
	static const uint8_t wanted[] = {'s',  'L',  'K',  'P',	 1,    1,    0,	   180,
					 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
					 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
					 0,    0,    0,	   0,	 0,    0,    0,	   0};
	struct lookup_msg m = ask();
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(&m, buf);
	assert_memory_equal(buf, wanted, sizeof(wanted));
	assert_memory_equal(buf + sizeof(wanted), m.private_data, LOOKUP_ASK_PRIVATE);
}

static void another_length_is_refused(void **state)
{
	struct lookup_msg m = ask();
	uint8_t buf[LOOKUP_LEN + 1] = {0};

	lookup_encode(&m, buf);
	assert_refused(buf, LOOKUP_LEN + 1);
	for (size_t n = 0; n < LOOKUP_LEN; n++) {
		uint8_t *exact = alloc_before_guard_page(n);

		memcpy(exact, buf, n);
		assert_refused(exact, n);
		free_before_guard_page(exact, n);
	}
}

static void every_flipped_bit_is_noticed(void **state)
{
	struct lookup_msg m = answer();
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(&m, buf);
	for (unsigned bit = 0; bit < LOOKUP_LEN * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_refused(buf, sizeof(buf));
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void unknown_version_kind_or_status_is_refused(void **state)
{
	struct lookup_msg m = ask();
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(&m, buf);
	buf[4] = 2;
	repair(buf);
	assert_refused(buf, sizeof(buf));
	m.kind = 0;
	m.private_len = 0;
	assert_encoded_is_refused(&m);
	m.kind = LOOKUP_ANSWER + 1;
	assert_encoded_is_refused(&m);
	m = (struct lookup_msg){.kind = LOOKUP_ANSWER, .id = 1, .status = LOOKUP_REJECTED + 1};
	assert_encoded_is_refused(&m);
}

static void message_without_id_is_refused(void **state)
{
	struct lookup_msg m = ask();

	m.id = 0;
	assert_encoded_is_refused(&m);
}

static void private_data_that_is_too_long_is_refused(void **state)
{
	struct lookup_msg m = answer();

	m.private_len = LOOKUP_ANS_PRIVATE + 1;
	assert_encoded_is_refused(&m);
	m = proof();
	m.private_len = 1;
	assert_encoded_is_refused(&m);
}

static void bytes_behind_the_private_data_are_refused(void **state)
{
	struct lookup_msg m = {.kind = LOOKUP_ASK, .id = 1, .private_len = 10};
	uint8_t buf[LOOKUP_LEN];

	for (unsigned at = 32 + 10; at < CRC_AT; at++) {
		lookup_encode(&m, buf);
		buf[at] = 1;
		repair(buf);
		assert_refused(buf, sizeof(buf));
	}
}

static void fields_of_another_kind_are_refused(void **state)
{
	struct lookup_msg m = proof();

	m.cookie = 0;
	assert_encoded_is_refused(&m);
	m = ask();
	m.status = LOOKUP_REJECTED;
	assert_encoded_is_refused(&m);
	m = ask();
	m.qpn = 0x80ff03;
	assert_encoded_is_refused(&m);
	m = ask();
	m.qkey = 1;
	assert_encoded_is_refused(&m);
}

/* Numbers that no queue pair has, and an answer that has one and refuses. */
static void answer_with_a_wrong_number_is_refused(void **state)
{
	static const uint32_t wrong[] = {0, 1, 0xffffff, 0x1000000, UINT32_MAX};
	struct lookup_msg m = answer();

	for (unsigned i = 0; i < COUNT(wrong); i++) {
		m.qpn = wrong[i];
		assert_encoded_is_refused(&m);
	}
	m = answer();
	m.status = LOOKUP_REJECTED;
	assert_encoded_is_refused(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_is_decoded_to_what_was_encoded),
		cmocka_unit_test(header_is_32_bytes_in_order),
		cmocka_unit_test(another_length_is_refused),
		cmocka_unit_test(every_flipped_bit_is_noticed),
		cmocka_unit_test(unknown_version_kind_or_status_is_refused),
		cmocka_unit_test(message_without_id_is_refused),
		cmocka_unit_test(private_data_that_is_too_long_is_refused),
		cmocka_unit_test(bytes_behind_the_private_data_are_refused),
		cmocka_unit_test(fields_of_another_kind_are_refused),
		cmocka_unit_test(answer_with_a_wrong_number_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
