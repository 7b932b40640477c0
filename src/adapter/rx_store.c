// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_store.c - a peer's writes to regions on storage, and the messages behind them.
 *
 * The payload of a segment is read into buffers. When its CRC is right it belongs to the write,
 * and goes into the lane when the buffer is full or the message ends. Bytes have the same
 * offset within a block in a buffer as on the medium, so that aligned bytes stay aligned.
 * Without a buffer the receiver stops before the segment, and goes on when it gets one.
 *
 * A message behind writes is delivered when they have reached the level of their region: until
 * then its completion is held here, and so is the end of the stream.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/store_peer.h"
#include "base/log.h"

#define SIZE MEDIA_BUFFER_SIZE

struct peer_write {
	struct lane_op op;
	struct iovec iov;
	struct store_map map;
	struct store_peer *peer;
	struct peer_buffer *buffer;
	struct list link; /* in peer->writes, if others wait for it */
	uint64_t number;
};

enum held_kind { HELD_RECEIVE, HELD_READ };

/* A completion that must not be reported yet. */
struct held {
	struct list link;
	uint64_t gate; /* number of the last write before it */
	enum held_kind kind;
	struct ibv_wc wc;
	bool solicited;
	struct wqe *read;
};

/* ---- into the lane ---- */

static void note_reached(struct store_peer *p)
{
	uint64_t reached = p->last_write;

	assert(lock_held(&p->lock));
	if (!list_empty(&p->writes))
		reached = list_entry(p->writes.next, struct peer_write, link)->number - 1;
	atomic_store_explicit(&p->reached, reached, memory_order_release);
}

static void log_failure(const struct peer_write *w)
{
	log_err("mr 0x%08x: a peer's write of %llu bytes at %llu of the medium failed: %s",
		w->map.slot->key, (unsigned long long)w->op.io.length,
		(unsigned long long)w->op.io.offset, strerror(-w->op.io.result));
}

static void on_written(struct lane_op *op)
{
	struct peer_write *w = container_of(op, struct peer_write, op);
	struct store_peer *p = w->peer;

	assert(lock_held(&p->lock));
	if (op->io.result) {
		log_failure(w);
		if (!p->failed)
			atomic_store(&p->failed, op->io.result);
	} else if (!p->failed) { /* after a failure no level is reached */
		list_del(&w->link);
		note_reached(p);
	}
	list_del(&w->link);
	store_put(&w->map);
	peer_give(w->buffer);
	free(w);
	p->n_writes--;
	peer_done(p);
}

/* Hands the accepted bytes to the lane. */
static bool add_write(struct stag_qp *qp, struct peer_write *w)
{
	struct rx_landing *l = &qp->rx->landing;
	struct store_peer *p = qp->storage.peer;

	w->peer = p;
	w->buffer = l->buffer;
	w->iov = (struct iovec){l->buffer->memory + l->start, l->len};
	w->op.io.kind = MEDIA_WRITE;
	w->op.io.durable = w->map.level == STAGDV_LEVEL_DURABLE;
	w->op.io.cache_ms = w->map.cache_ms;
	w->op.io.offset = w->map.offset;
	w->op.io.length = l->len;
	w->op.io.iov = &w->iov;
	w->op.io.n_iov = 1;
	w->op.medium = w->map.medium;
	w->op.relax = w->map.relax;
	w->op.done = on_written;
	list_init(&w->link);
	lock_acquire(&p->lock);
	l->buffer->refs++;
	if (w->map.level != STAGDV_LEVEL_ACCEPTED) {
		w->number = ++p->last_write;
		list_add_tail(&p->writes, &w->link);
		if (!p->failed)
			note_reached(p);
	}
	p->n_writes++;
	peer_add(p, &w->op);
	lock_release(&p->lock);
	l->len = 0;
	return true;
}

/*
 * Looks the key up again: the region may be gone, because a slow peer does not delay its
 * deregistration.
 */
static enum key_fault submit_landed(struct stag_qp *qp)
{
	struct rx_landing *l = &qp->rx->landing;
	struct peer_write *w;
	enum key_fault f;

