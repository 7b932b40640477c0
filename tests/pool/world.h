/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * world.h - a simulated pool: nodes that communicate by messages only, and a roll backend, in simulated time.
 * The nodes run src/pool/role; delays and faults are random.
 *
 * A node's memory is a list of records. A record that was acknowledged, or that a reader could see, is
 * committed: every later primary must have all committed records in the same order, and so must every node that
 * serves a read.
 */
#ifndef STAG_TEST_POOL_WORLD_H
#define STAG_TEST_POOL_WORLD_H

#include <stdint.h>

#include "pool/role/role.h"

enum world_fault {
	FAULT_CRASH = 1 << 0,	/* the node loses its memory and restarts */
	FAULT_PAUSE = 1 << 1,	/* the process stops for a while; its adapter may continue */
	FAULT_CUT = 1 << 2,	/* messages between two nodes are lost, one way or both */
	FAULT_BACKEND = 1 << 3, /* the roll backend is down, or unreachable from one node */
	FAULT_SLOW = 1 << 4,	/* messages take longer */
	FAULT_SWITCH = 1 << 5,	/* no fault: a switchover on request */
	FAULT_MEMBER = 1 << 6,	/* no fault either: a member is removed */
	FAULT_ALL = (1 << 7) - 1,
};

struct world_setup {
	unsigned int nodes;  /* 2 to 4 */
	unsigned int faults; /* bits of enum world_fault */
	uint64_t trouble;    /* ns during which faults happen; none after that */
	uint64_t between;    /* mean ns between two faults */
	struct role_times times;
	unsigned int drift; /* bound of the clocks' actual error, in parts per million */
};

struct world_sum {
	uint64_t steps, acknowledged, reads, refused_reads, epochs, crashes, handed, dropped;
};

/*
 * Runs one world, with the dice as they stand, and adds to *sum. Returns NULL, or the guarantee that was
 * violated.
 */
const char *world_run(const struct world_setup *setup, struct world_sum *sum);

#endif
