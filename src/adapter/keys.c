// SPDX-License-Identifier: BSD-2-Clause
/*
 * keys.c - the table of STags: from 32 bits off the wire to memory, in O(1).
 *
 * An STag is a 24-bit index and an 8-bit key. Indices are random, so that one tag does not
 * reveal the next. A slot that is reused takes another key, and each of the other 255 before it
 * takes the same again, so that an old tag does not give access to new memory. See struct
 * key_slot for the look-up without a lock.
 */
#include "adapter/keys.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "adapter/device.h"
#include "adapter/guard.h"
#include "adapter/ledger.h"
#include "adapter/live.h"
#include "adapter/mirror.h"
#include "adapter/pd.h"
#include "adapter/qp.h"
#include "adapter/store.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"

#define PAGE_SLOTS  256
#define PAGES	    65536
#define FIRST_PAGES 64 /* from the start, so that one tag does not reveal where the others are */
#define TRIES	    64
#define TAG_PENDING 1 /* of index 0, so that no look-up finds it: key_invalidate() is at work */

static struct key_slot *_Atomic pages[PAGES];
static struct lock table_lock = LOCK_INITIALIZER; /* protects the rest */
static uint32_t page_numbers[PAGES];		  /* those in use */
static uint32_t n_pages, n_used;		  /* pages in use, allocated slots */

static uint32_t index_of(uint32_t stag)
{
	return stag >> 8;
}

static struct key_slot *slot_at(uint32_t index)
{
	struct key_slot *page =
		atomic_load_explicit(&pages[index / PAGE_SLOTS], memory_order_acquire);

	return page ? &page[index % PAGE_SLOTS] : NULL;
}

const char *key_fault_str(enum key_fault f)
{
	switch (f) {
	case KEY_OK:
		return "allowed";
	case KEY_INVALID:
		return "the key is not valid";
	case KEY_BOUNDS:
		return "the range is outside of the region";
	case KEY_RIGHTS:
		return "the region does not give that right";
	case KEY_OTHER_PD:
		return "the region is of another protection domain";
	case KEY_OTHER_QP:
		return "the window is of another queue pair";
	case KEY_WRAP:
		return "the range wraps around the end of the address space";
	case KEY_BUSY:
		return "too many accesses to guarded memory at once";
	case KEY_ON_STORE:
		return "the region is on storage, and no memory";
	case KEY_LAPSED:
		return "the region's lease is over";
	}
	return "unknown";
}

/* ---- allocation ---- */

static int add_page_at(uint32_t at)
{
	struct key_slot *page = calloc(PAGE_SLOTS, sizeof(*page));

	assert(lock_held(&table_lock));
	if (!page)
		return -ENOMEM;
	atomic_store_explicit(&pages[at], page, memory_order_release);
	page_numbers[n_pages++] = at;
	return 0;
}

/* Adds a page at a random number that is not in use. */
static int add_page(void)
{
	uint32_t at = random_u32() % PAGES;

	if (n_pages == PAGES)
		return -ENOMEM;
	while (atomic_load(&pages[at]))
		at = (at + 1) % PAGES;
	return add_page_at(at);
}

static struct key_slot *free_slot(uint32_t index)
{
	struct key_slot *s = slot_at(index);

	return index && !s->allocated ? s : NULL;
}

/* Returns a free slot, chosen at random. Half of the slots stay free. */
static struct key_slot *find_free(uint32_t *index)
{
	struct key_slot *s;

	assert(lock_held(&table_lock));
	if (n_pages < FIRST_PAGES || n_used >= n_pages * PAGE_SLOTS / 2)
		add_page(); /* if it fails, the remaining free slots are used */
	for (int i = 0; i < TRIES && n_pages; i++) {
		*index = page_numbers[random_u32() % n_pages] * PAGE_SLOTS +
			 random_u32() % PAGE_SLOTS;
		s = free_slot(*index);
		if (s)
			return s;
	}
	for (uint32_t i = 0; i < n_pages * PAGE_SLOTS; i++) {
		*index = page_numbers[i / PAGE_SLOTS] * PAGE_SLOTS + i % PAGE_SLOTS;
		s = free_slot(*index);
		if (s)
			return s;
	}
	return NULL;
}

/*
 * Returns the slot's next key: all 256 in turn, in an order of the slot's own, except the one
 * that a program chose last.
 */
