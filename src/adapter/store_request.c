// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_request.c - one work request of a queue pair on storage: from the send queue into the
 * lane, and back.
 *
 * The region's key is looked up when the request is posted, because the lane must know its
 * bytes. The memory's keys are looked up when the operation starts, and held until it is done:
 * the kernel has the addresses for so long.
 */
#include "adapter/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/explain.h"
#include "adapter/guard.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "base/log.h"

static struct store_request *to_request(struct lane_op *op)
{
	return container_of(op, struct store_request, op);
}

/* ---- its memory ---- */

static void release_memory(struct store_request *r)
{
	while (r->n_held) {
		struct held_key *h = &r->held[--r->n_held];

		guard_leave(h->cell);
		atomic_fetch_sub(&h->slot->lent, 1);
		key_release(h->slot);
	}
	r->op.io.n_iov = 0;
}

/* Makes room for more pieces than the queue pair has SGEs: a fast region may have many. */
static int make_room(struct store_request *r, uint32_t pieces)
{
	uint32_t room = r->room;
	struct held_key *held;
	struct iovec *iov;

	if (pieces <= room)
		return 0;
	while (room < pieces)
		room *= 2;
	held = malloc(room * sizeof(*held));
	iov = malloc(room * sizeof(*iov));
	if (!held || !iov) {
		free(held);
		free(iov);
		return -ENOMEM;
	}
	memcpy(held, r->held, r->n_held * sizeof(*held));
	memcpy(iov, r->iov, r->op.io.n_iov * sizeof(*iov));
	if (r->grown) {
		free(r->held);
		free(r->iov);
	}
	r->grown = true;
	r->held = held;
	r->iov = iov;
	r->room = room;
	return 0;
}

/* Moves the map's references to the request. */
static int adopt_map(struct store_request *r, struct key_map *map)
{
	int err = make_room(r,
			    (r->n_held > r->op.io.n_iov ? r->n_held : r->op.io.n_iov) + map->n + 1);

	if (err) {
		key_put(map);
		return err;
	}
	atomic_fetch_add(&map->slot[0]->lent, 1);
	r->held[r->n_held++] = (struct held_key){map->slot[0], map->cell};
	for (unsigned i = 0; i < map->n; i++)
		r->iov[r->op.io.n_iov++] = map->iov[i];
	return 0;
}

/* Returns -EAGAIN if no hazard cell is free: this thread might wait for itself. */
static int hold_sge(struct store_request *r, uint32_t i, unsigned access)
{
	const struct ibv_sge *s = &r->w->sge[i];
	uint32_t done = 0;

	while (done < s->length) {
		struct key_map map;
		enum key_fault f = key_try_get(s->lkey, r->qp->pd, NULL, s->addr + done,
					       s->length - done, access, &map);
		int err;

		if (f == KEY_BUSY)
			return -EAGAIN;
		if (f != KEY_OK) {
			log_bad_sge(r->qp, r->w->wr_id, i, "a request", s, access, f);
			return -EACCES;
		}
		done += (uint32_t)map.len;
		err = adopt_map(r, &map);
		if (err)
			return err;
	}
	return 0;
}

static int hold_memory(struct store_request *r)
{
	unsigned access = r->op.io.kind == MEDIA_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE;
	struct wqe *w = r->w;

	r->op.io.n_iov = 0;
	if (w->inline_data) {
		r->iov[0] = (struct iovec){w->inline_data, w->length};
		r->op.io.n_iov = w->length > 0;
		return 0;
	}
	for (uint32_t i = 0; i < w->num_sge; i++) {
		int err = hold_sge(r, i, access);

		if (err) {
			release_memory(r);
			return err;
		}
	}
	return 0;
}

/* ---- its bytes are taken ---- */

/* Gives the entry another request: this one goes on without it. */
static bool detach_entry(struct store_request *r)
{
	struct store_qp *s = r->qp->storage.store;
	struct store_request *other;

	if (list_empty(&s->spares))
		return false;
	other = list_entry(s->spares.next, struct store_request, spare);
	list_del(&other->spare);
	other->w = r->w;
	s->at[r->w - r->qp->sq.wqe] = other;
	r->w = NULL;
	return true;
}

/*
 * Copies the bytes with their offset in a block of the medium, so that they need not be copied
 * once more.
 */
static void take_bytes(struct store_request *r)
{
	struct media_op *io = &r->op.io;
	uint8_t *at = (uint8_t *)r->taken + io->offset % media_block(r->op.medium->media);

	for (uint32_t i = 0, done = 0; i < io->n_iov; done += r->iov[i++].iov_len)
		memcpy(at + done, r->iov[i].iov_base, r->iov[i].iov_len);
	release_memory(r);
	r->iov[0] = (struct iovec){at, io->length};
	io->n_iov = 1;
}

/*
 * Completes a write whose memory is held and which is about to go. If there is no buffer for
 * its bytes, or it is too long for one, the write completes when it is visible, which is more
 * than requested.
 */
