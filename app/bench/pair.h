/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - two pinned processes that measure one thing together.
 *
 * Every benchmark program here is a pair: the client, which the runner started and which times and
 * reports, and the server, the same program executed again, with a socket between the two. A case
 * is a function for each of them. It runs twice, once to warm up and once to measure; the CPU time
 * of both sides is taken around the second phase.
 */
#ifndef STAG_APP_BENCH_PAIR_H
#define STAG_APP_BENCH_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* Options of the command line; a program ignores those that it does not need. */
struct pair_options {
	size_t size;	     /* -s bytes a message */
	size_t iters;	     /* -n round trips of a latency case; queue pairs of "many" */
	double secs;	     /* -t length of a bandwidth or rate case */
	size_t window;	     /* -w operations in flight; 0 = by size */
	size_t list;	     /* -l work requests a post */
	size_t idle;	     /* -i further connections that carry nothing */
	bool sleep;	     /* -e wait in the kernel instead of polling */
	bool passive;	     /* -p the server's program does nothing at all */
	bool crc;	     /* -c CRC32C at both ends (raw TCP) */
	bool no_inline;	     /* -g small messages gathered from memory, not inline */
	const char *device;  /* -d connect queue pairs by number, without rdma_cm, on this device */
	const char *address; /* -a where to listen and connect */
	const char *
		relay; /* -r LISTEN:CONNECT ports of the two sides, with a relay between (raw TCP) */
	const char *file; /* -f file whose bytes are sent (raw TCP) */
	bool json;	  /* -j print JSON */
};

enum pair_unit {
	PAIR_BANDWIDTH,	 /* ops of size bytes: GB/s, CPU a GiB */
	PAIR_HALF_TRIP,	 /* samples are round trips, two messages each: us */
	PAIR_ROUND_TRIP, /* samples are operations: us */
	PAIR_RATE,	 /* ops: millions a second, CPU a million */
	PAIR_PER_SECOND, /* ops: a second, CPU a million */
};

/* In a one-sided case the server's program may do nothing: -p. */
enum pair_sides { PAIR_TWO_SIDED, PAIR_ONE_SIDED };

/* One pass over a case; the drive function fills in ops and ns, or samples. */
struct pair_phase {
	uint64_t number; /* 1 warms up, 2 is measured */
	uint64_t length; /* ns to run for */
	size_t iters;	 /* or round trips to make */
	uint64_t ops;
	uint64_t ns;
	uint32_t *samples; /* ns each, room for iters */
	uint64_t memory;   /* bytes that this side has in addition, at most; 0: not measured */
};

struct pair_case {
	const char *name;
	enum pair_unit unit;
	void (*prepare)(void); /* both sides, once, before the first phase; may be NULL */
	void (*drive)(struct pair_phase *);
	void (*serve)(struct pair_phase *);
	enum pair_sides sides;
};

extern struct pair_options options;
extern bool pair_is_server;

__attribute__((noreturn, format(printf, 1, 2))) void pair_die(const char *fmt, ...);

/*
 * Parse the command line, find its case in the table (ended by a NULL name),
 * start the server. Returns in both processes.
 */
const struct pair_case *pair_start(int argc, char **argv, const struct pair_case *cases);

/* Run the case's two phases and print the result. Wait with progress, if any. */
void pair_run(const struct pair_case *c, void (*progress)(void));

/* The socket between the two: whole messages, blocking. */
void pair_tell(const void *buf, size_t len);
void pair_hear(void *buf, size_t len);

/* Waits until both sides have called it: spins in progress(), or sleeps if that is NULL. */
void pair_meet(void (*progress)(void));

/* Page-aligned, touched memory. */
void *pair_memory(size_t len);

uint64_t pair_resident(void); /* bytes of memory that the process has */

/* Operations in flight: as given, or 16 from 1 MiB up and 64 below. */
size_t pair_window(void);

static inline void pair_sample(struct pair_phase *ph, size_t i, uint64_t *last)
{
	uint64_t now = clock_ns();

	ph->samples[i] = (uint32_t)(now - *last);
	*last = now;
}

#endif
