// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_target.c - the public calls of a target, from other threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "dice.h"
#include "memory_unit.h"
#include "peer.h"

static struct stag_block_target *target;
static struct peer peer;
static atomic_uint lines;

static void count_line(void *arg, const char *line)
{
	assert_ptr_equal(arg, &lines);
	atomic_fetch_add(&lines, 1);
}

static const struct stag_block_target_attr attr = {
	.name = "iqn.2026-01.x:t",
	.address = "127.0.0.1",
	.flags = STAG_BLOCK_ANY_PORT | STAG_BLOCK_NO_RDMA,
	.log = count_line,
	.log_arg = &lines};
static const struct stag_block_lun unit = {.lun = 1, .where = "memory"};

static int set_up(void **state)
{
	memory_unit = (struct memory_unit_knobs){0};
	target = stag_block_target_start(&attr);
	assert_non_null(target);
	assert_int_equal(stag_block_target_add(target, &unit), 0);
	peer_connect_to(&peer, stag_block_target_port(target));
	return 0;
}

static int tear_down(void **state)
{
	stag_block_target_stop(target);
	peer_close(&peer);
	return 0;
}

static void sessions_and_commands_are_counted(void **state)
{
	struct stag_block_counters c;
	struct stag_block_session s = {0};
	uint8_t block[512] = {1};

	peer_login(&peer);
	assert_int_equal(peer_finish(&peer, peer_write(&peer, 0, 1, block, 512, PDU_FINAL), NULL),
			 SCSI_GOOD);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 8), NULL), SCSI_GOOD);
	assert_int_equal(stag_block_target_query(target, &c, sizeof(c)), 0);
	assert_int_equal(c.logins, 1);
	assert_int_equal(c.reads, 1);
	assert_int_equal(c.read_bytes, 4096);
	assert_int_equal(c.writes, 1);
	assert_int_equal(c.written_bytes, 512);
	assert_int_equal(c.read_times.count, 1);
	assert_int_equal(c.write_times.count, 1);
	assert_true(c.read_times.sum_ns > 0 && c.write_times.sum_ns > 0);
	assert_true(stag_block_target_next(target, &s));
	assert_string_equal(s.initiator, "iqn.2026-01.x:i");
	assert_int_equal(s.transport, STAG_BLOCK_TCP);
	assert_int_equal(s.counters.read_bytes, 4096);
	assert_int_equal(s.counters.read_times.count, 1);
	assert_memory_equal(s.address, "127.0.0.1:", 10);
	assert_false(stag_block_target_next(target, &s));
	assert_int_equal(atomic_load(&lines), 1);
}

static void units_are_added_and_removed(void **state)
{
	struct stag_block_lun second = unit;
	uint32_t itt;

	peer_login(&peer);
	assert_int_equal(stag_block_target_add(target, &unit), EEXIST);
	assert_non_null(strstr(stag_block_error(), "LUN 1"));
	second.lun = 2;
	assert_int_equal(stag_block_target_add(target, &second), 0);
	itt = peer_read(&peer, 0, 1);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), 0x063f0e); /* reported LUNs data has changed */
	assert_int_equal(stag_block_target_remove(target, 1), 0);
	assert_int_equal(stag_block_target_remove(target, 1), ENOENT);
	itt = peer_read(&peer, 0, 1);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), 0x052500); /* not supported */
	assert_int_equal(stag_block_target_resized(target, 2), 0);
	assert_int_equal(stag_block_target_resized(target, 1), ENOENT);
}

static void a_unit_that_has_grown_raises_an_attention(void **state)
{
	uint64_t end = clock_ns() + 60 * NS_PER_S;
	unsigned int before = atomic_load(&lines);
	uint8_t status;

	peer_login(&peer);
	atomic_store(&memory_unit.grows, true);
	do
		status = peer_finish(&peer, peer_read(&peer, 0, 1), NULL);
	while (status == SCSI_GOOD && clock_ns() < end);
	assert_int_equal(status, SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), 0x062a09); /* capacity data has changed */
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
	assert_int_equal(atomic_load(&lines), before + 2); /* the login, the growth */
}

/* ---- the audit log ------------------------------------------------------------------- */

#define RECORDS 16

static struct {
	char text[RECORDS][200];
	atomic_uint n;
} heard;

static void keep_record(const struct stag_audit_record *r, void *arg)
{
	static const char *const outcomes[] = {"allowed", "refused", "failed"};
	unsigned int i = atomic_load(&heard.n);

	(void)arg;
	if (i == RECORDS || strcmp(r->action, "login") == 0)
		return;
	snprintf(heard.text[i], sizeof(heard.text[i]), "%s: %s: %s", outcomes[r->outcome],
		 r->action, r->reason ? r->reason : "");
	atomic_store(&heard.n, i + 1);
}

