// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_hostile.c - initiators that break the protocol, or use more than their share: they are disconnected, or wait; others are
 * served all the same.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "dice.h"
#include "memory_unit.h"
#include "peer.h"
#include "base/bytes.h"
#include "base/clock.h"

static struct stag_block_target *target;
static struct peer peer, other;
static uint8_t want[1 << 20], got[1 << 20];

static int begin_with(unsigned int buffers)
{
	memory_unit = (struct memory_unit_knobs){.max_buffers = buffers};
	target = make_target(NULL);
	peer_connect(&peer, target);
	other.fd = -1;
	dice_fill(want, sizeof(want));
	return 0;
}

static int set_up(void **state)
{
	return begin_with(0);
}

static int begin_with_one_buffer(void **state)
{
	return begin_with(1);
}

static int begin_with_two_buffers(void **state)
{
	return begin_with(2);
}

static int begin_with_eight_buffers(void **state)
{
	return begin_with(8);
}

static int tear_down(void **state)
{
	peer_close(&peer);
	peer_close(&other);
	memory_unit.hold = false;
	end_target(target);
	assert_int_equal(memory_unit.in_use, 0);
	return 0;
}

static void others_log_in(void)
{
	peer_connect(&other, target);
	other.isid[5] = 2;
	peer_login(&other);
}

/* Checks that another initiator is served. */
static void others_are_served(void)
{
	uint32_t itt;

	others_log_in();
	itt = peer_write(&other, 1, 1, want, 512, PDU_FINAL);
	assert_int_equal(peer_finish(&other, itt, NULL), SCSI_GOOD);
}

static void is_cut_off(void)
{
	peer_must_be_closed(&peer);
	assert_int_equal(target->counters.violations, 1);
	others_are_served();
}

/* ---- lengths --------------------------------------------------------------------------- */

static void a_login_of_megabytes_is_cut_off(void **state)
{
	struct pdu p = {
		.opcode = LOGIN_REQUEST, .immediate = true, .flags = 0x87, .data_len = DATA_MAX};
	uint8_t bhs[BHS_LEN];

	iscsi_pdu_encode(&p, bhs);
	peer_say_bytes(&peer, bhs, sizeof(bhs));
	is_cut_off();
}

static void a_segment_that_is_too_long_is_cut_off(void **state)
{
	struct pdu p = {.opcode = NOP_OUT, .immediate = true, .flags = 0x80, .data_len = 262145};
	uint8_t bhs[BHS_LEN];

	peer_login(&peer);
	iscsi_pdu_encode(&p, bhs);
	peer_say_bytes(&peer, bhs, sizeof(bhs));
	is_cut_off();
}

static void immediate_data_beyond_what_is_expected_is_cut_off(void **state)
{
	peer_login(&peer);
	peer_write(&peer, 0, 1, want, 513, PDU_FINAL);
	is_cut_off();
}

static void immediate_data_beyond_the_first_burst_is_cut_off(void **state)
{
	static const char keys[] = "FirstBurstLength=512";

	peer_login_with(&peer, keys, sizeof(keys));
	peer_write(&peer, 0, 8, want, 1024, PDU_FINAL);
	is_cut_off();
}

static void immediate_data_of_a_read_is_cut_off(void **state)
{
	static const uint8_t cdb[16] = {0x28, 0, 0, 0, 0, 0, 0, 0, 1};

	peer_login(&peer);
	peer_command(&peer, cdb, PDU_FINAL | CMD_READ, 512, want, 512);
	is_cut_off();
}

/* ---- unsolicited Data-Outs ---------------------------------------------------------------- */

static void unsolicited_data_beyond_the_burst_is_cut_off(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, want, 512, 0);
	peer_data(&peer, itt, TAG_NONE, 0, 512, want, 4096, true);
	is_cut_off();
}

static void data_out_of_order_is_cut_off(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, want, 512, 0);
	peer_data(&peer, itt, TAG_NONE, 0, 1024, want, 512, false);
	is_cut_off();
}

