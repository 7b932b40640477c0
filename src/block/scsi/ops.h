/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ops.h - the index of this room: internal interfaces of its files.
 *
 *     scsi.c       a command from its CDB to its status: checks, then the functions of its line in the table
 *     ops.c        the table of all commands, and the bits that their CDBs may have set
 *     target.c     units, nexuses, attentions, resets
 *     sense.c      errors as sense data
 *     inquiry.c mode.c rw.c thin.c reserve.c persist.c    the commands
 *     persist_file.c    reservations that survive a restart
 *
 * SPC-4 and SBC-3 are cited by the names of their clauses.
 */
#ifndef STAG_BLOCK_SCSI_H
#define STAG_BLOCK_SCSI_H

#include <endian.h>
#include <string.h>

#include "base/bytes.h"
#include "block/block.h"
#include "block/scsi/scsi.h"

/* ---- limits ------------------------------------------------------------------- */

#define SCSI_LUN_MAX	   0x3fff		      /* flat addressing has 14 bits */
#define SCSI_MAX_TRANSFER  (1ull << 30)		      /* bytes of a command */
#define SCSI_MAX_SAME	   (1ull << 30)		      /* bytes of a WRITE SAME */
#define SCSI_MAX_UNMAP	   (1u << 20)		      /* blocks of an UNMAP */
#define SCSI_MAX_UNMAPS	   256u			      /* descriptors of an UNMAP */
#define SCSI_BEST_TRANSFER (1u << 20)		      /* bytes */
#define SCSI_NAME_MAX	   (STAG_BLOCK_NAME_MAX + 24) /* an initiator's name, and its ISID */

/* ---- target.c ----------------------------------------------------------------- */

/* Unit attentions, in the order in which they are reported (SAM-5, unit attention precedence). */
enum scsi_attention {
	ATTENTION_POWER_ON,
	ATTENTION_RESET,
	ATTENTION_CLEARED, /* commands cleared by another nexus */
	ATTENTION_LUNS,
	ATTENTION_CAPACITY,
	ATTENTION_MODE,
	ATTENTION_PREEMPTED,	/* reservations preempted */
	ATTENTION_RELEASED,	/* reservations released */
	ATTENTION_UNREGISTERED, /* registrations preempted */
	ATTENTIONS
};

/* State of a nexus at one unit. */
struct scsi_place {
	uint16_t attentions; /* bits by enum scsi_attention */
	uint32_t commands;   /* in flight */
};

struct scsi_nexus {
	struct list link;
	struct scsi_target *target;
	const struct scsi_view *view; /* NULL: sees all units, and may write */
	char name[SCSI_NAME_MAX];
	struct scsi_place at[STAG_BLOCK_MAX_LUNS]; /* indexed by the unit's slot */
};

/* Values that MODE SELECT changes, for all nexuses. */
struct scsi_mode {
	bool d_sense; /* sense data as descriptors */
	bool swp;     /* software write protect */
	bool wce;     /* write cache */
};

struct scsi_registrant {
	char name[SCSI_NAME_MAX]; /* of its nexus, which may have ended */
	uint64_t key;
	bool holds; /* holds the reservation; or made it, if all registrants hold it */
};

/* Persistent reservations of a unit. */
struct scsi_persist {
	struct scsi_registrant *list;
	uint32_t n, room;
	uint32_t generation;
	uint8_t type; /* of the reservation; 0: none */
	bool lasting; /* all of it survives a restart of the target (APTPL) */
};

struct scsi_unit {
	struct scsi_target *target;
	struct lun *lun;
	uint16_t number, slot;
	bool removed;		   /* waits for the end of its last command */
	uint32_t commands;	   /* in flight */
	struct scsi_nexus *holder; /* of the SPC-2 reservation, or NULL */
	struct scsi_persist persist;
	/* While a command waits until its change is saved: that command, the state before it, and the result */
	const struct scsi_cmd *saver;
	struct scsi_persist before;
	int save_result;
	struct scsi_mode mode;
	void (*gone)(void *arg, struct lun *l);
	void *gone_arg;
};

