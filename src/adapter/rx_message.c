// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_message.c - the peer's messages: the beginning and the end of each kind.
 *
 * A segment begins when its header is received: it is checked. It ends when its payload is
 * placed and its CRC is right: it takes effect. The table at the end of this file has the
 * handlers of each opcode.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <errno.h>

#include "adapter/explain.h"
#include "adapter/face.h"
#include "adapter/misuse.h"
#include "adapter/rc.h"
#include "adapter/srq.h"
#include "adapter/store_peer.h"
#include "base/log.h"

#define SHORT_READ 4096

/* Messages of opcode RDMAP_ESCAPE, by enum rdmap_subtype. They are control messages. */
static const struct rx_message escapes[RDMAP_SUBTYPES];

static const struct rx_message *escape_of(const struct ddp_hdr *h)
{
	assert(rdmap_subtype(h->ulp) < RDMAP_SUBTYPES); /* rdmap_check() refused others */
	return &escapes[rdmap_subtype(h->ulp)];
}

/* If there is none, the queue pair hears of the next one. */
static bool take_receive(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct rwqe *w;

	if (qp->rc && rc_take_kept(qp))
		return true;
	if (qp->srq)
		return srq_take(qp->srq, rx->recv, qp->rc ? &qp->rc->waiter : &qp->recv_waiter);
	lock_acquire(&qp->rq_lock);
	w = rq_peek(&qp->rq);
	qp->starving = !w;
	if (w) {
		memcpy(rx->recv, w, sizeof(*w) + w->num_sge * sizeof(struct ibv_sge));
		qp->rq.get++;
	}
	lock_release(&qp->rq_lock);
	return w != NULL;
}

/* On roce0 a message has a longest length. before: bytes of it in earlier segments. */
static bool is_too_long(const struct stag_qp *qp, uint64_t before)
{
	return qp->rc && before + qp->rx->seg_len > ROCE_MAX_MSG;
}

/* RFC 5041 §5.3: checks an untagged segment's MSN and MO, and that a receive is posted for it. */
static bool begin_send(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	bool counts = rx->h.opcode != RDMAP_IMM && rx->h.opcode != RDMAP_IMM_SE;

	if (rx->h.msn != rx->msn[QN_SEND])
		return rx_stop_with(qp, FAULT_DDP_MSN_RANGE);
	if (rx->h.mo != (rx->recv_open ? rx->recv_off : 0))
		return rx_stop_with(qp, FAULT_DDP_INVALID_MO);
	if (!rx->recv_open) {
		if (!take_receive(qp)) {
			if (qp_is_uc(qp))
				return uc_drop(qp, "no receive is posted");
			if (qp->rc) {
				rc_begin_drop(qp);
				rx->dropped = true;
				return true;
			}
			rx->waits = rx_wait_for_receive(qp);
			if (rx->waits)
				return true;
			peer_misuse("no receive", qp->ibv.qp_num,
				    "qp %u: the peer's send number %u of at least %u bytes is "
				    "refused: no "
				    "receive is posted",
				    qp->ibv.qp_num, rx->h.msn, rx->seg_len);
			return rx_stop_logged(qp, FAULT_DDP_NO_BUFFER);
		}
		rx->recv_until = 0;
		rx->recv_open = true;
		rx->recv_off = 0;
	}
	if (is_too_long(qp, rx->recv_off))
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	if (counts && rx->seg_len > rx->recv->length - rx->recv_off) {
		if (qp_is_uc(qp))
			return uc_drop(qp, "the receive is too short");
		peer_misuse(
			"too long", qp->ibv.qp_num,
			"qp %u: the peer's send of at least %llu bytes is refused: the receive of "
			"wr_id 0x%llx has %u",
			qp->ibv.qp_num, (unsigned long long)rx->recv_off + rx->seg_len,
			(unsigned long long)rx->recv->wr_id, rx->recv->length);
		rx_complete_recv(qp, IBV_WC_LOC_LEN_ERR, NULL, false);
		return rx_stop_logged(qp, FAULT_DDP_TOO_LONG);
	}
	return true;
}

