/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * media.h - asynchronous I/O on a file, a block device or shared memory.
 *
 * Knows nothing of verbs, queue pairs, keys or partitions. The caller describes an operation in
 * memory of its own (struct media_op), submits it (media_submit()), starts a batch (media_kick()),
 * and gets the completion as a callback from media_poll(). Functions return 0 or a count, or
 * -errno.
 *
 * Order: there is none among operations in flight; a caller that needs one waits for the first
 * operation before it submits the second. But no update is lost if two writes share a block of the
 * medium, even if each writes only a part of it; and an atomic excludes all other accesses to its
 * word, except reads of other processes: those find the word before or after, as the medium returns
 * it. A read concurrent with a write of the same bytes finds either, block by block.
 *
 * Threads: any number of threads may make any call except media_close() at the same time. Callbacks
 * (done, granted) run in media_poll() of whichever thread comes first, and in media_close(); never
 * in media_submit(), media_kick() or media_take_buffer(). No lock is held while they run, and two
 * of them may run at once on two threads. They may call everything here except media_poll() and
 * media_close().
 *
 * Only media_open() and media_close() block. media_poll() makes no system call if nothing has
 * happened.
 *
 * Processes: a forked child cannot use its parent's media: media_submit() returns -EINVAL there,
 * polling finds nothing, and media_close() frees the child's own memory.
 */
#ifndef STAG_MEDIA_H
#define STAG_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <stag/histogram.h>

#include "base/list.h"

struct media;

/* ---- open.c ---------------------------------------------------------------- */

enum media_flags {
	MEDIA_BUFFERED = 1 << 0, /* no O_DIRECT, even if it is supported */
	MEDIA_VOLATILE = 1 << 1, /* memory: flushes do nothing. tmpfs always is */
	/* other processes use it concurrently, as MEDIA_SHARED: see share.c */
	MEDIA_SHARED = 1 << 2,
};

/* A field that is zero, except fd, has its default, given in the comment. */
struct media_attr {
	int fd;				     /* duplicated, or reopened; remains the caller's */
	unsigned int flags;		     /* enum media_flags */
	uint64_t staging_bytes, cache_bytes; /* 16 MiB, 64 MiB */
	uint32_t depth; /* operations in flight; 256. Fewer if `ulimit -l` is low */
	uint32_t block; /* unit of O_DIRECT: a multiple of the medium's own */
};

/*
 * Opens a medium. Returns -EINVAL, -ENOMEM, -ENOSYS or -EPERM (no io_uring; logged), -EACCES
 * (MEDIA_SHARED is not possible).
 */
int media_open(struct media **out, const struct media_attr *attr);

/*
 * Closes a medium, with the operations in flight: those that have reached the kernel are waited
 * for, the others fail with -ECANCELED; every done is called before this returns. No other thread
 * may be in a call on it, and all buffers must have been given back. m may be NULL.
 */
void media_close(struct media *m);

uint64_t media_size(struct media *m); /* current size in whole blocks: a file may have grown */
uint32_t media_block(const struct media *m); /* I/O unit: 1 without O_DIRECT */
bool media_is_direct(const struct media *m);
bool media_is_ours(const struct media *m); /* false for a medium inherited by a fork */

/* ---- op.c ------------------------------------------------------------------ */

enum media_kind { MEDIA_READ, MEDIA_WRITE, MEDIA_ATOMIC, MEDIA_FLUSH };

/*
 * One operation. The caller fills the first part; the struct, its iovecs, and the memory that they
 * name belong to the medium from media_submit() until done is called. The private part needs no
 * initialisation.
 */
struct media_op {
	uint8_t kind;	   /* enum media_kind */
	bool durable;	   /* write, atomic: is durable when done. Otherwise: is visible */
	uint32_t cache_ms; /* read, write: how long the data is cached in memory; 0: not cached */
	uint64_t offset;   /* atomic: a multiple of 8 */
	uint64_t length;   /* of read and write: the sum of the iovecs */
	const struct iovec *iov;
	uint32_t n_iov;

	/*
	 * Atomic: returns the new value of the word (in the byte order of this machine). It runs
	 * with the medium's lock held, so it must not call anything.
	 */
	uint64_t (*apply)(const struct media_op *op, uint64_t found);
	uint64_t found; /* out: the old value */

	void (*done)(struct media_op *op);
	int result; /* out: 0, or -errno. -ENXIO: beyond the end, or the file was truncated */

	struct media_op_state {
		struct list link;    /* in one queue at a time: backlog, buffers, locks, ready */
		struct list held;    /* in the list of range locks */
		uint64_t start, end; /* range of the medium that the current step touches */
		uint64_t at;	     /* bytes of the operation moved by earlier steps */
		uint64_t step;	     /* bytes of the operation moved by this step */
		uint64_t since;	     /* clock_ns() if it is timed; else 0 */
		uint64_t stamp;	     /* cache.c: detects writes since the step began */
		uint8_t *buffer;     /* staging buffer of this step; NULL: direct */
		uint8_t *io_at;	     /* rest of the current system call */
		uint64_t io_offset;
		uint32_t io_left, io_total;
		uint32_t iov_index;
		uint64_t iov_skip; /* bytes of iov[iov_index] that are done */
		uint8_t phase;	   /* enum op_phase */
		uint8_t mode;	   /* enum lock_mode */
		uint8_t tries;
		bool vector, tracked, placed;
	} state;
};

