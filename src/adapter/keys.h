/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys.h - the table of STags.
 */
#ifndef STAG_KEYS_H
#define STAG_KEYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "stag/stagdv.h"

struct shot;
struct stag_pd;
struct stag_qp;
struct store_region;

enum key_kind { KEY_MR, KEY_FAST_MR, KEY_MW1, KEY_MW2, KEY_STORE, KEY_SHOT };

/* Why an access was refused; each side has its own words for it. */
enum key_fault {
	KEY_OK,
	KEY_INVALID, /* no such key, or nothing behind it */
	KEY_BOUNDS,
	KEY_RIGHTS,
	KEY_OTHER_PD,
	KEY_OTHER_QP,
	KEY_WRAP,
	KEY_BUSY,     /* no hazard cell is free: again, a little later */
	KEY_ON_STORE, /* it is no memory: store_get() */
	KEY_LAPSED,   /* its lease is over */
};

const char *key_fault_str(enum key_fault f);

/*
 * One slot of the table. Slots are never freed, so that a look-up needs no
 * lock: a reader raises users, then checks that stag is still what it looked
 * for; an owner clears stag, then waits for users to fall to zero.
 */
struct key_slot {
	_Atomic uint32_t stag; /* 0: nobody may use it */
	_Atomic uint32_t users;
	uint32_t key;  /* the whole key while allocated, valid or not */
	uint64_t life; /* another each time that it becomes usable: a tag may come again */
	uint8_t kind;  /* enum key_kind */
	bool allocated;
	bool chosen;		    /* the program named the key: stagdv_reg_mr_keyed() */
	uint8_t key_turn, key_step; /* the low bits of the key when it was allocated; odd */
	unsigned access;
	struct stag_pd *pd;
	struct stag_qp *qp;	 /* KEY_MW2, KEY_SHOT: the only queue pair that may use it */
	struct shot *shot;	 /* KEY_SHOT: one_shot.c's */
	struct key_slot *parent; /* windows: the region below */
	uint64_t base;		 /* TO of the first byte */
	uint64_t win_off;	 /* windows: where in the region they begin */
	uint64_t len;
	unsigned nseg;
	struct iovec one;		  /* the memory, where nseg is 1 */
	struct iovec *seg;		  /* &one, or an array of nseg */
	const struct stagdv_guard *guard; /* NULL: none; else asked before each access */
	_Atomic uint64_t lease;		  /* peers' ends then (clock_boot_ns()); 0: it does not */
	struct store_region *store;	  /* KEY_STORE: where it is instead of in memory */
	_Atomic uint32_t lent;		  /* of users: operations on storage, which take a while */
	atomic_int windows;		  /* bound to this region; and STags of sends over it */
	struct list *_Atomic mirrors;	  /* mirror.c: those of this region, or NULL */
};

/* Memory found behind a key. The references are held until key_put(). */
struct key_map {
	struct key_slot *slot[2]; /* the key's, and its parent's if it is a window */
	uint64_t *cell;		  /* the hazard of a guarded region, or NULL */
	unsigned n;		  /* pieces */
	size_t len;		  /* their sum: may be less than asked where pieces run out */
	struct iovec iov[8];
};

/*
 * Maps [to, to+len) of stag for an access by qp (in pd): on KEY_OK fills map and
 * holds references until key_put(map); otherwise holds none. access: the rights
 * needed, all of them. qp NULL: a local access, windows are not allowed then.
 * Of a guarded region also the hazard is set until key_put(). Where all cells are taken key_get()
 * waits for one, which only those may do who hold none; key_try_get() answers KEY_BUSY.
 */
enum key_fault key_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
		       uint64_t len, unsigned access, struct key_map *map);
enum key_fault key_try_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			   uint64_t len, unsigned access, struct key_map *map);
void key_put(struct key_map *map);

/*
 * Another range under the key that the map holds, for the same access; NULL: it is another key's, or
 * outside, or the region is not in one piece. Then key_get() says what is true.
 */
static inline uint8_t *key_near(const struct key_map *map, uint32_t stag, uint64_t to, uint64_t len)
{
	const struct key_slot *s = map->slot[0];

	if (!s || s->key != stag || s->nseg != 1 || s->parent || to < s->base ||
	    to - s->base > s->len || len > s->len - (to - s->base))
		return NULL;
	return (uint8_t *)s->seg->iov_base + (to - s->base);
}

/* A reference to a slot seen before: false when its tag is no longer stag. */
bool key_hold(struct key_slot *slot, uint32_t stag);
/* The same where memory behind it is remembered, too: false also when it has got other memory since. */
bool key_hold_again(struct key_slot *slot, uint32_t stag, uint64_t life);
void key_release(struct key_slot *slot);

/* The region whose memory the map has; NULL: the references are with somebody else, or there are none. */
static inline struct key_slot *key_region(const struct key_map *map)
{
	return map->slot[1] ? map->slot[1] : map->slot[0];
}

static inline bool key_is_leased(const struct key_slot *region)
{
	return atomic_load_explicit(&region->lease, memory_order_relaxed);
}

/*
 * Is its lease over? An access by a peer begins within the lease
 * (key_get()); who asks again when he has copied knows that what he has was there within it, however long he slept.
 */
bool key_has_lapsed(const struct key_slot *region);
/* A peer's access is refused: what has to be counted is. */
void key_refused(struct stag_qp *qp, uint32_t stag, enum key_fault f);

int key_alloc(enum key_kind kind, struct stag_pd *pd, struct key_slot **out); /* -ENOMEM */
/* The slot of just this tag: -EEXIST, -ENOMEM, -EINVAL (it is nobody's). */
int key_alloc_as(enum key_kind kind, struct stag_pd *pd, uint32_t stag, struct key_slot **out);
uint32_t key_choose(void); /* a tag whose slot is free now, and which it did not have last */
void key_publish(struct key_slot *slot, uint32_t stag); /* from now on usable under stag */
void key_revoke(struct key_slot *slot);	  /* unusable; returns when no access is under way */
uint32_t key_next(struct key_slot *slot); /* another tag for it: see next_key() */
struct key_slot *key_find(uint32_t stag); /* with a reference, or NULL: nobody may use it */
void key_each_shot(void (*fn)(const struct shot *s, void *arg), void *arg); /* published ones */
void key_free(struct key_slot *slot);	     /* revokes; the slot's next tag differs */
struct key_slot *key_slot_of(uint32_t stag); /* the allocated slot with that index, or NULL */

int key_invalidate(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp); /* -EACCES, -ENOENT */
void key_unbind(struct key_slot *slot); /* revokes a window, and parts it from its region */
void key_unbind_qp(struct stag_qp *qp); /* type-2 windows do not outlive their queue pair */

/* In a forked child: its locks are nobody's */
void keys_after_fork(void);

#endif