static bool begin_store_write(struct stag_qp *qp)
{
	enum outcome o = rx_store_begin(qp);

	qp->rx->on_store = true;
	qp->rx->waits = o == WAIT;
	return o != STOP;
}

/* Notes the region that a write goes to: the references to it are dropped before the segment ends. */
static void note_region(struct qp_rx *rx, const struct key_map *map)
{
	const struct key_slot *key = map->slot[0];
	struct key_slot *region = key_region(map);

	rx->into = (struct rx_into){
		.region = region,
		.stag = atomic_load_explicit(&region->stag, memory_order_relaxed),
		.life = region->life,
		.off = rx->h.to - key->base + (key->parent ? key->win_off : 0),
	};
}

/* Is the whole FPDU of this segment staged, so that all of its payload is placed before the next read? */
static bool is_all_staged(const struct qp_rx *rx)
{
	return !rx->pre_placed && rx_staged(rx) >= fpdu_len(rx->ulpdu_len);
}

/* Was all of the segment placed within the lease? A later response may imply that it was. */
static bool within_lease(struct stag_qp *qp)
{
	const struct rx_into *into = &qp->rx->into;
	bool lapsed;

	if (!into->region || !key_is_leased(into->region) ||
	    !key_hold_again(into->region, into->stag, into->life))
		return true;
	lapsed = key_has_lapsed(into->region);
	key_release(into->region);
	return !lapsed || rx_target_fault(qp, KEY_LAPSED);
}

/*
 * Checks the whole range before a byte of it is placed. Where the whole FPDU is staged (and its CRC checked) its payload
 * is placed next: the references stay held for that, and a deregistration waits for as long as a copy takes. Otherwise they are
 * dropped, because the peer may take its time with the rest, and each part is looked up again; and so is a leased
 * region, whose clock is read once more right before the copy.
 */
static bool begin_write(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct key_map *map = &rx->here;
	bool first = !rx->write_begun;
	enum key_fault f;

	if (first) {
		rx->write_begun = true;
		rx->write_len = 0;
	}
	rx->on_store = false;
	rx->into.region = NULL;
	if (is_too_long(qp, rx->write_len))
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	if (rx->seg_len == 0)
		return true; /* RFC 5041 §5.2: nothing to check */
	f = key_get(rx->h.stag, qp->pd, qp, rx->h.to, rx->seg_len, IBV_ACCESS_REMOTE_WRITE, map);
	if (f == KEY_ON_STORE)
		return begin_store_write(qp);
	if (f != KEY_OK && qp_is_uc(qp)) {
		key_refused(qp, rx->h.stag, f);
		return uc_drop(qp, "its key does not allow the write");
	}
	if (f != KEY_OK)
		return rx_target_fault(qp, f);
	if (first)
		shot_written(map->slot[0]);
	note_region(rx, map);
	if (!is_all_staged(rx) || key_is_leased(rx->into.region))
		key_put(map);
	return true;
}

static bool begin_read_response(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct wqe *w;

	if (qp->rtr_read_pending)
		return rx->seg_len == 0 || rx_stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	lock_acquire(&qp->tx_lock);
	w = qp_tx_oldest_read(qp);
	lock_release(&qp->tx_lock);
	rx->read = w;
	if (!w || (w->opcode != IBV_WR_RDMA_READ && w->opcode != STAG_WR_BARRIER))
		return rx_stop_with(qp, FAULT_RDMAP_OPCODE);
	if (w->length && w->num_sge && rx->h.stag != w->sge[0].lkey)
		return rx_stop_with(qp, FAULT_DDP_INVALID_STAG);
	if (w->length && rx->h.to != w->sge[0].addr + w->rx_off)
		return rx_stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	if (rx->seg_len > w->length - w->rx_off ||
	    (rx->h.last && rx->seg_len != w->length - w->rx_off))
		return rx_stop_with(qp, FAULT_DDP_BASE_BOUNDS);
	return true;
}

/* Messages of one segment on queues other than 0 come in turn. */
static bool check_turn(struct stag_qp *qp, enum ddp_qn qn)
{
	struct qp_rx *rx = qp->rx;

	if (rx->h.msn != rx->msn[qn])
		return rx_stop_with(qp, FAULT_DDP_MSN_RANGE);
	if (rx->h.mo)
		return rx_stop_with(qp, FAULT_DDP_INVALID_MO);
	return true;
}

