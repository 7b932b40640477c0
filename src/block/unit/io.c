// SPDX-License-Identifier: BSD-2-Clause
/*
 * io.c - an operation on a unit, from lun_start() to done(): a sequence of steps.
 *
 * Most operations have one step, a work request. Those that examine the unit's data (VERIFY, OR, COMPARE_WRITE) read it
 * to the scratch memory, piece by piece. All units share one scratch buffer and take turns: these operations are rare,
 * and an operation that waited for a buffer while it holds others could deadlock.
 */
#include "block/unit/lun.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define RETRY_MS   1000	      /* between two attempts to reconnect a unit that is gone */
#define MAX_TRIES  2	      /* queue pairs that may fail under one operation */
#define MAX_PUNCH  (1u << 30) /* bytes of one step */
#define PUNCH_UNIT 4096	      /* the smallest hole that file systems make */

static void next_step(struct lun_io *io);
static void after_step(struct lun_io *io);

/* ---- states ------------------------------------------------------------------------- */

static const char *lun_state_name(enum lun_state state)
{
	static const char *const names[] = {
		[LUN_UP] = "up",
		[LUN_DRAINING] = "draining",
		[LUN_RECONNECTING] = "reconnecting",
		[LUN_GONE] = "gone",
	};

	return names[state];
}

/* The only writer of l->state after lun_open(). */
static void set_lun_state(struct lun *l, enum lun_state to)
{
	static const uint8_t legal_from[] = {
		[LUN_UP] = 1u << LUN_RECONNECTING,
		[LUN_DRAINING] = 1u << LUN_UP,
		[LUN_RECONNECTING] = 1u << LUN_DRAINING | 1u << LUN_GONE,
		[LUN_GONE] = 1u << LUN_RECONNECTING,
	};

	assert(legal_from[to] & 1u << l->state);
	(void)legal_from;
	log_debug("block: %s: %s -> %s", l->where, lun_state_name(l->state), lun_state_name(to));
	l->state = to;
}

static const char *phase_name(enum lun_phase phase)
{
	static const char *const names[] = {
		[PHASE_NEW] = "new",
		[PHASE_MOVE] = "move",
		[PHASE_CHECK] = "check",
		[PHASE_SEARCH] = "search",
		[PHASE_PUT] = "put",
		[PHASE_ZERO] = "zero",
		[PHASE_FLUSH] = "flush",
		[PHASE_SYNC] = "sync",
		[PHASE_PUNCH] = "punch",
		[PHASE_EXTENT] = "extent",
		[PHASE_CALL] = "call",
		[PHASE_DONE] = "done",
		[PHASE_RECONNECT] = "reconnect",
	};

	return names[phase];
}

#define FROM(phase) (1u << PHASE_##phase)

/* The only writer of io->phase after lun_start(). Not logged: this is the data path. */
static void set_phase(struct lun_io *io, enum lun_phase to)
{
	static const uint16_t legal_from[] = {
		[PHASE_MOVE] = FROM(NEW) | FROM(CHECK),
		[PHASE_CHECK] = FROM(NEW) | FROM(MOVE) | FROM(CHECK) | FROM(PUT),
		[PHASE_SEARCH] = FROM(MOVE) | FROM(SEARCH),
		[PHASE_PUT] = FROM(CHECK),
		[PHASE_ZERO] = FROM(NEW) | FROM(ZERO) | FROM(PUNCH),
		[PHASE_FLUSH] = FROM(NEW) | FROM(SYNC),
		[PHASE_SYNC] = FROM(NEW),
		[PHASE_PUNCH] = FROM(NEW) | FROM(ZERO) | FROM(PUNCH),
		[PHASE_EXTENT] = FROM(NEW),
		[PHASE_CALL] = FROM(NEW),
		[PHASE_DONE] = (uint16_t) ~(FROM(DONE) | FROM(RECONNECT)),
	};
	bool legal = legal_from[to] & 1u << io->phase;

	if (!legal)
		log_err("block: %s: an operation's phase cannot change from %s to %s",
			io->lun->where, phase_name((enum lun_phase)io->phase), phase_name(to));
	assert(legal);
	io->phase = (uint8_t)to;
}

/* ---- operations that must not overlap --------------------------------------------------- */

static bool writes(const struct lun_io *io)
{
	switch (io->op) {
	case LUN_READ:
	case LUN_VERIFY:
	case LUN_FLUSH:
	case LUN_EXTENT:
	case LUN_CALL:
		return false;
	default:
		return true;
	}
}

