// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_session.c - sessions over TCP: commands and their data, order, pings, task management, ends.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "await.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "dice.h"
#include "memory_unit.h"
#include "peer.h"
#include "base/crc32c.h"

#define BLOCKS	       2048
#define ABORTED_DIGEST 0x0b4705

static struct stag_block_target *target;
static struct peer peer, other;
static uint8_t want[BLOCKS * 512], got[BLOCKS * 512];

static int set_up(void **state)
{
	memory_unit = (struct memory_unit_knobs){0};
	target = make_target(NULL);
	peer_connect(&peer, target);
	other.fd = -1;
	dice_fill(want, sizeof(want));
	memset(got, 0, sizeof(got));
	return 0;
}

/* Starts a target whose unit lends its memory. */
static int set_up_with_memory(void **state)
{
	set_up(state);
	memory_unit.lends = true;
	return 0;
}

/* Starts a target whose initiator may log in without a user, or as one of two. */
static int set_up_with_users(void **state)
{
	static const struct stag_block_right rights[] = {
		{.initiator = "iqn.2026-01.x:i"},
		{.initiator = "iqn.2026-01.x:i", .user = "alice", .secret = "the secret of alice"},
		{.initiator = "iqn.2026-01.x:i", .user = "bob", .secret = "the secret of bob"},
	};
	struct stag_block_target_attr attr = {.name = "iqn.2026-01.x:t",
					      .comp_mask = STAG_BLOCK_TARGET_RIGHTS,
					      .rights = rights,
					      .num_rights = 3};

	memory_unit = (struct memory_unit_knobs){0};
	target = make_target(&attr);
	peer_connect(&peer, target);
	other.fd = -1;
	return 0;
}

static int tear_down(void **state)
{
	peer_close(&peer);
	peer_close(&other);
	memory_unit.hold = false;
	end_target(target);
	assert_int_equal(memory_unit.in_use, 0);
	assert_int_equal(memory_unit.lent, 0);
	return 0;
}

static void login(const char *keys, size_t len)
{
	peer_login_with(&peer, keys, len);
	assert_int_equal(peer.in.status_class, 0);
	peer_clear_attention(&peer);
}

#define LOGIN(keys) login(keys, sizeof(keys))

static void expect_on_disk(uint32_t block, const void *bytes, size_t len)
{
	assert_memory_equal(memory_unit_bytes() + block * 512, bytes, len);
}

static void second_session(void)
{
	peer_connect(&other, target);
	other.isid[5] = 2;
	peer_login(&other);
}

static void use_digests(void)
{
	static const char keys[] = "HeaderDigest=CRC32C\0DataDigest=CRC32C\0InitialR2T=No";

	peer_login_with(&peer, keys, sizeof(keys));
	assert_int_equal(peer.in.status_class, 0);
	peer.header_digest = peer.data_digest = true;
	peer_clear_attention(&peer);
}

/* ---- data ---------------------------------------------------------------------------------- */

static void a_write_has_immediate_data(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 8, 8, want, 4096, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	expect_on_disk(8, want, 4096);
	itt = peer_read(&peer, 8, 8);
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
	assert_memory_equal(got, want, 4096);
	assert_int_equal(peer.in.opcode, DATA_IN); /* the status is in the Data-In */
	assert_int_equal(peer.in.flags, PDU_FINAL | DATA_STATUS);
}

static void unsolicited_data_follows(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 64, want, 1024, 0);
	peer_data(&peer, itt, TAG_NONE, 0, 1024, want + 1024, 10000, false);
	assert_true(peer_hears_nothing(&peer));
	peer_data(&peer, itt, TAG_NONE, 1, 11024, want + 11024, 32768 - 11024, true);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	expect_on_disk(0, want, 32768);
}

/* The target solicits what the first burst does not contain. */
static void the_rest_is_solicited_by_r2t(void **state)
{
	uint32_t itt;

	LOGIN("FirstBurstLength=65536\0InitialR2T=No");
	itt = peer_write(&peer, 0, BLOCKS, want, 512, 0);
	peer_data(&peer, itt, TAG_NONE, 0, 512, want + 512, 65536 - 512, true);
	for (uint32_t at = 65536, sn = 0; at < sizeof(want); sn++) {
		peer_hear_a(&peer, R2T);
		assert_int_equal(peer.in.itt, itt);
		assert_int_equal(peer.in.data_sn, sn);
		assert_int_equal(peer.in.offset, at);
		assert_true(peer.in.length <= 262144);
		at += peer.in.length;
		peer_answer_r2t(&peer, want);
	}
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	expect_on_disk(0, want, sizeof(want));
}

/* The unit is started only for unsolicited data; solicited data is written to its memory directly. */
static void memory_is_written_in_place(void **state)
{
	unsigned int started;

	LOGIN("FirstBurstLength=65536\0InitialR2T=Yes");
	started = memory_unit.started;
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, BLOCKS), got), SCSI_GOOD);
	for (uint32_t at = 0, itt = peer_write(&peer, 0, BLOCKS, NULL, 0, PDU_FINAL);;) {
		peer_hear_a(&peer, R2T);
		at += peer.in.length;
		peer_answer_r2t(&peer, want);
		if (at < sizeof(want))
			continue;
		assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
		break;
	}
	expect_on_disk(0, want, sizeof(want));
	assert_int_equal(memory_unit.started, started);
}

