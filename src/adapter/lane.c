// SPDX-License-Identifier: BSD-2-Clause
/*
 * lane.c - operations on storage, in the order that their queue pair promises.
 *
 * An operation that may not go yet waits for one of those that block it. When that one is done,
 * the operation looks for its next blocker. So no operation counts its blockers, and an
 * operation that nothing blocks costs one pass over those in the lane.
 */
#include "adapter/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"

enum lane_op_state {
	OP_OUT,	      /* not in a lane: not added yet, or done */
	OP_WAITING,   /* for an earlier operation, its blocker */
	OP_READY,     /* for room under the depth, or for what start() lacked */
	OP_IN_FLIGHT, /* with the medium */
	OP_STATES
};

/* The only writer of an operation's state. */
static void set_state(struct lane_op *op, enum lane_op_state to)
{
	static const bool legal[OP_STATES][OP_STATES] = {
		[OP_OUT] = {[OP_WAITING] = true, [OP_READY] = true},
		[OP_WAITING] = {[OP_WAITING] = true, [OP_READY] = true, [OP_OUT] = true},
		[OP_READY] = {[OP_IN_FLIGHT] = true, [OP_OUT] = true},
		[OP_IN_FLIGHT] = {[OP_OUT] = true},
	};

	assert(legal[op->state][to]);
	(void)legal;
	op->state = (uint8_t)to;
}

#define MIN_BUCKETS 256
#define MAX_BUCKETS 8192
#define BUCKETS_PER 16 /* for each operation in flight, so that few collide */

void lane_init(struct lane *l, struct lock *lock, uint32_t depth)
{
	uint32_t n = MIN_BUCKETS;

	assert(depth);
	*l = (struct lane){.lock = lock, .depth = depth};
	while (n < MAX_BUCKETS && n / BUCKETS_PER < depth)
		n *= 2;
	l->users = calloc(2 * (size_t)n, sizeof(*l->users));
	if (l->users) {
		l->writers = l->users + n;
		l->n_buckets = n;
	}
	list_init(&l->ops);
	list_init(&l->ready);
}

void lane_end(struct lane *l)
{
	assert(l->count == 0);
	for (uint32_t i = 0; i < l->n_media; i++)
		medium_put(l->media[i].medium);
	free(l->media);
	free(l->users);
	l->media = NULL;
	l->users = NULL;
	l->n_media = l->n_buckets = 0;
}

/* ---- who waits for whom ---- */

/* Waits for all operations before it; all behind it wait for its end. */
static bool is_barrier(const struct lane_op *op)
{
	return op->io.kind == MEDIA_FLUSH || op->io.kind == LANE_STEP;
}

static bool overlaps(const struct lane_op *a, const struct lane_op *b)
{
	return a->medium == b->medium && a->io.offset < b->io.offset + b->io.length &&
	       b->io.offset < a->io.offset + a->io.length;
}

/*
 * Returns the relaxation (enum stagdv_relax) that lets two overlapping operations go in any
 * order.
 */
static uint32_t order_between(const struct lane_op *first, const struct lane_op *second)
{
	uint8_t a = first->io.kind, b = second->io.kind;

	if (a == MEDIA_ATOMIC || b == MEDIA_ATOMIC)
		return STAGDV_RELAX_ATOMICS;
	if (a == MEDIA_WRITE)
		return b == MEDIA_WRITE ? STAGDV_RELAX_WRITES : STAGDV_RELAX_READS;
	return b == MEDIA_WRITE ? STAGDV_RELAX_LATER : 0;
}

/* first is earlier, and not done. */
static bool is_in_the_way(const struct lane_op *first, const struct lane_op *second)
{
	uint32_t order;

	if (is_barrier(first) || is_barrier(second) || second->fence)
		return true;
	if (first->fence && first->state != OP_IN_FLIGHT)
		return true;
	if (!overlaps(first, second))
		return false;
	order = order_between(first, second);
	return order && !(first->relax & second->relax & order);
}

static struct lane_op *find_blocker(const struct lane *l, const struct lane_op *op)
{
	for (struct list *at = op->link.prev; at != &l->ops; at = at->prev) {
		struct lane_op *first = list_entry(at, struct lane_op, link);

		if (is_in_the_way(first, op))
			return first;
	}
	return NULL;
}

/* ---- who is where ---- */

#define PLACE_BITS 12 /* blocks of 4 KiB */
#define WIDE	   4  /* blocks; longer operations are compared one by one */

