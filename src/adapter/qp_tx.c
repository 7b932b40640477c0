// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_tx.c - the sending side of a queue pair: work requests and responses to
 * the peer's requests become FPDUs, and FPDUs bytes in the stream's hands.
 *
 * FPDUs are gathered into a batch: headers, CRCs and short payloads lie in a
 * buffer of the batch, long payloads stay in the program's memory. One call
 * sends a batch. Where the stream takes only a part, the batch waits. While it
 * waits it holds no reference to a key: before the rest is sent they are
 * taken again, so that a region can be deregistered at any time.
 */
#include "adapter/adapter.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#define TX_IOV	     128
#define TX_FPDU_IOV  24		     /* pieces of payload of one FPDU, at most */
#define TX_BUF	     16384	     /* headers, CRCs, short payloads of a batch */
#define TX_COPY	     1024	     /* a payload up to this is copied rather than gathered */
#define TX_FPDU_BUF  (TX_COPY + 128) /* what one FPDU may take of the buffer */
#define TX_BATCH     (1 << 20)	     /* bytes */
#define TX_BATCH_CRC (1 << 19)	     /* the same where a CRC reads them first: keep them in cache */
#define TX_BOUNCE    (2 * 65536)
#define TX_RUN	     8 /* batches in one go: who called has other things to do */
#define RTR_STAG     1

struct tx_ref { /* memory that the batch points to */
	struct key_slot *slot;
	uint32_t stag;
};

/* The peer's read or atomic that waits for its answer. */
struct response {
	bool is_atomic;
	union {
		struct rdmap_read_req read;
		struct rdmap_atomic_req atomic;
	};
	uint32_t off; /* of a read: bytes framed so far */
};

enum tx_open { OPEN_NONE, OPEN_SQ, OPEN_RESPONSE }; /* whose message is begun and not ended */

struct qp_tx {
	/* the batch */
	struct iovec iov[TX_IOV];
	int n, cur;
	struct tx_ref ref[TX_IOV];
	unsigned n_ref;
	bool refs_held;
	uint32_t buf_used, bytes;
	uint8_t buf[TX_BUF];
	uint8_t *bounce; /* copies of read data under CRC: the memory may change meanwhile */
	uint32_t bounce_used;

	uint64_t queued, sent; /* stream offsets: framed; taken by the stream */
	uint32_t sent_idx;     /* SQ index: all before is sent */
	unsigned mulpdu;
	uint32_t msn[QN_COUNT];

	enum tx_open open;
	bool response_next; /* turns, where both have something */
	uint32_t off;	    /* of the SQ's open message: bytes framed */
	bool imm_due;	    /* the write is out, its immediate is not */
	uint32_t sge, sge_off;

	struct response *irq;
	uint32_t irq_size, irq_put, irq_get;
	uint32_t irq_mask;		/* entries - 1: put and get may wrap around */
	uint32_t orq[STAG_MAX_RD_ATOM]; /* SQ indices of reads and atomics under way */
	uint32_t orq_put, orq_get;

	bool held; /* nothing may be sent yet */
	bool rtr_due;
	bool closing; /* FIN when all is out */
	bool fin_sent;
	bool dead;	  /* the stream refuses, or the last words are spoken */
	bool bad_request; /* the next request cannot be framed: it fails when the batch is out */
	struct wire_fault response_fault; /* a response cannot be given */

	uint8_t *marked; /* an FPDU flat, and again with markers */
};

/* ---- life ---- */

int qp_tx_init(struct stag_qp *qp)
{
	struct qp_tx *tx = calloc(1, sizeof(*tx));
	unsigned mulpdu;

	if (!tx)
		return -ENOMEM;
	/* A read that opens the stream does not count, whatever the IRD. */
	tx->irq_size = qp->link.ird + (qp->link.p2p && !qp->link.initiator);
	while (tx->irq_mask + 1 < tx->irq_size)
		tx->irq_mask = tx->irq_mask * 2 + 1;
	tx->irq = calloc(tx->irq_mask + 1, sizeof(*tx->irq));
	if (!tx->irq)
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
	free(tx->irq);
	free(tx);
	return -ENOMEM;
}