struct scsi_target {
	struct scsi_unit *units[STAG_BLOCK_MAX_LUNS]; /* by slot */
	struct list nexuses;
	int dir; /* of the files of reservations; -1: none, reservations do not survive */
	uint64_t name_hash; /* of the target, for the names of these files */
};

/* Returns the unit that the eight bytes of a LUN address, or NULL if there is none that the nexus sees. */
struct scsi_unit *scsi_unit_at(struct scsi_target *t, const struct scsi_nexus *n, uint64_t lun);

static inline bool scsi_sees(const struct scsi_nexus *n, uint16_t number)
{
	const struct scsi_view *v = n->view;

	return !v || !v->some || (v->luns[number / 64] >> number % 64 & 1);
}

static inline bool scsi_only_reads(const struct scsi_nexus *n)
{
	return n->view && n->view->read_only;
}
void scsi_unit_get(struct scsi_unit *u, struct scsi_nexus *n);
void scsi_unit_put(struct scsi_unit *u, struct scsi_nexus *n);

/* Raises an attention for all nexuses but one (NULL: for all). */
void scsi_raise_attention(struct scsi_unit *u, enum scsi_attention what,
			  const struct scsi_nexus *but);
/* Removes the first pending attention of a nexus. Returns asc << 8 | ascq, or 0 if there is none. */
uint16_t scsi_pop_attention(struct scsi_nexus *n, const struct scsi_unit *u);

/* ---- sense.c ------------------------------------------------------------------- */

struct scsi_sense {
	uint8_t key, asc, ascq;
	bool has_info, has_field;
	uint64_t info; /* INFORMATION: an LBA or an offset */
	bool in_cdb;   /* the field is in the CDB, else in the parameters */
	uint16_t byte; /* of the field */
	uint8_t bit;   /* its highest bit */
};

/* Encodes sense data, at most SCSI_SENSE_MAX bytes. Returns the length. */
uint32_t scsi_sense_put(uint8_t *to, const struct scsi_sense *s, bool descriptors);

/* Each of these ends a command with CHECK CONDITION, and returns SCSI_DONE. */
enum scsi_next scsi_refuse(struct scsi_cmd *c, uint8_t key, uint16_t asc_ascq);
enum scsi_next scsi_bad_cdb(struct scsi_cmd *c, uint16_t byte, uint8_t bit);
enum scsi_next scsi_bad_parameter(struct scsi_cmd *c, uint16_t byte, uint8_t bit);
/* Turns a unit's result, 0 or -errno, into status and sense. */
enum scsi_next scsi_result(struct scsi_cmd *c, int result);

enum scsi_asc {
	ASC_WRITE_ERROR = 0x0c00,
	ASC_BAD_INFORMATION_UNIT = 0x0e03,
	ASC_READ_ERROR = 0x1100,
	ASC_LIST_LENGTH = 0x1a00,
	ASC_MISCOMPARE = 0x1d00,
	ASC_BAD_OPCODE = 0x2000,
	ASC_OUT_OF_RANGE = 0x2100,
	ASC_BAD_CDB = 0x2400,
	ASC_NO_UNIT = 0x2500,
	ASC_BAD_PARAMETER = 0x2600,
	ASC_WRITE_PROTECTED = 0x2700,
	ASC_SOFTWARE_PROTECTED = 0x2702,
	ASC_NO_SPACE = 0x2707,
	ASC_BAD_RELEASE = 0x2604,
	ASC_NO_REGISTRATIONS = 0x5504,
	ASC_NEEDS_HELP = 0x0403, /* not ready, manual intervention required */
	ASC_NOT_SAVED = 0x3900,
	ASC_TERMINATED = 0x0006,
};

/* ---- scsi.c, ops.c --------------------------------------------------------------- */

