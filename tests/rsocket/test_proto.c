// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_proto.c - tests of the private data that two rsockets exchange when they connect.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "rsocket/proto.h"

static const struct rs_offer sample = {
	.credits = 384,
	.iomaps = 5,
	.slots = {.addr = 0x0102030405060708, .key = 0x11223344, .length = 2},
	.data = {.addr = 0xa1a2a3a4a5a6a7a8, .key = 0x55667788, .length = 65536},
};

/* The private data that librdmacm's rsockets with the same settings would send. */
static const uint8_t sample_bytes[RS_OFFER_LEN] = {
	1,    2,    0x01, 0x80, 0,    0,    0,	  5,	0x01, 0x02, 0x03, 0x04, 0x05, 0x06,
	0x07, 0x08, 0x11, 0x22, 0x33, 0x44, 0,	  0,	0,    2,    0xa1, 0xa2, 0xa3, 0xa4,
	0xa5, 0xa6, 0xa7, 0xa8, 0x55, 0x66, 0x77, 0x88, 0x00, 0x01, 0x00, 0x00,
};

static void an_offer_has_the_layout_of_librdmacm(void **state)
{
	uint8_t bytes[RS_OFFER_LEN];

	rs_offer_pack(&sample, bytes);
	assert_memory_equal(bytes, sample_bytes, sizeof(bytes));
}

static void an_encoded_offer_is_decoded_unchanged(void **state)
{
	struct rs_offer seen;

	assert_int_equal(rs_offer_parse(sample_bytes, sizeof(sample_bytes), &seen), 0);
	assert_int_equal(seen.credits, sample.credits);
	assert_int_equal(seen.iomaps, sample.iomaps);
	assert_memory_equal(&seen.slots, &sample.slots, sizeof(seen.slots));
	assert_memory_equal(&seen.data, &sample.data, sizeof(seen.data));
}

/* iWARP pads nothing, but a connection manager may pass more bytes than the peer sent. */
static void bytes_behind_an_offer_are_ignored(void **state)
{
	uint8_t bytes[RS_OFFER_LEN + 20] = {0};
	struct rs_offer seen;

	memcpy(bytes, sample_bytes, sizeof(sample_bytes));
	assert_int_equal(rs_offer_parse(bytes, sizeof(bytes), &seen), 0);
}

static void a_truncated_offer_is_refused(void **state)
{
	struct rs_offer seen;

	assert_int_equal(rs_offer_parse(sample_bytes, RS_OFFER_LEN - 1, &seen), -EPROTO);
	assert_int_equal(rs_offer_parse(NULL, 0, &seen), -EPROTO);
}

static int parse_with(size_t at, uint8_t byte)
{
	uint8_t bytes[RS_OFFER_LEN];
	struct rs_offer seen;

	memcpy(bytes, sample_bytes, sizeof(bytes));
	bytes[at] = byte;
	return rs_offer_parse(bytes, sizeof(bytes), &seen);
}

static void another_version_is_refused(void **state)
{
	assert_int_equal(parse_with(0, 2), -ENOTSUP);
}

static void a_peer_of_the_other_byte_order_is_refused(void **state)
{
	assert_int_equal(parse_with(1, 3), -ENOTSUP);
}

/* The number of slots is a claim of the peer: we write into two of them. */
static void a_peer_without_exactly_two_slots_is_refused(void **state)
{
	assert_int_equal(parse_with(23, 1), -EPROTO);
	assert_int_equal(parse_with(23, 3), -EPROTO);
}

static void a_peer_without_iomaps_has_none(void **state)
{
	uint8_t bytes[RS_OFFER_LEN];
	struct rs_offer seen;

	memcpy(bytes, sample_bytes, sizeof(bytes));
	bytes[1] = 0;
	assert_int_equal(rs_offer_parse(bytes, sizeof(bytes), &seen), 0);
	assert_int_equal(seen.iomaps, 0);
}

static void numbers_of_iomaps_are_rounded_to_the_encodable_ones(void **state)
{
	assert_int_equal(rs_iomaps_round(-1), 0);
	assert_int_equal(rs_iomaps_round(0), 0);
	assert_int_equal(rs_iomaps_round(128), 128);
	assert_int_equal(rs_iomaps_round(256), 256);
	assert_int_equal(rs_iomaps_round(1000), 768);
	assert_int_equal(rs_iomaps_round(1 << 20), 127 << 8);
}

static void messages_carry_an_operation_and_29_bits(void **state)
{
	assert_int_equal(rs_msg(RS_OP_DATA, 65536), 65536);
	assert_int_equal(rs_msg(RS_OP_CREDIT, 0xFFFF), 0x8000FFFF);
	assert_int_equal(rs_msg(RS_OP_IOMAP, 3), 0xC0000003);
	assert_int_equal(rs_msg(RS_OP_CTRL, RS_CTRL_SHUTDOWN), 0xE0000002);
	assert_int_equal(rs_msg_op(0xE0000002), RS_OP_CTRL);
	assert_int_equal(rs_msg_value(0xFFFFFFFF), RS_MSG_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_offer_has_the_layout_of_librdmacm),
		cmocka_unit_test(an_encoded_offer_is_decoded_unchanged),
		cmocka_unit_test(bytes_behind_an_offer_are_ignored),
		cmocka_unit_test(a_truncated_offer_is_refused),
		cmocka_unit_test(another_version_is_refused),
		cmocka_unit_test(a_peer_of_the_other_byte_order_is_refused),
		cmocka_unit_test(a_peer_without_exactly_two_slots_is_refused),
		cmocka_unit_test(a_peer_without_iomaps_has_none),
		cmocka_unit_test(numbers_of_iomaps_are_rounded_to_the_encodable_ones),
		cmocka_unit_test(messages_carry_an_operation_and_29_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
