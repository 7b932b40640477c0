// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_source.c - which connections count as those of one source.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/source.h"

static bool is_one_source(const char *a, const char *b)
{
	uint8_t x[SOURCE_ROOM], y[SOURCE_ROOM];
	size_t n = source_of_text(a, x), m = source_of_text(b, y);

	assert_in_range(n, 0, SOURCE_ROOM);
	return n == m && memcmp(x, y, n) == 0;
}

static void ports_do_not_count(void **state)
{
	(void)state;
	assert_true(is_one_source("10.0.0.1:1", "10.0.0.1:65535"));
	assert_true(is_one_source("10.0.0.1:1", "10.0.0.1"));
	assert_true(is_one_source("[::1]:1", "[::1]:2"));
	assert_true(is_one_source("[::1]:1", "::1"));
	assert_false(is_one_source("10.0.0.1:1", "10.0.0.2:1"));
}

/* A host may use every address of its /64. */
static void addresses_of_one_network_of_ipv6_are_one_source(void **state)
{
	(void)state;
	assert_true(is_one_source("[2001:db8:0:1::1]:5", "[2001:db8:0:1:ffff:1:2:3]:7"));
	assert_true(is_one_source("2001:db8:0:1::1", "[2001:db8:0:1::2]:7"));
	assert_true(is_one_source("[fe80::1%eth0]:5", "[fe80::2%eth0]:7"));
	assert_false(is_one_source("[2001:db8:0:1::1]:5", "[2001:db8:0:2::1]:5"));
}

static void ipv4_in_ipv6_is_ipv4(void **state)
{
	(void)state;
	assert_true(is_one_source("[::ffff:10.0.0.1]:5", "10.0.0.1:7"));
	assert_false(is_one_source("[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.2]:5"));
}

static void processes_of_a_user_are_one_source(void **state)
{
	(void)state;
	assert_true(is_one_source("uid 1000 pid 1", "uid 1000 pid 2"));
	assert_false(is_one_source("uid 1000 pid 1", "uid 1001 pid 1"));
}

static void other_texts_are_sources_of_their_own(void **state)
{
	char text[300];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_true(is_one_source(text, text));
	assert_true(is_one_source("", ""));
	assert_true(is_one_source("[", "["));
	assert_false(is_one_source("?", "10.0.0.1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ports_do_not_count),
		cmocka_unit_test(addresses_of_one_network_of_ipv6_are_one_source),
		cmocka_unit_test(ipv4_in_ipv6_is_ipv4),
		cmocka_unit_test(processes_of_a_user_are_one_source),
		cmocka_unit_test(other_texts_are_sources_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
