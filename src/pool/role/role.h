/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * role.h - what a node is in its pool, and what it may do: a pure state machine. What happened goes in, with the time;
 * what to do about it comes out (role_next()). No clock, no socket, no thread, no memory of its own.
 *
 *	STARTING --- there is a roll ---> OUTSIDE <--- copy begins, torn record, not in the roll's set --- STANDBY
 *	   |                                 |                                                              ^  |
 *	   |                                 +---------------- told that its copy is complete --------------+  |
 *	   | made the roll                                                                                     |
 *	   v                                              primary is silent, or hands over, or is another now  |
 *	PRIMARY <--- swap won --- CLAIMING <--- old primary cannot reach it any more --- FENCING <-------------+
 *	   |  ^
 *	   v  | taken back (a swap)
 *	HANDING --- the roll names another ---> FENCING               REFUSED: the roll and this node contradict
 *
 * The rules, each with its reason:
 *
 *  1. A record is answered when every standby that is in sync has it, and so has every one that may be: a swap that
 *     adds one counts from when it is asked for, one that drops one when it is known to be won. So whatever was
 *     answered is on whoever can be primary next.
 *  2. The primary's reads are good until lease_until() of the oldest of its standbys' last answers. With no standby in
 *     sync there is nobody who could take over, and they are always good.
 *  3. A standby takes over when it has heard nothing for lease_silence(), if its own memory is in sync by its own
 *     knowledge, and the roll says so: memory that was lost since is known to the node only, a drop is known to the
 *     roll only.
 *  4. It fences first: nothing that the old primary sends is taken any more, what had arrived whole is applied. Then
 *     it swaps, on the roll's revision. A lost swap is followed by a look at the roll.
 *  5. The backend's silence is waited out. A swap whose fate is not known may happen at any time until the roll is seen
 *     at a later revision, so it is tried again (from the same revision, that only one can win).
 *  6. What carries an epoch that is not ours is not heard, not echoed and not answered. A higher one sends us to the roll.
 *  7. A node is never primary because it was. It begins OUTSIDE, whatever the roll says.
 *  8. To hand over, a primary takes no changes, then gives up its lease, then names the roll's revision from which the
 *     other may swap. To take that back, it swaps the roll itself.
 *  9. A node that was stopped looks around for a moment before it judges others by their silence.
 * 10. Silence is not waited for where it is proven (life.h) that the process that was primary in this epoch has ended. That is of
 *     one life: who was in that seat in another epoch may be another process. A connection that breaks proves nothing.
 *
 * Time: `now` is read after the event was seen (a beat is looked at first, the clock then), and before what follows is
 * sent. The other way around, a pause in between breaks rule 2.
 *
 * Includes no other room of src/pool.
 */
#ifndef STAG_POOL_ROLE_H
#define STAG_POOL_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/role/lease.h"
#include "pool/role/roll.h"

enum role_state {
	ROLE_STARTING,
	ROLE_OUTSIDE,
	ROLE_STANDBY,
	ROLE_FENCING,
	ROLE_CLAIMING,
	ROLE_PRIMARY,
	ROLE_HANDING,
	ROLE_REFUSED,
};

struct role_times {
	struct lease_terms lease;
	uint64_t
		patience; /* ns that a standby may take to confirm or to answer a beat before it is dropped */
	uint64_t link;	/* ns for a link to come up, for a handing over to be taken */
	uint64_t retry; /* ns between two tries at a backend that does not answer */
	uint64_t grace; /* ns to look around after having been stopped */
};

extern const struct role_times role_defaults;

enum role_what {
	ROLE_READ, /* read the roll: role_read() */
	ROLE_SWAP, /* swap it for role_wanted(), from `revision`: role_swapped() with `id` */
	ROLE_FENCE, /* cut the link to whoever was our primary, apply what came whole: role_fenced() */
	ROLE_FOLLOW, /* be linked to `seat` as its standby; try until another is named. Only this drops the old link */
	ROLE_LEASE,  /* from now on the region may be read until `time`, 0: not at all */
	ROLE_SERVE,  /* we are primary of `epoch`: let clients in */
	ROLE_RETIRE, /* we are not any more: clients, standbys' links and what was not answered go */
	ROLE_BEAT,   /* send a beat of `epoch` to standby `seat`: `time` is what it is to echo */
	ROLE_ECHO,   /* answer primary `seat`: `epoch` and `time` are the beat's own */
	ROLE_RESYNC,   /* bring standby `seat` up to date: role_resynced() */
	ROLE_CUT,      /* cut the link of standby `seat` */
	ROLE_ANSWER,   /* apply and answer what is numbered up to `number` */
	ROLE_HANDOVER, /* tell standby `seat`: take over at `number`, from `revision` of the roll */
	ROLE_SAVE,     /* keep `epoch` in the state directory */
};