/* Another initiator may write to the memory between the digest's computation and the sending. */
static void with_digests_memory_is_copied(void **state)
{
	unsigned int started;

	use_digests();
	started = memory_unit.started;
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 8), got), SCSI_GOOD);
	assert_int_equal(memory_unit.started, started + 1);
}

static void bursts_and_segments_are_as_agreed(void **state)
{
	uint32_t itt, at = 0, burst = 0;

	LOGIN("MaxBurstLength=8192\0MaxRecvDataSegmentLength=5000\0ImmediateData=No\0"
	      "MaxOutstandingR2T=1");
	itt = peer_write(&peer, 0, 100, NULL, 0, PDU_FINAL);
	for (uint32_t done = 0; done < 51200; done += peer.in.length) {
		peer_hear_a(&peer, R2T);
		assert_int_equal(peer.in.offset, done);
		assert_true(peer.in.length <= 8192);
		peer_answer_r2t(&peer, want);
	}
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	itt = peer_read(&peer, 0, 100);
	while (at < 51200) {
		peer_hear_a(&peer, DATA_IN);
		assert_true(peer.in.data_len <= 5000);
		assert_int_equal(peer.in.offset, at);
		assert_memory_equal(peer.data, want + at, peer.in.data_len);
		at += peer.in.data_len;
		burst += peer.in.data_len;
		assert_true(burst <= 8192);
		if (peer.in.flags & PDU_FINAL)
			burst = 0;
	}
	assert_true(peer.in.flags & DATA_STATUS);
}

static void large_reads_come_in_order(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	memcpy(memory_unit_bytes(), want, sizeof(want));
	itt = peer_read(&peer, 0, BLOCKS);
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
	assert_memory_equal(got, want, sizeof(want));
}

static void bytes_may_arrive_one_by_one(void **state)
{
	struct pdu p = {.opcode = SCSI_COMMAND,
			.flags = PDU_FINAL | CMD_WRITE,
			.lun = 1ull << 48,
			.itt = 5,
			.expected = 512,
			.cdb = {0x2a, 0, 0, 0, 0, 3, 0, 0, 1}};
	uint8_t bytes[BHS_LEN + DIGEST_LEN + 512 + DIGEST_LEN];

	use_digests();
	p.cmd_sn = peer.cmd_sn++;
	p.data_len = 512;
	iscsi_pdu_encode(&p, bytes);
	crc32c_put(bytes + 48, crc32c_update(CRC32C_INIT, bytes, 48));
	memcpy(bytes + 52, want, 512);
	crc32c_put(bytes + 564, crc32c_update(CRC32C_INIT, want, 512));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		peer_say_bytes(&peer, bytes + i, 1);
		target_step(target, 0);
	}
	assert_int_equal(peer_finish(&peer, 5, NULL), SCSI_GOOD);
	expect_on_disk(3, want, 512);
}

static void residual_counts_are_reported(void **state)
{
	static const uint8_t inquiry[16] = {0x12, 0, 0, 0, 36};
	uint8_t cdb[16] = {0x28, 0, 0, 0, 0, 0, 0, 0, 2};
	uint32_t itt;

	peer_login(&peer);
	itt = peer_command(&peer, inquiry, PDU_FINAL | CMD_READ, 100, NULL, 0);
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
	assert_true(peer.in.flags & RES_UNDER);
	assert_int_equal(peer.in.residual, 64);
	itt = peer_command(&peer, cdb, PDU_FINAL | CMD_READ, 512, NULL,
			   0); /* the CDB says two blocks */
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
	assert_true(peer.in.flags & RES_OVER);
	assert_int_equal(peer.in.residual, 512);
	cdb[0] = 0x2a;
	itt = peer_command(&peer, cdb, PDU_FINAL | CMD_WRITE, 2048, want, 2048);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	assert_true(peer.in.flags & RES_UNDER);
	assert_int_equal(peer.in.residual, 1024);
	expect_on_disk(0, want, 1024);
	assert_memory_not_equal(memory_unit_bytes() + 1024, want + 1024, 512);
}

static void a_failing_unit_is_reported(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	memory_unit.error = -5;
	itt = peer_read(&peer, 0, BLOCKS);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer) >> 16, SCSI_MEDIUM_ERROR);
	itt = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	memory_unit.error = 0;
	itt = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
}

/* RFC 7143 §11.4: the response waits for all unsolicited data. */
static void an_error_waits_for_the_first_burst(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0x7fffffff, 4, want, 512, 0); /* far past the end of the unit */
	assert_true(peer_hears_nothing(&peer));
	peer_data(&peer, itt, TAG_NONE, 0, 512, want, 1536, true);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), 0x052100); /* LBA out of range */
}