static void refs_put(struct qp_tx *tx)
{
	if (!tx->refs_held)
		return;
	for (unsigned i = 0; i < tx->n_ref; i++)
		key_release(tx->ref[i].slot);
	tx->refs_held = false;
}

void qp_tx_free(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (!tx)
		return;
	refs_put(tx);
	free(tx->irq);
	free(tx->bounce);
	free(tx->marked);
	free(tx);
	qp->tx = NULL;
}

unsigned qp_tx_mulpdu(const struct stag_qp *qp)
{
	return qp->tx ? qp->tx->mulpdu : 0;
}

/* ---- pieces of a batch ---- */

struct mark { /* where a batch was, to go back to */
	int n;
	size_t last_len;
	unsigned n_ref;
	uint32_t buf_used, bytes, bounce_used;
};

static struct mark mark(const struct qp_tx *tx)
{
	return (struct mark){
		.n = tx->n,
		.last_len = tx->n ? tx->iov[tx->n - 1].iov_len : 0,
		.n_ref = tx->n_ref,
		.buf_used = tx->buf_used,
		.bytes = tx->bytes,
		.bounce_used = tx->bounce_used,
	};
}

static void back_to(struct qp_tx *tx, const struct mark *m)
{
	while (tx->n_ref > m->n_ref)
		key_release(tx->ref[--tx->n_ref].slot);
	tx->n = m->n;
	if (tx->n)
		tx->iov[tx->n - 1].iov_len = m->last_len;
	tx->buf_used = m->buf_used;
	tx->bytes = m->bytes;
	tx->bounce_used = m->bounce_used;
}

/* The next len bytes of the batch's own buffer, as the next bytes of the stream. */
static uint8_t *own_bytes(struct qp_tx *tx, size_t len)
{
	uint8_t *p = tx->buf + tx->buf_used;
	struct iovec *last = tx->n ? &tx->iov[tx->n - 1] : NULL;

	assert(len <= TX_BUF - tx->buf_used);
	tx->buf_used += (uint32_t)len;
	tx->bytes += (uint32_t)len;
	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += len;
	else
		tx->iov[tx->n++] = (struct iovec){p, len};
	return p;
}

static void foreign_bytes(struct qp_tx *tx, const struct iovec *piece)
{
	tx->iov[tx->n++] = *piece;
	tx->bytes += (uint32_t)piece->iov_len;
}

/* Keeps the map's references for the batch's life. */
static void keep_refs(struct qp_tx *tx, struct key_map *map)
{
	for (int i = 0; i < 2; i++) {
		struct key_slot *s = map->slot[i];

		if (!s)
			continue;
		map->slot[i] = NULL;
		if (tx->n_ref && tx->ref[tx->n_ref - 1].slot == s)
			key_release(s); /* held by the piece before */
		else
			tx->ref[tx->n_ref++] = (struct tx_ref){s, atomic_load(&s->stag)};
	}
	tx->refs_held = true;
}

/* ---- one FPDU ---- */

struct fpdu {
	uint8_t *start; /* the length field; the header follows */
	size_t hdr_len;
	size_t payload;
	bool flat;  /* the payload lies right behind the header */
	int first;  /* else: its first piece in the iov */
	int pieces; /* of the regions that it comes from */
};

static struct fpdu fpdu_begin(struct qp_tx *tx, const struct ddp_hdr *h)
{
	struct fpdu f = {.hdr_len = h->tagged ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN, .flat = true};

	f.start = own_bytes(tx, MPA_LEN_FIELD + f.hdr_len);
	f.first = tx->n;
	return f;
}

static uint32_t fpdu_crc(const struct qp_tx *tx, const struct fpdu *f, unsigned pad)
{
	size_t head = MPA_LEN_FIELD + f->hdr_len;
	uint32_t crc;

	if (f->flat)
		return crc32c_update(CRC32C_INIT, f->start, head + f->payload + pad);
	crc = crc32c_update(CRC32C_INIT, f->start, head);
	size_t left = f->payload;

	for (int i = f->first; left; i++) {
		crc = crc32c_update(crc, tx->iov[i].iov_base, tx->iov[i].iov_len);
		left -= tx->iov[i].iov_len;
	}
	return crc32c_update(crc, "\0\0\0", pad);
}

