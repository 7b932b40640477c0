// SPDX-License-Identifier: BSD-2-Clause
/*
 * plan.c - decides the next step of an operation: how many bytes, directly or through staging
 * memory.
 *
 * It changes nothing else. If a write begins or ends within a block, only that block goes through
 * staging memory, provided that the rest is aligned; if memory and medium are misaligned to each
 * other, everything does.
 */
#include "media/medium.h"

#include <limits.h>

#define MOST_AT_ONCE (1ull << 30) /* the result of a system call is an int */

static bool is_aligned(const struct media *m, const void *at, uint64_t length)
{
	return (uintptr_t)at % m->memory_align == 0 && length % m->block == 0;
}

/* Returns whether the whole operation can be one vectored call. */
static bool goes_as_vector(const struct media *m, const struct media_op *op)
{
	if (op->n_iov < 2 || op->n_iov > IOV_MAX || op->state.at > 0 || op->length > MOST_AT_ONCE ||
	    op->offset % m->block != 0)
		return false;
	for (uint32_t i = 0; i < op->n_iov; i++)
		if (!is_aligned(m, op->iov[i].iov_base, op->iov[i].iov_len))
			return false;
	return true;
}

/* Returns how many bytes can be transferred directly, starting `ahead` bytes from here. */
static uint64_t straight_run(const struct media *m, const struct media_op *op, uint64_t ahead)
{
	uint64_t rest = op->length - op->state.at - ahead;
	uint8_t *at;
	uint64_t run = least(iov_run(op, ahead, &at), rest);

	if (run == 0 || (op->offset + op->state.at + ahead) % m->block != 0 ||
	    (uintptr_t)at % m->memory_align != 0)
		return 0;
	return round_down(least(run, m->calls ? MOST_IN_CALL : MOST_AT_ONCE), m->block);
}

static void plan_straight(struct media_op *op, uint64_t n, bool vector)
{
	struct media_op_state *s = &op->state;

	s->start = op->offset + s->at;
	s->end = s->start + n;
	s->step = n;
	s->vector = vector;
	s->mode = LOCK_SHARED;
}

static void plan_staged(const struct media *m, struct media_op *op, uint64_t unit)
{
	struct media_op_state *s = &op->state;
	uint64_t from = op->offset + s->at, rest = op->length - s->at;
	uint64_t head = round_up(from, unit) - from;

	s->start = round_down(from, unit);
	s->step = least(rest, MEDIA_BUFFER_SIZE - (from - s->start));
	if (head > 0 && head < s->step && unit == m->block && straight_run(m, op, head) > 0)
		s->step = head;
	s->end = round_up(from + s->step, unit);
	s->vector = false;
	s->mode = LOCK_SHARED;
}

static void plan_atomic(const struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;

	s->start = round_down(op->offset, m->block);
	s->end = m->block > 1 ? s->start + m->block : s->start + sizeof(uint64_t);
	s->step = sizeof(uint64_t);
	s->vector = false;
	s->mode = LOCK_EXCLUSIVE;
}

/*
 * Returns whether a short read that is to be cached is widened to whole units, so that the next
 * read finds its neighbours.
 */
static bool reads_units(const struct media *m, const struct media_op *op)
{
	return op->kind == MEDIA_READ && op->cache_ms > 0 && m->cache && CACHE_UNIT >= m->block &&
	       (op->offset % CACHE_UNIT || op->length % CACHE_UNIT) &&
	       op->length <= MEDIA_BUFFER_SIZE - 2 * CACHE_UNIT;
}

/* Returns whether the rest of the first and of the last block has to be read before the write. */
bool plan_fills(const struct media *m, const struct media_op *op, bool *head, bool *tail)
{
	const struct media_op_state *s = &op->state;

	*head = s->start < op->offset + s->at;
	*tail = op->offset + s->at + s->step < s->end;
	return *head || *tail;
}

void plan_step(struct media *m, struct media_op *op, bool *staged)
{
	struct media_op_state *s = &op->state;
	bool head, tail;
	uint64_t run;

	*staged = true;
	if (op->kind == MEDIA_ATOMIC) {
		plan_atomic(m, op);
	} else if (reads_units(m, op)) {
		plan_staged(m, op, CACHE_UNIT);
		s->end = least(s->end, atomic_load_explicit(&m->size, memory_order_relaxed));
	} else if (goes_as_vector(m, op)) {
		plan_straight(op, op->length, true);
		*staged = false;
	} else if ((run = straight_run(m, op, 0)) > 0) {
		plan_straight(op, run, false);
		*staged = false;
	} else {
		plan_staged(m, op, m->block);
		if (op->kind == MEDIA_WRITE && plan_fills(m, op, &head, &tail))
			s->mode = LOCK_EXCLUSIVE;
	}
}
