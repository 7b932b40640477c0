// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_rx.c - the receiving side of a queue pair: bytes from the stream become
 * data in its place, completions, and requests to answer.
 *
 * A state machine over one FPDU: header, payload, trailer; each step goes on
 * where the last read ended. Bytes come into a small stage; the payload of a
 * large FPDU is read straight into its destination, with the trailer and the
 * next header caught in the stage behind it, and behind that the next segment's
 * payload, where the peer promised it (RDMAP_RSV_FULL_NEXT). A small FPDU is checked (CRC) as a
 * whole before a byte of it is placed.
 *
 * Every number here is a peer's claim until it is checked. What does not hold
 * ends the stream with the Terminate that the RFCs give for it.
 */
#include "adapter/adapter.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/log.h"

#define STAGE	  16384
#define WHOLE	  8192 /* with CRC: an FPDU up to this is in the stage as a whole first */
#define CATCH	  64   /* of what follows a large payload: the trailer and the next header */
#define BULK	  4096 /* what counts as large there */
#define TAIL	  64   /* of a write: placed last, see ends_write() */
#define MAX_READS 16   /* in one go */
#define FULL	  (MPA_MAX_ULPDU - DDP_TAGGED_LEN) /* payload of a promised segment */
#define MARKED	  (2 * FPDU_MAX_LEN)		   /* raw bytes of a stream with markers */

enum rx_step { RX_HEADER, RX_PAYLOAD, RX_TRAILER };

struct qp_rx {
	uint8_t *stage;
	uint32_t stage_size, head, tail; /* not yet consumed: [head, tail) */
	uint8_t *marked;		 /* with markers: the stream as it comes */
	uint32_t marked_len;
	uint64_t pos; /* stream offset of marked[0] */

	enum rx_step step;
	struct ddp_hdr h;
	uint32_t ulpdu_len;
	uint32_t seg_len, seg_done; /* payload of this segment: all, placed */
	bool verified;		    /* its CRC was checked already */
	uint32_t crc;
	uint8_t seg_hdr[DDP_UNTAGGED_LEN + RDMAP_ATOMIC_REQ_LEN]; /* for a Terminate */
	uint32_t seg_hdr_len;

	uint32_t pre_placed;	/* bytes of the next segment that are in their place already, */
	struct ddp_hdr promise; /* if its header is what this says */

	uint32_t msn[QN_COUNT]; /* expected next */
	bool recv_open;		/* a send has begun */
	uint32_t recv_off;
	struct rwqe *recv;	 /* where it goes (a copy) */
	uint64_t write_len;	 /* of the write message in progress */
	uint32_t last_write_len; /* of the last whole one, for its immediate */
	bool write_begun;
	struct wqe *read; /* the read being answered */

	bool first_seen;
	bool kick_tx;
	bool stopped; /* the stream is done with, one way or the other */
};

/* ---- life ---- */

int qp_rx_init(struct stag_qp *qp)
{
	struct qp_rx *rx = calloc(1, sizeof(*rx));

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

	if (!rx)
		return;
	free(rx->stage);
	free(rx->recv);
	free(rx->marked);
	free(rx);
	qp->rx = NULL;
}

static uint32_t staged(const struct qp_rx *rx)
{
	return rx->tail - rx->head;
}

/* ---- faults ---- */

static enum ibv_event_type fault_event(struct wire_fault f)
{
	bool access = (f.layer == FAULT_LAYER_RDMAP && f.etype == 1) ||
		      (f.layer == FAULT_LAYER_DDP && f.etype == 1);

	if (f.layer == FAULT_LAYER_LLP)
		return IBV_EVENT_QP_FATAL;
	return access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
}

/* The peer broke a rule: say which, and end. Always returns false. */
static bool stop_with(struct stag_qp *qp, struct wire_fault f)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t;

	log_info("qp %u: the peer's message (opcode %u, stag 0x%08x, to 0x%llx, qn %u, msn %u, "
		 "mo %u, %u bytes) is refused: %s",
		 qp->ibv.qp_num, rx->h.opcode, rx->h.stag, (unsigned long long)rx->h.to, rx->h.qn,
		 rx->h.msn, rx->h.mo, rx->seg_len, wire_fault_str(f));
	terminate_init(&t, f, rx->seg_hdr_len ? rx->seg_hdr : NULL, rx->seg_hdr_len, rx->ulpdu_len);
	rx->stopped = true;
	pthread_mutex_lock(&qp->tx_lock);
	qp_fail(qp, &t, fault_event(f));
	pthread_mutex_unlock(&qp->tx_lock);
	return false;
}

static struct wire_fault write_fault(enum key_fault f)
{
	switch (f) {
	case KEY_BOUNDS:
		return FAULT_DDP_BASE_BOUNDS;
	case KEY_RIGHTS:
		return FAULT_RDMAP_ACCESS;
	case KEY_OTHER_PD:
	case KEY_OTHER_QP:
		return FAULT_DDP_STAG_STREAM;
	case KEY_WRAP:
		return FAULT_DDP_TO_WRAP;
	case KEY_OK:
	case KEY_INVALID:
		break;
	}
	return FAULT_DDP_INVALID_STAG;
}

