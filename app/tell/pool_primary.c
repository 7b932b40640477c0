// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_primary.c - finds the primary of a pool, and switches over to another node.
 */
#include "pool_primary.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

const struct stag_pool_member *pool_primary(const struct stag_pool_info *i)
{
	for (uint32_t n = 0; n < i->num_members; n++)
		if (i->members[n].role == STAG_POOL_ROLE_PRIMARY)
			return &i->members[n];
	return NULL;
}

const struct stag_pool_member *pool_member(const struct stag_pool_info *i, const char *name)
{
	for (uint32_t n = 0; n < i->num_members; n++)
		if (strcmp(i->members[n].name, name) == 0)
			return &i->members[n];
	return NULL;
}

/* Can the named node, or any (NULL), still become in sync soon? */
static bool may_become_in_sync(const struct stag_pool_info *i, const char *to)
{
	for (uint32_t n = 0; n < i->num_members; n++)
		if ((!to || strcmp(i->members[n].name, to) == 0) &&
		    (i->members[n].role == STAG_POOL_ROLE_JOINING ||
		     i->members[n].role == STAG_POOL_ROLE_STANDBY))
			return true;
	return false;
}

int pool_switch_when_in_sync(struct stag_pool *pool, const char *to, uint64_t until,
			     struct stag_pool_info *info)
{
	const struct timespec nap = {.tv_nsec = 50 * NS_PER_MS};
	bool coming = false;
	int rc;

	for (;;) {
		rc = stag_pool_query(pool, info, sizeof(*info));
		if (rc == 0)
			rc = stag_pool_switchover(pool, to);
		coming |= may_become_in_sync(info, to);
		if (rc != EBUSY || !coming || clock_ns() > until)
			return rc;
		nanosleep(&nap, NULL);
	}
}

int pool_await_epoch(struct stag_pool *pool, uint64_t before, uint64_t until,
		     struct stag_pool_info *info)
{
	const struct timespec nap = {.tv_nsec = NS_PER_MS / 2};
	int rc;

	while ((rc = stag_pool_query(pool, info, sizeof(*info))) == 0 && info->epoch <= before) {
		if (clock_ns() > until)
			return ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return rc;
}