static uint8_t next_key(struct key_slot *s)
{
	if (!s->key_step) {
		s->key_step = (uint8_t)random_u32() | 1;
		s->key_turn = (uint8_t)random_u32();
	}
	s->key_turn = (uint8_t)(s->key_turn + s->key_step);
	if (s->key_turn == (uint8_t)s->key)
		s->key_turn = (uint8_t)(s->key_turn + s->key_step);
	return s->key_turn;
}

static void take_slot(struct key_slot *s, uint32_t stag, enum key_kind kind, struct stag_pd *pd)
{
	assert(lock_held(&table_lock));
	assert(atomic_load(&s->stag) == 0);
	s->allocated = true;
	n_used++;
	s->key = stag;
	s->kind = kind;
	s->access = 0;
	s->pd = pd;
	s->qp = NULL;
	s->shot = NULL;
	s->parent = NULL;
	s->base = s->len = 0;
	s->nseg = 0;
	s->seg = &s->one;
	s->guard = NULL;
	s->store = NULL;
	s->chosen = false;
	atomic_store(&s->lease, 0);
	atomic_store(&s->mirrors, NULL);
	atomic_store(&s->windows, 0);
}

int key_alloc(enum key_kind kind, struct stag_pd *pd, struct key_slot **out)
{
	struct key_slot *s;
	uint32_t index;

	HOLD_FOR_SCOPE(&table_lock);
	s = find_free(&index);
	if (!s)
		return -ENOMEM;
	take_slot(s, index << 8 | next_key(s), kind, pd);
	*out = s;
	return 0;
}

int key_alloc_as(enum key_kind kind, struct stag_pd *pd, uint32_t stag, struct key_slot **out)
{
	uint32_t index = index_of(stag);

	if (!index)
		return -EINVAL;
	HOLD_FOR_SCOPE(&table_lock);
	if (!slot_at(index) && add_page_at(index / PAGE_SLOTS))
		return -ENOMEM;
	*out = free_slot(index);
	if (!*out)
		return -EEXIST;
	take_slot(*out, stag, kind, pd);
	(*out)->chosen = true;
	return 0;
}

/* Chooses among all indices, not only those of present pages: other machines have other pages. */
uint32_t key_choose(void)
{
	HOLD_FOR_SCOPE(&table_lock);
	for (;;) {
		uint32_t stag = random_u32();
		struct key_slot *s = slot_at(index_of(stag));

		if (index_of(stag) && (!s || (!s->allocated && s->key != stag)))
			return stag;
	}
}

void key_publish(struct key_slot *slot, uint32_t stag)
{
	assert(index_of(stag) == index_of(slot->key));
	/* key_invalidate() may read these two meanwhile */
	__atomic_store_n(&slot->key, stag, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->life, slot->life + 1, __ATOMIC_RELAXED);
	atomic_store(&slot->stag, stag);
	if (slot->kind != KEY_SHOT) /* each queue pair counts its own */
		atomic_fetch_add_explicit(&stag_totals.registrations, 1, memory_order_relaxed);
}

uint32_t key_next(struct key_slot *slot)
{
	return (slot->key & ~0xffu) | next_key(slot);
}

/* An access lasts as long as one system call or one copy: the wait is short. */
void key_revoke(struct key_slot *slot)
{
	atomic_store(&slot->stag, 0);
	while (atomic_load(&slot->users))
		sched_yield();
}

/* Separates a window from its region and its queue pair. */
static void detach_window(struct key_slot *s)
{
	assert(lock_held(&table_lock));
	if (s->parent)
		atomic_fetch_sub(&s->parent->windows, 1);
	s->parent = NULL;
	if (s->qp)
		atomic_fetch_sub(&s->qp->windows, 1);
	s->qp = NULL;
}

/* The peer, the program and the end of a queue pair may call this at the same time. */
void key_unbind(struct key_slot *s)
{
	key_revoke(s);
	lock_acquire(&table_lock);
	detach_window(s);
	lock_release(&table_lock);
}

void key_free(struct key_slot *slot)
{
	key_unbind(slot);
	if (slot->seg != &slot->one)
		free(slot->seg);
	lock_acquire(&table_lock);
	slot->seg = &slot->one;
	slot->allocated = false;
	n_used--;
	lock_release(&table_lock);
}

struct key_slot *key_slot_of(uint32_t stag)
{
	struct key_slot *s = slot_at(index_of(stag));

	return s && s->allocated ? s : NULL;
}

/* ---- access ---- */