/* As with a wrong digest the task fails, and nothing is written. */
static void a_wrong_data_sn_fails_the_task(void **state)
{
	static const uint8_t zeroes[4096];
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, want, 512, 0);
	peer_data(&peer, itt, TAG_NONE, 1, 512, want, 3584, true);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer) >> 16, SCSI_ABORTED_COMMAND);
	itt = peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_data(&peer, itt, peer.in.ttt, 0, 0, want, 2048, false);
	peer_data(&peer, itt, peer.in.ttt, 0, 2048, want, 2048, true);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_CHECK_CONDITION);
	assert_int_equal(peer_sense(&peer) >> 16, SCSI_ABORTED_COMMAND);
	assert_memory_equal(memory_unit_bytes(), zeroes, 4096);
}

static void data_for_a_wrong_tag_is_cut_off(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_data(&peer, itt, peer.in.ttt + 1, 0, 0, want, 512, false);
	is_cut_off();
}

static void data_beyond_the_r2t_is_cut_off(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_data(&peer, itt, peer.in.ttt, 0, 0, want, 4608, false);
	is_cut_off();
}

static void a_burst_that_is_too_short_is_cut_off(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 8, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_data(&peer, itt, peer.in.ttt, 0, 0, want, 1024, true);
	is_cut_off();
}

/* ---- invalid PDUs ---------------------------------------------------------------------------- */

static void unknown_opcodes_are_rejected(void **state)
{
	uint8_t bhs[BHS_LEN] = {0x1c, 0x80};

	peer_login(&peer);
	peer_say_bytes(&peer, bhs, sizeof(bhs));
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_NOT_SUPPORTED);
	assert_memory_equal(peer.data, bhs, BHS_LEN);
	bhs[0] = SNACK_REQUEST | 0x40;
	peer_say_bytes(&peer, bhs, sizeof(bhs));
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_SNACK);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 1), NULL), SCSI_GOOD);
}

static void too_many_immediate_commands_are_rejected(void **state)
{
	peer_login(&peer);
	memory_unit.hold = true;
	for (unsigned int i = 0; i <= SESSION_IMMEDIATE; i++) {
		struct pdu p = {.opcode = SCSI_COMMAND,
				.immediate = true,
				.flags = PDU_FINAL | CMD_READ,
				.lun = 1ull << 48,
				.itt = 1000 + i,
				.cmd_sn = peer.cmd_sn,
				.expected = 512,
				.cdb = {0x28, 0, 0, 0, 0, 0, 0, 0, 1}};

		peer_say(&peer, &p, NULL, 0);
	}
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_TOO_MANY_IMMEDIATE);
}

static void say_tmf(uint32_t itt, bool immediate)
{
	struct pdu p = {.opcode = TASK_REQUEST,
			.immediate = immediate,
			.flags = PDU_FINAL | TMF_ABORT_TASK_SET,
			.lun = 1ull << 48,
			.itt = itt,
			.ref_tag = TAG_NONE,
			.cmd_sn = immediate ? peer.cmd_sn : peer.cmd_sn++};

	peer_say(&peer, &p, NULL, 0);
}

static unsigned int num_tmfs(void)
{
	unsigned int n = 0;

	list_for_each (it, &target->tasks.tmfs)
		n++;
	return n;
}

/* Task management waits for the unit: its requests are limited as commands are. */
static void too_many_immediate_tmfs_are_rejected(void **state)
{
	peer_login(&peer);
	memory_unit.hold = true;
	peer_read(&peer, 0, 1);
	for (unsigned int i = 0; i <= SESSION_IMMEDIATE; i++)
		say_tmf(1000 + i, true);
	peer_hear_a(&peer, REJECT);
	assert_int_equal(peer.in.code, REJECT_TOO_MANY_IMMEDIATE);
	assert_int_equal(num_tmfs(), SESSION_IMMEDIATE);
	others_log_in();
	memory_unit.hold = false;
	for (unsigned int i = 0; i < SESSION_IMMEDIATE; i++) {
		peer_hear_a(&peer, TASK_RESPONSE);
		assert_int_equal(peer.in.itt, 1000 + i);
	}
	say_tmf(1, true);
	peer_hear_a(&peer, TASK_RESPONSE);
}

static void the_window_limits_tmfs(void **state)
{
	peer_login(&peer);
	memory_unit.hold = true;
	peer_read(&peer, 0, 1);
	for (unsigned int i = 0; i < 2 * SESSION_WINDOW; i++)
		say_tmf(1000 + i, false);
	assert_true(peer_hears_nothing(&peer));
	assert_true(num_tmfs() < SESSION_WINDOW);
	memory_unit.hold = false;
	peer_hear_a(&peer, TASK_RESPONSE);
}

