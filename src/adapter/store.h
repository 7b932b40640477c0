/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - regions on storage: their keys, their media, and the order of operations on them.
 *
 * Three layers. A medium (medium.c) is a reference-counted struct media of src/media. It is always polled: by the pollers of
 * the completion queues whose queue pairs use it, or by the engine. A region on storage (store_mr.c) is a slot of the key
 * table, of kind KEY_STORE, that names a range of a medium. In a lane (lane.c) the operations of one queue pair, its own
 * (store_qp.c) or its peer's, wait for each other as the promised order requires.
 *
 * Locks: medium->lock and the lock inside of src/media come after tx_lock; both are leaves. media_poll() calls back without
 * them, and a callback may acquire any queue pair's tx_lock: a thread that polls holds no lock that comes after qps_lock.
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
	/* the program's, and one for each region, lane and queue pair that uses it */
	atomic_int refs;
	atomic_int regions; /* medium_close() is refused while there are any */
	struct watch watch; /* the engine's, of its event descriptor */
	struct lock lock;   /* a leaf; protects claims */
	atomic_int hungry;  /* connections that wait for one of its buffers */
	unsigned claims;    /* queue pairs whose poller polls it, too; 0: the engine does */
};

int medium_open(struct stag_ctx *ctx, const struct stagdv_medium_attr *attr,
		struct stag_medium **out);
int medium_close(struct stag_medium *m); /* -EBUSY while regions use it */
void medium_get(struct stag_medium *m);
void medium_put(struct stag_medium *m); /* the last reference closes it: the caller holds no lock */
void medium_query(struct stag_medium *m, struct stagdv_medium_counters *c);
/*
 * Runs callbacks, and submits the operations that they added. Returns the number of callbacks.
 * The caller holds no lock that comes after qps_lock.
 */
unsigned int medium_poll(struct stag_medium *m);
void medium_claim(struct stag_medium *m);   /* a poller will poll it from now on */
void medium_unclaim(struct stag_medium *m); /* a poller no longer polls it */

#define QP_MAX_MEDIA 4 /* media of a queue pair that its poller polls; the engine polls others */

/*
 * Notes that the queue pair uses the medium: from now on threads that make progress for its
 * completion queues poll the medium, too (qp_progress()). Cheap if it is known already. After
 * -ENOMEM the engine polls it.
 */
int qp_use_medium(struct stag_qp *qp, struct stag_medium *m);
bool qp_poll_media(struct stag_qp *qp); /* true: a callback ran */
/*
 * Returns descriptors for a sleeper: each is readable while its medium has something to poll,
 * until it is cleared.
 */
unsigned int qp_media_fds(struct stag_qp *qp, int fds[QP_MAX_MEDIA]);
void qp_clear_media(struct stag_qp *qp);
struct media *qp_first_medium(struct stag_qp *qp); /* or NULL; for media_poller_enter() */
void qp_arm_media(struct stag_qp *qp); /* after the queue pair was claimed or released */
/* when it is destroyed; the caller holds no lock but the engine's */
void qp_drop_media(struct stag_qp *qp);

/* ---- store_mr.c ---------------------------------------------------------- */

/* The place of a slot of kind KEY_STORE (slot->store). slot->len and slot->access may change. */
struct store_region {
	struct stag_medium *medium;
	uint64_t offset; /* of the region in the medium */
	_Atomic uint32_t relax, level, cache_ms;
};

int store_mr_reg(struct stag_pd *pd, struct stag_medium *m, const struct stagdv_store_attr *attr,
		 struct stag_mr **out);
int store_mr_modify(struct stag_mr *mr, const struct stagdv_store_attr *attr, int mask);
/* for mr_dereg(): returns when none of its operations is in flight */
void store_mr_end(struct stag_mr *mr);

/* A range found under a key. The reference is held until store_put(). */
struct store_map {
	struct key_slot *slot;
	struct stag_medium *medium;
	uint64_t offset; /* of the first byte, in the medium */
	uint32_t relax, level, cache_ms;
};

/*
 * Like key_get(), for a region on storage. Returns KEY_INVALID for any other. key_get() and
 * key_try_get() return KEY_ON_STORE for such a key, before any other check, so that nobody uses
 * it as memory. The reference may be held while an operation on the medium is in flight, and no
 * longer.
 */
enum key_fault store_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			 uint64_t len, unsigned access, struct store_map *map);
void store_put(struct store_map *map); /* slot NULL is allowed */

/* ---- lane.c --------------------------------------------------------------- */

/*
 * Operations in posting order. One that must wait for an earlier one is held back; all others are handed to their
 * media at once, at most depth of them. The rules of waiting:
 *
 *   an operation, for every earlier one that overlaps it in the same medium where one of the two writes (an atomic
 *	writes), unless both have relaxed that order (relax, enum stagdv_relax);
 *   one with fence, for all earlier ones; and those behind it until it has begun;
 *   a barrier (MEDIA_FLUSH) and a step (LANE_STEP), for all earlier ones; and those behind it until it is done.
 *
 * A barrier flushes every medium that operations of this lane have written to below STAGDV_LEVEL_DURABLE since the last one.
 */
struct lane;

enum { LANE_STEP = 64 }; /* io.kind of an operation without I/O: start() carries it out */

struct lane_op {
	/*
	 * The owner sets kind, durable, offset (in the medium) and length before lane_add(),
	 * and cache_ms, iov, n_iov and apply before start() returns. done belongs to the lane.
	 * A barrier has a kind alone.
	 */
	struct media_op io;
	/* the owner holds a reference until done; NULL: barrier, step */
	struct stag_medium *medium;
	uint32_t relax; /* enum stagdv_relax */
	bool fence;

