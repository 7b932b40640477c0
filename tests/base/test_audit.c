// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_audit.c - records of who did what: to whom they go, and that one source cannot flood them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/audit.h"
#include "base/rate.h"

static _Atomic unsigned int calls;
static _Atomic uint64_t suppressed;

static void count_record(const struct stag_audit_record *r, void *arg)
{
	(void)arg;
	atomic_fetch_add(&calls, 1);
	atomic_fetch_add(&suppressed, r->suppressed);
	errno = EBADF;
}

static const struct audit_sink counts = {count_record, NULL};

static int set_sink(void **state)
{
	(void)state;
	calls = 0;
	suppressed = 0;
	audit_set_sink(&counts);
	return 0;
}

static int unset_sink(void **state)
{
	(void)state;
	audit_set_sink(NULL);
	return 0;
}

static void report(const char *room, const char *from, enum stag_audit_outcome outcome)
{
	audit_report(&(struct stag_audit_record){.room = room,
						 .object = "pool shop",
						 .user = "ann",
						 .from = from,
						 .action = "put",
						 .outcome = outcome});
}

static void without_a_sink_nothing_happens(void **state)
{
	(void)state;
	audit_set_sink(NULL);
	assert_false(audit_is_on());
	report("none", "10.0.0.1:1", STAG_AUDIT_REFUSED);
	assert_int_equal(calls, 0);
}

static void a_record_reaches_the_sink_and_errno_stays(void **state)
{
	(void)state;
	errno = EAGAIN;
	report("errno", "10.0.0.1:1", STAG_AUDIT_REFUSED);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(calls, 1);
}

/* The ports of one host are one source: else each connection would have a budget of its own. */
static void one_host_cannot_flood_from_many_ports(void **state)
{
	char from[32];

	(void)state;
	for (int i = 0; i < 10000; i++) {
		snprintf(from, sizeof(from), i % 2 ? "10.0.0.1:%d" : "[fe80::1]:%d", i);
		report("flood", from, STAG_AUDIT_REFUSED);
	}
	/* By chance, the two share an entry of the table. */
	assert_in_range(calls, AUDIT_REFUSED_BURST - 1, 9000);
}

/* One host may use all addresses of its network of IPv6: they share a budget, and do not fill the table of sources. */
static void one_network_of_ipv6_is_one_source(void **state)
{
	char from[48];

	(void)state;
	for (int i = 0; i < 10000; i++) {
		snprintf(from, sizeof(from), "[2001:db8:0:1:%x::1]:%d", i, i);
		report("network", from, STAG_AUDIT_REFUSED);
	}
	assert_in_range(calls, 0, 1000);
}

static void refusals_do_not_hide_what_is_allowed(void **state)
{
	unsigned int before;

	(void)state;
	for (int i = 0; i < 1000; i++)
		report("hide", "10.0.0.1:1", STAG_AUDIT_REFUSED);
	before = calls;
	report("hide", "10.0.0.1:1", STAG_AUDIT_ALLOWED);
	assert_int_equal(calls, before + 1);
}

static void what_was_left_out_is_counted(void **state)
{
	static const struct rate_limit limit = RATE_LIMIT(10, 2);
	struct rate r = {0};
	uint32_t n = 9;

	(void)state;
	assert_true(rate_allows(&r, &limit, 1000, &n));
	assert_int_equal(n, 0);
	assert_true(rate_allows(&r, &limit, 1000, &n));
	for (int i = 0; i < 5; i++)
		assert_false(rate_allows(&r, &limit, 1000, &n));
	assert_false(rate_allows(&r, &limit, NS_PER_S / 20, &n));
	assert_true(rate_allows(&r, &limit, 1000 + NS_PER_S / 10, &n));
	assert_int_equal(n, 6);
}

#define THREADS 4
#define REPORTS 5000

static void *report_many(void *arg)
{
	for (int i = 0; i < REPORTS; i++)
		report(arg, "10.0.0.9:7", STAG_AUDIT_REFUSED);
	return NULL;
}

static void report_from_threads(char *room)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, report_many, room), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* By chance, an entry of the table has been used by another test: not three of them. */
static void threads_lose_no_count(void **state)
{
	static char rooms[][16] = {"threads", "more threads", "yet more"};

	(void)state;
	for (int i = 0; i < 3 && calls + suppressed < AUDIT_REFUSED_BURST; i++) {
		atomic_store(&calls, 0);
		atomic_store(&suppressed, 0);
		report_from_threads(rooms[i]);
	}
	assert_in_range(calls + suppressed, AUDIT_REFUSED_BURST, THREADS * REPORTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(without_a_sink_nothing_happens, set_sink,
						unset_sink),
		cmocka_unit_test_setup_teardown(a_record_reaches_the_sink_and_errno_stays, set_sink,
						unset_sink),
		cmocka_unit_test_setup_teardown(one_host_cannot_flood_from_many_ports, set_sink,
						unset_sink),
		cmocka_unit_test_setup_teardown(one_network_of_ipv6_is_one_source, set_sink,
						unset_sink),
		cmocka_unit_test_setup_teardown(refusals_do_not_hide_what_is_allowed, set_sink,
						unset_sink),
		cmocka_unit_test(what_was_left_out_is_counted),
		cmocka_unit_test_setup_teardown(threads_lose_no_count, set_sink, unset_sink),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
