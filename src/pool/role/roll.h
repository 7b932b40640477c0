/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roll.h - the roll (the membership record of a pool), and its backends.
 *
 * The roll says which node is primary, in which epoch, and which nodes are in sync and may become primary. A backend keeps
 * it: etcd, or a locked file on one machine. It is read and changed only at failures and at changes of membership, and
 * only by compare-and-swap: a swap names the revision that it starts from.
 *
 *	roll.c          validity, the next primary, JSON
 *	rolls.c         asynchronous access: a thread, a queue of requests, a queue of answers
 *	roll_file.c roll_etcd.c     the backends: read, swap, wait for a change
 */
#ifndef STAG_POOL_ROLL_H
#define STAG_POOL_ROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/name.h"

#define ROLL_MAX_NODES	 8
#define ROLL_NAME_LEN	 NAME_LEN
#define ROLL_ADDRESS_LEN 92 /* room for host:port with its terminating zero */
#define ROLL_UUID_LEN	 16
#define ROLL_MAX_TEXT	 8192 /* bytes of its JSON form */

/* A node of the pool. Its index in the roll, its seat, does not change while it is a member. */
struct roll_member {
	char name[ROLL_NAME_LEN]; /* empty: the seat is free */
	char address[ROLL_ADDRESS_LEN];
	uint32_t order; /* rank for promotion: see roll_next() */
};

struct roll {
	uint8_t uuid[ROLL_UUID_LEN]; /* of the pool */
	uint64_t epoch;		     /* one more with every new primary */
	uint64_t base;		     /* number of the last record before this epoch */
	uint32_t primary;	     /* its seat */
	uint32_t
		in_sync; /* bit set of the seats that are in sync, and may be primary next; includes the primary */
	struct roll_member members[ROLL_MAX_NODES];
};

#define ROLL_BIT(seat) (1u << (seat))

bool roll_is_valid(const struct roll *roll);
int roll_seat(const struct roll *roll, const char *name); /* -ENOENT */
int roll_free_seat(const struct roll *roll);		  /* -ENOSPC */
bool roll_in_sync(const struct roll *roll, unsigned int seat);

/*
 * The one rule for which node is primary next, at a failover and at a switchover that names no node: among the seats that
 * are in sync, other than `excluded`, the smallest `order`, then the lowest seat.
 *
 * roll_next() returns that seat, or -ENOENT if no other seat is in sync. roll_before() counts the seats that the rule
 * puts before `seat`, which need not be in sync itself: a standby waits longer for each of them.
 */
int roll_next(const struct roll *roll, unsigned int excluded);
unsigned int roll_before(const struct roll *roll, unsigned int seat, unsigned int excluded);

/* Writes JSON, with a final newline. Returns its length, or -ENOSPC. room is at least 1. */
int roll_to_text(const struct roll *roll, uint64_t revision, char *text, size_t room);
/* Returns -EBADMSG if the text is not a roll; *why says what is wrong with it. revision may be NULL. */
int roll_from_text(const char *text, size_t len, struct roll *roll, uint64_t *revision,
		   const char **why);

/* ---- backends ---------------------------------------------------------------- */

/*
 * Access to a roll backend, in a thread of its own, so that no caller waits for it. Results are fetched with
 * rolls_next() when rolls_fd() is readable. Requests are carried out one after the other, in order.
 *
 * where:  file:/path/of/the/roll
 *         etcd://host:port[,host:port...]/key[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE&timeout=MS]
 *         etcds://... the same with TLS
 */
struct rolls;

enum roll_result {
	ROLL_READ,    /* a read has succeeded; revision 0: there is no roll */
	ROLL_WON,     /* a swap has succeeded; revision is the new one */
	ROLL_LOST,    /* a swap has failed, and never will happen: the roll had changed before */
	ROLL_UNKNOWN, /* the backend did not respond: a swap may have happened, or may still happen */
	ROLL_CHANGED, /* unrequested: another process changed the roll. May come late, come twice, or be left out */
};

struct roll_answer {
	enum roll_result result;
	uint64_t id;	   /* of the request, 0 for ROLL_CHANGED */
	uint64_t revision; /* of roll */
	struct roll roll;  /* with ROLL_READ and ROLL_CHANGED */
	int error;	   /* with ROLL_UNKNOWN: the reason, -errno */
};

/* Returns NULL, or what is wrong with the text of `where`. Nothing is opened. */
const char *roll_place_fault(const char *where);
/* Reads the roll in the calling thread. Returns 0, with *revision 0 if there is no roll yet, or -errno. */
int roll_read_once(const char *where, struct roll *roll, uint64_t *revision);

int rolls_open(const char *where, struct rolls **rolls);
/* Takes NULL. Waits for the request in flight, for as long as the timeouts of the backend let it take. */
void rolls_close(struct rolls *rolls);

int rolls_fd(const struct rolls *rolls); /* readable while an answer is queued */
int rolls_read(struct rolls *rolls, uint64_t id);
/* revision 0: expects that there is no roll yet. */
int rolls_swap(struct rolls *rolls, uint64_t id, uint64_t revision, const struct roll *roll);
int rolls_watch(struct rolls *rolls); /* from now on, report changes as ROLL_CHANGED */
bool rolls_next(struct rolls *rolls, struct roll_answer *answer);

/* ---- between rolls.c and the backends: called only by its thread, except wake ----------- */

struct roll_backend {
	const struct roll_backend_ops *ops;
	struct rolls *rolls;
};

struct roll_backend_ops {
	/* Returns 0, with *revision 0 if there is no roll, or -errno. */
	int (*read)(struct roll_backend *e, struct roll *roll, uint64_t *revision);
	/* Returns ROLL_WON, ROLL_LOST, or ROLL_UNKNOWN with *error set. */
	enum roll_result (*swap)(struct roll_backend *e, uint64_t *revision,
				 const struct roll *roll, int *error);
	/* Waits until wake is called. Meanwhile, if watching, reports changes with rolls_noticed(). */
	void (*idle)(struct roll_backend *e, bool watching);
	/* Called by any thread. A call before idle ends the next idle at once. */
	void (*wake)(struct roll_backend *e);
	void (*close)(struct roll_backend *e);
};

int roll_file_open(const char *path, struct roll_backend **backend);
int roll_etcd_open(const char *where, struct roll_backend **backend);
void rolls_noticed(struct rolls *rolls, uint64_t revision, const struct roll *roll);

#endif