/* ---- digests ---------------------------------------------------------------------------------- */

static void digests_are_made_and_checked(void **state)
{
	uint32_t itt;

	use_digests();
	itt = peer_write(&peer, 0, BLOCKS, want, 513, 0);
	peer_data(&peer, itt, TAG_NONE, 0, 513, want + 513, 1022, true);
	while (memory_unit.started < 4) {
		peer_hear_a(&peer, R2T);
		peer_answer_r2t(&peer, want);
		target_step(target, 0);
		if (peer.in.offset + peer.in.length == sizeof(want))
			break;
	}
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	expect_on_disk(0, want, sizeof(want));
	itt = peer_read(&peer, 0, BLOCKS);
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
	assert_memory_equal(got, want, sizeof(want));
}

static void a_wrong_header_digest_ends_the_connection(void **state)
{
	use_digests();
	peer.spoil_header = true;
	peer_read(&peer, 0, 1);
	peer_must_be_closed(&peer);
	assert_int_equal(target->counters.violations, 1);
}

static void data_with_a_wrong_digest_is_not_written(void **state)
{
	static const uint8_t zeroes[4096];
	uint32_t itt;

	use_digests();
	peer.spoil_data = true;
	itt = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), ABORTED_DIGEST);
	peer.spoil_data = false;
	itt = peer_write(&peer, 0, 8, want, 512, 0);
	peer.spoil_data = true;
	peer_data(&peer, itt, TAG_NONE, 0, 512, want, 3584, true);
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_DATA_DIGEST);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), ABORTED_DIGEST);
	expect_on_disk(0, zeroes, sizeof(zeroes));
}

/* ---- order -------------------------------------------------------------------------------------- */

static void commands_run_in_order(void **state)
{
	uint32_t first, second, third;

	peer_login(&peer);
	peer.cmd_sn += 2;
	third = peer_write(&peer, 0, 1, want + 1024, 512, PDU_FINAL);
	peer.cmd_sn -= 2;
	second = peer_write(&peer, 0, 1, want + 512, 512, PDU_FINAL);
	peer.cmd_sn -= 2;
	assert_true(peer_hears_nothing(&peer));
	first = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	peer.cmd_sn += 2;
	assert_int_equal(peer_finish(&peer, first, NULL), SCSI_GOOD);
	assert_int_equal(peer_finish(&peer, second, NULL), SCSI_GOOD);
	assert_int_equal(peer_finish(&peer, third, NULL), SCSI_GOOD);
	expect_on_disk(0, want + 1024, 512);
}

static void requests_outside_the_window_are_ignored(void **state)
{
	static const uint8_t zeroes[512];

	peer_login(&peer);
	peer.cmd_sn += 5000;
	peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	peer.cmd_sn -= 5003;
	peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_true(peer_hears_nothing(&peer));
	peer.cmd_sn += 1;
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), got), SCSI_GOOD);
	assert_memory_equal(got, zeroes, 512);
}

/* The window limits how many commands an initiator may send. */
static void the_window_closes_and_opens(void **state)
{
	uint32_t first;

	peer_login(&peer);
	memory_unit.hold = true;
	first = peer.next_itt;
	for (int i = 0; i < SESSION_WINDOW; i++)
		peer_read(&peer, 0, 1);
	peer_read(&peer, 0, 1); /* one too many */
	assert_true(peer_hears_nothing(&peer));
	assert_int_equal(memory_unit.started, SESSION_WINDOW);
	memory_unit.hold = false;
	for (uint32_t i = 0; i < SESSION_WINDOW; i++)
		assert_int_equal(peer_finish(&peer, first + i, NULL), SCSI_GOOD);
	assert_true(peer_hears_nothing(&peer));
	assert_int_equal(peer.in.max_cmd_sn, peer.in.exp_cmd_sn + SESSION_WINDOW - 1);
}

static void a_tag_in_use_is_rejected(void **state)
{
	peer_login(&peer);
	memory_unit.hold = true;
	peer_read(&peer, 0, 1);
	peer.next_itt--;
	peer_read(&peer, 0, 1);
	peer.cmd_sn--;
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_TASK_IN_PROGRESS);
	assert_int_equal(peer.in.data_len, BHS_LEN);
	memory_unit.hold = false;
	assert_int_equal(peer_finish(&peer, peer.next_itt - 1, NULL), SCSI_GOOD);
}

/* ---- task management -------------------------------------------------------------------------------- */

static uint8_t manage(struct peer *p, uint8_t function, uint32_t ref_tag, bool wait)
{
	struct pdu out = {.opcode = TASK_REQUEST,
			  .immediate = true,
			  .flags = PDU_FINAL | function,
			  .lun = 1ull << 48,
			  .itt = p->next_itt++,
			  .cmd_sn = p->cmd_sn,
			  .ref_tag = ref_tag};

	peer_say(p, &out, NULL, 0);
	if (!wait)
		return 0;
	peer_hear_a(p, TASK_RESPONSE);
	assert_int_equal(p->in.itt, out.itt);
	return p->in.code;
}