static struct wire_fault read_fault(enum key_fault f)
{
	switch (f) {
	case KEY_BOUNDS:
		return FAULT_RDMAP_BASE_BOUNDS;
	case KEY_RIGHTS:
		return FAULT_RDMAP_ACCESS;
	case KEY_OTHER_PD:
	case KEY_OTHER_QP:
		return FAULT_RDMAP_STAG_STREAM;
	case KEY_WRAP:
		return FAULT_RDMAP_TO_WRAP;
	case KEY_OK:
	case KEY_INVALID:
		break;
	}
	return FAULT_RDMAP_INVALID_STAG;
}

/* ---- where payload goes ---- */

static enum key_fault sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
				 uint64_t off, uint32_t len, struct key_map *map)
{
	for (uint32_t i = 0; i < n; i++) {
		enum key_fault f;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		if (len > sge[i].length - off)
			len = (uint32_t)(sge[i].length - off);
		f = key_get(sge[i].lkey, qp->pd, NULL, sge[i].addr + off, len,
			    IBV_ACCESS_LOCAL_WRITE, map);
		if (f != KEY_OK)
			log_info("qp %u: SGE %u (lkey 0x%08x, %u bytes at 0x%llx) of a %s: %s",
				 qp->ibv.qp_num, i, sge[i].lkey, sge[i].length,
				 (unsigned long long)sge[i].addr,
				 qp->rx->h.tagged ? "read's sink" : "receive", key_fault_str(f));
		return f;
	}
	return KEY_BOUNDS;
}

/* The memory for the next len bytes of the segment; may give less. */
static enum key_fault target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;

	switch (rx->h.opcode) {
	case RDMAP_WRITE:
		return key_get(rx->h.stag, qp->pd, qp, rx->h.to + rx->seg_done, len,
			       IBV_ACCESS_REMOTE_WRITE, map);
	case RDMAP_READ_RESP:
		return sge_target(qp, rx->read->sge, rx->read->num_sge,
				  rx->read->rx_off + rx->seg_done, len, map);
	default:
		return sge_target(qp, rx->recv->sge, rx->recv->num_sge, rx->recv_off + rx->seg_done,
				  len, map);
	}
}

static void complete_recv(struct stag_qp *qp, enum ibv_wc_status status, const struct ibv_wc *more,
			  bool solicited)
{
	struct qp_rx *rx = qp->rx;
	struct ibv_wc wc = {
		.wr_id = rx->recv->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = rx->recv_off,
		.qp_num = qp->ibv.qp_num,
		.src_qp = qp->ibv.qp_num,
	};

	if (more) {
		wc.opcode = more->opcode;
		wc.byte_len = more->byte_len;
		wc.imm_data = more->imm_data;
		wc.wc_flags = more->wc_flags;
	}
	rx->recv_open = false;
	cq_push(qp->rcq, &wc, solicited);
}

/* The local side's own fault: its request fails, then the queue pair. */
static bool stop_locally(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t;

	if (rx->h.opcode == RDMAP_READ_RESP)
		rx->read->status = IBV_WC_LOC_PROT_ERR;
	else
		complete_recv(qp, IBV_WC_LOC_PROT_ERR, NULL, false);
	terminate_init(&t, FAULT_DDP_LOCAL, NULL, 0, 0);
	rx->stopped = true;
	pthread_mutex_lock(&qp->tx_lock);
	if (rx->h.opcode == RDMAP_READ_RESP)
		rx->read->done = true;
	qp_fail(qp, &t, IBV_EVENT_QP_FATAL);
	pthread_mutex_unlock(&qp->tx_lock);
	return false;
}

static bool target_fault(struct stag_qp *qp, enum key_fault f)
{
	if (qp->rx->h.opcode == RDMAP_WRITE)
		return stop_with(qp, write_fault(f));
	return stop_locally(qp);
}

/*
 * Programs wait for a write by looking at its end: it is stored last, and a word
 * at once. memcpy() promises neither.
 */
static void copy_end_last(uint8_t *to, const uint8_t *from, size_t len)
{
	uint64_t word;

	if (len < sizeof(word) || (uintptr_t)(to + len) % sizeof(word)) {
		memcpy(to, from, len - 1);
		__atomic_store_n(to + len - 1, from[len - 1], __ATOMIC_RELEASE);
		return;
	}
	len -= sizeof(word);
	memcpy(to, from, len);
	memcpy(&word, from + len, sizeof(word));
	__atomic_store_n((uint64_t *)(to + len), word, __ATOMIC_RELEASE);
}

static void scatter(const struct key_map *map, const uint8_t *from)
{
	for (unsigned i = 0; i < map->n; i++) {
		copy_end_last(map->iov[i].iov_base, from, map->iov[i].iov_len);
		from += map->iov[i].iov_len;
	}
}

/* Copies staged bytes to where they belong. */
static bool place(struct stag_qp *qp, const uint8_t *from, uint32_t len)
{
	struct qp_rx *rx = qp->rx;

	while (len) {
		struct key_map map;
		enum key_fault f = target(qp, len, &map);

		if (f != KEY_OK)
			return target_fault(qp, f);
		scatter(&map, from);
		from += map.len;
		key_put(&map);
		rx->seg_done += (uint32_t)map.len;
		len -= (uint32_t)map.len;
	}
	return true;
}

