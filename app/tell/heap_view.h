/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_view.h - a look at a heap, summed up, and as JSON. Of stag, of stagd and its API.
 */
#ifndef STAG_APP_HEAP_VIEW_H
#define STAG_APP_HEAP_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stag/heap.h"

/* One process of a heap, or what is nobody's. */
struct heap_user {
	struct stag_heap_process process; /* pid 0: nobody */
	char program[32];		  /* "": not known */
	uint64_t blocks, block_bytes, allocations, allocated_bytes, shared;
	double taken_rate, released_rate, made_rate; /* a second; heap_top.c */
};

struct heap_view {
	char name[STAG_HEAP_NAME_MAX];
	char *error; /* why it cannot be looked at; all that follows is zero then */
	struct stag_heap_stats stats;
	struct heap_user users[STAG_HEAP_MAX_PROCS];
	unsigned int num_users;
	struct heap_user nobody; /* blocks that wait for somebody, and what the dead had shared */
	struct stag_heap_block *blocks; /* if they were asked for */
	size_t num_blocks;
	int faults; /* -1: it was not checked */
	char *fault_text;
};

enum { VIEW_BLOCKS = 1 << 0, VIEW_CHECK = 1 << 1 };

/* heap_view.c. -errno; view->error says it in words. To be cleared in either case. */
int heap_view_take(struct heap_view *view, const char *name, unsigned int flags);
void heap_view_clear(struct heap_view *view);

/* All of this machine, in the order of their names; to be cleared and freed. */
struct heap_view *heap_view_all(size_t *n);

/* heap_json.c */
json_t *heap_json(const struct heap_view *view);

#endif
