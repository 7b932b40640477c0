/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * role.h - the role of a node in its pool, and what it may do: a pure state machine. Events go in, with the time; actions
 * come out (role_next()). It has no clock, no socket, no thread, and allocates no memory.
 *
 *	STARTING --- the roll exists ---> OUTSIDE <------------- copy begins, torn record ------------------ STANDBY
 *	   |                                 |                                                           ^  |
 *	   |                                 +----------------- its copy is complete --------------------+  |
 *	   | created the roll                                                                               |
 *	   v                                      the primary is silent, or hands over, or another is named |
 *	PRIMARY <--- swap won --- CLAIMING <--- the old primary cannot reach it any more --- FENCING <------+
 *	   |  ^
 *	   v  | taken back (a swap)
 *	HANDING
 *
 * If the roll names another primary, PRIMARY and HANDING become OUTSIDE, or STANDBY after a handover; OUTSIDE
 * is fenced like STANDBY. FENCING and CLAIMING return to STANDBY or OUTSIDE if this node is not to be primary.
 * REFUSED, from any state: the roll and this node contradict each other.
 *
 * The rules, each with its reason. docs/HA.md has them in the same words; a test compares the two.
 *
 *  1. A record is acknowledged when every standby that is in sync has it, confirmed by reading behind it from the
 *     standby's memory, and so has every standby that may be in sync: a swap of the roll that adds a standby counts
 *     from when it is requested, a swap that drops one counts when it is known to have succeeded. So every node
 *     that can be primary next has every acknowledged record. A standby that is added must have all records that
 *     were acknowledged before.
 *  2. The primary serves within a lease. A standby that echoes a heartbeat promises not to promote itself for
 *     `promote` after it received the heartbeat. The primary serves for `lease` after it sent the heartbeat, less
 *     what two clocks may differ by; the oldest of its standbys' promises counts. No clock is compared with
 *     another. When the lease has expired, the adapter refuses access to the region. A primary without a standby in
 *     sync needs no lease, because no other node can be promoted. Both times are settings and may differ between
 *     nodes while they are being changed. So a primary sends its own to each standby, and a node whose `promote` is
 *     less than the primary's `lease`, or whose `lease` is more than the primary's `promote`, does not follow: it
 *     reports the reason, and stays outside until it is restarted with other settings. To change them while the
 *     pool is in use, raise `promote` on all nodes first, then `lease`.
 *  3. A standby promotes itself only if its memory is in sync by its own knowledge and by the roll. Only the node
 *     knows that its memory was lost; only the roll knows that the node was dropped.
 *  4. A standby fences first: it moves the old primary's queue pair to the error state, and applies the records
 *     that arrived whole. Then it swaps the roll, from the revision that it has seen. If it loses the swap, it
 *     reads the roll.
 *  5. A swap with an unknown result may still happen until the roll is seen at a later revision. The node waits for
 *     a backend that does not respond, and tries the swap again from the same revision, from which only one swap
 *     can succeed.
 *  6. A message that carries another epoch is ignored: it is not counted as a heartbeat, not echoed, not answered.
 *     A higher epoch makes the node read the roll.
 *  7. A node is never primary because it was primary before. It begins outside, whatever the roll says, and is
 *     resynchronised.
 *  8. To hand over, a primary stops taking changes, then gives up its lease, then names the revision of the roll
 *     from which the successor may swap. To take the handover back, the primary swaps the roll itself. The other
 *     nodes in sync stay in sync if their memory is exactly at the record of the handover.
 *  9. A node that was stopped listens for a moment before it judges others by their silence.
 * 10. A standby does not wait for `promote` if it is proven that the primary's process has ended. With `file:` all
 *     nodes are on one machine, and each holds a lock on a file beside the roll (`ROLL.NAME.life`). Each process
 *     creates a new file with a new token in it, and sends the token to the standbys that connect. The kernel
 *     releases the lock when nothing of the process runs any more; then its adapter, which is part of the process,
 *     serves nobody, and its lease is void. The proof is about one process, the primary of one epoch: another
 *     process may have been in that seat in another epoch. A broken connection proves nothing; it only makes a
 *     standby check. A process that is stopped, or has left a forked child, keeps its lock, and so does a restarted
 *     one: then the silence counts, as it does with etcd, with adapters that are not part of the process, and on
 *     network file systems, where locks may be lost.
 * 11. The body of a long value (more than 256 KiB) is written directly to the standbys' memory, in pieces of 128
 *     KiB, by RDMA Writes from the primary's memory, and not through the log. No client reads the body before the
 *     record that makes it a value, which follows on the same queue pairs: the confirmation of that record confirms
 *     the bytes. A record that changes nothing follows each piece, so that rules 1 and 8 hold for pieces, too.
 *     Records are applied later than they arrive, whereas a write takes effect at once: so no piece is written
 *     before all records that may touch its place are applied on every node. While a standby copies the region,
 *     pieces are sent as records, in their order. At most 1 MiB of pieces is in flight to a standby, because
 *     heartbeats and short changes queue behind them.
 *
 * Time: a caller reads `now` after it has seen the event (it reads a heartbeat first, the clock then) and before it sends what
 * follows from it. The other way around, a pause in between breaks rule 2.
 *
 * Not safe for threads: who calls from several holds a lock. One thread alone makes all events but those of the pulse.
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
		patience; /* ns within which a standby must confirm a record, or echo a heartbeat, before it is dropped */
	uint64_t link;	/* ns for a link to come up, and for a successor to accept a handover */
	uint64_t retry; /* ns between retries at a backend that does not respond */
	uint64_t grace; /* ns to listen after having been stopped */
};