/* ---- beginning a segment ---- */

static bool take_recv(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct rwqe *w;

	if (qp->srq)
		return srq_take(qp->srq, rx->recv);
	pthread_mutex_lock(&qp->rq_lock);
	w = rq_peek(&qp->rq);
	if (w) {
		memcpy(rx->recv, w, sizeof(*w) + w->num_sge * sizeof(struct ibv_sge));
		qp->rq.get++;
	}
	pthread_mutex_unlock(&qp->rq_lock);
	return w != NULL;
}

/* RFC 5041 §5.3: an untagged segment for queue 0 needs its turn, its place and a buffer. */
static bool begin_send(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	bool counts = rx->h.opcode != RDMAP_IMM && rx->h.opcode != RDMAP_IMM_SE;

	if (rx->h.msn != rx->msn[QN_SEND])
		return stop_with(qp, FAULT_DDP_MSN_RANGE);
	if (rx->h.mo != (rx->recv_open ? rx->recv_off : 0))
		return stop_with(qp, FAULT_DDP_INVALID_MO);
	if (!rx->recv_open) {
		if (!take_recv(qp)) {
			log_info("qp %u: a send came, and no receive is posted", qp->ibv.qp_num);
			return stop_with(qp, FAULT_DDP_NO_BUFFER);
		}
		rx->recv_open = true;
		rx->recv_off = 0;
	}
	if (counts && rx->seg_len > rx->recv->length - rx->recv_off) {
		complete_recv(qp, IBV_WC_LOC_LEN_ERR, NULL, false);
		return stop_with(qp, FAULT_DDP_TOO_LONG);
	}
	return true;
}

/* The whole range is checked before a byte of it is placed. */
static bool begin_write(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct key_map map;
	enum key_fault f;

	if (!rx->write_begun) {
		rx->write_begun = true;
		rx->write_len = 0;
	}
	if (rx->seg_len == 0)
		return true; /* RFC 5041 §5.2: nothing to check */
	f = key_get(rx->h.stag, qp->pd, qp, rx->h.to, rx->seg_len, IBV_ACCESS_REMOTE_WRITE, &map);
	if (f != KEY_OK)
		return stop_with(qp, write_fault(f));
	key_put(&map);
	return true;
}

static bool begin_read_response(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct wqe *w;

	if (qp->rtr_read_pending)
		return rx->seg_len == 0 || stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	pthread_mutex_lock(&qp->tx_lock);
	w = qp_tx_oldest_read(qp);
	pthread_mutex_unlock(&qp->tx_lock);
	rx->read = w;
	if (!w || w->opcode != IBV_WR_RDMA_READ)
		return stop_with(qp, FAULT_RDMAP_OPCODE);
	if (w->length && w->num_sge && rx->h.stag != w->sge[0].lkey)
		return stop_with(qp, FAULT_DDP_INVALID_STAG);
	if (w->length && rx->h.to != w->sge[0].addr + w->rx_off)
		return stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	if (rx->seg_len > w->length - w->rx_off ||
	    (rx->h.last && rx->seg_len != w->length - w->rx_off))
		return stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	return true;
}

static bool in_turn(struct stag_qp *qp, enum ddp_qn qn)
{
	struct qp_rx *rx = qp->rx;

	if (rx->h.msn != rx->msn[qn])
		return stop_with(qp, FAULT_DDP_MSN_RANGE);
	if (rx->h.mo)
		return stop_with(qp, FAULT_DDP_INVALID_MO);
	return true;
}

static bool begin_segment(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	switch (rx->h.opcode) {
	case RDMAP_WRITE:
		return begin_write(qp);
	case RDMAP_READ_RESP:
		return begin_read_response(qp);
	case RDMAP_READ_REQ:
	case RDMAP_ATOMIC_REQ:
		return in_turn(qp, QN_READ);
	case RDMAP_ATOMIC_RESP:
		return in_turn(qp, QN_ATOMIC);
	case RDMAP_TERMINATE:
		return true; /* whatever it says, it is the end */
	default:
		return begin_send(qp);
	}
}

/* ---- ending a segment ---- */

/* RFC 5040 §5.3: before the receive completes, the tag is invalid. */
static bool invalidate_for_peer(struct stag_qp *qp, struct ibv_wc *wc)
{
	struct qp_rx *rx = qp->rx;
	int err = key_invalidate(rx->h.ulp, qp->pd, qp);

	if (err) {
		rx->recv_off += rx->seg_len;
		complete_recv(qp, IBV_WC_REM_INV_REQ_ERR, NULL, false);
		return stop_with(
			qp, err == -EACCES ? FAULT_RDMAP_PROT_CANT_INV : FAULT_RDMAP_OP_CANT_INV);
	}
	wc->wc_flags |= IBV_WC_WITH_INV;
	wc->invalidated_rkey = rx->h.ulp;
	return true;
}