struct role_action {
	enum role_what what;
	unsigned int seat;
	uint64_t id;
	uint64_t epoch;
	uint64_t number;
	uint64_t revision;
	uint64_t time;
};

/* A standby, as its primary knows it. */
struct role_peer {
	bool linked;
	bool ready;	    /* has all, and is sent all that comes */
	bool dropping;	    /* is to be taken out of the roll's set */
	uint64_t since;	    /* when its link came up, or began to be missed */
	uint64_t promised;  /* sent time of the last beat that it answered */
	uint64_t confirmed; /* number up to which it has the records */
	uint64_t progress;  /* when that last moved, or began to be waited for */
};

enum role_fence { ROLE_FENCE_FOLLOW, ROLE_FENCE_CLAIM, ROLE_FENCE_TAKE };

struct role {
	struct role_times times;
	char name[ROLL_NAME_LEN];
	enum role_state state;
	const char *why; /* of REFUSED, and what is waited for; NULL: nothing to say */

	struct roll roll;
	uint64_t revision;  /* of roll; 0: none was seen */
	uint64_t epoch;	    /* never goes back */
	int seat;	    /* ours, -1: not a member */
	bool synced;	    /* our memory was complete in `epoch`, as far as it depends on us */
	uint64_t last_time; /* of the last event */
	uint64_t grace_until;

	bool reading;
	uint64_t read_at; /* when to read next, 0: no need to */
	bool swapping;
	bool unresolved; /* a swap from `revision` may yet be done */
	uint64_t swap_id;
	struct roll want;
	uint32_t maybe;	   /* seats that such a swap adds */
	struct roll first; /* the roll to make, while STARTING; epoch 0: do not make one */
	bool replace;	   /* even if there is one */

	/* primary */
	struct role_peer peers[ROLL_MAX_NODES];
	uint64_t placed;   /* number of the last record made */
	uint64_t answered; /* applied here, and answered */
	uint64_t lease;	   /* what the last ROLE_LEASE said */
	uint64_t next_beat, last_beat;
	int successor; /* seat that is to take over, -1: none */
	bool handed;   /* told it to */
	uint64_t handing_since;
	struct roll_member join; /* to become a member; no name: nobody */
	int leave;		 /* seat to be freed, -1: none */

	/* standby */
	uint64_t heard;
	uint64_t gone; /* epoch whose primary has ended, 0: none that we know of */
	uint64_t gone_at;
	enum role_fence fence;
	uint64_t number;     /* at which it was fenced */
	uint64_t take_epoch; /* what the handing over says; 0: there was none */
	uint64_t take_number;
	uint64_t take_revision;
	bool take_leaves;

	struct role_action actions[64];
	unsigned int put, get;
};

const char *role_state_name(enum role_state state);
bool role_is_valid(
	const struct role *r); /* what is so after every event; tests and debug builds ask */

/* name: ours. epoch: the highest that the state directory knows, 0 if none. */
void role_init(struct role *r, const struct role_times *times, const char *name, uint64_t epoch,
	       uint64_t now);
/*
 * Make a new pool, with us as its primary and only member: instead of joining one, right after role_init(). REFUSED
 * if there is one, unless `replace`: then what that held is given up.
 */
void role_create(struct role *r, const uint8_t uuid[ROLL_UUID_LEN], const struct roll_member *us,
		 bool replace);
bool role_next(struct role *r,
	       struct role_action *action); /* until there is none, after each event */
static inline const struct roll *role_wanted(const struct role *r)
{
	return &r->want;
}

/* ---- events, of any node ------------------------------------------------------ */

