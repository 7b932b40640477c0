// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_tx.c - the sending side of a queue pair: work requests, and responses to the peer's
 * requests, become FPDUs, and FPDUs become bytes of the stream.
 *
 * FPDUs are gathered into a batch: headers, CRCs and short payloads lie in a buffer of the
 * batch, long payloads stay in the program's memory. One call sends a batch. If the stream
 * takes only a part, the batch waits, and holds no reference to a key meanwhile: the references
 * are taken again before the rest is sent, so that a region can be deregistered at any time.
 */
#include "adapter/qp_tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/claim.h"
#include "adapter/mirror.h"
#include "adapter/rc.h"
#include "adapter/stream.h"
#include "base/crc32c.h"
#include "base/log.h"

int qp_tx_init(struct stag_qp *qp)
{
	struct qp_tx *tx = calloc(1, sizeof(*tx));
	unsigned mulpdu;

	assert(qp_tx_locked(qp));
	if (!tx)
		return -ENOMEM;
	/* A read that opens the stream does not count towards the IRD. */
	tx->irq.size = qp->link.ird + (qp->link.p2p && !qp->link.initiator);
	while (tx->irq.mask + 1 < tx->irq.size)
		tx->irq.mask = tx->irq.mask * 2 + 1;
	tx->irq.at = calloc(tx->irq.mask + 1, sizeof(*tx->irq.at));
	if (!tx->irq.at)
		goto err_free;
	if (qp->link.markers_tx) {
		tx->marked = malloc(2 * (size_t)FPDU_MAX_LEN + FPDU_MAX_LEN / 64);
		if (!tx->marked)
			goto err_free;
	}
	mulpdu = mpa_mulpdu(qp->stream->ops->emss(qp->stream), qp->link.markers_tx);
	tx->mulpdu = qp->link.caps & MPA_EXT_BIG_FPDU ? MPA_MAX_ULPDU : mulpdu;
	for (int i = 0; i < QN_COUNT; i++)
		tx->msn[i] = 1;
	tx->sent_idx = qp->sq.tx;
	tx->rtr_due = qp->link.initiator && qp->link.p2p;
	tx->held = qp->link.wait_first || qp->link.hold_until;
	qp->tx = tx;
	return 0;

err_free:
	free(tx->irq.at);
	free(tx);
	return -ENOMEM;
}

void qp_tx_free(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (!tx)
		return;
	tx_refs_put(tx);
	tx_buffers_put(qp);
	tx_responses_drop(qp);
	tx_forwards_free(qp);
	free(tx->irq.at);
	free(tx->bounce);
	free(tx->marked);
	free(tx);
	qp->tx = NULL;
}

unsigned qp_tx_mulpdu(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	return qp->tx ? qp->tx->mulpdu : 0;
}

/* ---- what comes next ---- */

static void frame_rtr(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = {.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = RTR_STAG};
	struct fpdu f;

	if (qp->link.rtr == MPA_RTR_READ) {
		struct rdmap_read_req r = {.src_stag = RTR_STAG, .sink_stag = RTR_STAG};

		h = tx_untagged(tx, RDMAP_READ_REQ, QN_READ);
		f = fpdu_begin(tx, &h);
		rdmap_put_read_req(fpdu_own_payload(tx, &f, RDMAP_READ_REQ_LEN), &r);
		tx->msn[QN_READ]++;
		qp->rtr_read_pending = true; /* its response completes no request */
	} else {
		f = fpdu_begin(tx, &h);
	}
	fpdu_end(qp, &f, &h);
	tx->rtr_due = false;
}

/* Carries out local requests (bind, invalidate, fast registration) once all before them is sent. */
static bool run_local(struct stag_qp *qp)
{
	struct wqe *w;

	while (qp->sq.tx != qp->sq.put) {
		w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];
		if (!wqe_is_local(w))
			return true;
		if (qp->tx->n || !tx_request_may_go(qp, w))
			return false;
		if (!w->done) /* it is carried out once, also if requests before it are repeated */
			sq_complete_local(qp, w);
		w->tx_end = qp->tx->queued;
		qp->sq.tx++;
		if (w->status != IBV_WC_SUCCESS) {
			qp->tx->dead = true;
			qp_fail_later(qp);
			return false;
		}
	}
	return true;
}