	/*
	 * Both are called under the lane's lock, also from inside lane_add(), lane_retry() and
	 * lane_cut(). start (NULL: returns 0): the operation is about to go. 0: submit it;
	 * -EAGAIN: it cannot go yet, and start is called again when another operation of the
	 * lane ends, or by lane_retry(); any other error: the operation ends with it. done:
	 * io.result is the outcome; the operation belongs to the owner again, which may free it
	 * or add it again.
	 */
	int (*start)(struct lane_op *op);
	void (*done)(struct lane_op *op);

	/* private to the lane */
	struct lane *lane;
	struct list link;    /* in lane->ops, in posting order, until it is done */
	struct list waiting; /* in the waiters of its blocker, or in lane->ready */
	struct list waiters;
	uint64_t seq;
	uint8_t state;	   /* enum lane_op_state; 0 before it is added */
	uint32_t flush_at; /* barrier: index of the medium whose flush is in flight */
};

struct lane_medium { /* a medium that the lane has used, with a reference */
	struct stag_medium *medium;
	bool dirty; /* written to since its last flush */
	bool kick;  /* operations were submitted */
};

struct lane {
	struct lock *lock; /* the owner's: calls assert it, callbacks acquire it */
	struct list ops;
	struct list ready; /* held back by the depth only, or by -EAGAIN */
	uint32_t depth, under_way;
	uint32_t count; /* operations in the lane, in any state */
	uint64_t next_seq;
	struct lane_medium *media;
	uint32_t n_media;
	uint32_t gates; /* how many of them are fences that have not begun, barriers and steps */
	uint32_t wide;	/* how many are long */
	/*
	 * Counts of short operations by the blocks that they touch: if the counts are zero, no
	 * operation needs to be compared. n_buckets is a power of two; 0: no memory, and all
	 * operations are compared.
	 */
	uint32_t *users, *writers;
	uint32_t n_buckets;
	bool running;
	bool starved; /* start() of one in ready returned -EAGAIN: see lane_retry() */
};

void lane_init(struct lane *l, struct lock *lock, uint32_t depth);
/* The lane is empty. Drops its references to media; the caller holds no lock. */
void lane_end(struct lane *l);

/* Takes an operation over. done follows, at once if start fails. Call lane_kick() after a batch. */
void lane_add(struct lane *l, struct lane_op *op);
void lane_kick(struct lane *l);
void lane_retry(struct lane *l); /* calls start() again for those that could not go */

/*
 * Ends with -ECANCELED the operations behind op (NULL: all) that have not begun. Those in
 * flight end by themselves; lane->count falls to 0 then.
 */
void lane_cut(struct lane *l, struct lane_op *op);

/*
 * In a forked child: ends with -ECANCELED the operations in flight with the parent's media,
 * which never end here. Elsewhere it does nothing.
 */
void lane_forget(struct lane *l);

/* ---- store_request.c, store_qp.c: queue pairs on storage of this process --- */

struct held_key { /* memory of an operation in flight */
	struct key_slot *slot;
	uint64_t *cell; /* the hazard of a guarded region, or NULL */
};

struct store_request { /* the storage part of an entry of the send queue */
	struct lane_op op;
	struct stag_qp *qp;
	struct wqe *w; /* its entry, which may move (store_qp_make_room()); NULL: completed */
	bool adds; /* atomic: fetch and add; copied, as the next two, for readers without tx_lock */
	uint64_t compare_add, swap;
	struct store_map map;
	struct held_key *held; /* held and iov: in the queue pair's slabs, unless grown */
	struct iovec *iov;
	uint32_t n_held, room;
	bool grown;
	uint32_t n_result; /* atomic: pieces of memory for the value found */
	bool accepts;	   /* a write that completes when its bytes are copied */
	void *taken; /* the copy, in a buffer of the medium: the request has completed, w is NULL */
	struct list spare; /* in store_qp.spares */
};

struct store_qp {
	struct lane lane;
	uint32_t relax, level;
	struct store_request *request; /* two for each entry of the send queue */
	struct store_request **at;     /* by entry */
	struct list spares;	       /* requests without an entry that are not in flight */
	struct held_key *held_slab;
	struct iovec *iov_slab;
	struct rwqe *recv; /* the receive that an immediate takes */
	bool failed;	   /* nothing more goes into the lane */
	bool cutting;
	struct timer retry;
};

int store_qp_connect(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr);
int store_qp_query(struct stag_qp *qp, struct stagdv_store_qp_attr *attr); /* -ENOTCONN */
int store_qp_modify(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr, int mask);
int store_qp_check(const struct wqe *w, const char **why); /* is the request allowed on storage? */
/* waits for operations in flight; the caller holds no lock but the engine's */
void store_qp_end(struct stag_qp *qp);

void store_qp_run(struct stag_qp *qp);	     /* hands posted requests to the lane */
bool store_qp_make_room(struct stag_qp *qp); /* true: the send queue has room again */
/* for sq_flush(): true, or the last operation in flight calls it again */
bool store_qp_stop(struct stag_qp *qp);
void store_qp_done(struct store_request *r);
void store_qp_accepted(struct stag_qp *qp, struct wqe *w, uint32_t relax); /* w is done */
void store_qp_lost(struct store_request *r); /* it failed after it had completed */
void store_qp_settle(struct stag_qp *qp);
int store_requests_init(struct stag_qp *qp); /* after a failure: free them, too */
void store_requests_free(struct stag_qp *qp);
bool store_request_enter(struct stag_qp *qp, uint32_t index); /* false: it has failed */

#endif