	if (!l->len)
		return KEY_OK;
	w = calloc(1, sizeof(*w));
	if (!w)
		return KEY_BUSY;
	f = store_get(l->stag, qp->pd, qp, l->to, l->len, IBV_ACCESS_REMOTE_WRITE, &w->map);
	if (f == KEY_OK)
		return add_write(qp, w) ? KEY_OK : KEY_INVALID;
	free(w);
	l->len = 0;
	return f;
}

bool rx_store_land(struct stag_qp *qp)
{
	enum key_fault f = submit_landed(qp);

	assert(qp_rx_locked(qp));
	if (f == KEY_OK)
		return true;
	return f == KEY_BUSY ? rx_stop_with(qp, FAULT_RDMAP_LOCAL) : rx_refuse_write(qp, f);
}

/* ---- a place for a segment ---- */

/* Takes over the reference. */
static void set_buffer(struct rx_landing *l, struct peer_buffer *b)
{
	peer_give(l->buffer);
	l->buffer = b;
	l->used = 0;
}

static void add_span(struct rx_landing *l, struct peer_buffer *b, uint32_t at, uint32_t len)
{
	b->refs++;
	l->span[l->n_span++] = (struct rx_span){b, at, len};
}

static void drop_spans(struct rx_landing *l)
{
	while (l->n_span)
		peer_give(l->span[--l->n_span].buffer);
}

/*
 * Reserves len bytes from `at` on in the landing's buffer; what does not fit goes into the next
 * one.
 */
static void place_at(struct rx_landing *l, uint32_t at, uint32_t len, struct peer_buffer *next)
{
	uint32_t here = len < SIZE - at ? len : SIZE - at;

	add_span(l, l->buffer, at, here);
	if (here < len) {
		add_span(l, next, 0, len - here);
		peer_give(next); /* the span holds a reference */
	}
}

static bool goes_on(const struct stag_qp *qp, const struct store_map *map)
{
	const struct rx_landing *l = &qp->rx->landing;

	return l->len && l->buffer && l->medium == map->medium && l->stag == qp->rx->h.stag &&
	       l->to + l->len == qp->rx->h.to;
}

/*
 * Starts a new buffer. If there is no second one, the segment begins at its front: it fits,
 * though not aligned.
 */
static bool place_afresh(struct store_peer *p, struct rx_landing *l, const struct store_map *map,
			 uint32_t len)
{
	struct peer_buffer *b = peer_take(&p->in, map->medium), *next = NULL;
	uint32_t at = (uint32_t)(map->offset % media_block(map->medium->media));

	assert(lock_held(&p->lock));
	if (!b)
		return false;
	set_buffer(l, b);
	l->medium = map->medium;
	if (at + len > SIZE)
		next = peer_try_take(&p->in, map->medium);
	place_at(l, at + len > SIZE && !next ? 0 : at, len, next);
	return true;
}

/* Finds a place for the segment. Nothing is pending but the write that it continues. */
static bool reserve_place(struct stag_qp *qp, const struct store_map *map)
{
	struct rx_landing *l = &qp->rx->landing;
	struct store_peer *p = qp->storage.peer;
	uint32_t block = media_block(map->medium->media), len = qp->rx->seg_len;
	struct peer_buffer *next;

	assert(lock_held(&p->lock));
	if (l->len) {
		if (len <= SIZE - l->used) {
			place_at(l, l->used, len, NULL);
			return true;
		}
		next = peer_try_take(&p->in, map->medium);
		if (next)
			place_at(l, l->used, len, next);
		return next != NULL;
	}
	if (l->buffer && l->medium == map->medium) {
		uint32_t at = l->used + (uint32_t)((map->offset - l->used) % block);

		if (at <= SIZE && len <= SIZE - at) {
			place_at(l, at, len, NULL);
			return true;
		}
	}
	return place_afresh(p, l, map, len);
}

/* Returns false where the write would overtake a read that is not all in the lane yet. */
static bool may_go(struct store_peer *p, const struct store_map *map, uint32_t len)
{
	assert(lock_held(&p->lock));
	return p->n_writes < PEER_WRITES && !peer_overtakes(p, map, len);
}

