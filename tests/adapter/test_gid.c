// SPDX-License-Identifier: BSD-2-Clause
/* test_gid.c - the GID table: which addresses, in which order, and what happens when they come and go. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "adapter/gid.h"

#define MOST 32

/* A machine with these addresses, on interfaces that are up. */
struct machine {
	struct ifaddrs a[MOST];
	struct sockaddr_storage addr[MOST];
	struct gid_table table;
};

static void set_addresses(struct machine *m, const char *const *text)
{
	int n = 0;

	for (; text[n]; n++) {
		struct sockaddr_in6 *six = (struct sockaddr_in6 *)&m->addr[n];
		struct sockaddr_in *four = (struct sockaddr_in *)&m->addr[n];
		bool lo = !strncmp(text[n], "127.", 4) || !strcmp(text[n], "::1");

		memset(&m->addr[n], 0, sizeof(m->addr[n]));
		if (inet_pton(AF_INET, text[n], &four->sin_addr) == 1)
			four->sin_family = AF_INET;
		else if (inet_pton(AF_INET6, text[n], &six->sin6_addr) == 1)
			six->sin6_family = AF_INET6;
		m->a[n] = (struct ifaddrs){.ifa_name = (char *)"lo",
					   .ifa_flags = IFF_UP | (lo ? IFF_LOOPBACK : 0),
					   .ifa_addr = (struct sockaddr *)&m->addr[n]};
		if (n)
			m->a[n - 1].ifa_next = &m->a[n];
	}
	gid_table_update(&m->table, n ? m->a : NULL);
}

#define ADDRESSES(m, ...) set_addresses(m, (const char *const[]){__VA_ARGS__, NULL})

static void expect(const struct machine *m, unsigned index, const char *text)
{
	char buf[GID_TEXT];

	if (!text) {
		assert_int_equal(m->table.at[index].ifindex, 0);
		return;
	}
	assert_int_not_equal(m->table.at[index].ifindex, 0);
	assert_string_equal(gid_text(&m->table.at[index].gid, buf), text);
}

static void ipv4_comes_before_ipv6(void **state)
{
	struct machine m = {.table.len = 0};

	ADDRESSES(&m, "127.0.0.1", "::1", "2001:db8::1", "10.0.0.1", "192.168.7.2", "fe80::1");

	expect(&m, 0, "10.0.0.1");
	expect(&m, 1, "192.168.7.2");
	expect(&m, 2, "2001:db8::1");
	expect(&m, 3, NULL);
}

static void link_local_addresses_are_taken_if_there_are_no_others(void **state)
{
	struct machine m = {.table.len = 0};

	ADDRESSES(&m, "127.0.0.1", "fe80::1");

	expect(&m, 0, "fe80::1");
	expect(&m, 1, NULL);
}

static void the_loopback_address_is_the_last_resort(void **state)
{
	struct machine m = {.table.len = 0};

	ADDRESSES(&m, "127.0.0.1", "::1");

	expect(&m, 0, "127.0.0.1");
	expect(&m, 1, NULL);
}

static void machine_without_any_address_has_the_loopback_address(void **state)
{
	struct gid_table t = {.len = 0};
	char text[GID_TEXT];

	gid_table_update(&t, NULL);
	gid_table_add_last_resort(&t);
	assert_string_equal(gid_text(&t.at[0].gid, text), "127.0.0.1");
	assert_int_not_equal(t.at[0].ifindex, 0);
}

static void an_address_that_goes_leaves_a_hole(void **state)
{
	struct machine m = {.table.len = 0};

	ADDRESSES(&m, "10.0.0.1", "10.0.0.2", "10.0.0.3");
	ADDRESSES(&m, "10.0.0.1", "10.0.0.3");

	expect(&m, 1, NULL);
	expect(&m, 2, "10.0.0.3");
	ADDRESSES(&m, "10.0.0.1", "10.0.0.3", "10.0.0.4");
	expect(&m, 1, "10.0.0.4");
}

static void the_table_always_has_empty_entries(void **state)
{
	struct machine m = {.table.len = 0};

	ADDRESSES(&m, "10.0.0.1");
	assert_int_equal(m.table.len, GID_MIN_TABLE);
	ADDRESSES(&m, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
		  "10.0.0.7", "10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12",
		  "10.0.0.13", "10.0.0.14", "10.0.0.15", "10.0.0.16", "10.0.0.17");
	expect(&m, 16, "10.0.0.17");
	assert_in_range(m.table.len, m.table.used + 1, GID_MAX_TABLE);
}

static void a_gid_is_an_address_and_back(void **state)
{
	static const char *const text[] = {"10.1.2.3", "2001:db8::7"};

	for (int i = 0; i < 2; i++) {
		struct machine m = {.table.len = 0};
		struct sockaddr_storage a;
		union ibv_gid back;

		ADDRESSES(&m, text[i]);
		gid_to_addr(&m.table.at[0].gid, 0, 1234, &a);
		gid_from_addr((struct sockaddr *)&a, &back);
		assert_true(gid_is_equal(&back, &m.table.at[0].gid));
		assert_int_equal(gid_is_v4(&back), i == 0);
	}
}

static void loopback_addresses_are_this_machine_s(void **state)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000001)}},
			   far = {.sin_family = AF_INET, .sin_addr = {htonl(0xc0000201)}};
	union ibv_gid gid;

	gid_from_addr((struct sockaddr *)&lo, &gid);
	assert_true(gid_is_local(&gid));
	gid_from_addr((struct sockaddr *)&far, &gid);
	assert_false(gid_is_local(&gid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ipv4_comes_before_ipv6),
		cmocka_unit_test(link_local_addresses_are_taken_if_there_are_no_others),
		cmocka_unit_test(the_loopback_address_is_the_last_resort),
		cmocka_unit_test(machine_without_any_address_has_the_loopback_address),
		cmocka_unit_test(an_address_that_goes_leaves_a_hole),
		cmocka_unit_test(the_table_always_has_empty_entries),
		cmocka_unit_test(a_gid_is_an_address_and_back),
		cmocka_unit_test(loopback_addresses_are_this_machine_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
