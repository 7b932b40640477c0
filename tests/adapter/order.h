/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * order.h - random programs on storage, the simulated disk that they run on, and the checker of the
 * values they saw.
 *
 * A program is a few queue pairs, each with a row of steps on a few words that all share. No two
 * writes write the same value, so the value that a read found identifies the write it saw.
 */
#ifndef STAG_TEST_ORDER_H
#define STAG_TEST_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "media/media.h"

#define WORDS	   16 /* in two rows; the second row straddles a block boundary */
#define ROW	   8
#define MOST_QPS   8
#define MOST_STEPS 10
#define MOST_SPAN  4 /* most words of one step */

/* Returns the offset of a word in the region. */
static inline uint64_t word_offset(unsigned int word)
{
	return word < ROW ? word * 8 : 4096 - 32 + (word - ROW) * 8;
}

enum step_kind { STEP_READ, STEP_WRITE, STEP_ADD, STEP_SWAP, STEP_BARRIER };

struct step {
	uint8_t kind;	/* enum step_kind */
	uint8_t level;	/* enum stagdv_level that holds for this step */
	bool own_level; /* the level is given in the request's flags */
	bool fence;
	uint8_t word, span;
	uint64_t value[MOST_SPAN]; /* values written; for a swap the new value */
	uint64_t compare;
	uint64_t found[MOST_SPAN];
	unsigned long posted, done; /* logical times of post and completion; 0: not yet */
};

struct queue {
	bool remote;	/* the queue pair of a peer, over a connection */
	uint32_t relax; /* the order given up: bits of enum stagdv_relax */
	unsigned int n_steps;
	struct step step[MOST_STEPS];
};

struct program {
	unsigned int n_queues;
	struct queue queue[MOST_QPS];
	uint64_t initial[WORDS], final[WORDS];
};

/* checker.c: returns NULL, or a description of the violated promise. */
const char *check_history(const struct program *p);

/* ---- sim_disk.c: a disk in memory that delays and reorders its operations ---- */

#define MOST_PENDING 1024

struct sim_io {
	struct media_io io;
	unsigned long at; /* arrival time */
};

struct sim_write { /* a write of one word, in the disk's cache */
	unsigned int word;
	uint64_t value;
	unsigned long at;
};

struct sim_disk {
	struct media_edge edge;
	uint8_t *image;
	uint64_t size;
	uint64_t seed;
	unsigned int lazy; /* each poll completes about one of this many pending operations */
	atomic_uint n_pending;
	struct sim_io pending[MOST_PENDING];
	unsigned long now;
	unsigned int n_writes; /* cached word writes since the last flush */
	struct sim_write *writes;
	unsigned int most_writes;
	bool (*lasting)(void *arg, uint64_t value); /* a value survives power loss */
	void *arg;
	bool forgets;	       /* a flush does nothing (an injected fault) */
	_Atomic uint64_t held; /* operations below this offset are held back */
	atomic_int error;      /* result of every operation that completes */
};

void sim_disk_init(struct sim_disk *d, struct media *m, uint64_t size); /* below medium m */
void sim_disk_free(struct sim_disk *d);

#endif
