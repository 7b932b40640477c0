// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rules.c - the rules of role.h, one by one, with a single node, event by event. test_role.c is for many
 * nodes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pool/role/role.h"

#define MS NS_PER_MS

/* ant is primary of epoch 3, bee is in sync, cat is a member. */
static struct roll a_roll(void)
{
	struct roll r = {.epoch = 3, .base = 10, .primary = 0, .in_sync = 3};
	static const char *const names[] = {"ant", "bee", "cat"};

	for (int i = 0; i < 3; i++) {
		strcpy(r.members[i].name, names[i]);
		strcpy(r.members[i].address, "h:1");
	}
	return r;
}

static struct role role;
static uint64_t now;

/* The last action of each kind that the role requested since does() or forget_actions(). */
static struct role_action requested[ROLE_SAVE + 1];
static bool was_requested[ROLE_SAVE + 1];

static void collect_actions(void)
{
	struct role_action a;

	while (role_next(&role, &a)) {
		requested[a.what] = a;
		was_requested[a.what] = true;
	}
}

static void forget_actions(void)
{
	collect_actions();
	memset(was_requested, 0, sizeof(was_requested));
}

/* Returns whether the role requested an action of this kind, and forgets all actions. */
static bool does(enum role_what what, struct role_action *action)
{
	bool found;

	collect_actions();
	found = was_requested[what];
	if (action)
		*action = requested[what];
	forget_actions();
	return found;
}

static void pass_time(uint64_t time)
{
	for (uint64_t until = now + time; now < until;) {
		now += until - now < 2 * MS ? until - now : 2 * MS;
		role_time(&role, now);
		collect_actions();
	}
}

/* Passes time while heartbeats arrive. */
static void pass_time_with_heartbeats(uint64_t time)
{
	for (uint64_t until = now + time; now < until;) {
		now += 2 * MS;
		role_heard(&role, now, 0, 3, now, 1);
		forget_actions();
	}
}

static void begin_role(const char *name)
{
	struct roll roll = a_roll();

	now = 100 * NS_PER_S;
	role_init(&role, &role_defaults, name, 0, now);
	assert_true(does(ROLE_READ, NULL));
	role_read(&role, now, 0, 1, &roll);
	forget_actions();
}

static void be_standby(void)
{
	begin_role("bee");
	role_synced(&role, now, 3);
	assert_int_equal(role.state, ROLE_STANDBY);
}

/* Creates a pool with us as primary and the peer in seat 1 linked, leased and in sync at record 0. */
static void be_primary(void)
{
	struct roll_member us = {.name = "ant", .address = "h:1"},
			   bee = {.name = "bee", .address = "h:2"};
	static const uint8_t uuid[ROLL_UUID_LEN] = {1};

	now = 100 * NS_PER_S;
	role_init(&role, &role_defaults, "ant", 0, now);
	role_create(&role, uuid, &us, false);
	role_read(&role, now, 0, 0, NULL);
	role_swapped(&role, now, 1, ROLL_WON, 1);
	assert_int_equal(role.state, ROLE_PRIMARY);
	assert_true(role_may_read(
		&role, now + 3600 * NS_PER_S)); /* without a standby the lease does not end */
	assert_int_equal(role_join(&role, now, &bee), 0);
	role_swapped(&role, now, 2, ROLL_WON, 2);
	assert_int_equal(role_link_up(&role, now, 1, false, 0, 0), 0);
	assert_true(does(ROLE_RESYNC, NULL));
	pass_time(2 * MS);
	role_echoed(&role, now, 1, 1, role.last_beat);
	role_resynced(&role, now, 1, 0);
	forget_actions();
	role_swapped(&role, now, 3, ROLL_WON, 3);
	assert_int_equal(role.roll.in_sync, 3);
	forget_actions();
}

/* ---- the lease ---------------------------------------------------------------------------- */

static void terms_that_are_not_safe_are_refused(void **state)
{
	struct lease_terms t = lease_defaults;

	assert_null(lease_terms_fault(&t));
	assert_null(lease_terms_fault(&role_defaults.lease));
	t.promote = t.lease - 1;
	assert_non_null(lease_terms_fault(&t));
	t = lease_defaults, t.beat = t.lease;
	assert_non_null(lease_terms_fault(&t));
	t = lease_defaults, t.drift = 500000;
	assert_non_null(lease_terms_fault(&t));
}

