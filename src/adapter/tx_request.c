// SPDX-License-Identifier: BSD-2-Clause
/*
 * tx_request.c - turns work requests into FPDUs.
 *
 * Sends and writes become segments; reads, atomics and flushes become requests to the peer.
 */
#include "adapter/qp_tx.h"

#include <assert.h>

#include "adapter/explain.h"
#include "adapter/rc.h"

/* Moves on to the SGE that has the next byte. */
static const struct ibv_sge *next_sge(struct qp_tx *tx, const struct wqe *w)
{
	while (tx->sge_off == w->sge[tx->sge].length) {
		tx->sge++;
		tx->sge_off = 0;
	}
	return &w->sge[tx->sge];
}

/*
 * Returns how many of the next want bytes to copy into the batch; 0: refer to them. Referring
 * to a short piece costs more than copying it: here, in the CRC and in the kernel.
 */
static size_t share_to_copy(const struct qp_tx *tx, const struct wqe *w, size_t want)
{
	uint32_t pieces = w->num_sge - tx->sge;

	if (want <= TX_COPY)
		return want;
	if (pieces < 2 || (w->length - tx->off) / pieces > TX_PIECE)
		return 0;
	return want < TX_GATHER ? want : TX_GATHER;
}

/* Copies at most *len bytes of an SGE, whose key the map may hold already. */
static enum key_fault copy_sge(struct stag_qp *qp, const struct wqe *w, uint8_t *to, size_t *len,
			       struct key_map *map)
{
	const struct ibv_sge *s = &w->sge[qp->tx->sge];
	uint64_t addr = s->addr + qp->tx->sge_off;
	const uint8_t *from = key_near(map, s->lkey, addr, *len);
	enum key_fault fault;

	if (from) {
		memcpy(to, from, *len);
		return KEY_OK;
	}
	key_put(map);
	fault = tx_key_get(qp, s->lkey, NULL, addr, *len, 0, map);
	if (fault != KEY_OK)
		return fault;
	tx_copy_pieces(to, map);
	*len = map->len;
	return KEY_OK;
}

/* Copies the next want bytes of the message. */
static enum key_fault gather_copy(struct stag_qp *qp, struct wqe *w, size_t want, struct fpdu *f)
{
	struct qp_tx *tx = qp->tx;
	uint8_t *to = fpdu_own_payload(tx, f, want);
	struct key_map map = {.n = 0};
	size_t done;

	/* Prefetches scattered memory, all of it at once. */
	for (uint32_t i = tx->sge; i < w->num_sge; i++)
		__builtin_prefetch((void *)(uintptr_t)w->sge[i].addr);
	for (; want; want -= done, to += done) {
		const struct ibv_sge *s = next_sge(tx, w);
		size_t part = s->length - tx->sge_off;
		enum key_fault fault;

		done = part < want ? part : want;
		fault = copy_sge(qp, w, to, &done, &map);
		if (fault != KEY_OK)
			return fault;
		tx->sge_off += (uint32_t)done;
	}
	f->pieces = map.slot[0] ? (int)map.slot[0]->nseg : 0; /* used for a single SGE only */
	key_put(&map);
	return KEY_OK;
}

/* Prefetches the next message if it is short: its CRC is computed after this one's. */
static void fetch_next_message(const struct stag_qp *qp)
{
	const struct wqe *w = &qp->sq.wqe[(qp->sq.tx + 1) & qp->sq.mask];

	if (!qp->link.crc || qp->sq.tx + 1 == qp->sq.put || w->num_sge != 1 ||
	    w->sge[0].length > TX_FETCH || wqe_is_local(w) || wqe_awaits_response(w))
		return;
	for (uint32_t i = 0; i < w->sge[0].length; i += 64)
		__builtin_prefetch((void *)(uintptr_t)(w->sge[0].addr + i));
}

/*
 * Adds a piece of payload to the batch. On roce0, which has programs that change what they are sending, the CRC needs a
 * copy. Returns false if there is no room for one.
 */