static bool begin_request(struct stag_qp *qp)
{
	return check_turn(qp, QN_READ);
}

static bool begin_atomic_response(struct stag_qp *qp)
{
	return check_turn(qp, QN_ATOMIC);
}

/* A Terminate ends the stream, whatever it says. */
static bool begin_terminate(struct stag_qp *qp)
{
	return true;
}

/* A message other than a write may tell of earlier writes: those go to the mirrors first. */
static bool pass_mirrors(struct stag_qp *qp)
{
	enum outcome o = GO_ON;

	if (qp->rx->mirroring.kick.region || qp->rx->mirroring.gates.n)
		o = rx_mirror_pass(qp);
	qp->rx->waits = o == WAIT;
	return o != STOP;
}

/* Is the segment a part of a request of the peer, which is counted and may be dropped? */
static bool is_from_sq(const struct ddp_hdr *h)
{
	return h->opcode == RDMAP_ESCAPE ? escape_of(h)->from_sq : rx_messages[h->opcode].from_sq;
}

/* qp_access_flags are checked for each request, before any key. */
static bool may_do(struct stag_qp *qp)
{
	switch (qp->rx->h.opcode) {
	case RDMAP_WRITE:
		return rc_may(qp, IBV_ACCESS_REMOTE_WRITE, "write");
	case RDMAP_READ_REQ:
		return rc_may(qp, IBV_ACCESS_REMOTE_READ, "read");
	case RDMAP_ATOMIC_REQ:
		return rc_may(qp, IBV_ACCESS_REMOTE_ATOMIC, "atomic");
	default:
		return true;
	}
}

bool rx_begin_segment(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	rx->waits = false;
	if (qp_is_uc(qp) && !uc_has(rx->h.opcode)) /* nor has it answers, such as a NAK */
		return rc_break(qp);
	if (qp->rc) {
		rx->dropped = qp->rc->dropping && is_from_sq(&rx->h);
		if (rx->dropped)
			return true;
		if (!may_do(qp))
			return false;
		if (rx->dropped)
			return true;
	}
	if (rx->h.opcode != RDMAP_WRITE && !pass_mirrors(qp))
		return false;
	if (rx->waits)
		return true;
	if (rx->landing.len && rx->h.opcode != RDMAP_WRITE && !rx_store_land(qp))
		return false; /* a message between the segments of another */
	return rx_messages[rx->h.opcode].begin(qp);
}

/*
 * Ends the STag that the message names. An advertised STag can also be closed by a Send with
 * Invalidate, which is all that a standard peer has; a close ends nothing else.
 */
static int end_tag(struct stag_qp *qp, struct ibv_wc *wc)
{
	uint32_t tag = qp->rx->h.ulp;
	int err = shot_end(qp, tag, STAGDV_STAG_CLOSED, &wc->vendor_err);

	if (!err)
		wc->wc_flags |= STAGDV_WC_CLOSED;
	else if (err == -ENOENT && qp->rx->h.opcode != RDMAP_SEND_CLOSE)
		err = key_invalidate(tag, qp->pd, qp);
	if (err)
		shot_late(qp, tag);
	return err;
}

/* RFC 5040 §5.3: the STag is invalid before the receive completes. */
static bool invalidate_for_peer(struct stag_qp *qp, struct ibv_wc *wc)
{
	struct qp_rx *rx = qp->rx;
	int err = end_tag(qp, wc);

	if (err) {
		peer_misuse(__func__, qp->ibv.qp_num, "qp %u: the peer may not %s STag 0x%08x: %s",
			    qp->ibv.qp_num,
			    rx->h.opcode == RDMAP_SEND_CLOSE ? "close" : "invalidate", rx->h.ulp,
			    err == -EACCES ? "it is not this connection's"
					   : "it is not open, or no longer");
		rx->recv_off += rx->seg_len;
		wc->byte_len = rx->recv_off;
		wc->vendor_err = rx->h.ulp;
		rx_complete_recv(qp, IBV_WC_REM_INV_REQ_ERR, wc, false);
		return rx_stop_logged(
			qp, err == -EACCES ? FAULT_RDMAP_PROT_CANT_INV : FAULT_RDMAP_OP_CANT_INV);
	}
	wc->wc_flags |= IBV_WC_WITH_INV;
	wc->invalidated_rkey = rx->h.ulp;
	return true;
}

