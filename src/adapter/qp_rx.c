// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_rx.c - the receiving side of a queue pair: bytes from the stream become placed data,
 * completions, and requests to answer.
 *
 * A state machine over one FPDU: header, payload, trailer; each step resumes where the last
 * read ended. Bytes are read into a small stage. The payload of a large FPDU is read straight
 * into its destination, with the trailer and the next header into the stage behind it, and so
 * are following segments that the peer announced (RDMAP_RSV_FULL_NEXT).
 *
 * With CRC, nothing is placed before it is certain where it belongs: a small FPDU is staged, and
 * its CRC checked, before a byte of it is placed; a large one is read into its place if its
 * header has a sum, which is checked first; otherwise it is staged, too.
 *
 * Every number here is a peer's claim until it is checked. A false claim ends the stream with
 * the Terminate that the RFCs define for it.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>

#include "adapter/claim.h"
#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/rc.h"
#include "adapter/store.h"
#include "adapter/stream.h"
#include "adapter/ud.h"
#include "base/crc32c.h"
#include "base/log.h"

int qp_rx_init(struct stag_qp *qp)
{
	struct qp_rx *rx = calloc(1, sizeof(*rx));

	assert(qp_rx_locked(qp));
	if (!rx)
		return -ENOMEM;
	rx->stage_size = qp->link.markers_rx ? FPDU_MAX_LEN : STAGE;
	rx->stage = malloc(rx->stage_size);
	rx->recv = calloc(1, sizeof(struct rwqe) + STAG_MAX_SGE * sizeof(struct ibv_sge));
	if (qp->link.markers_rx)
		rx->marked = malloc(MARKED);
	if (!rx->stage || !rx->recv || (qp->link.markers_rx && !rx->marked))
		goto err_free;
	for (int i = 0; i < QN_COUNT; i++)
		rx->msn[i] = 1;
	list_init(&rx->held);
	if (qp->link.ahead_len) {
		if (qp->link.ahead_len > (rx->marked ? MARKED : rx->stage_size))
			goto err_free;
		memcpy(rx->marked ? rx->marked : rx->stage, qp->link.ahead, qp->link.ahead_len);
		if (rx->marked)
			rx->marked_len = (uint32_t)qp->link.ahead_len;
		else
			rx->tail = (uint32_t)qp->link.ahead_len;
	}
	qp->rx = rx;
	return 0;

err_free:
	free(rx->stage);
	free(rx->recv);
	free(rx->marked);
	free(rx);
	return -ENOMEM;
}

void qp_rx_free(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	if (!rx)
		return;
	assert(!rx->here.slot[0]);
	rx_store_stop(qp);
	rx_drop_held(qp, false);
	free(rx->stage);
	free(rx->recv);
	free(rx->marked);
	free(rx);
	qp->rx = NULL;
}

static void note_first(struct stag_qp *qp)
{
	qp->rx->first_seen = true;
	lock_acquire(&qp->tx_lock);
	qp_tx_release(qp); /* a peer that sends can also receive */
	lock_release(&qp->tx_lock);
	if (!qp->link.initiator)
		qp_tell_established(qp);
}

static enum outcome crc_failed(struct stag_qp *qp)
{
	qp->stats.counters.crc_errors++;
	qp->rx->seg_hdr_len = 0;
	rx_stop_with(qp, FAULT_MPA_CRC);
	return STOP;
}

static void remember_header(struct qp_rx *rx, const uint8_t *ulpdu, size_t hdr_len)
{
	size_t len = hdr_len + (rx_is_control(ulpdu[1] & 0x0f) ? rx->ulpdu_len - hdr_len : 0);

	if (len > sizeof(rx->seg_hdr))
		len = sizeof(rx->seg_hdr);
	if (len > rx_staged(rx) - MPA_LEN_FIELD) /* an impossible length: keep what was received */
		len = rx_staged(rx) - MPA_LEN_FIELD;
	memcpy(rx->seg_hdr, ulpdu, len);
	rx->seg_hdr_len = (uint32_t)len;
}

