/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * backing.h - files for media, operations on them, and an edge that injects faults.
 */
#ifndef STAG_TEST_MEDIA_BACKING_H
#define STAG_TEST_MEDIA_BACKING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "await.h"
#include "media/media.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

/* ---- files and media ---- */

enum backing {
	ON_DISK,  /* O_DIRECT if the build directory's file system has it */
	ON_PAGES, /* the same file system, through the page cache */
	ON_TMPFS,
	IN_MEMORY, /* a memfd */
	ON_LOOP,   /* a loop device; needs root, and not available everywhere */
	NUM_BACKINGS,
};

struct medium {
	struct media *m;
	int fd; /* the test's own descriptor; through the page cache */
	char loop[32];
};

const char *backing_name(enum backing b);

/* Makes an unnamed file of zeroes. Returns -1 if this machine has no such backing. */
int make_file(enum backing b, uint64_t size, char *loop);
bool open_medium(struct medium *t, enum backing b, uint64_t size, const struct media_attr *attr);
void close_medium(struct medium *t);

/* Read and write the medium itself, bypassing the media's caches. */
void peek(struct medium *t, void *to, size_t n, uint64_t offset);
void poke(struct medium *t, const void *from, size_t n, uint64_t offset);

/* ---- operations ---- */

struct deed {
	struct media_op op;
	struct iovec iov;
	atomic_bool done;
	unsigned long turn; /* order of completion among all operations */
};

struct deed read_of(void *to, uint64_t n, uint64_t offset);
struct deed write_of(const void *from, uint64_t n, uint64_t offset);
struct deed add_of(uint64_t offset); /* adds 1 */
struct deed flush_of(void);

/* Fixes the iovec pointer of a deed that was copied. */
void begin(struct medium *t, struct deed *d);
int end(struct medium *t, struct deed *d);    /* polls until it is done; returns its result */
int perform(struct medium *t, struct deed d); /* both; returns the result */
void expect_on_medium(struct medium *t, const void *bytes, uint64_t n, uint64_t offset);

struct media_counters counters(struct medium *t);

/* ---- fault injection between a medium and its ring ---- */

#define MOST_EVENTS 4096

struct faulty {
	struct media_edge edge, *real;
	/*
	 * Decides about a primitive: 0: pass it on, perhaps changed; otherwise that is its result.
	 */
	int (*verdict)(struct faulty *f, struct media_io *io);
	bool shuffles;	      /* events come late, and in random order */
	atomic_bool holds;    /* events are held back until it is unset */
	long at, value;	      /* for verdicts */
	atomic_ulong seen[4]; /* count by kind */
	atomic_ulong durable;
	atomic_uint n_events;
	struct media_event events[MOST_EVENTS];
};

/* Inserts the edge; call it before the first operation. */
void inject_between(struct medium *t, struct faulty *f,
		    int (*verdict)(struct faulty *f, struct media_io *io));
int let_pass(struct faulty *f, struct media_io *io);

#endif