/* The header, now that the payload is known; then pad and CRC. */
static void fpdu_end(struct stag_qp *qp, const struct fpdu *f, const struct ddp_hdr *h)
{
	struct qp_tx *tx = qp->tx;
	size_t ulpdu = f->hdr_len + f->payload;
	unsigned pad = fpdu_pad(ulpdu);
	uint8_t *tail;

	put_be16(f->start, (uint16_t)ulpdu);
	ddp_encode(h, f->start + MPA_LEN_FIELD);
	tail = own_bytes(tx, pad + MPA_CRC_LEN);
	memset(tail, 0, pad + MPA_CRC_LEN);
	if (qp->link.crc && !qp->link.markers_tx)
		crc32c_put(tail + pad, fpdu_crc(tx, f, pad));
	qp->counters.tx_fpdus++;
	qp->counters.tx_payload += f->payload;
	qp->counters.tx_msgs += h->last;
}

/* A payload that is made here: a request, an answer, an immediate. */
static uint8_t *fpdu_own_payload(struct qp_tx *tx, struct fpdu *f, size_t len)
{
	f->payload = len;
	return own_bytes(tx, len);
}

static struct ddp_hdr untagged(struct qp_tx *tx, enum rdmap_op op, enum ddp_qn qn)
{
	return (struct ddp_hdr){.opcode = op, .qn = qn, .msn = tx->msn[qn], .last = true};
}

/* ---- payload of work requests ---- */

/*
 * In steps: for a long copy the C library takes string instructions, which leave
 * the bytes far from where the CRC and the kernel will want them next.
 */
static void copy_near(uint8_t *to, const uint8_t *from, size_t len)
{
	size_t step = TX_COPY;

	__asm__("" : "+r"(step)); /* a length known to the compiler is a string instruction again */
	for (; len > step; len -= step, to += step, from += step)
		memcpy(to, from, step);
	memcpy(to, from, len);
}

static void copy_pieces(uint8_t *to, const struct key_map *map)
{
	for (unsigned i = 0; i < map->n; i++) {
		copy_near(to, map->iov[i].iov_base, map->iov[i].iov_len);
		to += map->iov[i].iov_len;
	}
}

static void log_bad_sge(struct stag_qp *qp, const struct wqe *w, uint32_t i, enum key_fault fault)
{
	log_info("qp %u: wr_id 0x%llx: SGE %u (lkey 0x%08x, %u bytes at 0x%llx): %s",
		 qp->ibv.qp_num, (unsigned long long)w->wr_id, i, w->sge[i].lkey, w->sge[i].length,
		 (unsigned long long)w->sge[i].addr, key_fault_str(fault));
}

/* Up to want bytes from where the message stands; fewer where pieces run out. false: a bad SGE. */
static bool gather(struct stag_qp *qp, struct wqe *w, size_t want, struct fpdu *f)
{
	struct qp_tx *tx = qp->tx;
	bool copy = want <= TX_COPY;
	int pieces = tx->n;

	f->flat = copy;
	while (want) {
		const struct ibv_sge *s = &w->sge[tx->sge];
		size_t part = s->length - tx->sge_off;
		struct key_map map;
		enum key_fault fault;

		if (part == 0) {
			tx->sge++;
			tx->sge_off = 0;
			continue;
		}
		if (!copy && tx->n - pieces + 8 > TX_FPDU_IOV)
			break;
		if (part > want)
			part = want;
		fault = key_get(s->lkey, qp->pd, NULL, s->addr + tx->sge_off, part, 0, &map);
		if (fault != KEY_OK) {
			log_bad_sge(qp, w, tx->sge, fault);
			return false;
		}
		f->pieces += (int)map.slot[0]->nseg;
		if (copy) {
			copy_pieces(own_bytes(tx, map.len), &map);
			key_put(&map);
		} else {
			for (unsigned i = 0; i < map.n; i++)
				foreign_bytes(tx, &map.iov[i]);
			keep_refs(tx, &map);
		}
		f->payload += map.len;
		tx->sge_off += (uint32_t)map.len;
		want -= map.len;
	}
	return true;
}

