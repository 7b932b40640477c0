// SPDX-License-Identifier: BSD-2-Clause
/*
 * one_shot.c - STags that a send advertises to the peer, and that a send of the peer closes.
 *
 * Each is a slot of the key table, bound to its queue pair like a type-2 window, over a list of
 * memory of its own. A queue pair keeps idle slots, and their room for lists: a command
 * allocates nothing, and takes no lock of another queue pair. The slots are used in turn, each
 * time under another key, so that it takes long until a tag is reused.
 *
 * An STag is ended (by the peer, by the program, or with the connection) under the queue pair's
 * lock here, and so exactly once. It is in the ledger (ledger.c) before it becomes invalid.
 */
#include "adapter/one_shot.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/explain.h"
#include "adapter/ledger.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define FEW	 4  /* pieces that need no memory of their own */
#define AT_LEAST 64 /* slots of a queue pair, before one is reused */

struct shot {
	struct list link; /* in shots->open or shots->idle */
	struct key_slot *slot;
	atomic_bool open; /* written under shots->lock */
	uint32_t reference;
	uint64_t made;
	_Atomic uint32_t reads, writes; /* written under rx_lock */
	unsigned n_seg, n_region, room;
	struct iovec *seg;
	struct key_slot **region; /* the regions of the pieces: not deregistered meanwhile */
	struct iovec few_seg[FEW];
	struct key_slot *few_region[FEW];
};

void shots_init(struct stag_qp *qp)
{
	lock_init(&qp->shots.lock);
	list_init(&qp->shots.open);
	list_init(&qp->shots.idle);
}

static void shot_free(struct shot *s)
{
	s->slot->qp = NULL;
	s->slot->seg = &s->slot->one;
	key_free(s->slot);
	if (s->seg != s->few_seg)
		free(s->seg);
	if (s->region != s->few_region)
		free(s->region);
	free(s);
}

void shots_free(struct stag_qp *qp)
{
	shots_orphan(qp);
	list_for_each_safe (l, &qp->shots.idle)
		shot_free(list_entry(l, struct shot, link));
	lock_destroy(&qp->shots.lock);
}

static struct shot *shot_new(struct stag_qp *qp)
{
	struct shot *s = calloc(1, sizeof(*s));

	if (!s || key_alloc(KEY_SHOT, qp->pd, &s->slot)) {
		free(s);
		return NULL;
	}
	list_init(&s->link);
	s->slot->qp = qp;
	s->slot->shot = s;
	s->seg = s->few_seg;
	s->region = s->few_region;
	s->room = FEW;
	qp->shots.count++;
	return s;
}

/* Returns the slot that was idle for the longest, or a new one. */
static struct shot *take_idle(struct stag_qp *qp)
{
	struct shots *all = &qp->shots;
	struct shot *s = NULL;

	assert(lock_held(&qp->shots.lock));
	if (all->count < AT_LEAST || list_empty(&all->idle))
		s = shot_new(qp);
	if (!s && !list_empty(&all->idle))
		s = list_entry(all->idle.next, struct shot, link);
	if (s)
		list_del(&s->link);
	return s;
}

/* ---- memory ---- */

static void release_regions(struct shot *s)
{
	while (s->n_region)
		atomic_fetch_sub(&s->region[--s->n_region]->windows, 1);
	s->n_seg = 0;
}

/*
 * Returns a list with room for n bytes and the contents of the old one, or NULL if memory runs
 * out.
 */
static void *grow_list(void *old, const void *few, size_t had, size_t n)
{
	void *list = old == few ? malloc(n) : realloc(old, n);

	if (list && old == few)
		memcpy(list, old, had);
	return list;
}

static int make_room(struct shot *s, unsigned n)
{
	unsigned room = s->room;
	void *list;

	if (n <= room)
		return 0;
	while (room < n)
		room *= 2;
	list = grow_list(s->seg, s->few_seg, sizeof(s->few_seg), room * sizeof(*s->seg));
	if (!list)
		return -ENOMEM;
	s->seg = list;
	list = grow_list(s->region, s->few_region, sizeof(s->few_region),
			 room * sizeof(*s->region));
	if (!list)
		return -ENOMEM;
	s->region = list;
	s->room = room;
	return 0;
}