/*
 * Submits an operation; every error except -EINVAL (bad description, or a medium inherited by a
 * fork) is reported by done. Nothing reaches the kernel before a kick or a poll.
 */
int media_submit(struct media *m, struct media_op *op);

/* Passes submitted operations to the kernel: one system call, or none if there are none. */
void media_kick(struct media *m);

/* ---- poll.c ---------------------------------------------------------------- */

/* Makes progress, and calls back. Returns the number of callbacks. */
unsigned int media_poll(struct media *m);

/*
 * Between these two calls this thread polls the medium (m NULL: none), so no other thread is woken
 * for operations that it submits and completes. media_poller_leave() wakes one if something is
 * left. Enter returns the medium that the thread polled before, which is passed to leave.
 */
struct media *media_poller_enter(struct media *m);
void media_poller_leave(struct media *m, struct media *before);

/*
 * For sleeping: while armed, the descriptor (an eventfd) becomes readable when media_poll() has
 * something to do. It is disarmed at first. Arming detects events that are already there. Both
 * calls make a system call only if they have to write to the descriptor.
 */
int media_event_fd(const struct media *m);
void media_arm(struct media *m);
void media_disarm(struct media *m);
void media_clear_event(struct media *m); /* reads the eventfd; poll afterwards */

/* ---- staging.c ------------------------------------------------------------- */

/*
 * Memory for data in transit between a peer and the medium: aligned for O_DIRECT, registered with
 * the ring, and bounded (staging_bytes). The medium keeps a quarter of it for itself, so that
 * operations from such buffers always complete, whoever holds the other buffers.
 */
#define MEDIA_BUFFER_SIZE 65536

struct media_waiter {
	void (*granted)(struct media_waiter *w, void *buffer); /* w owns the buffer now */
	struct list link;
	void *buffer;
	bool waiting;
};

/*
 * Returns a buffer; or NULL: w waits, and granted is called once, in turn (first come, first
 * served), from media_poll(). A waiter is not overtaken by later callers.
 */
void *media_take_buffer(struct media *m, struct media_waiter *w);
void *media_try_buffer(struct media *m); /* NULL: there is none, or others wait for one */
void media_give_buffer(struct media *m, void *buffer);

/*
 * Returns true if w no longer waits, and granted will not be called; false if it has been, or is
 * being called.
 */
bool media_stop_waiting(struct media *m, struct media_waiter *w);

/* ---- stats.c --------------------------------------------------------------- */

struct media_counters {
	uint64_t reads, writes, flushes, atomics; /* operations that succeeded */
	uint64_t read_bytes, written_bytes;	  /* bytes of these */
	uint64_t copied_bytes;			  /* through staging memory, or from the cache */
	uint64_t submits;			  /* system calls */
	uint64_t errors, pauses;		  /* pauses: waits for a buffer */
	uint64_t cache_hits, cache_misses, cache_bytes;
	struct stag_histogram read_times, write_times, flush_times; /* of a sample of operations */
};

void media_query(struct media *m, struct media_counters *c);

/* ---- edge: the interface to the kernel, which tests replace ----------------- */

enum media_io_kind { MEDIA_IO_READ, MEDIA_IO_WRITE, MEDIA_IO_SYNC, MEDIA_IO_TIMEOUT };

struct media_io {
	uint8_t kind; /* enum media_io_kind */
	bool durable; /* a write that must be durable when it completes (RWF_DSYNC) */
	uint32_t n_iov;
	const struct iovec *iov; /* n_iov of them; if that is 0, buffer is used */
	void *buffer;
	uint32_t length; /* total. Timeout: microseconds */
	uint64_t offset;
	uint64_t cookie;
};

struct media_event {
	uint64_t cookie;
	int result; /* bytes, or -errno */
};

struct media_edge {
	/*
	 * Called with the medium's lock held. queue never fails: operations in flight are limited
	 * to its size.
	 */
	void (*queue)(struct media_edge *e, const struct media_io *io);
	unsigned int (*reap)(struct media_edge *e, struct media_event *events, unsigned int n);
	/* Called without it. wait: sleeps until there is an event. */
	bool (*ready)(struct media_edge *e);  /* reap would find an event; no system call */
	bool (*queued)(struct media_edge *e); /* submit has something to do */
	int (*submit)(struct media_edge *e, bool wait); /* 0, or -errno if not possible now */
};

struct media_edge *media_edge(struct media *m);
void media_set_edge(struct media *m, struct media_edge *e); /* before its first operation */

#endif