static void inline_payload(struct qp_tx *tx, const struct wqe *w, size_t want, struct fpdu *f)
{
	if (want <= TX_COPY) {
		memcpy(fpdu_own_payload(tx, f, want), w->inline_data + tx->off, want);
		return;
	}
	f->flat = false;
	f->payload = want;
	foreign_bytes(tx, &(struct iovec){w->inline_data + tx->off, want});
}

/* ---- work requests ---- */

static enum rdmap_op send_opcode(const struct wqe *w)
{
	bool se = w->send_flags & IBV_SEND_SOLICITED;

	switch (w->opcode) {
	case IBV_WR_SEND_WITH_INV:
		return se ? RDMAP_SEND_SE_INV : RDMAP_SEND_INV;
	case IBV_WR_SEND_WITH_IMM:
		return RDMAP_SEND_IMM;
	default:
		return se ? RDMAP_SEND_SE : RDMAP_SEND;
	}
}

static struct ddp_hdr request_header(struct qp_tx *tx, const struct wqe *w)
{
	struct ddp_hdr h;

	if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return (struct ddp_hdr){.tagged = true,
					.opcode = RDMAP_WRITE,
					.stag = w->rkey,
					.to = w->remote_addr + tx->off};
	h = untagged(tx, send_opcode(w), QN_SEND);
	h.mo = tx->off;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		h.ulp = w->imm_or_inv;
	if (w->opcode == IBV_WR_SEND_WITH_IMM) {
		h.ulp = be32toh(w->imm_or_inv);
		h.rsv = w->send_flags & IBV_SEND_SOLICITED ? RDMAP_RSV_SE : 0;
	}
	return h;
}

/* The request has left the queue's transmit end. */
static void request_framed(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;

	tx->open = OPEN_NONE;
	tx->off = 0;
	tx->sge = tx->sge_off = 0;
	w->tx_end = tx->queued + tx->bytes; /* tx->queued: up to the batch's beginning */
	qp->sq.tx++;
}

static void frame_immediate(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = untagged(
		tx, w->send_flags & IBV_SEND_SOLICITED ? RDMAP_IMM_SE : RDMAP_IMM, QN_SEND);
	struct fpdu f = fpdu_begin(tx, &h);
	uint8_t *p = fpdu_own_payload(tx, &f, RDMAP_IMM_LEN);

	memset(p, 0, RDMAP_IMM_LEN);
	memcpy(p, &w->imm_or_inv, sizeof(w->imm_or_inv)); /* in network order already */
	fpdu_end(qp, &f, &h);
	tx->msn[QN_SEND]++;
	tx->imm_due = false;
	request_framed(qp, w);
}

/*
 * The peer may read two segments in one go, if it knows how long the second one
 * is. Only for memory in one piece, which is never cut short, and not for the
 * last one, whose end the peer places when it has seen the rest.
 */
static void promise_full(const struct stag_qp *qp, struct ddp_hdr *h, size_t left)
{
	if ((qp->link.caps & MPA_EXT_BIG_FPDU) && left > MPA_MAX_ULPDU - DDP_TAGGED_LEN)
		h->rsv |= RDMAP_RSV_FULL_NEXT;
}

