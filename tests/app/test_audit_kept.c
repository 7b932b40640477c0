// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_audit_kept.c - the records of the audit log that are kept in memory: what one source does, or many do, pushes out nothing that
 * an administrator did, and nothing of another part of stag.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "audit_kept.h"
#include "base/clock.h"

static struct audit_kept *kept;
static uint64_t last;
static const struct audit_record *list[16 * AUDIT_KEPT];

static int set_up(void **state)
{
	(void)state;
	last = 0;
	kept = audit_kept_create();
	return kept ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	audit_kept_destroy(kept);
	return 0;
}

struct act {
	const char *room, *from, *action;
	enum stag_audit_outcome outcome;
	uint32_t flags;
};

static void add(const struct act *a)
{
	struct audit_record r = {.id = ++last, .outcome = a->outcome, .flags = a->flags};

	snprintf(r.room, sizeof(r.room), "%s", a->room);
	snprintf(r.from, sizeof(r.from), "%s", a->from);
	snprintf(r.action, sizeof(r.action), "%s", a->action);
	audit_kept_add(kept, &r);
}

static void add_from_many(const char *room, const char *action, enum stag_audit_outcome outcome)
{
	char from[40];

	for (int i = 0; i < 4 * AUDIT_KEPT; i++) {
		snprintf(from, sizeof(from), "10.0.%d.%d:7", i / 200, i % 200);
		add(&(struct act){room, from, action, outcome, 0});
	}
}

static size_t count(const char *action, size_t room)
{
	size_t n = audit_kept_list(kept, 0, list, room), found = 0;

	for (size_t i = 0; i < n; i++)
		found += strcmp(list[i]->action, action) == 0;
	return found;
}

static void clients_do_not_push_acts_of_administration_out(void **state)
{
	(void)state;
	add(&(struct act){"api", "10.9.9.9:1", "POST token_create", STAG_AUDIT_ALLOWED,
			  STAG_AUDIT_ADMINISTRATION});
	add(&(struct act){"pool", "10.9.9.9:1", "switchover", STAG_AUDIT_FAILED,
			  STAG_AUDIT_ADMINISTRATION});
	add_from_many("store", "connect", STAG_AUDIT_ALLOWED);
	add_from_many("pool", "login", STAG_AUDIT_ALLOWED);
	add_from_many("api", "PUT value_put", STAG_AUDIT_ALLOWED);
	assert_int_equal(count("POST token_create", 16 * AUDIT_KEPT), 1);
	assert_int_equal(count("switchover", 16 * AUDIT_KEPT), 1);
}

static void clients_of_one_part_do_not_push_those_of_others_out(void **state)
{
	(void)state;
	add(&(struct act){"pool", "10.9.9.9:1", "login", STAG_AUDIT_ALLOWED, 0});
	add(&(struct act){"store", "10.9.9.9:1", "connect", STAG_AUDIT_REFUSED, 0});
	add_from_many("block", "open", STAG_AUDIT_ALLOWED);
	add_from_many("api", "GET", STAG_AUDIT_REFUSED);
	assert_int_equal(count("login", 16 * AUDIT_KEPT), 1);
	assert_int_equal(count("connect", 16 * AUDIT_KEPT), 1);
}

/* However slow it is: a limit of rate alone would not prevent that. */
static void one_source_does_not_push_refusals_of_others_out(void **state)
{
	char from[64];

	(void)state;
	add(&(struct act){"pool", "10.9.9.9:1", "login", STAG_AUDIT_REFUSED, 0});
	for (int i = 0; i < 4 * AUDIT_KEPT; i++) {
		snprintf(from, sizeof(from), "[2001:db8:0:1:%x::1]:7", i);
		add(&(struct act){"pool", from, "guess", STAG_AUDIT_REFUSED, 0});
	}
	assert_int_equal(count("login", 16 * AUDIT_KEPT), 1);
	assert_int_equal(count("guess", 16 * AUDIT_KEPT), AUDIT_KEPT - 1);
}

static void a_full_ring_takes_new_sources(void **state)
{
	(void)state;
	for (int i = 0; i < 4 * AUDIT_KEPT; i++)
		add(&(struct act){"pool", "10.0.0.1:1", "guess", STAG_AUDIT_REFUSED, 0});
	add(&(struct act){"pool", "10.9.9.9:1", "login", STAG_AUDIT_REFUSED, 0});
	assert_int_equal(count("login", 16 * AUDIT_KEPT), 1);
	for (int i = 0; i < 4 * AUDIT_KEPT; i++)
		add(&(struct act){"pool", "10.0.0.1:1", "guess", STAG_AUDIT_REFUSED, 0});
	assert_int_equal(count("login", 16 * AUDIT_KEPT), 1);
}

/* A request for few records has some of each ring. */
static void a_short_list_has_the_newest_of_each_ring(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		add(&(struct act){"api", "10.9.9.9:1", "old", STAG_AUDIT_ALLOWED,
				  STAG_AUDIT_ADMINISTRATION});
	add_from_many("store", "connect", STAG_AUDIT_ALLOWED);
	add_from_many("store", "guess", STAG_AUDIT_REFUSED);
	assert_int_equal(count("old", 30), 10);
	assert_int_equal(count("guess", 30), 10);
	assert_int_equal(list[29]->id, last);
	for (size_t i = 1; i < 30; i++)
		assert_true(list[i - 1]->id < list[i]->id);
	assert_int_equal(count("old", 100), 20);
	assert_int_equal(audit_kept_list(kept, 0, list, 100), 100);
	assert_int_equal(audit_kept_list(kept, last - 3, list, 100), 3);
	assert_int_equal(audit_kept_list(kept, 0, list, 0), 0);
}

static void refusals_of_all_sources_have_a_rate(void **state)
{
	const struct stag_audit_record refused = {.room = "pool", .outcome = STAG_AUDIT_REFUSED},
				       other = {.room = "store", .outcome = STAG_AUDIT_REFUSED},
				       allowed = {.room = "pool", .outcome = STAG_AUDIT_ALLOWED};
	unsigned int n = 0;

	(void)state;
	for (int i = 0; i < 10000; i++)
		n += audit_kept_allows(kept, &refused, NS_PER_S);
	assert_int_equal(n, AUDIT_ALL_REFUSED_BURST);
	assert_true(audit_kept_allows(kept, &other, NS_PER_S));
	assert_true(audit_kept_allows(kept, &allowed, NS_PER_S));
	assert_true(audit_kept_allows(kept, &refused, 2 * NS_PER_S));
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(clients_do_not_push_acts_of_administration_out),
		STORY(clients_of_one_part_do_not_push_those_of_others_out),
		STORY(one_source_does_not_push_refusals_of_others_out),
		STORY(a_full_ring_takes_new_sources),
		STORY(a_short_list_has_the_newest_of_each_ring),
		STORY(refusals_of_all_sources_have_a_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
