// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_link.c - a queue pair's connection: its beginning, which thread watches it, its end.
 *
 * Every end of a connection calls qp_flush(): everything that was posted completes, once, and
 * the code that connected the queue pair is notified.
 */
#include "adapter/qp.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>

#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/mirror.h"
#include "adapter/rc.h"
#include "adapter/store_peer.h"
#include "adapter/stream.h"
#include "base/clock.h"
#include "base/log.h"

#define CLOSE_TIMEOUT_MS  5000 /* for the peer's FIN after ours */
#define CLOSE_TRIES	  12   /* times that it is extended while bytes are in flight */
#define LINGER_TIMEOUT_MS 2000 /* for the peer to read our last message */
#define FEW_QPS		  8 /* as in claim.c: beyond this the engine hands active queue pairs to the poller */

void qp_async(struct stag_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.element.qp = &qp->ibv, .event_type = type};

	ctx_async(to_stag_ctx(qp->ibv.context), &ev);
}

static void on_event_work(struct work *w);

void qp_tell(struct stag_qp *qp)
{
	work_queue(&qp->notify.work, on_event_work);
}

void qp_tell_established(struct stag_qp *qp)
{
	atomic_store(&qp->notify.established, true);
	qp_tell(qp);
}

/* Completes everything that is posted, once. */
void qp_flush(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	qp_set_state(qp, QP_ERROR);
	atomic_store(&qp->progress.tx_blocked, false); /* no thread waits for room any more */
	tx_forwards_drop(qp);
	sq_flush(qp);
	rx_flush(qp);
	if (qp->srq)
		qp_async(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	key_unbind_qp(qp);
	shots_orphan(qp);
	if (qp->rc)
		rc_flushed(qp);
}

static void on_linger(struct timer *t);

/* Ends the connection from our side: the stream closes after the peer has read everything. */
void qp_end_by_us(struct stag_qp *qp, const struct terminate *term)
{
	assert(qp_tx_locked(qp));
	if (!qp->stream)
		return;
	if (term || qp->rc)
		qp_tx_terminate(qp, term);
	if (!qp->rc || !qp->rc->farewell)
		qp->stream->ops->shutdown(qp->stream);
	/* a stream that is shut down always has room */
	atomic_store(&qp->progress.tx_blocked, false);
	qp->end.lingering = true;
	timer_set(&qp->end.timer, clock_ns() + LINGER_TIMEOUT_MS * NS_PER_MS, on_linger);
}

void qp_fail(struct stag_qp *qp, const struct terminate *term, enum ibv_event_type event)
{
	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (atomic_load(&qp->state) == QP_ERROR)
		return;
	qp_end_by_us(qp, term);
	qp_flush(qp);
	if (event != RC_NO_EVENT)
		qp_async(qp, event);
	atomic_store(&qp->notify.disconnected, true);
	qp_tell(qp);
}

void qp_fail_later(struct stag_qp *qp)
{
	atomic_store(&qp->notify.fail, true);
	qp_tell(qp);
}

void qp_peer_closed(struct stag_qp *qp, bool orderly)
{
	bool was_busy;

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (atomic_load(&qp->state) == QP_ERROR)
		return;
	if (qp->rc) {
		rc_lose(qp);
		return;
	}
	/* After a failed send the stream reads as if the peer had closed it. */
	was_busy = qp->sq.get != qp->sq.put || qp_tx_broken(qp) || atomic_load(&qp->mirror.count);
	qp_flush(qp);
	if (!orderly || was_busy)
		qp_async(qp, IBV_EVENT_QP_FATAL);
	atomic_store(&qp->notify.disconnected, true);
	qp_tell(qp);
}

void qp_lock_both(struct stag_qp *qp)
{
	lock_acquire(&qp->rx_lock);
	lock_acquire(&qp->tx_lock);
}

void qp_unlock_both(struct stag_qp *qp)
{
	lock_release(&qp->tx_lock);
	lock_release(&qp->rx_lock);
}

static void keep_counters(struct stag_qp *qp)
{
	qp->stats.counters.tx_bytes += qp->stream->tx_bytes;
	qp->stats.counters.rx_bytes += qp->stream->rx_bytes;
	qp->stats.counters.tx_calls += qp->stream->tx_calls;
	qp->stats.counters.rx_calls += qp->stream->rx_calls;
	qp->stats.counters.tx_again += qp->stream->tx_again;
	qp->stats.counters.rx_again += qp->stream->rx_again;
}

/* For a queue pair in ERROR, or one that is being reset or destroyed. */
void qp_close_stream(struct stag_qp *qp)
{
	struct store_peer *peer;

	assert(engine_locked());
	timer_cancel(&qp->hold_timer);
	timer_cancel(&qp->end.timer);
	rx_wait_stop(qp);
	lock_acquire(&qp->progress.arm_lock);
	if (!qp->ud) /* its socket stays */
		watch_del(&qp->progress.watch);
	lock_release(&qp->progress.arm_lock);
	qp_lock_both(qp);
	if (qp->stream) {
		keep_counters(qp);
		stream_close(qp->stream);
		qp->stream = NULL;
		atomic_fetch_add(&stag_totals.disconnects, 1);
	}
	qp_tx_free(qp);
	qp_rx_free(qp);
	peer = qp->storage.peer;
	qp->storage.peer = NULL;
	qp->end.lingering = false;
	atomic_store(&qp->progress.tx_blocked, false);
	atomic_store(&qp->progress.rx_paused, false);
	atomic_store(&qp->storage.serves_store, false);
	qp_unlock_both(qp);
	mirror_leave(qp); /* no thread can list it any more */
	peer_leave(peer);
}

/* Completed messages may still be in flight to a slow or stopped peer: allow a minute. */
static bool still_delivering(struct stag_qp *qp)
{
	return qp->end.tries++ < CLOSE_TRIES && qp->stream->ops->unsent(qp->stream) > 0;
}

static void on_linger(struct timer *t)
{
	struct stag_qp *qp = container_of(t, struct stag_qp, end.timer);

	if (atomic_load(&qp->state) != QP_CLOSING) {
		qp_close_stream(qp);
		return;
	}
	if (still_delivering(qp)) {
		timer_set(t, clock_ns() + CLOSE_TIMEOUT_MS * NS_PER_MS, on_linger);
		return;
	}
	log_info("qp %u: the peer did not close in time", qp->ibv.qp_num);
	qp_lock_both(qp);
	qp->stream->ops->abort(qp->stream);
	qp_peer_closed(qp, true);
	qp_unlock_both(qp);
}

/* Reads and drops bytes until the peer has closed, so that no reset destroys our last message. */
static void drain_stream(struct stag_qp *qp)
{
	uint8_t junk[4096];
	struct iovec v = {junk, sizeof(junk)};
	ssize_t n = -EAGAIN;

	lock_acquire(&qp->rx_lock);
	for (int i = 0; i < 64 && qp->stream; i++) {
		n = qp->stream->ops->recv(qp->stream, &v, 1);
		if (n <= 0)
			break;
	}
	lock_release(&qp->rx_lock);
	if (n <= 0 && n != -EAGAIN)
		qp_close_stream(qp);
}

void qp_drop_claims(struct stag_qp *qp)
{
	struct stag_cq *cq = atomic_load(&qp->progress.claimed_by);

	assert(engine_locked());
	if (!cq)
		return;
	lock_acquire(&cq->qps_lock);
	claim_drop(cq, qp);
	lock_release(&cq->qps_lock);
}

static void on_event_work(struct work *w)
{
	struct stag_qp *qp = container_of(w, struct stag_qp, notify.work);

	if (atomic_exchange(&qp->notify.fail, false)) {
		struct terminate t;

		qp_lock_both(qp);
		t = qp_tx_reason(qp);
		qp_fail(qp, &t, qp->rc ? rc_own_fault(qp) : IBV_EVENT_QP_FATAL);
		qp_unlock_both(qp);
	}
	if (qp->rc)
		rc_on_work(qp);
	if (atomic_exchange(&qp->notify.established, false) && qp->notify.events &&
	    qp->notify.events->established)
		qp->notify.events->established(qp->notify.arg);
	if (atomic_load(&qp->state) == QP_ERROR) {
		qp_drop_claims(qp);
		qp_arm(qp);
		if (!qp->end.lingering)
			qp_close_stream(qp);
	}
	if (atomic_exchange(&qp->notify.disconnected, false) && qp->notify.events &&
	    qp->notify.events->disconnected)
		qp->notify.events->disconnected(qp->notify.arg);
}

/* Hands an active queue pair to the poller of a queue that many queue pairs share. */
static void offer_to_poller(struct stag_qp *qp, struct stag_cq *cq)
{
	if (cq->n_qps <= FEW_QPS || !atomic_load(&cq->in_polled))
		return;
	if (!lock_try(&cq->qps_lock))
		return;
	/* The thread that armed the queue sleeps, or is about to. */
	if (atomic_load(&cq->claim) != CLAIM_SLEEPER && !claim_is_slept_on(cq) && !cq_is_armed(cq))
		claim_one(cq, qp, CLAIM_POLLER);
	lock_release(&cq->qps_lock);
}

void qp_offer(struct stag_qp *qp)
{
	offer_to_poller(qp, qp->rcq);
	if (qp->scq != qp->rcq)
		offer_to_poller(qp, qp->scq);
}

/* The stream has room: sends, and reads more from the media that the responses come from. */
static void send_after_blocking(struct stag_qp *qp)
{
	bool serves = atomic_load(&qp->storage.serves_store);
	struct media *minded = serves ? qp_first_medium(qp) : NULL,
		     *before = media_poller_enter(minded);

	lock_acquire(&qp->tx_lock);
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
	if (serves)
		qp_poll_media(qp);
	media_poller_leave(minded, before);
}

static void on_stream(struct watch *w, uint32_t revents)
{
	struct stag_qp *qp = container_of(w, struct stag_qp, progress.watch);

	if (atomic_load(&qp->state) == QP_ERROR) {
		if (qp->rc && (revents & EPOLLOUT))
			rc_say_farewell(qp);
		if (qp->end.lingering)
			drain_stream(qp);
		return;
	}
	if (revents & EPOLLOUT)
		send_after_blocking(qp);
	if (atomic_load(&qp->storage.serves_store))
		engine_note_asked();
	if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		qp_progress(qp);
		qp_offer(qp);
	}
}

