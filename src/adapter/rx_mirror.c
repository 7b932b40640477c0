// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_mirror.c - the receiver of a writer to mirrored regions: placed data is forwarded before
 * the next message is handled.
 *
 * A whole segment is handed to the region's mirrors at once, and sent with others, at the
 * latest before another kind of message of this writer is handled, so that the program never
 * learns of data that was not forwarded before. If a mirror has no room, or has yet to confirm,
 * this receiver alone stops reading its stream, until it is resumed.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <errno.h>

#include "base/log.h"

static bool hold_region(const struct rx_into *into)
{
	return into->region && key_hold_again(into->region, into->stag, into->life);
}

/* Sends the forwards that were enqueued. */
void rx_mirror_kick(struct stag_qp *qp)
{
	struct rx_mirroring *m = &qp->rx->mirroring;
	struct rx_into region = m->kick;

	assert(qp_rx_locked(qp));
	m->kick.region = NULL;
	if (!hold_region(&region))
		return;
	mirror_kick(region.region);
	key_release(region.region);
}

static enum outcome stall_writer(struct stag_qp *qp)
{
	qp->rx->mirroring.stalled = true;
	qp->stats.counters.mirror_stalls++;
	return WAIT;
}

static enum outcome refuse_write(struct stag_qp *qp)
{
	log_info("qp %u: a mirror of the region that it writes to has ended", qp->ibv.qp_num);
	rx_stop_logged(qp, FAULT_RDMAP_OP_OTHER);
	return STOP;
}

static enum outcome outcome_of(struct stag_qp *qp, int err)
{
	if (!err)
		return GO_ON;
	return err == -EAGAIN ? stall_writer(qp) : refuse_write(qp);
}

/* Hands the segment to the mirrors that have not taken it; called again after a stall. */
enum outcome rx_mirror_rest(struct stag_qp *qp)
{
	struct rx_mirroring *m = &qp->rx->mirroring;
	struct mirror_piece piece = {m->rest.region, m->rest.off, m->rest_len};
	int err;

	assert(qp_rx_locked(qp));
	m->turn = mirror_turns();
	if (!hold_region(&m->rest)) {
		m->rest.region = NULL; /* the region is gone: nothing to mirror */
		return GO_ON;
	}
	err = mirror_forward(qp, &piece, &m->next, &m->gates);
	m->kick = m->rest;
	if (err == -EAGAIN) {
		mirror_kick(piece.region);
		mirror_pass(&m->gates);
		err = mirror_forward(qp, &piece, &m->next, &m->gates);
	}
	key_release(piece.region);
	if (err != -EAGAIN)
		m->rest.region = NULL;
	return outcome_of(qp, err);
}

/* Forwards a segment that is placed and whose CRC is right. */
enum outcome rx_mirror_write(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct rx_mirroring *m = &rx->mirroring;

	assert(qp_rx_locked(qp));
	if (!rx->into.region || !atomic_load(&rx->into.region->mirrors))
		return GO_ON;
	if (m->kick.region && m->kick.region != rx->into.region)
		rx_mirror_kick(qp);
	m->rest = rx->into;
	m->rest_len = rx->seg_len;
	m->next = 0;
	return rx_mirror_rest(qp);
}

enum outcome rx_mirror_pass(struct stag_qp *qp)
{
	struct rx_mirroring *m = &qp->rx->mirroring;

	assert(qp_rx_locked(qp));
	if (m->kick.region)
		rx_mirror_kick(qp);
	if (!m->gates.n)
		return GO_ON;
	m->turn = mirror_turns();
	return outcome_of(qp, mirror_pass(&m->gates));
}

bool rx_mirror_may_go(struct stag_qp *qp)
{
	const struct rx_mirroring *m = &qp->rx->mirroring;

	assert(qp_rx_locked(qp));
	return m->stalled && m->turn != mirror_turns();
}

void rx_mirror_resume(struct stag_qp *qp)
{
	assert(engine_locked());
	lock_acquire(&qp->rx_lock);
	if (qp->rx && !qp->rx->stopped && qp->rx->mirroring.stalled)
		rx_resume(qp);
	lock_release(&qp->rx_lock);
}
