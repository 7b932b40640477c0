/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block.h - the rooms of src/block, and what they know of each other.
 *
 *     portal.c           listens (TCP, verbs), hands connections to sessions
 *     session.c login.c  iSCSI: who is there, what was negotiated, commands in order
 *        |         |
 *     tcp.c     rdma.c   PDUs in and out, data in and out: Data-In, R2T and Data-Out, or RDMA
 *        |
 *     task.c             one command: its data in pieces through buffers, between transport and unit
 *        |
 *     scsi*.c            what a CDB means: pure but for the unit's state
 *     lun.c              blocks on a store's partition, a file or a device: asynchronous, through verbs
 *
 *     pdu.c text.c chap.c   bytes in, structures out: no sockets, locks or malloc
 *
 * One thread serves a target's sessions: nothing here below the public calls takes a lock, and nothing waits. The initiator
 * (initiator.h) shares pdu.c, text.c, chap.c, keys.c and iser.c.
 *
 * Words:
 *   nexus      an initiator's session with the target: unit attentions and reservations are per nexus and unit
 *   unit       a logical unit
 *   data-in    from the target to the initiator: what a read gives
 *   data-out   the other way: what a write needs
 */
#ifndef STAG_BLOCK_INTERNAL_H
#define STAG_BLOCK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "stag/block.h"

/* ---- error.c: what went wrong, in words ------------------------------------ */

int block_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* -error */

/* ---- lun.c: blocks, asynchronously ------------------------------------------ */

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
struct buffer {
	uint8_t *bytes;
	uint32_t lkey;
	struct list link;
};
struct buffer *units_buffer(struct units *u);
void units_put_buffer(struct units *u, struct buffer *b);
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
void lun_suspect(
	struct lun_io *io); /* it could not be moved: perhaps they are not there any more */
#define LUN_BORROW_MAX (1u << 20)
int lun_look(struct lun *l); /* at its size again: 1 if it changed, 0, -errno */

/* What is told of a unit. */
struct lun_facts {
	uint64_t size;
	uint32_t block, physical; /* physical: the backing's own block */
	bool read_only, write_back, discards;
	char serial[37], product[17];
	uint8_t naa[16]; /* NAA 6, made of serial */
};
const struct lun_facts *lun_facts(const struct lun *l);

/* ---- scsi*.c: commands ------------------------------------------------------- */

#define SCSI_SENSE_MAX 32
#define SCSI_CDB_MAX   32
#define SCSI_REPLY_MAX 4096

enum scsi_status {
	SCSI_GOOD = 0,
	SCSI_CHECK_CONDITION = 2,
	SCSI_BUSY = 8,
	SCSI_RESERVATION_CONFLICT = 0x18,
	SCSI_TASK_SET_FULL = 0x28,
	SCSI_TASK_ABORTED = 0x40
};

/* A unit as SCSI sees it, and the target that it belongs to. */
struct scsi_target;
struct scsi_nexus; /* what an I_T nexus has at the units: attentions, its place in reservations */

int scsi_target_create(struct scsi_target **out);
void scsi_target_destroy(struct scsi_target *t);
/* Attention to all: luns changed. -EEXIST, -ENOSPC (STAG_BLOCK_MAX_LUNS), -EINVAL (above 16383). */
int scsi_target_add(struct scsi_target *t, uint16_t lun, struct lun *l);
/*
 * From now on there is no such unit: new commands get ILLEGAL REQUEST, others attention: luns changed. gone() is called when
 * the last of its commands was released: at once, or from scsi_release(). -ENOENT.
 */
int scsi_target_remove(struct scsi_target *t, uint16_t lun, void (*gone)(void *arg, struct lun *l),
		       void *arg);
struct lun *scsi_target_find(struct scsi_target *t, uint16_t lun); /* NULL: no such */
void scsi_target_resized(struct scsi_target *t, uint16_t lun);	   /* attention: capacity changed */

/* name: of the initiator port, for reservations and messages. A new one has a unit attention (power on) at each unit. */
int scsi_nexus_create(struct scsi_target *t, const char *name, struct scsi_nexus **out);
void scsi_nexus_destroy(struct scsi_nexus *n); /* its reservations end */