void role_time(struct role *r, uint64_t now); /* at least once a beat */
/* revision 0: there is no roll. error: the backend did not answer. */
void role_read(struct role *r, uint64_t now, int error, uint64_t revision, const struct roll *roll);
void role_changed(struct role *r, uint64_t now, uint64_t revision,
		  const struct roll *roll); /* of a watch */
void role_swapped(struct role *r, uint64_t now, uint64_t id, enum roll_result result,
		  uint64_t revision);

/* ---- events of a standby -------------------------------------------------------- */

/* A beat of whom we follow. revision: the roll's, as it knows it. */
void role_heard(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent,
		uint64_t revision);
/* It is proven that the process that was primary of `epoch`, in this seat, has ended, with its adapter and its lease. */
void role_gone(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch);
void role_fenced(struct role *r, uint64_t now, uint64_t number); /* of the last record applied */
void role_copying(struct role *r,
		  uint64_t now); /* our memory is being brought up to date: it is not in sync */
void role_synced(struct role *r, uint64_t now,
		 uint64_t epoch); /* and now it is; before the primary is told so */
void role_torn(struct role *r,
	       uint64_t now); /* a record that does not follow on the last: not in sync */
/* leaves: whoever hands over is about to end, and is not to be waited for. */
void role_handover(struct role *r, uint64_t now, uint64_t epoch, uint64_t number, uint64_t revision,
		   bool leaves);

/* ---- events of a primary --------------------------------------------------------- */

/*
 * The standby in `seat` has linked itself; it says whether its memory is in sync, in which epoch, up to which record.
 * An older link of its is taken down first.
 * 0: it is ours (ROLE_RESYNC follows where it is needed). -EAGAIN: not now, it may try again. -EPERM: we are not primary.
 */
int role_link_up(struct role *r, uint64_t now, unsigned int seat, bool synced, uint64_t epoch,
		 uint64_t number);
void role_link_down(struct role *r, uint64_t now, unsigned int seat);
/* seat has all records up to number, knows that it is in sync, and is sent all that follow. */
void role_resynced(struct role *r, uint64_t now, unsigned int seat, uint64_t number);
void role_echoed(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent);
void role_placed(struct role *r, uint64_t now,
		 uint64_t number); /* made, and on its way to all standbys */
void role_confirmed(struct role *r, uint64_t now, unsigned int seat, uint64_t number);
void role_stuck(struct role *r, uint64_t now,
		unsigned int seat); /* no room for more, for too long */

int role_switch(struct role *r, uint64_t now,
		unsigned int seat); /* hand over to this one: -EINVAL, -EBUSY, -EPERM */
int role_join(struct role *r, uint64_t now,
	      const struct roll_member *member); /* -EBUSY, -ENOSPC: there will be no seat */
int role_leave(struct role *r, uint64_t now, unsigned int seat);

/* ---- between role.c, standby.c and primary.c ---------------------------------- */

static inline bool role_sits(const struct role *r, uint32_t seats)
{
	return r->seat >= 0 && seats & ROLL_BIT(r->seat);
}

void role_act(struct role *r, const struct role_action *action);
#define ROLE_ACT(r, ...) role_act(r, &(struct role_action){__VA_ARGS__})
void role_become(struct role *r, enum role_state state);
void role_refuse(struct role *r, const char *why);
void role_begin(struct role *r, uint64_t now); /* before an event */
void role_step(struct role *r, uint64_t now); /* after it: what follows from what is known by now */
void role_look(struct role *r);		      /* at the roll, if nobody is at it */
void role_swap(struct role *r);		      /* the roll for r->want */
void role_standby_step(struct role *r, uint64_t now);
void role_primary_step(struct role *r, uint64_t now);
/* The roll is another: of the same epoch, or of a new one. */
void role_standby_roll(struct role *r, uint64_t now);
void role_primary_roll(struct role *r, uint64_t now);
void role_follow(struct role *r, uint64_t now,
		 uint64_t number); /* the roll's primary; our memory is at number */
void role_follow_fenced(struct role *r,
			uint64_t now); /* the same, once nothing more can come from the old one */
void role_primary_begin(struct role *r, uint64_t now);
void role_retire(struct role *r);

/* ---- questions ---------------------------------------------------------------------- */

bool role_may_change(const struct role *r,
		     uint64_t now); /* take a request that changes something */
bool role_may_read(const struct role *r, uint64_t now);

#endif
