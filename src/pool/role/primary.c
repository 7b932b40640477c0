// SPDX-License-Identifier: BSD-2-Clause
/* primary.c - a node that is primary: its standbys, its lease, when it may acknowledge, and handover (role.h). */
#include "pool/role/role.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint32_t our_bit(const struct role *r)
{
	return ROLL_BIT(r->seat);
}

/*
 * Returns the standbys that must have a record before it is acknowledged, and whose promises the lease needs: rule
 * 1.
 */
static uint32_t held_seats(const struct role *r)
{
	return (r->roll.in_sync | r->maybe) & ~our_bit(r);
}

static bool is_held(const struct role *r, unsigned int seat)
{
	return held_seats(r) & ROLL_BIT(seat);
}

/* ---- the lease ------------------------------------------------------------------------ */

static uint64_t promise_until(const struct role *r, unsigned int seat)
{
	const struct role_peer *p = &r->peers[seat];

	return p->promised ? lease_until(&r->times.lease, p->promised) : 0;
}

static void renew_lease(struct role *r)
{
	uint64_t until = r->handed ? 0 : LEASE_FOREVER;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (is_held(r, s) && promise_until(r, s) < until)
			until = promise_until(r, s);
	if (until == r->lease)
		return;
	r->lease = until;
	ROLE_ACT(r, .what = ROLE_LEASE, .time = until);
}

/* Returns whether an echo answers a heartbeat that we sent, in this epoch, later than the last one echoed. */
static bool is_promise(const struct role *r, unsigned int seat, uint64_t epoch, uint64_t sent)
{
	if (r->state != ROLE_PRIMARY && r->state != ROLE_HANDING)
		return false;
	return epoch == r->epoch && sent <= r->last_beat && sent > r->peers[seat].promised;
}

void role_pulse_echoed(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch,
		       uint64_t sent)
{
	if (!is_promise(r, seat, epoch, sent))
		return;
	r->peers[seat].promised = sent;
	renew_lease(r);
}

void role_echoed(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent)
{
	role_begin(r, now);
	role_pulse_echoed(r, now, seat, epoch, sent);
	role_step(r, now);
}

bool role_may_read(const struct role *r, uint64_t now)
{
	return now < r->lease;
}

bool role_may_change(const struct role *r, uint64_t now)
{
	if (r->state != ROLE_PRIMARY || now >= r->lease)
		return false;
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (is_held(r, s) && !r->peers[s].linked)
			return false;
	return true;
}

/* ---- acknowledgements -------------------------------------------------------------------- */

static void acknowledge(struct role *r)
{
	uint64_t number = r->placed;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (is_held(r, s) && r->peers[s].confirmed < number)
			number = r->peers[s].confirmed;
	if (number <= r->answered)
		return;
	r->answered = number;
	ROLE_ACT(r, .what = ROLE_ANSWER, .number = number, .epoch = r->epoch);
}

void role_placed(struct role *r, uint64_t now, uint64_t number)
{
	assert(r->state == ROLE_PRIMARY && number >= r->placed);
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (r->peers[s].confirmed >= r->placed)
			r->peers[s].progress = now;
	r->placed = number;
	acknowledge(r);
}

void role_confirmed(struct role *r, uint64_t now, unsigned int seat, uint64_t number)
{
	struct role_peer *p = &r->peers[seat];

	if (!p->linked || number <= p->confirmed || number > r->placed)
		return;
	p->confirmed = number;
	p->progress = now;
	acknowledge(r);
}

/* ---- standbys ------------------------------------------------------------------------------ */

static void unlink_peer(struct role_peer *p, uint64_t now)
{
	p->linked = p->ready = false;
	p->since = now;
}

/*
 * Links a standby that was in sync before it ever connected to us: it became so with the handover, and has the
 * records that we began with.
 */
static int link_heir(struct role *r, uint64_t now, struct role_peer *p, bool has_all)
{
	if (!has_all) {
		p->dropping = true;
		return -EAGAIN;
	}
	*p = (struct role_peer){.linked = true,
				.ready = true,
				.since = now,
				.confirmed = r->placed,
				.progress = now};
	return 0;
}

static int link_peer(struct role *r, uint64_t now, unsigned int seat, bool has_all)
{
	struct role_peer *p = &r->peers[seat];

	if (p->linked || p->dropping)
		return -EAGAIN;
	if (is_held(r, seat))
		return link_heir(r, now, p, has_all);
	*p = (struct role_peer){.linked = true, .since = now};
	ROLE_ACT(r, .what = ROLE_RESYNC, .seat = seat);
	return 0;
}

