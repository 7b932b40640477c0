// SPDX-License-Identifier: BSD-2-Clause
/*
 * tx_response.c - responses to the peer's reads and atomics.
 *
 * They wait here in order, at most IRD of them, and are checked again when they are framed: the
 * region may be gone by then, or its lease expired. Data of a leased region is copied, and the
 * lease checked before and after the copy: data that then waits for room in the stream, however
 * long, was valid within the lease.
 */
#include "adapter/qp_tx.h"

#include <assert.h>
#include <stdlib.h>

#include "adapter/explain.h"
#include "adapter/rc.h"
#include "adapter/store_peer.h"

uint8_t *tx_bounce_room(struct qp_tx *tx, size_t len)
{
	uint8_t *p;

	if (!tx->bounce)
		tx->bounce = aligned_alloc(TX_LINE, TX_BOUNCE);
	if (!tx->bounce || len > TX_BOUNCE - tx->bounce_used)
		return NULL;
	p = tx->bounce + tx->bounce_used;
	tx->bounce_used += (uint32_t)(len + TX_LINE - 1) / TX_LINE * TX_LINE;
	return p;
}

bool tx_bounce_data(struct stag_qp *qp, const struct key_map *map, struct fpdu *f,
		    const struct ddp_hdr *h)
{
	uint8_t *copy = tx_bounce_room(qp->tx, map->len);

	assert(qp_tx_locked(qp));
	if (!copy)
		return false;
	if (qp->link.crc)
		fpdu_sum_copy(f, h, copy, map);
	else
		tx_copy_pieces(copy, map);
	tx_foreign_bytes(qp->tx, &(struct iovec){copy, map->len});
	return true;
}

/*
 * The caller keeps the map, except references that move to the batch. Returns false if there is
 * no room.
 */
static bool place_read_data(struct stag_qp *qp, struct key_map *map, struct fpdu *f,
			    const struct ddp_hdr *h)
{
	struct qp_tx *tx = qp->tx;

	if (map->len <= TX_COPY) {
		tx_copy_pieces(tx_own_bytes(tx, map->len), map);
		return true;
	}
	f->flat = false;
	if (qp->link.crc || key_is_leased(key_region(map)))
		return tx_bounce_data(qp, map, f, h);
	for (unsigned i = 0; i < map->n; i++)
		tx_foreign_bytes(tx, &map->iov[i]);
	tx_keep_refs(tx, map, FOR_PEER);
	return true;
}

static void refuse_answer(struct stag_qp *qp, const char *what, const struct key_access *a,
			  enum key_fault fault)
{
	log_refused_access(qp, what, a, fault);
	key_refused(qp, a->stag, fault);
	qp->tx->response_fault = rx_read_fault(fault);
}

/*
 * Maps the memory of the next segment. Returns false if it has to wait, or if the tag is
 * invalid now.
 */
static bool map_read_data(struct stag_qp *qp, const struct response *r, size_t want,
			  struct key_map *map)
{
	const struct key_access a = {r->read.src_stag, r->read.src_to + r->off, want,
				     IBV_ACCESS_REMOTE_READ};
	enum key_fault fault = tx_key_get(qp, a.stag, qp, a.to, a.len, a.access, map);

	if (fault != KEY_OK && fault != KEY_BUSY)
		refuse_answer(qp, "read", &a, fault);
	return fault == KEY_OK;
}

static bool is_one_piece(const struct key_map *map)
{
	return map->slot[map->slot[1] ? 1 : 0]->nseg == 1;
}

/* ---- from storage ---- */

/* May the next response go: are the writes before it done, and is its data there? */
bool tx_response_may_go(struct stag_qp *qp)
{
	const struct response *r = &qp->tx->irq.at[qp->tx->irq.get & qp->tx->irq.mask];
	struct wire_fault fault;
	bool ready;

	assert(qp_tx_locked(qp));
	if (!r->store && !r->gate)
		return true;
	if (qp->storage.peer->failed || atomic_load(&qp->storage.peer->reached) < r->gate)
		return false;
	if (!r->store)
		return true;
	ready = peer_is_ready(r->store, &fault);
	if (fault.set)
		qp->tx->response_fault = fault;
	return ready;
}