/* One segment of a send or a write; false: it cannot be framed. */
static bool frame_segment(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = request_header(tx, w);
	struct mark before = mark(tx);
	uint32_t sge = tx->sge, sge_off = tx->sge_off;
	struct fpdu f = fpdu_begin(tx, &h);
	size_t want = w->length - tx->off;

	if (want > tx->mulpdu - f.hdr_len)
		want = tx->mulpdu - f.hdr_len;
	if (w->inline_data) {
		inline_payload(tx, w, want, &f);
	} else if (!gather(qp, w, want, &f)) {
		back_to(tx, &before);
		tx->sge = sge;
		tx->sge_off = sge_off;
		return false;
	}
	tx->off += (uint32_t)f.payload;
	h.last = tx->off == w->length;
	if (h.tagged && w->num_sge <= 1 && f.pieces <= 1)
		promise_full(qp, &h, w->length - tx->off);
	fpdu_end(qp, &f, &h);
	tx->open = OPEN_SQ;
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
	struct ddp_hdr h = untagged(tx, RDMAP_READ_REQ, QN_READ);
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

static void frame_atomic(struct stag_qp *qp, struct wqe *w)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = untagged(tx, RDMAP_ATOMIC_REQ, QN_READ);
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

/* May the next request go now? A fence waits for all reads, a read for room under ORD. */
static bool request_may_go(const struct stag_qp *qp, const struct wqe *w)
{
	uint32_t under_way = qp->tx->orq_put - qp->tx->orq_get;

	if ((w->send_flags & IBV_SEND_FENCE) && under_way)
		return false;
	return !wqe_awaits_response(w) || under_way < qp->link.ord;
}

static bool frame_request(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];

	if (tx->imm_due) {
		frame_immediate(qp, w);
		return true;
	}
	if (!wqe_awaits_response(w)) {
		if (frame_segment(qp, w))
			return true;
		tx->bad_request = true;
		return false;
	}
	if (w->opcode == IBV_WR_RDMA_READ)
		frame_read(qp, w);
	else
		frame_atomic(qp, w);
	tx->msn[QN_READ]++;
	tx->orq[tx->orq_put++ % STAG_MAX_RD_ATOM] = qp->sq.tx;
	request_framed(qp, w);
	return true;
}

/* ---- responses ---- */

static struct wire_fault source_fault(enum key_fault f)
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

/* A copy that does not change between the CRC and the kernel's reading of it. NULL: no room. */
static uint8_t *bounce_room(struct qp_tx *tx, size_t len)
{
	uint8_t *p;

	if (!tx->bounce)
		tx->bounce = malloc(TX_BOUNCE);
	if (!tx->bounce || len > TX_BOUNCE - tx->bounce_used)
		return NULL;
	p = tx->bounce + tx->bounce_used;
	tx->bounce_used += (uint32_t)len;
	return p;
}

static bool place_read_data(struct stag_qp *qp, struct key_map *map, struct fpdu *f)
{
	struct qp_tx *tx = qp->tx;
	uint8_t *copy;

	f->payload = map->len;
	if (map->len <= TX_COPY) {
		copy_pieces(own_bytes(tx, map->len), map);
		key_put(map);
		return true;
	}
	f->flat = false;
	if (qp->link.crc) {
		copy = bounce_room(tx, map->len);
		if (copy) {
			copy_pieces(copy, map);
			foreign_bytes(tx, &(struct iovec){copy, map->len});
		}
		key_put(map);
		return copy != NULL;
	}
	for (unsigned i = 0; i < map->n; i++)
		foreign_bytes(tx, &map->iov[i]);
	keep_refs(tx, map);
	return true;
}

static bool frame_read_response(struct stag_qp *qp, struct response *r)
{
	struct qp_tx *tx = qp->tx;
	struct mark before = mark(tx);
	struct ddp_hdr h = {.tagged = true,
			    .opcode = RDMAP_READ_RESP,
			    .stag = r->read.sink_stag,
			    .to = r->read.sink_to + r->off};
	struct fpdu f = fpdu_begin(tx, &h);
	size_t want = r->read.size - r->off;
	bool one_piece = true;

	if (want > tx->mulpdu - f.hdr_len)
		want = tx->mulpdu - f.hdr_len;
	if (want) {
		struct key_map map;
		enum key_fault fault =
			key_get(r->read.src_stag, qp->pd, qp, r->read.src_to + r->off, want,
				IBV_ACCESS_REMOTE_READ, &map);

		if (fault != KEY_OK) {
			tx->response_fault = source_fault(fault);
			back_to(tx, &before);
			return false;
		}
		one_piece = map.slot[map.slot[1] ? 1 : 0]->nseg == 1;
		if (!place_read_data(qp, &map, &f)) {
			back_to(tx, &before); /* the bounce buffer is full: when the batch is out */
			if (tx->n == 0)
				tx->response_fault = FAULT_RDMAP_LOCAL; /* no memory for it */
			return false;
		}
	}
	r->off += (uint32_t)f.payload;
	h.last = r->off == r->read.size;
	if (one_piece)
		promise_full(qp, &h, r->read.size - r->off);
	fpdu_end(qp, &f, &h);
	tx->open = h.last ? OPEN_NONE : OPEN_RESPONSE;
	tx->irq_get += h.last;
	return true;
}