static void text_without_end_is_cut_off(void **state)
{
	static const char much[8192] = "A=";
	bool cut = false;

	peer_login(&peer);
	for (int i = 0; i < 4 && !cut; i++) {
		struct pdu p = {.opcode = TEXT_REQUEST,
				.immediate = true,
				.flags = PDU_CONTINUE,
				.itt = 50,
				.ttt = i ? peer.in.ttt : TAG_NONE,
				.cmd_sn = peer.cmd_sn};

		peer_say(&peer, &p, much, sizeof(much));
		cut = !peer_hear(&peer);
	}
	assert_true(cut);
	assert_int_equal(target->counters.violations, 1);
}

/* Random bytes, before and after a login. */
static void random_bytes_do_no_harm(void **state)
{
	peer_close(&peer);
	for (unsigned long i = 0; i < scaled(100); i++) {
		uint8_t noise[2048];
		size_t at = 0;

		peer_connect(&peer, target);
		if (one_in(2))
			peer_login(&peer);
		dice_fill(noise, sizeof(noise));
		while (at < sizeof(noise)) { /* headers with a valid opcode and small lengths */
			noise[at] = (uint8_t)dice(8) | (one_in(2) ? 0x40 : 0);
			if (at + 8 < sizeof(noise))
				put_be32(noise + at + 4, (uint32_t)dice(64));
			at += BHS_LEN + dice(64);
		}
		peer_say_bytes(&peer, noise, dice_size(sizeof(noise)));
		target_step(target, 0);
		peer_close(&peer);
		for (int n = 0; n < 20000 && target->conns.count; n++)
			target_step(target, 1);
		assert_int_equal(target->conns.count, 0);
		assert_true(list_empty(&target->sessions.list));
		assert_int_equal(memory_unit.in_use, 0);
	}
	others_are_served();
}

/* ---- more than their share ----------------------------------------------------------------------- */

/* An initiator requests much data, and reads nothing: the window limits its memory, and others go on. */
static void a_slow_reader_does_not_delay_others(void **state)
{
	peer_login(&peer);
	for (int i = 0; i < 32; i++)
		peer_read(&peer, 0, 2048);
	for (int i = 0; i < 200; i++)
		target_step(target, 0);
	assert_true(memory_unit.in_use <= 32 * TASK_PIECES);
	others_are_served();
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(peer_finish(&peer, peer.next_itt - 32 + i, got), SCSI_GOOD);
}

/* Answers pings, and does nothing else, until the time limit of its data has passed. */
static void expect_dropped_in_spite_of_pings(void)
{
	struct pdu p = {.opcode = NOP_OUT,
			.immediate = true,
			.flags = PDU_FINAL,
			.itt = 7,
			.ttt = TAG_NONE,
			.cmd_sn = peer.cmd_sn};

	target->loop.next_tick = 0;
	target_step(target, 0);
	assert_int_equal(target->conns.count, 1);
	target->config.limits.data_ns = 0;
	peer_say(&peer, &p, NULL, 0);
	for (int i = 0; i < 20000 && target->conns.count; i++) {
		target->loop.next_tick = 0;
		target_step(target, 1);
	}
	assert_int_equal(target->conns.count, 0);
	assert_int_equal(target->counters.evicted, 1);
	assert_int_equal(memory_unit.in_use, 0);
	others_are_served();
}

