/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_view.h - a heap summed up by process, and as JSON, for stag, stagd and its API.
 */
#ifndef STAG_APP_HEAP_VIEW_H
#define STAG_APP_HEAP_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stag/heap.h"

/* A process of a heap, or the memory without an owner. */
struct heap_user {
	struct stag_heap_process process; /* pid 0: no owner */
	char program[32];		  /* "": unknown */
	uint64_t blocks, block_bytes, allocations, allocated_bytes, shared;
	double taken_rate, released_rate, made_rate; /* per second; set by heap_top.c */
};

struct heap_view {
	char name[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX]; /* of another user: OWNER/NAME */
	char *error; /* why the heap cannot be read; all that follows is zero then */
	struct stag_heap_stats stats;
	struct heap_user users[STAG_HEAP_MAX_PROCS];
	unsigned int num_users;
	struct heap_user nobody;	/* free blocks, and memory that dead processes had shared */
	struct stag_heap_block *blocks; /* with VIEW_BLOCKS */
	size_t num_blocks;
	int faults; /* -1: not checked */
	char *fault_text;
};

enum { VIEW_BLOCKS = 1 << 0, VIEW_CHECK = 1 << 1 };

/* heap_view.c: returns -errno, and sets view->error. Clear the view in either case. */
int heap_view_take(struct heap_view *view, const char *name, unsigned int flags);
void heap_view_clear(struct heap_view *view);

/*
 * Returns the heaps of this user, and for root those of other users, sorted by name. Another user
 * could make thousands: of these, only some are inspected, and the others are counted in *hidden.
 * The caller clears each and frees the array.
 */
struct heap_view *heap_view_all(size_t *n, size_t *hidden);

/* Attaches a heap to change it, also if other users may write it: who names it wants that. */
struct stag_heap *heap_view_attach(const char *name);

/* heap_json.c */
json_t *heap_json(const struct heap_view *view);

#endif