int role_link_up(struct role *r, uint64_t now, unsigned int seat, bool synced, uint64_t epoch,
		 uint64_t number)
{
	bool has_all = synced && epoch == r->epoch && number == r->roll.base && number == r->placed;
	int rc;

	if (r->state != ROLE_PRIMARY)
		return r->state == ROLE_HANDING ? -EAGAIN : -EPERM;
	if (seat >= ROLL_MAX_NODES || seat == (unsigned int)r->seat ||
	    !r->roll.members[seat].name[0])
		return -EPERM;
	role_begin(r, now);
	rc = link_peer(r, now, seat, has_all);
	role_step(r, now);
	return rc;
}

void role_link_down(struct role *r, uint64_t now, unsigned int seat)
{
	struct role_peer *p = &r->peers[seat];

	role_begin(r, now);
	if (p->linked) {
		unlink_peer(p, now);
		p->dropping = is_held(r, seat);
	}
	role_step(r, now);
}

void role_resynced(struct role *r, uint64_t now, unsigned int seat, uint64_t number)
{
	struct role_peer *p = &r->peers[seat];

	role_begin(r, now);
	if (p->linked && !p->ready && !p->dropping && number <= r->placed) {
		p->ready = true;
		p->confirmed = number;
		p->progress = now;
	}
	role_step(r, now);
}

void role_stuck(struct role *r, uint64_t now, unsigned int seat)
{
	role_begin(r, now);
	if (r->peers[seat].linked && is_held(r, seat))
		r->peers[seat].dropping = true;
	role_step(r, now);
}

static bool is_too_slow(const struct role *r, const struct role_peer *p, uint64_t now)
{
	uint64_t answered = p->promised > p->since ? p->promised : p->since;

	if (!p->linked)
		return now > p->since + r->times.link;
	if (p->confirmed < r->placed && now > p->progress + r->times.patience)
		return true;
	return now > answered + r->times.patience;
}

static void drop_slow_standbys(struct role *r, uint64_t now)
{
	if (now < r->grace_until)
		return;
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (is_held(r, s) && is_too_slow(r, &r->peers[s], now))
			r->peers[s].dropping = true;
}

static void send_heartbeats(struct role *r, uint64_t now)
{
	if (now < r->next_beat)
		return;
	r->last_beat = now;
	r->next_beat = now + r->times.lease.beat;
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (r->peers[s].linked)
			ROLE_ACT(r, .what = ROLE_BEAT, .seat = s, .epoch = r->epoch, .time = now,
				 .revision = r->revision);
}

void role_pulse(struct role *r, uint64_t now)
{
	if (r->state == ROLE_PRIMARY || r->state == ROLE_HANDING)
		send_heartbeats(r, now);
}

/* ---- changes of the roll ---------------------------------------------------------------------- */

/* A standby that is added must have every record that was acknowledged before; later records wait for it. */
static bool may_add(const struct role *r, unsigned int seat, uint64_t now)
{
	const struct role_peer *p = &r->peers[seat];

	if (!p->linked || !p->ready || p->dropping || p->confirmed < r->answered)
		return false;
	return promise_until(r, seat) > now;
}

static void want_in_sync(struct role *r, uint64_t now)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		if (s == (unsigned int)r->seat)
			continue;
		if (r->peers[s].dropping)
			r->want.in_sync &= ~ROLL_BIT(s);
		else if (may_add(r, s, now))
			r->want.in_sync |= ROLL_BIT(s);
	}
}

static void want_members(struct role *r)
{
	int seat;

	if (r->leave >= 0) {
		r->want.in_sync &= ~ROLL_BIT(r->leave);
		memset(&r->want.members[r->leave], 0, sizeof(r->want.members[0]));
	}
	if (!r->join.name[0])
		return;
	seat = roll_seat(&r->want, r->join.name);
	if (seat < 0)
		seat = roll_free_seat(&r->want);
	if (seat >= 0)
		r->want.members[seat] = r->join;
}

/* Computes what the roll should say. Returns whether the roll says that, and no swap in flight can change it. */
static bool is_roll_as_wanted(struct role *r, uint64_t now)
{
	r->want = r->roll;
	want_in_sync(r, now);
	want_members(r);
	return memcmp(&r->want, &r->roll, sizeof(r->want)) == 0 && !r->unresolved;
}

static void mend_roll(struct role *r, uint64_t now)
{
	if (r->swapping || r->reading || r->read_at || is_roll_as_wanted(r, now))
		return;
	/*
	 * An added standby counts from now on, so the lease has to end with its promise before the roll names it: we may be
	 * stopped as soon as the roll is swapped. A ROLE_LEASE is carried out before any ROLE_SWAP (role_next_pulse()).
	 */
	r->maybe |= r->want.in_sync & ~r->roll.in_sync;
	renew_lease(r);
	role_swap(r);
}