bool key_hold(struct key_slot *slot, uint32_t stag)
{
	atomic_fetch_add(&slot->users, 1);
	if (stag && atomic_load(&slot->stag) == stag)
		return true;
	atomic_fetch_sub(&slot->users, 1);
	return false;
}

bool key_hold_again(struct key_slot *slot, uint32_t stag, uint64_t life)
{
	if (!key_hold(slot, stag))
		return false;
	if (slot->life == life)
		return true;
	key_release(slot);
	return false;
}

void key_release(struct key_slot *slot)
{
	atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

struct key_slot *key_find(uint32_t stag)
{
	struct key_slot *s = slot_at(index_of(stag));

	return s && key_hold(s, stag) ? s : NULL;
}

void key_put(struct key_map *map)
{
	if (map->cell)
		guard_leave(map->cell);
	map->cell = NULL;
	for (int i = 0; i < 2; i++) {
		if (map->slot[i])
			key_release(map->slot[i]);
		map->slot[i] = NULL;
	}
}

/*
 * Returns the next valid slot from *at on, with a reference, or NULL after the last one. Slots
 * are never freed.
 */
static struct key_slot *next_published(uint32_t *at)
{
	while (*at < PAGES * PAGE_SLOTS) {
		struct key_slot *s = slot_at(*at);
		uint32_t stag = s ? atomic_load(&s->stag) : 0;

		*at += s ? 1 : PAGE_SLOTS;
		if (stag && stag != TAG_PENDING && key_hold(s, stag))
			return s;
	}
	return NULL;
}

void key_each_shot(void (*fn)(const struct shot *s, void *arg), void *arg)
{
	struct key_slot *s;
	uint32_t at = 0;

	while ((s = next_published(&at))) {
		if (s->kind == KEY_SHOT)
			fn(s->shot, arg);
		key_release(s);
	}
}

static const char *look_kind(const struct key_slot *s)
{
	switch ((enum key_kind)s->kind) {
	case KEY_MW1:
	case KEY_MW2:
		return "window";
	case KEY_STORE:
		return "store";
	case KEY_SHOT:
		return "shot";
	case KEY_MR:
	case KEY_FAST_MR:
		break;
	}
	if (atomic_load(&s->mirrors))
		return "mirror";
	return s->chosen ? "keyed" : "region";
}

/* Drops the reference before it calls fn: deregistration waits for it. */
void key_each_look(void (*fn)(const struct key_look *k, void *arg), void *arg)
{
	struct key_slot *s;
	uint32_t at = 0;

	while ((s = next_published(&at))) {
		struct key_look k = {
			.stag = atomic_load(&s->stag),
			.kind = look_kind(s),
			.base = s->base,
			.length = __atomic_load_n(&s->len, __ATOMIC_RELAXED),
			.lease = atomic_load(&s->lease),
			.access = __atomic_load_n(&s->access, __ATOMIC_RELAXED),
		};

		key_release(s);
		if (k.stag) /* still valid when it was read */
			fn(&k, arg);
	}
}

/* Returns the slot's life, which its owner may change meanwhile. */
static uint64_t life_of(const struct key_slot *s)
{
	return __atomic_load_n(&s->life, __ATOMIC_RELAXED);
}

/* Copies what belongs to the slot; it is held, or free under the lock. */
static void copy_facts(const struct key_slot *s, struct key_facts *out)
{
	out->kind = s->kind;
	out->base = s->base;
	out->length = __atomic_load_n(&s->len, __ATOMIC_RELAXED);
	out->access = __atomic_load_n(&s->access, __ATOMIC_RELAXED);
}

/* Only tries the lock: key_unbind_qp() holds it while it waits for accesses. */
void key_find_facts(uint32_t stag, struct key_facts *out)
{
	struct key_slot *s = slot_at(index_of(stag));

	*out = (struct key_facts){.is = KEY_IS_UNKNOWN};
	if (!s)
		return;
	if (key_hold(s, stag)) {
		copy_facts(s, out);
		out->is = KEY_IS_VALID;
		out->pd = s->pd ? s->pd->ibv.handle : 0;
		out->qpn = s->qp ? s->qp->ibv.qp_num : 0;
		key_release(s);
		return;
	}
	if (!lock_try(&table_lock))
		return;
	if (__atomic_load_n(&s->key, __ATOMIC_RELAXED) != stag) {
		out->is = life_of(s) ? KEY_IS_OTHER : KEY_IS_UNKNOWN;
		out->now = atomic_load(&s->stag);
	} else if (s->allocated) {
		out->is = KEY_IS_NOT_VALID;
		out->kind = s->kind;
	} else {
		copy_facts(s, out);
		out->is = KEY_IS_FREED;
	}
	lock_release(&table_lock);
}

/* ---- leases ---- */

bool key_has_lapsed(const struct key_slot *region)
{
	uint64_t until = atomic_load_explicit(&region->lease, memory_order_relaxed);

	return until && clock_boot_ns() >= until;
}

void key_refused(struct stag_qp *qp, uint32_t stag, enum key_fault f)
{
	if (f == KEY_LAPSED)
		atomic_fetch_add_explicit(&qp->stats.lease_refusals, 1, memory_order_relaxed);
	else
		shot_late(qp, stag);
}

/* ---- what is allowed ---- */

static enum key_fault check_access(const struct key_slot *s, const struct stag_pd *pd,
				   const struct stag_qp *qp, uint64_t to, uint64_t len,
				   unsigned access)
{
	uint64_t end;

	if (s->kind == KEY_MW1 || s->kind == KEY_MW2 || s->kind == KEY_SHOT) {
		if (!qp)
			return KEY_INVALID; /* windows are for the peer only */
		if (s->kind != KEY_MW1 && s->qp != qp)
			return KEY_OTHER_QP;
	}
	if (s->pd != pd)
		return KEY_OTHER_PD;
	if (access & ~__atomic_load_n(&s->access, __ATOMIC_RELAXED))
		return KEY_RIGHTS;
	if (len && to > UINT64_MAX - (len - 1))
		return KEY_WRAP;
	end = __atomic_load_n(&s->len, __ATOMIC_RELAXED); /* a region on storage may grow */
	if (to < s->base || to - s->base > end || len > end - (to - s->base))
		return KEY_BOUNDS;
	return KEY_OK;
}

/* Maps the memory of region s from offset off on: len bytes, or as many as fit into the map. */
static void map_memory(const struct key_slot *s, uint64_t off, uint64_t len, struct key_map *map)
{
	map->n = 0;
	map->len = 0;
	for (unsigned i = 0; i < s->nseg && len && map->n < 8; i++) {
		size_t part = s->seg[i].iov_len;

		if (off >= part) {
			off -= part;
			continue;
		}
		part -= off;
		if (part > len)
			part = len;
		map->iov[map->n++] = (struct iovec){(uint8_t *)s->seg[i].iov_base + off, part};
		map->len += part;
		len -= part;
		off = 0;
	}
}

enum key_fault key_try_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			   uint64_t len, unsigned access, struct key_map *map)
{
	struct key_slot *s = slot_at(index_of(stag)), *region;
	enum key_fault fault;