/* Has the header at p a sum? */
static bool is_summed(const struct stag_qp *qp, const uint8_t *p)
{
	return qp_sums(qp) && (p[MPA_LEN_FIELD] & DDP_SUM) &&
	       !rx_is_control(p[MPA_LEN_FIELD + 1] & 0x0f);
}

/* Returns how many bytes must be staged before the header can be handled. */
static size_t bytes_needed(const struct stag_qp *qp, const uint8_t *p, size_t ulpdu_len,
			   size_t hdr_len)
{
	size_t total = fpdu_len(ulpdu_len);

	if (qp->rx->pre_placed)
		return MPA_LEN_FIELD + hdr_len; /* the payload is placed: check its header */
	if (rx_is_control(p[MPA_LEN_FIELD + 1] & 0x0f) && total <= STAGE)
		return total;
	if (qp->link.crc && !qp->rx->verified && (total <= FPDU_UNSUMMED || !qp_sums(qp)))
		return total;
	return MPA_LEN_FIELD + hdr_len;
}

/* Makes room for a whole FPDU of any length. */
static enum outcome stage_more(struct stag_qp *qp, size_t needed)
{
	struct qp_rx *rx = qp->rx;
	uint8_t *more;

	if (needed <= rx->stage_size)
		return MORE;
	more = realloc(rx->stage, STAGE_LONG);
	if (!more) {
		log_err("qp %u: no memory for a frame of %zu bytes", qp->ibv.qp_num, needed);
		rx_stop_with(qp, FAULT_MPA_LOCAL);
		return STOP;
	}
	rx->stage = more;
	rx->stage_size = STAGE_LONG;
	return MORE;
}

/*
 * Checks what is there of an FPDU at p: all of it, or its header. Returns false if that is wrong,
 * or cannot be checked.
 */
static bool check_crc(struct stag_qp *qp, const uint8_t *p, size_t hdr_len)
{
	struct qp_rx *rx = qp->rx;
	size_t total = fpdu_len(rx->ulpdu_len), head = MPA_LEN_FIELD + hdr_len;

	if (rx_staged(rx) >= total && !rx->pre_placed) {
		rx->verified = true;
		return crc32c_matches(p + total - MPA_CRC_LEN,
				      crc32c_update(CRC32C_INIT, p, total - MPA_CRC_LEN));
	}
	if (!is_summed(qp, p))
		return false;
	head -= DDP_SUM_LEN;
	rx->crc = crc32c_update(CRC32C_INIT, p, head);
	if (!crc32c_matches(p + head, rx->crc))
		return false;
	rx->crc = crc32c_update(rx->crc, p + head, DDP_SUM_LEN);
	return true;
}

/* The only writer of rx->step: header, payload, trailer, and the next header. */
static void next_step(struct qp_rx *rx)
{
	rx->step = rx->step == RX_TRAILER ? RX_HEADER : rx->step + 1;
}

/* The message that ends a stream may come in place of an announced segment. */
static bool is_last_word(const struct stag_qp *qp, uint8_t opcode)
{
	return opcode == RDMAP_TERMINATE || (qp->rc && opcode == RDMAP_ESCAPE);
}