extern const struct role_times role_defaults;

enum role_what {
	ROLE_READ, /* read the roll, then call role_read() */
	ROLE_SWAP, /* swap the roll for role_wanted(), from `revision`, then call role_swapped() with `id` */
	ROLE_FENCE, /* cut the link to the old primary, apply the records that arrived whole, then call role_fenced() */
	ROLE_FOLLOW, /* connect to `seat` as its standby, and retry until another seat is named. Only this drops the old link */
	ROLE_LEASE,  /* let clients read the region until `time`; 0: not at all */
	ROLE_SERVE,  /* we are primary of `epoch`: admit clients */
	ROLE_RETIRE, /* we are primary no more: drop clients, links of standbys, and what is not acknowledged */
	ROLE_BEAT, /* send a heartbeat of `epoch` to standby `seat`, which is to echo `time` */
	ROLE_ECHO, /* echo a heartbeat of primary `seat`: `epoch` and `time` are the heartbeat's */
	ROLE_RESYNC, /* resynchronise standby `seat`, then call role_resynced() */
	ROLE_CUT,    /* cut the link of standby `seat` */
	ROLE_ANSWER, /* apply and acknowledge the records up to `number` */
	ROLE_HANDOVER, /* tell standby `seat` to promote itself at record `number`, from `revision` of the roll */
	ROLE_SAVE, /* store `epoch` in the state directory */
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

/* A standby, as its primary sees it. */
struct role_peer {
	bool linked;
	bool ready;	    /* has every record, and is sent each new one */
	bool dropping;	    /* to be removed from the roll's in-sync set */
	uint64_t since;	    /* when its link came up, or went down */
	uint64_t promised;  /* send time of the last heartbeat that it echoed */
	uint64_t confirmed; /* number of the last record that it has */
	uint64_t progress;  /* when `confirmed` last advanced, or began to lag */
};

/* The reason for fencing: to follow a new primary, to be promoted after silence, or to accept a handover. */
enum role_fence { ROLE_FENCE_FOLLOW, ROLE_FENCE_CLAIM, ROLE_FENCE_TAKE };

struct role {
	struct role_times times;
	char name[ROLL_NAME_LEN];
	enum role_state state;
	const char *why; /* reason for REFUSED, or for waiting; NULL: none */

	struct roll roll;
	uint64_t revision;  /* of `roll`; 0: none was read yet */
	uint64_t epoch;	    /* the highest seen: never decreases */
	int seat;	    /* ours; -1: not a member */
	bool synced;	    /* our memory was complete in `epoch`, as far as this node knows */
	uint64_t last_time; /* time of the last event */
	uint64_t grace_until;

