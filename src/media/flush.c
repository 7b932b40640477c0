// SPDX-License-Identifier: BSD-2-Clause
/*
 * flush.c - makes writes durable: one fdatasync serves all flushes requested while another one is
 * in flight.
 *
 * The kernel reports a failed write-back only once. So after the first failure every flush of this
 * medium fails: lost data stays lost for every caller.
 */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>

static void queue_fdatasync(struct media *m)
{
	struct media_io io = {.kind = MEDIA_IO_SYNC, .cookie = COOKIE_SYNC};

	m->syncing = true;
	m->edge->queue(m->edge, &io);
}

static void start_flush(struct media *m)
{
	while (!list_empty(&m->sync_next)) {
		struct list *l = m->sync_next.next;

		list_del(l);
		list_add_tail(&m->sync_now, l);
	}
	queue_fdatasync(m);
}

void flush_start(struct media *m, struct media_op *op)
{
	assert(lock_held(&m->lock));
	media_op_set_phase(op, OP_SYNCING);
	if (m->sync_error || (m->flags & MEDIA_VOLATILE)) {
		media_op_finish(m, op, m->sync_error);
		return;
	}
	list_add_tail(&m->sync_next, &op->state.link);
	if (!m->syncing)
		start_flush(m);
}

void flush_event(struct media *m, int result)
{
	assert(lock_held(&m->lock));
	if (is_passing(result)) {
		queue_fdatasync(m);
		return;
	}
	m->syncing = false;
	if (result < 0) {
		m->sync_error = result;
		media_complain(m, COMPLAINT_SYNC, 0, result);
	}
	while (!list_empty(&m->sync_now)) {
		struct media_op *op = list_entry(m->sync_now.next, struct media_op, state.link);

		list_del(&op->state.link);
		media_op_finish(m, op, m->sync_error);
	}
	if (!list_empty(&m->sync_next))
		start_flush(m);
}