static void terms_of_two_nodes_go_together(void **state)
{
	struct lease_terms t = {.lease = 20 * MS, .promote = 24 * MS};

	assert_true(lease_goes_with(&t, 20000, 24000));
	assert_true(lease_goes_with(&t, 24000,
				    20000)); /* at the limits: while settings are being changed */
	assert_false(lease_goes_with(&t, 24001, 30000));
	assert_false(lease_goes_with(&t, 10000, 19999));
	t.lease = t.promote = 7200 * NS_PER_S;
	assert_true(lease_goes_with(&t, lease_in_us(t.lease), lease_in_us(t.promote)));
	assert_false(lease_goes_with(&t, 20000, 24000));
}

/* With any two clocks within the drift, the lease ends before the silence that promotes a standby is over. */
static void the_lease_ends_before_the_silence(void **state)
{
	for (uint32_t drift = 0; drift <= 250000; drift += 1000) {
		struct lease_terms t = lease_defaults;
		double slow = 1 - drift / 1e6, fast = 1 + drift / 1e6;

		t.drift = drift;
		t.promote = t.lease;
		assert_true((double)lease_until(&t, 0) / slow <=
			    (double)lease_silence(&t, 0, 0) / fast);
	}
}

static void reads_are_served_until_the_lease_ends(void **state)
{
	uint64_t sent;

	be_primary();
	pass_time(2 * MS);
	sent = role.last_beat;
	role_echoed(&role, now, 1, 1, sent);
	assert_true(role_may_read(&role, sent + 19 * MS));
	assert_false(role_may_read(&role, sent + 20 * MS));
	/* An echo of another epoch, of a heartbeat not sent yet, or of an earlier one does not extend the lease. */
	role_echoed(&role, now, 1, 2, now);
	role_echoed(&role, now, 1, 1, now + 1 * MS);
	role_echoed(&role, now, 1, 1, sent - 1);
	assert_int_equal(role.lease, lease_until(&role.times.lease, sent));
}

/* ---- answers --------------------------------------------------------------------------------- */

static void record_is_acknowledged_once_the_standby_has_it(void **state)
{
	struct role_action a;

	be_primary();
	role_placed(&role, now, 1);
	assert_false(does(ROLE_ANSWER, NULL));
	role_confirmed(&role, now, 1, 1);
	assert_true(does(ROLE_ANSWER, &a));
	assert_int_equal(a.number, 1);
}

static void slow_standby_is_dropped_before_acknowledging(void **state)
{
	struct role_action a;

	be_primary();
	role_placed(&role, now, 1);
	pass_time(24 * MS);
	assert_true(does(ROLE_SWAP, &a));
	assert_int_equal(role_wanted(&role)->in_sync, 1);
	/* While the roll backend does not answer, nothing is acknowledged. */
	role_swapped(&role, now, a.id, ROLL_UNKNOWN, 0);
	pass_time(200 * MS);
	assert_false(does(ROLE_ANSWER, NULL));
	role_read(&role, now, -ETIMEDOUT, 0, NULL);
	pass_time(200 * MS);
	assert_false(does(ROLE_ANSWER, NULL));
	assert_false(role_may_read(&role, now));
	/* The roll is unchanged, so the swap may still happen, and is tried again. */
	role_read(&role, now, 0, 3, &role.roll);
	assert_true(does(ROLE_SWAP, &a));
	assert_int_equal(a.revision, 3);
	role_swapped(&role, now, a.id, ROLL_WON, 4);
	assert_true(does(ROLE_ANSWER, &a));
	assert_int_equal(a.number, 1);
	assert_true(role_may_read(&role, now));
}

static void a_standby_without_room_is_dropped(void **state)
{
	be_primary();
	role_stuck(&role, now, 1);
	assert_true(does(ROLE_SWAP, NULL));
	assert_int_equal(role_wanted(&role)->in_sync, 1);
}

/* A standby that lost its link is dropped at once, and resynchronised before it is added again. */
static void a_standby_without_a_link_is_dropped(void **state)
{
	struct role_action a;

	be_primary();
	role_link_down(&role, now, 1);
	assert_false(role_may_change(&role, now));
	assert_true(does(ROLE_SWAP, &a));
	assert_int_equal(role_link_up(&role, now, 1, true, 1, 0), -EAGAIN);
	role_swapped(&role, now, a.id, ROLL_WON, 4);
	assert_int_equal(role_link_up(&role, now, 1, true, 1, 0), 0);
	assert_true(does(ROLE_RESYNC, NULL));
}

static void stopped_node_listens_before_it_drops_standbys(void **state)
{
	be_primary();
	now += 100 * MS;
	role_time(&role, now);
	assert_false(does(ROLE_SWAP, NULL));
	assert_false(role_may_read(&role, now));
	role_echoed(&role, now + 1, 1, 1, role.last_beat);
	pass_time(16 * MS);
	assert_false(does(ROLE_SWAP, NULL));
}

