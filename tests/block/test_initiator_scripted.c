// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_initiator_scripted.c - an initiator, and targets that are busy, slow, gone or malicious; over each transport.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "block/initiator/initiator.h"
#include "scripted.h"

#define PATIENCE_MS 60000
#define LEN	    4096

static struct scripted *script;
static struct stag_block *unit;
static uint8_t memory[4][LEN];
static enum stag_block_transport kind;
static bool is_played;
static char words[512]; /* the initiator's error text */

static void no_task(struct scripted *s, const struct pdu *p)
{
}

static int set_up(void **state)
{
	kind = (enum stag_block_transport)(uintptr_t)*state;
	script = calloc(1, sizeof(*script));
	assert_non_null(script);
	script->on_task = no_task;
	is_played = false;
	return 0;
}

/* Stops the target's thread, so that the test may read its state. */
static void end_play(void)
{
	if (!is_played)
		return;
	is_played = false;
	stag_block_close(unit);
	scripted_stop(script);
}

static int tear_down(void **state)
{
	end_play();
	free(script);
	return 0;
}

static void play(void (*on_command)(struct scripted *, const struct pdu *),
		 struct stag_block_attr attr)
{
	script->on_command = on_command;
	scripted_start(script, kind);
	is_played = true;
	unit = stag_block_open(scripted_url(script), &attr);
	if (!unit)
		fail_msg("%s", stag_block_error());
	for (int i = 0; i < 4; i++)
		memset(memory[i], 'a' + i, LEN);
}

static struct stag_block_info query_unit(void)
{
	struct stag_block_info info;

	assert_int_equal(stag_block_query(unit, &info, sizeof(info)), 0);
	return info;
}

static void submit(uint32_t op, unsigned int n)
{
	struct iovec iov = {memory[n], LEN};
	struct stag_block_io io = {.op = op,
				   .offset = n * LEN,
				   .length = op == STAG_BLOCK_COMPARE_WRITE ? LEN / 2 : LEN,
				   .iov = &iov,
				   .n_iov = op == STAG_BLOCK_UNMAP ? 0 : 1,
				   .user = memory[n]};

	assert_int_equal(stag_block_submit(unit, &io), 0);
}

/* Waits for the request with this number; others may end before. */
static struct stag_block_done finish(unsigned int n)
{
	static struct stag_block_done kept[4];
	struct stag_block_done done;

	while (kept[n].user != memory[n]) {
		assert_int_equal(stag_block_wait(unit, PATIENCE_MS), 0);
		assert_int_equal(stag_block_poll(unit, &done, 1), 1);
		kept[((uint8_t *)done.user - memory[0]) / LEN] = done;
	}
	done = kept[n];
	kept[n].user = NULL;
	return done;
}

static int carry_out(uint32_t op, unsigned int n)
{
	submit(op, n);
	return finish(n).error;
}

static void must_be_written(unsigned int n)
{
	end_play();
	assert_memory_equal(script->bytes + n * LEN, memory[n], LEN);
}

/* ---- a busy target --------------------------------------------------------------------------- */

static void be_busy(struct scripted *s, const struct pdu *p)
{
	if (s->step++ < 3)
		scripted_answer(s, p, SCSI_BUSY, 0);
	else if (s->step < 6)
		scripted_answer(s, p, SCSI_TASK_SET_FULL, 0);
	else
		scripted_good(s, p);
}

static void busy_and_task_set_full_are_retried(void **state)
{
	play(be_busy, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 1), 0);
	end_play();
	assert_int_equal(script->commands, 6);
	must_be_written(1);
}

static void be_always_busy(struct scripted *s, const struct pdu *p)
{
	scripted_answer(s, p, SCSI_BUSY, 0);
}

static void a_target_that_stays_busy_is_reported(void **state)
{
	play(be_always_busy, (struct stag_block_attr){0});
	submit(STAG_BLOCK_WRITE, 0);
	for (uint32_t i = 0; i < unit->config.depth; i++)
		unit->io.cmds[i].begun = 0; /* long ago */
	assert_int_equal(finish(0).error, EBUSY);
}

static void attend(struct scripted *s, const struct pdu *p)
{
	if (s->step++ < 2)
		scripted_answer(s, p, SCSI_CHECK_CONDITION, 0x062900);
	else
		scripted_good(s, p);
}

static void unit_attentions_are_handled_internally(void **state)
{
	play(attend, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_COMPARE_WRITE, 0), 0);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
}

static void grow(struct scripted *s, const struct pdu *p)
{
	if (s->step++ == 0) {
		s->size *= 2;
		scripted_answer(s, p, SCSI_CHECK_CONDITION, 0x062a09);
	} else {
		scripted_good(s, p);
	}
}

