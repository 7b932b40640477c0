// SPDX-License-Identifier: BSD-2-Clause
/* step.c - a step of an operation, from its first wait to its last byte. */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define MOST_TRIES  100 /* without a byte moved */
#define FILL_BLOCKS 8	/* read in one go, although only the first and last are needed */

static bool writes(const struct media_op *op)
{
	return op->kind != MEDIA_READ;
}

static uint64_t total(const struct media_op *op)
{
	return op->kind == MEDIA_ATOMIC ? sizeof(uint64_t) : op->length;
}

/* Returns the address of the operation's bytes in the buffer. */
static uint8_t *in_buffer(const struct media_op *op)
{
	return op->state.buffer + (op->offset + op->state.at - op->state.start);
}

/* ---- queueing to the kernel ---- */

static void queue_io(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;
	struct media_io io = {
		.kind = s->phase == OP_MOVING && writes(op) ? MEDIA_IO_WRITE : MEDIA_IO_READ,
		.buffer = s->io_at,
		.offset = s->io_offset,
		.length = s->io_left,
		.cookie = (uintptr_t)op};

	if (s->vector) {
		io.iov = op->iov;
		io.n_iov = op->n_iov;
	}
	/* The last of several steps flushes for all. */
	io.durable = io.kind == MEDIA_IO_WRITE && op->durable && s->step == total(op) &&
		     !(m->flags & MEDIA_VOLATILE);
	m->edge->queue(m->edge, &io);
}

static void start_io(struct media *m, struct media_op *op, enum op_phase phase, uint8_t *at,
		     uint64_t offset, uint64_t length)
{
	struct media_op_state *s = &op->state;

	media_op_set_phase(op, phase);
	s->io_at = at;
	s->io_offset = offset;
	s->io_left = s->io_total = (uint32_t)length;
	queue_io(m, op);
}

static void move_straight(struct media *m, struct media_op *op)
{
	uint8_t *at = NULL;

	if (!op->state.vector)
		iov_run(op, 0, &at);
	start_io(m, op, OP_MOVING, at, op->state.start, op->state.step);
}

static void move_staged(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;

	start_io(m, op, OP_MOVING, s->buffer, s->start, s->end - s->start);
}

/* ---- ends of a step ---- */

static void step_end(struct media *m, struct media_op *op, int err)
{
	struct media_op_state *s = &op->state;
	uint8_t *buffer = s->buffer;

	if (s->placed)
		places_leave(m, op);
	s->buffer = NULL;
	s->at += s->step;
	if (op->kind != MEDIA_ATOMIC)
		iov_advance(op, s->step);
	range_unlock(m, op);
	if (buffer)
		media_staging_put(m, buffer);
	if (err)
		media_op_finish(m, op, err);
	else if (m->closing && s->at < total(op))
		media_op_finish(m, op, -ECANCELED);
	else
		step_next(m, op);
}

static void fail_op(struct media *m, struct media_op *op, int err)
{
	media_complain(m, op->kind == MEDIA_READ ? COMPLAINT_READ : COMPLAINT_WRITE,
		       op->state.io_offset, err);
	step_end(m, op, err);
}

/* ---- through the buffer ---- */

static void fill_tail(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;
	uint64_t at = s->end - m->block;

	start_io(m, op, OP_FILLING_TAIL, s->buffer + (at - s->start), at, m->block);
}

/* Reads the blocks that are not written completely. Returns false if there are none. */
static bool fill_buffer(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;
	bool head, tail;

	if (op->kind != MEDIA_ATOMIC && !plan_fills(m, op, &head, &tail))
		return false;
	if (op->kind == MEDIA_ATOMIC || s->end - s->start <= FILL_BLOCKS * m->block)
		start_io(m, op, OP_FILLING, s->buffer, s->start, s->end - s->start);
	else if (head)
		start_io(m, op, OP_FILLING, s->buffer, s->start, m->block);
	else
		fill_tail(m, op);
	return true;
}

/* Reads the last block after a fill that read the first block alone. */
static bool fill_rest(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;
	bool head, tail;

	if (s->phase != OP_FILLING || s->io_total == s->end - s->start)
		return false;
	plan_fills(m, op, &head, &tail);
	if (tail)
		fill_tail(m, op);
	return tail;
}

/*
 * Returns false if the word is unchanged and needs no write, unless it must be durable: the value
 * found may be in caches only.
 */
static bool apply(struct media_op *op)
{
	uint8_t *at = in_buffer(op);
	uint64_t found, value;

	memcpy(&found, at, sizeof(found));
	value = op->apply(op, found);
	op->found = found;
	memcpy(at, &value, sizeof(value));
	return value != found || op->durable;
}