static bool end_send(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint8_t op = rx->h.opcode;
	bool solicited = op == RDMAP_SEND_SE || op == RDMAP_SEND_SE_INV ||
			 (op == RDMAP_SEND_IMM && (rx->h.rsv & RDMAP_RSV_SE));
	struct ibv_wc wc = {.opcode = IBV_WC_RECV};

	if (rx->h.last && (op == RDMAP_SEND_INV || op == RDMAP_SEND_SE_INV) &&
	    !invalidate_for_peer(qp, &wc))
		return false;
	rx->recv_off += rx->seg_len;
	if (!rx->h.last)
		return true;
	wc.byte_len = rx->recv_off;
	if (op == RDMAP_SEND_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = htobe32(rx->h.ulp);
	}
	rx->msn[QN_SEND]++;
	complete_recv(qp, IBV_WC_SUCCESS, &wc, solicited);
	return true;
}

static bool end_immediate(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = rx->last_write_len,
		.wc_flags = IBV_WC_WITH_IMM,
	};

	memcpy(&wc.imm_data, payload, sizeof(wc.imm_data));
	rx->msn[QN_SEND]++;
	complete_recv(qp, IBV_WC_SUCCESS, &wc, rx->h.opcode == RDMAP_IMM_SE);
	return true;
}

static bool end_write(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	rx->write_len += rx->seg_len;
	if (rx->h.last) {
		rx->last_write_len = (uint32_t)rx->write_len;
		rx->write_begun = false;
	}
	return true;
}

static bool end_read_response(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	if (qp->rtr_read_pending) {
		qp->rtr_read_pending = false;
		return true;
	}
	rx->read->rx_off += rx->seg_len;
	if (!rx->h.last)
		return true;
	pthread_mutex_lock(&qp->tx_lock);
	qp_tx_read_done(qp);
	rx->kick_tx |= qp_tx_pending(qp) || atomic_load(&qp->state) == QP_CLOSING;
	pthread_mutex_unlock(&qp->tx_lock);
	return true;
}

static bool end_read_request(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct rdmap_read_req r;
	struct key_map map;
	enum key_fault f = KEY_OK;
	bool room;

	rdmap_get_read_req(payload, &r);
	if (r.size)
		f = key_get(r.src_stag, qp->pd, qp, r.src_to, r.size, IBV_ACCESS_REMOTE_READ, &map);
	if (f != KEY_OK)
		return stop_with(qp, read_fault(f));
	if (r.size)
		key_put(&map);
	pthread_mutex_lock(&qp->tx_lock);
	room = qp_tx_respond_read(qp, &r);
	pthread_mutex_unlock(&qp->tx_lock);
	if (!room)
		return stop_with(qp, FAULT_DDP_NO_BUFFER);
	rx->msn[QN_READ]++;
	rx->kick_tx = true;
	return true;
}

static bool end_atomic_request(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct rdmap_atomic_req r;
	struct key_map map;
	enum key_fault f;
	bool room, aligned;

	rdmap_get_atomic_req(payload, &r);
	if (r.op != RDMAP_FETCH_ADD && r.op != RDMAP_CMP_SWAP)
		return stop_with(qp, FAULT_RDMAP_OP_OTHER);
	f = key_get(r.stag, qp->pd, qp, r.to, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC, &map);
	if (f != KEY_OK)
		return stop_with(qp, read_fault(f));
	aligned = map.n == 1 && (uintptr_t)map.iov[0].iov_base % sizeof(uint64_t) == 0;
	key_put(&map);
	if (!aligned)
		return stop_with(qp, FAULT_RDMAP_STREAM);
	pthread_mutex_lock(&qp->tx_lock);
	room = qp_tx_respond_atomic(qp, &r);
	pthread_mutex_unlock(&qp->tx_lock);
	if (!room)
		return stop_with(qp, FAULT_DDP_NO_BUFFER);
	rx->msn[QN_READ]++;
	rx->kick_tx = true;
	return true;
}

static bool end_atomic_response(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct rdmap_atomic_resp r;
	struct key_map map;
	struct wqe *w;

	rdmap_get_atomic_resp(payload, &r);
	pthread_mutex_lock(&qp->tx_lock);
	w = qp_tx_oldest_read(qp);
	pthread_mutex_unlock(&qp->tx_lock);
	if (!w || w->opcode == IBV_WR_RDMA_READ ||
	    (r.id & qp->sq.mask) != (uint32_t)(w - qp->sq.wqe))
		return stop_with(qp, FAULT_RDMAP_OPCODE);
	rx->msn[QN_ATOMIC]++;
	rx->read = w;
	if (sge_target(qp, w->sge, w->num_sge, 0, sizeof(r.value), &map) != KEY_OK ||
	    map.len != sizeof(r.value)) {
		rx->h.opcode = RDMAP_READ_RESP; /* fails as a read's sink does */
		return stop_locally(qp);
	}
	scatter(&map, (const uint8_t *)&r.value);
	key_put(&map);
	pthread_mutex_lock(&qp->tx_lock);
	qp_tx_read_done(qp);
	rx->kick_tx |= qp_tx_pending(qp) || atomic_load(&qp->state) == QP_CLOSING;
	pthread_mutex_unlock(&qp->tx_lock);
	return true;
}

