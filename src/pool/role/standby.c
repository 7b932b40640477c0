// SPDX-License-Identifier: BSD-2-Clause
/*
 * standby.c - a node that is not primary: it follows the primary, and promotes itself when the primary is gone
 * (role.h).
 */
#include "pool/role/role.h"

#include <assert.h>

/* ---- following -------------------------------------------------------------------- */

void role_follow(struct role *r, uint64_t now, uint64_t number)
{
	r->number = number;
	r->heard = now;
	r->synced = r->synced && role_sits(r, r->roll.in_sync) && number == r->roll.base;
	role_become(r, r->synced ? ROLE_STANDBY : ROLE_OUTSIDE);
	if (r->roll.primary != (unsigned int)r->seat) {
		ROLE_ACT(r, .what = ROLE_FOLLOW, .seat = r->roll.primary, .epoch = r->epoch);
	} else if (r->roll.in_sync == ROLL_BIT(r->seat)) {
		role_refuse(
			r, "the only copy of the pool was in this node's memory, and that is gone");
	} else {
		r->why = "was primary, and waits until a node that is in sync is promoted";
	}
}

static void begin_fence(struct role *r, enum role_fence what_for)
{
	r->fence = what_for;
	if (r->state == ROLE_FENCING)
		return;
	role_become(r, ROLE_FENCING);
	ROLE_ACT(r, .what = ROLE_FENCE);
}

void role_follow_fenced(struct role *r, uint64_t now)
{
	if (r->state == ROLE_CLAIMING)
		role_follow(r, now, r->number);
	else
		begin_fence(r, ROLE_FENCE_FOLLOW);
}

/* Follows the primary again that we had fenced: the roll still names it. */
static void resume_standby(struct role *r, uint64_t now)
{
	r->heard = now;
	role_become(r, r->synced ? ROLE_STANDBY : ROLE_OUTSIDE);
	ROLE_ACT(r, .what = ROLE_FOLLOW, .seat = r->roll.primary, .epoch = r->epoch);
}

/* Returns whether a message is from the primary that we follow, in its present epoch. */
static bool is_our_primary(const struct role *r, unsigned int seat, uint64_t epoch)
{
	return epoch == r->epoch && seat == r->roll.primary && r->revision;
}

void role_pulse_heard(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch,
		      uint64_t sent)
{
	if (r->state == ROLE_FENCING || r->state == ROLE_CLAIMING ||
	    !is_our_primary(r, seat, epoch))
		return;
	r->heard = now;
	ROLE_ACT(r, .what = ROLE_ECHO, .seat = seat, .epoch = epoch, .time = sent);
}

void role_heard(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent,
		uint64_t revision)
{
	role_begin(r, now);
	if (epoch > r->epoch || (epoch == r->epoch && revision > r->revision))
		role_look(r);
	role_pulse_heard(r, now, seat, epoch, sent);
	role_step(r, now);
}

void role_gone(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch)
{
	role_begin(r, now);
	if (is_our_primary(r, seat, epoch) && r->gone != epoch) {
		r->gone = epoch;
		r->gone_at = now;
	}
	role_step(r, now);
}

static void lose_sync(struct role *r)
{
	r->synced = false;
	if (r->state == ROLE_STANDBY)
		role_become(r, ROLE_OUTSIDE);
}

void role_copying(struct role *r, uint64_t now)
{
	role_begin(r, now);
	lose_sync(r);
	role_step(r, now);
}

void role_torn(struct role *r, uint64_t now)
{
	role_begin(r, now);
	lose_sync(r);
	role_step(r, now);
}

void role_synced(struct role *r, uint64_t now, uint64_t epoch)
{
	role_begin(r, now);
	if (r->state == ROLE_OUTSIDE && epoch == r->epoch) {
		r->synced = true;
		if (now > r->heard)	/* the pulse may have made a later promise */
			r->heard = now; /* silence is measured from here */
		role_become(r, ROLE_STANDBY);
	}
	role_step(r, now);
}

/* ---- promotion ----------------------------------------------------------------------- */

/* Rule 3: in sync by what this node knows about its memory, and by the roll. */
static bool may_claim(const struct role *r)
{
	return r->synced && role_sits(r, r->roll.in_sync) &&
	       r->roll.primary != (unsigned int)r->seat;
}

/* Returns whether the primary has ended, or was silent for long enough. */
static bool is_primary_over(const struct role *r, uint64_t now)
{
	unsigned int before =
		r->seat >= 0 ? roll_before(&r->roll, (unsigned int)r->seat, r->roll.primary) : 0;

	if (r->gone == r->epoch && now >= r->gone_at + before * r->times.lease.stagger)
		return true;
	return now >= r->grace_until && now >= lease_silence(&r->times.lease, r->heard, before);
}

static void watch_silence(struct role *r, uint64_t now)
{
	if (!is_primary_over(r, now))
		return;
	if (may_claim(r))
		begin_fence(r, ROLE_FENCE_CLAIM);
	else if (!r->reading && !r->read_at) /* another standby may have promoted itself */
		r->read_at = now + r->times.link;
}

static void claim_roll(struct role *r)
{
	if (r->swapping || r->reading || r->read_at)
		return;
	r->want = r->roll;
	r->want.epoch = r->epoch + 1;
	r->want.primary = (unsigned int)r->seat;
	r->want.base = r->number;
	if (r->fence != ROLE_FENCE_TAKE)
		r->want.in_sync = ROLL_BIT(r->seat);
	else if (r->take_leaves)
		r->want.in_sync &= ~ROLL_BIT(r->roll.primary);
	role_swap(r);
}

/* Returns whether a handover to us is valid: it holds for one revision of the roll, which we must have seen. */
static bool may_take(const struct role *r)
{
	return r->state == ROLE_STANDBY && r->take_epoch == r->epoch &&
	       r->take_revision == r->revision && may_claim(r);
}

void role_standby_step(struct role *r, uint64_t now)
{
	if (may_take(r)) {
		r->take_epoch = 0;
		begin_fence(r, ROLE_FENCE_TAKE);
	}
	if (r->state == ROLE_CLAIMING)
		claim_roll(r);
	else if (r->state == ROLE_STANDBY || r->state == ROLE_OUTSIDE)
		watch_silence(r, now);
}

/* Handles a roll that has changed without a new primary. */
void role_standby_roll(struct role *r, uint64_t now)
{
	if (r->state != ROLE_CLAIMING)
		return;
	if (r->fence == ROLE_FENCE_TAKE || !may_claim(r))
		resume_standby(r, now);
}

static bool is_as_handed(const struct role *r)
{
	return r->revision == r->take_revision && r->number == r->take_number;
}

void role_fenced(struct role *r, uint64_t now, uint64_t number)
{
	if (r->state != ROLE_FENCING)
		return;
	role_begin(r, now);
	r->number = number;
	if (r->fence == ROLE_FENCE_FOLLOW)
		role_follow(r, now, number);
	else if (may_claim(r) && (r->fence == ROLE_FENCE_CLAIM || is_as_handed(r)))
		role_become(r, ROLE_CLAIMING);
	else
		resume_standby(r, now);
	role_step(r, now);
}

void role_handover(struct role *r, uint64_t now, uint64_t epoch, uint64_t number, uint64_t revision,
		   bool leaves)
{
	role_begin(r, now);
	r->take_epoch = epoch;
	r->take_number = number;
	r->take_revision = revision;
	r->take_leaves = leaves;
	if (revision > r->revision)
		role_look(r);
	role_step(r, now);
}
