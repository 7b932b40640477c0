/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * media.h - bytes of a file, a block device or shared memory, asynchronously.
 *
 * Knows nothing of verbs, queue pairs, keys or partitions. Whoever uses it describes an operation in
 * memory of its own (struct media_op), hands it over (media_submit()), lets a batch go
 * (media_kick()), and hears of its end in a call of its own to media_poll(). Functions return 0 or a
 * count, or -errno.
 *
 * Order. There is none among operations under way: who wants one waits for the first before it submits the second.
 * But no update is lost where two writes share a block of the medium, whatever they leave of it to the
 * other; and an atomic has its word to itself, but for reads of other processes: those find it before or after, as the medium
 * gives it to them. A read beside a write of the same bytes finds either, by block.
 *
 * Threads. Any number of threads may call anything but media_close() at the same time. Callbacks (done, granted)
 * run in media_poll() of whichever thread comes first, and in media_close(); never in media_submit(),
 * media_kick() or media_take_buffer(). No lock is held while they run, and two of them may run at once on two threads.
 * They may call everything here but media_poll() and media_close().
 *
 * Nothing here blocks but media_open() and media_close(). media_poll() makes no system call where nothing has happened.
 *
 * Processes. A forked child has none of its parent's media: in it media_submit() gives -EINVAL,
 * polling finds nothing, and media_close() frees what is its own.
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
	MEDIA_BUFFERED = 1 << 0, /* no O_DIRECT, although it works there */
	MEDIA_VOLATILE = 1 << 1, /* memory: flushes have nothing to do. tmpfs always is */
	MEDIA_SHARED = 1 << 2,	 /* other processes use it too, as MEDIA_SHARED: see share.c */
};

/* Zero in any field but fd: the default. */
struct media_attr {
	int fd;				     /* duplicated, or opened again; stays the caller's */
	unsigned int flags;		     /* enum media_flags */
	uint64_t staging_bytes, cache_bytes; /* 16 MiB, 64 MiB */
	uint32_t depth; /* operations under way at once; 256. Fewer where `ulimit -l` is low */
	uint32_t block; /* unit of O_DIRECT: a multiple of the medium's own */
};

/* -EINVAL, -ENOMEM, -ENOSYS or -EPERM (no io_uring; logged), -EACCES (MEDIA_SHARED is not possible). */
int media_open(struct media **out, const struct media_attr *attr);

/*
 * Ends it, with whatever is under way: what has reached the kernel is waited for, the rest gets
 * -ECANCELED; every done is called before this returns. Nobody else is in a call on it, and all buffers were
 * given back. Takes NULL.
 */
void media_close(struct media *m);

uint64_t media_size(struct media *m); /* now: a file may have grown. Whole blocks of it */
uint32_t media_block(
	const struct media *m); /* what is read and written at once: 1 where there is no O_DIRECT */
bool media_is_direct(const struct media *m);
bool media_is_ours(const struct media *m); /* not of a process that this one was forked from */

/* ---- op.c ------------------------------------------------------------------ */

enum media_kind { MEDIA_READ, MEDIA_WRITE, MEDIA_ATOMIC, MEDIA_FLUSH };

/*
 * One operation. The caller fills the first part; it and the iovecs, and the memory they name, are the medium's
 * from media_submit() until done is called. The private part needs no initialisation.
 */
struct media_op {
	uint8_t kind; /* enum media_kind */
	bool durable; /* write, atomic: has outlived power when it is done. Otherwise: is visible */
	uint32_t cache_ms; /* read, write: what passes is kept in memory for so long; 0: is not */
	uint64_t offset;   /* atomic: a multiple of 8 */
	uint64_t length;   /* of read and write: the sum of the iovecs */
	const struct iovec *iov;
	uint32_t n_iov;

	/*
	 * Atomic: what becomes of a word (in the byte order of this machine). Runs with the medium's lock
	 * held: it calls nothing.
	 */
	uint64_t (*apply)(const struct media_op *op, uint64_t found);
	uint64_t found; /* out: what was there */

	void (*done)(struct media_op *op);
	int result; /* out: 0, or -errno. -ENXIO: beyond the end, or the file was truncated */