static void on_hold_end(struct timer *t)
{
	struct stag_qp *qp = container_of(t, struct stag_qp, hold_timer);

	lock_acquire(&qp->tx_lock);
	qp_tx_release(qp);
	lock_release(&qp->tx_lock);
}

static int attach_locked(struct stag_qp *qp, struct stream *s, const struct qp_link *link)
{
	int err;

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (atomic_load(&qp->state) != QP_IDLE || qp->ibv.state == IBV_QPS_RESET) {
		log_info("qp %u: cannot be connected in state %d", qp->ibv.qp_num, qp->ibv.state);
		return -EINVAL;
	}
	qp->stream = s;
	qp->link = *link;
	err = qp_tx_init(qp);
	if (!err)
		err = qp_rx_init(qp);
	if (!err)
		err = watch_add(&qp->progress.watch, s->fd, EPOLLIN, on_stream);
	if (err) {
		qp_tx_free(qp);
		qp_rx_free(qp);
		qp->stream = NULL;
		return err;
	}
	qp->link.ahead = NULL;
	atomic_store(&qp->end.timed_out, false); /* of an earlier connection */
	qp->link_no++;
	qp_set_state(qp, QP_RTS);
	if (qp->rc)
		rc_attached(qp);
	return 0;
}

int qp_attach(struct stag_qp *qp, struct stream *s, const struct qp_link *link)
{
	int err;

	assert(engine_locked());
	qp_lock_both(qp);
	err = attach_locked(qp, s, link);
	if (!err && !link->wait_first && link->hold_until)
		timer_set(&qp->hold_timer, link->hold_until, on_hold_end);
	if (!err)
		qp_tx_run(qp);
	lock_release(&qp->tx_lock);
	if (!err && link->ahead_len)
		rx_consume_ahead(qp);
	if (!err)
		rx_read_on(qp);
	lock_release(&qp->rx_lock);
	return err;
}

void qp_set_events(struct stag_qp *qp, const struct qp_events *ev, void *arg)
{
	assert(engine_locked());
	qp->notify.events = ev;
	qp->notify.arg = arg;
}

int qp_disconnect(struct stag_qp *qp)
{
	int err = 0;

	lock_acquire(&qp->tx_lock);
	switch ((enum qp_state)atomic_load(&qp->state)) {
	case QP_IDLE:
		err = -ENOTCONN;
		break;
	case QP_RTS:
		if (qp->storage.store) {
			log_info("qp %u: cannot disconnect: it is connected to storage",
				 qp->ibv.qp_num);
			err = -EINVAL;
			break;
		}
		qp_set_state(qp, QP_CLOSING);
		qp->end.tries = 0;
		timer_set(&qp->end.timer, clock_ns() + CLOSE_TIMEOUT_MS * NS_PER_MS, on_linger);
		qp_tx_release(qp);
		qp_tx_finish(qp);
		break;
	case QP_CLOSING:
	case QP_ERROR:
		break;
	}
	lock_release(&qp->tx_lock);
	return err;
}