static bool add_piece(struct stag_qp *qp, struct key_map *map)
{
	struct qp_tx *tx = qp->tx;
	uint8_t *copy;

	if (!qp->rc || !qp->link.crc) {
		for (unsigned i = 0; i < map->n; i++)
			tx_foreign_bytes(tx, &map->iov[i]);
		tx_keep_refs(tx, map, FOR_US);
		return true;
	}
	copy = tx_bounce_room(tx, map->len);
	if (copy) {
		tx_copy_pieces(copy, map);
		tx_foreign_bytes(tx, &(struct iovec){copy, map->len});
	}
	key_put(map);
	return copy;
}

/* Refers to up to want bytes; fewer if there is no room for more pieces, or no hazard cell. */
static enum key_fault gather_refs(struct stag_qp *qp, struct wqe *w, size_t want, struct fpdu *f)
{
	struct qp_tx *tx = qp->tx;
	int pieces = tx->n;

	f->flat = false;
	fetch_next_message(qp);
	while (want && tx->n - pieces + 8 <= TX_FPDU_IOV) {
		const struct ibv_sge *s = next_sge(tx, w);
		size_t part = s->length - tx->sge_off;
		struct key_map map;
		enum key_fault fault;

		if (part > want)
			part = want;
		fault = tx_key_get(qp, s->lkey, NULL, s->addr + tx->sge_off, part, 0, &map);
		if (fault == KEY_BUSY && f->payload)
			break;
		if (fault != KEY_OK)
			return fault;
		f->pieces += (int)map.slot[0]->nseg;
		if (!add_piece(qp, &map))
			return KEY_BUSY;
		f->payload += map.len;
		tx->sge_off += (uint32_t)map.len;
		want -= map.len;
	}
	return KEY_OK;
}

/* Returns KEY_BUSY if it has to wait; any other fault is a bad SGE's. */
static enum key_fault gather_payload(struct stag_qp *qp, struct wqe *w, size_t want, struct fpdu *f)
{
	size_t copy = share_to_copy(qp->tx, w, want);
	enum key_fault fault =
		copy || !want ? gather_copy(qp, w, copy, f) : gather_refs(qp, w, want, f);

	if (fault != KEY_OK && fault != KEY_BUSY)
		log_bad_sge(qp, w->wr_id, qp->tx->sge, "a request", &w->sge[qp->tx->sge], 0, fault);
	return fault;
}

static void inline_payload(struct qp_tx *tx, const struct wqe *w, size_t want, struct fpdu *f)
{
	if (want <= TX_COPY) {
		memcpy(fpdu_own_payload(tx, f, want), w->inline_data + tx->off, want);
		return;
	}
	f->flat = false;
	f->payload = want;
	tx_foreign_bytes(tx, &(struct iovec){w->inline_data + tx->off, want});
}

static enum rdmap_op send_opcode(const struct wqe *w)
{
	bool se = w->send_flags & IBV_SEND_SOLICITED;

	switch (w->opcode) {
	case IBV_WR_SEND_WITH_INV:
		return se ? RDMAP_SEND_SE_INV : RDMAP_SEND_INV;
	case IBV_WR_SEND_WITH_IMM:
		return RDMAP_SEND_IMM;
	case STAG_WR_ADVERTISE:
		return RDMAP_SEND_ADVERTISE;
	case STAG_WR_CLOSE:
		return RDMAP_SEND_CLOSE;
	default:
		return se ? RDMAP_SEND_SE : RDMAP_SEND;
	}
}