void tx_buffers_put(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	if (!tx->n_buffers)
		return;
	lock_acquire(&qp->storage.peer->lock);
	while (tx->n_buffers)
		peer_give(tx->buffers[--tx->n_buffers]);
	lock_release(&qp->storage.peer->lock);
}

void tx_responses_drop(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;

	assert(qp_tx_locked(qp));
	for (; tx->irq.get != tx->irq.put; tx->irq.get++)
		peer_drop(tx->irq.at[tx->irq.get & tx->irq.mask].store);
}

static void response_framed(struct qp_tx *tx, struct response *r)
{
	peer_drop(r->store);
	r->store = NULL;
	tx_set_open(tx, OPEN_NONE);
	tx->irq.get++;
}

/* The data is in buffers that do not change: sends from them. */
static void place_store_data(struct stag_qp *qp, struct fpdu *f, const struct iovec *iov,
			     unsigned n)
{
	struct qp_tx *tx = qp->tx;

	for (unsigned i = 0; i < n; i++)
		f->payload += iov[i].iov_len;
	f->flat = f->payload <= TX_COPY;
	for (unsigned i = 0; i < n; i++) {
		if (f->flat)
			memcpy(tx_own_bytes(tx, iov[i].iov_len), iov[i].iov_base, iov[i].iov_len);
		else
			tx_foreign_bytes(tx, &iov[i]);
	}
}

/* Frames as much as is there: a whole segment, or less if the medium is slower than the stream. */
static bool frame_store_read(struct stag_qp *qp, struct response *r)
{
	struct qp_tx *tx = qp->tx;
	size_t left = r->read.size - r->off, room = tx->mulpdu - qp_long_hdr(qp);
	struct ddp_hdr h = {.tagged = true,
			    .opcode = RDMAP_READ_RESP,
			    .stag = r->read.sink_stag,
			    .to = r->read.sink_to + r->off};
	struct iovec iov[TX_STORED];
	unsigned n = peer_take_data(r->store, left < room ? left : room, iov,
				    tx->buffers + tx->n_buffers, TX_STORED);
	struct fpdu f;

	if (!n)
		return false;
	tx->n_buffers += n;
	tx_sum_header(qp, &h, left);
	f = fpdu_begin(tx, &h);
	place_store_data(qp, &f, iov, n);
	h.last = f.payload == left;
	r->off += (uint32_t)f.payload;
	fpdu_end(qp, &f, &h);
	tx_set_open(tx, OPEN_RESPONSE);
	if (h.last)
		response_framed(tx, r);
	return true;
}

static void frame_found(struct stag_qp *qp, struct response *r, uint64_t value)
{
	struct qp_tx *tx = qp->tx;
	struct ddp_hdr h = tx_untagged(tx, RDMAP_ATOMIC_RESP, QN_ATOMIC);
	struct rdmap_atomic_resp answer = {.id = r->atomic.id, .value = value};
	struct fpdu f = fpdu_begin(tx, &h);

	rdmap_put_atomic_resp(fpdu_own_payload(tx, &f, RDMAP_ATOMIC_RESP_LEN), &answer);
	fpdu_end(qp, &f, &h);
	tx->msn[QN_ATOMIC]++;
	response_framed(tx, r);
}

/* ---- from memory ---- */

/* Returns false if there is no room now, or the lease expired before the copy was made. */
static bool fetch_read_data(struct stag_qp *qp, const struct response *r, struct key_map *map,
			    struct fpdu *f, const struct ddp_hdr *h)
{
	bool placed = place_read_data(qp, map, f, h);
	bool lapsed = placed && key_region(map) && key_has_lapsed(key_region(map));

	key_put(map);
	if (lapsed)
		refuse_answer(qp, "read",
			      &(struct key_access){r->read.src_stag, r->read.src_to + r->off,
						   map->len, IBV_ACCESS_REMOTE_READ},
			      KEY_LAPSED);
	return placed && !lapsed;
}

