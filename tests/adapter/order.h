/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * order.h - random programs on storage, the disk that they run on, and the judge of what they saw.
 *
 * A program is a few queue pairs, each with a row of steps on a few words that all share. No two writes write the same
 * value, so that what a read found says whose write it saw.
 */
#ifndef STAG_TEST_ORDER_H
#define STAG_TEST_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "media/media.h"

#define WORDS	   16 /* in two rows, of which the second lies across the edge of a block */
#define ROW	   8
#define MOST_QPS   8
#define MOST_STEPS 10
#define MOST_SPAN  4 /* words of a step */

/* Returns the offset of a word in the region. */
static inline uint64_t word_offset(unsigned int word)
{
	return word < ROW ? word * 8 : 4096 - 32 + (word - ROW) * 8;
}

enum step_kind { STEP_READ, STEP_WRITE, STEP_ADD, STEP_SWAP, STEP_BARRIER };

struct step {
	uint8_t kind;	/* enum step_kind */
	uint8_t level;	/* enum stagdv_level, as it holds for this step */
	bool own_level; /* said in its flags */
	bool fence;
	uint8_t word, span;
	uint64_t value[MOST_SPAN]; /* written; of a swap the new one */
	uint64_t compare;
	uint64_t found[MOST_SPAN];
	unsigned long posted, done; /* when, of all that happened; 0: not yet */
};

struct queue {
	bool remote;	/* a peer's, over a connection */
	uint32_t relax; /* what is promised: enum stagdv_relax */
	unsigned int n_steps;
	struct step step[MOST_STEPS];
};

struct program {
	unsigned int n_queues;
	struct queue queue[MOST_QPS];
	uint64_t initial[WORDS], final[WORDS];
};

/* judge.c: NULL, or what was promised otherwise */
const char *judge(const struct program *p);

/* ---- sim_disk.c: a disk in memory that takes its time, and does nothing in turn ---- */

#define MOST_PENDING 1024

struct sim_io {
	struct media_io io;
	unsigned long at; /* when it came */
};

struct sim_write { /* of one word, in the cache of the disk */
	unsigned int word;
	uint64_t value;
	unsigned long at;
};

struct sim_disk {
	struct media_edge edge;
	uint8_t *image;
	uint64_t size;
	uint64_t seed;
	unsigned int lazy; /* one of so many that wait is done at a look */
	atomic_uint n_pending;
	struct sim_io pending[MOST_PENDING];
	unsigned long now;
	unsigned int n_writes; /* since the last flush, of words above */
	struct sim_write *writes;
	unsigned int most_writes;
	bool (*lasting)(void *arg, uint64_t value); /* NULL, or told of each that outlives power */
	void *arg;
	bool forgets;	       /* for a test of the tests: a flush does nothing */
	_Atomic uint64_t held; /* nothing is done below this offset */
	atomic_int error;      /* what all that is done ends with */
};

void sim_disk_init(struct sim_disk *d, struct media *m, uint64_t size); /* comes between */
void sim_disk_free(struct sim_disk *d);

#endif