/* Merges adjacent pieces. */
static void append_piece(struct shot *s, const struct iovec *v)
{
	struct iovec *last = s->n_seg ? &s->seg[s->n_seg - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == v->iov_base)
		last->iov_len += v->iov_len;
	else
		s->seg[s->n_seg++] = *v;
}

/* Adds the pieces of a region, and keeps the region from deregistration. */
static int lend_found(struct shot *s, const struct key_map *map, uint32_t length)
{
	struct key_slot *region = map->slot[0];
	int err;

	if (region->guard)
		return -EPERM; /* an access through the STag would bypass the guard */
	if (map->len < length || map->n > STAGDV_ADVERTISE_SGE - s->n_seg)
		return -EINVAL;
	err = make_room(s, s->n_seg + map->n);
	if (err)
		return err;
	if (!s->n_region || s->region[s->n_region - 1] != region) {
		atomic_fetch_add(&region->windows, 1);
		s->region[s->n_region++] = region;
	}
	for (unsigned i = 0; i < map->n; i++)
		append_piece(s, &map->iov[i]);
	return 0;
}

/* Adds the length to *len. */
static int lend_one(struct stag_qp *qp, struct shot *s, const struct stagdv_advertise *wr, int i,
		    uint64_t *len)
{
	unsigned rights = wr->access & IBV_ACCESS_REMOTE_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct ibv_sge sge;
	struct key_map map;
	enum key_fault f;
	int err;

	memcpy(&sge, &wr->memory[i], sizeof(sge)); /* the list may be at any address */
	if (!sge.length)
		return 0;
	*len += sge.length;
	f = key_try_get(sge.lkey, qp->pd, NULL, sge.addr, sge.length, rights, &map);
	err = f == KEY_OK ? lend_found(s, &map, sge.length) : -EPERM;

	key_put(&map);
	if (f != KEY_OK)
		log_bad_sge(qp, wr->wr_id, (uint32_t)i, "memory to advertise", &sge, rights, f);
	else if (err)
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: memory to advertise (lkey 0x%08x, %u bytes at 0x%llx): %s",
		       qp->ibv.qp_num, sge.lkey, sge.length, (unsigned long long)sge.addr,
		       err == -EPERM	? "its region is guarded"
		       : err == -EINVAL ? "too many pieces"
					: "no memory for the list");
	return err;
}

static int lend_all(struct stag_qp *qp, struct shot *s, const struct stagdv_advertise *wr)
{
	uint64_t len = 0;

	for (int i = 0; i < wr->num_memory; i++) {
		int err = lend_one(qp, s, wr, i, &len);

		if (err)
			return err;
	}
	if (!len || wr->iova > UINT64_MAX - (len - 1)) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: wr_id 0x%llx: %llu bytes at 0x%llx cannot be advertised",
		       qp->ibv.qp_num, (unsigned long long)wr->wr_id, (unsigned long long)len,
		       (unsigned long long)wr->iova);
		return -EINVAL;
	}
	s->slot->len = len;
	return 0;
}

/* ---- a life ---- */

static void publish(struct stag_qp *qp, struct shot *s, const struct stagdv_advertise *wr)
{
	struct key_slot *k = s->slot;

	k->access = wr->access;
	k->base = wr->iova;
	k->seg = s->seg;
	k->nseg = s->n_seg;
	s->reference = wr->reference;
	s->made = clock_ns();
	atomic_store_explicit(&s->reads, 0, memory_order_relaxed);
	atomic_store_explicit(&s->writes, 0, memory_order_relaxed);
	atomic_store(&s->open, true);
	list_add_tail(&qp->shots.open, &s->link);
	qp->shots.advertised++;
	key_publish(k, key_next(k));
}

