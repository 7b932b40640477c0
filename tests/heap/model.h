/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - the parts of the heap's model test: what its processes share besides the heap, and what
 * each of them has.
 */
#ifndef STAG_TEST_MODEL_H
#define STAG_TEST_MODEL_H

#include "object.h"
#include "side.h"

#include <pthread.h>

#include "dice.h"
#include "heap/heap.h"

#define WORKERS	  4
#define DEVICES	  2
#define MIB	  (1ul << 20)
#define AREA	  (128 * MIB) /* so little that it is full now and then */
#define OBJECTS	  4096	      /* of one process */
#define PARCELS	  32	      /* on their way from one process to another */
#define RETAIN_MS 20
#define MODEL_FD  1000

/* ---- what the processes share, besides the heap ---- */

/* From one thread to another, in order. */
struct ring {
	_Atomic uint32_t put __attribute__((aligned(64)));
	_Atomic uint32_t get __attribute__((aligned(64)));
	struct object parcel[PARCELS];
};

enum moment { CONNECTED, QUIET, FREED, TRIMMED, LOOKED_AT, MOMENTS };

struct tally {
	uint64_t steps, allocs, callocs, aligneds, reallocs, moved, frees, keys, given, got, shared,
		trims, full, lent, borrowed, bytes;
	uint64_t taken, released, made, stale;
};

struct town {
	_Atomic uint32_t arrived[MOMENTS];
	_Atomic uint32_t port[WORKERS];
	struct tally tally[WORKERS];
	struct ring ring[WORKERS][WORKERS]; /* from, to; to oneself: to the other thread */
	_Atomic uint64_t words[];	    /* struct taken */
};

struct town *town_map(int fd); /* NULL */
void town_unmap(struct town *town);

/* ---- a worker ---- */

/* Sent to a borrower, and back with the serial of what it wrote. */
struct loan {
	struct object object;
	uint32_t rkey;
};

struct worker {
	unsigned int number;
	struct town *town;
	struct taken taken;
	struct stag_heap *heap;
	struct ibv_context **contexts;
	struct ibv_pd *pd[DEVICES];
	unsigned int device[DEVICES];
	struct object object[OBJECTS];
	uint64_t n, bytes;
	uint64_t wanted; /* so many it shall have, for now */
	uint64_t serial;
	struct tally *tally;
	pthread_t sweeper; /* frees what it gets */
	atomic_bool over;
	/* Over the adapter: somebody borrows from us, we borrow from somebody. */
	struct side lender, borrower;
	struct region *offer, *back, *request, *answer;
	uint64_t offered, backed, requested;
	bool lending;
	struct object lent;
};

/* Ends the process, with a word on the object. */
#define wrong(w, o, fmt, ...)                                                                      \
	fail_msg("process %u: object %llu, %llu bytes at %p: " fmt, (w)->number,                   \
		 (unsigned long long)(o)->serial, (unsigned long long)(o)->size,                   \
		 (void *)(o)->at __VA_OPT__(, ) __VA_ARGS__)

/* ---- model_worker.c ---- */

/* The process that argv is of: its life. */
int work(char **argv);

uint64_t next_serial(struct worker *w);
void enlist(struct worker *w, const struct object *o);
struct object delist(struct worker *w, uint64_t i);
void expect_contents(struct worker *w, const struct object *o);
struct stag_heap_keys keys_of(struct worker *w, unsigned int device, const struct object *o);

/* ---- model_loan.c: objects that are read and written over the adapter ---- */

/* Each process lends to the one before it. To be called by all at the same time. */
void loan_open(struct worker *w);
void loan_close(struct worker *w);

void loan_offer(struct worker *w);     /* if nothing is lent */
void loan_take_back(struct worker *w); /* if it is there */
void loan_borrow(struct worker *w);    /* if something was offered */

#endif