static void a_peer_that_withholds_its_data_is_dropped(void **state)
{
	peer_login(&peer);
	for (int i = 0; i < 8; i++)
		peer_write(&peer, 0, 2048, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	assert_true(memory_unit.in_use > 0);
	expect_dropped_in_spite_of_pings();
}

static void a_peer_that_reads_nothing_is_dropped(void **state)
{
	peer_login(&peer);
	for (int i = 0; i < 32; i++)
		peer_read(&peer, 0, 2048);
	for (int i = 0; i < 200; i++)
		target_step(target, 0);
	assert_true(memory_unit.in_use > 0);
	expect_dropped_in_spite_of_pings();
}

/* Begins a Data-Out for the R2T in peer.in: sends its header, and no data yet. */
static void begin_data(uint32_t itt)
{
	struct pdu p = {.opcode = DATA_OUT,
			.flags = PDU_FINAL,
			.lun = 1ull << 48,
			.itt = itt,
			.ttt = peer.in.ttt,
			.data_len = peer.in.length};
	uint8_t bhs[BHS_LEN];

	iscsi_pdu_encode(&p, bhs);
	peer_say_bytes(&peer, bhs, sizeof(bhs));
}

/* A byte now and then is no progress. */
static void a_peer_that_trickles_its_data_is_dropped(void **state)
{
	uint64_t end = clock_ns() + 60 * NS_PER_S;
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 128, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	begin_data(itt);
	others_are_served();
	target->config.limits.data_ns = NS_PER_S / 2;
	for (int i = 0; i < 500 && target->counters.evicted == 0 && clock_ns() < end; i++) {
		send(peer.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		for (int j = 0; j < 10; j++)
			target_step(target, 1);
	}
	assert_int_equal(target->counters.evicted, 1);
	peer_must_be_closed(&peer);
	assert_int_equal(peer_finish(&other, peer_read(&other, 0, 1), got), SCSI_GOOD);
}

/* The target does not run for longer than its peers may be late: they are not to blame. */
static void nobody_is_dropped_after_a_standstill(void **state)
{
	uint32_t itt;

	peer_login(&peer);
	itt = peer_write(&peer, 0, 128, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_connect(&other, target);
	other.isid[5] = 2;
	target_step(target, 0);
	target->config.limits.data_ns = target->config.limits.login_ns = 1900 * NS_PER_MS;
	usleep(2200 * 1000);
	target_step(target, 0);
	target->config.limits.data_ns = target->config.limits.login_ns = 3600 * NS_PER_S;
	assert_int_equal(target->conns.count, 2);
	peer_answer_r2t(&peer, want);
	assert_int_equal(peer_finish(&peer, itt, NULL), SCSI_GOOD);
	peer_login(&other);
	assert_int_equal(target->counters.evicted, 0);
	assert_int_equal(target->counters.refused, 0);
}

/* A session gets no more than its share of the buffers, even if it leaves none to be returned. */
static void one_session_cannot_hold_all_buffers(void **state)
{
	peer_login(&peer);
	for (int i = 0; i < 16; i++)
		peer_write(&peer, 0, 2048, NULL, 0, PDU_FINAL);
	for (int i = 0; i < 50; i++)
		target_step(target, 0);
	assert_true(memory_unit.in_use > 0);
	others_are_served();
	for (int i = 0; i < 16; i++)
		peer_read(&peer, 0, 2048);
	for (int i = 0; i < 50; i++)
		target_step(target, 0);
	assert_int_equal(peer_finish(&other, peer_read(&other, 0, 2048), got), SCSI_GOOD);
}

/* Where another session cannot get any buffer, one that makes no progress is evicted early. */
static void the_last_buffer_is_not_withheld_for_long(void **state)
{
	peer_login(&peer);
	peer_write(&peer, 0, 2048, NULL, 0, PDU_FINAL);
	peer_hear_a(&peer, R2T);
	peer_connect(&other, target);
	other.isid[5] = 2;
	peer_login(&other);
	peer_read(&other, 0, 1);
	assert_true(peer_hears_nothing(&other));
	target->config.limits.starved_ns = target->config.limits.scarce_ns = 0;
	target->loop.next_tick = 0;
	assert_int_equal(peer_finish(&other, other.next_itt - 1, got), SCSI_GOOD);
	assert_int_equal(target->counters.evicted, 1);
	peer_must_be_closed(&peer);
}

/* An initiator that pings, and does not read the answers, is not read any more after a while. */
static void pings_do_not_pile_up(void **state)
{
	struct pdu p = {.opcode = NOP_OUT, .immediate = true, .flags = PDU_FINAL, .ttt = TAG_NONE};
	static uint8_t bytes[BHS_LEN + 65536];
	size_t sent = 0;

	peer_login(&peer);
	p.itt = 1;
	p.data_len = 65536;
	p.cmd_sn = peer.cmd_sn;
	iscsi_pdu_encode(&p, bytes);
	for (int idle = 0; idle < 50;) {
		ssize_t n = send(peer.fd, bytes + sent % sizeof(bytes),
				 sizeof(bytes) - sent % sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);

		idle = n > 0 ? 0 : idle + 1;
		sent += n > 0 ? (size_t)n : 0;
		target_step(target, 0);
		assert_true(sent < 64u << 20);
	}
	others_are_served();
	for (size_t i = 0; i < sent / sizeof(bytes); i++)
		peer_hear_a(&peer, NOP_IN);
}

/* ---- strangers ------------------------------------------------------------------------------------- */

#define STRANGERS 10000

static int strangers[STRANGERS];

/* Returns how many connections this process may open. */
static unsigned int allow_strangers(void)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	return r.rlim_cur > STRANGERS + 1000 ? STRANGERS : (unsigned int)r.rlim_cur / 2;
}

/* Opens connections from 127.0.0.`host` that say the first len bytes of a login, and no more. */
static void come_as_strangers(unsigned int host, unsigned int n, size_t len)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(target->portal.port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_in own = {.sin_family = AF_INET,
				  .sin_addr = {htonl(INADDR_LOOPBACK - 1 + host)}};

	for (unsigned int i = 0; i < n; i++) {
		strangers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(strangers[i], (struct sockaddr *)&own, sizeof(own)), 0);
		assert_int_equal(connect(strangers[i], (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(send(strangers[i], "\x43", len, MSG_NOSIGNAL), len);
		target_step(target, 0);
	}
}

static void leave_as_strangers(unsigned int n)
{
	while (n)
		close(strangers[--n]);
}

static void silent_connections_do_not_stop_logins(void **state)
{
	unsigned int n = allow_strangers();

	target->config.limits.login_ns = 3600 * NS_PER_S;
	come_as_strangers(1, n, 0);
	assert_true(target->conns.count <= 256);
	others_are_served();
	assert_int_equal(target->counters.refused, n + 2 - target->conns.count);
	leave_as_strangers(n);
}

static void slow_logins_do_not_stop_others(void **state)
{
	unsigned int n = allow_strangers() < 600 ? 300 : 600;

	target->config.limits.login_ns = 3600 * NS_PER_S;
	target->config.limits.slow_login_ns = 0;
	come_as_strangers(1, n, 1);
	others_are_served();
	leave_as_strangers(n);
}

/* Returns how many connections without a session are from 127.0.0.`host`. */
static unsigned int count_strangers(unsigned int host)
{
	unsigned int n = 0;
	char address[16];

	snprintf(address, sizeof(address), "127.0.0.%u:", host);
	list_for_each (it, &target->strangers.list)
		n += strncmp(list_entry(it, struct target_conn, stranger)->peer, address,
			     strlen(address)) == 0;
	return n;
}

/* The initiator connects first, is overtaken by many strangers of another address, and then logs in. */
static void logins_that_begin_do_not_stop_another_address(void **state)
{
	unsigned int n = allow_strangers() < 600 ? 300 : 600;

	peer_say_bytes(&peer, "\x43", 1);
	target_step(target, 0);
	come_as_strangers(2, n, 1);
	assert_int_equal(count_strangers(2), 64);
	assert_int_equal(count_strangers(1), 1);
	assert_false(target->portal.full);
	others_are_served();
	leave_as_strangers(n);
}

/* Logins of many addresses have begun, and fill the table: all connections are accepted, and the oldest of them end. */
static void logins_that_begin_everywhere_do_not_stop_others(void **state)
{
	enum { HOSTS = 8, EACH = 60 };
	static int fds[HOSTS][EACH];

	target->config.limits.slow_login_ns = 3600 * NS_PER_S;
	for (unsigned int i = 0; i < HOSTS; i++) {
		come_as_strangers(2 + i, EACH, 1);
		memcpy(fds[i], strangers, sizeof(fds[i]));
	}
	assert_int_equal(target->strangers.count, 256);
	assert_false(target->portal.full);
	others_are_served();
	for (unsigned int i = 0; i < HOSTS; i++) {
		memcpy(strangers, fds[i], sizeof(fds[i]));
		leave_as_strangers(EACH);
	}
}

static unsigned int lines;

static void count_line(void *arg, const char *line)
{
	lines++;
}

/* Initiators of the wrong target: each hears why, and the log has a line a second. */
static void refused_logins_do_not_fill_the_log(void **state)
{
	static const char names[] = "InitiatorName=iqn.2026-01.x:i\0TargetName=iqn.2026-01.x:no";
	uint64_t begun = clock_ns();
	unsigned int n = 300;

	allow_strangers();
	target->config.limits.login_ns = 3600 * NS_PER_S;
	lines = 0;
	target->config.log = count_line;
	for (unsigned int i = 0; i < n; i++) {
		struct pdu p = {
			.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL)};

		peer_close(&other);
		peer_connect(&other, target);
		peer_say(&other, &p, names, sizeof(names));
		peer_hear_a(&other, LOGIN_RESPONSE);
		assert_int_equal(other.in.status_class << 8 | other.in.status_detail,
				 LOGIN_NOT_FOUND);
		strangers[i] = dup(other.fd);
	}
	assert_int_equal(target->counters.refused, n);
	assert_true(lines <= 2 + (clock_ns() - begun) / NS_PER_S);
	peer_close(&other);
	others_are_served();
	leave_as_strangers(n);
}

static bool portal_rings(void)
{
	struct pollfd fd = {.fd = target->loop.epoll, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

/* Without free descriptors the listener does not spin; pending connections are accepted when there are some again. */
static void accepting_pauses_without_descriptors(void **state)
{
	int pad[256], n = 0;
	struct rlimit before, few;

	peer_login(&peer);
	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	few.rlim_cur = 200;
	peer_connect(&other, target);
	setrlimit(RLIMIT_NOFILE, &few);
	while (n < 256 && (pad[n] = dup(peer.fd)) >= 0)
		n++;
	target_step(target, 0);
	target_step(target, 0);
	assert_true(target->portal.full);
	assert_false(portal_rings());
	assert_int_equal(target->conns.count, 1);
	assert_int_equal(peer_finish(&peer, peer_read(&peer, 0, 8), got), SCSI_GOOD);
	while (n)
		close(pad[--n]);
	setrlimit(RLIMIT_NOFILE, &before);
	target->loop.next_tick = 0;
	other.isid[5] = 2;
	peer_login(&other);
}

/* A network of IPv6 has 2^64 addresses, and one host may use all of them. */
static void addresses_of_one_network_share_a_limit(void **state)
{
	struct target_conn a = {.target = target, .peer = "[2001:db8:0:1::1]:1000"};
	struct target_conn b = {.target = target, .peer = "[2001:db8:0:1:a:b:c:d]:2000"};

	(void)state;
	list_init(&a.stranger);
	list_init(&b.stranger);
	target_stranger_add(&a);
	target_stranger_add(&b);
	assert_int_equal(a.source, b.source);
	assert_in_range(target->strangers.of_source[a.source], 2, 3);
	target_stranger_remove(&b);
	target_stranger_remove(&a);
}

/* Commands take turns with one buffer. */
static void commands_wait_for_buffers(void **state)
{
	uint32_t itt[4];

	peer_login(&peer);
	peer_connect(&other, target);
	other.isid[5] = 2;
	peer_login(&other);
	memory_unit.hold = true;
	itt[0] = peer_write(&peer, 0, 1, want, 512, PDU_FINAL);
	assert_true(peer_hears_nothing(&peer));
	itt[1] = peer_write(&other, 1, 1, want + 512, 512, PDU_FINAL);
	itt[2] = peer_read(&other, 0, 1);
	assert_true(peer_hears_nothing(&other));
	assert_int_equal(memory_unit.started, 1);
	memory_unit.hold = false;
	assert_int_equal(peer_finish(&peer, itt[0], NULL), SCSI_GOOD);
	assert_int_equal(peer_finish(&other, itt[1], NULL), SCSI_GOOD);
	assert_int_equal(peer_finish(&other, itt[2], got), SCSI_GOOD);
	assert_memory_equal(got, want, 512);
	itt[3] = peer_read(&peer, 0, 2048); /* more than the buffer holds */
	assert_int_equal(peer_finish(&peer, itt[3], got), SCSI_GOOD);
	assert_memory_equal(got, memory_unit_bytes(), 2048 * 512);
}

/* The only buffer is held by a task whose data follows in the same stream: waiting for it would deadlock. */
static void a_connection_does_not_deadlock_on_its_buffers(void **state)
{
	uint32_t first, second;

	peer_login(&peer);
	first = peer_write(&peer, 0, 8, want, 512, 0);
	second = peer_write(&peer, 8, 8, want, 4096, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, second, NULL), SCSI_TASK_SET_FULL);
	peer_data(&peer, first, TAG_NONE, 0, 512, want + 512, 3584, true);
	assert_int_equal(peer_finish(&peer, first, NULL), SCSI_GOOD);
	assert_memory_equal(memory_unit_bytes(), want, 4096);
	second = peer_write(&peer, 8, 8, want, 4096, PDU_FINAL);
	assert_int_equal(peer_finish(&peer, second, NULL), SCSI_GOOD);
}

/* Many commands of all kinds with few buffers: all of them end. */
static void all_commands_end(void **state)
{
	enum { DEPTH = 16 };

	peer_login(&peer);
	for (unsigned long i = 0; i < scaled(10); i++) {
		uint32_t done = 0, first = peer.next_itt;

		for (int n = 0; n < DEPTH; n++)
			if (one_in(2))
				peer_read(&peer, 0, (uint16_t)dice_size(2048));
			else
				peer_write(&peer, 0, 2048, NULL, 0, PDU_FINAL);
		while (done < DEPTH) {
			assert_true(peer_hear(&peer));
			assert_true(peer.in.itt - first < DEPTH);
			if (peer.in.opcode == R2T)
				peer_answer_r2t(&peer, want);
			else if (peer.in.opcode == SCSI_RESPONSE || (peer.in.flags & DATA_STATUS))
				done++;
		}
		assert_int_equal(memory_unit.in_use, 0);
	}
	assert_memory_equal(memory_unit_bytes(), want, sizeof(want));
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(a_login_of_megabytes_is_cut_off),
		STORY(a_segment_that_is_too_long_is_cut_off),
		STORY(immediate_data_beyond_what_is_expected_is_cut_off),
		STORY(immediate_data_beyond_the_first_burst_is_cut_off),
		STORY(immediate_data_of_a_read_is_cut_off),
		STORY(unsolicited_data_beyond_the_burst_is_cut_off),
		STORY(data_out_of_order_is_cut_off),
		STORY(a_wrong_data_sn_fails_the_task),
		STORY(data_for_a_wrong_tag_is_cut_off),
		STORY(data_beyond_the_r2t_is_cut_off),
		STORY(a_burst_that_is_too_short_is_cut_off),
		STORY(unknown_opcodes_are_rejected),
		STORY(too_many_immediate_commands_are_rejected),
		STORY(too_many_immediate_tmfs_are_rejected),
		STORY(the_window_limits_tmfs),
		STORY(text_without_end_is_cut_off),
		STORY(random_bytes_do_no_harm),
		STORY(a_slow_reader_does_not_delay_others),
		STORY(a_peer_that_withholds_its_data_is_dropped),
		STORY(a_peer_that_reads_nothing_is_dropped),
		STORY(a_peer_that_trickles_its_data_is_dropped),
		STORY(nobody_is_dropped_after_a_standstill),
		STORY(pings_do_not_pile_up),
		STORY(accepting_pauses_without_descriptors),
		STORY(silent_connections_do_not_stop_logins),
		STORY(slow_logins_do_not_stop_others),
		STORY(logins_that_begin_do_not_stop_another_address),
		STORY(logins_that_begin_everywhere_do_not_stop_others),
		STORY(refused_logins_do_not_fill_the_log),
		STORY(addresses_of_one_network_share_a_limit),
		cmocka_unit_test_setup_teardown(commands_wait_for_buffers, begin_with_one_buffer,
						tear_down),
		cmocka_unit_test_setup_teardown(a_connection_does_not_deadlock_on_its_buffers,
						begin_with_one_buffer, tear_down),
		cmocka_unit_test_setup_teardown(one_session_cannot_hold_all_buffers,
						begin_with_eight_buffers, tear_down),
		cmocka_unit_test_setup_teardown(the_last_buffer_is_not_withheld_for_long,
						begin_with_one_buffer, tear_down),
		cmocka_unit_test_setup_teardown(all_commands_end, begin_with_two_buffers,
						tear_down),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