/* The response to the abort comes when the unit has completed the task, which gets no response itself. */
static void an_aborted_task_sends_no_response(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	memory_unit.hold = true;
	itt = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	manage(&peer, TMF_ABORT_TASK, itt, false);
	assert_true(peer_hears_nothing(&peer));
	memory_unit.hold = false;
	peer_hear_a(&peer, TASK_RESPONSE);
	assert_int_equal(peer.in.code, TASK_FUNCTION_COMPLETE);
	assert_true(peer_hears_nothing(&peer));
	assert_int_equal(manage(&peer, TMF_ABORT_TASK, itt, true), TASK_NO_TASK);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
}

/* Solicited data that arrives after the abort is dropped. */
static void data_of_aborted_tasks_is_dropped(void **state)
{
	struct pdu r2t;
	uint32_t itt;

	LOGIN("ImmediateData=No");
	itt = peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	r2t = peer.in;
	assert_int_equal(manage(&peer, TMF_ABORT_TASK, itt, true), TASK_FUNCTION_COMPLETE);
	peer_data(&peer, itt, r2t.ttt, 0, 0, want, 4096, true);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
	assert_int_equal(memory_unit.in_use, 0);
}

static void a_reset_is_for_all_sessions(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	second_session();
	memory_unit.hold = true;
	itt = peer_read(&other, 0, 1);
	assert_true(peer_hears_nothing(&other));
	manage(&peer, TMF_LUN_RESET, TAG_NONE, false);
	assert_true(peer_hears_nothing(&peer));
	memory_unit.hold = false;
	peer_hear_a(&peer, TASK_RESPONSE);
	assert_int_equal(peer.in.code, TASK_FUNCTION_COMPLETE);
	assert_true(peer_hears_nothing(&other));
	itt = peer_read(&other, 0, 1);
	assert_int_equal(peer_finish(&other, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&other) >> 16, SCSI_UNIT_ATTENTION);
}

static void unknown_functions_have_their_responses(void **state)
{
	peer_login(&peer);
	assert_int_equal(manage(&peer, 8, 0, true), TASK_NO_REASSIGNMENT);
	assert_int_equal(manage(&peer, 9, 0, true), TASK_NOT_SUPPORTED);
	assert_int_equal(manage(&peer, 0x7f, 0, true), TASK_NOT_SUPPORTED);
	assert_int_equal(manage(&peer, TMF_ABORT_TASK, 4711, true), TASK_NO_TASK);
}

static void a_cold_reset_ends_all_connections(void **state)
{
	peer_login(&peer);
	second_session();
	assert_int_equal(manage(&peer, TMF_TARGET_COLD_RESET, 0, true), TASK_FUNCTION_COMPLETE);
	peer_must_be_closed(&peer);
	peer_must_be_closed(&other);
}

/* ---- pings, text, logout ------------------------------------------------------------------------------ */

static void pings_are_answered(void **state)
{
	struct pdu p = {.opcode = NOP_OUT, .flags = PDU_FINAL, .itt = 7, .ttt = TAG_NONE};

	peer_login(&peer);
	p.cmd_sn = peer.cmd_sn++;
	peer_say(&peer, &p, "hello", 5);
	peer_hear_a(&peer, NOP_IN);
	assert_int_equal(peer.in.itt, 7);
	assert_int_equal(peer.in.ttt, TAG_NONE);
	assert_int_equal(peer.in.data_len, 5);
	assert_memory_equal(peer.data, "hello", 5);
	assert_int_equal(peer.in.exp_cmd_sn, peer.cmd_sn);
}

static void a_silent_initiator_is_pinged(void **state)
{
	struct pdu p = {.opcode = NOP_OUT, .immediate = true, .flags = PDU_FINAL, .itt = TAG_NONE};

	peer_login(&peer);
	target->config.limits.ping_ns = 0;
	target->loop.next_tick = 0;
	peer_hear_a(&peer, NOP_IN);
	assert_int_equal(peer.in.itt, TAG_NONE);
	assert_int_not_equal(peer.in.ttt, TAG_NONE);
	target->config.limits.ping_ns = 1000 * NS_PER_S;
	p.ttt = peer.in.ttt;
	p.cmd_sn = peer.cmd_sn;
	peer_say(&peer, &p, NULL, 0);
	target->config.limits.answer_ns = 0;
	assert_true(peer_hears_nothing(&peer));
	target->loop.next_tick = 0;
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
}

static void an_initiator_that_ignores_pings_is_dropped(void **state)
{
	peer_login(&peer);
	target->config.limits.ping_ns = target->config.limits.answer_ns = 0;
	target->loop.next_tick = 0;
	peer_hear_a(&peer, NOP_IN);
	target->loop.next_tick = 0;
	assert_false(peer_hear(&peer));
	assert_int_equal(target->counters.lost, 1);
}

static void say_text(const char *list, uint32_t len, uint8_t flags, uint32_t ttt)
{
	struct pdu p = {.opcode = TEXT_REQUEST, .flags = flags, .itt = peer.next_itt++, .ttt = ttt};

	p.cmd_sn = peer.cmd_sn++;
	peer_say(&peer, &p, list, len);
}

