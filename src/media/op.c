// SPDX-License-Identifier: BSD-2-Clause
/* op.c - submission and completion of operations. */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "base/lock.h"

#define PHASE(p) (1u << (p))

/* A step skips each of these that it does not need. */
#define OF_A_STEP                                                                                  \
	(PHASE(OP_BUFFER) | PHASE(OP_RANGE) | PHASE(OP_PLACE) | PHASE(OP_FILLING) |                \
	 PHASE(OP_FILLING_TAIL) | PHASE(OP_MOVING))
#define AFTER_STEPS (PHASE(OP_SYNCING) | PHASE(OP_READY))

/* For each phase, those that may follow. An operation enters OP_BACKLOG in media_submit() only. */
static const unsigned int legal[] = {
	[OP_BACKLOG] = OF_A_STEP | AFTER_STEPS,
	[OP_BUFFER] = (OF_A_STEP & ~PHASE(OP_BUFFER)) | PHASE(OP_READY),
	[OP_RANGE] = (OF_A_STEP & ~(PHASE(OP_BUFFER) | PHASE(OP_RANGE))) | PHASE(OP_READY),
	[OP_PLACE] = (OF_A_STEP & ~(PHASE(OP_BUFFER) | PHASE(OP_RANGE))) | PHASE(OP_READY),
	[OP_FILLING] = PHASE(OP_FILLING_TAIL) | PHASE(OP_MOVING) | AFTER_STEPS,
	[OP_FILLING_TAIL] = PHASE(OP_MOVING) | PHASE(OP_READY),
	[OP_MOVING] = OF_A_STEP | AFTER_STEPS,
	[OP_SYNCING] = PHASE(OP_READY),
	[OP_READY] = 0,
};

void media_op_set_phase(struct media_op *op, enum op_phase to)
{
	assert(legal[op->state.phase] & PHASE(to));
	(void)legal; /* a release build does not check */
	op->state.phase = (uint8_t)to;
}

static uint64_t iov_sum(const struct media_op *op)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < op->n_iov; i++)
		sum += op->iov[i].iov_len;
	return sum;
}

static bool is_sane(const struct media_op *op)
{
	if (!op->done)
		return false;
	switch ((enum media_kind)op->kind) {
	case MEDIA_READ:
	case MEDIA_WRITE:
		return iov_sum(op) == op->length;
	case MEDIA_ATOMIC:
		return op->apply && op->offset % sizeof(uint64_t) == 0;
	case MEDIA_FLUSH:
		return true;
	}
	return false;
}

/* Wakes the sleeping thread for the first callback; that thread finds the others too. */
void media_op_tell(struct media *m)
{
	assert(lock_held(&m->lock));
	if (atomic_fetch_add(&m->to_tell, 1) == 0)
		poll_wake(m);
}

static void count_op(struct media *m, const struct media_op *op)
{
	struct media_counters *c = &m->counters;

	switch ((enum media_kind)op->kind) {
	case MEDIA_READ:
		c->reads++;
		c->read_bytes += op->length;
		break;
	case MEDIA_WRITE:
		c->writes++;
		c->written_bytes += op->length;
		break;
	case MEDIA_ATOMIC:
		c->atomics++;
		break;
	case MEDIA_FLUSH:
		c->flushes++;
		break;
	}
}

/* Times all flushes, and a sample of the others. */
static bool is_timed(struct media *m, const struct media_op *op)
{
	struct media_times *t = &m->times[op->kind];
	uint64_t seen = t->seen++;

	if (op->kind == MEDIA_FLUSH)
		return true;
	if (!sample_is_due(&t->sample, seen))
		return false;
	sample_take(&t->sample, seen);
	return true;
}

void media_op_finish(struct media *m, struct media_op *op, int result)
{
	assert(lock_held(&m->lock));
	op->result = result;
	media_op_set_phase(op, OP_READY);
	if (result)
		m->counters.errors++;
	else
		count_op(m, op);
	if (!result && op->state.since)
		histogram_count(&m->times[op->kind].histogram, clock_ns() - op->state.since);
	m->active--;
	list_add_tail(&m->ready, &op->state.link);
	m->n_ready++;
	media_op_tell(m);
}

void media_op_start(struct media *m, struct media_op *op)
{
	uint64_t length = op->kind == MEDIA_ATOMIC ? sizeof(uint64_t) : op->length;

	assert(lock_held(&m->lock));
	m->active++;
	if (op->kind == MEDIA_FLUSH) {
		flush_start(m, op);
		return;
	}
	if (op->kind != MEDIA_READ)
		media_notice_size(m);
	if (op->cache_ms)
		cache_prepare(m);
	if (!media_covers(m, op->offset, length))
		media_op_finish(m, op, -ENXIO);
	else if (op->kind == MEDIA_READ && op->cache_ms && cache_read(m, op))
		media_op_finish(m, op, 0);
	else
		step_next(m, op);
}

void media_op_start_backlog(struct media *m)
{
	assert(lock_held(&m->lock));
	while (m->active < m->depth && !list_empty(&m->backlog)) {
		struct media_op *op = list_entry(m->backlog.next, struct media_op, state.link);

		list_del(&op->state.link);
		media_op_start(m, op);
	}
}

int media_submit(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;

	if (!media_is_ours(m) || !is_sane(op))
		return -EINVAL;
	s->at = s->step = s->iov_skip = 0;
	s->iov_index = 0;
	s->buffer = NULL;
	s->placed = false;
	s->phase = OP_BACKLOG;
	HOLD_FOR_SCOPE(&m->lock);
	s->since = is_timed(m, op) ? clock_ns() : 0;
	if (m->active < m->depth && list_empty(&m->backlog))
		media_op_start(m, op);
	else
		list_add_tail(&m->backlog, &s->link);
	return 0;
}

void media_kick(struct media *m)
{
	if (!media_is_ours(m) || !m->edge->queued(m->edge))
		return;
	/* What the kernel does not accept now is submitted by a later poll. */
	if (m->edge->submit(m->edge, false) < 0)
		poll_wake(m);
}