static enum outcome step_header(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	const uint8_t *p = rx->stage + rx->head;
	size_t ddp_len, hdr_len, needed;
	struct wire_fault f;

	if (rx_staged(rx) < MPA_LEN_FIELD + 2)
		return MORE;
	if (rx->pre_placed && is_last_word(qp, p[MPA_LEN_FIELD + 1] & 0x0f))
		rx_take_back(qp);
	rx->ulpdu_len = get_be16(p);
	ddp_len = ddp_hdr_len(p[MPA_LEN_FIELD]);
	hdr_len = ddp_len + (is_summed(qp, p) ? DDP_SUM_LEN : 0);
	rx->seg_hdr_len = 0;
	rx->seg_len = 0;
	if (rx->ulpdu_len < hdr_len) {
		log_info("qp %u: an FPDU of %u bytes cannot hold a header", qp->ibv.qp_num,
			 rx->ulpdu_len);
		rx_stop_with(qp, FAULT_MPA_MARKER);
		return STOP;
	}
	needed = bytes_needed(qp, p, rx->ulpdu_len, hdr_len);
	if (rx_staged(rx) < needed)
		return stage_more(qp, needed);
	if (qp->link.crc && !rx->verified && !check_crc(qp, p, hdr_len))
		return crc_failed(qp);
	remember_header(rx, p + MPA_LEN_FIELD, ddp_len);
	f = ddp_decode(p + MPA_LEN_FIELD, &rx->h);
	rx->seg_len = (uint32_t)(rx->ulpdu_len - hdr_len);
	rx->seg_done = 0;
	if (!f.set)
		f = rdmap_shot_from_wire(&rx->h, qp->link.one_shot);
	if (!f.set)
		f = rdmap_check(&rx->h, rx->seg_len, qp->link.caps);
	if (f.set) {
		rx_stop_with(qp, f);
		return STOP;
	}
	if (!rx_begin_segment(qp))
		return STOP;
	if (rx->waits && !rx->pre_placed)
		return WAIT; /* the header is handled again from here */
	if (rx->pre_placed && !rx_keep_promise(qp))
		return STOP;
	rx->head += (uint32_t)(MPA_LEN_FIELD + hdr_len);
	next_step(rx);
	return GO_ON;
}

static enum outcome step_payload(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint32_t n;

	if (rx_is_control(rx->h.opcode)) { /* all of it is staged; it is read at the end */
		next_step(rx);
		return GO_ON;
	}
	if (!rx_may_place(qp, &n))
		return crc_failed(qp);
	if (n) {
		if (qp->link.crc && !rx->verified)
			rx->crc = crc32c_update(rx->crc, rx->stage + rx->head, n);
		if (!rx_place(qp, rx->stage + rx->head, n))
			return STOP;
		rx->head += n;
	}
	if (rx->seg_done < rx->seg_len)
		return MORE;
	next_step(rx);
	return GO_ON;
}

static enum outcome step_trailer(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	unsigned pad = fpdu_pad(rx->ulpdu_len);
	uint32_t body = rx_is_control(rx->h.opcode) ? rx->seg_len : 0;
	const uint8_t *p = rx->stage + rx->head;

	if (rx_staged(rx) < body + pad + MPA_CRC_LEN)
		return MORE;
	if (qp->link.crc && !rx->verified &&
	    !crc32c_matches(p + body + pad, crc32c_update(rx->crc, p, body + pad)))
		return crc_failed(qp);
	rx->head += body + pad + MPA_CRC_LEN;
	next_step(rx);
	rx->verified = rx->marked != NULL;
	if (!rx->first_seen)
		note_first(qp);
	if (!rx_end_segment(qp, p))
		return STOP;
	return rx->mirroring.rest.region ? WAIT : GO_ON;
}

/* Handles the staged bytes. */
static enum outcome handle_staged(struct stag_qp *qp)
{
	enum outcome o = qp->rx->mirroring.rest.region ? rx_mirror_rest(qp) : GO_ON;

	while (o == GO_ON) {
		switch (qp->rx->step) {
		case RX_HEADER:
			o = step_header(qp);
			break;
		case RX_PAYLOAD:
			o = step_payload(qp);
			break;
		case RX_TRAILER:
			o = step_trailer(qp);
			break;
		}
	}
	return o;
}

/*
 * Moves one whole FPDU from the raw bytes into the stage, without its markers. Returns 0 if it
 * is incomplete, or -EPROTO.
 */
