// SPDX-License-Identifier: BSD-2-Clause
/*
 * tx_forward.c - forwards peers' writes to a mirrored region to its copy, in turn with the
 * program's requests.
 *
 * Forwards wait in a ring of their own. Each knows which index of the send queue was next when
 * it came: requests from that index on are sent after it. Earlier requests are sent first if
 * they can be; if one has to wait (for a fence, or for room under ORD), forwards overtake it,
 * so that the program's own waiting does not stall writers.
 *
 * Payload is copied when it is framed: writers may change it at any time, and the CRC must
 * match what is sent.
 */
#include "adapter/qp_tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/mirror.h"
#include "base/log.h"

#define FORWARDS     256       /* entries of the ring */
#define FORWARD_MOST (1 << 20) /* bytes of one forward: adjacent ones are merged */

struct forwards {
	struct forward ring[FORWARDS];
	uint64_t put, get; /* free-running; those before get are framed completely */
	uint32_t off;	   /* bytes framed of the oldest */
	bool wanted;	   /* a writer waits for room, or for a confirmation */
	uint64_t due;	   /* forwards before it require a confirmation */
	uint64_t asked;	   /* forwards before it are confirmed, or will be by the read in flight */
	uint64_t confirmed;
	bool asking;
	struct wqe ask; /* stands for that read in orq */
};

int tx_forwards_init(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (!tx->fwd)
		tx->fwd = calloc(1, sizeof(*tx->fwd));
	if (!tx->fwd)
		return -ENOMEM;
	tx->fwd->ask.opcode = IBV_WR_RDMA_READ;
	return 0;
}

void tx_forwards_drop(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (!qp->tx || !qp->tx->fwd)
		return;
	qp->tx->fwd->get = qp->tx->fwd->put;
	mirror_tell(); /* waiting writers find that the mirror has ended */
}

void tx_forwards_free(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	tx_forwards_drop(qp);
	free(qp->tx->fwd);
	qp->tx->fwd = NULL;
}

static void tell_if_wanted(struct forwards *f)
{
	if (!f->wanted)
		return;
	f->wanted = false;
	mirror_tell();
}

static struct forward *oldest(struct forwards *f)
{
	return &f->ring[f->get % FORWARDS];
}

/* ---- in ---- */

/* Can f be merged into last? last may have begun: its length is read again for each segment. */
static bool goes_on(const struct forward *last, const struct forward *f)
{
	return last->stag == f->stag && last->life == f->life && last->rkey == f->rkey &&
	       last->to + last->len == f->to && last->remote + last->len == f->remote &&
	       f->len <= FORWARD_MOST - last->len;
}

bool tx_forward_add(struct stag_qp *qp, const struct forward *new, bool confirm, uint64_t *seq)
{
	struct forwards *f = qp->tx->fwd;
	struct forward *last = &f->ring[(f->put - 1) % FORWARDS];

	assert(qp_tx_locked(qp));
	if (f->put != f->get && goes_on(last, new)) {
		last->len += new->len;
	} else if (f->put - f->get < FORWARDS) {
		f->ring[f->put % FORWARDS] = *new;
		f->ring[f->put++ % FORWARDS].before = qp->sq.put;
	} else {
		f->wanted = true;
		return false;
	}
	if (confirm)
		f->due = f->put;
	*seq = f->put;
	return true;
}

bool tx_forward_confirmed(struct stag_qp *qp, uint64_t seq)
{
	struct forwards *f = qp->tx->fwd;

	assert(qp_tx_locked(qp));
	if (f->confirmed >= seq)
		return true;
	f->wanted = true;
	return false;
}

/* ---- out ---- */

static bool ask_is_due(const struct stag_qp *qp)
{
	const struct qp_tx *tx = qp->tx;
	const struct forwards *f = tx->fwd;

	return f->due > f->asked && f->get > f->asked && !f->asking &&
	       tx->orq.put - tx->orq.get < qp->link.ord;
}

bool tx_forwards_wait(const struct stag_qp *qp)
{
	const struct forwards *f = qp->tx->fwd;

	assert(qp_tx_locked(qp));
	return f && f->put != f->get;
}

bool tx_forward_may_go(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	return qp->tx->fwd && (tx_forwards_wait(qp) || ask_is_due(qp));
}

bool tx_forward_is_first(const struct stag_qp *qp)
{
	struct forwards *f = qp->tx->fwd;

	assert(qp_tx_locked(qp));
	return ask_is_due(qp) ||
	       (f->put != f->get && (int32_t)(qp->sq.tx - oldest(f)->before) >= 0);
}