static void accept_write(struct store_request *r)
{
	struct media *m = r->op.medium->media;
	struct wqe *w = r->w;

	if (r->op.io.length > MEDIA_BUFFER_SIZE - r->op.io.offset % media_block(m))
		return;
	r->taken = media_try_buffer(m);
	if (!r->taken)
		return;
	if (!detach_entry(r)) {
		media_give_buffer(m, r->taken);
		r->taken = NULL;
		return;
	}
	take_bytes(r);
	w->done = true;
	store_qp_accepted(r->qp, w, r->op.relax);
}

/* Ends a write that completed when it was accepted. */
static void end_accepted(struct store_request *r)
{
	struct stag_qp *qp = r->qp;

	media_give_buffer(r->op.medium->media, r->taken);
	r->taken = NULL;
	r->op.io.n_iov = 0;
	store_put(&r->map);
	list_add_tail(&qp->storage.store->spares, &r->spare);
	if (r->op.io.result && r->op.io.result != -ECANCELED)
		store_qp_lost(r);
	store_qp_settle(qp);
}

/* ---- it goes ---- */

static uint64_t apply_atomic(const struct media_op *io, uint64_t found)
{
	const struct store_request *r = container_of(io, struct store_request, op.io);

	if (r->adds)
		return found + r->compare_add;
	return found == r->compare_add ? r->swap : found;
}

static int start_io(struct lane_op *op)
{
	struct store_request *r = to_request(op);
	int err = hold_memory(r);

	if (err == -EAGAIN)
		return err;
	if (err) {
		r->w->status = err == -EACCES ? IBV_WC_LOC_PROT_ERR : IBV_WC_GENERAL_ERR;
		return err;
	}
	op->io.iov = r->iov;
	op->io.cache_ms = r->map.cache_ms;
	if (r->accepts)
		accept_write(r);
	return 0;
}

/* An atomic's memory is for its result; the medium does not use it. */
static int start_atomic(struct lane_op *op)
{
	int err = start_io(op);

	to_request(op)->n_result = op->io.n_iov;
	op->io.n_iov = 0;
	op->io.iov = NULL;
	op->io.apply = apply_atomic;
	return err;
}

static int start_step(struct lane_op *op)
{
	struct store_request *r = to_request(op);

	sq_complete_local(r->qp, r->w);
	return r->w->status == IBV_WC_SUCCESS ? 0 : -EACCES;
}

/* ---- it is done ---- */

static void place_result(struct store_request *r)
{
	const uint8_t *from = (const uint8_t *)&r->op.io.found;

	for (uint32_t i = 0; i < r->n_result; i++) {
		memcpy(r->iov[i].iov_base, from, r->iov[i].iov_len);
		from += r->iov[i].iov_len;
	}
}

static void log_failure(const struct store_request *r, const char *why)
{
	log_info("qp %u: wr_id 0x%llx: %u bytes at 0x%llx of key 0x%08x: %s", r->qp->ibv.qp_num,
		 (unsigned long long)r->w->wr_id, r->w->length,
		 (unsigned long long)r->w->remote_addr, r->w->rkey, why);
}

static void on_done(struct lane_op *op)
{
	struct store_request *r = to_request(op);
	struct wqe *w = r->w;
	int err = op->io.result;

	if (!w) {
		end_accepted(r);
		return;
	}
	if (!err && op->io.kind == MEDIA_ATOMIC)
		place_result(r);
	release_memory(r);
	store_put(&r->map);
	if (err && err != -ECANCELED && w->status == IBV_WC_SUCCESS) {
		log_failure(r, strerror(-err));
		w->status = IBV_WC_REM_OP_ERR;
		w->error = (uint16_t)-err;
	}
	w->done = err != -ECANCELED || w->status != IBV_WC_SUCCESS;
	store_qp_done(r);
}

/* ---- into the lane ---- */

static uint32_t level_of(const struct store_qp *s, const struct wqe *w)
{
	if (w->send_flags & STAGDV_SEND_DURABLE)
		return STAGDV_LEVEL_DURABLE;
	if (w->send_flags & STAGDV_SEND_VISIBLE)
		return STAGDV_LEVEL_VISIBLE;
	if (w->send_flags & STAGDV_SEND_ACCEPTED)
		return STAGDV_LEVEL_ACCEPTED;
	return s->level;
}

static void log_misuse(const struct store_request *r, const char *kind, const char *why)
{
	misuse(kind, r->qp->ibv.qp_num,
	       "qp %u: wr_id 0x%llx: %u bytes at 0x%llx of storage under rkey 0x%08x: %s",
	       r->qp->ibv.qp_num, (unsigned long long)r->w->wr_id, r->w->length,
	       (unsigned long long)r->w->remote_addr, r->w->rkey, why);
}

static enum ibv_wc_status refuse_request(struct store_request *r, unsigned access, enum key_fault f)
{
	const struct key_access a = {r->w->rkey, r->w->remote_addr, r->w->length, access};
	char why[EXPLAIN_ROOM];