static uint64_t do_atomic(uint64_t *p, const struct rdmap_atomic_req *r)
{
	uint64_t found = __atomic_load_n(p, __ATOMIC_SEQ_CST);

	while (!__atomic_compare_exchange_n(p, &found, rdmap_atomic_result(r, found), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return found;
}

static bool frame_atomic_response(struct stag_qp *qp, struct response *r)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = untagged(tx, RDMAP_ATOMIC_RESP, QN_ATOMIC);
	struct rdmap_atomic_resp answer = {.id = r->atomic.id};
	struct key_map map;
	enum key_fault fault = key_get(r->atomic.stag, qp->pd, qp, r->atomic.to, sizeof(uint64_t),
				       IBV_ACCESS_REMOTE_ATOMIC, &map);
	struct fpdu f;

	if (fault != KEY_OK || map.n != 1 || (uintptr_t)map.iov[0].iov_base % sizeof(uint64_t)) {
		tx->response_fault = fault != KEY_OK ? source_fault(fault) : FAULT_RDMAP_STREAM;
		key_put(&map);
		return false;
	}
	answer.value = do_atomic(map.iov[0].iov_base, &r->atomic);
	key_put(&map);
	f = fpdu_begin(tx, &h);
	rdmap_put_atomic_resp(fpdu_own_payload(tx, &f, RDMAP_ATOMIC_RESP_LEN), &answer);
	fpdu_end(qp, &f, &h);
	tx->msn[QN_ATOMIC]++;
	tx->irq_get++;
	return true;
}

static bool frame_response(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct response *r = &tx->irq[tx->irq_get & tx->irq_mask];

	return r->is_atomic ? frame_atomic_response(qp, r) : frame_read_response(qp, r);
}

static struct response *new_response(struct qp_tx *tx)
{
	if (tx->irq_put - tx->irq_get >= tx->irq_size)
		return NULL;
	return &tx->irq[tx->irq_put++ & tx->irq_mask];
}

bool qp_tx_respond_read(struct stag_qp *qp, const struct rdmap_read_req *req)
{
	struct response *r = new_response(qp->tx);

	if (!r)
		return false;
	*r = (struct response){.read = *req};
	return true;
}

bool qp_tx_respond_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *req)
{
	struct response *r = new_response(qp->tx);

	if (!r)
		return false;
	*r = (struct response){.is_atomic = true, .atomic = *req};
	return true;
}

/* ---- what comes next ---- */

static void frame_rtr(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = {.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = RTR_STAG};
	struct fpdu f;

	if (qp->link.rtr == MPA_RTR_READ) {
		struct rdmap_read_req r = {.src_stag = RTR_STAG, .sink_stag = RTR_STAG};

		h = untagged(tx, RDMAP_READ_REQ, QN_READ);
		f = fpdu_begin(tx, &h);
		rdmap_put_read_req(fpdu_own_payload(tx, &f, RDMAP_READ_REQ_LEN), &r);
		tx->msn[QN_READ]++;
		qp->rtr_read_pending = true; /* its answer completes no request */
	} else {
		f = fpdu_begin(tx, &h);
	}
	fpdu_end(qp, &f, &h);
	tx->rtr_due = false;
}