static uint64_t first_place(const struct lane_op *op)
{
	return op->io.offset >> PLACE_BITS;
}

static uint64_t last_place(const struct lane_op *op)
{
	return (op->io.offset + op->io.length - 1) >> PLACE_BITS;
}

static bool is_wide(const struct lane_op *op)
{
	return last_place(op) - first_place(op) >= WIDE;
}

static uint32_t bucket(const struct lane *l, uint64_t place)
{
	return place * 0x9e3779b97f4a7c15u >> 32 & (l->n_buckets - 1);
}

static bool has_place(const struct lane_op *op)
{
	return !is_barrier(op) && op->io.length;
}

static void count_in(struct lane *l, const struct lane_op *op, int by)
{
	if (!has_place(op) || !l->n_buckets)
		return;
	if (is_wide(op)) {
		l->wide += (uint32_t)by;
		return;
	}
	for (uint64_t p = first_place(op); p <= last_place(op); p++) {
		l->users[bucket(l, p)] += (uint32_t)by;
		if (op->io.kind != MEDIA_READ)
			l->writers[bucket(l, p)] += (uint32_t)by;
	}
}

/* Returns false if certainly no operation blocks this one, which is not counted yet. */
static bool may_be_blocked(const struct lane *l, const struct lane_op *op)
{
	const uint32_t *table = op->io.kind == MEDIA_READ ? l->writers : l->users;

	if (l->gates || op->fence || is_barrier(op) || !l->n_buckets)
		return true;
	if (!has_place(op))
		return false;
	if (l->wide || is_wide(op))
		return true;
	for (uint64_t p = first_place(op); p <= last_place(op); p++)
		if (table[bucket(l, p)])
			return true;
	return false;
}

/* ---- waiting ---- */

/* Enqueues an operation behind its blocker, or as ready. */
static void line_up(struct lane *l, struct lane_op *op, struct lane_op *blocker)
{
	set_state(op, blocker ? OP_WAITING : OP_READY);
	list_add_tail(blocker ? &blocker->waiters : &l->ready, &op->waiting);
}

/* Finds new blockers for those that waited for op. A fence that has begun may still block some. */
static void release_waiters(struct lane *l, struct lane_op *op)
{
	struct list free;

	list_init(&free);
	while (!list_empty(&op->waiters)) {
		struct list *first = op->waiters.next;

		list_del(first);
		list_add_tail(&free, first);
	}
	while (!list_empty(&free)) {
		struct lane_op *w = list_entry(free.next, struct lane_op, waiting);

		list_del(&w->waiting);
		line_up(l, w, find_blocker(l, w));
	}
}

/* ---- media ---- */

static struct lane_medium *use_medium(struct lane *l, struct stag_medium *m)
{
	struct lane_medium *more;

	for (uint32_t i = 0; i < l->n_media; i++)
		if (l->media[i].medium == m)
			return &l->media[i];
	more = realloc(l->media, (l->n_media + 1) * sizeof(*more));
	if (!more)
		return NULL;
	l->media = more;
	l->media[l->n_media] = (struct lane_medium){.medium = m};
	medium_get(m);
	return &l->media[l->n_media++];
}

static void kick_all_but(struct lane *l, const struct stag_medium *one)
{
	for (uint32_t i = 0; i < l->n_media; i++) {
		if (!l->media[i].kick || l->media[i].medium == one)
			continue;
		l->media[i].kick = false;
		media_kick(l->media[i].medium->media);
	}
}

void lane_kick(struct lane *l)
{
	assert(lock_held(l->lock));
	kick_all_but(l, NULL);
}

/* ---- from the beginning to the end of one ---- */

/* Removes an operation from the lane, and reports its result to the owner. */
static void finish_op(struct lane *l, struct lane_op *op, int result)
{
	assert(lock_held(l->lock));
	list_del(&op->waiting);
	list_del(&op->link);
	l->count--;
	count_in(l, op, -1);
	if (is_barrier(op) || (op->fence && op->state != OP_IN_FLIGHT))
		l->gates--;
	if (op->state == OP_IN_FLIGHT)
		l->under_way--;
	release_waiters(l, op);
	set_state(op, OP_OUT);
	op->io.result = result;
	op->done(op);
}

static void on_media_done(struct media_op *io);

/*
 * Submits the flush of the next medium that was written to since its last one. Returns 1 if
 * there is none left.
 */