enum scsi_op_flags {
	OP_ACTION = 1 << 0,   /* has a service action */
	OP_WRITES = 1 << 1,   /* fails on a write-protected unit */
	OP_CALM = 1 << 2,     /* neither reports nor clears attentions */
	OP_SHARED = 1 << 3,   /* allowed although another nexus holds the SPC-2 reservation */
	OP_ANYWHERE = 1 << 4, /* needs no unit */
	OP_THIN = 1 << 5,     /* exists only on units that discard */
	/* persistent reservations: */
	OP_READS = 1 << 6,	 /* allowed where the reservation lets others read */
	OP_UNPERSIST = 1 << 7,	 /* always allowed */
	OP_OLD_RESERVE = 1 << 8, /* conflicts as soon as there is a registrant */
	OP_CHANGES = 1 << 9,	 /* writes nothing, but changes what others may do or see */
};

struct scsi_op {
	uint8_t opcode, action;
	uint8_t len;	   /* of its CDB */
	uint16_t flags;	   /* enum scsi_op_flags */
	uint8_t usage[15]; /* bits that may be set in bytes 1 to 15 */
	enum scsi_next (*begin)(struct scsi_cmd *c);
	enum scsi_next (*collected)(struct scsi_cmd *c); /* the data-out is in c->data */
	enum scsi_next (*worked)(
		struct scsi_cmd *c); /* a step succeeded; NULL: the command is done */
};

/* Returns NULL if the unit has no such command. known: set if it has one with this opcode. */
const struct scsi_op *scsi_op_find(const struct scsi_unit *u, uint8_t opcode, uint8_t action,
				   bool *known);

enum scsi_next scsi_done(struct scsi_cmd *c); /* ends with GOOD */
/* Ends with reply[0..len) as data-in, cut to the allocation length of the CDB and to the expected length. */
enum scsi_next scsi_reply(struct scsi_cmd *c, uint32_t len, uint32_t allocation);
/* Requests len bytes of data-out: they are in c->data when op->collected is called. */
enum scsi_next scsi_collect(struct scsi_cmd *c, uint32_t len);
/* Begins an operation of the unit; op->worked is called if it succeeds. */
enum scsi_next scsi_work(struct scsi_cmd *c, enum lun_op op, uint64_t lba, uint64_t blocks);

static inline const struct lun_facts *scsi_facts(const struct scsi_cmd *c)
{
	return lun_facts(c->at->lun);
}

/* Bytes of data-in that the initiator accepts, and of data-out that it has. */
static inline uint32_t scsi_data_in(const struct scsi_cmd *c)
{
	return c->reads ? c->expected : 0;
}

static inline uint32_t scsi_data_out(const struct scsi_cmd *c)
{
	return c->writes ? c->expected : 0;
}

/* ---- persist_file.c ---------------------------------------------------------------- */

/* Ends a command when the reservations of its unit are saved. Overwrites c->data. */
enum scsi_next scsi_persist_save(struct scsi_cmd *c);
/* Reads those of a new unit. Returns -EBADMSG if the file is damaged. */
int scsi_persist_load(struct scsi_unit *u);
/*
 * persist.c: ends the wait of a command for its change to be saved, if it waits; without success the change is undone. Call it when
 * the operation of the unit has ended, also of an aborted command.
 */
void scsi_persist_settle(struct scsi_cmd *c);
/* Adds a registrant that was saved. Returns false if there is no room, or if it is there already. */
bool scsi_persist_restore(struct scsi_unit *u, const char *name, uint64_t key, bool holds);
bool scsi_persist_is_type(uint8_t type); /* 0: none */

/* ---- rw.c ----------------------------------------------------------------------- */

struct scsi_range {
	uint64_t lba, blocks;
	uint16_t length_at; /* byte of the CDB with the number of blocks */
};

struct scsi_range scsi_range(const struct scsi_cmd *c);
/* Checks that a range is in the unit, and not longer than most bytes. Returns false after ending the command. */
bool scsi_range_ok(struct scsi_cmd *c, const struct scsi_range *r, uint64_t most);
/* Fills c->data with copies of its first block, and does op with it for c->left blocks, in steps. */
enum scsi_next scsi_repeat_block(struct scsi_cmd *c, enum lun_op op);
enum scsi_next scsi_repeat_more(struct scsi_cmd *c);

