// SPDX-License-Identifier: BSD-2-Clause
/*
 * ending.c - whether a node that is told to stop has the only copy, and another node could get one (ending.h).
 */
#include "ending.h"

#include <stddef.h>

bool ending_is_only_copy(const struct stag_pool_node_info *i)
{
	if (i->role != STAG_POOL_ROLE_PRIMARY)
		return false;
	for (uint32_t m = 0; m < i->num_members; m++)
		if (i->members[m].role == STAG_POOL_ROLE_STANDBY)
			return false;
	return true;
}

static bool is_other_seen(const struct stag_pool_node_info *i)
{
	if (i->role != STAG_POOL_ROLE_PRIMARY)
		return true; /* another node is primary, or was */
	for (uint32_t m = 0; m < i->num_members; m++)
		if (i->members[m].role != STAG_POOL_ROLE_PRIMARY &&
		    i->members[m].role != STAG_POOL_ROLE_UNKNOWN)
			return true;
	return false;
}

void ending_see(struct ending *e, const struct stag_pool_node_info *i, uint64_t now)
{
	if (is_other_seen(i))
		e->seen_at = now;
}

/* Looks for a node that copies, or else for one that is refused; *progress is the sum of what is copied. */
static enum pool_end look_around(const struct stag_pool_node_info *i,
				 const struct stag_pool_member **other, uint64_t *progress)
{
	enum pool_end end = POOL_ENDS;

	for (uint32_t m = 0; m < i->num_members; m++) {
		const struct stag_pool_member *o = &i->members[m];

		if (o->role == STAG_POOL_ROLE_JOINING) {
			end = POOL_COPIES;
			*other = o;
			*progress += o->done;
		} else if (o->role == STAG_POOL_ROLE_WAITING && end == POOL_ENDS) {
			end = POOL_STAYS;
			*other = o;
		}
	}
	return end;
}

enum pool_end ending_judge(struct ending *e, const struct stag_pool_node_info *i, uint64_t now,
			   const struct stag_pool_member **other)
{
	uint64_t progress = 0;
	enum pool_end end;

	*other = NULL;
	if (!e->asked_at)
		e->asked_at = now;
	ending_see(e, i, now);
	if (!ending_is_only_copy(i) || i->objects == 0)
		return POOL_ENDS;
	end = look_around(i, other, &progress);
	if (end == POOL_ENDS && e->seen_at && now - e->seen_at < ENDING_GRACE)
		end = POOL_RETURNS;
	if (end != e->end || progress != e->progress)
		e->moved_at =
			now; /* a copy that begins has its whole time, however long it was waited for */
	e->end = end;
	e->progress = progress;
	return end == POOL_COPIES && now - e->moved_at >= ENDING_STUCK ? POOL_ENDS : end;
}

bool ending_extends(const struct ending *e, uint64_t now)
{
	return e->end != POOL_STAYS || now - e->asked_at < ENDING_EXTEND;
}