static int flush_next(struct lane *l, struct lane_op *op)
{
	for (; op->flush_at < l->n_media; op->flush_at++) {
		struct lane_medium *m = &l->media[op->flush_at];

		if (!m->dirty)
			continue;
		op->io.done = on_media_done;
		m->kick = true;
		return media_submit(m->medium->media, &op->io);
	}
	return 1;
}

static int submit_op(struct lane *l, struct lane_op *op)
{
	struct lane_medium *m = use_medium(l, op->medium);

	if (!m)
		return -ENOMEM;
	op->io.done = on_media_done;
	m->kick = true;
	m->dirty |= op->io.kind != MEDIA_READ && !op->io.durable;
	return media_submit(op->medium->media, &op->io);
}

/* Returns 0: in flight; 1: done; -EAGAIN: not now; or another error. */
static int begin_op(struct lane *l, struct lane_op *op)
{
	int err = op->start ? op->start(op) : 0;

	if (err)
		return err;
	switch (op->io.kind) {
	case LANE_STEP:
		return 1;
	case MEDIA_FLUSH:
		op->flush_at = 0;
		return flush_next(l, op);
	default:
		return op->io.length ? submit_op(l, op) : 1;
	}
}

static void note_started(struct lane *l, struct lane_op *op)
{
	set_state(op, OP_IN_FLIGHT);
	l->under_way++;
	if (op->fence && !is_barrier(op)) {
		l->gates--;
		release_waiters(l, op);
	}
}

/* Starts the operations that are ready. Owners may add more, and cut, from inside. */
static void start_ready_ops(struct lane *l)
{
	assert(lock_held(l->lock));
	if (l->running)
		return;
	l->running = true;
	l->starved = false;
	while (!list_empty(&l->ready) && l->under_way < l->depth) {
		struct lane_op *op = list_entry(l->ready.next, struct lane_op, waiting);
		int err = begin_op(l, op);

		if (err == -EAGAIN) {
			l->starved = true;
			break;
		}
		list_del(&op->waiting);
		if (err)
			finish_op(l, op, err > 0 ? 0 : err);
		else
			note_started(l, op);
	}
	l->running = false;
}

static void on_media_done(struct media_op *io)
{
	struct lane_op *op = container_of(io, struct lane_op, io);
	struct lane *l = op->lane;
	struct lock *lock = l->lock;
	struct stag_medium *polled = op->medium; /* its poller kicks it, too, at the end */
	int err = io->result;

	lock_acquire(lock);
	if (io->kind == MEDIA_FLUSH && !err) {
		l->media[op->flush_at++].dirty = false;
		err = flush_next(l, op);
		if (err == 0)
			goto out;
		err = err > 0 ? 0 : err;
	}
	finish_op(l, op, err);
	start_ready_ops(l);
out:
	kick_all_but(l, polled);
	lock_release(lock);
}

void lane_add(struct lane *l, struct lane_op *op)
{
	bool look;

	assert(lock_held(l->lock));
	op->lane = l;
	op->seq = l->next_seq++;
	look = l->count && may_be_blocked(l, op);
	list_init(&op->waiters);
	list_add_tail(&l->ops, &op->link);
	l->count++;
	l->gates += op->fence || is_barrier(op);
	count_in(l, op, 1);
	line_up(l, op, look ? find_blocker(l, op) : NULL);
	start_ready_ops(l);
}

void lane_retry(struct lane *l)
{
	assert(lock_held(l->lock));
	start_ready_ops(l);
}

void lane_cut(struct lane *l, struct lane_op *op)
{
	struct list *at = l->ops.prev;
	uint64_t after = op ? op->seq : 0;

	assert(lock_held(l->lock));
	while (at != &l->ops) {
		struct lane_op *last = list_entry(at, struct lane_op, link);

		if (op && last->seq <= after)
			break;
		at = at->prev;
		if (last->state != OP_IN_FLIGHT)
			finish_op(l, last, -ECANCELED);
	}
}

static bool is_of_parent(const struct lane *l, const struct lane_op *op)
{
	const struct stag_medium *m = op->medium;

	if (op->state != OP_IN_FLIGHT)
		return false;
	if (!m && op->flush_at < l->n_media)
		m = l->media[op->flush_at].medium;
	return m && !media_is_ours(m->media);
}

void lane_forget(struct lane *l)
{
	assert(lock_held(l->lock));
	list_for_each_safe (at, &l->ops) {
		struct lane_op *op = list_entry(at, struct lane_op, link);

		if (is_of_parent(l, op))
			finish_op(l, op, -ECANCELED);
	}
}