static int stage_unmarked(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	size_t skip = rx->pos % MARKER_INTERVAL == 0 ? MARKER_LEN : 0;
	size_t raw_len;
	int len;

	if (rx->marked_len < skip + MPA_LEN_FIELD)
		return 0;
	raw_len = markers_raw_len(rx->pos, fpdu_len(get_be16(rx->marked + skip)));
	if (rx->marked_len < raw_len)
		return 0;
	if (qp->link.crc &&
	    !crc32c_matches(rx->marked + raw_len - MPA_CRC_LEN,
			    crc32c_update(CRC32C_INIT, rx->marked, raw_len - MPA_CRC_LEN))) {
		crc_failed(qp);
		return -EPROTO;
	}
	len = markers_strip(rx->pos, rx->marked, raw_len, rx->stage);
	if (len < 0) {
		rx->seg_hdr_len = 0;
		rx_stop_with(qp, FAULT_MPA_MARKER);
		return -EPROTO;
	}
	rx->head = 0;
	rx->tail = (uint32_t)len;
	rx->verified = true;
	rx->marked_len -= (uint32_t)raw_len;
	memmove(rx->marked, rx->marked + raw_len, rx->marked_len);
	rx->pos += raw_len;
	return 1;
}

/*
 * Handles everything received, without another read. With markers, that is first the FPDU that
 * had to wait.
 */
static enum outcome handle_received(struct stag_qp *qp)
{
	enum outcome o = handle_staged(qp);
	int r = 0;

	while (qp->rx->marked && o == MORE && (r = stage_unmarked(qp)) > 0)
		o = handle_staged(qp);
	return r < 0 ? STOP : o;
}

static void set_paused(struct stag_qp *qp, bool paused)
{
	if (atomic_exchange(&qp->progress.rx_paused, paused) != paused)
		qp_arm(qp);
}

/* ---- the end ---- */

void rx_end_now(struct stag_qp *qp)
{
	struct rx_end e = qp->rx->end;

	assert(qp_rx_locked(qp));
	qp->rx->end.kind = END_NONE;
	lock_acquire(&qp->tx_lock);
	switch (e.kind) {
	case END_FAULT:
		qp_fail(qp, &e.term, e.event);
		break;
	case END_TERMINATED:
		qp_fail(qp, NULL, e.event);
		break;
	case END_CLOSED:
		qp_peer_closed(qp, e.clean);
		break;
	case END_NONE:
		break;
	}
	lock_release(&qp->tx_lock);
}

void rx_end(struct stag_qp *qp, const struct rx_end *end)
{
	assert(qp_rx_locked(qp));
	qp->rx->stopped = true;
	qp->rx->end = *end;
	rx_store_stop(qp);
	if (rx_must_hold(qp))
		set_paused(qp, true);
	else
		rx_end_now(qp);
}

static void stream_ended(struct stag_qp *qp, ssize_t n)
{
	struct qp_rx *rx = qp->rx;
	bool clean = n == 0 && rx->step == RX_HEADER && rx_staged(rx) == 0 && rx->marked_len == 0 &&
		     !rx->recv_open && !rx->write_begun;

	if (n == -ETIMEDOUT)
		atomic_store(&qp->end.timed_out, true);
	if (n < 0)
		log_info("qp %u: the connection failed: %s", qp->ibv.qp_num, strerror((int)-n));
	else if (!clean)
		log_info("qp %u: the peer closed the connection in the middle of a message",
			 qp->ibv.qp_num);
	rx_end(qp, &(struct rx_end){.kind = END_CLOSED, .clean = clean});
}

/* Returns false if the stream is not to be read now. */
static bool note_outcome(struct stag_qp *qp, enum outcome o)
{
	if (o == WAIT)
		set_paused(qp, true);
	if (o == WAIT && qp->rx->mirroring.stalled)
		mirror_line_up(qp, qp->rx->mirroring.turn);
	return o == MORE;
}