/* ---- promotion ---------------------------------------------------------------------------------- */

static void silence_fences_then_swaps_then_serves(void **state)
{
	struct role_action a;

	be_standby();
	pass_time_with_heartbeats(100 * MS);
	pass_time(23 * MS);
	assert_false(does(ROLE_FENCE, NULL));
	pass_time(2 * MS);
	assert_true(does(ROLE_FENCE, NULL));
	/* A heartbeat that arrives now is ignored. */
	role_heard(&role, now, 0, 3, now, 1);
	assert_false(does(ROLE_ECHO, NULL));
	pass_time(50 * MS);
	assert_false(does(ROLE_SWAP, NULL));
	role_fenced(&role, now, 17);
	assert_true(does(ROLE_SWAP, &a));
	assert_int_equal(a.revision, 1);
	assert_int_equal(role_wanted(&role)->epoch, 4);
	assert_int_equal(role_wanted(&role)->base, 17);
	assert_int_equal(role_wanted(&role)->in_sync, 2);
	assert_false(role_may_read(&role, now));
	role_swapped(&role, now, a.id, ROLL_WON, 2);
	assert_true(does(ROLE_SERVE, &a));
	assert_int_equal(a.epoch, 4);
	assert_true(role_may_read(&role, now) && role_may_change(&role, now));
}

static void standbys_are_promoted_in_their_order(void **state)
{
	struct roll roll = a_roll();

	for (int first = 0; first < 2; first++) {
		begin_role("cat");
		role_synced(&role, now, 3);
		roll.in_sync = 7;
		roll.members[1].order = first ? 5 : 1;
		roll.members[2].order = 4;
		role_changed(&role, now, 2, &roll);
		pass_time(26 * MS);
		assert_int_equal(does(ROLE_FENCE, NULL), first);
		pass_time(4 * MS);
		assert_int_equal(does(ROLE_FENCE, NULL), !first);
	}
}

/* The pulse has echoed a heartbeat after the node's thread read the clock: that promise holds. */
static void end_of_a_copy_takes_no_promise_back(void **state)
{
	begin_role("bee");
	role_pulse_heard(&role, now + 20 * MS, 0, 3, now);
	assert_true(does(ROLE_ECHO, NULL));
	role_synced(&role, now, 3);
	pass_time(42 * MS);
	assert_false(does(ROLE_FENCE, NULL));
	pass_time(10 * MS);
	assert_true(does(ROLE_FENCE, NULL));
}

static void node_out_of_sync_is_never_promoted(void **state)
{
	/* The roll says that it is in sync, but it has restarted and lost its memory. */
	begin_role("bee");
	pass_time(1000 * MS);
	assert_false(does(ROLE_FENCE, NULL));
	/* It believes that it is in sync, but the roll says that it is not. */
	begin_role("cat");
	role_synced(&role, now, 3);
	pass_time(1000 * MS);
	assert_false(does(ROLE_FENCE, NULL));
}

static void node_with_a_torn_record_is_not_promoted(void **state)
{
	be_standby();
	role_torn(&role, now);
	assert_int_equal(role.state, ROLE_OUTSIDE);
	pass_time(1000 * MS);
	assert_false(does(ROLE_FENCE, NULL));
	/* Nor is a node promoted that is being resynchronised, though it was in sync. */
	be_standby();
	role_copying(&role, now);
	pass_time(1000 * MS);
	assert_false(does(ROLE_FENCE, NULL));
}

static void restarted_primary_does_not_serve(void **state)
{
	begin_role("ant");
	assert_int_equal(role.state, ROLE_OUTSIDE);
	pass_time(1000 * MS);
	assert_false(does(ROLE_SERVE, NULL));
	assert_false(role_may_read(&role, now));
}

static void node_that_lost_the_only_copy_refuses(void **state)
{
	struct roll roll = a_roll();

	roll.in_sync = 1;
	now = 100 * NS_PER_S;
	role_init(&role, &role_defaults, "ant", 0, now);
	role_read(&role, now, 0, 1, &roll);
	assert_int_equal(role.state, ROLE_REFUSED);
}

static void lost_swap_is_followed_by_a_read(void **state)
{
	struct roll roll = a_roll();
	struct role_action a;

	be_standby();
	pass_time(30 * MS);
	role_fenced(&role, now, 17);
	assert_true(does(ROLE_SWAP, &a));
	role_swapped(&role, now, a.id, ROLL_LOST, 0);
	assert_true(does(ROLE_READ, NULL));
	/* cat was faster. */
	roll.epoch = 4, roll.primary = 2, roll.in_sync = 4, roll.base = 16;
	role_read(&role, now, 0, 2, &roll);
	assert_int_equal(role.state, ROLE_OUTSIDE);
	assert_true(does(ROLE_FOLLOW, &a));
	assert_int_equal(a.seat, 2);
}

