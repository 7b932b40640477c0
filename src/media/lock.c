// SPDX-License-Identifier: BSD-2-Clause
/*
 * lock.c - range locks of the medium, within this process.
 *
 * Steps that read, and steps that write whole blocks, share a range with each other. A step that
 * reads a block to write it back locks it exclusively. As long as there are no exclusive steps,
 * nothing is compared. A waiting step is not overtaken by a step that conflicts with it.
 */
#include "media/medium.h"

#include <assert.h>

static bool conflict(const struct media_op *a, const struct media_op *b)
{
	return (a->state.mode == LOCK_EXCLUSIVE || b->state.mode == LOCK_EXCLUSIVE) &&
	       a->state.start < b->state.end && b->state.start < a->state.end;
}

static bool held_by_other(struct media *m, const struct media_op *op)
{
	list_for_each (l, &m->held)
		if (conflict(list_entry(l, struct media_op, state.held), op))
			return true;
	return false;
}

/* Returns whether a conflicting step waits in the queue before `end`. */
static bool conflict_waits_before(struct media *m, const struct media_op *op,
				  const struct list *end)
{
	for (struct list *l = m->range_waiters.next; l != end; l = l->next)
		if (conflict(list_entry(l, struct media_op, state.link), op))
			return true;
	return false;
}

bool range_lock(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	if (op->state.mode == LOCK_EXCLUSIVE)
		m->exclusives++;
	if (m->exclusives &&
	    (held_by_other(m, op) || conflict_waits_before(m, op, &m->range_waiters))) {
		media_op_set_phase(op, OP_RANGE);
		list_add_tail(&m->range_waiters, &op->state.link);
		return false;
	}
	list_add_tail(&m->held, &op->state.held);
	return true;
}

/* Returns the first waiting step that can be granted, or NULL. */
static struct media_op *next_granted(struct media *m)
{
	list_for_each (l, &m->range_waiters) {
		struct media_op *op = list_entry(l, struct media_op, state.link);

		if (!held_by_other(m, op) && !conflict_waits_before(m, op, l))
			return op;
	}
	return NULL;
}

void range_unlock(struct media *m, struct media_op *op)
{
	struct media_op *next;

	assert(lock_held(&m->lock));
	list_del(&op->state.held);
	if (op->state.mode == LOCK_EXCLUSIVE)
		m->exclusives--;
	if (list_empty(&m->range_waiters))
		return;
	while ((next = next_granted(m))) {
		list_del(&next->state.link);
		list_add_tail(&m->held, &next->state.held);
		step_with_range(m, next);
	}
}