/* Waits for it: the target reports from a thread of its own. */
static void expect_record(unsigned int i, const char *text)
{
	uint64_t end = clock_ns() + 60 * NS_PER_S;

	while (atomic_load(&heard.n) <= i && clock_ns() < end)
		sched_yield();
	assert_true(i < atomic_load(&heard.n));
	assert_string_equal(heard.text[i], text);
}

/* Logs in with these rights; unit 2 exists, too. */
static void log_in_with(const struct stag_block_right *right)
{
	static const struct audit_sink sink = {keep_record, NULL};
	struct stag_block_target_attr with = attr;
	struct stag_block_lun second = unit;

	second.lun = 2;
	tear_down(NULL);
	with.comp_mask = STAG_BLOCK_TARGET_RIGHTS;
	with.rights = right;
	with.num_rights = 1;
	target = stag_block_target_start(&with);
	assert_non_null(target);
	assert_int_equal(stag_block_target_add(target, &unit), 0);
	assert_int_equal(stag_block_target_add(target, &second), 0);
	peer_connect_to(&peer, stag_block_target_port(target));
	atomic_store(&heard.n, 0);
	audit_set_sink(&sink);
	peer_login(&peer);
}

static uint8_t reserve_out(uint8_t action, uint64_t key, uint64_t new_key)
{
	const uint8_t cdb[16] = {0x5f, action, 0x01, [8] = 24};
	uint8_t list[24] = {0};

	put_be64(list, key);
	put_be64(list + 8, new_key);
	return peer_finish(
		&peer,
		peer_command(&peer, cdb, PDU_FINAL | CMD_WRITE, sizeof(list), list, sizeof(list)),
		NULL);
}

static uint8_t reset_unit(void)
{
	struct pdu p = {.opcode = TASK_REQUEST,
			.immediate = true,
			.flags = PDU_FINAL | TMF_LUN_RESET,
			.lun = 1ull << 48,
			.itt = 77,
			.cmd_sn = peer.cmd_sn};

	peer_say(&peer, &p, NULL, 0);
	peer_hear_a(&peer, TASK_RESPONSE);
	return peer.in.code;
}

static void what_the_rights_of_an_initiator_do_not_allow_is_audited(void **state)
{
	static const struct stag_block_right reader = {
		.initiator = "iqn.2026-01.x:i", .luns = "1", .flags = STAG_BLOCK_READ_ONLY};
	struct pdu ready = {.opcode = SCSI_COMMAND, .flags = PDU_FINAL, .lun = 2ull << 48};
	uint8_t block[512] = {1};

	(void)state;
	log_in_with(&reader);
	peer_finish(&peer, peer_write(&peer, 0, 1, block, 512, PDU_FINAL), NULL);
	ready.itt = peer.next_itt++;
	ready.cmd_sn = peer.cmd_sn++;
	peer_say(&peer, &ready, NULL, 0);
	peer_finish(&peer, ready.itt, NULL);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
	assert_int_equal(reset_unit(), TASK_NOT_AUTHORIZED);
	expect_record(0, "refused: command 0x2a, LUN 1: may only read");
	expect_record(1, "refused: command 0x00, LUN 2: no right to this unit");
	expect_record(2, "refused: reset unit, LUN 1: no right to reset");
	audit_set_sink(NULL);
	assert_int_equal(atomic_load(&heard.n), 3);
}

