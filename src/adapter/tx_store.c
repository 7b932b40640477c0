// SPDX-License-Identifier: BSD-2-Clause
/*
 * tx_store.c - a peer's reads, atomics and flushes of regions on storage, from their arrival to
 * their response.
 *
 * A read goes into the lane in pieces of at most a buffer, as many as may be ahead of the
 * stream. The rest waits here, in order, and no write may overtake it (peer_overtakes()).
 */
#include "adapter/store_peer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/explain.h"
#include "adapter/qp.h"
#include "base/log.h"

#define SIZE MEDIA_BUFFER_SIZE

struct peer_request {
	struct list link; /* in peer->requests, until all of it is in the lane */
	struct store_peer *peer;
	uint8_t kind; /* enum media_kind */
	bool dropped;
	struct wire_fault fault; /* set: no more pieces will come */
	uint32_t stag, relax;
	uint64_t to;
	struct stag_medium *medium;
	uint64_t offset; /* in the medium */
	uint32_t size, added;
	struct rdmap_atomic_req atomic;
	struct list pieces;
};

/* An operation of a request. */
struct peer_piece {
	struct lane_op op;
	struct iovec iov;
	struct store_map map;
	struct peer_request *request;
	struct list link;
	struct peer_buffer *buffer; /* reads only */
	uint32_t taken;		    /* bytes taken by the stream */
	bool done;
};

/* ---- their ends ---- */

static void free_piece(struct peer_piece *i)
{
	struct store_peer *p = i->request->peer;

	assert(lock_held(&p->lock));
	list_del(&i->link);
	if (i->buffer)
		p->ahead -= (uint32_t)i->op.io.length;
	peer_give(i->buffer);
	free(i);
}

/* Frees a request that nobody waits for, once none of its operations is in flight. */
static void free_if_unused(struct peer_request *r)
{
	assert(lock_held(&r->peer->lock));
	if (!r->dropped)
		return;
	list_for_each_safe (l, &r->pieces) {
		struct peer_piece *i = list_entry(l, struct peer_piece, link);

		if (i->done)
			free_piece(i);
	}
	if (list_empty(&r->pieces))
		free(r);
}

static void on_done(struct lane_op *op)
{
	struct peer_piece *i = container_of(op, struct peer_piece, op);
	struct peer_request *r = i->request;
	struct store_peer *p = r->peer;

	if (op->io.result && r->kind == MEDIA_FLUSH)
		log_err("a peer's flush of a medium failed: %s", strerror(-op->io.result));
	else if (op->io.result)
		log_err("mr 0x%08x: a peer's %s of %llu bytes at %llu of the medium failed: %s",
			r->stag, r->kind == MEDIA_READ ? "read" : "atomic",
			(unsigned long long)op->io.length, (unsigned long long)op->io.offset,
			strerror(-op->io.result));
	store_put(&i->map);
	i->done = true;
	free_if_unused(r);
	peer_done(p);
}

/* ---- into the lane ---- */

static struct peer_piece *new_piece(struct peer_request *r, uint8_t kind, uint64_t length)
{
	struct peer_piece *i = calloc(1, sizeof(*i));

	if (!i) {
		r->fault = FAULT_RDMAP_LOCAL;
		return NULL;
	}
	i->request = r;
	i->op.io.kind = kind;
	i->op.io.length = length;
	i->op.done = on_done;
	return i;
}

static void add_piece(struct peer_request *r, struct peer_piece *i)
{
	i->op.io.offset = i->map.offset;
	i->op.io.cache_ms = i->map.cache_ms;
	i->op.medium = i->map.medium;
	i->op.relax = i->map.relax;
	list_add_tail(&r->pieces, &i->link);
	peer_add(r->peer, &i->op);
}

/* Looks the region up for each piece: it may be gone meanwhile. */
static bool find_region(struct peer_request *r, struct peer_piece *i, unsigned access)
{
	struct stag_qp *qp = r->peer->qp;
	enum key_fault f =
		store_get(r->stag, qp->pd, qp, r->to + r->added, i->op.io.length, access, &i->map);

	if (f == KEY_OK)
		return true;
	r->fault = rx_read_fault(f);
	log_refused_access(qp, r->kind == MEDIA_READ ? "read" : "atomic",
			   &(struct key_access){r->stag, r->to + r->added, i->op.io.length, access},
			   f);
	return false;
}

