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

struct scsi_target; /* the units of a target */
struct scsi_nexus;  /* an I_T nexus: its unit attentions and reservations */

int scsi_target_create(struct scsi_target **out);
void scsi_target_destroy(struct scsi_target *t);
/*
 * Keeps reservations in files of this directory, so that they can survive a restart. It must outlive the target. name: of the
 * target; others may have files there, even of the same unit.
 */
void scsi_target_keep(struct scsi_target *t, int dir, const char *name);
/*
 * Adds a unit, and raises the attention "LUNs changed" for all nexuses. Returns -EEXIST, -ENOSPC (more than
 * STAG_BLOCK_MAX_LUNS), -EINVAL (a LUN above 16383) or -EBADMSG (its reservations cannot be read).
 */
int scsi_target_add(struct scsi_target *t, uint16_t lun, struct lun *l);
/*
 * Removes a unit: new commands to it get ILLEGAL REQUEST, and all nexuses the attention "LUNs changed". gone() is called when
 * the last command of the unit was released: at once, or from scsi_release(). Returns -ENOENT if there is no such unit.
 */
int scsi_target_remove(struct scsi_target *t, uint16_t lun, void (*gone)(void *arg, struct lun *l),
		       void *arg);
struct lun *scsi_target_find(struct scsi_target *t, uint16_t lun); /* or NULL */
void scsi_target_resized(struct scsi_target *t, uint16_t lun);	   /* raises "capacity changed" */
/* Has each unit follow the growth of its backing, raises "capacity changed" for those that have grown, and calls grown(). */
void scsi_target_follow_growth(struct scsi_target *t,
			       void (*grown)(void *arg, uint16_t lun, uint64_t size), void *arg);

/* The units that a nexus sees, and what it may do with them. */
#define SCSI_VIEW_LUN_MAX 16383
struct scsi_view {
	bool read_only;
	bool some; /* only those in luns, a bit for each number */
	uint64_t luns[(SCSI_VIEW_LUN_MAX + 1) / 64];
};

/*
 * Creates a nexus. name: of the initiator port, for reservations and messages. view: NULL: all of all units; it must outlive the
 * nexus. A new nexus has the attention "power on" at each unit.
 */
int scsi_nexus_create(struct scsi_target *t, const char *name, const struct scsi_view *view,
		      struct scsi_nexus **out);
void scsi_nexus_destroy(struct scsi_nexus *n); /* ends its reservations that are not persistent */
/* Returns whether there is a unit of this number that the nexus does not see. */
bool scsi_hides(const struct scsi_nexus *n, uint64_t lun);

/*
 * The next action of the caller for a command. The caller divides a READ or WRITE into pieces, each with a struct lun_io of its
 * own that has the op, fua and verify of cmd.io. The data-in of a READ is no longer than expected, even if io.length, in whole
 * blocks, is.
 */
enum scsi_next {
	SCSI_DONE,  /* nothing: status, sense and reply (data-in, reply_len) are final */
	SCSI_READ,  /* read io.length bytes at io.offset of unit, send them; then call scsi_end() */
	SCSI_WRITE, /* fetch io.length bytes of data-out, do io.op with them; then call scsi_end() */
	SCSI_COLLECT, /* fetch out_len bytes of data-out, at most SCSI_COLLECT_MAX, in one piece; then call scsi_collected() */
	SCSI_WORK, /* set io.done and call lun_start(): io is complete; then call scsi_worked() */
};

#define SCSI_COLLECT_MAX UNITS_BUFFER

struct scsi_cmd {
	/* in */
	struct scsi_nexus *nexus;
	uint64_t lun; /* the eight bytes of SAM-5, big-endian */
	uint8_t cdb[SCSI_CDB_MAX];
	uint32_t cdb_len;
	/* Expected Data Transfer Length, in either direction: replies are no longer */
	uint32_t expected;
	bool reads, writes; /* directions of the expected data */
	/* out */
	uint8_t status;		       /* enum scsi_status */
	uint8_t sense[SCSI_SENSE_MAX]; /* in the format that the unit's mode page says */
	uint32_t sense_len;
	uint8_t reply[SCSI_REPLY_MAX];
	uint32_t reply_len;
	uint32_t want; /* bytes that the CDB specifies: for residual counts (overflow, underflow) */
	uint32_t out_len;
	const char *denied; /* why the view of the nexus does not allow it; NULL: it does */
	struct lun *unit;
	struct lun_io io; /* op, fua, offset and length are filled */

	/* private to scsi/ from here on */
	const struct scsi_op *op;
	struct scsi_unit *at;
	uint8_t *data;	     /* collected data-out */
	uint64_t next, left; /* progress of a command with several steps: blocks, or descriptors */
};

/* Begins a command. Its unit is referenced until scsi_release(). */
enum scsi_next scsi_begin(struct scsi_target *t, struct scsi_cmd *c);
/* Goes on with collected data. data: a whole buffer, which belongs to the command until its end. */
enum scsi_next scsi_collected(struct scsi_cmd *c, uint8_t *data);
enum scsi_next scsi_worked(struct scsi_cmd *c, int result);
/*
 * Sets status and sense after SCSI_READ and SCSI_WRITE, from 0 or -errno. For -EILSEQ and -EIO the caller sets io.where to the
 * position in the command's data.
 */
void scsi_end(struct scsi_cmd *c, int result);
/* Releases a command: call it once, at its end. Does nothing if scsi_begin() was not called on a zeroed command. */
void scsi_release(struct scsi_cmd *c);

/* Ends a command with sense data of the transport, e.g. SCSI_ABORTED_COMMAND for a wrong data digest. */
void scsi_fail(struct scsi_cmd *c, uint8_t key, uint8_t asc, uint8_t ascq);

/*
 * Does what a reset or clear does to reservations, mode pages and attentions; the caller aborts the tasks. Returns -ENOENT if
 * there is no such unit, -EACCES or -EOPNOTSUPP.
 */
int scsi_tmf(struct scsi_target *t, struct scsi_nexus *n, enum scsi_tmf what, uint64_t lun);

#endif