/* While a poller holds the lock, this does nothing, and the poller may be past the point where it queues this again. */
static void read_on(struct work *w)
{
	struct stag_qp *qp = container_of(w, struct stag_qp, progress.read_on);

	qp_progress(qp);
	lock_acquire(&qp->rx_lock);
	rx_read_on(qp);
	lock_release(&qp->rx_lock);
}

/* Returns whether the stream would be read if there were an event. */
static bool is_reading(struct stag_qp *qp)
{
	int state = atomic_load(&qp->state);

	return (state == QP_RTS || state == QP_CLOSING) && qp->rx && !qp->rx->stopped &&
	       !atomic_load_explicit(&qp->progress.rx_paused, memory_order_relaxed);
}

/* Lets the engine continue: no event will report the bytes that the stream holds. */
void rx_read_on(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp));
	if (qp->stream && qp->stream->buffered && is_reading(qp))
		work_queue(&qp->progress.read_on, read_on);
}

/*
 * Has the poller found nothing to read? A few requests are acknowledged at once then: the requester may wait. If there are
 * more, it asks when it wants to know.
 */
static bool is_idle(struct rc *rc, bool any)
{
	rc->lulls = any ? 0 : rc->lulls + 1;
	return !any && (rc_unacknowledged(rc) < RC_ASK_REQUESTS || rc->lulls >= RC_LULLS);
}

/*
 * A thread that polls the queue pair will poll again, and may answer before: the acknowledgement goes with the answer, or
 * at a poll that finds nothing.
 */
static bool may_be_lazy(struct stag_qp *qp, bool any)
{
	const struct stag_cq *cq;
	struct rc *rc = qp->rc;

	if (is_idle(rc, any) || rc->asked || rc_unacknowledged(rc) >= RC_LAZY_ACKS)
		return false;
	atomic_thread_fence(memory_order_seq_cst); /* see rc_flush_acks() */
	cq = atomic_load_explicit(&qp->progress.claimed_by, memory_order_relaxed);
	return cq && atomic_load_explicit(&cq->claim, memory_order_relaxed) == CLAIM_POLLER;
}

/* A requester often goes on as soon as it is acknowledged. */
static void expect_more(struct stag_qp *qp)
{
	if (!atomic_load_explicit(&qp->progress.claimed_by, memory_order_relaxed))
		engine_note_asked();
}

static void send_pending(struct stag_qp *qp)
{
	qp->rx->kick_tx = false;
	lock_acquire(&qp->tx_lock);
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
}

/* The requester wants to go on while this side reads the rest. */
static void acknowledge_if_asked(struct stag_qp *qp)
{
	if (!qp->rc->asked)
		return;
	qp->rc->asked = false;
	if (!rc_ack_is_due(qp->rc) || qp->rx->stopped)
		return;
	expect_more(qp);
	send_pending(qp);
}

static bool rx_run(struct stag_qp *qp, bool full)
{
	struct qp_rx *rx = qp->rx;
	bool any = false;

	assert(qp_rx_locked(qp));
	for (int i = 0; i < MAX_READS && full; i++) {
		ssize_t n = rx_read_some(qp, &full);

		if (n == -EAGAIN || n == -ECANCELED)
			break;
		if (n <= 0) {
			stream_ended(qp, n);
			return true;
		}
		any = true;
		if (!note_outcome(qp, handle_received(qp)))
			break;
		if (qp->rc)
			acknowledge_if_asked(qp);
	}
	if (qp->rc && any)
		atomic_fetch_add_explicit(&qp->rc->heard, 1, memory_order_relaxed);
	if (qp->rc && rc_ack_is_due(qp->rc) && !may_be_lazy(qp, any)) {
		rx->kick_tx = true;
		expect_more(qp);
	}
	rx_read_on(qp);
	if (qp->storage.peer)
		rx_store_dry(qp);
	if (rx->mirroring.kick.region)
		rx_mirror_kick(qp);
	if (rx->kick_tx && !rx->stopped)
		send_pending(qp);
	return any;
}

