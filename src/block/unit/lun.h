/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lun.h - what the files of units know of each other.
 *
 *     units.c      the engine: verbs objects, memory, who polls and who sleeps
 *     lun.c        a unit: what is behind it, and what is told of it
 *     map.c        one that is memory, mapped
 *     io.c         an operation, from lun_start() to done(): a row of steps, each a work request
 *     helper.c     a thread for what blocks
 *
 * A unit has a local queue pair on storage with every order given up: SCSI promises none among commands under way. What has
 * to be alone (COMPARE_WRITE, OR, DISCARD) holds a lock on its range against others that write: all sessions are served by one
 * thread, so that this is a list.
 *
 *                          +--------------------- held: another is in the way
 *                          v
 *     lun_start() --> active --> [scratch queue] --> to_post --> in flight --> next step, or done()
 *                                                       ^            |
 *                                                       +------------+ the connection ended under it
 */
#ifndef STAG_BLOCK_LUN_H
#define STAG_BLOCK_LUN_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "base/lock.h"
#include "block/block.h"
#include "block/unit/unit.h"
#include "dv/dv.h"
#include "stag/stagdv.h"
#include "stag/store.h"

/* ---- helper.c -------------------------------------------------------------------- */

struct units_helper;

int units_helper_create(struct units_helper **out);
void units_helper_destroy(struct units_helper *h); /* when it has nothing to do */
int units_helper_fd(struct units_helper *h); /* readable when units_helper_poll() has something */
/* Carries out SYNC, PUNCH or EXTENT of an operation's step, or MENDs its unit; io->result says how it went. */
int units_helper_submit(struct units_helper *h, struct lun_io *io, int fd);
struct lun_io *units_helper_poll(
	struct units_helper *h); /* NULL: none, found without a system call */

/* ---- units.c ------------------------------------------------------------------------ */

#define UNITS_BATCH 32

struct units {
	const struct dv *dv;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct units_helper *helper;
	int fd;	    /* an epoll of the channel's and the helper's */
	bool armed; /* the next completion raises an event */
	bool due;   /* there was one since: the event is there, or about to be */

	uint8_t *slab;
	size_t slab_bytes;
	struct ibv_mr *mr; /* of all of it */
	struct units_buffer *buffers;
	struct list free_buffers;
	bool hungry; /* somebody got none */
	void (*on_buffer)(void *arg);
	void *on_buffer_arg;

	const uint8_t *zeroes; /* UNITS_BUFFER bytes of them */
	uint8_t *scratch;      /* as many, for one operation's step at a time */
	struct lun_io *scratch_user;
	struct list scratch_queue;

	struct list dirty; /* units with something to post */
	int n_done;	   /* done() was called so often */

	struct ibv_send_wr wr[UNITS_BATCH]; /* what one post takes */
	struct ibv_sge sge[UNITS_BATCH][LUN_MAX_IOV];
};

/* ---- lun.c ------------------------------------------------------------------------------ */

#define LUN_DEPTH 128 /* work requests in flight */

/*
 * The state of a unit's queue pair. Only set_lun_state() in io.c changes it, and asserts that the move is legal.
 *
 *     UP --> DRAINING --> RECONNECTING --> UP
 *                           |      ^
 *                           v      |  an operation comes, and retry_at has passed
 *                           GONE --+
 */
enum lun_state {
	LUN_UP,
	LUN_DRAINING,	  /* the queue pair has failed; requests are still in flight */
	LUN_RECONNECTING, /* the helper makes a new one: qp, rkey and no_writes are the helper's */
	LUN_GONE,	  /* there is nothing to connect to: operations fail */
};

struct lun {
	struct units *u;
	struct lun_facts facts;
	char *where;
	uint32_t flags; /* enum stag_block_lun_flags */
	struct ibv_qp *qp;
	uint32_t rkey;

