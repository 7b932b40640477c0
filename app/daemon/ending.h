/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ending.h - whether a node that is told to stop has the only copy of a pool's values, and another node could get one.
 *
 * Takes what the node shows of itself, and the time, as parameters: no threads, no clock, no log.
 */
#ifndef STAGD_ENDING_H
#define STAGD_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "stag/pool.h"

#define ENDING_GRACE (5 * NS_PER_S) /* for another node to return, after it was seen last */
#define ENDING_STUCK                                                                               \
	(10 * NS_PER_S) /* after which a copy that makes no progress is not waited for */
#define ENDING_EXTEND                                                                              \
	(600 * NS_PER_S) /* that the service manager is to wait for a node that is refused */

enum pool_end {
	POOL_ENDS, /* another node has a copy, there are no values, or nothing could be gained by waiting */
	POOL_COPIES,  /* another node is about to have a copy */
	POOL_STAYS,   /* another node runs, and cannot get one as things are */
	POOL_RETURNS, /* another node was seen a moment ago, and may be about to connect */
};

/* The state of one node's stop. Zeroes: it was not asked to stop, and no other node was seen. */
struct ending {
	uint64_t seen_at;	     /* when another node was seen last; 0: never */
	uint64_t asked_at, moved_at; /* moved: the last change of the next two */
	uint64_t progress;
	enum pool_end end;
	unsigned int told; /* of the caller: bits of the ends that were logged */
};

/* Returns whether the node has the only copy in sync. */
bool ending_is_only_copy(const struct stag_pool_node_info *i);

/* Notes whether another node is seen; to be called about once a second while the node serves. */
void ending_see(struct ending *e, const struct stag_pool_node_info *i, uint64_t now);

/* To be called again and again once the node was asked to stop. *other: the node that is waited for; NULL: any. */
enum pool_end ending_judge(struct ending *e, const struct stag_pool_node_info *i, uint64_t now,
			   const struct stag_pool_member **other);

/* Returns whether the service manager is to wait, too; after ending_judge(). */
bool ending_extends(const struct ending *e, uint64_t now);

#endif
