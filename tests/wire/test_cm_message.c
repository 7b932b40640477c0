// SPDX-License-Identifier: BSD-2-Clause
/* test_cm_message.c - the messages that connect queue pairs of roce0. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "wire/cm_message.h"
#include "wire/wire.h"

static struct cm_message example(uint8_t kind)
{
	struct cm_message m = {
		.kind = kind,
		.space = CM_SPACE_TCP,
		.reason = 0x1234,
		.srq = true,
		.flow_control = true,
		.qpn = 0xfedcba,
		.psn = 0xffffff,
		.initiator_depth = 255,
		.responder_resources = 3,
		.retry_count = 7,
		.rnr_retry_count = 6,
		.mtu = 5,
		.timeout = 31,
		.gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
	};

	for (size_t i = 0; i < cm_message_private(kind); i++)
		m.private_data[i] = (uint8_t)(i + 1);
	return m;
}

static int decode(const struct cm_message *m, struct cm_message *out)
{
	uint8_t buf[CM_MESSAGE_LEN];

	cm_message_encode(m, buf);
	return cm_message_decode(buf, sizeof(buf), out);
}

static void a_message_is_decoded_to_what_was_encoded(void **state)
{
	for (uint8_t kind = CM_REQ; kind <= CM_DREP; kind++) {
		struct cm_message m = example(kind), got;

		memset(&got, 0xaa, sizeof(got));
		assert_int_equal(decode(&m, &got), CM_MESSAGE_LEN);
		assert_int_equal(got.kind, kind);
		assert_int_equal(got.reason, m.reason);
		assert_int_equal(got.qpn, m.qpn);
		assert_int_equal(got.psn, m.psn);
		assert_true(got.srq && got.flow_control);
		assert_memory_equal(got.gid, m.gid, sizeof(m.gid));
		assert_memory_equal(got.private_data, m.private_data, sizeof(m.private_data));
	}
}

static void it_differs_from_mpa_and_tls_in_the_first_byte(void **state)
{
	struct cm_message m = example(CM_REQ);
	uint8_t buf[CM_MESSAGE_LEN];

	cm_message_encode(&m, buf);
	assert_int_equal(buf[0], CM_MESSAGE_FIRST);
	assert_int_not_equal(buf[0], MPA_FIRST);
	assert_int_not_equal(buf[0], 0x16);
}

static void a_part_of_it_needs_more(void **state)
{
	struct cm_message m = example(CM_REP), got;
	uint8_t buf[CM_MESSAGE_LEN];

	cm_message_encode(&m, buf);
	for (size_t n = 0; n < sizeof(buf); n++)
		assert_int_equal(cm_message_decode(buf, n, &got), -EAGAIN);
}

static void other_bytes_are_refused_at_the_first_one_that_differs(void **state)
{
	struct cm_message m = example(CM_REQ), got;
	uint8_t buf[CM_MESSAGE_LEN];

	for (size_t n = 0; n < 8; n++) {
		cm_message_encode(&m, buf);
		buf[n] ^= 1;
		assert_int_equal(cm_message_decode(buf, n + 1, &got), -EPROTO);
	}
}

static void numbers_that_do_not_exist_are_refused(void **state)
{
	struct cm_message bad[] = {example(CM_REQ),	example(CM_REQ), example(CM_REQ),
				   example(CM_REQ),	example(CM_REQ), example(CM_REQ),
				   example(CM_REQ),	example(CM_REQ), example(0),
				   example(CM_DREP + 1)},
			  got;

	bad[0].qpn = 1 << 24;
	bad[1].psn = 1 << 24;
	bad[2].retry_count = 8;
	bad[3].rnr_retry_count = 8;
	bad[4].mtu = 0;
	bad[5].mtu = 6;
	bad[6].timeout = 32;
	bad[7].space = 3;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(decode(&bad[i], &got), -EPROTO);
}

static void another_version_is_refused(void **state)
{
	struct cm_message m = example(CM_REQ), got;
	uint8_t buf[CM_MESSAGE_LEN];

	cm_message_encode(&m, buf);
	put_be16(buf + 8, CM_MESSAGE_VERSION + 1);
	assert_int_equal(cm_message_decode(buf, sizeof(buf), &got), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_decoded_to_what_was_encoded),
		cmocka_unit_test(it_differs_from_mpa_and_tls_in_the_first_byte),
		cmocka_unit_test(a_part_of_it_needs_more),
		cmocka_unit_test(other_bytes_are_refused_at_the_first_one_that_differs),
		cmocka_unit_test(numbers_that_do_not_exist_are_refused),
		cmocka_unit_test(another_version_is_refused),
	};

	return cmocka_run_group_tests_name("wire cm_message", tests, NULL, NULL);
}