	/* a file or device */
	int fd; /* -1: a partition */
	bool is_device;
	bool punches; /* as far as is known */
	int sync_fd;  /* to make durable what no barrier knows of; -1: it is memory */
	bool unsynced;
	struct stagdv_medium *medium;
	struct ibv_mr *mr;
	struct lun_map *map; /* NULL: it is no memory, or cannot be mapped */

	/* a partition */
	struct stag_store_endpoint *endpoint;
	struct stag_store *store; /* to look at, */
	struct lock look;	  /* one at a time */
	uint64_t id;

	/* io.c */
	enum lun_state state;
	struct list active;	   /* lun_io.active: operations that others may conflict with */
	struct list held, to_post; /* lun_io.link */
	uint32_t exclusive; /* operations in active and held that must be alone on their range */
	uint32_t in_flight; /* work requests posted and not completed */
	struct list dirty;  /* in units.dirty */
	struct lun_io reconnect_io;
	bool no_writes;	   /* the right to write was revoked; it may be granted again */
	uint64_t retry_at; /* clock_ns() of the next attempt to reconnect, or to write */
};

/* A new queue pair, to what is there now. -ENODEV: nothing is. */
int lun_reconnect(struct lun *l);

/* ---- map.c ------------------------------------------------------------------------------ */

void lun_map(
	struct lun *l); /* as long as it is now, if it is memory; what was lent before stays good */
void lun_unmap(struct lun *l);
/* NULL: not all of it has pages. */
uint8_t *lun_map_at(struct lun *l, uint64_t offset, uint64_t length, uint32_t *lkey);
bool lun_map_is_torn(const struct lun_map *m); /* a page of it has gone */
void lun_map_touch(struct lun *l, uint64_t offset,
		   uint64_t length); /* is it there? then it is not torn */
void lun_map_punched(struct lun *l, uint64_t offset, uint64_t length);

/* ---- io.c ------------------------------------------------------------------------------ */

void lun_post(struct lun *l); /* what is in to_post */
void lun_completed(struct lun *l, struct lun_io *io, const struct ibv_wc *wc);
void lun_helper_done(struct lun_io *io); /* the helper has done its part */
void lun_mark_dirty(struct lun *l);

/*
 * What the current step of an operation does. Only set_phase() in io.c changes it, and asserts that the move is legal:
 *
 *     READ            NEW -> MOVE [-> SEARCH ...] -> DONE
 *     WRITE           NEW -> MOVE [-> CHECK ...] -> DONE           with verify
 *     VERIFY          NEW -> CHECK ... -> DONE
 *     OR              NEW -> CHECK -> PUT [-> CHECK ...] -> DONE
 *     COMPARE_WRITE   NEW -> CHECK -> MOVE -> DONE
 *     DISCARD         NEW -> ZERO, PUNCH in turn -> DONE
 *     ZERO            NEW -> ZERO ... -> DONE
 *     FLUSH           NEW [-> SYNC] [-> FLUSH] -> DONE
 *     EXTENT          NEW [-> EXTENT] -> DONE
 *
 * Every phase may go to DONE: the step has failed.
 */
enum lun_phase {
	PHASE_NEW,    /* held, or about to begin */
	PHASE_MOVE,   /* moves data between the operation's memory and the unit */
	PHASE_CHECK,  /* reads to the scratch memory, to examine the data */
	PHASE_SEARCH, /* the same, block by block, to find where a read failed */
	PHASE_PUT,    /* writes the scratch memory back */
	PHASE_ZERO,   /* writes zeroes */
	PHASE_FLUSH,  /* posts a barrier */
	PHASE_SYNC, /* the helper: makes durable what was written over a queue pair that has failed */
	PHASE_PUNCH,  /* the helper: makes a hole in the file */
	PHASE_EXTENT, /* the helper: finds out whether there is data */
	PHASE_DONE,
	PHASE_RECONNECT, /* not an operation: the helper makes a new queue pair for the unit */
};

#endif
