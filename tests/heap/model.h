/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - the parts of the heap's model test: the memory that its processes share outside the
 * heap, and the state of each process.
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
#define AREA	  (128 * MIB) /* so small that it is full from time to time */
#define OBJECTS	  4096	      /* per process */
#define PARCELS	  32	      /* in flight between two processes */
#define RETAIN_MS 20
#define MODEL_FD  1000

/* ---- shared by the processes, outside the heap ---- */

/* A queue from one thread to another, in order. */
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
	/* [from][to]; [n][n]: to the other thread of process n */
	struct ring ring[WORKERS][WORKERS];
	_Atomic uint64_t words[]; /* struct taken */
};

struct town *town_map(int fd); /* returns NULL if mmap() fails */
void town_unmap(struct town *town);

/* ---- a worker ---- */

/* Message to a borrower, returned with the serial number of the new contents. */
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
	uint64_t wanted; /* number of objects to keep for now */
	uint64_t serial;
	struct tally *tally;
	pthread_t sweeper; /* thread that frees the objects it receives */
	atomic_bool over;
	/*
	 * Connections over the adapter: the neighbour that borrows from us, the neighbour we borrow
	 * from.
	 */
	struct side lender, borrower;
	struct region *offer, *back, *request, *answer;
	uint64_t offered, backed, requested;
	bool lending;
	struct object lent;
};

/* Prints the object and the failure, and ends the process. */
#define fail_object(w, o, fmt, ...)                                                                \
	fail_msg("process %u: object %llu, %llu bytes at %p: " fmt, (w)->number,                   \
		 (unsigned long long)(o)->serial, (unsigned long long)(o)->size,                   \
		 (void *)(o)->at __VA_OPT__(, ) __VA_ARGS__)

/* ---- model_worker.c ---- */

/* Runs the worker process that argv describes. */
int model_worker_main(char **argv);

uint64_t next_serial(struct worker *w);
void enlist(struct worker *w, const struct object *o);
struct object delist(struct worker *w, uint64_t i);
void expect_contents(struct worker *w, const struct object *o);
struct stag_heap_keys keys_of(struct worker *w, unsigned int device, const struct object *o);

/* ---- model_loan.c: objects that are read and written over the adapter ---- */

/*
 * Connects each process to its neighbours: it lends to the one before it. All processes must call
 * this at the same time.
 */
void loan_open(struct worker *w);
void loan_close(struct worker *w);

void loan_offer(struct worker *w);     /* if nothing is lent now */
void loan_take_back(struct worker *w); /* if the loan has come back */
void loan_borrow(struct worker *w);    /* if a loan was offered */

#endif