static void a_new_size_is_noticed(void **state)
{
	play(grow, (struct stag_block_attr){0});
	assert_int_equal(query_unit().size, SCRIPTED_SIZE);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 1), 0); /* the probe has run meanwhile */
	assert_int_equal(query_unit().size, 2 * SCRIPTED_SIZE);
}

static void refuse(struct scripted *s, const struct pdu *p)
{
	scripted_answer(s, p, SCSI_CHECK_CONDITION, s->step++ ? 0x031100 : 0x072707);
}

static void errors_have_their_sense_data(void **state)
{
	struct stag_block_done done;

	play(refuse, (struct stag_block_attr){0});
	submit(STAG_BLOCK_WRITE, 0);
	done = finish(0);
	assert_int_equal(done.error, ENOSPC);
	assert_int_equal(done.sense, 0x072707);
	submit(STAG_BLOCK_READ, 0);
	done = finish(0);
	assert_int_equal(done.error, EIO);
	assert_int_equal(done.sense, 0x031100);
}

/* ---- unmapping ---------------------------------------------------------------------------------- */

static void check_unmap(struct scripted *s, const struct pdu *p)
{
	static const uint8_t list[24] = {0, 22, 0, 16, 0, 0,  0, 0, 0, 0,
					 0, 0,	0, 0,  0, 16, 0, 0, 0, 8};

	scripted_fetch(s, p);
	s->step = p->cdb[0] == 0x42 && s->data_len == sizeof(list) &&
		  memcmp(s->data, list, sizeof(list)) == 0;
	scripted_answer(s, p, SCSI_GOOD, 0);
}

static void unmap_sends_the_right_blocks(void **state)
{
	play(check_unmap, (struct stag_block_attr){0});
	assert_true(query_unit().unmaps);
	assert_int_equal(carry_out(STAG_BLOCK_UNMAP, 2), 0);
	end_play();
	assert_int_equal(script->step, 1);
}

/* ---- data --------------------------------------------------------------------------------------- */

/* Accepts immediate data without fetching. */
static void accept_immediate(struct scripted *s, const struct pdu *p)
{
	s->step += s->data_len == LEN && s->stag == 0;
	memcpy(s->bytes + s->step * LEN, s->data, s->data_len);
	scripted_answer(s, p, SCSI_GOOD, 0);
}

static void small_writes_are_immediate_data_if_the_target_allows(void **state)
{
	script->target_recv = 8192;
	play(accept_immediate, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 1), 0);
	assert_int_equal(query_unit().counters.stags_open, 0);
	must_be_written(1);
}

/* Sends less data than the command expects. */
static void send_less(struct scripted *s, const struct pdu *p)
{
	struct pdu last = *p;

	put_be64(last.cdb + 2, SCRIPTED_SIZE / 512 - 1);
	scripted_good(s, &last);
}

static void a_short_read_fails(void **state)
{
	play(send_less, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), EIO);
	assert_int_equal(query_unit().counters.violations, 0);
}

/* ---- repeated commands --------------------------------------------------------------------------- */

/* Disconnects once, before responding to the first command. */
static void leave_once(struct scripted *s, const struct pdu *p)
{
	if (s->step++ == 0)
		s->leaves = true;
	else
		scripted_good(s, p);
}

static void ask_to_leave(struct scripted *s, const struct pdu *p)
{
	if (s->step++ == 0)
		scripted_leave(s);
	else
		scripted_good(s, p);
}

static void a_logout_request_makes_it_reconnect(void **state)
{
	play(ask_to_leave, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 2), 0);
	assert_int_equal(query_unit().counters.logins, 2);
	assert_int_equal(query_unit().counters.violations, 0);
	must_be_written(2);
}

static void a_write_is_repeated(void **state)
{
	play(leave_once, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 3), 0);
	assert_int_equal(query_unit().counters.retried, 1);
	assert_int_equal(query_unit().counters.lost, 1);
	assert_int_equal(query_unit().counters.stags_open, 0);
	end_play();
	assert_int_equal(script->commands, 2);
	must_be_written(3);
}

/* A second one would find the data that the first one wrote. */
static void a_compare_and_write_is_not_repeated(void **state)
{
	play(leave_once, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_COMPARE_WRITE, 0), EIO);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
	assert_int_equal(query_unit().counters.retried, 0);
	end_play();
	assert_int_equal(script->commands, 2);
}

static void abort_it(struct scripted *s, const struct pdu *p)
{
	if (s->step++ == 0)
		scripted_answer(s, p, SCSI_CHECK_CONDITION, 0x0b0000);
	else
		scripted_good(s, p);
}

static void an_aborted_compare_and_write_is_not_repeated(void **state)
{
	play(abort_it, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_COMPARE_WRITE, 0), EIO);
}