/* Finds the place for the next bytes of a read. Returns false if there is no buffer now. */
static bool find_room(struct store_peer *p, const struct peer_request *r, uint32_t *at)
{
	uint32_t block = media_block(r->medium->media), left = r->size - r->added;
	uint64_t offset = r->offset + r->added;

	if (p->buffer && p->buffer->media && p->buffer->media != r->medium->media)
		peer_rest(p);
	if (p->buffer) {
		*at = p->used + (uint32_t)((offset - p->used) % block);
		if (*at <= SIZE && left <= SIZE - *at)
			return true;
		peer_rest(p);
	}
	p->buffer = peer_take(&p->out, r->medium);
	p->used = 0;
	*at = (uint32_t)(offset % block);
	return p->buffer != NULL;
}

/* Returns false if it has to wait. */
static bool add_read(struct store_peer *p, struct peer_request *r)
{
	uint32_t left = r->size - r->added, at, len;
	struct peer_piece *i;

	if (p->ahead && p->ahead + (left < SIZE ? left : SIZE) > PEER_AHEAD)
		return false;
	if (!find_room(p, r, &at)) {
		if (peer_is_starved(&p->out) && !p->ahead)
			r->fault = FAULT_RDMAP_LOCAL;
		return r->fault.set;
	}
	len = left < SIZE - at ? left : SIZE - at;
	i = new_piece(r, MEDIA_READ, len);
	if (!i || !find_region(r, i, IBV_ACCESS_REMOTE_READ)) {
		free(i);
		return true;
	}
	i->buffer = p->buffer;
	i->buffer->refs++;
	p->used = at + len;
	p->ahead += len;
	i->iov = (struct iovec){p->buffer->memory + at, len};
	i->op.io.iov = &i->iov;
	i->op.io.n_iov = 1;
	r->added += len;
	add_piece(r, i);
	return true;
}

static uint64_t apply_atomic(const struct media_op *io, uint64_t found)
{
	const struct peer_piece *i = container_of(io, struct peer_piece, op.io);

	return rdmap_atomic_result(&i->request->atomic, found);
}

static void add_atomic(struct peer_request *r)
{
	struct peer_piece *i = new_piece(r, MEDIA_ATOMIC, sizeof(uint64_t));

	if (!i || !find_region(r, i, IBV_ACCESS_REMOTE_ATOMIC)) {
		free(i);
		return;
	}
	i->op.io.apply = apply_atomic;
	i->op.io.durable = i->map.level == STAGDV_LEVEL_DURABLE;
	r->added = r->size;
	add_piece(r, i);
}

static void add_flush(struct peer_request *r)
{
	struct peer_piece *i = new_piece(r, MEDIA_FLUSH, 0);

	r->added = r->size;
	if (i)
		add_piece(r, i);
}

void peer_advance(struct store_peer *p)
{
	bool any = false;

	assert(lock_held(&p->lock));
	while (p->qp && !list_empty(&p->requests)) {
		struct peer_request *r = list_entry(p->requests.next, struct peer_request, link);

		if (r->kind == MEDIA_READ && !add_read(p, r))
			break;
		if (r->kind == MEDIA_ATOMIC)
			add_atomic(r);
		if (r->kind == MEDIA_FLUSH)
			add_flush(r);
		any = true;
		if (r->added == r->size || r->fault.set)
			list_del(&r->link);
	}
	if (any && p->rx_waits)
		peer_tell(p); /* a write may wait for its turn */
}

void peer_rest(struct store_peer *p)
{
	assert(lock_held(&p->lock));
	peer_give(p->buffer);
	p->buffer = NULL;
}

