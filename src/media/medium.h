/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * medium.h - internal header of src/media.
 *
 * An operation is a sequence of steps. A step moves bytes directly between the caller's memory and
 * the medium if both are aligned, and through one staging buffer otherwise (step.c); it has at most
 * one request in the kernel at any time, so that the ring always has room.
 *
 *   BACKLOG -> BUFFER -> RANGE -> PLACE -> FILLING -> FILLING_TAIL -> MOVING --+
 *      |          ^  a step skips those that it does not need                  | next step
 *      |          +------------------------------------------------------------+
 *      +-> SYNCING (a flush, or a durable write of several steps) -> READY
 *
 * An operation gets its buffer before it waits for a range or a place, and once it has its range
 * and places it waits only for the kernel. So every wait is for an operation that makes progress.
 *
 * One lock protects a medium. It is not held in system calls, nor in callbacks.
 */
#ifndef STAG_MEDIA_MEDIUM_H
#define STAG_MEDIA_MEDIUM_H

#include "media/media.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/histogram.h"
#include "base/lock.h"
#include "base/sample.h"

enum op_phase {
	OP_BACKLOG,	 /* `depth` operations are in flight */
	OP_BUFFER,	 /* waits for staging memory */
	OP_RANGE,	 /* waits for a step of this process that holds the range */
	OP_PLACE,	 /* waits for a step of another process */
	OP_FILLING,	 /* the kernel reads the rest of the first block, or of all */
	OP_FILLING_TAIL, /* the kernel reads the rest of the last block */
	OP_MOVING,	 /* the kernel reads or writes */
	OP_SYNCING,	 /* waits for a flush */
	OP_READY,	 /* waits for its callback in media_poll() */
};

/* Exclusive conflicts with everything, shared with exclusive. */
enum lock_mode { LOCK_SHARED, LOCK_EXCLUSIVE };

/* Kinds of errors that are logged. */
enum complaint { COMPLAINT_READ, COMPLAINT_WRITE, COMPLAINT_SYNC, COMPLAINT_SIZE, NUM_COMPLAINTS };

/* Cookies at the edge that are not operations. */
enum { COOKIE_SYNC = 1, COOKIE_TIMEOUT = 2 };

struct ring;
struct calls;
struct cache;
struct places;

struct staging {
	uint8_t *memory; /* page-aligned */
	uint64_t bytes;
	void *inner,
		/* free buffers, linked through their first word: the medium's own, and others' */
		*outer;
	uint8_t *outer_begin;
	struct list ops;     /* in phase OP_BUFFER, first come first served */
	struct list waiters; /* media_waiter */
	struct list granted; /* media_waiter with a buffer, to be called back */
};

/* Durations of operations of one kind. */
struct media_times {
	uint64_t seen; /* operations so far */
	struct sample sample;
	struct stag_histogram histogram;
};

struct media {
	struct list link; /* open.c: all media of this process */
	uint64_t forks;	  /* number of forks of this process when it was opened */
	struct lock lock;
	int fd; /* an open file description of its own, if possible */
	int event_fd;
	unsigned int flags;
	bool direct;
	uint32_t block;	       /* 1 unless direct */
	uint32_t memory_align; /* alignment of memory for O_DIRECT */
	uint32_t depth;
	_Atomic uint64_t size;
	uint64_t looked_ns; /* when the size was last queried */

	struct media_edge *edge;
	struct ring *ring;
	struct calls *calls; /* for memory; NULL: the ring does everything */
	struct staging staging;
	struct cache *cache; /* NULL until data is to be cached */
	uint64_t cache_limit;
	struct places *places; /* NULL unless shared, or data is cached */

	uint32_t active;     /* operations that have left the backlog, and are not ready */
	struct list backlog; /* this and the next lists: media_op.state.link */
	struct list ready;
	uint32_t n_ready;
	struct list range_waiters, place_waiters;
	struct list sync_next, sync_now; /* wait for the next flush, and for the one in flight */

	struct list held;    /* media_op.state.held */
	uint32_t exclusives; /* exclusive steps in held and range_waiters */
	uint32_t untracked;  /* writing steps from before places existed */
	bool timing;	     /* a timeout is in flight */
	bool syncing;
	bool closing;
	int sync_error;			/* of the first failed flush; no later flush succeeds */
	int complained[NUM_COMPLAINTS]; /* last logged error of each kind */

	atomic_bool armed;
	atomic_uint to_tell;			   /* ready operations and granted waiters */
	struct media_times times[MEDIA_FLUSH + 1]; /* by enum media_kind */
	struct media_counters counters;
};

/*
 * Returns whether a result means "not done, retry". The kernel cancels requests that a thread
 * submitted and that have not started when that thread ends; nothing else here cancels.
 */