static void discovery_names_the_target(void **state)
{
	static const char first[] = "TargetName=iqn.2026-01.x:t\0TargetAddress=127.0.0.1:";
	static const char keys[] = "SessionType=Discovery";

	peer_login_with(&peer, keys, sizeof(keys));
	assert_int_equal(peer.in.status_class, 0);
	say_text("SendTargets=All", 16, PDU_FINAL, TAG_NONE);
	peer_hear_a(&peer, TEXT_RESPONSE);
	assert_int_equal(peer.in.flags, PDU_FINAL);
	assert_memory_equal(peer.data, first, sizeof(first) - 1);
	say_text("SendTar", 7, PDU_CONTINUE, TAG_NONE);
	peer_hear_a(&peer, TEXT_RESPONSE);
	assert_int_equal(peer.in.data_len, 0);
	say_text("gets=iqn.2026-01.x:none", 24, PDU_FINAL, peer.in.ttt);
	peer_hear_a(&peer, TEXT_RESPONSE);
	assert_int_equal(peer.in.data_len, 0);
	peer_read(&peer, 0, 1);
	peer_hear_a(&peer, REJECT);
}

static void few_keys_change_after_login(void **state)
{
	static const char list[] = "MaxRecvDataSegmentLength=512\0HeaderDigest=CRC32C\0Odd=1";
	static const char answer[] = "HeaderDigest=Reject\0Odd=NotUnderstood";

	peer_login(&peer);
	say_text(list, sizeof(list), PDU_FINAL, TAG_NONE);
	peer_hear_a(&peer, TEXT_RESPONSE);
	assert_int_equal(peer.in.data_len, sizeof(answer));
	assert_memory_equal(peer.data, answer, sizeof(answer));
	peer_read(&peer, 0, 2);
	peer_hear_a(&peer, DATA_IN);
	assert_int_equal(peer.in.data_len, 512);
}

static void logout_ends_the_session(void **state)
{
	struct pdu p = {.opcode = LOGOUT_REQUEST, .immediate = true, .flags = PDU_FINAL, .itt = 9};

	peer_login(&peer);
	p.flags = PDU_FINAL | LOGOUT_RECOVERY;
	peer_say(&peer, &p, NULL, 0);
	peer_hear_a(&peer, LOGOUT_RESPONSE);
	assert_int_equal(peer.in.code, LOGOUT_NO_RECOVERY);
	p.flags = PDU_FINAL | LOGOUT_SESSION;
	peer_say(&peer, &p, NULL, 0);
	peer_hear_a(&peer, LOGOUT_RESPONSE);
	assert_int_equal(peer.in.code, LOGOUT_DONE);
	assert_false(peer_hear(&peer));
	assert_true(list_empty(&target->sessions.list));
	assert_int_equal(target->counters.logouts, 1);
}

/* ---- connections that come and go ----------------------------------------------------------------------- */

static void lost_connections_leave_nothing(void **state)
{
	LOGIN("InitialR2T=No");
	memory_unit.hold = true;
	peer_read(&peer, 0, BLOCKS);
	peer_write(&peer, 0, 8, want, 512, 0); /* an incomplete first burst */
	peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_say_bytes(&peer, "\1\x80", 2);
	await((target_step(target, 1), memory_unit.in_use >= TASK_PIECES + 2));
	peer_close(&peer);
	for (int i = 0; i < 20000 && target->conns.count; i++)
		target_step(target, 1);
	assert_int_equal(target->conns.count, 0);
	assert_int_equal(target->counters.lost, 1);
	memory_unit.hold = false;
	for (int i = 0; i < 100 && !list_empty(&target->sessions.list); i++)
		target_step(target, 0);
	assert_true(list_empty(&target->sessions.list));
	assert_int_equal(memory_unit.in_use, 0);
}

static void what_was_lent_comes_back(void **state)
{
	peer_login(&peer);
	peer_write(&peer, 0, BLOCKS, NULL, 0, PDU_FINAL);
	peer_write(&peer, 0, BLOCKS, NULL, 0, PDU_FINAL);
	for (int i = 0; i < 40; i++) /* more than a socket holds */
		peer_read(&peer, 0, BLOCKS);
	await((target_step(target, 1), memory_unit.lent >= 3));
	peer_close(&peer);
	for (int i = 0; i < 20000 && target->conns.count; i++)
		target_step(target, 1);
	assert_true(list_empty(&target->sessions.list));
	assert_int_equal(memory_unit.lent, 0);
}