static void acts_against_other_initiators_are_audited(void **state)
{
	static const struct stag_block_right writer = {.initiator = "iqn.2026-01.x:i"};

	(void)state;
	log_in_with(&writer);
	assert_int_equal(reserve_out(0, 0, 7), SCSI_GOOD); /* register */
	assert_int_equal(reserve_out(1, 7, 0), SCSI_GOOD); /* reserve */
	assert_int_equal(reserve_out(4, 7, 7), SCSI_GOOD); /* preempt */
	assert_int_equal(reserve_out(3, 8, 0), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(reserve_out(3, 7, 0), SCSI_GOOD); /* clear */
	assert_int_equal(reset_unit(), TASK_FUNCTION_COMPLETE);
	expect_record(0, "allowed: preempt reservation, LUN 1: ");
	expect_record(1, "failed: clear reservations, LUN 1: reservation conflict");
	expect_record(2, "allowed: clear reservations, LUN 1: ");
	expect_record(3, "allowed: reset unit, LUN 1: ");
	audit_set_sink(NULL);
	assert_int_equal(atomic_load(&heard.n), 4);
}

/* The target requests a logout, waits a moment, and closes. */
static void a_stopping_target_requests_logout(void **state)
{
	peer_login(&peer);
	stag_block_target_stop(target);
	peer_hear_a(&peer, ASYNC_MESSAGE);
	assert_int_equal(peer.in.event, ASYNC_LOGOUT);
	assert_false(peer_hear(&peer));
	peer_close(&peer);
	target = NULL;
}

static void invalid_attributes_are_refused(void **state)
{
	static const char *const secrets[][4] = {
		{"user", NULL, NULL, NULL},
		{"user", "short", NULL, NULL},
		{NULL, NULL, "own", "long enough it is"},
		{"user", "long enough it is", "own", "long enough it is"}};
	struct stag_block_target_attr wrong = attr;

	wrong.name = "no name";
	assert_null(stag_block_target_start(&wrong));
	assert_int_equal(errno, EINVAL);
	assert_non_null(strstr(stag_block_error(), "no name"));
	wrong = attr;
	wrong.comp_mask = 1ull << 63;
	assert_null(stag_block_target_start(&wrong));
	wrong = attr;
	wrong.flags = 0;
	wrong.port = stag_block_target_port(target);
	assert_null(stag_block_target_start(&wrong));
	assert_int_equal(errno, EADDRINUSE);
	for (size_t i = 0; i < 4; i++) {
		wrong = attr;
		wrong.user = secrets[i][0];
		wrong.secret = secrets[i][1];
		wrong.own_user = secrets[i][2];
		wrong.own_secret = secrets[i][3];
		assert_null(stag_block_target_start(&wrong));
		assert_int_equal(errno, EINVAL);
	}
}

/* Starts a target with two rights and a name and secret of its own. Returns NULL if it did, else what the error says. */
static const char *start_with_rights(const struct stag_block_right *first,
				     const struct stag_block_right *second, const char *own_secret)
{
	struct stag_block_right both[2] = {*first, *second};
	struct stag_block_target_attr a = attr;
	struct stag_block_target *t;

	a.comp_mask = STAG_BLOCK_TARGET_RIGHTS;
	a.rights = both;
	a.num_rights = 2;
	a.own_user = own_secret ? "own" : NULL;
	a.own_secret = own_secret;
	t = stag_block_target_start(&a);
	stag_block_target_stop(t);
	return t ? NULL : stag_block_error();
}

static void contradictory_rights_are_refused(void **state)
{
	struct stag_block_right any = {0},
				alice = {.user = "alice", .secret = "the secret of alice"},
				twice = {.user = "alice", .secret = "another of hers"},
				carol = {.user = "carol", .secret = "the secret of carol"},
				back = {.luns = "1,5-3"};

	assert_null(start_with_rights(&any, &alice, NULL));
	assert_null(start_with_rights(&alice, &alice, NULL));
	assert_non_null(strstr(start_with_rights(&alice, &twice, NULL), "alice"));
	assert_non_null(strstr(start_with_rights(&any, &back, NULL), "5-3"));
	assert_null(start_with_rights(&alice, &carol, "the secret of the target"));
	assert_non_null(strstr(start_with_rights(&alice, &carol, carol.secret), "carol"));
	assert_non_null(
		strstr(start_with_rights(&any, &any, "the secret of the target"), "own_user"));
}

static void *look_again_and_again(void *arg)
{
	for (unsigned long i = 0; i < lessened(200); i++) {
		struct stag_block_session s = {0};
		struct stag_block_lun l = {.lun = 7, .where = "memory"};
		struct stag_block_counters c;

		while (stag_block_target_next(target, &s))
			;
		if (stag_block_target_query(target, &c, sizeof(c)) != 0 ||
		    stag_block_target_add(target, &l) != 0 ||
		    stag_block_target_remove(target, 7) != 0)
			return "failed";
	}
	return NULL;
}

/* Other threads query the target while it serves. */
static void calls_from_other_threads_do_not_disturb(void **state)
{
	pthread_t thread;
	void *failed;

	peer_login(&peer);
	pthread_create(&thread, NULL, look_again_and_again, NULL);
	for (unsigned long i = 0; i < lessened(500); i++) {
		uint8_t status = peer_finish(&peer, peer_read(&peer, 0, 8), NULL);

		assert_true(status == SCSI_GOOD || peer_sense(&peer) == 0x063f0e);
	}
	pthread_join(thread, &failed);
	assert_null(failed);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(sessions_and_commands_are_counted),
		STORY(units_are_added_and_removed),
		STORY(a_unit_that_has_grown_raises_an_attention),
		STORY(a_stopping_target_requests_logout),
		STORY(what_the_rights_of_an_initiator_do_not_allow_is_audited),
		STORY(acts_against_other_initiators_are_audited),
		STORY(invalid_attributes_are_refused),
		STORY(contradictory_rights_are_refused),
		STORY(calls_from_other_threads_do_not_disturb),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
