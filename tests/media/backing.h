/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * backing.h - files under media, operations on them, and an edge that goes wrong when told to.
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
	ON_DISK,  /* O_DIRECT where the build directory's file system has it */
	ON_PAGES, /* the same through the page cache */
	ON_TMPFS,
	IN_MEMORY, /* a memfd */
	ON_LOOP,   /* a block device; only for root, and not everywhere */
	NUM_BACKINGS,
};

struct medium {
	struct media *m;
	int fd; /* the test's own; through the page cache */
	char loop[32];
};

const char *backing_name(enum backing b);

/* A file of zeroes without a name. -1: there is no such thing here. */
int make_file(enum backing b, uint64_t size, char *loop);
bool open_medium(struct medium *t, enum backing b, uint64_t size, const struct media_attr *attr);
void close_medium(struct medium *t);

/* What is on the medium, whoever's caches are between. */
void peek(struct medium *t, void *to, size_t n, uint64_t offset);
void poke(struct medium *t, const void *from, size_t n, uint64_t offset);

/* ---- operations ---- */

struct deed {
	struct media_op op;
	struct iovec iov;
	atomic_bool done;
	unsigned long turn; /* when it was done, of all */
};

struct deed read_of(void *to, uint64_t n, uint64_t offset);
struct deed write_of(const void *from, uint64_t n, uint64_t offset);
struct deed add_of(uint64_t offset); /* adds 1 */
struct deed flush_of(void);

void begin(struct medium *t, struct deed *d); /* the iovec of a deed that moved has moved with it */
int end(struct medium *t, struct deed *d);    /* polls until it is done; its result */
int perform(struct medium *t, struct deed d); /* both; the result */
void expect_on_medium(struct medium *t, const void *bytes, uint64_t n, uint64_t offset);

struct media_counters counters(struct medium *t);

/* ---- an edge between the medium and its ring ---- */

#define MOST_EVENTS 4096

struct faulty {
	struct media_edge edge, *real;
	/* What becomes of a primitive: 0: it goes on, as changed; else that is its result. */
	int (*verdict)(struct faulty *f, struct media_io *io);
	bool shuffles;	      /* events come late, and in any order */
	atomic_bool holds;    /* events do not come at all, until it is unset */
	long at, value;	      /* for verdicts */
	atomic_ulong seen[4]; /* by kind */
	atomic_ulong durable;
	atomic_uint n_events;
	struct media_event events[MOST_EVENTS];
};

/* Comes between; before the first operation. */
void come_between(struct medium *t, struct faulty *f,
		  int (*verdict)(struct faulty *f, struct media_io *io));
int let_pass(struct faulty *f, struct media_io *io);

#endif