/* Half of a command's data has arrived: its buffer is returned. */
static void a_connection_may_be_lost_at_any_point(void **state)
{
	for (size_t cut = 0; cut < BHS_LEN + 1024; cut += 1 + dice(97)) {
		struct pdu p = {.opcode = SCSI_COMMAND,
				.flags = CMD_WRITE,
				.lun = 1ull << 48,
				.itt = 5,
				.data_len = 1024,
				.expected = 4096,
				.cdb = {0x2a, 0, 0, 0, 0, 0, 0, 0, 8}};
		uint8_t bytes[BHS_LEN + 1024];

		if (peer.fd < 0)
			peer_connect(&peer, target);
		peer_login(&peer);
		p.cmd_sn = peer.cmd_sn;
		iscsi_pdu_encode(&p, bytes);
		memcpy(bytes + BHS_LEN, want, 1024);
		peer_say_bytes(&peer, bytes, cut);
		target_step(target, 0);
		peer_close(&peer);
		for (int i = 0; i < 20000 && target->conns.count; i++)
			target_step(target, 1);
		assert_true(list_empty(&target->sessions.list));
		assert_int_equal(memory_unit.in_use, 0);
	}
}

/* The sense data of a long read has the block where the failing piece begins. Data before it may have been sent. */
static void a_bad_block_is_reported(void **state)
{
	const uint32_t bad_lba = (3 * UNITS_BUFFER + 5000) / 512;
	uint32_t itt, told;

	peer_login(&peer);
	memory_unit.bad = (uint64_t)bad_lba * 512;
	itt = peer_read(&peer, 512, 2048);
	assert_int_equal(peer_finish(&peer, itt, got), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer), 0x031100); /* unrecovered read error */
	assert_int_equal(peer.data[2], 0xf0);
	told = (uint32_t)peer.data[5] << 24 | peer.data[6] << 16 | peer.data[7] << 8 | peer.data[8];
	assert_true(told <= bad_lba && told + UNITS_BUFFER / 512 > bad_lba);
	assert_true(peer.in.flags & RES_UNDER);
	assert_true(2048 * 512 - peer.in.residual <= (told - 512) * 512);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 8), got), SCSI_GOOD);
}

/* RFC 7143 §6.3.5: the login waits until the old session has no task in flight. */
static void a_port_that_logs_in_again_replaces_its_session(void **state)
{
	struct pdu p = {.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.itt = 1,
			.cmd_sn = 1};
	static const char list[] = "InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:t";

	peer_login(&peer);
	memory_unit.hold = true;
	peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_true(peer_hears_nothing(&peer));
	peer_connect(&other, target);
	memcpy(p.isid, peer.isid, ISID_LEN);
	peer_say(&other, &p, list, sizeof(list));
	assert_true(peer_hears_nothing(&other));
	assert_false(peer_hear(&peer));
	memory_unit.hold = false;
	peer_hear_a(&other, LOGIN_RESPONSE);
	assert_int_equal(other.in.status_class, 0);
	assert_int_equal(target->sessions.count, 1);
	peer_clear_attention(&other);
}

static void log_in_again(uint16_t tsih, uint16_t cid, uint8_t last)
{
	struct pdu p = {.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.itt = 1,
			.cmd_sn = 1,
			.tsih = tsih,
			.cid = cid};
	static const char list[] = "InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:t";

	peer_connect(&other, target);
	memcpy(p.isid, peer.isid, ISID_LEN);
	p.isid[5] = last;
	peer_say(&other, &p, list, sizeof(list));
	peer_hear_a(&other, LOGIN_RESPONSE);
}

/* RFC 7143 §6.3.4: a connection replaces one with the same CID, in the existing session. */
static void a_login_with_the_same_cid_replaces_the_connection(void **state)
{
	uint16_t tsih;

	peer_login(&peer);
	tsih = list_entry(target->sessions.list.next, struct target_session, link)->tsih;
	log_in_again((uint16_t)(tsih + 1), 0, peer.isid[5]);
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail, LOGIN_NO_SESSION);
	peer_close(&other);
	log_in_again(tsih, 0, (uint8_t)(peer.isid[5] + 1)); /* another initiator's ISID */
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail, LOGIN_NO_SESSION);
	peer_close(&other);
	log_in_again(tsih, 7, peer.isid[5]); /* a second connection: MaxConnections is 1 */
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail,
			 LOGIN_TOO_MANY_CONNECTIONS);
	peer_close(&other);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
	peer_read(&peer, 0, 2048); /* whose data is not read */
	log_in_again(tsih, 0, peer.isid[5]);
	assert_int_equal(other.in.status_class, 0);
	assert_int_equal(other.in.tsih, tsih);
	assert_int_equal(target->sessions.count, 1);
	other.cmd_sn = 1;
	peer_clear_attention(&other);
	assert_int_equal(peer_finish(&other, peer_read(&other, 0, 8), NULL), SCSI_GOOD);
}

static void say_login(struct peer *p, uint16_t tsih, uint8_t flags, const char *list, size_t len)
{
	struct pdu out = {.opcode = LOGIN_REQUEST,
			  .immediate = true,
			  .flags = flags,
			  .itt = 1,
			  .cmd_sn = 1,
			  .tsih = tsih};

	memcpy(out.isid, p->isid, ISID_LEN);
	peer_say(p, &out, list, (uint32_t)len);
	peer_hear_a(p, LOGIN_RESPONSE);
	p->data[p->in.data_len] = '\0';
}

