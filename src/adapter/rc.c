// SPDX-License-Identifier: BSD-2-Clause
/* rc.c - reliable connections of roce0: their states, the beginning and the end of a stream, and retries. */
#include "adapter/rc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"
#include "adapter/stream.h"
#include "base/clock.h"
#include "base/log.h"

static void on_patience(struct timer *t);
static void on_receive(struct srq_waiter *w);

int rc_create(struct stag_qp *qp)
{
	struct rc *rc = calloc(1, sizeof(*rc));

	if (!rc)
		return -ENOMEM;
	rc->qp = qp;
	rc->hold = RC_HOLD_STATE;
	srq_waiter_init(&rc->waiter, on_receive);
	reach_init(&rc->reach);
	qp->rc = rc;
	return 0;
}

void rc_stop(struct stag_qp *qp)
{
	assert(engine_locked());
	if (qp->srq)
		srq_stop_waiting(qp->srq, &qp->rc->waiter);
	work_cancel(&qp->rc->waiter.work);
	timer_cancel(&qp->rc->rnr.timer);
	timer_cancel(&qp->rc->patience);
	reach_stop(qp);
	rc_flush_acks(qp);
}

void rc_destroy(struct stag_qp *qp)
{
	assert(engine_locked());
	rc_stop(qp);
	free(qp->rc->kept);
	free(qp->rc->sink);
	free(qp->rc);
	qp->rc = NULL;
}

/* Forgets everything about streams and peers. */
void rc_reset(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	rc_attached(qp);
	rc->hold = RC_HOLD_STATE;
	rc->draining = rc->watched = rc->lost = rc->has_kept = false;
	reach_reset(&rc->reach);
}

/* ---- requests without a stream ---- */

/* Carries out local requests that have nothing before them in the queue. What is behind one that fails is flushed. */
static void run_first_local(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	assert(qp_tx_locked(qp) && atomic_load(&qp->state) == QP_IDLE);
	while (!qp->rc->hold && sq->get == sq->tx && sq->tx != sq->put) {
		struct wqe *w = &sq->wqe[sq->tx & sq->mask];

		if (!wqe_is_local(w))
			return;
		if (!w->done)
			sq_complete_local(qp, w);
		sq->tx++;
		if (w->status != IBV_WC_SUCCESS) {
			qp->rc->hold |= RC_HOLD_LOST;
			qp_fail_later(qp);
			return;
		}
		sq_retire(qp);
	}
}

/* ---- states ---- */

static uint64_t retry_ns(const struct stag_qp *qp)
{
	uint64_t t = (uint64_t)4096 << qp->config.attr.timeout;
	uint64_t least = (qp->stream ? RC_MIN_RETRY_ALIVE_MS : RC_MIN_RETRY_MS) * NS_PER_MS;

	if (qp_is_uc(qp))
		return UC_PATIENCE_NS;
	return t < least ? least : t;
}

/* A timeout of 0 is none. UC has no such attribute. */
static bool has_timeout(const struct stag_qp *qp)
{
	return qp->config.attr.timeout || qp_is_uc(qp);
}

/*
 * A request that waits for a receive of the peer sends nothing, so only TCP's probes notice that the peer's host is gone.
 * They take as long as the retries would, if that is longer than the least.
 */
static void keep_alive(struct stream *s, const struct stag_qp *qp)
{
	uint64_t tries = qp->config.attr.retry_cnt + 1u;

	if (has_timeout(qp) && !qp_is_uc(qp))
		stream_keep_alive(s, (unsigned)(tries * retry_ns(qp) / NS_PER_S));
}

/* Changes with everything that comes from the peer, and with everything that its kernel takes. */
static uint64_t progress_of(const struct stag_qp *qp)
{
	uint64_t p = (uint64_t)atomic_load(&qp->rc->heard) << 32;

	if (qp->stream && qp->tx)
		p += qp->tx->sent - qp->stream->ops->unsent(qp->stream);
	return p;
}

static uint16_t ord_of(const struct stag_qp *qp)
{
	uint16_t ord = qp->config.attr.max_rd_atomic, ird = qp->rc->peer_ird;

	if (ord == 0)
		ord = 1; /* a read would wait for ever */
	return ird && ird < ord ? ird : ord;
}