static inline bool is_passing(int result)
{
	return result == -EINTR || result == -EAGAIN || result == -ECANCELED;
}

static inline uint64_t round_down(uint64_t n, uint64_t to)
{
	return n - n % to;
}

static inline uint64_t round_up(uint64_t n, uint64_t to)
{
	return round_down(n + to - 1, to);
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* open.c */
bool media_covers(struct media *m, uint64_t offset,
		  uint64_t length); /* queries the size again if it seems not to */
void media_notice_size(
	struct
	media *m); /* called from time to time, before writes: a write to a truncated file would make it grow again */

/* geometry.c */
struct geometry {
	bool direct, is_memory;
	uint32_t block, memory_align;
	uint64_t size;
};

int geometry_of(int fd, struct geometry *g); /* fills in what O_DIRECT requires of it */
int geometry_size(int fd, uint64_t *size);

/* ring.c */
int ring_open(struct ring **out, struct media *m);
void ring_close(struct ring *r);
void ring_abandon(struct ring *r); /* in a forked child: the parent's ring stays usable */
struct media_edge *ring_edge(struct ring *r);
uint64_t ring_submits(const struct ring *r);
void ring_arm(struct ring *r, bool on);

/* calls.c */
#define MOST_IN_CALL (64u * 1024) /* bytes whose copy is short enough for one call */
int calls_open(struct calls **out, struct media *m, struct media_edge *ring);
void calls_close(struct calls *c);
struct media_edge *calls_edge(struct calls *c);
uint64_t calls_submits(const struct calls *c);

/* op.c */
void media_op_set_phase(struct media_op *op, enum op_phase to); /* asserts that the move is legal */
void media_op_finish(struct media *m, struct media_op *op, int result);
void media_op_start(struct media *m, struct media_op *op);
void media_op_start_backlog(struct media *m);
void media_op_tell(struct media *m); /* there is something to call back */

/* poll.c */
void poll_wake(struct media *m); /* wakes a sleeping thread, if there is one */

/* iov.c: the caller's memory from the position where the current step begins */
/* returns a contiguous length */
uint64_t iov_run(const struct media_op *op, uint64_t ahead, uint8_t **at);
void iov_advance(struct media_op *op, uint64_t n);
void iov_gather(const struct media_op *op, uint8_t *to, uint64_t n);
void iov_scatter(const struct media_op *op, const uint8_t *from, uint64_t n);

/* step.c */
void step_next(struct media *m, struct media_op *op);
void step_with_buffer(struct media *m, struct media_op *op); /* once the step has a buffer */
void step_with_range(struct media *m, struct media_op *op);
void step_go(struct media *m, struct media_op *op); /* once the step has its range and places */
void step_event(struct media *m, struct media_op *op, int result);

/* plan.c */
void plan_step(struct media *m, struct media_op *op, bool *staged);
bool plan_fills(const struct media *m, const struct media_op *op, bool *head, bool *tail);

/* lock.c */
bool range_lock(struct media *m,
		struct media_op *op); /* false: it waits; step_with_range() is called later */
void range_unlock(struct media *m, struct media_op *op);

/* staging.c */
int media_staging_open(struct staging *s, uint64_t bytes);
void media_staging_close(struct staging *s);
bool media_staging_has(const struct staging *s, const void *at, uint64_t length);
uint8_t *media_staging_get(struct media *m);
void media_staging_put(struct media *m, uint8_t *buffer);

/* flush.c */
void flush_start(struct media *m, struct media_op *op);
void flush_event(struct media *m, int result);

/* cache.c */
#define CACHE_UNIT 4096
bool cache_prepare(struct media *m);
/* returns true if all data was cached, and is copied */
bool cache_read(struct media *m, struct media_op *op);
void cache_begin(struct media *m, struct media_op *op); /* a step whose data may be cached */
void cache_keep(struct media *m, struct media_op *op, uint64_t done); /* of the step that ended */
void cache_close(struct cache *c);

/* share.c */
int places_open(struct media *m);
void places_close(struct media *m);
void places_leave_for_good(struct media *m); /* it stays open, but nothing is written any more */
void places_abandon(struct media *m);	     /* in a forked child: the lock is the parent's */
bool places_enter(struct media *m, struct media_op *op); /* false: later. For a step that writes */
void places_leave(struct media *m, struct media_op *op);
uint64_t places_stamp(struct media *m, uint64_t start, uint64_t end);
unsigned int places_writers(struct media *m, uint64_t start,
			    uint64_t end); /* maximum number of concurrent writers */
void places_retry(struct media *m);
void places_wait(struct media *m, struct media_op *op);

/* stats.c */
/* Logs an error once, until a different error of the same kind occurs. */
void media_complain(struct media *m, enum complaint c, uint64_t offset, int err);

#endif