static bool request_ready(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (qp->rc && qp->rc->hold)
		return false;
	if (tx->fin_sent || !run_local(qp) || qp->sq.tx == qp->sq.put)
		return false;
	return tx_request_may_go(qp, &qp->sq.wqe[qp->sq.tx & qp->sq.mask]);
}

/* Appends one FPDU to the batch. Returns false if nothing more can go into it. */
static bool frame_next(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	bool response, request, forward;

	if (tx->rtr_due) {
		frame_rtr(qp);
		return true;
	}
	if (qp->rc && rc_frame_word(qp))
		return true;
	if (tx->open == OPEN_RESPONSE)
		return tx_response_may_go(qp) && tx_frame_response(qp);
	if (tx->open == OPEN_SQ)
		return tx_frame_request(qp);
	if (tx->open == OPEN_FORWARD)
		return tx_frame_forward(qp);
	response = tx->irq.put != tx->irq.get && tx_response_may_go(qp);
	request = request_ready(qp);
	forward = tx_forward_may_go(qp);
	if (response && (request || forward))
		tx->response_next = !tx->response_next;
	else
		tx->response_next = response;
	if (response && tx->response_next)
		return tx_frame_response(qp);
	if (tx->dead)
		return false;
	if (forward && (!request || tx_forward_is_first(qp)))
		return tx_frame_forward(qp);
	return request && tx_frame_request(qp);
}

static bool batch_has_room(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;

	if (qp->link.markers_tx)
		return tx->n == 0;
	return tx->n + TX_FPDU_IOV + 4 <= TX_IOV && tx->n_ref + 2 * TX_FPDU_IOV <= TX_IOV &&
	       tx->n_buffers + TX_STORED <= TX_IOV && tx->buf_used + TX_FPDU_BUF <= TX_BUF &&
	       tx->bytes < (qp->link.crc ? TX_BATCH_CRC : TX_BATCH);
}

/* RFC 5044 §4.3: copies the FPDU, then inserts its markers, which the CRC covers. */
static void add_markers(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	uint8_t *raw = tx->marked + FPDU_MAX_LEN;
	size_t len = 0, raw_len;

	for (int i = 0; i < tx->n; i++) {
		memcpy(tx->marked + len, tx->iov[i].iov_base, tx->iov[i].iov_len);
		len += tx->iov[i].iov_len;
	}
	raw_len = markers_insert(tx->queued, tx->marked, len, raw);
	if (qp->link.crc)
		crc32c_put(raw + raw_len - MPA_CRC_LEN,
			   crc32c_update(CRC32C_INIT, raw, raw_len - MPA_CRC_LEN));
	tx_refs_put(tx);
	tx->n_ref = 0;
	tx->iov[0] = (struct iovec){raw, raw_len};
	tx->n = 1;
	tx->bytes = (uint32_t)raw_len;
}

static bool build_batch(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	tx->n = tx->cur = 0;
	tx->n_ref = 0;
	if (tx->n_buffers)
		tx_buffers_put(qp);
	tx->buf_used = tx->bytes = tx->bounce_used = 0;
	tx->refs_held = true;
	tx->bad_request = false;
	while (batch_has_room(qp) && frame_next(qp))
		;
	if (tx->n && qp->link.markers_tx) {
		uint32_t plain = tx->bytes, last = qp->sq.tx - 1;

		add_markers(qp);
		if (qp->sq.wqe[last & qp->sq.mask].tx_end == tx->queued + plain)
			qp->sq.wqe[last & qp->sq.mask].tx_end = tx->queued + tx->bytes;
	}
	tx->queued += tx->bytes;
	return tx->n > 0;
}

/* ---- sending ---- */

static void advance_batch(struct qp_tx *tx, size_t n)
{
	tx->sent += n;
	while (n) {
		struct iovec *v = &tx->iov[tx->cur];

		if (n < v->iov_len) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			return;
		}
		n -= v->iov_len;
		tx->cur++;
	}
}

static void set_blocked(struct stag_qp *qp, bool blocked)
{
	if (atomic_load_explicit(&qp->progress.tx_blocked, memory_order_relaxed) == blocked)
		return;
	atomic_store(&qp->progress.tx_blocked, blocked);
	qp_arm(qp);
}

/* Reliable connections of roce0 complete by acknowledgement. */
static bool completes_when_sent(const struct stag_qp *qp)
{
	return !qp->rc || qp_is_uc(qp);
}