/*
 * What has to happen now for a command. Pieces of a READ or WRITE are the transport's own struct lun_io, with the op, fua and
 * verify of io. A READ's data-in is no longer than expected, whatever io.length is in whole blocks.
 */
enum scsi_next {
	SCSI_DONE,  /* status, sense and reply (data-in, reply_len) say all */
	SCSI_READ,  /* read io.offset, io.length of unit, data-in; then scsi_end() */
	SCSI_WRITE, /* fetch io.length of data-out, do io.op with it there; then scsi_end() */
	SCSI_COLLECT, /* fetch out_len of data-out, at most SCSI_COLLECT_MAX, in one piece; then scsi_collected() */
	SCSI_WORK, /* io has all (flush, discard, compare and write, ...): set done, lun_start(); then scsi_worked() */
};

#define SCSI_COLLECT_MAX UNITS_BUFFER

struct scsi_cmd {
	/* in */
	struct scsi_nexus *nexus;
	uint64_t lun; /* the eight bytes of SAM-5 as a number */
	uint8_t cdb[SCSI_CDB_MAX];
	uint32_t cdb_len;
	uint32_t expected; /* bytes that the initiator expects, either way: replies are no longer */
	bool reads, writes; /* which ways it expects */
	/* out */
	uint8_t status; /* enum scsi_status */
	uint8_t sense
		[SCSI_SENSE_MAX]; /* fixed or descriptor format, as the unit's mode page says */
	uint32_t sense_len;
	uint8_t reply[SCSI_REPLY_MAX];
	uint32_t reply_len;
	uint32_t
		want; /* bytes that the CDB itself speaks of: for residuals (over- and underflow) */
	uint32_t out_len;
	struct lun *unit;
	struct lun_io io; /* op, fua, offset and length are filled */

	/* private to scsi*.c from here on */
	const struct scsi_op *op;
	struct scsi_unit *at;
	uint8_t *data;	     /* what was collected */
	uint64_t next, left; /* of a command that works in several steps: blocks, or descriptors */
};

/* The unit of a command in flight is held, until scsi_release(). */
enum scsi_next scsi_begin(struct scsi_target *t, struct scsi_cmd *c);
/* data: the beginning of a whole buffer; all of it is the command's until the end. */
enum scsi_next scsi_collected(struct scsi_cmd *c, uint8_t *data);
enum scsi_next scsi_worked(struct scsi_cmd *c, int result);
/*
 * Of SCSI_READ and SCSI_WRITE: 0 or -errno to status and sense. -EILSEQ, -EIO: where of io is the piece's, in the command's data.
 */
void scsi_end(struct scsi_cmd *c, int result);
void scsi_release(struct scsi_cmd *c); /* always, once, at last */

enum scsi_key {
	SCSI_NO_SENSE,
	SCSI_RECOVERED_ERROR,
	SCSI_NOT_READY,
	SCSI_MEDIUM_ERROR,
	SCSI_HARDWARE_ERROR,
	SCSI_ILLEGAL_REQUEST,
	SCSI_UNIT_ATTENTION,
	SCSI_DATA_PROTECT,
	SCSI_ABORTED_COMMAND = 0xb,
	SCSI_MISCOMPARE = 0xe
};

/* A sense of the transport's own making, e.g. SCSI_ABORTED_COMMAND with "data digest". */
void scsi_fail(struct scsi_cmd *c, uint8_t key, uint8_t asc, uint8_t ascq);

enum scsi_tmf {
	TMF_ABORT_TASK = 1,
	TMF_ABORT_TASK_SET,
	TMF_CLEAR_ACA,
	TMF_CLEAR_TASK_SET,
	TMF_LUN_RESET,
	TMF_TARGET_WARM_RESET,
	TMF_TARGET_COLD_RESET
};
/* What a reset or clear does to reservations, mode pages and attentions; the tasks are the session's affair. -ENOENT: no such unit; -EOPNOTSUPP. */
int scsi_tmf(struct scsi_target *t, struct scsi_nexus *n, enum scsi_tmf what, uint64_t lun);

#endif