/* Is it about a read or an atomic? Where it does not say, the oldest one is what it can be about. */
static bool is_about_request(const struct terminate *t)
{
	uint8_t opcode = t->ddp[1] & 0x0f;

	return !t->has_ddp || opcode == RDMAP_READ_REQ || opcode == RDMAP_ATOMIC_REQ;
}

/* What the peer's Terminate means for the request that it is about. */
static enum ibv_wc_status refused_status(const struct terminate *t)
{
	if (t->fault.layer != FAULT_LAYER_RDMAP || !is_about_request(t))
		return IBV_WC_SUCCESS; /* none in particular: it is flushed with the others */
	if (t->fault.etype == 1)
		return IBV_WC_REM_ACCESS_ERR;
	return t->fault.etype == 2 ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS;
}

static bool end_terminate(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t = {.fault = FAULT_MPA_LOST};
	bool swapped;
	struct wqe *w;

	qp->counters.terminates_received++;
	if (terminate_decode(payload, rx->seg_len, &t, &swapped))
		log_info("qp %u: the peer sent a Terminate of %u bytes", qp->ibv.qp_num,
			 rx->seg_len);
	else
		log_info("qp %u: the peer terminated the connection: %s%s", qp->ibv.qp_num,
			 wire_fault_str(t.fault), swapped ? " (sent with swapped bits)" : "");
	rx->stopped = true;
	pthread_mutex_lock(&qp->tx_lock);
	w = qp_tx_oldest_read(qp);
	if (w && refused_status(&t) != IBV_WC_SUCCESS)
		w->status = refused_status(&t);
	qp_fail(qp, NULL, IBV_EVENT_QP_FATAL);
	pthread_mutex_unlock(&qp->tx_lock);
	return false;
}

/* payload: of messages that lie in the stage as a whole; others were placed. */
static bool end_segment(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;

	qp->counters.rx_fpdus++;
	qp->counters.rx_payload += rx->seg_len;
	qp->counters.rx_msgs += rx->h.last;
	switch (rx->h.opcode) {
	case RDMAP_WRITE:
		return end_write(qp);
	case RDMAP_READ_RESP:
		return end_read_response(qp);
	case RDMAP_READ_REQ:
		return end_read_request(qp, payload);
	case RDMAP_ATOMIC_REQ:
		return end_atomic_request(qp, payload);
	case RDMAP_ATOMIC_RESP:
		return end_atomic_response(qp, payload);
	case RDMAP_TERMINATE:
		return end_terminate(qp, payload);
	case RDMAP_IMM:
	case RDMAP_IMM_SE:
		return end_immediate(qp, payload);
	default:
		return end_send(qp);
	}
}

/* ---- the state machine ---- */

enum outcome { MORE, GO_ON, STOP }; /* needs bytes; made a step; the stream is over */

/* Messages whose payload is read from the stage, not placed: their whole FPDU must be there. */
static bool is_control(uint8_t opcode)
{
	switch (opcode) {
	case RDMAP_READ_REQ:
	case RDMAP_ATOMIC_REQ:
	case RDMAP_ATOMIC_RESP:
	case RDMAP_TERMINATE:
	case RDMAP_IMM:
	case RDMAP_IMM_SE:
		return true;
	default:
		return false;
	}
}

static void note_first(struct stag_qp *qp)
{
	qp->rx->first_seen = true;
	pthread_mutex_lock(&qp->tx_lock);
	qp_tx_release(qp); /* a peer that speaks can also hear */
	pthread_mutex_unlock(&qp->tx_lock);
	if (!qp->link.initiator)
		qp_tell_established(qp);
}

static enum outcome crc_failed(struct stag_qp *qp)
{
	qp->counters.crc_errors++;
	qp->rx->seg_hdr_len = 0;
	stop_with(qp, FAULT_MPA_CRC);
	return STOP;
}

static void remember_header(struct qp_rx *rx, const uint8_t *ulpdu, size_t hdr_len)
{
	size_t len = hdr_len + (is_control(ulpdu[1] & 0x0f) ? rx->ulpdu_len - hdr_len : 0);

	if (len > sizeof(rx->seg_hdr))
		len = sizeof(rx->seg_hdr);
	if (len > staged(rx) - MPA_LEN_FIELD) /* a claim that never fits: what came of it */
		len = staged(rx) - MPA_LEN_FIELD;
	memcpy(rx->seg_hdr, ulpdu, len);
	rx->seg_hdr_len = (uint32_t)len;
}

/* What must be in the stage before the header can be acted on. */
static size_t bytes_needed(const struct stag_qp *qp, const uint8_t *p, size_t ulpdu_len,
			   size_t hdr_len)
{
	size_t total = fpdu_len(ulpdu_len);

	if (qp->rx->pre_placed)
		return MPA_LEN_FIELD + hdr_len; /* what the payload was taken for, it must be */
	if (is_control(p[MPA_LEN_FIELD + 1] & 0x0f) && total <= STAGE)
		return total;
	if (qp->link.crc && !qp->rx->verified && total <= WHOLE)
		return total;
	return MPA_LEN_FIELD + hdr_len;
}

