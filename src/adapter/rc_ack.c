// SPDX-License-Identifier: BSD-2-Clause
/*
 * rc_ack.c - the numbers of requests, acknowledgements, and how control messages are framed.
 *
 * A control message may go between the segments of a longer one, but not where the peer was promised a segment
 * (RDMAP_RSV_FULL_NEXT): while one is due, no more is promised.
 *
 * A responder whose thread polls leaves acknowledgements until it has something to say, or nothing to read (may_be_lazy()
 * in qp_rx.c). A program that keeps several requests under way would wait for that with an empty send queue. So the
 * requester asks for an acknowledgement when half of the posted requests are framed: it comes while the other half is
 * under way.
 */
#include "adapter/rc.h"

#include <assert.h>

#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"

/* ---- as requester ---- */

void rc_framed(struct stag_qp *qp, struct wqe *w)
{
	assert(qp_tx_locked(qp));
	w->number = ++qp->rc->framed;
}

bool rc_asks(struct stag_qp *qp, const struct wqe *w)
{
	struct rc *rc = qp->rc;
	uint32_t posted = qp->sq.put - qp->sq.get;

	assert(qp_tx_locked(qp));
	rc->unasked++;
	rc->unasked_bytes += w->length;
	/* One that is alone is acknowledged with the answer, if there is one. */
	if (posted < 2 || 2 * rc->unasked < posted)
		return false;
	if (rc->unasked < RC_ASK_REQUESTS && rc->unasked_bytes < RC_ASK_BYTES)
		return false;
	rc->unasked = 0;
	rc->unasked_bytes = 0;
	return true;
}

/* Requests may complete by their response before they are acknowledged. */
static void catch_up(struct stag_qp *qp)
{
	if ((int32_t)(qp->sq.get - qp->rc->ack_idx) > 0)
		qp->rc->ack_idx = qp->sq.get;
}

bool rc_acked(struct stag_qp *qp, uint32_t upto)
{
	struct rc *rc = qp->rc;

	assert(qp_tx_locked(qp));
	if (upto - rc->acked > rc->framed - rc->acked)
		return false;
	catch_up(qp);
	for (; rc->ack_idx != qp->sq.tx; rc->ack_idx++) {
		struct wqe *w = &qp->sq.wqe[rc->ack_idx & qp->sq.mask];

		if (wqe_is_local(w))
			continue;
		if ((int32_t)(w->number - upto) > 0)
			break;
		if (!w->sent)
			return false;
		if (!wqe_awaits_response(w))
			w->done = true;
	}
	rc->acked = upto;
	sq_retire(qp);
	return true;
}

struct wqe *rc_find(struct stag_qp *qp, uint32_t number, uint32_t *idx)
{
	assert(qp_tx_locked(qp));
	for (uint32_t i = qp->sq.get; i != qp->sq.tx; i++) {
		struct wqe *w = &qp->sq.wqe[i & qp->sq.mask];

		if (wqe_is_local(w) || w->number != number)
			continue;
		*idx = i;
		return w;
	}
	/* A long message may be refused before all of it is framed. */
	if (number != qp->rc->framed + 1 || !qp->tx || qp->tx->open != OPEN_SQ)
		return NULL;
	*idx = qp->sq.tx;
	return &qp->sq.wqe[qp->sq.tx & qp->sq.mask];
}

bool rc_end_ack(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	bool sense;

	lock_acquire(&qp->tx_lock);
	sense = rc_acked(qp, rx->h.msn);
	rx->kick_tx |= qp_tx_pending(qp);
	lock_release(&qp->tx_lock);
	return sense || rc_break(qp);
}

/* ---- framing ---- */

static void frame(struct stag_qp *qp, enum rdmap_subtype kind, uint32_t arg, uint32_t number)
{
	struct ddp_hdr h = tx_untagged(qp->tx, RDMAP_ESCAPE, QN_TERMINATE);
	struct fpdu f = fpdu_begin(qp->tx, &h);

	h.msn = number;
	h.ulp = rdmap_escape_ulp(kind) | arg;
	fpdu_end(qp, &f, &h);
}

static void frame_ack(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	uint32_t executed = atomic_load_explicit(&rc->executed, memory_order_acquire);

	__atomic_store_n(&rc->ack_sent, executed, __ATOMIC_RELAXED);
	frame(qp, RDMAP_SUB_ACK, 0, executed);
}

bool rc_words_are_due(const struct stag_qp *qp)
{
	const struct rc *rc = qp->rc;

	assert(qp_tx_locked(qp));
	return rc_ack_is_due(rc) || rc->words.nak_rnr || (rc->words.go && rc->words.nak_is_out) ||
	       rc->words.resume;
}

bool rc_frame_word(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	struct rc_words *words = &rc->words;

	assert(qp_tx_locked(qp));
	if (rc->promised || !rc_words_are_due(qp))
		return false;
	if (rc_ack_is_due(rc)) {
		frame_ack(qp);
	} else if (words->nak_rnr) {
		words->nak_rnr = false;
		words->nak_is_out = true;
		frame(qp, RDMAP_SUB_NAK, rdmap_nak_arg(NAK_RNR, qp->config.attr.min_rnr_timer),
		      rc->executed + 1);
	} else if (words->resume) {
		words->resume = false;
		frame(qp, RDMAP_SUB_RESUME, 0, rc->framed + 1);
	} else {
		words->go = words->nak_is_out = false;
		frame(qp, RDMAP_SUB_GO, 0, rc->executed + 1);
	}
	return true;
}

void rc_frame_last_words(struct stag_qp *qp)
{
	const struct rc_words *words = &qp->rc->words;

	assert(qp_tx_locked(qp));
	if (rc_ack_is_due(qp->rc) && !qp->rc->promised)
		frame_ack(qp);
	if (words->nak != NAK_NONE)
		frame(qp, RDMAP_SUB_NAK, rdmap_nak_arg(words->nak, 0), words->nak_number);
}

void rc_flush_acks_at_exit(struct stag_qp *qp)
{
	/* A forked child must not write to its parent's sockets. */
	if (qp->progress.watch.forks != engine_age())
		return;
	if (!rc_ack_is_due(qp->rc) || !lock_try(&qp->tx_lock))
		return;
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
}

void rc_flush_acks(struct stag_qp *qp)
{
	/* Pairs with may_be_lazy(): it sees that the claim is gone, or this sees what it has left. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!rc_ack_is_due(qp->rc))
		return;
	lock_acquire(&qp->tx_lock);
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
}