static bool frame_read_response(struct stag_qp *qp, struct response *r)
{
	struct qp_tx *tx = qp->tx;
	struct mark before = tx_mark(tx);
	struct ddp_hdr h = {.tagged = true,
			    .opcode = RDMAP_READ_RESP,
			    .stag = r->read.sink_stag,
			    .to = r->read.sink_to + r->off};
	size_t left = r->read.size - r->off, want;
	struct key_map map;
	struct fpdu f;

	tx_sum_header(qp, &h, left);
	f = fpdu_begin(tx, &h);
	want = left < tx->mulpdu - f.hdr_len ? left : tx->mulpdu - f.hdr_len;
	map.len = 0;
	if (want && !map_read_data(qp, r, want, &map)) {
		tx_back_to(tx, &before);
		return false;
	}
	f.payload = map.len;
	h.last = f.payload == left;
	if (want && is_one_piece(&map))
		tx_promise_full(qp, &h, left - f.payload);
	if (want && !fetch_read_data(qp, r, &map, &f, &h)) {
		tx_back_to(tx, &before); /* bounce is full: retry when the batch is sent */
		if (tx->n == 0 && !tx->response_fault.set)
			tx->response_fault = FAULT_RDMAP_LOCAL; /* no memory for it */
		return false;
	}
	r->off += (uint32_t)f.payload;
	fpdu_end(qp, &f, &h);
	tx_set_open(tx, OPEN_RESPONSE);
	if (h.last)
		response_framed(tx, r);
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
	uint64_t found;
	bool lapsed;
	struct key_map map;
	const struct key_access a = {r->atomic.stag, r->atomic.to, sizeof(uint64_t),
				     IBV_ACCESS_REMOTE_ATOMIC};
	enum key_fault fault = tx_key_get(qp, a.stag, qp, a.to, a.len, a.access, &map);

	if (fault == KEY_BUSY)
		return false;
	if (fault != KEY_OK || map.n != 1 || (uintptr_t)map.iov[0].iov_base % sizeof(uint64_t)) {
		if (fault != KEY_OK)
			refuse_answer(qp, "atomic", &a, fault);
		else
			tx->response_fault = FAULT_RDMAP_STREAM;
		key_put(&map);
		return false;
	}
	found = do_atomic(map.iov[0].iov_base, &r->atomic);
	lapsed = key_has_lapsed(key_region(&map));
	key_put(&map);
	if (lapsed) /* it may have been carried out, but is not acknowledged */
		refuse_answer(qp, "atomic", &a, KEY_LAPSED);
	else
		frame_found(qp, r, found);
	return !lapsed;
}

bool tx_frame_response(struct stag_qp *qp)
{
	struct qp_tx *tx = qp->tx;
	struct response *r = &tx->irq.at[tx->irq.get & tx->irq.mask];

	assert(qp_tx_locked(qp));
	if (tx->response_fault.set)
		return false; /* a refused response is not retried */
	if (r->store && r->is_atomic) {
		frame_found(qp, r, peer_found(r->store));
		return true;
	}
	if (r->store && r->read.size)
		return frame_store_read(qp, r);
	return r->is_atomic ? frame_atomic_response(qp, r) : frame_read_response(qp, r);
}

/* Returns the number of the request that is being received. */
static uint32_t number_of(const struct stag_qp *qp)
{
	return qp->rc ? qp->rc->executed + 1 : 0;
}

static struct response *new_response(struct qp_tx *tx)
{
	if (tx->irq.put - tx->irq.get >= tx->irq.size)
		return NULL;
	return &tx->irq.at[tx->irq.put++ & tx->irq.mask];
}

bool qp_tx_respond_read(struct stag_qp *qp, const struct rdmap_read_req *req,
			struct peer_request *store, uint64_t gate)
{
	struct response *r = new_response(qp->tx);

	assert(qp_tx_locked(qp));
	if (!r)
		return false;
	*r = (struct response){.read = *req, .store = store, .gate = gate, .number = number_of(qp)};
	return true;
}

bool qp_tx_respond_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *req,
			  struct peer_request *store, uint64_t gate)
{
	struct response *r = new_response(qp->tx);

	assert(qp_tx_locked(qp));
	if (!r)
		return false;
	*r = (struct response){.is_atomic = true,
			       .atomic = *req,
			       .store = store,
			       .gate = gate,
			       .number = number_of(qp)};
	return true;
}