/* Returns the value of a key in the last response. */
static const char *answer(const struct peer *p, const char *key)
{
	size_t len = strlen(key);
	const char *at = (const char *)p->data, *end = at + p->in.data_len;

	for (; at < end; at += strlen(at) + 1)
		if (strncmp(at, key, len) == 0 && at[len] == '=')
			return at + len + 1;
	fail_msg("no %s", key);
	return NULL;
}

/* Returns the keys that answer the challenge in the last response. */
static size_t prove(const struct peer *p, const char *user, char *list, size_t room)
{
	uint8_t challenge[64], digest[CHAP_MAX_DIGEST];
	int len = iscsi_text_binary(answer(p, "CHAP_C"), challenge, sizeof(challenge));
	char hex[80], secret[32];

	snprintf(secret, sizeof(secret), "the secret of %s", user);
	assert_int_equal(iscsi_chap_respond(CHAP_SHA256, (uint8_t)atoi(answer(p, "CHAP_I")), secret,
					    challenge, (size_t)len, digest),
			 0);
	iscsi_text_hex(digest, iscsi_chap_digest_len(CHAP_SHA256), hex);
	return (size_t)snprintf(list, room, "CHAP_N=%s%cCHAP_R=%s", user, 0, hex) + 1;
}

/* Returns the status of a login by CHAP. */
static unsigned int log_in_as(struct peer *p, const char *user, uint16_t tsih)
{
	static const char first[] =
		"InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:t\0AuthMethod=CHAP";
	static const char algorithm[] = "CHAP_A=7";
	const uint8_t stay = LOGIN_STAGES(STAGE_SECURITY, STAGE_SECURITY);
	char list[256];
	size_t len;

	say_login(p, tsih, stay, first, sizeof(first));
	say_login(p, tsih, stay, algorithm, sizeof(algorithm));
	len = prove(p, user, list, sizeof(list));
	say_login(p, tsih, LOGIN_TRANSIT | LOGIN_STAGES(STAGE_SECURITY, STAGE_OPERATIONAL), list,
		  len);
	assert_int_equal(p->in.status_class, 0);
	say_login(p, tsih, LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL), NULL, 0);
	return (unsigned int)(p->in.status_class << 8 | p->in.status_detail);
}

static unsigned int log_in_again_as(const char *user, uint16_t tsih)
{
	peer_connect(&other, target);
	return log_in_as(&other, user, tsih);
}

static void is_served(struct peer *p)
{
	peer_clear_attention(p);
	assert_int_equal(peer_finish(p, peer_read(p, 0, 1), NULL), SCSI_GOOD);
}

/* Name and ISID of a port are no secret. */
static void a_session_of_another_user_is_not_replaced(void **state)
{
	uint16_t tsih;

	assert_int_equal(log_in_as(&peer, "alice", 0), LOGIN_OK);
	is_served(&peer);
	tsih = list_entry(target->sessions.list.next, struct target_session, link)->tsih;
	log_in_again(0, 0, peer.isid[5]);
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail, LOGIN_FORBIDDEN);
	peer_close(&other);
	log_in_again(tsih, 0, peer.isid[5]);
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail, LOGIN_FORBIDDEN);
	peer_close(&other);
	assert_int_equal(log_in_again_as("bob", 0), LOGIN_FORBIDDEN);
	peer_close(&other);
	assert_int_equal(log_in_again_as("bob", tsih), LOGIN_FORBIDDEN);
	peer_close(&other);
	is_served(&peer);
	assert_int_equal(log_in_again_as("alice", 0), LOGIN_OK);
	assert_false(peer_hear(&peer));
	is_served(&other);
}

/* Somebody who logs in first with the name and ISID of a user's port does not lock the user out. */
static void a_user_replaces_a_session_without_one(void **state)
{
	peer_login(&peer);
	assert_int_equal(log_in_again_as("alice", 0), LOGIN_OK);
	assert_false(peer_hear(&peer));
	is_served(&other);
	peer_close(&peer);
	peer_connect(&peer, target);
	peer_login_with(&peer, NULL, 0);
	assert_int_equal(peer.in.status_class << 8 | peer.in.status_detail, LOGIN_FORBIDDEN);
	is_served(&other);
}

static void sessions_are_numbered(void **state)
{
	peer_login(&peer);
	second_session();
	assert_int_equal(target->sessions.count, 2);
	peer_close(&other);
	peer_connect(&other, target);
	target->config.max_sessions = 1;
	other.isid[5] = 3;
	peer_login_with(&other, NULL, 0);
	assert_int_equal(other.in.status_class << 8 | other.in.status_detail, LOGIN_NO_RESOURCES);
	assert_false(peer_hear(&other));
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
}

static void logins_time_out(void **state)
{
	peer_say_bytes(&peer, "\x43", 1);
	assert_true(peer_hears_nothing(&peer));
	assert_int_equal(target->strangers.count, 1);
	target->config.limits.login_ns = 0;
	target->loop.next_tick = 0;
	assert_false(peer_hear(&peer));
	assert_int_equal(target->strangers.count, 0);
}