/* Returns GO_ON if the segment has a place; WAIT if there is none now; STOP. */
static enum outcome find_place(struct stag_qp *qp, const struct store_map *map)
{
	struct store_peer *p = qp->storage.peer;
	bool found, turn, starved;

	assert(qp_rx_locked(qp));
	if (!goes_on(qp, map) && !rx_store_land(qp))
		return STOP;
	lock_acquire(&p->lock);
	found = may_go(p, map, qp->rx->seg_len) && reserve_place(qp, map);
	p->rx_waits = !found;
	lock_release(&p->lock);
	if (found)
		return GO_ON;
	/* Submits what has been received while we wait, which frees its buffer. */
	if (!rx_store_land(qp))
		return STOP;
	rx_store_rest(qp);
	lock_acquire(&p->lock);
	turn = may_go(p, map, qp->rx->seg_len);
	found = turn && reserve_place(qp, map);
	starved = turn && !found && peer_is_starved(&p->in);
	p->rx_waits = !found;
	lock_release(&p->lock);
	if (starved)
		rx_stop_with(qp, FAULT_RDMAP_LOCAL);
	return found ? GO_ON : starved ? STOP : WAIT;
}

enum outcome rx_store_begin(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct store_map map;
	enum outcome o;
	enum key_fault f = store_get(rx->h.stag, qp->pd, qp, rx->h.to, rx->seg_len,
				     IBV_ACCESS_REMOTE_WRITE, &map);

	assert(qp_rx_locked(qp));
	if (f != KEY_OK) {
		rx_refuse_write(qp, f);
		return STOP;
	}
	if (!peer_of(qp) || peer_use(qp->storage.peer, map.medium)) {
		rx_stop_with(qp, FAULT_RDMAP_LOCAL);
		o = STOP;
	} else {
		o = find_place(qp, &map);
	}
	store_put(&map);
	return o;
}

enum key_fault rx_store_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;
	uint32_t off = rx->seg_done;

	assert(qp_rx_locked(qp));
	*map = (struct key_map){.n = 0};
	for (unsigned i = 0; i < rx->landing.n_span && len; i++) {
		const struct rx_span *s = &rx->landing.span[i];
		uint32_t part;

		if (off >= s->len) {
			off -= s->len;
			continue;
		}
		part = len < s->len - off ? len : s->len - off;
		map->iov[map->n++] = (struct iovec){s->buffer->memory + s->at + off, part};
		map->len += part;
		len -= part;
		off = 0;
	}
	return KEY_OK;
}

/* Accepts the bytes of a good segment into the write. */
static bool take_span(struct stag_qp *qp, const struct rx_span *s, uint64_t to)
{
	struct rx_landing *l = &qp->rx->landing;

	if (s->buffer != l->buffer) {
		if (!rx_store_land(qp))
			return false;
		lock_acquire(&qp->storage.peer->lock);
		s->buffer->refs++;
		set_buffer(l, s->buffer);
		lock_release(&qp->storage.peer->lock);
	}
	if (!l->len) {
		l->start = s->at;
		l->stag = qp->rx->h.stag;
		l->to = to;
	}
	l->len += s->len;
	l->used = s->at + s->len;
	return l->used < SIZE || rx_store_land(qp);
}

bool rx_store_end(struct stag_qp *qp)
{
	struct rx_landing *l = &qp->rx->landing;
	uint64_t to = qp->rx->h.to;

	assert(qp_rx_locked(qp));
	for (unsigned i = 0; i < l->n_span; i++) {
		if (!take_span(qp, &l->span[i], to))
			return false;
		to += l->span[i].len;
	}
	if (qp->storage.peer) {
		lock_acquire(&qp->storage.peer->lock);
		drop_spans(l);
		lock_release(&qp->storage.peer->lock);
	}
	return !qp->rx->h.last || rx_store_land(qp);
}

/* Nothing more comes for now: gives up the buffer, for which others may wait. */
void rx_store_rest(struct stag_qp *qp)
{
	struct rx_landing *l = &qp->rx->landing;

	assert(qp_rx_locked(qp));
	if (!qp->storage.peer)
		return;
	if (!l->n_span && !l->len && l->buffer) {
		lock_acquire(&qp->storage.peer->lock);
		set_buffer(l, NULL);
		lock_release(&qp->storage.peer->lock);
	}
}

