/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - regions on storage: their keys, their media, and the order of what is done to them.
 *
 * Three layers. A medium (medium.c) is a struct media of src/media, shared by reference, that somebody always
 * polls: the pollers of the completion queues whose queue pairs use it, or the engine. A store region (store_mr.c) is a
 * slot of the key table of its own kind, KEY_STORE, that names a range of a medium. A lane (lane.c) is where the operations
 * of one queue pair, its own (store_qp.c) or its peer's, wait for each other as the order asks.
 *
 * Locks: behind tx_lock come medium->lock and the lock inside of src/media, both leaves. media_poll() calls back with
 * none held, and may take any queue pair's tx_lock: who polls holds no lock behind qps_lock.
 */
#ifndef STAG_STORE_REGIONS_H
#define STAG_STORE_REGIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "adapter/engine.h"
#include "adapter/keys.h"
#include "base/list.h"
#include "base/lock.h"
#include "media/media.h"
#include "stag/stagdv.h"

struct rwqe;
struct stag_ctx;
struct stag_mr;
struct stag_pd;
struct stag_qp;
struct wqe;

/* ---- medium.c ------------------------------------------------------------ */

struct stag_medium { /* the program's struct stagdv_medium */
	struct stag_ctx *ctx;
	struct media *media;
	atomic_int refs; /* the program's, one of each region, lane and queue pair that uses it */
	atomic_int regions; /* close is refused while there are any */
	struct watch watch; /* the engine's eye on its event descriptor */
	struct lock lock;   /* a leaf; the next one: */
	atomic_int hungry;  /* connections that wait for a buffer of it */
	unsigned claims;    /* queue pairs whose poller polls it too; 0: it is armed */
};

int medium_open(struct stag_ctx *ctx, const struct stagdv_medium_attr *attr,
		struct stag_medium **out);
int medium_close(struct stag_medium *m); /* -EBUSY while regions use it */
void medium_get(struct stag_medium *m);
void medium_put(struct stag_medium *m); /* the last one closes it: with no lock held */
void medium_query(struct stag_medium *m, struct stagdv_medium_counters *c);
/* Callbacks run, and what they submitted goes; the number of callbacks. No lock behind qps_lock held. */
unsigned int medium_poll(struct stag_medium *m);
void medium_claim(struct stag_medium *m);   /* a poller will poll it */
void medium_unclaim(struct stag_medium *m); /* no longer */

#define QP_MAX_MEDIA 4 /* of a queue pair that its poller polls; the engine polls others */

/*
 * The queue pair uses it: from now on whoever makes progress for its completion queues polls the medium too
 * (qp_progress()). Cheap where it is known already. -ENOMEM: it goes on without, the engine polls.
 */
int qp_use_medium(struct stag_qp *qp, struct stag_medium *m);
bool qp_poll_media(struct stag_qp *qp); /* true: something came */
/* For who sleeps: what becomes readable when there is something to poll, until somebody clears it. */
unsigned int qp_media_fds(struct stag_qp *qp, int fds[QP_MAX_MEDIA]);
void qp_clear_media(struct stag_qp *qp);
struct media *qp_first_medium(struct stag_qp *qp); /* or NULL; for media_mind() */
void qp_arm_media(struct stag_qp *qp);		   /* the queue pair was claimed, or is no longer */
void qp_drop_media(struct stag_qp *qp);		   /* at its end; no lock held but the engine's */

/* ---- store_mr.c ---------------------------------------------------------- */

/* What a slot of kind KEY_STORE names (slot->store). slot->len and slot->access may change. */
struct store_region {
	struct stag_medium *medium;
	uint64_t offset; /* of the region in the medium */
	_Atomic uint32_t relax, level, cache_ms;
};

int store_mr_reg(struct stag_pd *pd, struct stag_medium *m, const struct stagdv_store_attr *attr,
		 struct stag_mr **out);
int store_mr_modify(struct stag_mr *mr, const struct stagdv_store_attr *attr, int mask);
void store_mr_end(struct stag_mr *mr); /* for mr_dereg(): returns when nothing of it is under way */

/* What was found behind a key; the reference is held until store_put(). */
struct store_map {
	struct key_slot *slot;
	struct stag_medium *medium;
	uint64_t offset; /* of the first byte, in the medium */
	uint32_t relax, level, cache_ms;
};

/*
 * As key_get(), for a region on storage. KEY_INVALID where it is not one. key_get() and key_try_get() give
 * KEY_ON_STORE for such a key, before any other check: nobody reaches it by mistake as memory.
 * The reference may be held for as long as an operation on the medium takes, and no longer.
 */
enum key_fault store_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			 uint64_t len, unsigned access, struct store_map *map);
void store_put(struct store_map *map); /* harmless on one that holds nothing (slot NULL) */

/* ---- lane.c --------------------------------------------------------------- */

/*
 * Operations in posting order. One that must wait for an earlier one is held back; all others are handed to their
 * media at once, depth of them at most. Who waits for whom:
 *
 *   an operation, for every earlier one that overlaps it in the same medium where one of the two writes (an atomic
 *	writes), unless both have given that up (relax, enum stagdv_relax);
 *   one with fence, for all earlier ones; and those behind it until it has begun;
 *   a barrier (MEDIA_FLUSH) and a step (LANE_STEP), for all earlier ones; and those behind it until it is done.
 *
 * A barrier flushes every medium that operations of this lane have written to below STAGDV_LEVEL_DURABLE since the last one.
 */
struct lane;

enum { LANE_STEP = 64 }; /* io.kind of what has no I/O: start() carries it out */

