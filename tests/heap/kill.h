/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kill.h - declarations shared by the two parts of the kill test (worker processes and the killer),
 * and the memory that they share outside the heap, so that no death can damage it.
 */
#ifndef STAG_TEST_KILL_H
#define STAG_TEST_KILL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "heap/heap.h"

#define WORKERS	   4u
#define BOXES	   32u
#define KILL_FD	   1000
#define BLOCK_SIZE (256u << 10)
#define MAX_BLOCKS 200u

enum call {
	NO_CALL,
	ATTACH,
	ADD_DEVICE,
	ALLOC,
	CALLOC,
	ALIGNED,
	REALLOC,
	FREE,
	FREE_OTHERS,
	SHARE,
	UNSHARE,
	KEYS,
	TRIM,
	REAP,
	CHECK,
	DETACH,
	NUM_CALLS
};

/* State of one worker slot; a restarted worker inherits it. */
struct desk {
	_Atomic uint64_t calls;
	/* ns of the longest call of each kind, without waiting for a processor */
	_Atomic uint64_t longest[NUM_CALLS];
	_Atomic uint64_t stopped; /* ns that the worker was stopped by the killer */
	_Atomic uint32_t call;	  /* the call that it is in now */
	_Atomic uint32_t away;	  /* the worker has detached until the pause ends */
} __attribute__((aligned(64)));

struct office {
	struct desk desk[WORKERS];
	_Atomic uint32_t pause;
	_Atomic uint64_t serials;
	_Atomic uintptr_t box[BOXES]; /* 0 or a shared letter; the process that takes it owns it */
};

/* A letter: an allocation of at least LETTER_MIN bytes whose contents identify it. */
#define LETTER_MIN 32u

void letter_write(void *at, uint64_t size, uint64_t serial);
bool letter_is_whole(const void *at); /* prints the first mismatch */

/* Runs a worker until it is killed. */
int kill_worker_main(const char *heap, unsigned int number);

#endif