enum scsi_next scsi_op_read(struct scsi_cmd *c);
enum scsi_next scsi_op_write(struct scsi_cmd *c);
enum scsi_next scsi_op_or_write(struct scsi_cmd *c);
enum scsi_next scsi_op_write_verify(struct scsi_cmd *c);
enum scsi_next scsi_op_verify(struct scsi_cmd *c);
enum scsi_next scsi_op_verify_collected(struct scsi_cmd *c);
enum scsi_next scsi_op_prefetch(struct scsi_cmd *c);
enum scsi_next scsi_op_synchronize(struct scsi_cmd *c);
enum scsi_next scsi_op_compare_write(struct scsi_cmd *c);
enum scsi_next scsi_op_compare_write_collected(struct scsi_cmd *c);

/* ---- thin.c ------------------------------------------------------------------------ */

enum scsi_next scsi_op_write_same(struct scsi_cmd *c);
enum scsi_next scsi_op_write_same_collected(struct scsi_cmd *c);
enum scsi_next scsi_op_unmap(struct scsi_cmd *c);
enum scsi_next scsi_op_unmap_collected(struct scsi_cmd *c);
enum scsi_next scsi_op_unmap_worked(struct scsi_cmd *c);
enum scsi_next scsi_op_lba_status(struct scsi_cmd *c);
enum scsi_next scsi_op_lba_status_worked(struct scsi_cmd *c);

/* ---- inquiry.c ---------------------------------------------------------------------- */

/* Returns the maximum length of a COMPARE AND WRITE, in blocks. */
uint32_t scsi_max_compare(const struct lun_facts *f);

enum scsi_next scsi_op_ready(struct scsi_cmd *c);
enum scsi_next scsi_op_inquiry(struct scsi_cmd *c);
enum scsi_next scsi_op_read_capacity10(struct scsi_cmd *c);
enum scsi_next scsi_op_read_capacity16(struct scsi_cmd *c);
enum scsi_next scsi_op_report_luns(struct scsi_cmd *c);
enum scsi_next scsi_op_request_sense(struct scsi_cmd *c);

/* ---- mode.c --------------------------------------------------------------------------- */

struct scsi_mode scsi_mode_default(const struct lun *l);
enum scsi_next scsi_op_mode_sense6(struct scsi_cmd *c);
enum scsi_next scsi_op_mode_sense10(struct scsi_cmd *c);
enum scsi_next scsi_op_mode_select(struct scsi_cmd *c);
enum scsi_next scsi_op_mode_select_collected(struct scsi_cmd *c);

/* ---- reserve.c ------------------------------------------------------------------------- */

/* Returns whether a reservation of another nexus forbids a command (NULL: an unknown one). */
bool scsi_is_reserved(const struct scsi_unit *u, const struct scsi_nexus *n,
		      const struct scsi_op *op);
enum scsi_next scsi_op_reserve(struct scsi_cmd *c);
enum scsi_next scsi_op_release(struct scsi_cmd *c);
enum scsi_next scsi_op_start_stop(struct scsi_cmd *c);
enum scsi_next scsi_op_prevent(struct scsi_cmd *c);

/* ---- persist.c ------------------------------------------------------------------------- */

bool scsi_persist_conflicts(const struct scsi_unit *u, const struct scsi_nexus *n,
			    const struct scsi_op *op);
enum scsi_next scsi_op_persist_keys(struct scsi_cmd *c);
enum scsi_next scsi_op_persist_holder(struct scsi_cmd *c);
enum scsi_next scsi_op_persist_capabilities(struct scsi_cmd *c);
enum scsi_next scsi_op_persist_status(struct scsi_cmd *c);
enum scsi_next scsi_op_persist_out(struct scsi_cmd *c);
enum scsi_next scsi_op_persist_out_collected(struct scsi_cmd *c);

#endif
