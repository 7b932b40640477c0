/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool_primary.h - finds the primary of a pool, and switches over to another node; for stag, stagd and its API.
 */
#ifndef STAG_APP_POOL_PRIMARY_H
#define STAG_APP_POOL_PRIMARY_H

#include <stdint.h>

#include "stag/pool.h"

const struct stag_pool_member *pool_primary(
	const struct stag_pool_info *i); /* NULL: there is none */
const struct stag_pool_member *pool_member(const struct stag_pool_info *i, const char *name);

/*
 * Switches over to a node, or to any (NULL), as soon as it is in sync. Returns 0 or an errno value; EBUSY: none is in sync
 * or about to be, or the time until (clock_ns()) has passed. info: the pool just before.
 */
int pool_switch_when_in_sync(struct stag_pool *pool, const char *to, uint64_t until,
			     struct stag_pool_info *info);

/* Waits for an epoch after this one. Returns 0 or an errno value; ETIMEDOUT: no node became primary. info: the pool in that epoch. */
int pool_await_epoch(struct stag_pool *pool, uint64_t before, uint64_t until,
		     struct stag_pool_info *info);

#endif
