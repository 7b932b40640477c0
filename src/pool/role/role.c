// SPDX-License-Identifier: BSD-2-Clause
/*
 * role.c - a node and the roll: reading it, swapping it, and reacting to a new one (role.h). standby.c has what a
 * standby does, primary.c what a primary does.
 */
#include "pool/role/role.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

const struct role_times role_defaults = {
	.lease = {.beat = 2 * NS_PER_MS,
		  .lease = 20 * NS_PER_MS,
		  .promote = 24 * NS_PER_MS,
		  .stagger = 4 * NS_PER_MS,
		  .drift = 1000},
	.patience = 20 * NS_PER_MS,
	.link = 200 * NS_PER_MS,
	.retry = 20 * NS_PER_MS,
	.grace = 6 * NS_PER_MS,
};

static const char *const state_names[] = {
	[ROLE_STARTING] = "starting", [ROLE_OUTSIDE] = "outside",   [ROLE_STANDBY] = "standby",
	[ROLE_FENCING] = "fencing",   [ROLE_CLAIMING] = "claiming", [ROLE_PRIMARY] = "primary",
	[ROLE_HANDING] = "handing",   [ROLE_REFUSED] = "refused",
};

#define FROM(state) (1u << ROLE_##state)

static const unsigned int comes_from[] = {
	[ROLE_STARTING] = 0,
	[ROLE_OUTSIDE] = FROM(STARTING) | FROM(STANDBY) | FROM(FENCING) | FROM(CLAIMING) |
			 FROM(PRIMARY) | FROM(HANDING),
	[ROLE_STANDBY] = FROM(OUTSIDE) | FROM(FENCING) | FROM(CLAIMING) | FROM(HANDING),
	[ROLE_FENCING] = FROM(OUTSIDE) | FROM(STANDBY),
	[ROLE_CLAIMING] = FROM(FENCING),
	[ROLE_PRIMARY] = FROM(STARTING) | FROM(CLAIMING) | FROM(HANDING),
	[ROLE_HANDING] = FROM(PRIMARY),
	[ROLE_REFUSED] = ~0u,
};

const char *role_state_name(enum role_state state)
{
	return state_names[state];
}

void role_become(struct role *r, enum role_state state)
{
	if (r->state == state)
		return;
	assert(comes_from[state] & 1u << r->state);
	log_debug("node %s: %s -> %s, epoch %llu", r->name, state_names[r->state],
		  state_names[state], (unsigned long long)r->epoch);
	r->state = state;
}

static bool is_primary(const struct role *r)
{
	return r->state == ROLE_PRIMARY || r->state == ROLE_HANDING;
}

bool role_is_valid(const struct role *r)
{
	if (is_primary(r) &&
	    (r->seat < 0 || r->roll.primary != (unsigned int)r->seat || r->epoch != r->roll.epoch))
		return false;
	if (!is_primary(r) && r->lease != 0)
		return false;
	if (r->state == ROLE_STANDBY && !r->synced)
		return false;
	if (r->handed && (r->state != ROLE_HANDING || r->lease != 0 || r->placed != r->answered))
		return false;
	return r->answered <= r->placed &&
	       (!r->revision || r->state == ROLE_REFUSED || r->epoch == r->roll.epoch);
}

void role_act(struct role *r, const struct role_action *action)
{
	const unsigned int room = sizeof(r->actions) / sizeof(r->actions[0]);

	assert(r->put - r->get < room);
	r->actions[r->put++ % room] = *action;
}

bool role_next(struct role *r, struct role_action *action)
{
	if (r->get == r->put)
		return false;
	*action = r->actions[r->get++ % (sizeof(r->actions) / sizeof(r->actions[0]))];
	return true;
}