	bool reading;
	uint64_t read_at; /* when to read the roll next; 0: no need */
	bool swapping;
	bool unresolved; /* a swap from `revision` may still happen */
	uint64_t swap_id;
	struct roll want;
	uint32_t maybe;	   /* seats that this swap would add to the in-sync set */
	struct roll first; /* the roll to create, while STARTING; epoch 0: create none */
	bool replace;	   /* even if a roll exists */

	/* As primary. */
	struct role_peer peers[ROLL_MAX_NODES];
	uint64_t placed;   /* number of the last record that was made */
	uint64_t answered; /* number of the last record that was applied here and acknowledged */
	_Atomic uint64_t
		lease; /* time of the last ROLE_LEASE; atomic, because the pulse extends it */
	uint64_t next_beat, last_beat;
	int successor; /* seat that a handover goes to; -1: none */
	bool handed;   /* ROLE_HANDOVER was sent */
	uint64_t handing_since;
	struct roll_member join; /* node that wants to become a member; an empty name: none */
	int leave;		 /* seat to be freed; -1: none */

	/* As standby. */
	uint64_t heard;	  /* when the primary's last heartbeat was received */
	uint64_t gone;	  /* epoch whose primary is proven to have ended; 0: none */
	uint64_t gone_at; /* when the proof arrived */
	enum role_fence fence;
	uint64_t number;     /* of the last record applied when it was fenced */
	uint64_t take_epoch; /* from the handover that was received; 0: none was */
	uint64_t take_number;
	uint64_t take_revision;
	bool take_leaves;