static bool is_exclusive(const struct lun_io *io)
{
	return io->op == LUN_COMPARE_WRITE || io->op == LUN_OR || io->op == LUN_DISCARD;
}

static bool conflict(const struct lun_io *a, const struct lun_io *b)
{
	return writes(a) && writes(b) && (is_exclusive(a) || is_exclusive(b)) &&
	       a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

/* Checks for conflicts with active operations, and with those that have waited longer: all in l->held before behind. */
static bool is_held(const struct lun *l, const struct lun_io *io, const struct list *behind)
{
	list_for_each (at, &l->active)
		if (conflict(list_entry(at, struct lun_io, active), io))
			return true;
	for (struct list *at = l->held.next; at != behind; at = at->next)
		if (conflict(list_entry(at, struct lun_io, link), io))
			return true;
	return false;
}

static void activate(struct lun_io *io)
{
	list_add_tail(&io->lun->active, &io->active);
	next_step(io);
}

static void release_held(struct lun *l)
{
	struct list *at = l->held.next;

	while (at != &l->held) {
		struct lun_io *io = list_entry(at, struct lun_io, link);
		struct list *next = at->next;

		if (!is_held(l, io, at)) {
			list_del(&io->link);
			activate(io);
		}
		at = next;
	}
}

/* ---- scratch memory -------------------------------------------------------------------- */

static void queue_to_post(struct lun_io *io)
{
	list_add_tail(&io->lun->to_post, &io->link);
	lun_mark_dirty(io->lun);
}

static void take_scratch(struct lun_io *io)
{
	struct units *u = io->lun->u;

	if (u->scratch_user) {
		list_add_tail(&u->scratch_queue, &io->link);
		return;
	}
	u->scratch_user = io;
	queue_to_post(io);
}

static void give_scratch(struct lun_io *io)
{
	struct units *u = io->lun->u;
	struct list *next = u->scratch_queue.next;

	if (u->scratch_user != io)
		return;
	u->scratch_user = NULL;
	if (list_empty(&u->scratch_queue))
		return;
	list_del(next);
	take_scratch(list_entry(next, struct lun_io, link));
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Maps a result to the errors that done() documents; all others become -EIO. */
static int plain_result(int result)
{
	switch (result) {
	case 0:
	case -ENOSPC:
	case -EROFS:
	case -EILSEQ:
	case -ENODEV:
		return result;
	case -EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* Ends an operation. The unit may be closed from inside done(). */
static void finish(struct lun_io *io, int result)
{
	struct lun *l = io->lun;

	set_phase(io, PHASE_DONE);
	result = plain_result(result);
	if (result == -EIO)
		io->where = io->at;
	give_scratch(io);
	list_del(&io->active);
	if (is_exclusive(io))
		l->exclusive--;
	if (!list_empty(&l->held))
		release_held(l);
	l->u->n_done++;
	io->done(io, result);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static uint32_t left_up_to(const struct lun_io *io, uint64_t most)
{
	uint64_t left = io->length - io->at;

	return (uint32_t)(left < most ? left : most);
}

static void step_check(struct lun_io *io)
{
	set_phase(io, PHASE_CHECK);
	io->step = left_up_to(io, UNITS_BUFFER);
	take_scratch(io);
}

/* Finds the first part of the operation's memory from byte skip on. Returns NULL at its end. */
static uint8_t *memory_at(const struct lun_io *io, uint64_t skip, uint64_t *len)
{
	for (int i = 0; i < io->n_iov; i++) {
		if (skip < io->iov[i].iov_len) {
			*len = io->iov[i].iov_len - skip;
			return (uint8_t *)io->iov[i].iov_base + skip;
		}
		skip -= io->iov[i].iov_len;
	}
	return NULL;
}

/* Copies from or to a unit that is mapped memory. Returns -EAGAIN if the unit is not, or its pages are missing. */
static int copy_mapped(const struct lun_io *io)
{
	struct lun *l = io->lun;
	uint64_t skip = io->op == LUN_COMPARE_WRITE ? io->length : 0, done = 0, len = 0;
	uint32_t lkey;
	uint8_t *at = l->map ? lun_map_at(l, io->offset, io->length, &lkey) : NULL, *p;

	while (at && done < io->length && (p = memory_at(io, skip + done, &len))) {
		if (len > io->length - done)
			len = io->length - done;
		if (writes(io))
			memcpy(at + done, p, len);
		else
			memcpy(p, at + done, len);
		done += len;
	}
	return !at ? -EAGAIN : lun_map_is_torn(l->map) ? -EIO : 0;
}

static void step_move(struct lun_io *io)
{
	int rc = copy_mapped(io);

	set_phase(io, PHASE_MOVE);
	io->step = left_up_to(io, UINT32_MAX);
	if (rc == -EAGAIN)
		queue_to_post(io);
	else if (rc == 0)
		after_step(io);
	else
		finish(io, rc);
}

/* Reads block by block after a failed read, to find the block that fails. */
static void step_search(struct lun_io *io)
{
	uint32_t block = io->lun->facts.physical;

	set_phase(io, PHASE_SEARCH);
	io->step = left_up_to(io, block - (io->offset + io->at) % block);
	take_scratch(io);
}

static void step_zero(struct lun_io *io, uint64_t most)
{
	set_phase(io, PHASE_ZERO);
	io->step = left_up_to(
		io, most < LUN_MAX_IOV * UNITS_BUFFER ? most : LUN_MAX_IOV * UNITS_BUFFER);
	queue_to_post(io);
}

static void step_helper(struct lun_io *io, enum lun_phase phase, uint32_t step)
{
	int rc;

	set_phase(io, phase);
	io->step = step;
	rc = units_helper_submit(io->lun->u->helper, io,
				 phase == PHASE_SYNC ? io->lun->sync_fd : io->lun->fd);
	if (rc != 0)
		finish(io, rc);
}

/* Punches whole units of the file system, and zeroes what is before and behind them. */
static void step_discard(struct lun_io *io)
{
	uint64_t at = io->offset + io->at,
		 whole = left_up_to(io, MAX_PUNCH) / PUNCH_UNIT * PUNCH_UNIT;

	if (!io->lun->punches)
		step_zero(io, UINT64_MAX);
	else if (at % PUNCH_UNIT == 0 && whole) {
		lun_map_punched(io->lun, at, whole);
		step_helper(io, PHASE_PUNCH, (uint32_t)whole);
	} else
		step_zero(io, PUNCH_UNIT - at % PUNCH_UNIT);
}

static void step_barrier(struct lun_io *io)
{
	set_phase(io, PHASE_FLUSH);
	queue_to_post(io);
}

static void step_flush(struct lun_io *io)
{
	struct lun *l = io->lun;

	if (!l->facts.write_back) { /* every completed write is durable already */
		finish(io, 0);
	} else if (l->unsynced && l->sync_fd >= 0) {
		l->unsynced = false;
		step_helper(io, PHASE_SYNC, 0);
	} else {
		step_barrier(io);
	}
}

static void step_extent(struct lun_io *io)
{
	if (io->lun->facts.discards) {
		step_helper(io, PHASE_EXTENT, 0);
		return;
	}
	io->mapped = true;
	io->where = io->offset + io->length;
	finish(io, 0);
}

static void next_step(struct lun_io *io)
{
	switch (io->op) {
	case LUN_READ:
	case LUN_WRITE:
		step_move(io);
		break;
	case LUN_VERIFY:
	case LUN_OR:
	case LUN_COMPARE_WRITE:
		step_check(io);
		break;
	case LUN_FLUSH:
		step_flush(io);
		break;
	case LUN_DISCARD:
		step_discard(io);
		break;
	case LUN_ZERO:
		step_zero(io, UINT64_MAX);
		break;
	case LUN_EXTENT:
		step_extent(io);
		break;
	case LUN_CALL:
		step_helper(io, PHASE_CALL, 0);
		break;
	}
}

/* ---- a step is done ----------------------------------------------------------------------------- */

static uint64_t first_difference(const uint8_t *a, const uint8_t *b, uint64_t len)
{
	uint64_t i = 0;

	while (i < len && a[i] == b[i])
		i++;
	return i;
}

/* Compares the data that was read with the operation's memory. Sets io->where to the first difference. */
static bool is_same(struct lun_io *io)
{
	uint64_t done = 0, len = 0;
	uint8_t *p;

	while (done < io->step && (p = memory_at(io, io->at + done, &len))) {
		const uint8_t *q = io->lun->u->scratch + done;

		if (len > io->step - done)
			len = io->step - done;
		if (memcmp(p, q, len) != 0) {
			io->where = io->at + done + first_difference(p, q, len);
			return false;
		}
		done += len;
	}
	return true;
}

static void or_into_scratch(struct lun_io *io)
{
	uint64_t done = 0, len = 0;
	uint8_t *p;

	while (done < io->step && (p = memory_at(io, io->at + done, &len))) {
		uint8_t *q = io->lun->u->scratch + done;

		if (len > io->step - done)
			len = io->step - done;
		for (uint64_t i = 0; i < len; i++)
			q[i] |= p[i];
		done += len;
	}
}

/* Begins the step of the next piece. Other operations get the scratch memory in between. */
static void next_piece(struct lun_io *io)
{
	give_scratch(io);
	io->at += io->step;
	if (io->at == io->length)
		finish(io, 0);
	else if (io->op == LUN_WRITE)
		step_check(io);
	else
		next_step(io);
}

static void after_check(struct lun_io *io)
{
	if (io->op == LUN_OR) {
		or_into_scratch(io);
		set_phase(io, PHASE_PUT);
		queue_to_post(io);
	} else if (!is_same(io)) {
		finish(io, -EILSEQ);
	} else if (io->op == LUN_COMPARE_WRITE) {
		give_scratch(io);
		step_move(io);
	} else {
		next_piece(io);
	}
}

/* Goes on searching. If every block can be read now, the operation fails all the same: its first read did. */
static void after_search(struct lun_io *io)
{
	give_scratch(io);
	io->at += io->step;
	if (io->at < io->length) {
		step_search(io);
		return;
	}
	io->at = 0;
	finish(io, -EIO);
}

static void after_move(struct lun_io *io)
{
	if (io->op != LUN_WRITE || !io->verify) {
		finish(io, 0);
		return;
	}
	step_check(io); /* from the first byte on */
}

static void after_step(struct lun_io *io)
{
	switch ((enum lun_phase)io->phase) {
	case PHASE_MOVE:
		after_move(io);
		break;
	case PHASE_CHECK:
		after_check(io);
		break;
	case PHASE_SEARCH:
		after_search(io);
		break;
	case PHASE_PUNCH:
		io->lun->unsynced = true; /* a barrier does not cover it */
		next_piece(io);
		break;
	case PHASE_PUT:
	case PHASE_ZERO:
		next_piece(io);
		break;
	case PHASE_SYNC:
		step_barrier(io);
		break;
	case PHASE_FLUSH:
	case PHASE_EXTENT:
	case PHASE_CALL:
		finish(io, 0);
		break;
	case PHASE_NEW:
	case PHASE_DONE:
	case PHASE_RECONNECT: /* not an operation */
		break;
	}
}

/* ---- work requests ------------------------------------------------------------------------------------ */

static int put_sge(struct ibv_sge *sge, int n, const struct lun *l, const void *p, uint64_t len)
{
	sge[n] = (struct ibv_sge){(uintptr_t)p, (uint32_t)len, l->u->mr->lkey};
	return n + 1;
}

static int gather_memory(const struct lun_io *io, struct ibv_sge *sge)
{
	uint64_t skip = io->op == LUN_COMPARE_WRITE ? io->length : 0, done = 0, len = 0;
	int n = 0;
	uint8_t *p;

	while (done < io->step && n < LUN_MAX_IOV && (p = memory_at(io, skip + done, &len))) {
		if (len > io->step - done)
			len = io->step - done;
		n = put_sge(sge, n, io->lun, p, len);
		done += len;
	}
	return n;
}

static int gather_zeroes(const struct lun_io *io, struct ibv_sge *sge)
{
	int n = 0;

	for (uint32_t done = 0; done < io->step; done += UNITS_BUFFER) {
		uint32_t len = io->step - done;

		n = put_sge(sge, n, io->lun, io->lun->u->zeroes,
			    len < UNITS_BUFFER ? len : UNITS_BUFFER);
	}
	return n;
}

static int gather(const struct lun_io *io, struct ibv_sge *sge)
{
	switch ((enum lun_phase)io->phase) {
	case PHASE_MOVE:
		return gather_memory(io, sge);
	case PHASE_ZERO:
		return gather_zeroes(io, sge);
	default:
		return put_sge(sge, 0, io->lun, io->lun->u->scratch, io->step);
	}
}

static void describe(struct lun_io *io, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct lun *l = io->lun;
	bool reads = io->phase == PHASE_CHECK || io->op == LUN_READ;
	bool durable = io->fua || !l->facts.write_back;

	*wr = (struct ibv_send_wr){
		.wr_id = (uintptr_t)io,
		.sg_list = sge,
		.num_sge = gather(io, sge),
		.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.send_flags =
			IBV_SEND_SIGNALED | (durable ? STAGDV_SEND_DURABLE : STAGDV_SEND_VISIBLE),
	};
	wr->wr.rdma.remote_addr = io->offset + io->at;
	wr->wr.rdma.rkey = l->rkey;
}

/* ---- the queue pair has failed ------------------------------------------------------------------------------ */

/* Queues the unit's operations again for its new queue pair, or fails them with what is known by now. */
static void requeue_all(struct lun *l)
{
	struct list again;

	list_init(&again);
	while (!list_empty(&l->to_post)) {
		struct list *first = l->to_post.next;

		list_del(first);
		list_add_tail(&again, first);
	}
	while (!list_empty(&again)) {
		struct lun_io *io = list_entry(again.next, struct lun_io, link);

		list_del(&io->link);
		if (l->state == LUN_GONE)
			finish(io, -ENODEV);
		else if (writes(io) && l->no_writes)
			finish(io, -EROFS);
		else if (io->tries > MAX_TRIES)
			finish(io, -EIO);
		else
			queue_to_post(io);
	}
}

static void on_reconnected(struct lun *l, int result)
{
	set_lun_state(l, result == 0 ? LUN_UP : LUN_GONE);
	l->retry_at = clock_ns() + RETRY_MS * NS_PER_MS;
	l->unsynced = true;
	requeue_all(l);
}

/* Has the helper reconnect, once nothing is in flight: a store may block until another process has changed it. */
static void reconnect(struct lun *l)
{
	if (l->in_flight)
		return; /* the last completion calls again */
	set_lun_state(l, LUN_RECONNECTING);
	l->reconnect_io = (struct lun_io){.lun = l, .phase = PHASE_RECONNECT};
	if (units_helper_submit(l->u->helper, &l->reconnect_io, -1) != 0)
		on_reconnected(l, lun_reconnect(l));
}

/* Posts no more to a queue pair that has failed. */
static void drain(struct lun *l)
{
	if (l->state == LUN_UP)
		set_lun_state(l, LUN_DRAINING);
}

void lun_helper_done(struct lun_io *io)
{
	if (io->phase == PHASE_RECONNECT) {
		on_reconnected(io->lun, io->result);
	} else if (io->result == 0) {
		after_step(io);
	} else if (io->result == -EOPNOTSUPP && io->phase == PHASE_PUNCH) {
		io->lun->punches = false;
		step_discard(io);
	} else {
		io->lun->unsynced |= io->phase == PHASE_SYNC;
		finish(io, io->result);
	}
}

/* ---- posting ------------------------------------------------------------------------------------------------ */

void lun_mark_dirty(struct lun *l)
{
	if (list_empty(&l->dirty))
		list_add_tail(&l->u->dirty, &l->dirty);
}

/* Fills work requests for one post, up to the next barrier, which is posted by another call. */
static int describe_batch(struct lun *l)
{
	struct units *u = l->u;
	int n = 0;

	while (n < UNITS_BATCH && l->in_flight + (uint32_t)n < LUN_DEPTH &&
	       !list_empty(&l->to_post)) {
		struct lun_io *io = list_entry(l->to_post.next, struct lun_io, link);

		if (io->phase == PHASE_FLUSH)
			break;
		list_del(&io->link);
		describe(io, &u->wr[n], u->sge[n]);
		if (n)
			u->wr[n - 1].next = &u->wr[n];
		n++;
	}
	return n;
}

/* Posts n work requests. Operations that were not accepted go back to the head of the queue. */
static int post_batch(struct lun *l, int n)
{
	struct ibv_send_wr *bad = NULL;
	int rc = ibv_post_send(l->qp, l->u->wr, &bad);
	int taken = rc == 0 ? n : (int)(bad - l->u->wr);

	l->in_flight += (uint32_t)taken;
	for (int i = n; i-- > taken;) {
		struct lun_io *io = (struct lun_io *)(uintptr_t)l->u->wr[i].wr_id;

		list_add_tail(l->to_post.next, &io->link);
	}
	return rc;
}

static int post_barrier(struct lun *l)
{
	struct lun_io *io = list_entry(l->to_post.next, struct lun_io, link);
	struct stagdv_barrier b = {
		.wr_id = (uintptr_t)io, .rkey = l->rkey, .send_flags = IBV_SEND_SIGNALED};
	int rc = l->u->dv->barrier(l->qp, &b);

	if (rc != 0)
		return rc;
	list_del(&io->link);
	l->in_flight++;
	return 0;
}

/* Handles a failed post. A full queue drains by itself; any other error means that the queue pair has failed. */
static void on_post_failed(struct lun *l, int rc)
{
	if (rc == ENOMEM && l->in_flight)
		return;
	log_info("block: %s: cannot post a work request: %s", l->where, strerror(rc));
	drain(l);
	if (!list_empty(&l->to_post))
		list_entry(l->to_post.next, struct lun_io, link)->tries++;
	reconnect(l);
}

void lun_post(struct lun *l)
{
	if (l->state == LUN_GONE) {
		requeue_all(l); /* fails them: done() of the last one may close the unit */
		return;
	}
	if (l->state == LUN_DRAINING) {
		reconnect(l); /* unless requests are in flight; the same holds */
		return;
	}
	while (l->state == LUN_UP && !list_empty(&l->to_post) && l->in_flight < LUN_DEPTH) {
		int n = describe_batch(l);
		int rc = n ? post_batch(l, n) : post_barrier(l);

		if (rc != 0) {
			on_post_failed(l, rc);
			return;
		}
	}
}

/* ---- completions ---------------------------------------------------------------------------------------------- */

static void medium_failed(struct lun_io *io, int result)
{
	if (plain_result(result) == -EIO && io->op == LUN_READ && io->phase == PHASE_MOVE &&
	    io->step > io->lun->facts.physical)
		step_search(io);
	else
		finish(io, result);
}

void lun_completed(struct lun *l, struct lun_io *io, const struct ibv_wc *wc)
{
	l->in_flight--;
	if (!list_empty(&l->to_post))
		lun_mark_dirty(l);
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		l->no_writes &= wc->opcode != IBV_WC_RDMA_WRITE;
		after_step(io);
		return;
	case IBV_WC_REM_OP_ERR: /* an error of the medium: concerns this request only */
		medium_failed(io, wc->vendor_err ? -(int)wc->vendor_err : -EIO);
		return;
	default:
		io->tries += wc->status != IBV_WC_WR_FLUSH_ERR;
		drain(l);
		queue_to_post(io);
		reconnect(l);
	}
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* The right to write may have come back after a while. While the unit reconnects it is not known. */
static bool may_write(const struct lun *l)
{
	return !l->facts.read_only &&
	       (l->state == LUN_RECONNECTING || !l->no_writes || clock_ns() >= l->retry_at);
}

/* Tries to reconnect a unit that is gone, from time to time. Operations wait for the outcome. */
static bool is_there(struct lun *l)
{
	if (l->state == LUN_GONE && clock_ns() >= l->retry_at)
		reconnect(l);
	return l->state != LUN_GONE;
}

void lun_start(struct lun *l, struct lun_io *io)
{
	io->lun = l;
	io->phase = PHASE_NEW;
	io->at = 0;
	io->tries = 0;
	io->step = 0;
	io->result = 0;
	list_init(&io->link);
	list_init(&io->active);
	if (is_exclusive(io))
		l->exclusive++;
	if (!is_there(l))
		finish(io, -ENODEV);
	else if (writes(io) && !may_write(l))
		finish(io, -EROFS);
	else if (l->exclusive && is_held(l, io, &l->held))
		list_add_tail(&l->held, &io->link);
	else
		activate(io);
}

/* ---- without a copy -------------------------------------------------------------------------------------------- */

/* Lends no memory to an operation that would be held, or would fail: lun_start() does that. */
uint8_t *lun_borrow(struct lun *l, struct lun_io *io, uint32_t *lkey)
{
	uint8_t *bytes;

	if (!l->map || io->verify || (io->op != LUN_READ && io->op != LUN_WRITE) ||
	    (writes(io) && (!may_write(l) || (l->exclusive && is_held(l, io, &l->held)))))
		return NULL;
	bytes = lun_map_at(l, io->offset, io->length, lkey);
	if (!bytes)
		return NULL;
	io->lun = l;
	io->map = l->map;
	io->where = 0;
	list_init(&io->active);
	if (writes(io))
		list_add_tail(&l->active, &io->active);
	return bytes;
}

int lun_return(struct lun_io *io)
{
	struct lun *l = io->lun;

	list_del(&io->active);
	if (!list_empty(&l->held))
		release_held(l);
	return writes(io) && lun_map_is_torn(io->map) ? -EIO : 0;
}

void lun_check_mapping(struct lun_io *io)
{
	lun_map_touch(io->lun, io->offset, io->length);
}