bool role_next_pulse(struct role *r, struct role_action *action)
{
	const unsigned int room = sizeof(r->actions) / sizeof(r->actions[0]);
	bool serves = true;
	unsigned int at;

	for (at = r->get; at != r->put; at++) {
		enum role_what what = r->actions[at % room].what;

		if (what == ROLE_BEAT || what == ROLE_ECHO || (what == ROLE_LEASE && serves))
			break;
		serves = serves && what != ROLE_SERVE;
	}
	if (at == r->put)
		return false;
	*action = r->actions[at % room];
	for (; at != r->get; at--) /* those before it wait on, in their order */
		r->actions[at % room] = r->actions[(at - 1) % room];
	r->get++;
	return true;
}

void role_init(struct role *r, const struct role_times *times, const char *name, uint64_t epoch,
	       uint64_t now)
{
	memset(r, 0, sizeof(*r));
	r->times = *times;
	strncpy(r->name, name, sizeof(r->name) - 1);
	r->epoch = epoch;
	r->seat = r->successor = r->leave = -1;
	r->last_time = now;
	role_look(r);
}

void role_create(struct role *r, const uint8_t uuid[ROLL_UUID_LEN], const struct roll_member *us,
		 bool replace)
{
	assert(r->state == ROLE_STARTING && r->revision == 0);
	r->first = (struct roll){.epoch = r->epoch + 1, .in_sync = ROLL_BIT(0)};
	memcpy(r->first.uuid, uuid, ROLL_UUID_LEN);
	r->first.members[0] = *us;
	r->replace = replace;
}

void role_look(struct role *r)
{
	r->read_at = 0;
	if (r->reading)
		return;
	r->reading = true;
	ROLE_ACT(r, .what = ROLE_READ);
}

void role_swap(struct role *r)
{
	assert(!r->swapping);
	r->swapping = true;
	ROLE_ACT(r, .what = ROLE_SWAP, .id = ++r->swap_id, .revision = r->revision);
}

void role_retire(struct role *r)
{
	r->lease = 0;
	r->handed = false;
	r->successor = r->leave = -1;
	r->join.name[0] = '\0';
	ROLE_ACT(r, .what = ROLE_LEASE, .time = 0);
	ROLE_ACT(r, .what = ROLE_RETIRE, .epoch = r->epoch);
}

void role_refuse(struct role *r, const char *why)
{
	if (is_primary(r))
		role_retire(r);
	r->why = why;
	r->synced = false;
	role_become(r, ROLE_REFUSED);
}

/* ---- a new roll ------------------------------------------------------------------ */

static bool is_first(const struct role *r)
{
	return r->first.epoch != 0 && memcmp(r->roll.uuid, r->first.uuid, ROLL_UUID_LEN) == 0;
}

/* Returns whether the roll makes us primary as a result of our own swap, in this process. */
static bool is_our_turn(const struct role *r)
{
	if (r->state == ROLE_STARTING)
		return is_first(r);
	return r->state == ROLE_CLAIMING && r->roll.epoch == r->want.epoch;
}

static void step_starting(struct role *r, uint64_t now)
{
	if (r->first.epoch == 0) {
		role_follow(r, now, 0);
	} else if (!r->replace) {
		role_refuse(r, "there is a pool already");
	} else {
		r->first.epoch = r->roll.epoch + 1;
		r->want = r->first;
		r->why = "replaces a pool";
	}
}

static void new_epoch(struct role *r, uint64_t now)
{
	enum role_state was = r->state;
	bool ours = r->roll.primary == (unsigned int)r->seat;

	r->epoch = r->roll.epoch;
	ROLE_ACT(r, .what = ROLE_SAVE, .epoch = r->epoch);
	if (ours && is_our_turn(r)) {
		role_primary_begin(r, now);
	} else if (was == ROLE_STARTING) {
		step_starting(r, now);
	} else if (is_primary(r)) {
		r->synced = r->handed;
		role_retire(r);
		role_follow(r, now, r->answered);
	} else {
		role_follow_fenced(r, now);
	}
}