	map->slot[0] = map->slot[1] = NULL;
	map->cell = NULL;
	if (!s || !key_hold(s, stag))
		return KEY_INVALID;
	map->slot[0] = region = s;
	fault = s->kind == KEY_STORE ? KEY_ON_STORE : check_access(s, pd, qp, to, len, access);
	if (fault == KEY_OK && s->parent) {
		region = s->parent;
		if (key_hold(region, atomic_load(&region->stag)))
			map->slot[1] = region;
		else
			fault = KEY_INVALID;
	}
	if (fault == KEY_OK && qp && key_has_lapsed(region))
		fault = KEY_LAPSED; /* leases are for peers: qp is NULL for our own access */
	if (fault == KEY_OK && region->guard)
		fault = guard_enter(region->guard, &map->cell);
	if (fault != KEY_OK) {
		key_put(map);
		return fault;
	}
	/* A window's offsets are addresses of its region, or count from its own start. */
	map_memory(region, (to - s->base) + (s->parent ? s->win_off : 0), len, map);
	return KEY_OK;
}

enum key_fault key_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
		       uint64_t len, unsigned access, struct key_map *map)
{
	enum key_fault f;

	while ((f = key_try_get(stag, pd, qp, to, len, access, map)) == KEY_BUSY)
		sched_yield(); /* an access is short */
	return f;
}

enum key_fault store_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			 uint64_t len, unsigned access, struct store_map *map)
{
	struct key_slot *s = slot_at(index_of(stag));
	enum key_fault fault;