	struct media_op_state {
		struct list link; /* the one queue that it is in: backlog, buffers, locks, ready */
		struct list held; /* its range lock */
		uint64_t start, end; /* of the step under way: the bytes of the medium it touches */
		uint64_t at;	     /* bytes of the operation that the steps before it moved */
		uint64_t step;	     /* bytes of the operation that it moves */
		uint64_t since;	     /* clock_ns(), where its time is taken; else 0 */
		uint64_t stamp;	     /* cache.c: whether somebody wrote there since it began */
		uint8_t *buffer; /* staging memory of this step; NULL: straight from the caller's */
		uint8_t *io_at;	 /* the primitive under way: what is left of it */
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
 * Takes it over; every error but -EINVAL (bad description, or a forked child's) comes by done. Nothing reaches the
 * kernel before somebody kicks or polls.
 */
int media_submit(struct media *m, struct media_op *op);

/* Lets go what was submitted: one system call, or none if there is nothing. */
void media_kick(struct media *m);

/* ---- poll.c ---------------------------------------------------------------- */

/* Brings forward what it can, and calls back. The number of callbacks. */
unsigned int media_poll(struct media *m);

/*
 * Between the two this thread looks after the medium (NULL: none): nobody is woken for what it submits and finds there.
 * The second one wakes, if something is left. Gives, and takes, whom it looked after before.
 */
struct media *media_mind(struct media *m);
void media_unmind(struct media *m, struct media *before);

/*
 * For who sleeps: while armed, the descriptor (an eventfd) becomes readable when media_poll() has something to do. It is
 * opened disarmed. Arming notices what is there already. Both make no system call but where they have
 * to write to it.
 */
int media_event_fd(const struct media *m);
void media_arm(struct media *m);
void media_disarm(struct media *m);
void media_clear_event(struct media *m); /* reads the eventfd; then poll */

/* ---- staging.c ------------------------------------------------------------- */

/*
 * Memory for what is on its way between a peer and the medium: aligned for O_DIRECT, known to the ring, and bounded
 * (staging_bytes). The medium keeps a quarter of it for itself, so that operations from such buffers always come
 * to an end, whoever holds the others.
 */
#define MEDIA_BUFFER_SIZE 65536

struct media_waiter {
	void (*granted)(struct media_waiter *w, void *buffer); /* the buffer is w's now */
	struct list link;
	void *buffer;
	bool waiting;
};

/*
 * A buffer; or NULL: w waits, and granted is called once, in turn (first come, first served), from media_poll().
 * Who gets none is not overtaken by others.
 */
void *media_take_buffer(struct media *m, struct media_waiter *w);
void *media_try_buffer(struct media *m); /* NULL: there is none, or somebody waits for it */
void media_give_buffer(struct media *m, void *buffer);

/* true: w no longer waits, and granted will not be called. false: it has been, or is being called. */
bool media_stop_waiting(struct media *m, struct media_waiter *w);

/* ---- stats.c --------------------------------------------------------------- */

struct media_counters {
	uint64_t reads, writes, flushes, atomics; /* operations that ended well */
	uint64_t read_bytes, written_bytes;	  /* of these */
	uint64_t copied_bytes;			  /* through staging memory, or from the cache */
	uint64_t submits;			  /* system calls */
	uint64_t errors, pauses;		  /* pauses: somebody had to wait for a buffer */
	uint64_t cache_hits, cache_misses, cache_bytes;
	struct stag_histogram read_times, write_times, flush_times; /* of samples */
};

void media_query(struct media *m, struct media_counters *c);

/* ---- edge: what the medium asks of the kernel, for tests to come between ---- */

enum media_io_kind { MEDIA_IO_READ, MEDIA_IO_WRITE, MEDIA_IO_SYNC, MEDIA_IO_TIMEOUT };

struct media_io {
	uint8_t kind; /* enum media_io_kind */
	bool durable; /* a write that is to be on the medium when it ends (RWF_DSYNC) */
	uint32_t n_iov;
	const struct iovec *iov; /* n_iov of them; or, where that is 0: */
	void *buffer;
	uint32_t length; /* in all. Timeout: microseconds */
	uint64_t offset;
	uint64_t cookie;
};

struct media_event {
	uint64_t cookie;
	int result; /* bytes, or -errno */
};

struct media_edge {
	/* These two with the medium's lock held. queue never fails: no more are under way than fit. */
	void (*queue)(struct media_edge *e, const struct media_io *io);
	unsigned int (*reap)(struct media_edge *e, struct media_event *events, unsigned int n);
	/* These without. wait: sleeps until an event is there. */
	bool (*ready)(struct media_edge *e);  /* reap would find something; no system call */
	bool (*queued)(struct media_edge *e); /* submit has something to do */
	int (*submit)(struct media_edge *e, bool wait); /* 0 or -errno: not now */
};

struct media_edge *media_edge(struct media *m);
void media_set_edge(struct media *m, struct media_edge *e); /* before its first operation */

#endif