/* A target that starts again with the same directory knows the registrations that should survive. */
static void registrations_survive_the_target(void **state)
{
	static const uint8_t out[16] = {0x5f, 0, 0, 0, 0, 0, 0, 0, 24};
	static const uint8_t in[16] = {0x5e, 0, 0, 0, 0, 0, 0, 0, 255};
	static const uint8_t list[24] = {[15] = 0xaa, [20] = 1}; /* APTPL */
	char folder[] = "/dev/shm/stag-session-XXXXXX", command[64];
	struct stag_block_target_attr attr = {
		.comp_mask = STAG_BLOCK_TARGET_STATE, .name = "iqn.2026-01.x:t", .state = folder};

	assert_non_null(mkdtemp(folder));
	peer_login(&peer); /* the target has accepted it: end_target() ends it */
	for (int i = 0; i < 2; i++) {
		uint32_t itt;

		peer_close(&peer);
		end_target(target);
		target = make_target(&attr);
		peer_connect(&peer, target);
		peer_login(&peer);
		if (i == 0) {
			itt = peer_command(&peer, out, PDU_FINAL | CMD_WRITE, 24, list, 24);
			assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
		}
		itt = peer_command(&peer, in, PDU_FINAL | CMD_READ, 255, NULL, 0);
		assert_int_equal(peer_finish(&peer, itt, got), SCSI_GOOD);
		assert_int_equal(get_be32(got + 4), 8);
		assert_int_equal(get_be64(got + 8), 0xaa);
	}
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

/* The initiator may use a tag again while data of the old task is still leaving. */
static void a_tag_is_free_after_its_response(void **state)
{
	struct target_task old = {.itt = 7, .state = TASK_RESPONDED}, new = {.itt = 7},
			   neighbour = {.itt = 7 + TASK_BUCKETS};
	struct target_session s;
	struct list *bucket = &s.buckets[7 % TASK_BUCKETS];

	list_init(bucket);
	list_add_tail(bucket, &old.link);
	list_add_tail(bucket, &neighbour.link);
	assert_null(target_session_find(&s, 7));
	list_add_tail(bucket, &new.link);
	assert_ptr_equal(target_session_find(&s, 7), &new);
}

int main(void)
{
#define STORY(name)  cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define MEMORY(name) cmocka_unit_test_setup_teardown(name, set_up_with_memory, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(a_write_has_immediate_data),
		STORY(unsolicited_data_follows),
		STORY(the_rest_is_solicited_by_r2t),
		STORY(bursts_and_segments_are_as_agreed),
		STORY(large_reads_come_in_order),
		STORY(bytes_may_arrive_one_by_one),
		MEMORY(a_write_has_immediate_data),
		MEMORY(the_rest_is_solicited_by_r2t),
		MEMORY(memory_is_written_in_place),
		MEMORY(bursts_and_segments_are_as_agreed),
		MEMORY(large_reads_come_in_order),
		MEMORY(bytes_may_arrive_one_by_one),
		MEMORY(residual_counts_are_reported),
		MEMORY(digests_are_made_and_checked),
		MEMORY(with_digests_memory_is_copied),
		MEMORY(data_of_aborted_tasks_is_dropped),
		MEMORY(what_was_lent_comes_back),
		STORY(residual_counts_are_reported),
		STORY(a_failing_unit_is_reported),
		STORY(a_bad_block_is_reported),
		STORY(an_error_waits_for_the_first_burst),
		STORY(digests_are_made_and_checked),
		STORY(a_wrong_header_digest_ends_the_connection),
		STORY(data_with_a_wrong_digest_is_not_written),
		STORY(commands_run_in_order),
		STORY(requests_outside_the_window_are_ignored),
		STORY(the_window_closes_and_opens),
		STORY(a_tag_in_use_is_rejected),
		STORY(an_aborted_task_sends_no_response),
		STORY(data_of_aborted_tasks_is_dropped),
		STORY(a_reset_is_for_all_sessions),
		STORY(unknown_functions_have_their_responses),
		STORY(a_cold_reset_ends_all_connections),
		STORY(pings_are_answered),
		STORY(a_silent_initiator_is_pinged),
		STORY(an_initiator_that_ignores_pings_is_dropped),
		STORY(discovery_names_the_target),
		STORY(few_keys_change_after_login),
		STORY(logout_ends_the_session),
		STORY(lost_connections_leave_nothing),
		STORY(a_connection_may_be_lost_at_any_point),
		STORY(a_port_that_logs_in_again_replaces_its_session),
		STORY(a_login_with_the_same_cid_replaces_the_connection),
		cmocka_unit_test_setup_teardown(a_session_of_another_user_is_not_replaced,
						set_up_with_users, tear_down),
		cmocka_unit_test_setup_teardown(a_user_replaces_a_session_without_one,
						set_up_with_users, tear_down),
		STORY(sessions_are_numbered),
		STORY(logins_time_out),
		cmocka_unit_test(a_tag_is_free_after_its_response),
		STORY(registrations_survive_the_target),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