static void mark_sent(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	bool done = completes_when_sent(qp);

	for (; tx->sent_idx != qp->sq.tx; tx->sent_idx++) {
		struct wqe *w = &qp->sq.wqe[tx->sent_idx & qp->sq.mask];

		if (w->tx_end > tx->sent)
			break;
		w->sent = true;
		if (done && !wqe_awaits_response(w))
			w->done = true;
	}
}

/* Fails a request whose memory is invalid, and the queue pair with it. */
static void fail_request(struct stag_qp *qp)
{
	struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];

	w->status = IBV_WC_LOC_PROT_ERR;
	w->done = true;
	qp->sq.tx++;
	qp->tx->dead = true;
	qp_fail_later(qp);
}

/*
 * On reliable connections of roce0, requests that were sent before it complete first. One that is partly sent holds
 * them up: it fails at once.
 */
static bool may_fail_request(const struct stag_qp *qp)
{
	return completes_when_sent(qp) || qp->sq.get == qp->sq.tx || qp->tx->open == OPEN_SQ;
}

static void lose_stream(struct stag_qp *qp)
{
	qp->tx->dead = true;
	qp_fail_later(qp);
}

/* Takes the references of a batch again that had to wait. */
static bool retake_references(struct stag_qp *qp)
{
	switch (tx_refs_get_again(qp->tx)) {
	case KEY_OK:
		return true;
	case KEY_BUSY:
		set_blocked(qp, true); /* continues when the stream is next checked */
		return false;
	default:
		log_info("qp %u: memory was deregistered, or its lease expired, while it was being "
			 "sent",
			 qp->ibv.qp_num);
		lose_stream(qp);
		return false;
	}
}

/* Returns false if nothing more can be sent now. */
static bool send_rest(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	ssize_t n;

	if (!tx->refs_held && !retake_references(qp))
		return false;
	n = qp->stream->ops->send(qp->stream, tx->iov + tx->cur, tx->n - tx->cur);
	tx_refs_put(tx);
	if (n < 0 && n != -EAGAIN) {
		log_info("qp %u: the connection failed while sending: %s", qp->ibv.qp_num,
			 strerror((int)-n));
		/*
		 * Bytes that the peer sent before may still be read; their end ends the queue
		 * pair.
		 */
		tx->dead = true;
		if (n == -ETIMEDOUT)
			atomic_store(&qp->end.timed_out, true);
		if (n == -EFAULT)
			lose_stream(qp);
		return false;
	}
	if (n > 0)
		advance_batch(tx, (size_t)n);
	set_blocked(qp, tx->cur < tx->n);
	mark_sent(qp);
	sq_retire(qp);
	return tx->cur == tx->n;
}

static bool send_batch(struct stag_qp *qp)
{
	bool all;

	atomic_store(&qp->progress.tx_sending, true);
	all = send_rest(qp);
	atomic_store_explicit(&qp->progress.tx_sending, false, memory_order_release);
	return all;
}

static void maybe_fin(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (!tx->closing || tx->fin_sent || tx->cur < tx->n || qp->sq.get != qp->sq.put ||
	    tx->irq.get != tx->irq.put || tx_forwards_wait(qp))
		return;
	tx->fin_sent = true;
	qp->stream->ops->shutdown(qp->stream);
}

void qp_tx_run(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (!tx || tx->dead || tx->held || atomic_load(&qp->state) == QP_ERROR)
		return;
	for (int i = 0;; i++) {
		if (tx->cur == tx->n && !build_batch(qp))
			break;
		if (i == TX_RUN) {
			tx_refs_put(tx);
			set_blocked(qp, true); /* continues when the stream is next checked */
			break;
		}
		if (!send_batch(qp))
			break;
	}
	sq_retire(qp);
	if (tx->dead)
		return;
	if (tx->cur == tx->n)
		set_blocked(qp, false);
	if (tx->cur == tx->n && tx->response_fault.set) {
		lose_stream(qp);
		return;
	}
	if (tx->cur == tx->n && tx->bad_request) {
		if (may_fail_request(qp))
			fail_request(qp);
		return;
	}
	maybe_fin(qp);
}

void qp_tx_release(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (!qp->tx || !qp->tx->held)
		return;
	qp->tx->held = false;
	qp_tx_run(qp);
}

void qp_tx_finish(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	qp->tx->closing = true;
	qp_tx_run(qp);
	maybe_fin(qp);
}