int shot_open(struct stag_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag)
{
	struct shot *s;
	int err;

	HOLD_FOR_SCOPE(&qp->shots.lock);
	s = take_idle(qp);
	if (!s) {
		log_info("qp %u: no memory for an STag", qp->ibv.qp_num);
		return -ENOMEM;
	}
	err = lend_all(qp, s, wr);
	if (err) {
		release_regions(s);
		list_add_tail(&qp->shots.idle, &s->link);
		return err;
	}
	publish(qp, s, wr);
	*stag = s->slot->key;
	return 0;
}

void shot_describe(const struct shot *s, struct stagdv_stag *out)
{
	*out = (struct stagdv_stag){
		.stag = s->slot->key,
		.reference = s->reference,
		.qp_num = s->slot->qp->ibv.qp_num,
		.end = STAGDV_STAG_OPEN,
		.length = s->slot->len,
		.made = s->made,
		.reads = atomic_load_explicit(&s->reads, memory_order_relaxed),
		.writes = atomic_load_explicit(&s->writes, memory_order_relaxed),
	};
}

bool shot_is_open(const struct shot *s)
{
	return atomic_load(&s->open);
}

static void count_end(struct shots *all, enum stagdv_stag_end how)
{
	switch (how) {
	case STAGDV_STAG_CLOSED:
		all->closed++;
		break;
	case STAGDV_STAG_WITHDRAWN:
		all->withdrawn++;
		break;
	case STAGDV_STAG_ORPHANED:
		all->orphaned++;
		break;
	case STAGDV_STAG_OPEN:
		break;
	}
}

/* The caller holds no reference to the slot. */
static void end_one(struct stag_qp *qp, struct shot *s, enum stagdv_stag_end how)
{
	struct stagdv_stag record;

	assert(lock_held(&qp->shots.lock));
	atomic_store(&s->open, false);
	shot_describe(s, &record);
	record.end = how;
	record.ended = clock_ns();
	ledger_add(&record);
	key_revoke(s->slot);
	release_regions(s);
	count_end(&qp->shots, how);
	list_del(&s->link);
	list_add_tail(&qp->shots.idle, &s->link);
}

int shot_end(struct stag_qp *qp, uint32_t stag, enum stagdv_stag_end how, uint32_t *reference)
{
	struct key_slot *k = key_find(stag);
	struct shot *s = k && k->kind == KEY_SHOT ? k->shot : NULL;
	bool ours = s && k->qp == qp;

	if (k)
		key_release(k);
	if (!ours)
		return s ? -EACCES : -ENOENT;
	/* The slot stays this queue pair's, and so does s; check again whether it is open. */
	HOLD_FOR_SCOPE(&qp->shots.lock);
	if (!shot_is_open(s) || s->slot->key != stag)
		return -ENOENT;
	*reference = s->reference;
	end_one(qp, s, how);
	return 0;
}

void shots_orphan(struct stag_qp *qp)
{
	HOLD_FOR_SCOPE(&qp->shots.lock);
	while (!list_empty(&qp->shots.open))
		end_one(qp, list_entry(qp->shots.open.next, struct shot, link),
			STAGDV_STAG_ORPHANED);
}

/* ---- the peer's messages ---- */

/* Only the receiver counts. */
static void count_up(_Atomic uint32_t *n)
{
	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

void shot_read(const struct key_slot *k)
{
	if (k->kind == KEY_SHOT)
		count_up(&k->shot->reads);
}

void shot_written(const struct key_slot *k)
{
	if (k->kind == KEY_SHOT)
		count_up(&k->shot->writes);
}

void shot_late(struct stag_qp *qp, uint32_t stag)
{
	static const char *const ends[] = {
		[STAGDV_STAG_OPEN] = "is open",
		[STAGDV_STAG_CLOSED] = "was closed by the peer",
		[STAGDV_STAG_WITHDRAWN] = "was withdrawn",
		[STAGDV_STAG_ORPHANED] = "ended with its connection",
	};
	struct stagdv_stag life;

	if (!ledger_late(stag, qp->ibv.qp_num, &life))
		return;
	atomic_fetch_add(&qp->shots.late, 1);
	log_info("qp %u: STag 0x%08x, which qp %u advertised with reference %u, %s: too late",
		 qp->ibv.qp_num, stag, life.qp_num, life.reference, ends[life.end]);
}