	map->slot = NULL;
	if (!s || !key_hold(s, stag))
		return KEY_INVALID;
	if (len == 0) /* a barrier: the region counts, not the address */
		to = s->base;
	fault = s->kind == KEY_STORE ? check_access(s, pd, qp, to, len, access) : KEY_INVALID;
	if (fault != KEY_OK) {
		key_release(s);
		return fault;
	}
	*map = (struct store_map){
		.slot = s,
		.medium = s->store->medium,
		.offset = s->store->offset + (to - s->base),
		.relax = atomic_load_explicit(&s->store->relax, memory_order_relaxed),
		.level = atomic_load_explicit(&s->store->level, memory_order_relaxed),
		.cache_ms = atomic_load_explicit(&s->store->cache_ms, memory_order_relaxed),
	};
	return KEY_OK;
}

void store_put(struct store_map *map)
{
	if (map->slot)
		key_release(map->slot);
	map->slot = NULL;
}

/* ---- invalidation ---- */

/* Is the slot still in the hands of revoke_tag()? Its owner may have revoked it, or more. */
static bool is_pending(const struct key_slot *s, uint64_t life)
{
	return atomic_load(&s->stag) == TAG_PENDING && life_of(s) == life;
}

/*
 * Like key_revoke(), but revokes only this very tag, and fails while an operation on storage uses
 * the memory: that would be too long a wait. Returns -ESTALE if the slot was not valid under the
 * tag, or its owner took it back meanwhile.
 */
static int revoke_tag(struct key_slot *s, uint32_t stag)
{
	uint32_t tag = stag;
	uint64_t life;

	assert(lock_held(&table_lock));
	if (!atomic_compare_exchange_strong(&s->stag, &tag, TAG_PENDING))
		return -ESTALE;
	life = life_of(s); /* of the tag, unless its owner has it again: then it is not pending */
	while (is_pending(s, life) && atomic_load(&s->users)) {
		tag = TAG_PENDING;
		if (atomic_load(&s->lent) && atomic_compare_exchange_strong(&s->stag, &tag, stag))
			return -EACCES;
		lock_release(&table_lock); /* one that holds the key may need it */
		sched_yield();
		lock_acquire(&table_lock);
	}
	if (!is_pending(s, life))
		return -ESTALE;
	tag = TAG_PENDING;
	atomic_compare_exchange_strong(&s->stag, &tag, 0);
	return 0;
}

static int may_invalidate(const struct key_slot *s, uint32_t stag, const struct stag_pd *pd,
			  const struct stag_qp *qp)
{
	if (!s || !s->allocated || __atomic_load_n(&s->key, __ATOMIC_RELAXED) != stag ||
	    s->kind == KEY_SHOT)
		return -ENOENT; /* STags of one-shot sends are ended by shot_end() only */
	if (s->kind != KEY_FAST_MR && s->kind != KEY_MW2)
		return -EACCES; /* the peer may not invalidate ibv_reg_mr()'s regions and type-1 windows */
	if (s->pd != pd || (s->kind == KEY_MW2 && s->qp && s->qp != qp))
		return -EACCES;
	return s->kind == KEY_FAST_MR && atomic_load(&s->windows) ? -EACCES : 0;
}

/*
 * Under the lock the slot gets no other owner, so that what was checked is what is revoked. Its owner
 * may register it again under its next tag: then the one to invalidate is stale, and nothing is done.
 */
int key_invalidate(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp)
{
	struct key_slot *s = slot_at(index_of(stag));
	int err;

	HOLD_FOR_SCOPE(&table_lock);
	err = may_invalidate(s, stag, pd, qp);
	if (err)
		return err;
	err = revoke_tag(s, stag);
	if (!err)
		detach_window(s);
	return err == -ESTALE ? 0 : err;
}

void key_unbind_qp(struct stag_qp *qp)
{
	if (atomic_load(&qp->windows) == 0)
		return;
	lock_acquire(&table_lock);
	for (unsigned p = 0; p < PAGES; p++) {
		struct key_slot *page = atomic_load_explicit(&pages[p], memory_order_acquire);

		for (unsigned i = 0; page && i < PAGE_SLOTS; i++)
			if (page[i].allocated && page[i].kind == KEY_MW2 && page[i].qp == qp) {
				key_revoke(&page[i]);
				detach_window(&page[i]);
			}
	}
	lock_release(&table_lock);
}

void keys_after_fork(void)
{
	lock_init(&table_lock);
	ledger_after_fork();
	mirrors_after_fork();
}