static struct ddp_hdr request_header(const struct stag_qp *qp, const struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h;

	if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return (struct ddp_hdr){.tagged = true,
					.opcode = RDMAP_WRITE,
					.stag = w->rkey,
					.to = w->remote_addr + tx->off};
	h = tx_untagged(tx, send_opcode(w), QN_SEND);
	h.mo = tx->off;
	switch (w->opcode) {
	case IBV_WR_SEND_WITH_INV:
		h.ulp = w->imm_or_inv;
		break;
	case IBV_WR_SEND_WITH_IMM:
		h.ulp = be32toh(w->imm_or_inv);
		h.rsv = w->send_flags & IBV_SEND_SOLICITED ? RDMAP_RSV_SE : 0;
		break;
	case STAG_WR_ADVERTISE:
	case STAG_WR_CLOSE:
		h.ulp = w->imm_or_inv;
		h.rsv = w->send_flags & IBV_SEND_SOLICITED ? RDMAP_RSV_SE : 0;
		rdmap_shot_to_wire(&h, qp->link.one_shot);
		break;
	}
	return h;
}

/* Marks the request as framed completely. */
static void request_framed(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;

	tx_set_open(tx, OPEN_NONE);
	tx->off = 0;
	tx->sge = tx->sge_off = 0;
	if (qp->rc)
		rc_framed(qp, w);
	w->tx_end = tx->queued + tx->bytes; /* tx->queued: offset of the batch's beginning */
	qp->sq.tx++;
}

static void frame_immediate(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(
		tx, w->send_flags & IBV_SEND_SOLICITED ? RDMAP_IMM_SE : RDMAP_IMM, QN_SEND);
	struct fpdu f = fpdu_begin(tx, &h);
	uint8_t *p = fpdu_own_payload(tx, &f, RDMAP_IMM_LEN);

	if (qp->rc && rc_asks(qp, w))
		h.rsv |= RDMAP_RSV_ASK;
	memset(p, 0, RDMAP_IMM_LEN);
	memcpy(p, &w->imm_or_inv, sizeof(w->imm_or_inv)); /* already in network order */
	fpdu_end(qp, &f, &h);
	tx->msn[QN_SEND]++;
	tx->imm_due = false;
	request_framed(qp, w);
}

/* Returns the reserved bits of a request's last segment. */
static uint8_t last_bits(struct stag_qp *qp, const struct wqe *w)
{
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return RDMAP_RSV_IMM;
	return rc_asks(qp, w) ? RDMAP_RSV_ASK : 0;
}

/*
 * Frames a segment of a send or a write. Returns false if that is impossible now or
 * (bad_request) ever.
 */
static bool frame_segment(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = request_header(qp, w);
	struct mark before = tx_mark(tx);
	uint32_t sge = tx->sge, sge_off = tx->sge_off;
	size_t want = w->length - tx->off;
	enum key_fault fault = KEY_OK;
	struct fpdu f;

	tx_sum_header(qp, &h, want);
	f = fpdu_begin(tx, &h);
	if (want > tx->mulpdu - f.hdr_len)
		want = tx->mulpdu - f.hdr_len;
	if (w->inline_data)
		inline_payload(tx, w, want, &f);
	else
		fault = gather_payload(qp, w, want, &f);
	if (fault != KEY_OK) {
		tx->bad_request = fault != KEY_BUSY;
		tx_back_to(tx, &before);
		tx->sge = sge;
		tx->sge_off = sge_off;
		return false;
	}
	tx->off += (uint32_t)f.payload;
	h.last = tx->off == w->length;
	if (qp->rc && h.last)
		h.rsv |= last_bits(qp, w);
	if (h.tagged && w->num_sge <= 1 && f.pieces <= 1)
		tx_promise_full(qp, &h, w->length - tx->off);
	fpdu_end(qp, &f, &h);
	tx_set_open(tx, OPEN_SQ);
	if (!h.last)
		return true;
	if (!h.tagged)
		tx->msn[QN_SEND]++;
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		tx->imm_due = true;
	else
		request_framed(qp, w);
	return true;
}

static void frame_read(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(tx, RDMAP_READ_REQ, QN_READ);
	struct fpdu f = fpdu_begin(tx, &h);
	struct rdmap_read_req r = {
		.sink_stag = w->num_sge ? w->sge[0].lkey : RTR_STAG,
		.sink_to = w->num_sge ? w->sge[0].addr : 0,
		.size = w->length,
		.src_stag = w->rkey,
		.src_to = w->remote_addr,
	};

	rdmap_put_read_req(fpdu_own_payload(tx, &f, RDMAP_READ_REQ_LEN), &r);
	fpdu_end(qp, &f, &h);
}

