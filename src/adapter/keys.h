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

/* Why an access was refused. Callers translate it into a completion status or a Terminate. */
enum key_fault {
	KEY_OK,
	KEY_INVALID, /* no such key, or it is not valid now */
	KEY_BOUNDS,
	KEY_RIGHTS,
	KEY_OTHER_PD,
	KEY_OTHER_QP,
	KEY_WRAP,
	KEY_BUSY,     /* no hazard cell is free: retry a little later */
	KEY_ON_STORE, /* the region is not in memory: see store_get() */
	KEY_LAPSED,   /* the region's lease has expired */
};

const char *key_fault_str(enum key_fault f);

/* What is known of a key that an access named, for people to read. */
struct key_facts {
	enum {
		KEY_IS_UNKNOWN,	  /* its index was never in use, or nothing is known now */
		KEY_IS_OTHER,	  /* its index has, or had, another key: now */
		KEY_IS_FREED,	  /* its region was deregistered; the range is what it was */
		KEY_IS_NOT_VALID, /* allocated, and not registered or bound, or invalidated */
		KEY_IS_VALID,
	} is;
	enum key_kind kind;
	uint32_t now; /* KEY_IS_OTHER: the valid key there, or 0 */
	uint64_t base, length;
	unsigned access;
	uint32_t pd, qpn; /* numbers; qpn: of windows and one-shot STags */
};

void key_find_facts(uint32_t stag, struct key_facts *out);

/*
 * A slot of the table. Slots are never freed, so that a look-up needs no lock: a reader
 * increments users, then checks that stag is still the one that it looked for; an owner clears
 * stag, then waits until users is zero.
 */
struct key_slot {
	_Atomic uint32_t stag; /* 0: invalid */
	_Atomic uint32_t users;
	uint32_t key;  /* the whole key while the slot is allocated, valid or not */
	uint64_t life; /* changes each time that the slot becomes valid: a tag may be reused */
	uint8_t kind;  /* enum key_kind */
	bool allocated;
	bool chosen;		    /* the program named the key: stagdv_reg_mr_keyed() */
	uint8_t key_turn, key_step; /* generators of the key's low 8 bits; key_step is odd */
	unsigned access;
	struct stag_pd *pd;
	struct stag_qp *qp;	 /* KEY_MW2, KEY_SHOT: the only queue pair that may use it */
	struct shot *shot;	 /* KEY_SHOT: owned by one_shot.c */
	struct key_slot *parent; /* windows: the region that they are bound to */
	uint64_t base;		 /* TO of the first byte */
	uint64_t win_off;	 /* windows: their offset in the region */
	uint64_t len;
	unsigned nseg;
	struct iovec one;		  /* the memory, where nseg is 1 */
	struct iovec *seg;		  /* &one, or an array of nseg */
	const struct stagdv_guard *guard; /* NULL: none; otherwise checked before each access */
	_Atomic uint64_t lease;	    /* clock_boot_ns() at which peers' access ends; 0: no lease */
	struct store_region *store; /* KEY_STORE: its place on a medium */
	_Atomic uint32_t lent; /* how many of users are operations on storage, which take long */
	atomic_int windows;    /* windows bound to this region, and STags of sends over it */
	struct list *_Atomic mirrors; /* mirror.c: those of this region, or NULL */
};

/* Memory found under a key. The references are held until key_put(). */
struct key_map {
	struct key_slot *slot[2]; /* the key's, and its parent's if it is a window */
	uint64_t *cell;		  /* the hazard of a guarded region, or NULL */
	unsigned n;		  /* pieces in iov */
	size_t len; /* their sum: less than requested if there are more than 8 pieces */
	struct iovec iov[8];
};

/*
 * Maps [to, to+len) of stag for an access by qp (in pd). On KEY_OK fills map and holds
 * references until key_put(map); otherwise holds none. access: the rights needed, all of them.
 * qp NULL: a local access, for which windows are not allowed. For a guarded region the hazard
 * is set, too, until key_put(). If all hazard cells are taken, key_get() waits for one, which a
 * thread that holds a cell must not do; key_try_get() returns KEY_BUSY.
 */
enum key_fault key_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
		       uint64_t len, unsigned access, struct key_map *map);
enum key_fault key_try_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			   uint64_t len, unsigned access, struct key_map *map);
void key_put(struct key_map *map);

/*
 * Returns the address of another range under the key that the map holds, for the same access.
 * Returns NULL if the range belongs to another key, is out of bounds, or the region has several
 * pieces: then key_get() decides.
 */
static inline uint8_t *key_near(const struct key_map *map, uint32_t stag, uint64_t to, uint64_t len)
{
	const struct key_slot *s = map->slot[0];

	if (!s || s->key != stag || s->nseg != 1 || s->parent || to < s->base ||
	    to - s->base > s->len || len > s->len - (to - s->base))
		return NULL;
	return (uint8_t *)s->seg->iov_base + (to - s->base);
}

/* Takes a reference to a slot that was found before. Returns false if its tag is no longer stag. */
bool key_hold(struct key_slot *slot, uint32_t stag);
/*
 * The same for a caller that remembers memory of the slot. Returns false also if the slot has
 * got other memory since.
 */
bool key_hold_again(struct key_slot *slot, uint32_t stag, uint64_t life);
void key_release(struct key_slot *slot);

/* Returns the region whose memory the map has, or NULL if the map holds no references. */
static inline struct key_slot *key_region(const struct key_map *map)
{
	return map->slot[1] ? map->slot[1] : map->slot[0];
}

static inline bool key_is_leased(const struct key_slot *region)
{
	return atomic_load_explicit(&region->lease, memory_order_relaxed);
}

/*
 * Has the region's lease expired? An access by a peer begins within the lease (key_get()). A
 * caller that has copied data checks again: if the lease has not expired then, the data was
 * valid within it, however long the thread was suspended.
 */
bool key_has_lapsed(const struct key_slot *region);
/* Counts a refused access of a peer. */
void key_refused(struct stag_qp *qp, uint32_t stag, enum key_fault f);

int key_alloc(enum key_kind kind, struct stag_pd *pd, struct key_slot **out); /* -ENOMEM */
/*
 * Allocates the slot of this very tag. Returns -EEXIST, -ENOMEM, or -EINVAL for a tag that is
 * never valid.
 */
int key_alloc_as(enum key_kind kind, struct stag_pd *pd, uint32_t stag, struct key_slot **out);
uint32_t key_choose(void); /* returns a tag whose slot is free, and which was not its last one */
void key_publish(struct key_slot *slot, uint32_t stag); /* makes the slot valid under stag */
/* invalidates the slot; returns when no access is in flight */
void key_revoke(struct key_slot *slot);
uint32_t key_next(struct key_slot *slot); /* returns the slot's next tag: see next_key() */
struct key_slot *key_find(uint32_t stag); /* returns a valid slot with a reference, or NULL */
/* calls fn for each valid one */
void key_each_shot(void (*fn)(const struct shot *s, void *arg), void *arg);
void key_free(struct key_slot *slot);	     /* revokes the slot; its next tag differs */
struct key_slot *key_slot_of(uint32_t stag); /* the allocated slot with that index, or NULL */

int key_invalidate(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp); /* -EACCES, -ENOENT */
void key_unbind(struct key_slot *slot); /* revokes a window, and separates it from its region */
void key_unbind_qp(struct stag_qp *qp); /* revokes its type-2 windows */

/* Resets the locks in a forked child. */
void keys_after_fork(void);

#endif
