/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kill.h - the two parts of the kill test: processes that work, and one that kills them. What they
 * share besides the heap, which nobody's death can hurt.
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

/* Of one worker, whoever it is just now. */
struct desk {
	_Atomic uint64_t calls;
	_Atomic uint64_t
		longest[NUM_CALLS]; /* ns that one call took, but for waiting for a processor */
	_Atomic uint64_t stopped;   /* ns that it was stopped from outside */
	_Atomic uint32_t call;	    /* it is in now */
	_Atomic uint32_t away;	    /* has left the heap, until the pause is over */
} __attribute__((aligned(64)));

struct office {
	struct desk desk[WORKERS];
	_Atomic uint32_t pause;
	_Atomic uint64_t serials;
	_Atomic uintptr_t box[BOXES]; /* 0, or a shared letter: whoever takes it has it */
};

/* A piece of memory that tells what it is; of that size at least. */
#define LETTER_MIN 32u

void letter_write(void *at, uint64_t size, uint64_t serial);
bool letter_is_whole(const void *at); /* says what is wrong */

/* A worker's life; it ends when it is killed. */
int work(const char *heap, unsigned int number);

#endif
