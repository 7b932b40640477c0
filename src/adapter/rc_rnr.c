// SPDX-License-Identifier: BSD-2-Clause
/*
 * rc_rnr.c - a receive is missing: the responder drops and asks for it again, the requester waits and repeats.
 *
 * The responder goes on reading: acknowledgements and responses for its own requests come on the same stream.
 */
#include "adapter/rc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"
#include "base/clock.h"
#include "base/log.h"

#define SINK	    65536
#define FOR_EVER    7 /* rnr_retry */
#define NO_DEADLINE UINT64_MAX

uint64_t rc_rnr_ns(uint8_t code)
{
	/* InfiniBand volume 1, table 45, in units of 10 us */
	static const uint32_t units[32] = {65536, 1,	2,    3,     4,	    6,	   8,	  12,
					   16,	  24,	32,   48,    64,    96,	   128,	  192,
					   256,	  384,	512,  768,   1024,  1536,  2048,  3072,
					   4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return units[code & 31] * (uint64_t)10000;
}

/* ---- as responder ---- */

void rc_begin_drop(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;

	assert(qp_rx_locked(qp) && !qp_is_uc(qp));
	rc->dropping = true;
	lock_acquire(&qp->tx_lock);
	rc->words.nak_rnr = true;
	lock_release(&qp->tx_lock);
	qp->rx->kick_tx = true;
	log_debug("qp %u: no receive for request %u, which is dropped", qp->ibv.qp_num,
		  rc->executed + 1);
}

void rc_go(struct stag_qp *qp)
{
	lock_acquire(&qp->tx_lock);
	qp->rc->words.go = true;
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
}

/* Maps a place for payload that nobody wants. Returns false if there is no memory. */
bool rc_drop_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct rc *rc = qp->rc;

	assert(qp_rx_locked(qp));
	if (!rc->sink)
		rc->sink = malloc(SINK);
	if (!rc->sink)
		return false;
	*map = (struct key_map){.n = 1, .len = len < SINK ? len : SINK};
	map->iov[0] = (struct iovec){rc->sink, map->len};
	return true;
}

bool rc_end_resume(struct stag_qp *qp, const uint8_t *payload)
{
	struct rc *rc = qp->rc;

	if (!rc->dropping || qp_is_uc(qp) || qp->rx->h.msn != rc->executed + 1)
		return rc_break(qp);
	rc->dropping = false;
	return true;
}

/* ---- a receive whose message was cut off by the end of the stream: it is the first that is taken next ---- */

void rc_keep_receive(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;
	size_t room = sizeof(struct rwqe) + STAG_MAX_SGE * sizeof(struct ibv_sge);

	assert(qp_rx_locked(qp));
	qp->rx->recv_open = false;
	if (!rc->kept)
		rc->kept = malloc(room);
	if (!rc->kept) {
		log_err("qp %u: no memory to keep a receive", qp->ibv.qp_num);
		return;
	}
	memcpy(rc->kept, qp->rx->recv, room);
	rc->has_kept = true;
}

bool rc_take_kept(struct stag_qp *qp)
{
	struct rc *rc = qp->rc;

	assert(qp_rx_locked(qp));
	if (!rc->has_kept)
		return false;
	rc->has_kept = false;
	memcpy(qp->rx->recv, rc->kept,
	       sizeof(*rc->kept) + rc->kept->num_sge * sizeof(struct ibv_sge));
	return true;
}

/* ---- as requester ---- */

static bool is_send(const struct wqe *w)
{
	return w->opcode != IBV_WR_RDMA_WRITE && !wqe_awaits_response(w);
}

/* Takes everything from the SQ index on back, as if it had not been framed. */
static void rewind_to(struct stag_qp *qp, uint32_t idx)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	for (uint32_t i = idx; i != qp->sq.tx; i++) {
		struct wqe *w = &qp->sq.wqe[i & qp->sq.mask];

		if (wqe_is_local(w))
			continue; /* it stays carried out */
		qp->rc->framed--;
		w->sent = false;
		if (wqe_awaits_response(w)) {
			tx->msn[QN_READ]--;
			tx->orq.put--;
		} else if (is_send(w)) {
			tx->msn[QN_SEND]--;
		}
	}
	if (tx->open == OPEN_SQ) {
		tx_set_open(tx, OPEN_NONE);
		qp->rc->promised = 0; /* the peer drops it */
	}
	tx->off = tx->sge = tx->sge_off = 0;
	tx->imm_due = tx->bad_request = false;
	qp->sq.tx = idx;
	if ((int32_t)(tx->sent_idx - idx) > 0)
		tx->sent_idx = idx;
}

static void on_rnr(struct timer *t);