	struct role_action actions[64];
	unsigned int put, get;
};

const char *role_state_name(enum role_state state);
/* Checks the invariants that hold after every event; tests and debug builds call it. */
bool role_is_valid(const struct role *r);

/* Takes this node's name, and the highest epoch that its state directory knows (0: none). */
void role_init(struct role *r, const struct role_times *times, const char *name, uint64_t epoch,
	       uint64_t now);
/*
 * Creates a new pool, with this node as its primary and only member, instead of joining one. Called right after
 * role_init(). The state becomes REFUSED if a pool exists, unless `replace`, which gives up what that pool held.
 */
void role_create(struct role *r, const uint8_t uuid[ROLL_UUID_LEN], const struct roll_member *us,
		 bool replace);
/* Fetches the next action. Returns false if there is none. Callers fetch all actions after each event. */
bool role_next(struct role *r, struct role_action *action);
/*
 * Fetches the next ROLE_BEAT, ROLE_ECHO or ROLE_LEASE, before other actions that wait: to be carried out at once. Only
 * a ROLE_LEASE waits for a ROLE_SERVE before it: until then the memory lacks records, and the epoch may not be saved.
 */
bool role_next_pulse(struct role *r, struct role_action *action);
static inline const struct roll *role_wanted(const struct role *r)
{
	return &r->want;
}

/* ---- events, on any node ------------------------------------------------------ */

void role_time(struct role *r, uint64_t now); /* at least once per heartbeat interval */
/* Reports a read of the roll. revision 0: there is no roll. error: the backend did not respond. */
void role_read(struct role *r, uint64_t now, int error, uint64_t revision, const struct roll *roll);
void role_changed(struct role *r, uint64_t now, uint64_t revision,
		  const struct roll *roll); /* reported by a watch */
void role_swapped(struct role *r, uint64_t now, uint64_t id, enum roll_result result,
		  uint64_t revision);

/* ---- events of the pulse --------------------------------------------------------- */

/*
 * These keep heartbeats and promises going while the caller of the other events is busy, in another thread, under
 * the caller's lock. They decide nothing: no promotion, no drop, no change of the roll. ROLE_BEAT, ROLE_ECHO and
 * ROLE_LEASE may follow, and nothing else. Each event is reported once more in the usual way, which has no effect on
 * promises then.
 */
void role_pulse(struct role *r, uint64_t now); /* sends heartbeats that are due */
void role_pulse_heard(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch,
		      uint64_t sent);
void role_pulse_echoed(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch,
		       uint64_t sent);

/* ---- events of a standby -------------------------------------------------------- */

/* Reports a heartbeat of the primary that we follow. revision: the latest of the roll that the primary knows. */
void role_heard(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent,
		uint64_t revision);
/*
 * Reports proof that the process that was primary of `epoch`, in this seat, has ended, and with it its adapter and
 * its lease.
 */
void role_gone(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch);
/* Reports that ROLE_FENCE is done. number: of the last record applied. */
void role_fenced(struct role *r, uint64_t now, uint64_t number);
/* Reports that a resynchronisation began: our memory is not in sync. */
void role_copying(struct role *r, uint64_t now);
/* Reports that the resynchronisation is complete; called before the primary is informed. */
void role_synced(struct role *r, uint64_t now, uint64_t epoch);
/* Reports bytes that are no record after the last one: our memory is not in sync. */
void role_torn(struct role *r, uint64_t now);
/* Reports a handover to us. leaves: the old primary is about to stop, and does not stay in the in-sync set. */
void role_handover(struct role *r, uint64_t now, uint64_t epoch, uint64_t number, uint64_t revision,
		   bool leaves);

/* ---- events of a primary --------------------------------------------------------- */

/*
 * Reports that the standby in `seat` has connected, and says whether its memory is in sync, in which epoch, and
 * up to which record. The caller reports an older link of that standby down first. Returns 0 if we accept it
 * (ROLE_RESYNC follows if needed), -EAGAIN if it may retry later, -EPERM if we are not primary, or the seat is
 * not another member's.
 */
int role_link_up(struct role *r, uint64_t now, unsigned int seat, bool synced, uint64_t epoch,
		 uint64_t number);
void role_link_down(struct role *r, uint64_t now, unsigned int seat);
/* Reports that a standby has all records up to number, knows that it is in sync, and is sent all that follow. */
void role_resynced(struct role *r, uint64_t now, unsigned int seat, uint64_t number);
void role_echoed(struct role *r, uint64_t now, unsigned int seat, uint64_t epoch, uint64_t sent);
/* Reports that the records up to number are made, and in flight to all standbys. */
void role_placed(struct role *r, uint64_t now, uint64_t number);
void role_confirmed(struct role *r, uint64_t now, unsigned int seat, uint64_t number);
/* Reports that the standby's ring was full for too long. */
void role_stuck(struct role *r, uint64_t now, unsigned int seat);

/*
 * Requests to a primary; each returns -EPERM on another node. role_switch() starts a handover to a seat:
 * -EINVAL if it is not another one in sync, -EBUSY during a handover. role_join() adds a member or changes its
 * address: -EBUSY if another one is being added, -ENOSPC if all seats are taken. role_leave() frees a seat:
 * -EINVAL if it is free or ours, -EBUSY if another one is being freed.
 */
int role_switch(struct role *r, uint64_t now, unsigned int seat);
int role_join(struct role *r, uint64_t now, const struct roll_member *member);
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
void role_begin(struct role *r, uint64_t now); /* called before each event */
void role_step(struct role *r,
	       uint64_t now);	/* called after each event: takes every step that is possible now */
void role_look(struct role *r); /* reads the roll, unless a read is in flight */
void role_swap(struct role *r); /* swaps the roll for r->want */
void role_standby_step(struct role *r, uint64_t now);
void role_primary_step(struct role *r, uint64_t now);
/* Handle a new revision of the roll: in the same epoch, or in a new one. */
void role_standby_roll(struct role *r, uint64_t now);
void role_primary_roll(struct role *r, uint64_t now);
/* Follows the roll's primary; our memory is at record `number`. */
void role_follow(struct role *r, uint64_t now, uint64_t number);
/* Does the same once the old primary cannot reach us any more. */
void role_follow_fenced(struct role *r, uint64_t now);
void role_primary_begin(struct role *r, uint64_t now);
void role_retire(struct role *r);

/* ---- queries ------------------------------------------------------------------------ */

bool role_may_change(const struct role *r, uint64_t now); /* whether a change may be accepted */
bool role_may_read(const struct role *r, uint64_t now);

#endif
