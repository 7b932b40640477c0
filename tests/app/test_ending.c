// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ending.c - a node that is told to stop, and has the only copy of a pool's values (app/daemon/ending.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ending.h"

#define MS (1000 * 1000ull)

static struct ending ending;
static struct stag_pool_node_info shown;
static uint64_t now;

/* A primary with one value; its other node is in this role. */
static int begin(void **state)
{
	(void)state;
	ending = (struct ending){0};
	now = 1000 * NS_PER_S;
	shown = (struct stag_pool_node_info){
		.role = STAG_POOL_ROLE_PRIMARY, .objects = 1, .num_members = 2};
	shown.members[0].role = STAG_POOL_ROLE_PRIMARY;
	return 0;
}

static void serve_beside(uint32_t other)
{
	shown.members[1].role = other;
	ending_see(&ending, &shown, now);
}

/* Judges after this time, with the other node in this role. */
static enum pool_end after(uint64_t ns, uint32_t other)
{
	const struct stag_pool_member *who;

	now += ns;
	shown.members[1].role = other;
	return ending_judge(&ending, &shown, now, &who);
}

static void ends_if_another_node_has_a_copy(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_STANDBY), POOL_ENDS);
}

static void ends_if_no_other_node_was_seen(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_UNKNOWN), POOL_ENDS);
}

static void ends_if_there_are_no_values(void **state)
{
	shown.objects = 0;
	assert_int_equal(after(0, STAG_POOL_ROLE_JOINING), POOL_ENDS);
}

/* The other node's link is lost for a moment while it copies. */
static void a_lost_link_is_waited_for(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(3 * NS_PER_S, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_STANDBY), POOL_ENDS);
}

/* Its secret is put right: it is refused no more, and not connected yet. */
static void a_node_that_was_refused_may_connect(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_WAITING), POOL_STAYS);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(ENDING_GRACE - 100 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(100 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_ENDS);
}

/* The other node is restarted just before this one is told to stop. */
static void a_node_that_is_restarted_is_waited_for(void **state)
{
	serve_beside(STAG_POOL_ROLE_STANDBY);
	assert_int_equal(after(NS_PER_S, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(NS_PER_S, STAG_POOL_ROLE_JOINING), POOL_COPIES);
}

static void a_node_that_is_gone_for_long_is_not_waited_for(void **state)
{
	serve_beside(STAG_POOL_ROLE_STANDBY);
	assert_int_equal(after(ENDING_GRACE, STAG_POOL_ROLE_UNKNOWN), POOL_ENDS);
}

/* However long its node was refused before. */
static void a_copy_that_begins_has_its_whole_time(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_WAITING), POOL_STAYS);
	assert_int_equal(after(60 * NS_PER_S, STAG_POOL_ROLE_WAITING), POOL_STAYS);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(ENDING_STUCK - 100 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	shown.members[1].done = 1;
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(ENDING_STUCK - 100 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(100 * MS, STAG_POOL_ROLE_JOINING), POOL_ENDS);
}

static void the_service_manager_waits_for_a_refused_node_for_ten_minutes(void **state)
{
	after(0, STAG_POOL_ROLE_WAITING);
	assert_true(ending_extends(&ending, now + 599 * NS_PER_S));
	assert_false(ending_extends(&ending, now + 600 * NS_PER_S));
	after(600 * NS_PER_S, STAG_POOL_ROLE_JOINING);
	assert_true(ending_extends(&ending, now));
}

int main(void)
{
#define STORY(test) cmocka_unit_test_setup(test, begin)
	const struct CMUnitTest tests[] = {
		STORY(ends_if_another_node_has_a_copy),
		STORY(ends_if_no_other_node_was_seen),
		STORY(ends_if_there_are_no_values),
		STORY(a_lost_link_is_waited_for),
		STORY(a_node_that_was_refused_may_connect),
		STORY(a_node_that_is_restarted_is_waited_for),
		STORY(a_node_that_is_gone_for_long_is_not_waited_for),
		STORY(a_copy_that_begins_has_its_whole_time),
		STORY(the_service_manager_waits_for_a_refused_node_for_ten_minutes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