struct lane_op {
	/*
	 * The owner fills kind, durable, offset (in the medium) and length before lane_add(), the rest before start()
	 * returns: cache_ms, iov, n_iov, apply. done is the lane's. A barrier: kind alone.
	 */
	struct media_op io;
	struct stag_medium
		*medium; /* its reference is the owner's until done; NULL: barrier, step */
	uint32_t relax;	 /* enum stagdv_relax */
	bool fence;

	/*
	 * Both are called under the lane's lock, also from inside lane_add(), lane_retry() and lane_cut(). start (NULL: as
	 * if it gave 0): it goes now. 0; -EAGAIN: it cannot yet, and is asked again when another operation of the lane
	 * ends, or by lane_retry(); any other error: it ends with that.
	 * done: io.result says how; the operation is the owner's again, and may be freed, or added anew.
	 */
	int (*start)(struct lane_op *op);
	void (*done)(struct lane_op *op);

	/* the lane's own */
	struct lane *lane;
	struct list link;    /* in lane->ops, in posting order, until it is done */
	struct list waiting; /* in the blocker's list of who waits for it, or in lane->ready */
	struct list waiters;
	uint64_t seq;
	uint8_t state;	   /* enum lane_op_state; 0 before it is added */
	uint32_t flush_at; /* of a barrier: the medium whose flush is under way */
};

struct lane_medium { /* one that the lane has used; it holds a reference */
	struct stag_medium *medium;
	bool dirty; /* written to, and not flushed */
	bool kick;  /* something was submitted */
};

struct lane {
	struct lock *lock; /* the owner's: each call here asserts it; acquired for callbacks */
	struct list ops;
	struct list ready; /* nothing in their way but the depth, or -EAGAIN */
	uint32_t depth, under_way;
	uint32_t count; /* operations in it, in whatever state */
	uint64_t next_seq;
	struct lane_medium *media;
	uint32_t n_media;
	uint32_t gates; /* of these, fences that have not begun, barriers and steps */
	uint32_t wide;	/* and those that are long */
	/*
	 * Short ones by the places they touch: who finds nobody there needs to look at none of them. n_buckets is a power
	 * of two; 0: there was no memory, and all are looked at.
	 */
	uint32_t *users, *writers;
	uint32_t n_buckets;
	bool running;
	bool starved; /* somebody in ready got -EAGAIN: lane_retry() */
};

void lane_init(struct lane *l, struct lock *lock, uint32_t depth);
/* Nothing is in it any more. Gives the media back, with no lock held. */
void lane_end(struct lane *l);

/* Takes it over; done follows, at once where start fails. Kick when a batch is added. */
void lane_add(struct lane *l, struct lane_op *op);
void lane_kick(struct lane *l);
void lane_retry(struct lane *l); /* asks those again that could not start */

/*
 * Ends (-ECANCELED) what is behind op (NULL: all) and has not begun. What has begun ends by itself; lane->count falls
 * to 0 then.
 */
void lane_cut(struct lane *l, struct lane_op *op);

/*
 * In a forked child: ends (-ECANCELED) what is under way with its parent's media, and so never ends here. Otherwise it
 * does nothing.
 */
void lane_forget(struct lane *l);

/* ---- store_request.c, store_qp.c: queue pairs on storage of this process --- */

struct held_key { /* memory of an operation under way */
	struct key_slot *slot;
	uint64_t *cell; /* the hazard of a guarded region, or NULL */
};

struct store_request { /* what an entry of the send queue has besides */
	struct lane_op op;
	struct stag_qp *qp;
	struct wqe *w; /* its entry; may move (store_qp_make_room()). NULL: it has completed */
	bool adds;     /* of an atomic, for who does not hold tx_lock: */
	uint64_t compare_add, swap;
	struct store_map map;
	struct held_key *held; /* these two: of the queue pair's slabs, or grown */
	struct iovec *iov;
	uint32_t n_held, room;
	bool grown;
	uint32_t n_result; /* of an atomic: pieces of memory for what was found */
	bool accepts;	   /* a write that completes when its bytes are taken */
	void *taken;	   /* them, in a buffer of the medium's: it has completed, and w is NULL */
	struct list spare; /* in store_qp.spares */
};

struct store_qp {
	struct lane lane;
	uint32_t relax, level;
	struct store_request *request; /* one for each entry of the send queue, and as many more; */
	struct store_request **at;     /* by entry */
	struct list spares; /* the rest, but for those under way whose entry has completed */
	struct held_key *held_slab;
	struct iovec *iov_slab;
	struct rwqe *recv; /* for immediates */
	bool failed;	   /* nothing more goes into the lane */
	bool cutting;
	struct timer retry;
};

int store_qp_connect(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr);
int store_qp_query(struct stag_qp *qp, struct stagdv_store_qp_attr *attr); /* -ENOTCONN */
int store_qp_modify(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr, int mask);
int store_qp_check(const struct wqe *w, const char **why); /* is it for storage? */
void store_qp_end(
	struct stag_qp *qp); /* waits for what is under way; no lock behind the engine's held */

void store_qp_run(struct stag_qp *qp);	     /* what was posted goes into the lane */
bool store_qp_make_room(struct stag_qp *qp); /* true: the send queue is no longer full */
bool store_qp_stop(
	struct stag_qp *qp); /* for sq_flush(): true, or the last one under way flushes */
void store_qp_done(struct store_request *r);
void store_qp_accepted(struct stag_qp *qp, struct wqe *w, uint32_t relax); /* w is done */
void store_qp_lost(struct store_request *r); /* it failed after it had completed */
void store_qp_settle(struct stag_qp *qp);
int store_requests_init(struct stag_qp *qp); /* on failure: free them too */
void store_requests_free(struct stag_qp *qp);
bool store_request_enter(struct stag_qp *qp, uint32_t index); /* false: it failed already */

#endif
