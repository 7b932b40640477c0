// SPDX-License-Identifier: BSD-2-Clause
/*
 * rc_fault.c - requests of the peer that are refused: which NAK, and which asynchronous event.
 *
 * A false claim about the protocol itself is no request that could be refused: it ends the stream.
 */
#include "adapter/rc.h"

#include <assert.h>

#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"

bool rc_break(struct stag_qp *qp)
{
	const struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	peer_misuse(
		__func__, qp->ibv.qp_num,
		"qp %u: the peer's message (opcode %u, msn %u, word 0x%08x) makes no sense; the "
		"stream ends",
		qp->ibv.qp_num, rx->h.opcode, rx->h.msn, rx->h.ulp);
	rx_end(qp, &(struct rx_end){.kind = END_CLOSED});
	return false;
}

bool rc_refuse(struct stag_qp *qp, enum rdmap_nak nak, enum ibv_event_type event)
{
	assert(qp_rx_locked(qp));
	if (qp_is_uc(qp)) /* only an error of our own gets here */
		nak = NAK_NONE;
	lock_acquire(&qp->tx_lock);
	qp->rc->words.nak = nak;
	qp->rc->words.nak_number = qp->rc->executed + 1;
	lock_release(&qp->tx_lock);
	rx_end(qp, &(struct rx_end){.kind = END_FAULT, .event = event});
	return false;
}

static bool is_one_of(struct wire_fault f, const struct wire_fault *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (f.layer == list[i].layer && f.etype == list[i].etype && f.code == list[i].code)
			return true;
	return false;
}

#define IS_ONE_OF(f, ...)                                                                          \
	is_one_of(f, (const struct wire_fault[]){__VA_ARGS__},                                     \
		  sizeof((const struct wire_fault[]){__VA_ARGS__}) / sizeof(struct wire_fault))

/* Is the message that is refused a request of the peer? */
static bool is_request(const struct qp_rx *rx)
{
	return rx->h.opcode != RDMAP_READ_RESP && rx->h.opcode != RDMAP_ATOMIC_RESP;
}

static bool is_about_access(struct wire_fault f)
{
	return IS_ONE_OF(f, FAULT_RDMAP_INVALID_STAG, FAULT_RDMAP_BASE_BOUNDS, FAULT_RDMAP_ACCESS,
			 FAULT_RDMAP_STAG_STREAM, FAULT_RDMAP_TO_WRAP, FAULT_RDMAP_PROT_CANT_INV,
			 FAULT_RDMAP_OP_CANT_INV, FAULT_DDP_INVALID_STAG, FAULT_DDP_BASE_BOUNDS,
			 FAULT_DDP_STAG_STREAM, FAULT_DDP_TO_WRAP);
}

bool rc_refuse_fault(struct stag_qp *qp, struct wire_fault f)
{
	assert(qp_rx_locked(qp));
	if (!is_request(qp->rx) || qp_is_uc(qp))
		return rc_break(qp);
	if (is_about_access(f))
		return rc_refuse(qp, NAK_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	if (IS_ONE_OF(f, FAULT_DDP_TOO_LONG)) /* the receive's completion tells the program */
		return rc_refuse(qp, NAK_REQUEST, RC_NO_EVENT);
	/* An atomic that is not aligned; a read too many */
	if (IS_ONE_OF(f, FAULT_RDMAP_STREAM, FAULT_DDP_NO_BUFFER))
		return rc_refuse(qp, NAK_REQUEST, IBV_EVENT_QP_REQ_ERR);
	if (IS_ONE_OF(f, FAULT_DDP_LOCAL))
		return rc_refuse(qp, NAK_OP, RC_NO_EVENT);
	return rc_break(qp);
}

bool rc_may(struct stag_qp *qp, int access, const char *what)
{
	assert(qp_rx_locked(qp));
	if (qp->config.attr.qp_access_flags & (unsigned)access)
		return true;
	if (qp_is_uc(qp))
		return uc_drop(qp, "qp_access_flags do not allow it");
	peer_misuse(what, qp->ibv.qp_num,
		    "qp %u: the peer's %s is refused: qp_access_flags are %#x, without %#x",
		    qp->ibv.qp_num, what, qp->config.attr.qp_access_flags, access);
	return rc_refuse(qp, NAK_REQUEST, IBV_EVENT_QP_REQ_ERR);
}

enum ibv_event_type rc_own_fault(struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;
	struct rc_words *words = &qp->rc->words;

	assert(qp_rx_locked(qp) && qp_tx_locked(qp));
	if (!tx || !tx->response_fault.set || tx->irq.put == tx->irq.get)
		return RC_NO_EVENT;
	words->nak = is_about_access(tx->response_fault) ? NAK_ACCESS : NAK_OP;
	words->nak_number = tx->irq.at[tx->irq.get & tx->irq.mask].number;
	return words->nak == NAK_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : RC_NO_EVENT;
}