static void an_aborted_read_is_repeated(void **state)
{
	play(abort_it, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
}

/* ---- commands that time out ------------------------------------------------------------------------ */

/* Does not respond to the first command. */
static void forget_one(struct scripted *s, const struct pdu *p)
{
	if (s->step++ != 0)
		scripted_good(s, p);
}

static void do_task(struct scripted *s, const struct pdu *p)
{
	scripted_task(s, p, TASK_FUNCTION_COMPLETE);
}

/* Has the first command time out; later ones have time. */
static void time_out_once(void)
{
	unit->config.command_ns = 20 * NS_PER_MS;
	submit(STAG_BLOCK_WRITE, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, ETIMEDOUT);
	unit->config.command_ns = 60 * NS_PER_S;
	assert_int_equal(finish(1).error, 0);
}

/* The time of a command begins with its submission, not with the end of the command before. */
static void the_time_limit_begins_with_submission(void **state)
{
	play(scripted_good, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 0), 0);
	unit->now -= unit->config.command_ns; /* as if the last step were that long ago */
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 1), 0);
	assert_int_equal(unit->abort.count, 0);
}

static void a_command_that_times_out_is_aborted(void **state)
{
	script->on_task = do_task;
	play(forget_one, (struct stag_block_attr){0});
	time_out_once();
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 2), 0);
	assert_int_equal(query_unit().counters.lost, 0);
	assert_int_equal(query_unit().counters.stags_open, 0);
	assert_int_equal(query_unit().counters.violations, 0);
}

/* Responds to no command until the unit is reset. */
static void forget_until_reset(struct scripted *s, const struct pdu *p)
{
	if (s->step)
		scripted_good(s, p);
}

static void reset_only(struct scripted *s, const struct pdu *p)
{
	bool resets = (p->flags & 0x7f) == TMF_LUN_RESET;

	s->step |= resets;
	scripted_task(s, p, resets ? TASK_FUNCTION_COMPLETE : TASK_NOT_SUPPORTED);
}

static void commands_aborted_by_a_reset_are_sent_again(void **state)
{
	script->on_task = reset_only;
	play(forget_until_reset, (struct stag_block_attr){0});
	time_out_once();
	assert_int_equal(query_unit().counters.lost, 0);
	assert_int_equal(query_unit().counters.stags_open, 0);
	end_play();
	assert_int_equal(script->commands, 3);
	must_be_written(1);
}

/* Responds to no command until the next login. */
static void forget_until_login(struct scripted *s, const struct pdu *p)
{
	if (s->logins > 1)
		scripted_good(s, p);
}

static void a_target_that_ignores_aborts_is_disconnected(void **state)
{
	play(forget_until_login, (struct stag_block_attr){0});
	unit->config.abort_ns = 20 * NS_PER_MS;
	time_out_once();
	assert_int_equal(query_unit().counters.lost, 1);
	assert_int_equal(query_unit().counters.stags_open, 0);
	must_be_written(1);
}

/* ---- malicious targets, over verbs -------------------------------------------------------------------- */

/* Runs two commands, of which the target mistreats the first; on the next connection it behaves well. */
static void misbehave(void (*deed)(struct scripted *, const struct pdu *))
{
	play(deed, (struct stag_block_attr){0});
	submit(STAG_BLOCK_WRITE, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, 0);
	assert_int_equal(finish(1).error, 0);
	assert_int_equal(query_unit().counters.lost, 1);
	assert_int_equal(query_unit().counters.violations, 1);
	assert_int_equal(query_unit().counters.stags_open, 0);
	snprintf(words, sizeof(words), "%s", unit->attempt.words);
	must_be_written(0);
	must_be_written(1);
}

/* Keeps the first command. Returns true for the second one. */
static bool keep_first(struct scripted *s, const struct pdu *p)
{
	if (s->logins > 1) {
		scripted_good(s, p);
		return false;
	}
	if (s->step++ > 0)
		return true;
	s->kept = *p;
	s->kept_stag = s->stag;
	return false;
}

static void close_the_others(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_close(s, &s->kept, s->stag);
}

static void the_wrong_stag_is_closed(void **state)
{
	uint32_t first, second;

	misbehave(close_the_others);
	first = script->kept_stag;
	assert_int_equal(sscanf(strstr(words, "lent STag"), "lent STag 0x%x", &second), 1);
	assert_int_equal(second, first);
	assert_non_null(strstr(words, "and closes STag 0x"));
	assert_int_equal(sscanf(strstr(words, "closes STag"), "closes STag 0x%x", &second), 1);
	assert_int_not_equal(second, first);
}

static void close_nothing(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_close(s, &s->kept, 0);
}

static void an_stag_is_not_closed(void **state)
{
	misbehave(close_nothing);
}

static void close_what_never_was(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_close(s, &s->kept, 0x12345600);
}