/*
 * Does somebody need the buffer of an incomplete write? If not, it waits for the rest: a
 * partial write may end in the middle of a block.
 */
static bool is_wanted(const struct stag_qp *qp)
{
	const struct rx_landing *l = &qp->rx->landing;

	return !qp->rx->stopped && !l->n_span && l->len && atomic_load(&l->medium->hungry);
}

/* The receiver has stopped reading for now. */
void rx_store_dry(struct stag_qp *qp)
{
	struct store_peer *p = qp->storage.peer;

	assert(qp_rx_locked(qp));
	if (is_wanted(qp) && !rx_store_land(qp))
		return;
	rx_store_rest(qp);
	lock_acquire(&p->lock);
	peer_rest(p);
	lane_kick(&p->lane);
	lock_release(&p->lock);
}

/* The stream has ended: carries out the complete segments of a write, as with memory. */
void rx_store_stop(struct stag_qp *qp)
{
	struct rx_landing *l = &qp->rx->landing;

	assert(qp_rx_locked(qp));
	if (!qp->storage.peer)
		return;
	submit_landed(qp);
	lock_acquire(&qp->storage.peer->lock);
	l->len = 0;
	drop_spans(l);
	set_buffer(l, NULL);
	lane_kick(&qp->storage.peer->lane);
	lock_release(&qp->storage.peer->lock);
}

/* ---- requests ---- */

static enum key_fault find_store(struct stag_qp *qp, uint32_t stag, uint64_t to, uint64_t len,
				 unsigned access, struct store_map *map)
{
	enum key_fault f = store_get(stag, qp->pd, qp, to, len, access, map);

	if (f == KEY_OK && (!peer_of(qp) || peer_use(qp->storage.peer, map->medium))) {
		log_err("qp %u: no memory for a peer that uses storage", qp->ibv.qp_num);
		store_put(map);
		return KEY_BUSY;
	}
	return f;
}

uint64_t rx_gate(const struct stag_qp *qp)
{
	assert(qp_rx_locked(qp));
	return qp->storage.peer ? qp->storage.peer->last_write : 0;
}

enum key_fault rx_store_read(struct stag_qp *qp, const struct rdmap_read_req *r,
			     struct peer_request **out, uint64_t *gate)
{
	struct store_map map;
	enum key_fault f =
		find_store(qp, r->src_stag, r->src_to, r->size, IBV_ACCESS_REMOTE_READ, &map);

	assert(qp_rx_locked(qp));
	if (f != KEY_OK)
		return f;
	*out = peer_read(qp->storage.peer, &map, r->src_stag, r->src_to, r->size);
	if (map.relax & STAGDV_RELAX_READS)
		*gate = 0;
	store_put(&map);
	return *out ? KEY_OK : KEY_BUSY;
}

enum key_fault rx_store_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *r,
			       struct peer_request **out)
{
	struct store_map map;
	enum key_fault f =
		find_store(qp, r->stag, r->to, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC, &map);

	assert(qp_rx_locked(qp));
	if (f != KEY_OK)
		return f;
	*out = peer_atomic(qp->storage.peer, &map, r);
	store_put(&map);
	return *out ? KEY_OK : KEY_BUSY;
}

enum key_fault rx_store_check(struct stag_qp *qp, const struct rdmap_flush_req *r)
{
	struct store_map map;
	enum key_fault f = find_store(qp, r->stag, r->to, r->length, 0, &map);

	assert(qp_rx_locked(qp));
	if (f == KEY_OK)
		store_put(&map);
	return f;
}

enum key_fault rx_store_flush(struct stag_qp *qp, struct peer_request **out)
{
	assert(qp_rx_locked(qp));
	*out = peer_flush(qp->storage.peer);
	return *out ? KEY_OK : KEY_BUSY;
}

/* ---- what stands behind writes ---- */

static bool is_reached(const struct stag_qp *qp, uint64_t gate)
{
	return atomic_load_explicit(&qp->storage.peer->reached, memory_order_acquire) >= gate;
}

