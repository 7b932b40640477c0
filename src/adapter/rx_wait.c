// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_wait.c - a receive is missing on stag0: a send of a stag peer waits for it, for a time.
 *
 * iWARP ends the connection then (RFC 5041 §7.2), and still does when the time is over, or if the peer is another
 * implementation. Programs that were written for InfiniBand count on being a little late. Until then the stream is not
 * read: nothing behind the send is lost, and nothing can wait for ever. On roce0 see rc_rnr.c.
 */
#include "adapter/qp_rx.h"

#include <assert.h>

#include "adapter/srq.h"
#include "base/clock.h"

#define RECEIVE_WAIT_MS 1000

static void look_again(struct stag_qp *qp)
{
	lock_acquire(&qp->rx_lock);
	if (qp->rx && !qp->rx->stopped && qp->rx->recv_until)
		rx_resume(qp);
	lock_release(&qp->rx_lock);
}

static void on_time(struct timer *t)
{
	look_again(container_of(t, struct stag_qp, recv_timer));
}

static void on_shared_receive(struct srq_waiter *w)
{
	look_again(container_of(w, struct stag_qp, recv_waiter));
}

void rx_wait_init(struct stag_qp *qp)
{
	srq_waiter_init(&qp->recv_waiter, on_shared_receive);
}

void rx_wait_stop(struct stag_qp *qp)
{
	assert(engine_locked());
	timer_cancel(&qp->recv_timer);
	if (qp->srq)
		srq_stop_waiting(qp->srq, &qp->recv_waiter);
	work_cancel(&qp->recv_waiter.work);
}

bool rx_wait_for_receive(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint64_t now = clock_ns();

	assert(qp_rx_locked(qp));
	if (!qp->link.stag_peer)
		return false;
	if (!rx->recv_until) {
		rx->recv_until = now + RECEIVE_WAIT_MS * NS_PER_MS;
		timer_set(&qp->recv_timer, rx->recv_until, on_time);
	}
	return now < rx->recv_until;
}

void rx_receive_posted(struct stag_qp *qp)
{
	look_again(qp);
}
