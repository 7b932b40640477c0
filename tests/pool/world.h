/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * world.h - nodes that know each other by messages only, and a roll backend with a roll, in simulated time: what they do is
 * src/pool/role's, all that can go wrong is chance's.
 *
 * A node's memory is a list of records. What went before any reader's eyes, or was answered, is history: it has to be
 * the same on every later primary, and whoever is read has to have all of it.
 */
#ifndef STAG_TEST_POOL_WORLD_H
#define STAG_TEST_POOL_WORLD_H

#include <stdint.h>

#include "pool/role/role.h"

enum world_fault {
	FAULT_CRASH = 1 << 0,	/* memory is lost; the node comes back */
	FAULT_PAUSE = 1 << 1,	/* stopped for a while; its adapter may go on */
	FAULT_CUT = 1 << 2,	/* between two nodes, one way or both */
	FAULT_BACKEND = 1 << 3, /* the roll backend is away, or cut off from one node */
	FAULT_SLOW = 1 << 4,	/* everything takes longer */
	FAULT_SWITCH = 1 << 5,	/* not a fault: switch-over by request */
	FAULT_MEMBER = 1 << 6,	/* not a fault either: a member is taken out */
	FAULT_ALL = (1 << 7) - 1,
};

struct world_setup {
	unsigned int nodes;  /* 2 to 4 */
	unsigned int faults; /* which */
	uint64_t trouble;    /* ns of them, before peace returns */
	uint64_t between;    /* ns between two, about */
	struct role_times times;
	unsigned int drift; /* parts per million that clocks are really off by */
};

struct world_sum {
	uint64_t steps, answered, reads, refused_reads, epochs, crashes, handed, dropped;
};

/* NULL, or what was violated. Chance goes on from where it is. */
const char *world_run(const struct world_setup *setup, struct world_sum *sum);

#endif
