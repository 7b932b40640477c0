/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * medium.h - the inside of the storage engine.
 *
 * An operation is a row of steps, one after the other. A step moves bytes straight between the caller's memory and the
 * medium where both are aligned, and through one buffer of staging memory where not (step.c); it has
 * at most one primitive with the kernel at any time, so that no more are under way than the ring has room for.
 *
 *   BACKLOG -> BUFFER -> RANGE -> PLACE -> FILLING -> FILLING_TAIL -> MOVING --+
 *      |          ^  a step passes over those that it has no need of           | next step
 *      |          +------------------------------------------------------------+
 *      +-> SYNCING (a flush, or a durable write of several steps) -> READY
 *
 * An operation that waits for a range or a place has its buffer, and one that has its range and place waits
 * for nothing but the kernel: so whoever waits waits for somebody who moves.
 *
 * One lock guards all of a medium. It is not held in system calls, nor in callbacks.
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
	OP_BACKLOG,	 /* more than depth are under way */
	OP_BUFFER,	 /* waits for staging memory */
	OP_RANGE,	 /* waits for somebody of this process who has these bytes */
	OP_PLACE,	 /* waits for somebody of another process */
	OP_FILLING,	 /* the kernel reads what a write leaves of its first block, or of all */
	OP_FILLING_TAIL, /* and of its last */
	OP_MOVING,	 /* the kernel reads or writes */
	OP_SYNCING,	 /* waits for a flush */
	OP_READY,	 /* waits for media_poll() to say so */
};

/* Exclusive is against all, shared against exclusive. */
enum lock_mode { LOCK_SHARED, LOCK_EXCLUSIVE };

/* What there is to say of a medium. */
enum complaint { COMPLAINT_READ, COMPLAINT_WRITE, COMPLAINT_SYNC, COMPLAINT_SIZE, NUM_COMPLAINTS };

/* Cookies at the edge that are no operation. */
enum { COOKIE_SYNC = 1, COOKIE_TIMEOUT = 2 };

struct ring;
struct calls;
struct cache;
struct places;

struct staging {
	uint8_t *memory; /* page-aligned */
	uint64_t bytes;
	void *inner,
		*outer; /* free buffers, linked through their first word: the medium's own, and others' */
	uint8_t *outer_begin;
	struct list ops;     /* in phase OP_BUFFER, first come first served */
	struct list waiters; /* media_waiter */
	struct list granted; /* media_waiter with a buffer, to be told */
};

/* How long operations of a kind took. */
struct media_times {
	uint64_t seen; /* operations */
	struct sample sample;
	struct stag_histogram histogram;
};

struct media {
	struct list link; /* open.c: all media of this process */
	uint64_t forks;	  /* of this process when it was opened */
	struct lock lock;
	int fd; /* a description of its own where that can be */
	int event_fd;
	unsigned int flags;
	bool direct;
	uint32_t block;	       /* 1 unless direct */
	uint32_t memory_align; /* of O_DIRECT */
	uint32_t depth;
	_Atomic uint64_t size;
	uint64_t looked_ns; /* when the size was looked at */

	struct media_edge *edge;
	struct ring *ring;
	struct calls *calls; /* of memory; NULL: the ring does all */
	struct staging staging;
	struct cache *cache; /* NULL until something is to be kept */
	uint64_t cache_limit;
	struct places *places; /* NULL until shared, or something is kept */

	uint32_t active;     /* operations that have left the backlog, and are not ready */
	struct list backlog; /* what follows: media_op.state.link */
	struct list ready;
	uint32_t n_ready;
	struct list range_waiters, place_waiters;
	struct list sync_next, sync_now; /* wait for the next flush, and for the one under way */

	struct list held;    /* media_op.state.held */
	uint32_t exclusives; /* of held and of range_waiters */
	uint32_t untracked;  /* steps that write, from before there were places */
	bool timing;	     /* a timeout is under way */
	bool syncing;
	bool closing;
	int sync_error; /* the first of a flush; from then on none can be believed */
	int complained[NUM_COMPLAINTS]; /* what was said last of each */

