// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_initiator_scripted.c - an initiator, and targets that are busy, slow, gone, or up to no good; over each transport.
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
static char words[512]; /* what the initiator said of its target */

static void no_task(struct scripted *s, const struct pdu *p)
{
}

static int begin(void **state)
{
	kind = (enum stag_block_transport)(uintptr_t)*state;
	script = calloc(1, sizeof(*script));
	assert_non_null(script);
	script->on_task = no_task;
	is_played = false;
	return 0;
}

/* From now on what the target has is for us to look at. */
static void end_play(void)
{
	if (!is_played)
		return;
	is_played = false;
	stag_block_close(unit);
	scripted_stop(script);
}

static int end(void **state)
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

static struct stag_block_info ask(void)
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

/* Of the request with this number; others may end before. */
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

/* ---- a target that has no time -------------------------------------------------------------- */

static void be_busy(struct scripted *s, const struct pdu *p)
{
	if (s->step++ < 3)
		scripted_answer(s, p, SCSI_BUSY, 0);
	else if (s->step < 6)
		scripted_answer(s, p, SCSI_TASK_SET_FULL, 0);
	else
		scripted_good(s, p);
}

static void busy_and_full_are_tried_again(void **state)
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

static void who_is_always_busy_is_so(void **state)
{
	play(be_always_busy, (struct stag_block_attr){0});
	submit(STAG_BLOCK_WRITE, 0);
	for (uint32_t i = 0; i < unit->config.depth; i++)
		unit->io.cmds[i].begun = 0; /* for ages */
	assert_int_equal(finish(0).error, EBUSY);
}

static void attend(struct scripted *s, const struct pdu *p)
{
	if (s->step++ < 2)
		scripted_answer(s, p, SCSI_CHECK_CONDITION, 0x062900);
	else
		scripted_good(s, p);
}

static void attentions_are_not_told(void **state)
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
	assert_int_equal(ask().size, SCRIPTED_SIZE);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 1), 0); /* by now it was asked */
	assert_int_equal(ask().size, 2 * SCRIPTED_SIZE);
}

static void refuse(struct scripted *s, const struct pdu *p)
{
	scripted_answer(s, p, SCSI_CHECK_CONDITION, s->step++ ? 0x031100 : 0x072707);
}

static void senses_come_with_their_errors(void **state)
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

/* ---- what unmaps -------------------------------------------------------------------------------- */

static void check_unmap(struct scripted *s, const struct pdu *p)
{
	static const uint8_t list[24] = {0, 22, 0, 16, 0, 0,  0, 0, 0, 0,
					 0, 0,	0, 0,  0, 16, 0, 0, 0, 8};

	scripted_fetch(s, p);
	s->step = p->cdb[0] == 0x42 && s->data_len == sizeof(list) &&
		  memcmp(s->data, list, sizeof(list)) == 0;
	scripted_answer(s, p, SCSI_GOOD, 0);
}

static void unmap_says_which_blocks(void **state)
{
	play(check_unmap, (struct stag_block_attr){0});
	assert_true(ask().unmaps);
	assert_int_equal(carry_out(STAG_BLOCK_UNMAP, 2), 0);
	end_play();
	assert_int_equal(script->step, 1);
}

/* ---- how data goes ------------------------------------------------------------------------------- */

/* The target need not fetch what has come with the command. */
static void take_along(struct scripted *s, const struct pdu *p)
{
	s->step += s->data_len == LEN && s->stag == 0;
	memcpy(s->bytes + s->step * LEN, s->data, s->data_len);
	scripted_answer(s, p, SCSI_GOOD, 0);
}

static void small_writes_go_along_where_the_target_takes_them(void **state)
{
	script->target_recv = 8192;
	play(take_along, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 1), 0);
	assert_int_equal(ask().counters.stags_open, 0);
	must_be_written(1);
}

/* As much as there is at the end of the unit. */
static void give_less(struct scripted *s, const struct pdu *p)
{
	struct pdu last = *p;

	put_be64(last.cdb + 2, SCRIPTED_SIZE / 512 - 1);
	scripted_good(s, &last);
}

