/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * load.h - the load that a benchmark of storage puts on a partition or a unit.
 */
#ifndef STAG_APP_LOAD_H
#define STAG_APP_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_MAX_SIZE  (64ull << 20)
#define LOAD_MAX_DEPTH 4096

#define LOAD_DEPTH   32 /* the default */
#define LOAD_SECONDS 1	/* the default */

/* The options of the command line. */
struct load_options {
	const char *op;	  /* NULL: read */
	uint64_t writes;  /* percent of a mix; 0: not given */
	const char *size; /* of an operation; NULL: the default */
	uint32_t depth;
	double secs;
	const char *what; /* what is overwritten: "unit" */
	bool force;
};

struct load {
	const char *op;
	uint64_t writes; /* percent */
	uint64_t size;
	uint32_t depth;
	double secs;
};

uint64_t load_dice(uint64_t *state); /* returns a random number; the state must not be 0 */
bool load_writes(uint64_t percent,
		 uint64_t *dice); /* decides whether the next operation is a write */
uint64_t load_cpu_ns(void);	  /* processor time of this process */

/* Checks the options against each other. Returns false after it has complained. */
bool load_check(const struct load_options *o, struct load *l);

#endif
