// SPDX-License-Identifier: BSD-2-Clause
/*
 * ending.c - whether a node that is told to stop has the only copy, and what the other nodes do (ending.h).
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
	enum pool_end end = POOL_ALONE;

	for (uint32_t m = 0; m < i->num_members; m++) {
		const struct stag_pool_member *o = &i->members[m];

		if (o->role == STAG_POOL_ROLE_JOINING) {
			end = POOL_COPIES;
			*other = o;
			*progress += o->done;
		} else if (o->role == STAG_POOL_ROLE_WAITING && end == POOL_ALONE) {
			end = POOL_REFUSES;
			*other = o;
		}
	}
	return end;
}

/* Returns whether the copy makes progress; one that begins has its whole time, however long it was waited for. */
static bool is_moving(struct ending *e, bool copies, uint64_t progress, uint64_t now)
{
	if (copies != e->copies || progress != e->progress)
		e->moved_at = now;
	e->copies = copies;
	e->progress = progress;
	return copies && now - e->moved_at < ENDING_STUCK;
}

enum pool_end ending_judge(struct ending *e, const struct stag_pool_node_info *i, uint64_t now,
			   const struct stag_pool_member **other)
{
	uint64_t progress = 0;
	enum pool_end end;

	*other = NULL;
	if (!e->asked_at)
		e->asked_at = e->copied_at = now;
	ending_see(e, i, now);
	if (!ending_is_only_copy(i) || i->objects == 0 || i->num_members < 2)
		return POOL_ENDS;
	end = look_around(i, other, &progress);
	if (is_moving(e, end == POOL_COPIES, progress, now))
		e->copied_at = now;
	else if (end == POOL_COPIES)
		end = POOL_STUCK;
	else if (end == POOL_ALONE && e->seen_at && now - e->seen_at < ENDING_GRACE)
		end = POOL_RETURNS;
	return end;
}

bool ending_extends(const struct ending *e, uint64_t now)
{
	return now - e->copied_at < ENDING_EXTEND;
}