/* A request of the peer has been carried out. */
static void note_executed(struct stag_qp *qp)
{
	if (!qp->rc || qp_is_uc(qp))
		return;
	rc_executed(qp->rc);
	qp->rc->asked |= qp->rx->h.rsv & RDMAP_RSV_ASK;
}

/*
 * The message may answer one of ours, whose sender was preempted after the stream took the
 * bytes and before it pushed the completion. Programs (tgtd) rely on the order that any network
 * has: a send completes before its answer arrives.
 */
static void complete_message(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	if (atomic_load_explicit(&qp->progress.tx_sending, memory_order_acquire)) {
		lock_acquire(&qp->tx_lock);
		lock_release(&qp->tx_lock);
	}
	qp->rx->msn[QN_SEND]++;
	note_executed(qp);
	rx_complete_recv(qp, IBV_WC_SUCCESS, wc, solicited);
}

static bool is_solicited(const struct ddp_hdr *h)
{
	switch (rx_messages[h->opcode].event) {
	case EVENT_NEVER:
		return false;
	case EVENT_ALWAYS:
		return true;
	case EVENT_BY_BIT:
		break;
	}
	return h->rsv & RDMAP_RSV_SE;
}

static bool report_immediate(struct stag_qp *qp, struct ibv_wc *wc)
{
	wc->wc_flags |= IBV_WC_WITH_IMM;
	wc->imm_data = htobe32(qp->rx->h.ulp);
	return true;
}

static bool report_advertised(struct stag_qp *qp, struct ibv_wc *wc)
{
	wc->wc_flags |= STAGDV_WC_ADVERTISED;
	wc->invalidated_rkey = qp->rx->h.ulp;
	return true;
}

static bool end_send(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	const struct rx_message *m = &rx_messages[rx->h.opcode];
	struct ibv_wc wc = {.opcode = IBV_WC_RECV};

	if (rx->h.last && m->use_ulp && !m->use_ulp(qp, &wc))
		return false;
	rx->recv_off += rx->seg_len;
	if (!rx->h.last)
		return true;
	wc.byte_len = rx->recv_off;
	complete_message(qp, &wc, is_solicited(&rx->h));
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
	complete_message(qp, &wc, is_solicited(&rx->h));
	return true;
}

static bool end_write(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;

	if ((rx->on_store || rx->landing.len) && !rx_store_end(qp))
		return false;
	if (!within_lease(qp) || rx_mirror_write(qp) == STOP)
		return false;
	rx->write_len += rx->seg_len;
	if (rx->h.last) {
		rx->last_write_len = (uint32_t)rx->write_len;
		rx->write_begun = false;
		if (!(rx->h.rsv & RDMAP_RSV_IMM)) /* with the immediate, it is one request */
			note_executed(qp);
	}
	return true;
}

/* Handles the whole response to the oldest of our requests. */
static bool end_response(struct stag_qp *qp)
{
	bool hold = rx_must_hold(qp);

	if (hold && !rx_hold_read(qp))
		return false;
	lock_acquire(&qp->tx_lock);
	if (!hold)
		qp_tx_read_done(qp);
	qp->rx->kick_tx |= qp_tx_pending(qp) || atomic_load(&qp->state) == QP_CLOSING;
	lock_release(&qp->tx_lock);
	return true;
}

static bool end_read_response(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;

	if (qp->rtr_read_pending) {
		qp->rtr_read_pending = false;
		return true;
	}
	rx->read->rx_off += rx->seg_len;
	return !rx->h.last || end_response(qp);
}

/* Enqueues the response, if there was room: more than IRD requests are refused. */
static bool end_request(struct stag_qp *qp, bool room, struct peer_request *store)
{
	if (!room) {
		peer_drop(store);
		return rx_stop_with(qp, FAULT_DDP_NO_BUFFER);
	}
	if (store)
		peer_begin(store);
	note_executed(qp);
	qp->rx->msn[QN_READ]++;
	qp->rx->kick_tx = true;
	return true;
}

