/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lun.h - the index of this room: internal interfaces of its files.
 *
 *     units.c      what all units share: verbs objects, memory, polling and sleeping
 *     lun.c        a unit: opens its backing, and describes it
 *     map.c        a unit that is memory: its mapping
 *     io.c         an operation, from lun_start() to done(): a sequence of steps, each a work request
 *     helper.c     a thread for system calls that block
 *
 * Prefixes: lun_ for one unit, units_ for what all units share.
 *
 * A unit has a local queue pair on storage that relaxes all ordering: SCSI promises none among commands in flight. Operations
 * that must be alone (COMPARE_WRITE, OR, DISCARD) exclude other writers from their range. One thread serves all sessions, so
 * this lock is a list.
 *
 *                          +--------------------- held: conflicts with another operation
 *                          v
 *     lun_start() --> active --> [scratch queue] --> to_post --> in flight --> next step, or done()
 *                                                       ^            |
 *                                                       +------------+ the queue pair failed
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
void units_helper_destroy(struct units_helper *h); /* when it has no job */
int units_helper_fd(struct units_helper *h); /* readable when units_helper_poll() has something */
/* Has the helper carry out a SYNC, PUNCH or EXTENT step, or RECONNECT a unit; the result is in io->result. */
int units_helper_submit(struct units_helper *h, struct lun_io *io, int fd);
/* Returns an operation whose job is done, or NULL, which takes no system call. */
struct lun_io *units_helper_poll(struct units_helper *h);

/* ---- units.c ------------------------------------------------------------------------ */

#define UNITS_BATCH 32

struct units {
	const struct dv *dv;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct units_helper *helper;
	int fd;	    /* epoll of the completion channel and the helper */
	bool armed; /* the next completion raises an event */
	bool due;   /* there was one since then: the event has been raised, or will be */

	uint8_t *slab;
	size_t slab_bytes;
	struct ibv_mr *mr; /* of all of it */
	struct units_buffer *buffers;
	struct list free_buffers;
	unsigned int num_buffers;

	const uint8_t *zeroes; /* UNITS_BUFFER bytes */
	uint8_t *scratch;      /* UNITS_BUFFER bytes, for the step of one operation at a time */
	struct lun_io *scratch_user;
	struct list scratch_queue;

	struct list dirty; /* units with something to post */
	int n_done;	   /* calls of done() in this poll */

	struct ibv_send_wr wr[UNITS_BATCH]; /* of one post */
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
	bool punches;  /* supports FALLOC_FL_PUNCH_HOLE, as far as is known */
	int sync_fd;   /* for fdatasync() of data that no barrier covers; -1: none is needed */
	bool unsynced; /* there is such data */
	struct stagdv_medium *medium;
	struct ibv_mr *mr;
	struct lun_map *map; /* NULL: the unit is not memory, or cannot be mapped */

	/* a partition */
	struct stag_store_endpoint *endpoint;
	struct stag_store *store; /* opened to read the partition table */
	struct lock table_lock;	  /* guards store: the helper reads it, too */
	uint64_t id;

	uint64_t seen_size; /* of the backing, by lun_follow_growth() */

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

/* Makes a new queue pair to the backing as it is now. Returns -ENODEV if there is none. */
int lun_reconnect(struct lun *l);

/* ---- map.c ------------------------------------------------------------------------------ */

/* Maps a unit that is memory, at its current size. Memory borrowed from older mappings stays valid. */
void lun_map(struct lun *l);
void lun_unmap(struct lun *l);
/* Returns NULL if a page of the range is missing. */
uint8_t *lun_map_at(struct lun *l, uint64_t offset, uint64_t length, uint32_t *lkey);
bool lun_map_is_torn(const struct lun_map *m); /* a page was truncated away while it was mapped */
/* Touches each page of a range: the mapping is torn afterwards if one is missing. */
void lun_map_touch(struct lun *l, uint64_t offset, uint64_t length);
/* Forgets the pages of a range that was punched. */
void lun_map_punched(struct lun *l, uint64_t offset, uint64_t length);

/* ---- io.c ------------------------------------------------------------------------------ */

void lun_post(struct lun *l); /* posts the operations in to_post */
void lun_completed(struct lun *l, struct lun_io *io, const struct ibv_wc *wc);
void lun_helper_done(struct lun_io *io); /* goes on after a job of the helper */
void lun_mark_dirty(struct lun *l);

/*
 * The action of an operation's current step. Only set_phase() in io.c changes it, and asserts that the move is legal:
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
 *     CALL            NEW -> CALL -> DONE
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
	PHASE_CALL,   /* the helper: calls a function */
	PHASE_EXTENT, /* the helper: finds out whether there is data */
	PHASE_DONE,
	PHASE_RECONNECT, /* not an operation: the helper makes a new queue pair for the unit */
};

#endif