/* Carries out requests that need no wire, when all before them is out. */
static bool run_local(struct stag_qp *qp)
{
	struct wqe *w;

	while (qp->sq.tx != qp->sq.put) {
		w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];
		if (!wqe_is_local(w))
			return true;
		if (qp->tx->n || !request_may_go(qp, w))
			return false;
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

	if (tx->fin_sent || !run_local(qp) || qp->sq.tx == qp->sq.put)
		return false;
	return request_may_go(qp, &qp->sq.wqe[qp->sq.tx & qp->sq.mask]);
}

/* Appends one FPDU to the batch; false: nothing (more) can go into this one. */
static bool frame_next(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	bool response, request;

	if (tx->rtr_due) {
		frame_rtr(qp);
		return true;
	}
	if (tx->open == OPEN_RESPONSE)
		return frame_response(qp);
	if (tx->open == OPEN_SQ)
		return frame_request(qp);
	response = tx->irq_put != tx->irq_get;
	request = request_ready(qp);
	if (response && request)
		tx->response_next = !tx->response_next;
	else
		tx->response_next = response;
	if (response && tx->response_next)
		return frame_response(qp);
	return request && !tx->dead && frame_request(qp);
}

static bool batch_has_room(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;

	if (qp->link.markers_tx)
		return tx->n == 0;
	return tx->n + TX_FPDU_IOV + 4 <= TX_IOV && tx->n_ref + 2 * TX_FPDU_IOV <= TX_IOV &&
	       tx->buf_used + TX_FPDU_BUF <= TX_BUF &&
	       tx->bytes < (qp->link.crc ? TX_BATCH_CRC : TX_BATCH);
}

/* RFC 5044 §4.3: the FPDU flat, then again with its markers, which the CRC covers. */
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
	refs_put(tx);
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

static bool refs_get_again(struct qp_tx *tx)
{
	for (unsigned i = 0; i < tx->n_ref; i++) {
		if (key_hold(tx->ref[i].slot, tx->ref[i].stag))
			continue;
		while (i--)
			key_release(tx->ref[i].slot);
		return false;
	}
	tx->refs_held = true;
	return true;
}

static void advance(struct qp_tx *tx, size_t n)
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
	if (atomic_load_explicit(&qp->tx_blocked, memory_order_relaxed) == blocked)
		return;
	atomic_store(&qp->tx_blocked, blocked);
	qp_arm(qp);
}

static void mark_sent(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	for (; tx->sent_idx != qp->sq.tx; tx->sent_idx++) {
		struct wqe *w = &qp->sq.wqe[tx->sent_idx & qp->sq.mask];

		if (w->tx_end > tx->sent)
			break;
		w->sent = true;
		if (!wqe_awaits_response(w))
			w->done = true;
	}
}

/* A request whose memory is not there: it fails, and the queue pair with it. */
static void fail_request(struct stag_qp *qp)
{
	struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];

	w->status = IBV_WC_LOC_PROT_ERR;
	w->done = true;
	qp->sq.tx++;
	qp->tx->dead = true;
	qp_fail_later(qp);
}

static void lose_stream(struct stag_qp *qp)
{
	qp->tx->dead = true;
	qp_fail_later(qp);
}

/* false: nothing more can be done now. */
static bool send_batch(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	ssize_t n;

	if (!tx->refs_held && !refs_get_again(tx)) {
		log_info("qp %u: a region was deregistered while its data was being sent",
			 qp->ibv.qp_num);
		lose_stream(qp);
		return false;
	}
	n = qp->stream->ops->send(qp->stream, tx->iov + tx->cur, tx->n - tx->cur);
	refs_put(tx);
	if (n < 0 && n != -EAGAIN) {
		log_info("qp %u: the connection failed while sending: %s", qp->ibv.qp_num,
			 strerror((int)-n));
		/* What the peer sent before it left is still there: its end ends the queue pair. */
		tx->dead = true;
		if (n == -EFAULT)
			lose_stream(qp);
		return false;
	}
	if (n > 0)
		advance(tx, (size_t)n);
	set_blocked(qp, tx->cur < tx->n);
	mark_sent(qp);
	sq_retire(qp);
	return tx->cur == tx->n;
}