/* A peer that makes a small request usually waits for it, and then makes another. */
static void note_size(uint32_t size)
{
	if (size <= SHORT_READ)
		engine_note_asked();
}

static bool refuse_request(struct stag_qp *qp, const char *what, const struct key_access *a,
			   enum key_fault f)
{
	log_refused_access(qp, what, a, f);
	key_refused(qp, a->stag, f);
	return rx_stop_logged(qp, rx_read_fault(f));
}

static bool end_read_request(struct stag_qp *qp, const uint8_t *payload)
{
	struct rdmap_read_req r;
	struct key_map map = {.n = 0};
	struct peer_request *store = NULL;
	uint64_t gate = rx_gate(qp);
	enum key_fault f = KEY_OK;
	bool room;

	rdmap_get_read_req(payload, &r);
	if (qp->rc && r.size > ROCE_MAX_MSG)
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	if (r.size)
		f = key_get(r.src_stag, qp->pd, qp, r.src_to, r.size, IBV_ACCESS_REMOTE_READ, &map);
	if (f == KEY_ON_STORE)
		f = rx_store_read(qp, &r, &store, &gate);
	if (f != KEY_OK)
		return refuse_request(
			qp, "read",
			&(struct key_access){r.src_stag, r.src_to, r.size, IBV_ACCESS_REMOTE_READ},
			f);
	note_size(r.size);
	if (map.slot[0])
		shot_read(map.slot[0]);
	key_put(&map);
	lock_acquire(&qp->tx_lock);
	room = qp_tx_respond_read(qp, &r, store, gate);
	lock_release(&qp->tx_lock);
	return end_request(qp, room, store);
}

static bool is_aligned_word(enum key_fault f, const struct key_map *map)
{
	return f == KEY_OK && map->n == 1 &&
	       (uintptr_t)map->iov[0].iov_base % sizeof(uint64_t) == 0;
}

static bool end_atomic_request(struct stag_qp *qp, const uint8_t *payload)
{
	struct rdmap_atomic_req r;
	struct peer_request *store = NULL;
	uint64_t gate = rx_gate(qp);
	struct key_map map;
	enum key_fault f;
	bool room, aligned;

	rdmap_get_atomic_req(payload, &r);
	if (r.op != RDMAP_FETCH_ADD && r.op != RDMAP_CMP_SWAP)
		return rx_stop_with(qp, FAULT_RDMAP_OP_OTHER);
	if (qp->rc && r.to % sizeof(uint64_t)) /* before any look at the key */
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	f = key_get(r.stag, qp->pd, qp, r.to, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC, &map);
	aligned = f == KEY_ON_STORE ? r.to % sizeof(uint64_t) == 0 : is_aligned_word(f, &map);
	if (f == KEY_ON_STORE && aligned)
		f = rx_store_atomic(qp, &r, &store);
	if (f != KEY_OK && f != KEY_ON_STORE)
		return refuse_request(qp, "atomic",
				      &(struct key_access){r.stag, r.to, sizeof(uint64_t),
							   IBV_ACCESS_REMOTE_ATOMIC},
				      f);
	key_put(&map);
	if (!aligned)
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	note_size(sizeof(uint64_t));
	lock_acquire(&qp->tx_lock);
	room = qp_tx_respond_atomic(qp, &r, store, gate);
	lock_release(&qp->tx_lock);
	return end_request(qp, room, store);
}

/*
 * Writes to memory have been placed, and last as long as the memory does; writes to storage are
 * flushed by the lane.
 */
