/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ending.h - whether a node that is told to stop has the only copy of a pool's values, and what the other nodes do.
 *
 * A node with the only copy is not stopped as long as another node is in the roll: one that is down now may return in a minute.
 * Takes what the node shows of itself, and the time, as parameters: no threads, no clock, no log.
 */
#ifndef STAGD_ENDING_H
#define STAGD_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "stag/pool.h"

#define ENDING_GRACE (5 * NS_PER_S)  /* for another node to return, after it was seen last */
#define ENDING_STUCK (10 * NS_PER_S) /* after which a copy without progress is called so */
#define ENDING_EXTEND                                                                              \
	(600 * NS_PER_S) /* that the service manager is to wait while no node copies */

enum pool_end {
	POOL_ENDS, /* another node has a copy, or there are no values, or no other node is in the roll */
	POOL_COPIES,  /* another node is about to have a copy */
	POOL_RETURNS, /* another node was seen a moment ago, and may be about to connect */
	POOL_REFUSES, /* another node runs, and cannot get a copy as things are */
	POOL_STUCK,   /* another node's copy makes no progress */
	POOL_ALONE,   /* no other node of the roll is seen */
};

/* The state of one node's stop. Zeroes: it was not asked to stop, and no other node was seen. */
struct ending {
	uint64_t seen_at;   /* when another node was seen last; 0: never */
	uint64_t asked_at;  /* when the node was asked to stop */
	uint64_t moved_at;  /* the last change of `progress`, and of whether a node copies */
	uint64_t copied_at; /* when a copy made progress last, or the node was asked to stop */
	uint64_t progress;
	bool copies;
	unsigned int told; /* of the caller: bits of the ends that were logged */
};

/* Returns whether the node has the only copy in sync. */
bool ending_is_only_copy(const struct stag_pool_node_info *i);

/* Notes whether another node is seen; to be called about once a second while the node serves. */
void ending_see(struct ending *e, const struct stag_pool_node_info *i, uint64_t now);

/*
 * To be called again and again once the node was asked to stop. Only POOL_ENDS lets it stop. *other: the node that copies or is
 * refused; NULL: none is.
 */
enum pool_end ending_judge(struct ending *e, const struct stag_pool_node_info *i, uint64_t now,
			   const struct stag_pool_member **other);

/* Returns whether a service manager, which cannot wait for ever, is to wait longer; after ending_judge(). */
bool ending_extends(const struct ending *e, uint64_t now);

#endif
