/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool_primary.h - who is primary of a pool, and how another one becomes it. Of stag, of stagd and its API.
 */
#ifndef STAG_APP_POOL_PRIMARY_H
#define STAG_APP_POOL_PRIMARY_H

#include <stdint.h>

#include "stag/pool.h"

const struct stag_pool_member *pool_primary(const struct stag_pool_info *i); /* NULL: nobody is */
const struct stag_pool_member *pool_member(const struct stag_pool_info *i, const char *name);

/*
 * stag_pool_switchover() to a node, or to anybody (NULL), as soon as one is in sync. 0 or an errno value; EBUSY: none is, and none
 * is coming, or until (clock_ns()) has passed. info: the pool just before.
 */
int pool_switch_when_in_sync(struct stag_pool *pool, const char *to, uint64_t until,
			     struct stag_pool_info *info);

/* Waits for an epoch behind this one. 0 or an errno value; ETIMEDOUT: nobody has taken over. info: the pool in it. */
int pool_await_epoch(struct stag_pool *pool, uint64_t before, uint64_t until,
		     struct stag_pool_info *info);

#endif