static bool end_flush_request(struct stag_qp *qp, const uint8_t *payload)
{
	struct rdmap_flush_req r;
	struct rdmap_read_req answer = {.sink_stag = RTR_STAG};
	struct peer_request *store = NULL;
	struct key_map map;
	enum key_fault f;
	bool room;

	rdmap_get_flush_req(payload, &r);
	if (r.flags & RDMAP_FLUSH_REGION)
		r.to = r.length = 0;
	f = key_get(r.stag, qp->pd, qp, r.to, r.length, 0, &map);
	if (f == KEY_BOUNDS && (r.flags & RDMAP_FLUSH_REGION))
		f = KEY_OK; /* the whole region is meant; its address does not matter */
	if (f == KEY_ON_STORE)
		f = rx_store_check(qp, &r);
	if (f == KEY_OK && qp->storage.peer && (r.flags & RDMAP_FLUSH_DURABLE))
		f = rx_store_flush(qp, &store);
	if (f != KEY_OK)
		return refuse_request(qp, "flush", &(struct key_access){r.stag, r.to, r.length, 0},
				      f);
	key_put(&map);
	lock_acquire(&qp->tx_lock);
	room = qp_tx_respond_read(qp, &answer, store, rx_gate(qp));
	lock_release(&qp->tx_lock);
	return end_request(qp, room, store);
}

static bool end_atomic_response(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct rdmap_atomic_resp r;
	struct key_map map;
	struct wqe *w;

	rdmap_get_atomic_resp(payload, &r);
	lock_acquire(&qp->tx_lock);
	w = qp_tx_oldest_read(qp);
	lock_release(&qp->tx_lock);
	if (!w || w->opcode == IBV_WR_RDMA_READ || w->opcode == STAG_WR_BARRIER ||
	    (r.id & qp->sq.mask) != (uint32_t)(w - qp->sq.wqe))
		return rx_stop_with(qp, FAULT_RDMAP_OPCODE);
	rx->msn[QN_ATOMIC]++;
	rx->read = w;
	if (rx_sge_target(qp, w->sge, w->num_sge, 0, sizeof(r.value), &map) != KEY_OK ||
	    map.len != sizeof(r.value)) {
		rx->h.opcode = RDMAP_READ_RESP; /* fails like the sink of a read */
		return rx_stop_locally(qp);
	}
	rx_scatter(&map, (const uint8_t *)&r.value);
	key_put(&map);
	return end_response(qp);
}

/* A control message of roce0: its MSN is an argument. */
static bool begin_word(struct stag_qp *qp)
{
	return true;
}

static const struct rx_message escapes[RDMAP_SUBTYPES] = {
	[RDMAP_SUB_FLUSH] = {.begin = begin_request,
			     .end = end_flush_request,
			     .is_request = true,
			     .from_sq = true},
	[RDMAP_SUB_ACK] = {.begin = begin_word, .end = rc_end_ack},
	[RDMAP_SUB_NAK] = {.begin = begin_word, .end = rc_end_nak},
	[RDMAP_SUB_GO] = {.begin = begin_word, .end = rc_end_go},
	[RDMAP_SUB_RESUME] = {.begin = begin_word, .end = rc_end_resume},
};

static bool begin_escape(struct stag_qp *qp)
{
	return escape_of(&qp->rx->h)->begin(qp);
}

static bool end_escape(struct stag_qp *qp, const uint8_t *payload)
{
	return escape_of(&qp->rx->h)->end(qp, payload);
}

/* Is the Terminate about a message that awaits a response, or may it be? */
static bool is_about_request(const struct terminate *t)
{
	uint8_t opcode = t->ddp[1] & 0x0f, subtype = rdmap_subtype(get_be32(t->ddp + 2));

	if (!t->has_ddp)
		return true;
	if (opcode == RDMAP_ESCAPE)
		return subtype < RDMAP_SUBTYPES && escapes[subtype].is_request;
	return rx_messages[opcode].is_request;
}

/*
 * Returns the request that a Terminate is about. If it does not say, that is the oldest; if it
 * does, it may be a later one: a peer may refuse it before it answers the earlier ones.
 */
static struct wqe *refused_request(struct stag_qp *qp, const struct terminate *t)
{
	struct ddp_hdr h = {0};

	assert(qp_tx_locked(qp));
	if (!t->has_ddp)
		return qp_tx_oldest_read(qp);
	return ddp_decode(t->ddp, &h).set ? NULL : qp_tx_read_by_msn(qp, h.msn);
}