bool peer_overtakes(struct store_peer *p, const struct store_map *map, uint64_t len)
{
	assert(lock_held(&p->lock));
	list_for_each (l, &p->requests) {
		const struct peer_request *r = list_entry(l, struct peer_request, link);
		uint64_t from = r->offset + r->added;
		uint32_t order = r->kind == MEDIA_READ ? STAGDV_RELAX_LATER : STAGDV_RELAX_ATOMICS;

		if (r->kind == MEDIA_FLUSH || r->medium != map->medium ||
		    (r->relax & map->relax & order))
			continue;
		if (from < map->offset + len && map->offset < r->offset + r->size)
			return true;
	}
	return false;
}

/* ---- as they come ---- */

static struct peer_request *new_request(struct store_peer *p, uint8_t kind,
					const struct store_map *map, uint32_t size)
{
	struct peer_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->peer = p;
	r->kind = kind;
	r->size = size;
	if (map) {
		r->medium = map->medium;
		r->offset = map->offset;
		r->relax = map->relax;
	}
	list_init(&r->link);
	list_init(&r->pieces);
	return r;
}

struct peer_request *peer_read(struct store_peer *p, const struct store_map *map, uint32_t stag,
			       uint64_t to, uint32_t size)
{
	struct peer_request *r = new_request(p, MEDIA_READ, map, size);

	if (r) {
		r->stag = stag;
		r->to = to;
	}
	return r;
}

struct peer_request *peer_atomic(struct store_peer *p, const struct store_map *map,
				 const struct rdmap_atomic_req *req)
{
	struct peer_request *r = new_request(p, MEDIA_ATOMIC, map, sizeof(uint64_t));

	if (r) {
		r->stag = req->stag;
		r->to = req->to;
		r->atomic = *req;
	}
	return r;
}

struct peer_request *peer_flush(struct store_peer *p)
{
	return new_request(p, MEDIA_FLUSH, NULL, 1);
}

void peer_begin(struct peer_request *r)
{
	struct store_peer *p = r->peer;

	lock_acquire(&p->lock);
	list_add_tail(&p->requests, &r->link);
	peer_advance(p);
	lock_release(&p->lock);
}

void peer_drop(struct peer_request *r)
{
	struct store_peer *p = r ? r->peer : NULL;

	if (!r)
		return;
	lock_acquire(&p->lock);
	list_del(&r->link);
	r->dropped = true;
	free_if_unused(r);
	lock_release(&p->lock);
}

/* ---- their answers ---- */

/* Returns the next piece if it is done, or NULL. */
static struct peer_piece *next_piece(struct peer_request *r)
{
	struct peer_piece *i;

	assert(lock_held(&r->peer->lock));
	if (list_empty(&r->pieces))
		return NULL;
	i = list_entry(r->pieces.next, struct peer_piece, link);
	return i->done ? i : NULL;
}

bool peer_is_ready(struct peer_request *r, struct wire_fault *fault)
{
	struct peer_piece *i;
	bool ready;

	lock_acquire(&r->peer->lock);
	i = next_piece(r);
	ready = i && !i->op.io.result;
	*fault = WIRE_OK;
	if (i && i->op.io.result)
		*fault = FAULT_RDMAP_OP_OTHER;
	else if (list_empty(&r->pieces))
		*fault = r->fault;
	lock_release(&r->peer->lock);
	return ready;
}

unsigned peer_take_data(struct peer_request *r, size_t want, struct iovec *iov,
			struct peer_buffer **buffers, unsigned n)
{
	struct store_peer *p = r->peer;
	struct peer_piece *i;
	unsigned got = 0;

	lock_acquire(&p->lock);
	while (want && got < n && (i = next_piece(r)) && !i->op.io.result) {
		size_t part = i->op.io.length - i->taken;

		part = part < want ? part : want;
		iov[got] = (struct iovec){(uint8_t *)i->iov.iov_base + i->taken, part};
		buffers[got] = i->buffer;
		i->buffer->refs++;
		got++;
		want -= part;
		i->taken += (uint32_t)part;
		if (i->taken == i->op.io.length)
			free_piece(i);
	}
	peer_advance(p);
	peer_rest(p);
	lane_kick(&p->lane);
	lock_release(&p->lock);
	return got;
}

uint64_t peer_found(const struct peer_request *r)
{
	return list_entry(r->pieces.next, struct peer_piece, link)->op.io.found;
}
