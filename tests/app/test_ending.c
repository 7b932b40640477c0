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

/* The machine of the other node reboots: it may return in two minutes. */
static void stays_if_no_other_node_was_seen(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_UNKNOWN), POOL_ALONE);
	assert_int_equal(after(3600 * NS_PER_S, STAG_POOL_ROLE_UNKNOWN), POOL_ALONE);
	assert_int_equal(after(0, STAG_POOL_ROLE_STANDBY), POOL_ENDS);
}

static void ends_if_no_other_node_is_in_the_roll(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_UNKNOWN), POOL_ALONE);
	shown.num_members = 1; /* it was forgotten */
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
	assert_int_equal(after(0, STAG_POOL_ROLE_WAITING), POOL_REFUSES);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(ENDING_GRACE - 100 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(100 * MS, STAG_POOL_ROLE_UNKNOWN), POOL_ALONE);
}

/* The other node is restarted just before this one is told to stop. */
static void a_node_that_is_restarted_is_waited_for(void **state)
{
	serve_beside(STAG_POOL_ROLE_STANDBY);
	assert_int_equal(after(NS_PER_S, STAG_POOL_ROLE_UNKNOWN), POOL_RETURNS);
	assert_int_equal(after(NS_PER_S, STAG_POOL_ROLE_JOINING), POOL_COPIES);
}

static void a_node_that_is_gone_for_long_is_said_to_be_down(void **state)
{
	serve_beside(STAG_POOL_ROLE_STANDBY);
	assert_int_equal(after(ENDING_GRACE, STAG_POOL_ROLE_UNKNOWN), POOL_ALONE);
}

/* However long its node was refused before. */
static void a_copy_that_begins_has_its_whole_time(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_WAITING), POOL_REFUSES);
	assert_int_equal(after(60 * NS_PER_S, STAG_POOL_ROLE_WAITING), POOL_REFUSES);
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(ENDING_STUCK - 100 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	shown.members[1].done = 1;
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(ENDING_STUCK - 100 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(100 * MS, STAG_POOL_ROLE_JOINING), POOL_STUCK);
}

static void a_copy_that_goes_on_is_waited_for_again(void **state)
{
	assert_int_equal(after(0, STAG_POOL_ROLE_JOINING), POOL_COPIES);
	assert_int_equal(after(ENDING_STUCK, STAG_POOL_ROLE_JOINING), POOL_STUCK);
	shown.members[1].done = 1;
	assert_int_equal(after(50 * MS, STAG_POOL_ROLE_JOINING), POOL_COPIES);
}

static void the_service_manager_waits_for_ten_minutes_without_a_copy(void **state)
{
	static const uint32_t roles[] = {STAG_POOL_ROLE_UNKNOWN, STAG_POOL_ROLE_WAITING};

	for (unsigned int i = 0; i < 2; i++) {
		begin(state);
		after(0, roles[i]);
		after(599 * NS_PER_S, roles[i]);
		assert_true(ending_extends(&ending, now));
		after(NS_PER_S, roles[i]);
		assert_false(ending_extends(&ending, now));
	}
}

/* A copy that makes progress is waited for, and so is its node if the link is lost then. */
static void the_service_manager_waits_as_long_as_a_node_copies(void **state)
{
	for (unsigned int i = 0; i < 1000; i++) {
		shown.members[1].done = i;
		assert_int_equal(after(5 * NS_PER_S, STAG_POOL_ROLE_JOINING), POOL_COPIES);
		assert_true(ending_extends(&ending, now));
	}
	after(599 * NS_PER_S, STAG_POOL_ROLE_UNKNOWN);
	assert_true(ending_extends(&ending, now));
	after(NS_PER_S, STAG_POOL_ROLE_UNKNOWN);
	assert_false(ending_extends(&ending, now));
}

int main(void)
{
#define STORY(test) cmocka_unit_test_setup(test, begin)
	const struct CMUnitTest tests[] = {
		STORY(ends_if_another_node_has_a_copy),
		STORY(stays_if_no_other_node_was_seen),
		STORY(ends_if_no_other_node_is_in_the_roll),
		STORY(ends_if_there_are_no_values),
		STORY(a_lost_link_is_waited_for),
		STORY(a_node_that_was_refused_may_connect),
		STORY(a_node_that_is_restarted_is_waited_for),
		STORY(a_node_that_is_gone_for_long_is_said_to_be_down),
		STORY(a_copy_that_begins_has_its_whole_time),
		STORY(a_copy_that_goes_on_is_waited_for_again),
		STORY(the_service_manager_waits_for_ten_minutes_without_a_copy),
		STORY(the_service_manager_waits_as_long_as_a_node_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