/* Writers of last_write hold rx_lock, too: it may be read here. */
bool rx_must_hold(const struct stag_qp *qp)
{
	assert(qp_rx_locked(qp));
	return qp->storage.peer &&
	       (!list_empty(&qp->rx->held) || atomic_load(&qp->storage.peer->failed) ||
		!is_reached(qp, qp->storage.peer->last_write));
}

static struct held *hold_completion(struct stag_qp *qp, enum held_kind kind)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->kind = kind;
	h->gate = qp->storage.peer->last_write;
	list_add_tail(&qp->rx->held, &h->link);
	return h;
}

/* Fails the connection: without memory the message is lost. */
static void lose_receive(struct stag_qp *qp, struct ibv_wc wc)
{
	struct store_peer *p = qp->storage.peer;

	log_err("qp %u: no memory for a message behind writes", qp->ibv.qp_num);
	wc.status = IBV_WC_WR_FLUSH_ERR;
	qp_push_recv(qp, &wc, false);
	lock_acquire(&p->lock);
	atomic_store(&p->failed, -ENOMEM);
	peer_tell(p);
	lock_release(&p->lock);
}

void rx_hold_receive(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	struct held *h = hold_completion(qp, HELD_RECEIVE);

	assert(qp_rx_locked(qp));
	if (!h) {
		lose_receive(qp, *wc);
		return;
	}
	h->wc = *wc;
	h->solicited = solicited;
}

bool rx_hold_read(struct stag_qp *qp)
{
	struct held *h = hold_completion(qp, HELD_READ);

	assert(qp_rx_locked(qp));
	if (!h)
		return rx_stop_with(qp, FAULT_RDMAP_LOCAL);
	lock_acquire(&qp->tx_lock);
	h->read = qp_tx_read_came(qp);
	lock_release(&qp->tx_lock);
	return true;
}

static void deliver_held(struct stag_qp *qp, struct held *h)
{
	list_del(&h->link);
	if (h->kind == HELD_RECEIVE) {
		qp_push_recv(qp, &h->wc, h->solicited);
	} else {
		lock_acquire(&qp->tx_lock);
		h->read->done = true;
		sq_retire(qp);
		lock_release(&qp->tx_lock);
	}
	free(h);
}

static void deliver_reached(struct stag_qp *qp)
{
	struct list *held = &qp->rx->held;

	while (!list_empty(held)) {
		struct held *h = list_entry(held->next, struct held, link);

		if (!is_reached(qp, h->gate))
			return;
		deliver_held(qp, h);
	}
}

/* flush: completes each receive with a flush error; otherwise drops them. */
void rx_drop_held(struct stag_qp *qp, bool flush)
{
	struct list *held = &qp->rx->held;

	assert(qp_rx_locked(qp));
	while (!list_empty(held)) {
		struct held *h = list_entry(held->next, struct held, link);

		list_del(&h->link);
		if (flush && h->kind == HELD_RECEIVE) {
			h->wc.status = IBV_WC_WR_FLUSH_ERR;
			qp_push_recv(qp, &h->wc, false);
		}
		free(h);
	}
}

/* ---- news ---- */

/* Fails the queue pair after a failed write: later messages must not be delivered. */
static void fail_after_write(struct stag_qp *qp)
{
	struct terminate t;

	qp->rx->stopped = true;
	qp->rx->end.kind = END_NONE;
	rx_store_stop(qp);
	terminate_init(&t, FAULT_RDMAP_OP_OTHER, NULL, 0, 0);
	lock_acquire(&qp->tx_lock);
	qp_fail(qp, &t, IBV_EVENT_QP_FATAL);
	lock_release(&qp->tx_lock);
}

void rx_store_serve(struct stag_qp *qp, struct store_peer *p)
{
	int state = atomic_load(&qp->state);

	assert(qp_rx_locked(qp));
	if (!qp->rx || qp->storage.peer != p || (state != QP_RTS && state != QP_CLOSING))
		return;
	deliver_reached(qp);
	if (atomic_load(&p->failed))
		fail_after_write(qp);
	else if (qp->rx->end.kind != END_NONE && !rx_must_hold(qp))
		rx_end_now(qp);
	else if (!qp->rx->stopped && atomic_load(&qp->progress.rx_paused))
		rx_resume(qp);
}
