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
struct units; /* what all units of a target share: verbs objects, memory, a helper thread */

/* ---- lun.c, io.c: one unit ------------------------------------------------------- */

enum lun_op {
	LUN_READ,
	LUN_WRITE,
	LUN_VERIFY, /* compares the unit's data with iov; without iov: only reads it */
	LUN_OR,	    /* writes the bitwise OR of the unit's data and iov */
	LUN_COMPARE_WRITE,
	LUN_FLUSH,
	LUN_DISCARD,
	LUN_ZERO,
	LUN_CALL,   /* calls call(arg) in the helper thread: it may block */
	LUN_EXTENT, /* sets mapped (is there backing space at offset?) and where (the end of the range that this holds for) */
};

/*
 * An operation. Its memory is in buffers of units_buffer(). FUA: durable on completion. verify: a write is read back and
 * compared. A COMPARE_WRITE has in iov the data to compare with, then as much data to write; it is atomic with respect to
 * all writes of the unit, and so is an OR.
 * done() is called once, from units_poll() or from lun_start() itself, with 0, -EIO, -ENOSPC, -EROFS, -EILSEQ (miscompare
 * at where) or -ENODEV.
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
	/* Out. EXTENT: see above. Miscompare or -EIO: offset in the operation; no byte before it is concerned. */
	uint64_t where;
	void (*done)(struct lun_io *io, int result);
	/* CALL: returns 0 or -errno. arg is valid as long as the operation is. */
	int (*call)(void *arg);
	void *arg;

	/* private to unit/ from here on */
	struct list link;   /* in one of its unit's queues */
	struct list active; /* in its unit's list of active operations */
	struct lun *lun;
	uint64_t at;	     /* bytes that completed steps have moved */
	uint32_t step;	     /* bytes of the current step */
	uint8_t phase;	     /* enum lun_phase */
	uint8_t tries;	     /* queue pairs that failed under it */
	struct lun_map *map; /* the mapping that borrowed memory is in */
	int result;	     /* of a job of the helper */
};

/* Opens a unit. On failure stag_block_error() has the text. */
int lun_open(struct units *u, const struct stag_block_lun *attr, struct lun **out);
void lun_close(struct lun *l); /* when no operation is in flight */
void lun_start(struct lun *l, struct lun_io *io);
/*
 * Returns a pointer to the bytes of a unit that is memory, instead of lun_start(): the caller sets op (READ or WRITE),
 * offset and length, and reads or writes the bytes until lun_return(). Returns NULL if they cannot be borrowed: lun_start()
 * tells why.
 */
uint8_t *lun_borrow(struct lun *l, struct lun_io *io, uint32_t *lkey);
int lun_return(struct lun_io *io); /* Returns -EIO if written data is lost. */
/* Call it when borrowed bytes could not be moved: checks whether their pages are still there. */
void lun_check_mapping(struct lun_io *io);
#define LUN_BORROW_MAX (1u << 20)
/* Reads the size of the backing again. Returns 1 if it changed, 0 if not, or -errno. */
int lun_refresh_size(struct lun *l);

/*
 * Does so if the backing has grown since the call before the last one: users of a partition may access its new part a moment after
 * the table has it. Does not wait. Returns 1 if the size of the unit changed, else 0.
 */
int lun_follow_growth(struct lun *l);

/* Properties of a unit that initiators see. */
struct lun_facts {
	uint64_t size;
	uint32_t block, physical; /* physical: the block size of the backing */
	bool read_only, write_back, discards;
	char serial[37], product[17];
	uint8_t naa[16]; /* NAA 6, derived from serial */
};
const struct lun_facts *lun_facts(const struct lun *l);

/* ---- units.c: what all units share ------------------------------------------------ */

int units_create(struct units **out, uint64_t staging_bytes);
void units_destroy(struct units *u);
/*
 * units_poll() posts operations that were started, and calls done() of completed ones. Returns their number. Makes no system
 * call if there is nothing to do. Before sleeping call units_arm(). It returns 0 if units_fd() will become readable when
 * units_poll() has work, or 1 if units_poll() has work now.
 */
int units_poll(struct units *u);
int units_arm(struct units *u);
int units_fd(struct units *u);

/*
 * Memory for data: UNITS_BUFFER bytes, aligned to 4096, registered for all kinds of access. units_buffer() returns NULL if no
 * buffer is free.
 */
#define UNITS_BUFFER (256u << 10)
struct units_buffer {
	uint8_t *bytes;
	uint32_t lkey;
	struct list link;
};
struct units_buffer *units_buffer(struct units *u);
void units_put_buffer(struct units *u, struct units_buffer *b);
unsigned int units_num_buffers(const struct units *u); /* free ones, and those in use */
struct ibv_pd *units_pd(struct units *u); /* of the buffers: transports over verbs share it */

#endif