/* Returns NULL, or why this roll cannot be a successor of the one that we have followed. */
static const char *contradiction_of(const struct role *r, const struct roll *roll)
{
	if (r->revision && memcmp(roll->uuid, r->roll.uuid, ROLL_UUID_LEN) != 0 &&
	    r->state != ROLE_STARTING)
		return "the roll is that of another pool: the pool was created again";
	if (roll->epoch < r->epoch)
		return "the epoch of the roll is older than one that this node has seen";
	if (r->seat >= 0 && roll_seat(roll, r->name) < 0)
		return "this node was removed from the pool";
	return NULL;
}

static void adopt_roll(struct role *r, uint64_t now, uint64_t revision, const struct roll *roll)
{
	const char *fault;

	if (revision <= r->revision || r->state == ROLE_REFUSED)
		return;
	fault = contradiction_of(r, roll);
	if (fault) {
		role_refuse(r, fault);
		return;
	}
	r->roll = *roll;
	r->revision = revision;
	r->seat = roll_seat(roll, r->name);
	/* A swap from an earlier revision has happened by now, or never will. */
	r->swapping = r->unresolved = false;
	r->maybe = 0;
	r->why = NULL;
	if (roll->epoch > r->epoch || r->state == ROLE_STARTING)
		new_epoch(r, now);
	else if (is_primary(r))
		role_primary_roll(r, now);
	else
		role_standby_roll(r, now);
}

/* ---- events ---------------------------------------------------------------------- */

/* Gives the node a grace period if it was stopped, that is, had no event for half a lease: rule 9. */
void role_begin(struct role *r, uint64_t now)
{
	if (now > r->last_time && now - r->last_time > r->times.lease.lease / 2)
		r->grace_until = now + r->times.grace;
	if (now > r->last_time)
		r->last_time = now;
}

static void create_roll(struct role *r)
{
	if (r->first.epoch == 0 || r->swapping || r->reading || r->read_at)
		return;
	r->want = r->first;
	role_swap(r);
}

void role_step(struct role *r, uint64_t now)
{
	if (r->read_at && now >= r->read_at)
		role_look(r);
	switch (r->state) {
	case ROLE_STARTING:
		create_roll(r);
		break;
	case ROLE_OUTSIDE:
	case ROLE_STANDBY:
	case ROLE_FENCING:
	case ROLE_CLAIMING:
		role_standby_step(r, now);
		break;
	case ROLE_PRIMARY:
	case ROLE_HANDING:
		role_primary_step(r, now);
		break;
	case ROLE_REFUSED:
		break;
	}
	assert(role_is_valid(r));
}

void role_time(struct role *r, uint64_t now)
{
	role_begin(r, now);
	role_step(r, now);
}

void role_changed(struct role *r, uint64_t now, uint64_t revision, const struct roll *roll)
{
	role_begin(r, now);
	/* A watch may report late. A node that starts reads the roll itself. */
	if (r->state != ROLE_STARTING)
		adopt_roll(r, now, revision, roll);
	role_step(r, now);
}

void role_read(struct role *r, uint64_t now, int error, uint64_t revision, const struct roll *roll)
{
	role_begin(r, now);
	r->reading = false;
	if (error || (revision == 0 && r->first.epoch == 0)) {
		r->why = error	       ? "the backend of the roll does not answer"
			 : r->revision ? "the roll is gone"
				       : "there is no pool yet";
		r->read_at = now + r->times.retry;
	} else if (revision) {
		adopt_roll(r, now, revision, roll);
	}
	role_step(r, now);
}

void role_swapped(struct role *r, uint64_t now, uint64_t id, enum roll_result result,
		  uint64_t revision)
{
	struct roll won = r->want;

	role_begin(r, now);
	if (!r->swapping || id != r->swap_id)
		return; /* a later revision of the roll has been seen meanwhile */
	r->swapping = false;
	if (result == ROLL_WON) {
		adopt_roll(r, now, revision, &won);
	} else if (result == ROLL_LOST) {
		role_look(r);
	} else {
		r->unresolved = true;
		r->read_at = now + r->times.retry;
	}
	role_step(r, now);
}
