/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * load.h - what a benchmark of storage keeps under way, as it was asked for.
 */
#ifndef STAG_APP_LOAD_H
#define STAG_APP_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_MAX_SIZE  (64ull << 20)
#define LOAD_MAX_DEPTH 4096

/* As on the command line; NULL: the default. */
struct load_words {
	const char *op, *writes, *size, *depth, *secs;
	const char *what; /* that is overwritten */
	bool force;
};

struct load {
	const char *op;
	uint64_t writes; /* percent */
	uint64_t size;
	uint32_t depth;
	double secs;
};

uint64_t load_dice(uint64_t *state);		    /* anything, of a state that is not 0 */
bool load_writes(uint64_t percent, uint64_t *dice); /* is the next one a write? */
uint64_t load_cpu_ns(void);			    /* of this process */

bool load_parse(const struct load_words *w, struct load *l); /* false, having complained */

#endif