static void maybe_fin(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (!tx->closing || tx->fin_sent || tx->cur < tx->n || qp->sq.get != qp->sq.put)
		return;
	tx->fin_sent = true;
	qp->stream->ops->shutdown(qp->stream);
}

void qp_tx_run(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (!tx || tx->dead || tx->held || atomic_load(&qp->state) == QP_ERROR)
		return;
	for (int i = 0;; i++) {
		if (tx->cur == tx->n && !build_batch(qp))
			break;
		if (i == TX_RUN) {
			refs_put(tx);
			set_blocked(qp, true); /* goes on with the next look at the stream */
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
		fail_request(qp);
		return;
	}
	maybe_fin(qp);
}

void qp_tx_release(struct stag_qp *qp)
{
	if (!qp->tx || !qp->tx->held)
		return;
	qp->tx->held = false;
	qp_tx_run(qp);
}

void qp_tx_finish(struct stag_qp *qp)
{
	qp->tx->closing = true;
	qp_tx_run(qp);
	maybe_fin(qp);
}

/*
 * RFC 5040 §4.8: the last message of a stream. It cannot go into the middle of
 * an FPDU: where one is only half in the stream's hands, there is no Terminate.
 */
void qp_tx_terminate(struct stag_qp *qp, const struct terminate *t)
{
	struct qp_tx *tx = qp->tx;
	uint8_t payload[TERMINATE_MAX];
	size_t len = terminate_encode(t, payload);
	struct ddp_hdr h;
	struct fpdu f;

	if (tx->fin_sent)
		return;
	if (tx->cur < tx->n && !send_batch(qp))
		return;
	tx->dead = true;
	tx->n = tx->cur = 0;
	tx->n_ref = 0;
	tx->buf_used = tx->bytes = 0;
	h = untagged(tx, RDMAP_TERMINATE, QN_TERMINATE);
	f = fpdu_begin(tx, &h);
	memcpy(fpdu_own_payload(tx, &f, len), payload, len);
	fpdu_end(qp, &f, &h);
	if (qp->link.markers_tx)
		add_markers(qp);
	if (qp->stream->ops->send(qp->stream, tx->iov, tx->n) == (ssize_t)tx->bytes)
		qp->counters.terminates_sent++;
	tx->n = tx->cur = 0;
}

/* ---- for the receive side ---- */

struct wqe *qp_tx_oldest_read(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	if (tx->orq_get == tx->orq_put)
		return NULL;
	return &qp->sq.wqe[tx->orq[tx->orq_get % STAG_MAX_RD_ATOM] & qp->sq.mask];
}

void qp_tx_read_done(struct stag_qp *qp)
{
	struct wqe *w = qp_tx_oldest_read(qp);

	qp->tx->orq_get++;
	w->done = true;
	sq_retire(qp);
}

bool qp_tx_broken(const struct stag_qp *qp)
{
	return qp->tx && qp->tx->dead && !qp->tx->fin_sent;
}

bool qp_tx_pending(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;

	return tx && !tx->dead &&
	       (tx->cur < tx->n || tx->irq_put != tx->irq_get || qp->sq.tx != qp->sq.put ||
		tx->rtr_due);
}

/* The read request that is being answered, as far as it is not (RFC 5040 §4.8). */
static size_t rest_of_request(const struct qp_tx *tx, uint8_t *seg)
{
	const struct response *r = &tx->irq[tx->irq_get & tx->irq_mask];
	struct ddp_hdr h = {.last = true,
			    .opcode = RDMAP_READ_REQ,
			    .qn = QN_READ,
			    .msn = tx->irq_get + 1}; /* each request was the next one */
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

	if (tx && tx->response_fault.set && tx->irq_put != tx->irq_get &&
	    !tx->irq[tx->irq_get & tx->irq_mask].is_atomic)
		len = rest_of_request(tx, seg);
	terminate_init(&t, tx && tx->response_fault.set ? tx->response_fault : FAULT_RDMAP_LOCAL,
		       len ? seg : NULL, len, len);
	return t;
}
