// SPDX-License-Identifier: BSD-2-Clause
/* test_hello.c - the hello of roce0's queue pairs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire/wire.h"

static const struct hello example = {
	.kind = HELLO_ASK,
	.type = HELLO_RC,
	.flags = HELLO_CRC,
	.caps = 0x1ff,
	.ird = 3,
	.ord = 4,
	.from_qpn = 0x123456,
	.to_qpn = 0xfffffe,
	.from_gid = {0xfe, 0x80},
	.to_gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
	.sq_psn = 1,
	.rq_psn = 0xffffff,
	.process = 0x0123456789abcdef,
	.life = 2,
	.epoch = 9,
};

static void a_hello_is_decoded_to_what_was_encoded(void **state)
{
	uint8_t buf[HELLO_LEN];
	struct hello h;

	hello_encode(&example, buf);
	assert_int_equal(hello_decode(buf, sizeof(buf), &h), HELLO_LEN);
	assert_memory_equal(&h, &example, sizeof(h));
}

/* One port may serve both. */
static void it_differs_from_mpa_in_the_first_byte(void **state)
{
	uint8_t buf[HELLO_LEN];

	hello_encode(&example, buf);
	assert_int_not_equal(buf[0], 'M');
}

static void a_part_of_it_needs_more(void **state)
{
	uint8_t buf[HELLO_LEN];
	struct hello h;

	hello_encode(&example, buf);
	for (size_t n = 0; n < HELLO_LEN; n++)
		assert_int_equal(hello_decode(buf, n, &h), -EAGAIN);
}

static void other_bytes_are_refused_at_the_first_one_that_differs(void **state)
{
	struct hello h;

	assert_int_equal(hello_decode((const uint8_t *)"M", 1, &h), -EPROTO);
	assert_int_equal(hello_decode((const uint8_t *)"stagX", 5, &h), -EPROTO);
}

static void numbers_have_24_bits(void **state)
{
	struct hello h = example, seen;
	uint8_t buf[HELLO_LEN];

	h.from_qpn = 1 << 24;
	hello_encode(&h, buf);
	assert_int_equal(hello_decode(buf, sizeof(buf), &seen), -EPROTO);
}

static void another_version_or_kind_is_refused(void **state)
{
	uint8_t buf[HELLO_LEN];
	struct hello h;

	hello_encode(&example, buf);
	buf[9]++;
	assert_int_equal(hello_decode(buf, sizeof(buf), &h), -EPROTO);
	hello_encode(&example, buf);
	buf[10] = 4;
	assert_int_equal(hello_decode(buf, sizeof(buf), &h), -EPROTO);
}

/* Whatever the reason is, a stranger learns nothing. */
static void no_is_always_the_same(void **state)
{
	struct hello h = example;
	uint8_t with[HELLO_LEN], without[HELLO_LEN];

	h.kind = HELLO_NO;
	hello_encode(&h, with);
	hello_encode(&(struct hello){.kind = HELLO_NO}, without);
	assert_memory_equal(with, without, HELLO_LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hello_is_decoded_to_what_was_encoded),
		cmocka_unit_test(it_differs_from_mpa_in_the_first_byte),
		cmocka_unit_test(a_part_of_it_needs_more),
		cmocka_unit_test(other_bytes_are_refused_at_the_first_one_that_differs),
		cmocka_unit_test(numbers_have_24_bits),
		cmocka_unit_test(another_version_or_kind_is_refused),
		cmocka_unit_test(no_is_always_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