static void frame_terminate(struct stag_qp *qp, const struct terminate *t)
{
	uint8_t payload[TERMINATE_MAX];
	size_t len = terminate_encode(t, payload);
	struct ddp_hdr h = tx_untagged(qp->tx, RDMAP_TERMINATE, QN_TERMINATE);
	struct fpdu f = fpdu_begin(qp->tx, &h);

	memcpy(fpdu_own_payload(qp->tx, &f, len), payload, len);
	fpdu_end(qp, &f, &h);
}

/*
 * RFC 5040 §4.8: the last message of a stream. It must not go into the middle of an FPDU: if
 * the stream has taken only a part of one, no Terminate is sent. On roce0 the last message is another (rc_ack.c).
 */
void qp_tx_terminate(struct stag_qp *qp, const struct terminate *t)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (tx->fin_sent || (qp->rc && qp->rc->lost))
		return;
	if (tx->cur < tx->n && !send_batch(qp)) {
		if (qp->rc)
			qp->rc->farewell = true; /* when there is room */
		return;
	}
	if (qp->rc)
		qp->rc->farewell = false;
	tx->dead = true;
	tx->n = tx->cur = 0;
	tx->n_ref = 0;
	tx->buf_used = tx->bytes = 0;
	if (qp->rc)
		rc_frame_last_words(qp);
	else
		frame_terminate(qp, t);
	if (qp->link.markers_tx)
		add_markers(qp);
	if (tx->n && qp->stream->ops->send(qp->stream, tx->iov, tx->n) == (ssize_t)tx->bytes)
		qp->stats.counters.terminates_sent += !qp->rc;
	tx->n = tx->cur = 0;
}

/* ---- for the receive side ---- */

struct wqe *qp_tx_oldest_read(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (tx->orq.get == tx->orq.put)
		return NULL;
	return tx->orq.at[tx->orq.get % STAG_MAX_RD_ATOM];
}

struct wqe *qp_tx_read_by_msn(struct stag_qp *qp, uint32_t msn)
{
	struct qp_tx *tx = qp->tx;
	uint32_t back = tx->msn[QN_READ] - msn; /* 1: the last one that was sent */

	assert(qp_tx_locked(qp));
	if (back == 0 || back > tx->orq.put - tx->orq.get)
		return NULL;
	return tx->orq.at[(tx->orq.put - back) % STAG_MAX_RD_ATOM];
}

struct wqe *qp_tx_read_came(struct stag_qp *qp)
{
	struct wqe *w = qp_tx_oldest_read(qp);

	assert(qp_tx_locked(qp));
	qp->tx->orq.get++;
	if (tx_is_ask(qp, w))
		tx_forwards_answered(qp);
	return w;
}

void qp_tx_read_done(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	qp_tx_read_came(qp)->done = true;
	sq_retire(qp);
}

bool qp_tx_broken(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	return qp->tx && qp->tx->dead && !qp->tx->fin_sent;
}

bool qp_tx_pending(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (qp->rc && tx && !tx->dead && rc_words_are_due(qp))
		return true;
	return tx && !tx->dead &&
	       (tx->cur < tx->n || tx->irq.put != tx->irq.get || qp->sq.tx != qp->sq.put ||
		tx->rtr_due || tx_forward_may_go(qp));
}

/*
 * Encodes the read request that is being answered, without the part that was answered (RFC 5040
 * §4.8).
 */
static size_t rest_of_request(const struct qp_tx *tx, uint8_t *seg)
{
	const struct response *r = &tx->irq.at[tx->irq.get & tx->irq.mask];
	/* requests come in order of their MSN */
	struct ddp_hdr h = {
		.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = tx->irq.get + 1};
	struct rdmap_read_req rest = r->read;
	size_t len;

	rest.sink_to += r->off;
	rest.src_to += r->off;
	rest.size -= r->off;
	len = ddp_encode(&h, seg);
	rdmap_put_read_req(seg + len, &rest);
	return len + RDMAP_READ_REQ_LEN;
}

struct terminate qp_tx_reason(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;
	uint8_t seg[DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN];
	struct terminate t;
	size_t len = 0;

	assert(qp_tx_locked(qp));
	if (tx && tx->response_fault.set && tx->irq.put != tx->irq.get &&
	    !tx->irq.at[tx->irq.get & tx->irq.mask].is_atomic)
		len = rest_of_request(tx, seg);
	terminate_init(&t, tx && tx->response_fault.set ? tx->response_fault : FAULT_RDMAP_LOCAL,
		       len ? seg : NULL, len, len);
	return t;
}