static void compose(struct media *m, struct media_op *op)
{
	if (op->kind == MEDIA_WRITE)
		iov_gather(op, in_buffer(op), op->state.step);
	else if (!apply(op)) {
		step_end(m, op, 0);
		return;
	}
	m->counters.copied_bytes += op->state.step;
	move_staged(m, op);
}

static void moved_staged(struct media *m, struct media_op *op)
{
	if (op->kind == MEDIA_READ) {
		iov_scatter(op, in_buffer(op), op->state.step);
		m->counters.copied_bytes += op->state.step;
	}
	cache_keep(m, op, op->state.io_total - op->state.io_left);
	step_end(m, op, 0);
}

/* Called when the system call has transferred all bytes that it could. */
static void primitive_done(struct media *m, struct media_op *op)
{
	if (op->state.phase == OP_MOVING)
		moved_staged(m, op);
	else if (!fill_rest(m, op))
		compose(m, op);
}

/*
 * A read that was widened beyond the operation may be cut short by the end of the file, after the
 * requested bytes.
 */
static bool has_enough(const struct media_op *op)
{
	const struct media_op_state *s = &op->state;

	return op->kind == MEDIA_READ &&
	       s->start + (s->io_total - s->io_left) >= op->offset + s->at + s->step;
}

static void try_again(struct media *m, struct media_op *op, int err)
{
	if (op->state.tries++ < MOST_TRIES)
		queue_io(m, op);
	else
		fail_op(m, op, err);
}

/*
 * Returns the error for a call that moved no byte and reported none: the end of the file, or no
 * space. The next write queries the size again.
 */
static int nothing_moved(struct media *m, const struct media_op *op)
{
	m->looked_ns = 0;
	return op->state.phase == OP_MOVING && writes(op) ? -EIO : -ENXIO;
}

static void staged_event(struct media *m, struct media_op *op, uint32_t n)
{
	struct media_op_state *s = &op->state;
	uint32_t done = s->io_total - s->io_left + n, advance;

	if (n == 0 && has_enough(op)) {
		primitive_done(m, op);
		return;
	}
	if (n == 0) {
		fail_op(m, op, nothing_moved(m, op));
		return;
	}
	if (done < s->io_total)
		done = (uint32_t)round_down(done, m->block);
	advance = done - (s->io_total - s->io_left);
	s->io_at += advance;
	s->io_offset += advance;
	s->io_left -= advance;
	if (s->io_left == 0) {
		primitive_done(m, op);
		return;
	}
	if (advance)
		s->tries = 0;
	try_again(m, op, -EIO);
}

/* ---- direct transfer ---- */

/* Handles a direct transfer. After a short one, the rest is planned again. */
static void straight_event(struct media *m, struct media_op *op, uint32_t n)
{
	struct media_op_state *s = &op->state;

	if (n == 0) {
		fail_op(m, op, nothing_moved(m, op));
		return;
	}
	if (n < s->step)
		n = (uint32_t)round_down(n, m->block);
	if (n == 0) {
		try_again(m, op, -EIO);
		return;
	}
	s->step = n;
	cache_keep(m, op, n);
	step_end(m, op, 0);
}

void step_event(struct media *m, struct media_op *op, int result)
{
	assert(lock_held(&m->lock));
	if (is_passing(result))
		try_again(m, op, result);
	else if (result < 0)
		fail_op(m, op, result);
	else if (op->state.buffer)
		staged_event(m, op, (uint32_t)result);
	else
		straight_event(m, op, (uint32_t)result);
}

/* ---- waits, in order --------------- */

void step_go(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	cache_begin(m, op);
	if (!op->state.buffer)
		move_straight(m, op);
	else if (op->kind == MEDIA_READ)
		move_staged(m, op);
	else if (!fill_buffer(m, op))
		compose(m, op);
}

void step_with_range(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	if (writes(op) && !places_enter(m, op))
		places_wait(m, op);
	else
		step_go(m, op);
}

void step_with_buffer(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	if (range_lock(m, op))
		step_with_range(m, op);
}

static void after_last_step(struct media *m, struct media_op *op)
{
	/* A single step that covers the operation was durable by itself. */
	if (writes(op) && op->durable && op->state.step != total(op))
		flush_start(m, op);
	else
		media_op_finish(m, op, 0);
}

void step_next(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;
	bool staged;

	assert(lock_held(&m->lock));
	if (s->at == total(op)) {
		after_last_step(m, op);
		return;
	}
	s->tries = 0;
	plan_step(m, op, &staged);
	s->buffer = staged ? media_staging_get(m) : NULL;
	if (staged && !s->buffer) {
		media_op_set_phase(op, OP_BUFFER);
		list_add_tail(&m->staging.ops, &s->link);
		return;
	}
	step_with_buffer(m, op);
}