	atomic_bool armed;
	atomic_uint to_tell;			   /* ready operations and granted waiters */
	struct media_times times[MEDIA_FLUSH + 1]; /* by enum media_kind */
	struct media_counters counters;
};

/*
 * It was not done, and may be asked for again. The kernel cancels what a thread submitted and has not begun when
 * that thread ends, whoever asked for it; nobody else here cancels anything.
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
		  uint64_t length); /* looks again where it seems not to */
void media_notice_size(
	struct media *m); /* now and then, before writes: a truncated file would grow again */

/* geometry.c */
struct geometry {
	bool direct, is_memory;
	uint32_t block, memory_align;
	uint64_t size;
};

int geometry_of(int fd, struct geometry *g); /* what O_DIRECT would want of it */
int geometry_size(int fd, uint64_t *size);

/* ring.c */
int ring_open(struct ring **out, struct media *m);
void ring_close(struct ring *r);
void ring_abandon(struct ring *r); /* in a forked child: the parent's goes on */
struct media_edge *ring_edge(struct ring *r);
uint64_t ring_submits(const struct ring *r);
void ring_arm(struct ring *r, bool on);

/* calls.c */
#define MOST_IN_CALL (64u * 1024) /* bytes that nobody minds waiting for */
int calls_open(struct calls **out, struct media *m, struct media_edge *ring);
void calls_close(struct calls *c);
struct media_edge *calls_edge(struct calls *c);
uint64_t calls_submits(const struct calls *c);

/* op.c */
void media_op_set_phase(struct media_op *op, enum op_phase to); /* asserts that the move is legal */
void media_op_finish(struct media *m, struct media_op *op, int result);
void media_op_start(struct media *m, struct media_op *op);
void media_op_start_backlog(struct media *m);
void media_op_tell(struct media *m); /* there is something to call back for */

/* poll.c */
void poll_wake(struct media *m); /* who sleeps, if anybody does */

/* iov.c: the caller's memory from the place where the step under way begins */
uint64_t iov_run(const struct media_op *op, uint64_t ahead, uint8_t **at); /* contiguous there */
void iov_advance(struct media_op *op, uint64_t n);
void iov_gather(const struct media_op *op, uint8_t *to, uint64_t n);
void iov_scatter(const struct media_op *op, const uint8_t *from, uint64_t n);

/* step.c */
void step_next(struct media *m, struct media_op *op);
void step_with_buffer(struct media *m, struct media_op *op); /* has it now */
void step_with_range(struct media *m, struct media_op *op);
void step_go(struct media *m, struct media_op *op); /* has range and place */
void step_event(struct media *m, struct media_op *op, int result);

/* plan.c */
void plan_step(struct media *m, struct media_op *op, bool *staged);
bool plan_fills(const struct media *m, const struct media_op *op, bool *head, bool *tail);

/* lock.c */
bool range_lock(struct media *m,
		struct media_op *op); /* false: it waits; step_with_range() comes later */
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
bool cache_read(struct media *m, struct media_op *op);	/* all of it was there, and is copied */
void cache_begin(struct media *m, struct media_op *op); /* a step that may be kept */
void cache_keep(struct media *m, struct media_op *op, uint64_t done); /* of the step that ended */
void cache_close(struct cache *c);

/* share.c */
int places_open(struct media *m);
void places_close(struct media *m);
void places_leave_for_good(struct media *m); /* it stays open, and nothing is written any more */
void places_abandon(struct media *m); /* in a forked child: its parent's life is not its own */
bool places_enter(struct media *m, struct media_op *op); /* false: later. A step that writes */
void places_leave(struct media *m, struct media_op *op);
uint64_t places_stamp(struct media *m, uint64_t start, uint64_t end);
unsigned int places_writers(struct media *m, uint64_t start,
			    uint64_t end); /* at once, where most are */
void places_retry(struct media *m);
void places_wait(struct media *m, struct media_op *op);

/* stats.c */
/* In the log, once: until something else goes wrong in the same way. */
void media_complain(struct media *m, enum complaint c, uint64_t offset, int err);

#endif
