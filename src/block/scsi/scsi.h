/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scsi.h - SCSI commands, as target/ uses them: what a CDB means, and the status and sense it ends with.
 *
 * ops.h is the index of this room's files.
 */
#ifndef STAG_BLOCK_SCSI_SCSI_H
#define STAG_BLOCK_SCSI_SCSI_H

#include "block/scsi/codes.h"
#include "block/unit/unit.h"

#define SCSI_SENSE_MAX 32
#define SCSI_CDB_MAX   32
#define SCSI_REPLY_MAX 4096

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

/* A sense of the transport's own making, e.g. SCSI_ABORTED_COMMAND with "data digest". */
void scsi_fail(struct scsi_cmd *c, uint8_t key, uint8_t asc, uint8_t ascq);

/* What a reset or clear does to reservations, mode pages and attentions; the tasks are the session's affair. -ENOENT: no such unit; -EOPNOTSUPP. */
int scsi_tmf(struct scsi_target *t, struct scsi_nexus *n, enum scsi_tmf what, uint64_t lun);

#endif