/* Returns the status of the request that the peer's Terminate is about. */
static enum ibv_wc_status refused_status(const struct terminate *t)
{
	if (t->fault.layer != FAULT_LAYER_RDMAP || !is_about_request(t))
		return IBV_WC_SUCCESS; /* about no request of ours: all are flushed */
	if (t->fault.etype == 1)
		return IBV_WC_REM_ACCESS_ERR;
	return t->fault.etype == 2 ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS;
}

static bool end_terminate(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t = {.fault = FAULT_MPA_LOST};
	char why[EXPLAIN_ROOM];
	bool swapped;
	struct wqe *w;

	qp->stats.counters.terminates_received++;
	if (terminate_decode(payload, rx->seg_len, &t, &swapped))
		peer_misuse(__func__, qp->ibv.qp_num,
			    "qp %u: the peer sent a Terminate of %u bytes", qp->ibv.qp_num,
			    rx->seg_len);
	else
		peer_misuse(__func__, qp->ibv.qp_num,
			    "qp %u: the peer terminated the connection, it refused %s%s",
			    qp->ibv.qp_num, explain_terminate(&t, why),
			    swapped ? " (sent with swapped bits)" : "");
	lock_acquire(&qp->tx_lock);
	w = refused_status(&t) != IBV_WC_SUCCESS ? refused_request(qp, &t) : NULL;
	if (w)
		w->status = refused_status(&t);
	lock_release(&qp->tx_lock);
	rx_end(qp, &(struct rx_end){.kind = END_TERMINATED, .event = IBV_EVENT_QP_FATAL});
	return false;
}

/* payload: of a control message, in the stage; others were placed. */
bool rx_end_segment(struct stag_qp *qp, const uint8_t *payload)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	qp->stats.counters.rx_fpdus++;
	qp->stats.counters.rx_payload += rx->seg_len;
	qp->stats.counters.rx_msgs += rx->h.last;
	if (rx->dropped) {
		if (qp_is_uc(qp))
			uc_dropped(qp);
		return true;
	}
	return rx_messages[rx->h.opcode].end(qp, payload);
}

#define SEND .begin = begin_send, .end = end_send, .target = rx_recv_target, .from_sq = true

const struct rx_message rx_messages[RDMAP_OPCODES] = {
	[RDMAP_WRITE] = {.begin = begin_write,
			 .end = end_write,
			 .target = rx_write_target,
			 .from_sq = true},
	[RDMAP_READ_REQ] = {.begin = begin_request,
			    .end = end_read_request,
			    .is_request = true,
			    .from_sq = true},
	[RDMAP_READ_RESP] = {.begin = begin_read_response,
			     .end = end_read_response,
			     .target = rx_response_target},
	[RDMAP_SEND] = {SEND},
	[RDMAP_SEND_INV] = {SEND, .use_ulp = invalidate_for_peer},
	[RDMAP_SEND_SE] = {SEND, .event = EVENT_ALWAYS},
	[RDMAP_SEND_SE_INV] = {SEND, .use_ulp = invalidate_for_peer, .event = EVENT_ALWAYS},
	[RDMAP_TERMINATE] = {.begin = begin_terminate, .end = end_terminate},
	[RDMAP_IMM] = {.begin = begin_send, .end = end_immediate, .from_sq = true},
	[RDMAP_IMM_SE] = {.begin = begin_send,
			  .end = end_immediate,
			  .event = EVENT_ALWAYS,
			  .from_sq = true},
	[RDMAP_ATOMIC_REQ] = {.begin = begin_request,
			      .end = end_atomic_request,
			      .is_request = true,
			      .from_sq = true},
	[RDMAP_ATOMIC_RESP] = {.begin = begin_atomic_response, .end = end_atomic_response},
	[RDMAP_SEND_CLOSE] = {SEND, .use_ulp = invalidate_for_peer, .event = EVENT_BY_BIT},
	[RDMAP_SEND_ADVERTISE] = {SEND, .use_ulp = report_advertised, .event = EVENT_BY_BIT},
	[RDMAP_SEND_IMM] = {SEND, .use_ulp = report_immediate, .event = EVENT_BY_BIT},
	[RDMAP_ESCAPE] = {.begin = begin_escape, .end = end_escape},
};