/* The swap was won, and the answer lost. */
static void swap_of_unknown_outcome_is_read_back(void **state)
{
	struct role_action a;
	struct roll roll;

	be_standby();
	pass_time(30 * MS);
	role_fenced(&role, now, 17);
	assert_true(does(ROLE_SWAP, &a));
	roll = *role_wanted(&role);
	role_swapped(&role, now, a.id, ROLL_UNKNOWN, 0);
	pass_time(30 * MS);
	assert_true(does(ROLE_READ, NULL));
	role_read(&role, now, 0, 2, &roll);
	assert_true(does(ROLE_SERVE, NULL));
}

static void nodes_wait_for_a_silent_roll_backend(void **state)
{
	struct role_action a;

	be_standby();
	pass_time(30 * MS);
	role_fenced(&role, now, 17);
	assert_true(does(ROLE_SWAP, &a));
	pass_time(10000 * MS);
	assert_false(does(ROLE_SERVE, NULL));
	assert_int_equal(role.state, ROLE_CLAIMING);
}

static void an_old_epoch_is_ignored(void **state)
{
	struct role_action a;

	be_standby();
	role_heard(&role, now, 0, 2, now, 1);
	assert_false(does(ROLE_ECHO, NULL));
	role_heard(&role, now, 2, 3, now, 1); /* not from the primary */
	assert_false(does(ROLE_ECHO, NULL));
	role_heard(&role, now, 0, 4, now, 1);
	assert_true(does(ROLE_READ, NULL));
	role_heard(&role, now, 0, 3, now - 5, 1);
	assert_true(does(ROLE_ECHO, &a));
	assert_int_equal(a.time, now - 5);
}

static void roll_older_than_the_saved_epoch_is_refused(void **state)
{
	struct roll roll = a_roll();

	now = 100 * NS_PER_S;
	role_init(&role, &role_defaults, "bee", 4, now);
	role_read(&role, now, 0, 1, &roll);
	assert_int_equal(role.state, ROLE_REFUSED);
}

static void removed_node_does_not_rejoin_by_itself(void **state)
{
	struct roll roll = a_roll();

	begin_role("cat");
	memset(&roll.members[2], 0, sizeof(roll.members[2]));
	role_changed(&role, now, 2, &roll);
	assert_int_equal(role.state, ROLE_REFUSED);
}

static void stopped_standby_listens_before_it_claims(void **state)
{
	be_standby();
	pass_time_with_heartbeats(10 * MS);
	now += 60 * NS_PER_S;
	role_heard(&role, now, 0, 3, now - 1, 1);
	assert_true(does(ROLE_ECHO, NULL));
	now += 60 * NS_PER_S;
	role_time(&role, now);
	assert_false(does(ROLE_FENCE, NULL));
	pass_time(8 * MS);
	assert_true(does(ROLE_FENCE, NULL));
}

/* ---- creation, switchover ----------------------------------------------------------------------- */

static void existing_pool_is_not_created_again(void **state)
{
	struct roll_member us = {.name = "dog", .address = "h:1"};
	static const uint8_t uuid[ROLL_UUID_LEN] = {1};
	struct roll roll = a_roll();
	struct role_action a;

	for (int replace = 0; replace < 2; replace++) {
		now = 100 * NS_PER_S;
		role_init(&role, &role_defaults, "dog", 0, now);
		role_create(&role, uuid, &us, replace);
		forget_actions();
		role_read(&role, now, 0, 9, &roll);
		if (!replace) {
			assert_int_equal(role.state, ROLE_REFUSED);
			continue;
		}
		assert_true(does(ROLE_SWAP, &a));
		assert_int_equal(a.revision, 9);
		role_swapped(&role, now, a.id, ROLL_WON, 10);
		assert_int_equal(role.state, ROLE_PRIMARY);
		assert_int_equal(role.epoch, 4);
	}
}

static void switchover_stops_changes_then_reads(void **state)
{
	struct role_action a;
	struct roll roll;

	be_primary();
	role_placed(&role, now, 1);
	assert_int_equal(role_switch(&role, now, 2), -EINVAL);
	assert_int_equal(role_switch(&role, now, 1), 0);
	assert_false(role_may_change(&role, now));
	role_read(&role, now, 0, 3, &role.roll);
	assert_true(role_may_read(&role, now));
	assert_false(does(ROLE_HANDOVER, NULL)); /* a record is not acknowledged yet */
	role_confirmed(&role, now, 1, 1);
	role_time(&role, now);
	assert_false(role_may_read(&role, now));
	assert_true(does(ROLE_HANDOVER, &a));
	assert_int_equal(a.number, 1);
	assert_int_equal(a.revision, 3);
	/* The successor has accepted. */
	roll = role.roll;
	roll.epoch++, roll.primary = 1, roll.base = 1;
	role_changed(&role, now, 4, &roll);
	assert_int_equal(role.state, ROLE_STANDBY);
}