static void an_unknown_stag_is_closed(void **state)
{
	misbehave(close_what_never_was);
	assert_non_null(strstr(words, "0x12345600"));
}

static void use_after_close(struct scripted *s, const struct pdu *p)
{
	if (!keep_first(s, p))
		return;
	scripted_close(s, &s->kept, s->kept_stag);
	scripted_poke(s, s->kept_stag, 0, 8);
}

/* The first command has its response: it is not sent again. */
static void an_stag_is_used_after_it_was_closed(void **state)
{
	play(use_after_close, (struct stag_block_attr){0});
	submit(STAG_BLOCK_READ, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, 0);
	for (int i = 0; i < LEN; i++)
		assert_int_equal(memory[0][i], 'a');
	assert_int_equal(finish(1).error, 0);
	assert_int_equal(query_unit().counters.violations, 1);
	assert_int_equal(query_unit().counters.stags_open, 0);
	must_be_written(1);
}

static void write_to_a_write(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_poke(s, s->kept_stag, 0, 8);
}

static void memory_lent_for_reading_is_written(void **state)
{
	misbehave(write_to_a_write);
	for (int i = 0; i < LEN; i++)
		assert_int_equal(memory[0][i], 'a');
}

static void say_too_little(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_say(s, memory, 20);
}

static void a_send_is_too_short_for_a_pdu(void **state)
{
	misbehave(say_too_little);
}

static void close_with_a_nop(struct scripted *s, const struct pdu *p)
{
	struct pdu nop = {.opcode = NOP_IN, .flags = PDU_FINAL, .itt = TAG_NONE, .ttt = TAG_NONE};
	uint8_t bytes[BHS_LEN] = {0};

	if (!keep_first(s, p))
		return;
	nop.exp_cmd_sn = p->cmd_sn + 1;
	nop.max_cmd_sn = p->cmd_sn + 8;
	iscsi_pdu_encode(&nop, bytes);
	scripted_say_closing(s, bytes, sizeof(bytes), s->stag);
}

static void an_stag_is_closed_by_a_nop(void **state)
{
	misbehave(close_with_a_nop);
}

int main(void)
{
#define ON(name, kind)                                                                             \
	{                                                                                          \
#name, name, set_up, tear_down, (void *)(uintptr_t)(kind)                          \
	}
#define EVERYWHERE(name)                                                                           \
	ON(name, STAG_BLOCK_TCP), ON(name, STAG_BLOCK_ISER), ON(name, STAG_BLOCK_ONE_SHOT)
	const struct CMUnitTest tests[] = {
		EVERYWHERE(busy_and_task_set_full_are_retried),
		ON(a_target_that_stays_busy_is_reported, STAG_BLOCK_TCP),
		EVERYWHERE(unit_attentions_are_handled_internally),
		EVERYWHERE(a_new_size_is_noticed),
		EVERYWHERE(errors_have_their_sense_data),
		EVERYWHERE(unmap_sends_the_right_blocks),
		EVERYWHERE(small_writes_are_immediate_data_if_the_target_allows),
		EVERYWHERE(a_short_read_fails),
		EVERYWHERE(a_logout_request_makes_it_reconnect),
		EVERYWHERE(a_write_is_repeated),
		EVERYWHERE(a_compare_and_write_is_not_repeated),
		EVERYWHERE(an_aborted_compare_and_write_is_not_repeated),
		EVERYWHERE(an_aborted_read_is_repeated),
		EVERYWHERE(the_time_limit_begins_with_submission),
		EVERYWHERE(a_command_that_times_out_is_aborted),
		EVERYWHERE(commands_aborted_by_a_reset_are_sent_again),
		EVERYWHERE(a_target_that_ignores_aborts_is_disconnected),
		ON(the_wrong_stag_is_closed, STAG_BLOCK_ONE_SHOT),
		ON(the_wrong_stag_is_closed, STAG_BLOCK_ISER),
		ON(an_stag_is_not_closed, STAG_BLOCK_ONE_SHOT),
		ON(an_unknown_stag_is_closed, STAG_BLOCK_ONE_SHOT),
		ON(an_unknown_stag_is_closed, STAG_BLOCK_ISER),
		ON(an_stag_is_used_after_it_was_closed, STAG_BLOCK_ONE_SHOT),
		ON(an_stag_is_used_after_it_was_closed, STAG_BLOCK_ISER),
		ON(memory_lent_for_reading_is_written, STAG_BLOCK_ONE_SHOT),
		ON(a_send_is_too_short_for_a_pdu, STAG_BLOCK_ONE_SHOT),
		ON(a_send_is_too_short_for_a_pdu, STAG_BLOCK_ISER),
		ON(an_stag_is_closed_by_a_nop, STAG_BLOCK_ONE_SHOT),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
