// SPDX-License-Identifier: BSD-2-Clause
/*
 * uc.c - what unreliable connections (UC) of roce0 do otherwise than reliable ones.
 *
 * A request completes when the stream has taken it, and is not acknowledged. The responder drops a message that it cannot
 * carry out, without a word and without consuming a receive; the next message is carried out again. A stream that is lost takes
 * the messages on it along; the queue pairs stay in RTS.
 */
#include "adapter/rc.h"

#include <assert.h>

#include "adapter/qp.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"
#include "base/log.h"

/* ---- as responder ---- */

bool uc_drop(struct stag_qp *qp, const char *why)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp) && qp_is_uc(qp));
	if (rx->pre_placed) /* some of it is in its place already */
		return rc_break(qp);
	log_debug("qp %u: a message of the peer is dropped: %s", qp->ibv.qp_num, why);
	if (rx->recv_open)
		rc_keep_receive(qp);
	qp->rc->dropping = rx->dropped = true;
	return true;
}

void uc_dropped(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp) && qp_is_uc(qp));
	if (!rx->h.last)
		return;
	if (rx->h.opcode != RDMAP_WRITE) {
		rx->msn[QN_SEND]++;
	} else {
		rx->write_begun = false;
		if (rx->h.rsv & RDMAP_RSV_IMM) /* the immediate belongs to the message */
			return;
	}
	qp->rc->dropping = false;
}

bool uc_has(uint8_t opcode)
{
	switch (opcode) {
	case RDMAP_WRITE:
	case RDMAP_SEND:
	case RDMAP_SEND_SE:
	case RDMAP_SEND_IMM:
	case RDMAP_IMM:
	case RDMAP_IMM_SE:
		return true;
	default:
		return false;
	}
}

/* ---- as requester ---- */

/* Completes the requests before SQ index end, of which not all have been sent. */
static void give_up(struct stag_qp *qp, uint32_t end)
{
	struct sq *sq = &qp->sq;

	assert(qp_tx_locked(qp));
	for (uint32_t i = sq->get; i != end; i++) {
		struct wqe *w = &sq->wqe[i & sq->mask];

		if (wqe_is_local(w) && !w->done)
			sq_complete_local(qp, w);
		w->done = true;
		if (w->status != IBV_WC_SUCCESS) {
			end = i + 1;
			qp->rc->hold |= RC_HOLD_LOST;
			qp_fail_later(qp);
			break;
		}
	}
	if ((int32_t)(end - sq->tx) > 0)
		sq->tx = end;
	sq_retire(qp);
}

void uc_stream_lost(struct stag_qp *qp)
{
	give_up(qp, qp->sq.tx);
}

void uc_lose_patience(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (atomic_load(&qp->state) == QP_RTS) {
		log_info("qp %u: the peer takes nothing; what is under way to it is dropped",
			 qp->ibv.qp_num);
		rc_lose(qp);
		return;
	}
	log_debug("qp %u: queue pair %u cannot be reached; %u messages are dropped", qp->ibv.qp_num,
		  qp->config.attr.dest_qp_num, qp->sq.put - qp->sq.get);
	give_up(qp, qp->sq.put);
}