static void a_read_that_is_too_short_has_failed(void **state)
{
	play(give_less, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), EIO);
	assert_int_equal(ask().counters.violations, 0);
}

/* ---- what may happen twice ----------------------------------------------------------------------- */

/* Gone with the first, before it is answered. */
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

static void who_is_asked_to_leave_comes_again(void **state)
{
	play(ask_to_leave, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 2), 0);
	assert_int_equal(ask().counters.logins, 2);
	assert_int_equal(ask().counters.violations, 0);
	must_be_written(2);
}

static void a_write_is_repeated(void **state)
{
	play(leave_once, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 3), 0);
	assert_int_equal(ask().counters.retried, 1);
	assert_int_equal(ask().counters.lost, 1);
	assert_int_equal(ask().counters.stags_open, 0);
	end_play();
	assert_int_equal(script->commands, 2);
	must_be_written(3);
}

/* The second time it would find what it wrote the first time. */
static void a_compare_and_write_is_not_repeated(void **state)
{
	play(leave_once, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_COMPARE_WRITE, 0), EIO);
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
	assert_int_equal(ask().counters.retried, 0);
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

static void nor_is_one_that_was_aborted(void **state)
{
	play(abort_it, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_COMPARE_WRITE, 0), EIO);
}

static void a_read_that_was_aborted_is(void **state)
{
	play(abort_it, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_READ, 0), 0);
}

/* ---- commands that take too long ------------------------------------------------------------------- */

/* The first is not answered. */
static void forget_one(struct scripted *s, const struct pdu *p)
{
	if (s->step++ != 0)
		scripted_good(s, p);
}

static void do_task(struct scripted *s, const struct pdu *p)
{
	scripted_task(s, p, TASK_FUNCTION_COMPLETE);
}

/* The first takes too long; from then on there is time. */
static void lose_patience(void)
{
	unit->config.command_ns = 20 * NS_PER_MS;
	submit(STAG_BLOCK_WRITE, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, ETIMEDOUT);
	unit->config.command_ns = 60 * NS_PER_S;
	assert_int_equal(finish(1).error, 0);
}

/* A command's time begins when it is submitted, not when the one before ended. */
static void who_was_idle_has_all_the_time(void **state)
{
	play(scripted_good, (struct stag_block_attr){0});
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 0), 0);
	unit->now -= unit->config.command_ns; /* so long ago */
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 1), 0);
	assert_int_equal(unit->abort.count, 0);
}

static void what_takes_too_long_is_aborted(void **state)
{
	script->on_task = do_task;
	play(forget_one, (struct stag_block_attr){0});
	lose_patience();
	assert_int_equal(carry_out(STAG_BLOCK_WRITE, 2), 0);
	assert_int_equal(ask().counters.lost, 0);
	assert_int_equal(ask().counters.stags_open, 0);
	assert_int_equal(ask().counters.violations, 0);
}

/* Nor is any other, until the unit is reset. */
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

static void what_a_reset_takes_along_is_sent_again(void **state)
{
	script->on_task = reset_only;
	play(forget_until_reset, (struct stag_block_attr){0});
	lose_patience();
	assert_int_equal(ask().counters.lost, 0);
	assert_int_equal(ask().counters.stags_open, 0);
	end_play();
	assert_int_equal(script->commands, 3);
	must_be_written(1);
}

/* Nothing helps but another connection. */
static void forget_until_login(struct scripted *s, const struct pdu *p)
{
	if (s->logins > 1)
		scripted_good(s, p);
}

static void who_aborts_nothing_is_left(void **state)
{
	play(forget_until_login, (struct stag_block_attr){0});
	unit->config.abort_ns = 20 * NS_PER_MS;
	lose_patience();
	assert_int_equal(ask().counters.lost, 1);
	assert_int_equal(ask().counters.stags_open, 0);
	must_be_written(1);
}

/* ---- targets that are up to no good, over verbs ------------------------------------------------------- */