static void unaccepted_handover_is_revoked_by_a_swap(void **state)
{
	struct role_action a;

	be_primary();
	assert_int_equal(role_switch(&role, now, 1), 0);
	role_read(&role, now, 0, 3, &role.roll);
	assert_true(does(ROLE_HANDOVER, NULL));
	for (int i = 0; i < 110; i++) {
		pass_time(2 * MS);
		role_echoed(&role, now, 1, 1, role.last_beat);
		assert_false(role_may_read(&role, now));
	}
	assert_true(does(ROLE_SWAP, &a));
	assert_memory_equal(role_wanted(&role), &role.roll, sizeof(role.roll));
	role_swapped(&role, now, a.id, ROLL_WON, 4);
	assert_int_equal(role.state, ROLE_PRIMARY);
	assert_true(role_may_change(&role, now));
}

static void handover_is_accepted_at_its_revision_only(void **state)
{
	struct roll roll = a_roll();

	be_standby();
	role_handover(&role, now, 3, 17, 2, false);
	assert_true(does(ROLE_READ, NULL));
	assert_int_equal(role.state, ROLE_STANDBY);
	role_read(&role, now, 0, 2, &roll);
	assert_true(does(ROLE_FENCE, NULL));
	role_changed(&role, now, 3, &roll); /* revoked meanwhile */
	role_fenced(&role, now, 17);
	assert_false(does(ROLE_SWAP, NULL));
	assert_int_equal(role.state, ROLE_STANDBY);
}

static void stopping_primary_is_dropped_from_the_in_sync_set(void **state)
{
	for (int leaves = 0; leaves < 2; leaves++) {
		be_standby();
		role_handover(&role, now, 3, 17, role.revision, leaves);
		assert_true(does(ROLE_FENCE, NULL));
		role_fenced(&role, now, 17);
		assert_true(does(ROLE_SWAP, NULL));
		assert_true(roll_in_sync(role_wanted(&role), (unsigned int)role.seat));
		assert_int_equal(roll_in_sync(role_wanted(&role), role.roll.primary), !leaves);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(terms_that_are_not_safe_are_refused),
		cmocka_unit_test(terms_of_two_nodes_go_together),
		cmocka_unit_test(the_lease_ends_before_the_silence),
		cmocka_unit_test(reads_are_served_until_the_lease_ends),
		cmocka_unit_test(record_is_acknowledged_once_the_standby_has_it),
		cmocka_unit_test(slow_standby_is_dropped_before_acknowledging),
		cmocka_unit_test(a_standby_without_room_is_dropped),
		cmocka_unit_test(a_standby_without_a_link_is_dropped),
		cmocka_unit_test(stopped_node_listens_before_it_drops_standbys),
		cmocka_unit_test(silence_fences_then_swaps_then_serves),
		cmocka_unit_test(standbys_are_promoted_in_their_order),
		cmocka_unit_test(end_of_a_copy_takes_no_promise_back),
		cmocka_unit_test(node_out_of_sync_is_never_promoted),
		cmocka_unit_test(node_with_a_torn_record_is_not_promoted),
		cmocka_unit_test(restarted_primary_does_not_serve),
		cmocka_unit_test(node_that_lost_the_only_copy_refuses),
		cmocka_unit_test(lost_swap_is_followed_by_a_read),
		cmocka_unit_test(swap_of_unknown_outcome_is_read_back),
		cmocka_unit_test(nodes_wait_for_a_silent_roll_backend),
		cmocka_unit_test(an_old_epoch_is_ignored),
		cmocka_unit_test(roll_older_than_the_saved_epoch_is_refused),
		cmocka_unit_test(removed_node_does_not_rejoin_by_itself),
		cmocka_unit_test(stopped_standby_listens_before_it_claims),
		cmocka_unit_test(existing_pool_is_not_created_again),
		cmocka_unit_test(switchover_stops_changes_then_reads),
		cmocka_unit_test(unaccepted_handover_is_revoked_by_a_swap),
		cmocka_unit_test(handover_is_accepted_at_its_revision_only),
		cmocka_unit_test(stopping_primary_is_dropped_from_the_in_sync_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