/* Handles a segment again that had to wait, and reads on if it can. */
void rx_resume(struct stag_qp *qp)
{
	bool goes;

	assert(qp_rx_locked(qp));
	qp->rx->mirroring.stalled = false;
	goes = note_outcome(qp, handle_received(qp));
	if (goes)
		set_paused(qp, false);
	rx_run(qp, goes); /* its consequences have to be sent in any case */
}

static void retry_tx(struct stag_qp *qp)
{
	if (!lock_try(&qp->tx_lock))
		return; /* the thread that holds it sends */
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
}

static bool read_stream(struct stag_qp *qp)
{
	int ready = POLLIN | POLLOUT;
	bool any = false;

	if (!lock_try(&qp->rx_lock)) {
		sched_yield(); /* the thread that holds it may wait for this very processor */
		return false;
	}
	if (qp->rx && !qp->rx->stopped && rx_mirror_may_go(qp)) {
		rx_resume(qp);
	} else if (qp->rx && !qp->rx->stopped &&
		   !atomic_load_explicit(&qp->progress.rx_paused, memory_order_relaxed)) {
		/* A full stream is polled without a send or a receive. */
		if (atomic_load_explicit(&qp->progress.tx_blocked, memory_order_relaxed))
			ready = qp->stream->ops->ready(qp->stream);
		if (ready & ~POLLOUT)
			any = rx_run(qp, true);
	}
	lock_release(&qp->rx_lock);
	if ((ready & POLLOUT) &&
	    atomic_load_explicit(&qp->progress.tx_blocked, memory_order_relaxed))
		retry_tx(qp);
	return any;
}

bool qp_progress(struct stag_qp *qp)
{
	int state = atomic_load_explicit(&qp->state, memory_order_acquire);
	struct media *before, *minded;
	bool any;

	if (__builtin_expect(qp->ud != NULL, 0))
		return ud_progress(qp);
	any = qp_poll_media(qp);

	if ((state != QP_RTS && state != QP_CLOSING) ||
	    atomic_load_explicit(&qp->storage.on_store, memory_order_relaxed))
		return any;
	if (!atomic_load_explicit(&qp->storage.serves_store, memory_order_relaxed))
		return any | read_stream(qp);
	/* A medium may answer at once: this thread polls it, and no other has to be woken. */
	minded = qp_first_medium(qp);
	before = media_poller_enter(minded);
	any |= read_stream(qp);
	any |= qp_poll_media(qp);
	media_poller_leave(minded, before);
	return any;
}

void rx_consume_ahead(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp));
	note_outcome(qp, handle_received(qp));
	if (qp->storage.peer)
		rx_store_dry(qp);
}

void qp_push_recv(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	assert(qp_rx_locked(qp));
	qp->stats.recv_completions++;
	cq_push(qp->rcq, wc, solicited);
}

void rx_flush(struct stag_qp *qp)
{
	struct ibv_wc wc = {
		.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->ibv.qp_num};
	struct rwqe *w;

	assert(qp_rx_locked(qp));
	if (qp->rx) {
		qp->rx->stopped = true; /* for a thread that saw QP_RTS, and waited for the lock */
		rx_drop_held(qp, true);
	}
	if (qp->rx && qp->rx->recv_open)
		rx_complete_recv(qp, IBV_WC_WR_FLUSH_ERR, NULL, false);
	if (qp->rc && qp->rc->has_kept) {
		qp->rc->has_kept = false;
		wc.wr_id = qp->rc->kept->wr_id;
		qp_push_recv(qp, &wc, false);
	}
	lock_acquire(&qp->rq_lock);
	while ((w = rq_peek(&qp->rq))) {
		wc.wr_id = w->wr_id;
		qp->rq.get++;
		qp_push_recv(qp, &wc, false);
	}
	lock_release(&qp->rq_lock);
}