static void crc_pieces(struct qp_rx *rx, const struct key_map *map, size_t n)
{
	for (unsigned i = 0; i < map->n && n; i++) {
		size_t part = map->iov[i].iov_len < n ? map->iov[i].iov_len : n;

		rx->crc = crc32c_update(rx->crc, map->iov[i].iov_base, part);
		n -= part;
	}
}

/*
 * The segment's payload was read before its header. It lies where the peer may
 * write; that it belongs there, the header must say now.
 */
static bool keep_promise(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint32_t left = rx->pre_placed;

	rx->pre_placed = 0;
	if (rx->h.opcode != rx->promise.opcode || rx->h.stag != rx->promise.stag ||
	    rx->h.to != rx->promise.to || rx->seg_len != FULL)
		return stop_with(qp, FAULT_RDMAP_STREAM);
	while (left) {
		struct key_map map;
		enum key_fault f = target(qp, left, &map);

		if (f != KEY_OK)
			return target_fault(qp, f);
		if (qp->link.crc)
			crc_pieces(rx, &map, map.len);
		key_put(&map);
		rx->seg_done += (uint32_t)map.len;
		left -= (uint32_t)map.len;
	}
	return true;
}

static enum outcome step_header(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	const uint8_t *p = rx->stage + rx->head;
	uint32_t have = staged(rx);
	size_t hdr_len, total;
	struct wire_fault f;

	if (have < MPA_LEN_FIELD + 2)
		return MORE;
	rx->ulpdu_len = get_be16(p);
	hdr_len = ddp_hdr_len(p[MPA_LEN_FIELD]);
	rx->seg_hdr_len = 0;
	rx->seg_len = 0;
	if (rx->ulpdu_len < hdr_len) {
		log_info("qp %u: an FPDU of %u bytes cannot hold a header", qp->ibv.qp_num,
			 rx->ulpdu_len);
		stop_with(qp, FAULT_MPA_MARKER);
		return STOP;
	}
	if (have < bytes_needed(qp, p, rx->ulpdu_len, hdr_len))
		return MORE;
	total = fpdu_len(rx->ulpdu_len);
	if (qp->link.crc && !rx->verified) {
		if (have >= total && !rx->pre_placed) {
			rx->verified = true;
			if (!crc32c_matches(p + total - MPA_CRC_LEN,
					    crc32c_update(CRC32C_INIT, p, total - MPA_CRC_LEN)))
				return crc_failed(qp);
		} else {
			rx->crc = crc32c_update(CRC32C_INIT, p, MPA_LEN_FIELD + hdr_len);
		}
	}
	remember_header(rx, p + MPA_LEN_FIELD, hdr_len);
	f = ddp_decode(p + MPA_LEN_FIELD, &rx->h);
	rx->seg_len = (uint32_t)(rx->ulpdu_len - hdr_len);
	rx->seg_done = 0;
	if (!f.set)
		f = rdmap_check(&rx->h, rx->seg_len, qp->link.caps);
	if (f.set) {
		stop_with(qp, f);
		return STOP;
	}
	if (!begin_segment(qp) || (rx->pre_placed && !keep_promise(qp)))
		return STOP;
	rx->head += (uint32_t)(MPA_LEN_FIELD + hdr_len);
	rx->step = RX_PAYLOAD;
	return GO_ON;
}

/*
 * The last segment of a write: a program may look at its end, and change all of
 * it as soon as that is there. So the end is placed when the CRC is right, and
 * not by the kernel, whose copy has no order.
 */
static bool ends_write(const struct qp_rx *rx)
{
	return rx->h.opcode == RDMAP_WRITE && rx->h.last;
}

static uint32_t tail_of(const struct qp_rx *rx)
{
	uint32_t left = rx->seg_len - rx->seg_done;

	if (!ends_write(rx))
		return 0;
	return left < TAIL ? left : TAIL;
}

/* How much of the payload that is staged may be placed now; false: its CRC is wrong. */
static bool may_place(struct stag_qp *qp, uint32_t *n)
{
	struct qp_rx *rx = qp->rx;
	uint32_t left = rx->seg_len - rx->seg_done, pad = fpdu_pad(rx->ulpdu_len);
	const uint8_t *p = rx->stage + rx->head;

	*n = left < staged(rx) ? left : staged(rx);
	if (!qp->link.crc || rx->verified || !ends_write(rx))
		return true;
	if (staged(rx) < left + pad + MPA_CRC_LEN) {
		if (*n > left - tail_of(rx))
			*n = left - tail_of(rx);
		return true;
	}
	rx->verified = true;
	return crc32c_matches(p + left + pad, crc32c_update(rx->crc, p, left + pad));
}

static enum outcome step_payload(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint32_t n;

	if (is_control(rx->h.opcode)) { /* all of it is there; it is read at the end */
		rx->step = RX_TRAILER;
		return GO_ON;
	}
	if (!may_place(qp, &n))
		return crc_failed(qp);
	if (n) {
		if (qp->link.crc && !rx->verified)
			rx->crc = crc32c_update(rx->crc, rx->stage + rx->head, n);
		if (!place(qp, rx->stage + rx->head, n))
			return STOP;
		rx->head += n;
	}
	if (rx->seg_done < rx->seg_len)
		return MORE;
	rx->step = RX_TRAILER;
	return GO_ON;
}