static void wait_for_go(struct stag_qp *qp, uint32_t number, uint8_t code)
{
	struct rc_rnr *rnr = &qp->rc->rnr;

	assert(qp_tx_locked(qp));
	if (rnr->number != number) {
		rnr->number = number;
		rnr->left = qp->config.attr.rnr_retry;
	}
	qp->rc->hold |= RC_HOLD_RNR;
	rnr->until = NO_DEADLINE;
	if (qp->config.attr.rnr_retry == FOR_EVER)
		return;
	rnr->period = rc_rnr_ns(code);
	rnr->until = clock_ns() + rnr->period;
	timer_set(&rnr->timer, rnr->until, on_rnr);
}

/* The timer may ring late, for a wait that is over. */
static void on_rnr(struct timer *t)
{
	struct rc *rc = container_of(t, struct rc, rnr.timer);
	struct stag_qp *qp = rc->qp;

	qp_lock_both(qp);
	if ((rc->hold & RC_HOLD_RNR) && clock_ns() >= rc->rnr.until) {
		if (--rc->rnr.left == 0) {
			peer_misuse(
				__func__, qp->ibv.qp_num,
				"qp %u: the peer has posted no receive for request %u, after %u "
				"retries",
				qp->ibv.qp_num, rc->rnr.number, qp->config.attr.rnr_retry);
			rc_fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		} else {
			rc->rnr.until += rc->rnr.period;
			timer_set(t, rc->rnr.until, on_rnr);
		}
	}
	qp_unlock_both(qp);
}

/* Returns the status of the request that a NAK is about. */
static enum ibv_wc_status status_of(enum rdmap_nak kind)
{
	switch (kind) {
	case NAK_RNR:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case NAK_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	case NAK_OP:
	case NAK_NONE:
	case NAK_KINDS:
		break;
	}
	return IBV_WC_REM_OP_ERR;
}

static const char *nak_word(enum rdmap_nak kind)
{
	static const char *const words[NAK_KINDS] = {
		[NAK_NONE] = "for no reason",		[NAK_RNR] = "it has posted no receive",
		[NAK_ACCESS] = "a remote access error", [NAK_REQUEST] = "an invalid request",
		[NAK_OP] = "it could not carry it out",
	};

	return words[kind];
}

enum nak_result { NAK_WAITS, NAK_FAILS, NAK_NONSENSE };

static enum nak_result take_nak(struct stag_qp *qp, uint32_t number, uint8_t kind, uint8_t code)
{
	uint32_t idx;
	struct wqe *w;

	assert(qp_tx_locked(qp));
	if (kind == NAK_NONE || kind >= NAK_KINDS)
		return NAK_NONSENSE;
	/* A response may be refused after later requests were acknowledged. */
	if ((int32_t)(number - 1 - qp->rc->acked) > 0 && !rc_acked(qp, number - 1))
		return NAK_NONSENSE;
	w = rc_find(qp, number, &idx);
	if (!w || w->done || (kind == NAK_RNR && (int32_t)(number - qp->rc->acked) <= 0))
		return NAK_NONSENSE;
	if (kind == NAK_RNR && (qp->config.attr.rnr_retry || qp->rc->rnr.number == number)) {
		rewind_to(qp, idx);
		wait_for_go(qp, number, code);
		return NAK_WAITS;
	}
	w->status = (uint8_t)status_of(kind);
	w->done = true;
	return NAK_FAILS;
}

bool rc_end_nak(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	uint8_t kind = (uint8_t)(rx->h.ulp >> 8), code = (uint8_t)rx->h.ulp;
	enum nak_result r;

	lock_acquire(&qp->tx_lock);
	r = take_nak(qp, rx->h.msn, kind, code);
	lock_release(&qp->tx_lock);
	if (r == NAK_WAITS)
		return true;
	if (r == NAK_NONSENSE)
		return rc_break(qp);
	peer_misuse(__func__, qp->ibv.qp_num, "qp %u: the peer refused request %u: %s",
		    qp->ibv.qp_num, rx->h.msn, nak_word(kind));
	rx_end(qp, &(struct rx_end){.kind = END_TERMINATED, .event = RC_NO_EVENT});
	return false;
}

bool rc_end_go(struct stag_qp *qp, const uint8_t *payload)
{
	struct rc *rc = qp->rc;

	lock_acquire(&qp->tx_lock);
	if ((rc->hold & RC_HOLD_RNR) && qp->rx->h.msn == rc->rnr.number) {
		rc->hold &= ~(unsigned)RC_HOLD_RNR;
		rc->words.resume = true;
		qp->rx->kick_tx = true;
	}
	lock_release(&qp->tx_lock);
	return true;
}
