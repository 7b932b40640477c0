/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roll.h - the coordination record ("the roll") of a pool, and where it is kept.
 *
 * One small record says who is primary and who may become it. It is kept by a backend that has a single truth: etcd,
 * or a locked file on one machine. It is read and changed at failures and changes of membership only, and it changes
 * by compare-and-swap only: whoever swaps names the revision that the change was made from.
 *
 *	roll.c          the record: checked, as JSON and back
 *	rolls.c         the thread that asks for it, the queue before it, what came of it
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
#define ROLL_ADDRESS_LEN 92 /* host:port, with its terminating zero */
#define ROLL_UUID_LEN	 16
#define ROLL_MAX_TEXT	 8192 /* as JSON */

/* A node of the pool. Its place in the roll, its seat, is its as long as it is a member. */
struct roll_member {
	char name[ROLL_NAME_LEN]; /* empty: nobody has this seat */
	char address[ROLL_ADDRESS_LEN];
	uint32_t order; /* rank for promotion: see roll_next() */
};

struct roll {
	uint8_t uuid[ROLL_UUID_LEN]; /* of the pool */
	uint64_t epoch;		     /* one more with every new primary */
	uint64_t base;		     /* number of the last record before this epoch */
	uint32_t primary;	     /* seat */
	uint32_t
		in_sync; /* bit set of seats: who may be primary next; the primary is one of them */
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

/* As JSON, with a final newline: the length, or -ENOSPC. room is at least 1. */
int roll_to_text(const struct roll *roll, uint64_t revision, char *text, size_t room);
/* -EBADMSG: it is not a roll, and *why says what is wrong with it. revision may be NULL. */
int roll_from_text(const char *text, size_t len, struct roll *roll, uint64_t *revision,
		   const char **why);

/* ---- where it is kept -------------------------------------------------------- */

/*
 * Rolls ask a backend, in a thread of its own. Nothing here waits for it: what has become of a request is fetched
 * with rolls_next() when rolls_fd() is readable. Requests are done one after the other, in order.
 *
 * where:  file:/path/of/the/roll
 *         etcd://host:port[,host:port...]/key[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE&timeout=MS]
 *         etcds://... the same with TLS
 */
struct rolls;

enum roll_result {
	ROLL_READ,    /* of a read: here it is; or, with revision 0, there is none */
	ROLL_WON,     /* of a swap: done, revision is the new one */
	ROLL_LOST,    /* of a swap: not done and never will be, the record had changed */
	ROLL_UNKNOWN, /* the backend did not say: a swap may have been done, or may yet be */
	ROLL_CHANGED, /* nobody asked: somebody changed it. May be late, may come twice, may be left out */
};

struct roll_answer {
	enum roll_result result;
	uint64_t id;	   /* of the request, 0 for ROLL_CHANGED */
	uint64_t revision; /* of roll */
	struct roll roll;  /* with ROLL_READ and ROLL_CHANGED */
	int error;	   /* with ROLL_UNKNOWN: why, -errno */
};

/* Returns NULL, or what is wrong with the text of `where`. Nothing is opened. */
const char *roll_place_fault(const char *where);
/* Reads the roll in the calling thread. Returns 0, with *revision 0 if there is no roll yet, or -errno. */
int roll_read_once(const char *where, struct roll *roll, uint64_t *revision);

int rolls_open(const char *where, struct rolls **rolls);
void rolls_close(
	struct rolls *rolls); /* NULL is fine; waits for a request under way, a timeout at most */

int rolls_fd(const struct rolls *rolls); /* readable while there is an answer */
int rolls_read(struct rolls *rolls, uint64_t id);
int rolls_swap(struct rolls *rolls, uint64_t id, uint64_t revision,
	       const struct roll *roll); /* revision 0: none yet */
int rolls_watch(struct rolls *rolls);	 /* from now on, ROLL_CHANGED */
bool rolls_next(struct rolls *rolls, struct roll_answer *answer);

/* ---- between rolls.c and the backends: called by its thread only, but for wake ---------- */

struct roll_backend {
	const struct roll_backend_ops *ops;
	struct rolls *rolls;
};

struct roll_backend_ops {
	/* 0: there it is, or with *revision 0, it is not there. */
	int (*read)(struct roll_backend *e, struct roll *roll, uint64_t *revision);
	/* ROLL_WON, ROLL_LOST, or ROLL_UNKNOWN and why. */
	enum roll_result (*swap)(struct roll_backend *e, uint64_t *revision,
				 const struct roll *roll, int *error);
	/* Nothing to do: until wake, and meanwhile, if watching, rolls_noticed() of changes. */
	void (*idle)(struct roll_backend *e, bool watching);
	void (*wake)(struct roll_backend *e); /* of any thread; also if it comes before idle */
	void (*close)(struct roll_backend *e);
};

int roll_file_open(const char *path, struct roll_backend **backend);
int roll_etcd_open(const char *where, struct roll_backend **backend);
void rolls_noticed(struct rolls *rolls, uint64_t revision, const struct roll *roll);

#endif