	log_misuse(r, key_fault_str(f), explain_key(&a, r->qp->pd, f, why));
	return IBV_WC_REM_ACCESS_ERR;
}

static enum ibv_wc_status find_region(struct store_request *r, unsigned access)
{
	struct wqe *w = r->w;
	enum key_fault f =
		store_get(w->rkey, r->qp->pd, r->qp, w->remote_addr, w->length, access, &r->map);

	if (f != KEY_OK)
		return refuse_request(r, access, f);
	r->op.medium = r->map.medium;
	r->op.io.offset = r->map.offset;
	r->op.relax = r->qp->storage.store->relax | r->map.relax;
	qp_use_medium(r->qp, r->map.medium); /* if it fails, the engine polls the medium */
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status prepare_io(struct store_request *r, enum media_kind kind, unsigned access)
{
	r->op.io.kind = kind;
	r->op.io.length = r->w->length;
	r->op.start = start_io;
	if (r->w->length == 0)
		return IBV_WC_SUCCESS; /* RFC 5041 §5.2: nothing to check */
	return find_region(r, access);
}

static enum ibv_wc_status prepare_atomic(struct store_request *r)
{
	enum ibv_wc_status status = prepare_io(r, MEDIA_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);

	r->op.start = start_atomic;
	r->adds = r->w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	r->compare_add = r->w->compare_add;
	r->swap = r->w->swap;
	if (status == IBV_WC_SUCCESS && r->op.io.offset % sizeof(uint64_t)) {
		log_misuse(r, __func__, "an atomic needs an aligned word");
		status = IBV_WC_REM_INV_REQ_ERR;
	}
	return status;
}

/* The key is only checked: a barrier covers all requests posted before. */
static enum ibv_wc_status prepare_barrier(struct store_request *r)
{
	enum key_fault f = store_get(r->w->rkey, r->qp->pd, r->qp, 0, 0, 0, &r->map);

	r->op.io.kind = MEDIA_FLUSH;
	r->op.start = NULL;
	store_put(&r->map);
	return f == KEY_OK ? IBV_WC_SUCCESS : refuse_request(r, 0, f);
}

static enum ibv_wc_status prepare_request(struct store_request *r)
{
	switch (r->w->opcode) {
	case IBV_WR_RDMA_READ:
		return prepare_io(r, MEDIA_READ, IBV_ACCESS_REMOTE_READ);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return prepare_io(r, MEDIA_WRITE, IBV_ACCESS_REMOTE_WRITE);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return prepare_atomic(r);
	case STAG_WR_BARRIER:
		return prepare_barrier(r);
	default:
		r->op.io.kind = LANE_STEP;
		r->op.start = start_step;
		return IBV_WC_SUCCESS;
	}
}

bool store_request_enter(struct stag_qp *qp, uint32_t index)
{
	struct store_qp *s = qp->storage.store;
	struct store_request *r = s->at[index & qp->sq.mask];
	struct wqe *w = r->w;

	assert(qp_tx_locked(qp));
	r->map.slot = NULL;
	r->op.medium = NULL;
	r->op.relax = s->relax;
	r->op.fence = w->send_flags & IBV_SEND_FENCE;
	r->op.done = on_done;
	r->op.io.durable = level_of(s, w) == STAGDV_LEVEL_DURABLE;
	r->accepts = level_of(s, w) == STAGDV_LEVEL_ACCEPTED && w->opcode == IBV_WR_RDMA_WRITE &&
		     w->length > 0;
	w->status = prepare_request(r);
	if (w->status != IBV_WC_SUCCESS) {
		store_put(&r->map);
		w->done = true;
		return false;
	}
	lane_add(&s->lane, &r->op);
	return true;
}

int store_requests_init(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;
	uint32_t entries = qp->sq.mask + 1, n = 2 * entries, room = qp->sq.max_sge + 1;

	assert(qp_tx_locked(qp));
	list_init(&s->spares);
	s->request = calloc(n, sizeof(*s->request));
	s->at = calloc(entries, sizeof(struct store_request *));
	s->held_slab = calloc((size_t)n * room, sizeof(*s->held_slab));
	s->iov_slab = calloc((size_t)n * room, sizeof(*s->iov_slab));
	if (!s->request || !s->at || !s->held_slab || !s->iov_slab)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct store_request *r = &s->request[i];

		r->qp = qp;
		list_init(&r->spare);
		if (i < entries) {
			s->at[i] = r;
			r->w = &qp->sq.wqe[i];
		} else {
			list_add_tail(&s->spares, &r->spare);
		}
		r->room = room;
		r->held = s->held_slab + (size_t)i * room;
		r->iov = s->iov_slab + (size_t)i * room;
	}
	return 0;
}

void store_requests_free(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;

	assert(qp_tx_locked(qp));
	for (uint32_t i = 0; s->request && i < 2 * (qp->sq.mask + 1); i++) {
		if (!s->request[i].grown)
			continue;
		free(s->request[i].held);
		free(s->request[i].iov);
	}
	free(s->at);
	free(s->held_slab);
	free(s->iov_slab);
	free(s->request);
}
