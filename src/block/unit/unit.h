/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unit.h - logical units, as scsi/ and target/ use them: asynchronous operations on blocks, and memory for their data.
 *
 * lun.h is the index of this room's files. Tests and fuzzers implement these calls themselves (tests/block/memory_unit.c).
 */
#ifndef STAG_BLOCK_UNIT_UNIT_H
#define STAG_BLOCK_UNIT_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "stag/block.h"

struct lun;
struct units; /* the engine that all units of a target share: verbs objects, memory */

enum lun_op {
	LUN_READ,
	LUN_WRITE,
	LUN_VERIFY, /* compares with what is in iov; without iov: reads it only */
	LUN_OR,	    /* writes what is there | what is in iov */
	LUN_COMPARE_WRITE,
	LUN_FLUSH,
	LUN_DISCARD,
	LUN_ZERO,
	LUN_EXTENT, /* has the backing room for what is at offset? where: the end of what it says of, mapped: yes */
};

/*
 * One operation. The memory is in buffers of units_buffer(). FUA: durable when done. verify: of a write, it is read and
 * compared afterwards. A COMPARE_WRITE finds in iov what it compares with, then as much to write; it is atomic with regard
 * to all writes of the unit, as an OR is.
 * done() is called from units_poll() or from lun_start() itself, once: 0, -EIO, -ENOSPC, -EROFS, -EILSEQ (miscompare, at where), -ENODEV.
 */
#define LUN_MAX_IOV	16
#define LUN_COMPARE_MAX UNITS_BUFFER /* length of a COMPARE_WRITE */
struct lun_io {
	enum lun_op op;
	bool fua, verify;
	bool mapped;		 /* out, of EXTENT */
	uint64_t offset, length; /* bytes; multiples of the block */
	struct iovec iov[LUN_MAX_IOV];
	int n_iov;
	uint64_t
		where; /* out: see above; of a miscompare or -EIO bytes from its first: none before is concerned */
	void (*done)(struct lun_io *io, int result);

	/* private to lun*.c from here on */
	struct list link;   /* in one of its unit's queues */
	struct list active; /* in its unit's list of those under way */
	struct lun *lun;
	uint64_t at;   /* bytes that the steps before moved */
	uint32_t step; /* bytes of the step under way */
	uint8_t phase; /* enum lun_phase */
	uint8_t tries; /* connections that ended under it */
	bool has_scratch;
	struct lun_map *map; /* what was borrowed is in */
	int result;	     /* of a job of the helper's */
};

int units_create(struct units **out, uint64_t staging_bytes);
void units_destroy(struct units *u);
/*
 * units_poll() lets go what was started, and calls done() of what is done: how many. Without a system call where there
 * is nothing of either. Who wants to sleep calls units_arm() first: 0: units_fd() gets readable when units_poll() has
 * something to do; 1: it has now.
 */
int units_poll(struct units *u);
int units_arm(struct units *u);
int units_fd(struct units *u);

/* Memory for data, registered for everything, aligned to 4096: of BUFFER bytes. NULL: none is left; on_buffer is called when one is. */
#define UNITS_BUFFER (256u << 10)
struct units_buffer {
	uint8_t *bytes;
	uint32_t lkey;
	struct list link;
};
struct units_buffer *units_buffer(struct units *u);
void units_put_buffer(struct units *u, struct units_buffer *b);
void units_on_buffer(struct units *u, void (*fn)(void *arg), void *arg);
struct ibv_pd *units_pd(struct units *u); /* of the buffers: transports with verbs share it */

/* Messages of its failures: stag_block_error(). */
int lun_open(struct units *u, const struct stag_block_lun *attr, struct lun **out);
void lun_close(struct lun *l); /* when nothing is under way */
void lun_start(struct lun *l, struct lun_io *io);
/*
 * The bytes of a unit that is memory, in the place of lun_start(): op (READ, WRITE), offset and length of io are set. From now on to lun_return() they
 * are read, or written; NULL: they cannot be had, and lun_start() says why.
 */
uint8_t *lun_borrow(struct lun *l, struct lun_io *io, uint32_t *lkey);
int lun_return(struct lun_io *io); /* -EIO: what was written is lost */
void lun_check_mapping(
	struct lun_io *io); /* it could not be moved: perhaps they are not there any more */
#define LUN_BORROW_MAX (1u << 20)
int lun_refresh_size(struct lun *l); /* at its size again: 1 if it changed, 0, -errno */

/* What is told of a unit. */
struct lun_facts {
	uint64_t size;
	uint32_t block, physical; /* physical: the backing's own block */
	bool read_only, write_back, discards;
	char serial[37], product[17];
	uint8_t naa[16]; /* NAA 6, made of serial */
};
const struct lun_facts *lun_facts(const struct lun *l);

#endif