/*
 * Sends a zero-length read behind the forwards: its response means that they have been placed
 * (RFC 5040 §5.5).
 */
static void frame_ask(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(tx, RDMAP_READ_REQ, QN_READ);
	struct rdmap_read_req r = {.src_stag = RTR_STAG, .sink_stag = RTR_STAG};
	struct fpdu f = fpdu_begin(tx, &h);

	rdmap_put_read_req(fpdu_own_payload(tx, &f, RDMAP_READ_REQ_LEN), &r);
	fpdu_end(qp, &f, &h);
	tx->msn[QN_READ]++;
	tx_await(qp, &tx->fwd->ask);
	tx->fwd->asking = true;
	tx->fwd->asked = tx->fwd->get;
}

bool tx_is_ask(const struct stag_qp *qp, const struct wqe *w)
{
	assert(qp_tx_locked(qp));
	return qp->tx->fwd && w == &qp->tx->fwd->ask;
}

bool tx_is_asking(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	return qp->tx->fwd && qp->tx->fwd->asking;
}

void tx_forwards_answered(struct stag_qp *qp)
{
	struct forwards *f = qp->tx->fwd;

	assert(qp_tx_locked(qp));
	f->asking = false;
	f->confirmed = f->asked;
	tell_if_wanted(f);
}

static void next_forward(struct stag_qp *qp)
{
	struct forwards *f = qp->tx->fwd;

	tx_set_open(qp->tx, OPEN_NONE);
	f->off = 0;
	f->get++;
	tell_if_wanted(f);
}

/*
 * Drops a forward whose region is gone. One that has begun cannot be completed: the connection
 * fails.
 */
static bool forget_forward(struct stag_qp *qp)
{
	if (!qp->tx->fwd->off) {
		next_forward(qp);
		return true;
	}
	log_info("qp %u: a region was deregistered while it was being forwarded", qp->ibv.qp_num);
	qp->tx->dead = true;
	qp_fail_later(qp);
	return false;
}

static bool map_forward(const struct forward *f, uint32_t off, size_t want, struct key_map *map)
{
	if (key_get(f->stag, f->pd, NULL, f->to + off, want, 0, map) != KEY_OK)
		return false;
	if (map->slot[0]->life == f->life)
		return true;
	key_put(map);
	return false;
}

static bool copy_forward(struct stag_qp *qp, const struct key_map *map, struct fpdu *p,
			 const struct ddp_hdr *h)
{
	if (map->len <= TX_COPY) {
		tx_copy_pieces(tx_own_bytes(qp->tx, map->len), map);
		return true;
	}
	p->flat = false;
	return tx_bounce_data(qp, map, p, h);
}

static bool frame_segment(struct stag_qp *qp, const struct forward *f)
{
	struct qp_tx *tx = qp->tx;
	struct mark before = tx_mark(tx);
	uint32_t off = tx->fwd->off, left = f->len - off;
	struct ddp_hdr h = {
		.tagged = true, .opcode = RDMAP_WRITE, .stag = f->rkey, .to = f->remote + off};
	struct key_map map;
	struct fpdu p;
	size_t room;
	bool copied;

	tx_sum_header(qp, &h, left);
	p = fpdu_begin(tx, &h);
	room = tx->mulpdu - p.hdr_len;
	if (!map_forward(f, off, left < room ? left : room, &map)) {
		tx_back_to(tx, &before);
		return forget_forward(qp);
	}
	p.payload = map.len;
	h.last = p.payload == left;
	tx_promise_full(qp, &h, left - p.payload);
	copied = copy_forward(qp, &map, &p, &h);
	key_put(&map);
	if (!copied) {
		tx_back_to(tx, &before); /* retry when the batch is sent */
		return false;
	}
	fpdu_end(qp, &p, &h);
	tx_set_open(tx, OPEN_FORWARD);
	tx->fwd->off += (uint32_t)p.payload;
	qp->stats.counters.forwards += h.last;
	qp->stats.counters.forwarded_bytes += p.payload;
	if (h.last)
		next_forward(qp);
	return true;
}

bool tx_frame_forward(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (qp->tx->open == OPEN_NONE && ask_is_due(qp)) {
		frame_ask(qp);
		return true;
	}
	return frame_segment(qp, oldest(qp->tx->fwd));
}