bool rc_is_draining(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (qp->ibv.state != IBV_QPS_SQD)
		return false;
	return qp->sq.get != qp->sq.tx || (qp->tx && qp->tx->open == OPEN_SQ);
}

void rc_check_drained(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (!qp->rc->draining || rc_is_draining(qp))
		return;
	qp->rc->draining = false;
	if (qp->ibv.state == IBV_QPS_SQD && qp->config.attr.en_sqd_async_notify)
		qp_async(qp, IBV_EVENT_SQ_DRAINED);
}

/* Requests are under way: begins to count the time. */
static void watch(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;

	assert(qp_tx_locked(qp));
	rc->watched = has_timeout(qp);
	if (!rc->watched)
		return;
	rc->watched_timeout = qp->config.attr.timeout;
	rc->tries = 0;
	rc->seen = progress_of(qp);
	timer_set(&rc->patience, clock_ns() + retry_ns(qp), on_patience);
}

void rc_moved(struct stag_qp *qp, enum ibv_qp_state from)
{
	struct rc *rc = qp->rc;

	assert(qp_tx_locked(qp));
	if (qp->ibv.state == IBV_QPS_RTS)
		rc->hold &= ~(unsigned)RC_HOLD_STATE;
	else
		rc->hold |= RC_HOLD_STATE;
	if (qp->stream) {
		qp->link.ord = ord_of(qp);
		keep_alive(qp->stream, qp);
	}
	if (from != IBV_QPS_SQD)
		rc->draining = qp->ibv.state == IBV_QPS_SQD;
	rc_check_drained(qp);
	if (rc->watched && rc->watched_timeout != qp->config.attr.timeout)
		watch(qp);
	if (qp->ibv.state == IBV_QPS_RTS && qp->sq.put != qp->sq.get)
		rc_posted(qp);
}

void rc_settle(struct stag_qp *qp)
{
	assert(engine_locked());
	reach_answer_guests(qp);
}

void rc_posted(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	bool idle;

	assert(qp_tx_locked(qp));
	if (rc->hold & RC_HOLD_STATE)
		return;
	/* The state tells, not qp->tx: rc_detach() frees that a moment after it has looked for requests. */
	idle = atomic_load(&qp->state) == QP_IDLE;
	if (idle)
		run_first_local(qp);
	if (idle && qp->sq.get == qp->sq.put)
		return;
	if (!rc->watched)
		watch(qp);
	if (idle)
		reach_want(qp);
	else
		qp_tx_run(qp);
}

/* ---- a stream's beginning and end ---- */

/* The numbers of requests begin again. Requests that were under way on an earlier stream stay so. */
void rc_attached(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	rc->framed = rc->acked = rc->ack_sent = rc->promised = 0;
	rc->ack_idx = qp->sq.tx;
	rc->unasked = 0;
	rc->unasked_bytes = 0;
	rc->asked = false;
	atomic_store(&rc->executed, 0);
	atomic_fetch_add(&rc->heard, 1);
	rc->hold &= ~(unsigned)RC_HOLD_RNR;
	rc->rnr.number = 0;
	rc->words = (struct rc_words){.nak = NAK_NONE};
	rc->dropping = false;
	rc->lost = rc->farewell = false;
	lock_acquire(&qp->rq_lock);
	qp->starving = false;
	lock_release(&qp->rq_lock);
	if (qp->srq)
		srq_stop_waiting(qp->srq, &rc->waiter);
	qp->link.ord = ord_of(qp);
	if (qp->stream)
		keep_alive(qp->stream, qp);
}

void rc_lose(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (atomic_load(&qp->state) != QP_RTS || qp->rc->lost)
		return;
	qp->rc->lost = true;
	if (qp->tx)
		qp->tx->dead = true;
	if (qp->rx)
		qp->rx->stopped = true;
	qp_tell(qp);
}

/* Have requests been framed that are not complete? What was not framed can go on the next stream. */
static bool has_requests_under_way(const struct stag_qp *qp)
{
	for (uint32_t i = qp->sq.get; i != qp->sq.tx; i++)
		if (!qp->sq.wqe[i & qp->sq.mask].done)
			return true;
	return false;
}