static enum outcome step_trailer(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	unsigned pad = fpdu_pad(rx->ulpdu_len);
	uint32_t body = is_control(rx->h.opcode) ? rx->seg_len : 0;
	const uint8_t *p = rx->stage + rx->head;

	if (staged(rx) < body + pad + MPA_CRC_LEN)
		return MORE;
	if (qp->link.crc && !rx->verified &&
	    !crc32c_matches(p + body + pad, crc32c_update(rx->crc, p, body + pad)))
		return crc_failed(qp);
	rx->head += body + pad + MPA_CRC_LEN;
	rx->step = RX_HEADER;
	rx->verified = rx->marked != NULL;
	if (!rx->first_seen)
		note_first(qp);
	return end_segment(qp, p) ? GO_ON : STOP;
}

/* Works off what is staged. */
static enum outcome consume(struct stag_qp *qp)
{
	enum outcome o = GO_ON;

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

/* ---- reading ---- */

static void make_room(struct qp_rx *rx)
{
	uint32_t n = staged(rx);

	if (rx->head == 0)
		return;
	if (n)
		memmove(rx->stage, rx->stage + rx->head, n);
	rx->head = 0;
	rx->tail = n;
}

/* Into the stage; *full: the read took all it asked for, there may be more. */
static ssize_t read_staged(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	struct iovec v;
	ssize_t n;

	make_room(rx);
	v = (struct iovec){rx->stage + rx->tail, rx->stage_size - rx->tail};
	n = qp->stream->ops->recv(qp->stream, &v, 1);
	if (n > 0)
		rx->tail += (uint32_t)n;
	*full = n == (ssize_t)v.iov_len;
	return n;
}

/* The place of the segment behind this one, where the peer promised a full one. */
static bool next_target(struct stag_qp *qp, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;
	enum key_fault f;

	if (!(rx->h.rsv & RDMAP_RSV_FULL_NEXT) || !(qp->link.caps & MPA_EXT_BIG_FPDU) || rx->h.last)
		return false;
	rx->promise = rx->h;
	rx->promise.to += rx->seg_len;
	if (rx->h.opcode == RDMAP_WRITE)
		f = key_get(rx->h.stag, qp->pd, qp, rx->promise.to, FULL, IBV_ACCESS_REMOTE_WRITE,
			    map);
	else if (rx->h.opcode == RDMAP_READ_RESP)
		f = sge_target(qp, rx->read->sge, rx->read->num_sge,
			       (uint64_t)rx->read->rx_off + rx->seg_len, FULL, map);
	else
		return false;
	if (f == KEY_OK && map->len < FULL)
		key_put(map);
	return f == KEY_OK && map->len == FULL;
}

/* The vector of a read: payload, trailer and next header, next payload, and what follows. */
struct scatter {
	struct iovec iov[18];
	int n;
	struct key_map here, next;
	size_t behind; /* into the stage, between the two payloads or after the only one */
	size_t catch;  /* into the stage, after the second payload */
};

static void scatter_add(struct scatter *s, const struct iovec *iov, unsigned n)
{
	memcpy(s->iov + s->n, iov, n * sizeof(*iov));
	s->n += (int)n;
}

static void scatter_behind(struct stag_qp *qp, struct scatter *s, uint32_t left)
{
	struct qp_rx *rx = qp->rx;

	s->catch = 0;
	if (!next_target(qp, &s->next)) {
		memset(&s->next, 0, sizeof(s->next.slot));
		s->next.len = 0;
		s->behind = left >= BULK ? tail_of(rx) + CATCH : rx->stage_size;
		scatter_add(s, &(struct iovec){rx->stage, s->behind}, 1);
		return;
	}
	s->behind = fpdu_pad(rx->ulpdu_len) + MPA_CRC_LEN + MPA_LEN_FIELD + DDP_TAGGED_LEN;
	s->catch = CATCH;
	scatter_add(s, &(struct iovec){rx->stage, s->behind}, 1);
	scatter_add(s, s->next.iov, s->next.n);
	scatter_add(s, &(struct iovec){rx->stage + s->behind, CATCH}, 1);
}

static size_t take(size_t *n, size_t most)
{
	size_t part = *n < most ? *n : most;

	*n -= part;
	return part;
}

static void scattered(struct stag_qp *qp, const struct scatter *s, size_t n)
{
	struct qp_rx *rx = qp->rx;
	size_t placed = take(&n, s->here.len);

	if (qp->link.crc)
		crc_pieces(rx, &s->here, placed);
	rx->seg_done += (uint32_t)placed;
	rx->tail = (uint32_t)take(&n, s->behind);
	rx->pre_placed = (uint32_t)take(&n, s->next.len);
	rx->tail += (uint32_t)n;
}

/* Payload straight to its place; what follows it into the (empty) stage. */
static ssize_t read_direct(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	uint32_t left = rx->seg_len - rx->seg_done - tail_of(rx);
	struct scatter s = {.n = 0};
	enum key_fault f = target(qp, left, &s.here);
	ssize_t n;

	if (f != KEY_OK) {
		target_fault(qp, f);
		return -ECANCELED;
	}
	rx->head = rx->tail = 0;
	scatter_add(&s, s.here.iov, s.here.n);
	if (s.here.len == left)
		scatter_behind(qp, &s, left);
	n = qp->stream->ops->recv(qp->stream, s.iov, s.n);
	if (n > 0)
		scattered(qp, &s, (size_t)n);
	*full = n == (ssize_t)(s.here.len + s.behind + s.next.len + s.catch);
	key_put(&s.here);
	key_put(&s.next);
	return n;
}

/* One whole FPDU out of the raw bytes into the stage; 0: not all of it is there; or -EPROTO. */
static int unmark(struct stag_qp *qp)
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
		stop_with(qp, FAULT_MPA_MARKER);
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

static ssize_t read_marked(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	struct iovec v = {rx->marked + rx->marked_len, MARKED - rx->marked_len};
	ssize_t n = qp->stream->ops->recv(qp->stream, &v, 1);

	if (n > 0)
		rx->marked_len += (uint32_t)n;
	*full = n == (ssize_t)v.iov_len;
	return n;
}

static ssize_t read_some(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;

	if (rx->marked)
		return read_marked(qp, full);
	if (rx->step == RX_PAYLOAD && staged(rx) == 0 && !is_control(rx->h.opcode) &&
	    rx->seg_len - rx->seg_done > tail_of(rx))
		return read_direct(qp, full);
	return read_staged(qp, full);
}

/* What is there already, without a read; false: the stream is over. */
static bool consume_all(struct stag_qp *qp)
{
	int r;

	if (!qp->rx->marked)
		return consume(qp) != STOP;
	while ((r = unmark(qp)) > 0)
		if (consume(qp) == STOP)
			return false;
	return r == 0;
}

static void stream_ended(struct stag_qp *qp, ssize_t n)
{
	struct qp_rx *rx = qp->rx;
	bool clean = n == 0 && rx->step == RX_HEADER && staged(rx) == 0 && rx->marked_len == 0 &&
		     !rx->recv_open && !rx->write_begun;

	if (n < 0)
		log_info("qp %u: the connection failed: %s", qp->ibv.qp_num, strerror((int)-n));
	else if (!clean)
		log_info("qp %u: the peer closed the connection in the middle of a message",
			 qp->ibv.qp_num);
	rx->stopped = true;
	pthread_mutex_lock(&qp->tx_lock);
	qp_peer_closed(qp, clean);
	pthread_mutex_unlock(&qp->tx_lock);
}

static bool rx_run(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	bool any = false, full = true;

	for (int i = 0; i < MAX_READS && full; i++) {
		ssize_t n = read_some(qp, &full);

		if (n == -EAGAIN || n == -ECANCELED)
			break;
		if (n <= 0) {
			stream_ended(qp, n);
			return true;
		}
		any = true;
		if (!consume_all(qp))
			break;
	}
	if (rx->kick_tx && !rx->stopped) {
		rx->kick_tx = false;
		pthread_mutex_lock(&qp->tx_lock);
		qp_tx_run(qp);
		pthread_mutex_unlock(&qp->tx_lock);
	}
	return any;
}

static void retry_tx(struct stag_qp *qp)
{
	if (pthread_mutex_trylock(&qp->tx_lock))
		return; /* whoever holds it sends */
	qp_tx_run(qp);
	pthread_mutex_unlock(&qp->tx_lock);
}

bool qp_progress(struct stag_qp *qp)
{
	int state = atomic_load_explicit(&qp->state, memory_order_acquire);
	bool any = false;
	int ready = POLLIN | POLLOUT;

	if (state != QP_RTS && state != QP_CLOSING)
		return false;
	if (pthread_mutex_trylock(&qp->rx_lock))
		return false;
	if (qp->rx && !qp->rx->stopped) {
		/* A full stream is looked at without disturbing it. */
		if (atomic_load_explicit(&qp->tx_blocked, memory_order_relaxed))
			ready = qp->stream->ops->ready(qp->stream);
		if (ready & ~POLLOUT)
			any = rx_run(qp);
	}
	pthread_mutex_unlock(&qp->rx_lock);
	if ((ready & POLLOUT) && atomic_load_explicit(&qp->tx_blocked, memory_order_relaxed))
		retry_tx(qp);
	return any;
}

void rx_consume_ahead(struct stag_qp *qp)
{
	consume_all(qp);
}

void rx_flush(struct stag_qp *qp)
{
	struct ibv_wc wc = {
		.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->ibv.qp_num};
	struct rwqe *w;

	if (qp->rx && qp->rx->recv_open)
		complete_recv(qp, IBV_WC_WR_FLUSH_ERR, NULL, false);
	pthread_mutex_lock(&qp->rq_lock);
	while ((w = rq_peek(&qp->rq))) {
		wc.wr_id = w->wr_id;
		qp->rq.get++;
		cq_push(qp->rcq, &wc, false);
	}
	pthread_mutex_unlock(&qp->rq_lock);
}