/* Two commands, of which the story's deed is about the first; on the next connection all is well. */
static void misbehave(void (*deed)(struct scripted *, const struct pdu *))
{
	play(deed, (struct stag_block_attr){0});
	submit(STAG_BLOCK_WRITE, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, 0);
	assert_int_equal(finish(1).error, 0);
	assert_int_equal(ask().counters.lost, 1);
	assert_int_equal(ask().counters.violations, 1);
	assert_int_equal(ask().counters.stags_open, 0);
	snprintf(words, sizeof(words), "%s", unit->attempt.words);
	must_be_written(0);
	must_be_written(1);
}

/* True: it is the second command, and the first one was kept. */
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

static void an_stag_is_closed_that_never_was(void **state)
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

/* The first command was answered: it is over, and not sent again. */
static void an_stag_is_used_after_its_end(void **state)
{
	play(use_after_close, (struct stag_block_attr){0});
	submit(STAG_BLOCK_READ, 0);
	submit(STAG_BLOCK_WRITE, 1);
	assert_int_equal(finish(0).error, 0);
	for (int i = 0; i < LEN; i++)
		assert_int_equal(memory[0][i], 'a');
	assert_int_equal(finish(1).error, 0);
	assert_int_equal(ask().counters.violations, 1);
	assert_int_equal(ask().counters.stags_open, 0);
	must_be_written(1);
}

static void write_to_a_write(struct scripted *s, const struct pdu *p)
{
	if (keep_first(s, p))
		scripted_poke(s, s->kept_stag, 0, 8);
}

static void memory_is_written_that_was_to_be_read(void **state)
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

static void a_send_is_no_pdu(void **state)
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

static void an_stag_is_closed_by_no_answer(void **state)
{
	misbehave(close_with_a_nop);
}

int main(void)
{
#define ON(name, kind)                                                                             \
	{                                                                                          \
#name, name, begin, end, (void *)(uintptr_t)(kind)                                 \
	}
#define EVERYWHERE(name)                                                                           \
	ON(name, STAG_BLOCK_TCP), ON(name, STAG_BLOCK_ISER), ON(name, STAG_BLOCK_ONE_SHOT)
	const struct CMUnitTest tests[] = {
		EVERYWHERE(busy_and_full_are_tried_again),
		ON(who_is_always_busy_is_so, STAG_BLOCK_TCP),
		EVERYWHERE(attentions_are_not_told),
		EVERYWHERE(a_new_size_is_noticed),
		EVERYWHERE(senses_come_with_their_errors),
		EVERYWHERE(unmap_says_which_blocks),
		EVERYWHERE(small_writes_go_along_where_the_target_takes_them),
		EVERYWHERE(a_read_that_is_too_short_has_failed),
		EVERYWHERE(who_is_asked_to_leave_comes_again),
		EVERYWHERE(a_write_is_repeated),
		EVERYWHERE(a_compare_and_write_is_not_repeated),
		EVERYWHERE(nor_is_one_that_was_aborted),
		EVERYWHERE(a_read_that_was_aborted_is),
		EVERYWHERE(who_was_idle_has_all_the_time),
		EVERYWHERE(what_takes_too_long_is_aborted),
		EVERYWHERE(what_a_reset_takes_along_is_sent_again),
		EVERYWHERE(who_aborts_nothing_is_left),
		ON(the_wrong_stag_is_closed, STAG_BLOCK_ONE_SHOT),
		ON(the_wrong_stag_is_closed, STAG_BLOCK_ISER),
		ON(an_stag_is_not_closed, STAG_BLOCK_ONE_SHOT),
		ON(an_stag_is_closed_that_never_was, STAG_BLOCK_ONE_SHOT),
		ON(an_stag_is_closed_that_never_was, STAG_BLOCK_ISER),
		ON(an_stag_is_used_after_its_end, STAG_BLOCK_ONE_SHOT),
		ON(an_stag_is_used_after_its_end, STAG_BLOCK_ISER),
		ON(memory_is_written_that_was_to_be_read, STAG_BLOCK_ONE_SHOT),
		ON(a_send_is_no_pdu, STAG_BLOCK_ONE_SHOT),
		ON(a_send_is_no_pdu, STAG_BLOCK_ISER),
		ON(an_stag_is_closed_by_no_answer, STAG_BLOCK_ONE_SHOT),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