void rc_detach(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	bool wants;

	assert(engine_locked());
	qp_drop_claims(qp);
	qp_lock_both(qp);
	rc->lost = false;
	if (atomic_load(&qp->state) != QP_RTS) {
		qp_unlock_both(qp);
		return;
	}
	if (qp->rx->recv_open)
		rc_keep_receive(qp);
	atomic_store(&qp->progress.tx_blocked, false);
	if (qp_is_uc(qp))
		uc_stream_lost(qp);
	else if (has_requests_under_way(qp))
		rc->hold |= RC_HOLD_LOST;
	rc->hold &= ~(unsigned)RC_HOLD_RNR;
	qp_set_state(qp, QP_IDLE);
	run_first_local(qp);
	wants = qp->sq.tx != qp->sq.put;
	qp_unlock_both(qp);
	qp_close_stream(qp);
	if (wants)
		reach_want(qp);
}

void rc_flushed(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	qp->rc->hold = RC_HOLD_STATE;
	qp->rc->draining = qp->rc->watched = false;
	if (qp->rc->farewell)
		atomic_store(&qp->progress.tx_blocked, true);
	qp_tell(qp);
}

void rc_say_farewell(struct stag_qp *qp)
{
	assert(engine_locked());
	qp_lock_both(qp);
	if (qp->rc->farewell && qp->stream) {
		qp_tx_terminate(qp, NULL);
		if (!qp->rc->farewell) {
			qp->stream->ops->shutdown(qp->stream);
			atomic_store(&qp->progress.tx_blocked, false);
		}
	}
	qp_unlock_both(qp);
	qp_arm(qp);
}

static bool is_lost(struct stag_qp *qp)
{
	bool lost;

	lock_acquire(&qp->tx_lock);
	lost = qp->rc->lost;
	lock_release(&qp->tx_lock);
	return lost;
}

void rc_on_work(struct stag_qp *qp)
{
	assert(engine_locked());
	if (atomic_load(&qp->state) == QP_ERROR) {
		timer_cancel(&qp->rc->patience);
		timer_cancel(&qp->rc->rnr.timer);
		reach_stop(qp);
	} else if (is_lost(qp)) {
		rc_detach(qp);
	}
}

/* ---- retries ---- */

void rc_fail_oldest(struct stag_qp *qp, enum ibv_wc_status status)
{
	struct wqe *w = &qp->sq.wqe[qp->sq.get & qp->sq.mask];

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (qp->sq.get != qp->sq.put && !w->done) {
		w->status = (uint8_t)status;
		w->done = true;
	}
	qp_fail(qp, NULL, RC_NO_EVENT);
}

/* Does anything wait for the peer? What waits for a receive of the peer has its own count. */
static bool waits_for_peer(const struct stag_qp *qp)
{
	if (qp->rc->hold & RC_HOLD_RNR)
		return false;
	if (qp->rc->hold & RC_HOLD_STATE) /* SQD */
		return qp->sq.get != qp->sq.tx;
	return qp->sq.get != qp->sq.put;
}

static void check_patience(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	uint64_t now = progress_of(qp);

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	rc->tries = waits_for_peer(qp) && now == rc->seen ? rc->tries + 1 : 0;
	rc->seen = now;
	if (qp->sq.get == qp->sq.put || !has_timeout(qp)) {
		rc->watched = false;
		return;
	}
	if (rc->tries <= qp->config.attr.retry_cnt) {
		timer_set(&rc->patience, clock_ns() + retry_ns(qp), on_patience);
		return;
	}
	if (qp_is_uc(qp)) { /* what is left waits for another stream */
		uc_lose_patience(qp);
		rc->tries = 0;
		timer_set(&rc->patience, clock_ns() + retry_ns(qp), on_patience);
		return;
	}
	rc->watched = false;
	peer_misuse(__func__, qp->ibv.qp_num,
		    "qp %u: queue pair %u does not answer: the request of wr_id 0x%llx fails",
		    qp->ibv.qp_num, qp->config.attr.dest_qp_num,
		    (unsigned long long)qp->sq.wqe[qp->sq.get & qp->sq.mask].wr_id);
	rc_fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
}

static void on_patience(struct timer *t)
{
	struct stag_qp *qp = container_of(t, struct rc, patience)->qp;

	qp_lock_both(qp);
	if (qp->rc->watched && atomic_load(&qp->state) != QP_ERROR)
		check_patience(qp);
	qp_unlock_both(qp);
}

static void on_receive(struct srq_waiter *w)
{
	rc_go(container_of(w, struct rc, waiter)->qp);
}