static void forget_dropped(struct role *r, uint64_t now)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		struct role_peer *p = &r->peers[s];

		if (is_held(r, s) || (!p->dropping && r->roll.members[s].name[0]))
			continue;
		p->dropping = false;
		if (!p->linked)
			continue;
		unlink_peer(p, now);
		ROLE_ACT(r, .what = ROLE_CUT, .seat = s);
	}
}

static void forget_membership(struct role *r)
{
	int seat = r->join.name[0] ? roll_seat(&r->roll, r->join.name) : -1;

	if (seat >= 0 && memcmp(&r->roll.members[seat], &r->join, sizeof(r->join)) == 0)
		r->join.name[0] = '\0';
	if (r->leave >= 0 && !r->roll.members[r->leave].name[0])
		r->leave = -1;
}

static void take_back(struct role *r)
{
	r->handed = false;
	r->successor = -1;
	role_become(r, ROLE_PRIMARY);
}

void role_primary_roll(struct role *r, uint64_t now)
{
	forget_dropped(r, now);
	forget_membership(r);
	/* At this revision the handover is void: the successor cannot swap any more. */
	if (r->handed)
		take_back(r);
	acknowledge(r);
	renew_lease(r);
}

void role_primary_begin(struct role *r, uint64_t now)
{
	memset(r->peers, 0, sizeof(r->peers));
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		r->peers[s].since = now;
	r->first.epoch = 0;
	r->placed = r->answered = r->roll.base;
	r->synced = false;
	r->next_beat = now;
	role_become(r, ROLE_PRIMARY);
	ROLE_ACT(r, .what = ROLE_SERVE, .epoch = r->epoch, .number = r->placed);
	renew_lease(r);
}

int role_join(struct role *r, uint64_t now, const struct roll_member *member)
{
	if (r->state != ROLE_PRIMARY)
		return -EPERM;
	if (r->join.name[0] && strcmp(r->join.name, member->name) != 0)
		return -EBUSY;
	if (roll_seat(&r->roll, member->name) < 0 && roll_free_seat(&r->roll) < 0)
		return -ENOSPC;
	r->join = *member;
	forget_membership(r);
	role_time(r, now);
	return 0;
}

int role_leave(struct role *r, uint64_t now, unsigned int seat)
{
	if (r->state != ROLE_PRIMARY)
		return -EPERM;
	if (seat >= ROLL_MAX_NODES || seat == (unsigned int)r->seat ||
	    !r->roll.members[seat].name[0])
		return -EINVAL;
	if (r->leave >= 0 && r->leave != (int)seat)
		return -EBUSY;
	r->leave = (int)seat;
	role_time(r, now);
	return 0;
}

/* ---- handover ------------------------------------------------------------------------------------ */

int role_switch(struct role *r, uint64_t now, unsigned int seat)
{
	if (r->state == ROLE_HANDING)
		return -EBUSY;
	if (r->state != ROLE_PRIMARY)
		return -EPERM;
	if (seat >= ROLL_MAX_NODES || seat == (unsigned int)r->seat ||
	    !roll_in_sync(&r->roll, seat))
		return -EINVAL;
	r->successor = (int)seat;
	r->handing_since = now;
	role_become(r, ROLE_HANDING);
	role_look(
		r); /* with a backend that does not respond, no node could accept the handover, nor could we take it back */
	role_time(r, now);
	return 0;
}

/*
 * Sends the handover once every record is acknowledged and no change of the roll is pending. Gives it up if the
 * successor is not in sync or not linked, or after `link`.
 */
static void try_handing(struct role *r, uint64_t now)
{
	unsigned int seat = (unsigned int)r->successor;

	if (!roll_in_sync(&r->roll, seat) || !r->peers[seat].linked ||
	    now > r->handing_since + r->times.link) {
		take_back(r);
		return;
	}
	if (r->placed != r->answered || r->swapping || r->reading || r->read_at ||
	    !is_roll_as_wanted(r, now))
		return;
	r->handed = true;
	r->handing_since = now;
	renew_lease(r);
	ROLE_ACT(r, .what = ROLE_HANDOVER, .seat = seat, .epoch = r->epoch, .number = r->placed,
		 .revision = r->revision);
}

/* Takes the handover back if the successor did not accept it: swapping in the same roll changes its revision. */
static void try_taking_back(struct role *r, uint64_t now)
{
	if (now <= r->handing_since + r->times.link || r->swapping || r->reading || r->read_at)
		return;
	r->want = r->roll;
	role_swap(r);
}

void role_primary_step(struct role *r, uint64_t now)
{
	send_heartbeats(r, now);
	drop_slow_standbys(r, now);
	if (r->handed) {
		try_taking_back(r, now);
		return;
	}
	if (r->state == ROLE_HANDING)
		try_handing(r, now);
	if (!r->handed)
		mend_roll(r, now);
}