/*
 * Sends IBTA's FLUSH to a peer that has it. For any other peer a barrier is a read behind the
 * writes (frame_read()).
 */
static void frame_flush(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(tx, RDMAP_ESCAPE, QN_READ);
	struct fpdu f = fpdu_begin(tx, &h);
	struct rdmap_flush_req r = {
		.flags = RDMAP_FLUSH_VISIBLE | RDMAP_FLUSH_DURABLE | RDMAP_FLUSH_REGION,
		.stag = w->rkey,
	};

	h.ulp = rdmap_escape_ulp(RDMAP_SUB_FLUSH);
	rdmap_put_flush_req(fpdu_own_payload(tx, &f, RDMAP_FLUSH_REQ_LEN), &r);
	fpdu_end(qp, &f, &h);
}

static void frame_atomic(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(tx, RDMAP_ATOMIC_REQ, QN_READ);
	struct fpdu f = fpdu_begin(tx, &h);
	bool swap = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct rdmap_atomic_req r = {
		.op = swap ? RDMAP_CMP_SWAP : RDMAP_FETCH_ADD,
		.id = qp->sq.tx,
		.stag = w->rkey,
		.to = w->remote_addr,
		.data = swap ? w->swap : w->compare_add,
		.mask = swap ? UINT64_MAX : 0,
		.compare = swap ? w->compare_add : 0,
		.compare_mask = UINT64_MAX,
	};

	rdmap_put_atomic_req(fpdu_own_payload(tx, &f, RDMAP_ATOMIC_REQ_LEN), &r);
	fpdu_end(qp, &f, &h);
}

/*
 * Is the last of the program's requests in flight a barrier? The read that confirms forwards
 * does not count.
 */
static bool behind_barrier(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;
	uint32_t last = tx->orq.put - 1;

	if (tx_is_ask(qp, tx->orq.at[last % STAG_MAX_RD_ATOM]))
		last--;
	return tx->orq.at[last % STAG_MAX_RD_ATOM]->opcode == STAG_WR_BARRIER;
}

/*
 * May the next request go now? A fence waits for all reads, every request for a barrier, a read
 * for room under ORD.
 */
bool tx_request_may_go(const struct stag_qp *qp, const struct wqe *w)
{
	uint32_t under_way = qp->tx->orq.put - qp->tx->orq.get;
	uint32_t of_program = under_way - tx_is_asking(qp);

	assert(qp_tx_locked(qp));
	/* InfiniBand: an invalidation waits for all requests before it. */
	if (qp->rc && w->opcode == IBV_WR_LOCAL_INV && qp->sq.get != qp->sq.tx)
		return false;
	if (of_program && ((w->send_flags & IBV_SEND_FENCE) || behind_barrier(qp)))
		return false;
	return !wqe_awaits_response(w) || under_way < qp->link.ord;
}

void tx_await(struct stag_qp *qp, struct wqe *w)
{
	assert(qp_tx_locked(qp));
	qp->tx->orq.at[qp->tx->orq.put++ % STAG_MAX_RD_ATOM] = w;
}

bool tx_frame_request(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];

	assert(qp_tx_locked(qp));
	if (tx->imm_due) {
		frame_immediate(qp, w);
		return true;
	}
	if (!wqe_awaits_response(w))
		return frame_segment(qp, w);
	if (w->opcode == STAG_WR_BARRIER && (qp->link.caps & MPA_EXT_FLUSH))
		frame_flush(qp, w);
	else if (w->opcode == IBV_WR_RDMA_READ || w->opcode == STAG_WR_BARRIER)
		frame_read(qp, w);
	else
		frame_atomic(qp, w);
	tx->msn[QN_READ]++;
	tx_await(qp, w);
	request_framed(qp, w);
	return true;
}
