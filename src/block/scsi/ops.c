// SPDX-License-Identifier: BSD-2-Clause
/*
 * ops.c - the table of all commands: the bits that a CDB may have set, and the functions that carry it out.
 *
 * The table is used to check CDBs, and for REPORT SUPPORTED OPERATION CODES. A set bit that is not in usage is an error:
 * reserved bits, and fields of unsupported features (protection information, ACA, anchors).
 */
#include "block/scsi/ops.h"

#define OP_ALWAYS (OP_CALM | OP_SHARED | OP_ANYWHERE)

#define FUA_DPO	   0x18
#define BYTCHK_DPO 0x16
#define IMMED	   0x02
#define UNMAP	   0x08
#define NDOB	   0x01
#define GROUP	   0x1f /* GROUP NUMBER: accepted and ignored */

/* Bytes 1 and up of a CDB; the control byte is the last. */
#define FOUR 0xff, 0xff, 0xff, 0xff
#define USAGE(...)                                                                                 \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define PLAIN	      USAGE(0)
#define RANGE6	      USAGE(0x1f, 0xff, 0xff, 0xff)
#define RANGE10(bits) USAGE(bits, FOUR, GROUP, 0xff, 0xff)
#define RANGE12(bits) USAGE(bits, FOUR, FOUR, GROUP)
#define RANGE16(bits) USAGE(bits, FOUR, FOUR, FOUR, GROUP)
#define COMPARE	      USAGE(FUA_DPO, FOUR, FOUR, 0, 0, 0, 0xff, GROUP)
#define STATUS	      USAGE(0x1f, FOUR, FOUR, FOUR)
#define INQUIRY	      USAGE(0x01, 0xff, 0xff, 0xff)
#define SENSE	      USAGE(0x01, 0, 0, 0xff)
#define SELECT6	      USAGE(0x11, 0, 0, 0xff)
#define SELECT10      USAGE(0x11, 0, 0, 0, 0, 0, 0xff, 0xff)
#define MODES6	      USAGE(0x08, 0xff, 0xff, 0xff)
#define MODES10	      USAGE(0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff)
#define START	      USAGE(0x01, 0, 0x0f, 0xf7)
#define PREVENT	      USAGE(0, 0, 0, 0x03)
#define LIST10	      USAGE(0, 0, 0, 0, 0, GROUP, 0xff, 0xff)
#define PERSIST_IN    USAGE(0x1f, 0, 0, 0, 0, 0, 0xff, 0xff)
#define PERSIST_OUT   USAGE(0x1f, 0xff, 0, 0, FOUR)
#define CAPACITY16    USAGE(0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FOUR)
#define LUNS	      USAGE(0, 0xff, 0, 0, 0, FOUR)
#define OPCODES	      USAGE(0x1f, 0x87, 0xff, 0xff, 0xff, FOUR)
#define TMFS	      USAGE(0x1f, 0x80, 0, 0, 0, FOUR)

/* Functions of a command: begin only; with collected data-out; and with further steps after the first. */
#define GO(f)	   .begin = scsi_op_##f
#define TAKES(f)   .begin = scsi_op_##f, .collected = scsi_op_##f##_collected
#define SPREADS(f) TAKES(f), .worked = scsi_repeat_more

static enum scsi_next scsi_op_report_opcodes(struct scsi_cmd *c);
static enum scsi_next scsi_op_report_tmfs(struct scsi_cmd *c);

static const struct scsi_op ops[] = {
	/* opcode, action, length, flags, usage, functions */
	{0x00, 0, 6, OP_UNPERSIST, PLAIN, GO(ready)},
	{0x03, 0, 6, OP_ALWAYS, SENSE, GO(request_sense)},
	{0x08, 0, 6, OP_READS, RANGE6, GO(read)},
	{0x0a, 0, 6, OP_WRITES, RANGE6, GO(write)},
	{0x12, 0, 6, OP_ALWAYS, INQUIRY, GO(inquiry)},
	{0x15, 0, 6, OP_CHANGES, SELECT6, TAKES(mode_select)},
	{0x16, 0, 6, OP_OLD_RESERVE | OP_CHANGES, PLAIN, GO(reserve)},
	{0x17, 0, 6, OP_SHARED | OP_OLD_RESERVE, PLAIN, GO(release)},
	{0x1a, 0, 6, 0, MODES6, GO(mode_sense6)},
	{0x1b, 0, 6, 0, START, GO(start_stop)},
	{0x1e, 0, 6, 0, PREVENT, GO(prevent)},
	{0x25, 0, 10, OP_SHARED, PLAIN, GO(read_capacity10)},
	{0x28, 0, 10, OP_READS, RANGE10(FUA_DPO), GO(read)},
	{0x2a, 0, 10, OP_WRITES, RANGE10(FUA_DPO), GO(write)},
	{0x2e, 0, 10, OP_WRITES, RANGE10(BYTCHK_DPO), GO(write_verify)},
	{0x2f, 0, 10, OP_READS, RANGE10(BYTCHK_DPO), SPREADS(verify)},
	{0x34, 0, 10, OP_READS, RANGE10(IMMED), GO(prefetch)},
	{0x35, 0, 10, 0, RANGE10(IMMED), GO(synchronize)},
	{0x41, 0, 10, OP_WRITES, RANGE10(UNMAP), SPREADS(write_same)},
	{0x42, 0, 10, OP_WRITES | OP_THIN, LIST10, TAKES(unmap), .worked = scsi_op_unmap_worked},
	{0x55, 0, 10, OP_CHANGES, SELECT10, TAKES(mode_select)},
	{0x56, 0, 10, OP_OLD_RESERVE | OP_CHANGES, PLAIN, GO(reserve)},
	{0x57, 0, 10, OP_SHARED | OP_OLD_RESERVE, PLAIN, GO(release)},
	{0x5a, 0, 10, 0, MODES10, GO(mode_sense10)},
	{0x5e, 0, 10, OP_ACTION | OP_UNPERSIST, PERSIST_IN, GO(persist_keys)},
	{0x5e, 1, 10, OP_ACTION | OP_UNPERSIST, PERSIST_IN, GO(persist_holder)},
	{0x5e, 2, 10, OP_ACTION | OP_UNPERSIST, PERSIST_IN, GO(persist_capabilities)},
	{0x5e, 3, 10, OP_ACTION | OP_UNPERSIST, PERSIST_IN, GO(persist_status)},
	{0x5f, 0, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x5f, 1, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x5f, 2, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x5f, 3, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x5f, 4, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x5f, 6, 10, OP_ACTION | OP_UNPERSIST | OP_CHANGES, PERSIST_OUT, TAKES(persist_out)},
	{0x88, 0, 16, OP_READS, RANGE16(FUA_DPO), GO(read)},
	{0x89, 0, 16, OP_WRITES, COMPARE, TAKES(compare_write)},
	{0x8a, 0, 16, OP_WRITES, RANGE16(FUA_DPO), GO(write)},
	{0x8b, 0, 16, OP_WRITES, RANGE16(FUA_DPO), GO(or_write)},
	{0x8e, 0, 16, OP_WRITES, RANGE16(BYTCHK_DPO), GO(write_verify)},
	{0x8f, 0, 16, OP_READS, RANGE16(BYTCHK_DPO), SPREADS(verify)},
	{0x90, 0, 16, OP_READS, RANGE16(IMMED), GO(prefetch)},
	{0x91, 0, 16, 0, RANGE16(IMMED), GO(synchronize)},
	{0x93, 0, 16, OP_WRITES, RANGE16(UNMAP | NDOB), SPREADS(write_same)},
	{0x9e, 0x10, 16, OP_ACTION | OP_SHARED, CAPACITY16, GO(read_capacity16)},
	{0x9e, 0x12, 16, OP_ACTION | OP_READS, STATUS, GO(lba_status),
	 .worked = scsi_op_lba_status_worked},
	{0xa0, 0, 12, OP_ALWAYS, LUNS, GO(report_luns)},
	{0xa3, 0x0c, 12, OP_ACTION | OP_SHARED, OPCODES, GO(report_opcodes)},
	{0xa3, 0x0d, 12, OP_ACTION | OP_SHARED, TMFS, GO(report_tmfs)},
	{0xa8, 0, 12, OP_READS, RANGE12(FUA_DPO), GO(read)},
	{0xaa, 0, 12, OP_WRITES, RANGE12(FUA_DPO), GO(write)},
	{0xae, 0, 12, OP_WRITES, RANGE12(BYTCHK_DPO), GO(write_verify)},
	{0xaf, 0, 12, OP_READS, RANGE12(BYTCHK_DPO), SPREADS(verify)},
};

#define N_OPS (sizeof(ops) / sizeof(ops[0]))

static bool has(const struct scsi_unit *u, const struct scsi_op *op)
{
	return !(op->flags & OP_THIN) || !u || lun_facts(u->lun)->discards;
}

const struct scsi_op *scsi_op_find(const struct scsi_unit *u, uint8_t opcode, uint8_t action,
				   bool *known)
{
	*known = false;
	for (size_t i = 0; i < N_OPS; i++) {
		const struct scsi_op *op = &ops[i];

		if (op->opcode != opcode || !has(u, op))
			continue;
		*known = true;
		if (!(op->flags & OP_ACTION) || op->action == action)
			return op;
	}
	return NULL;
}

/* ---- REPORT SUPPORTED OPERATION CODES --------------------------------------------------- */

enum { REPORT_ALL, REPORT_OPCODE, REPORT_ACTION, REPORT_EITHER };
enum { NOT_SUPPORTED = 1, AS_STANDARD = 3 };

#define TIMEOUTS 12 /* bytes of a command timeouts descriptor, all zero: no timeouts */

static uint32_t put_timeouts(uint8_t *to)
{
	memset(to, 0, TIMEOUTS);
	put_be16(to, TIMEOUTS - 2);
	return TIMEOUTS;
}

static enum scsi_next report_all(struct scsi_cmd *c, bool timeouts)
{
	uint32_t at = 4;

	for (size_t i = 0; i < N_OPS; i++) {
		uint8_t *p = c->reply + at;

		if (!has(c->at, &ops[i]))
			continue;
		memset(p, 0, 8);
		p[0] = ops[i].opcode;
		put_be16(p + 2, ops[i].action);
		p[5] = (uint8_t)((ops[i].flags & OP_ACTION ? 0x01 : 0) | (timeouts ? 0x02 : 0));
		put_be16(p + 6, ops[i].len);
		at += 8;
		if (timeouts)
			at += put_timeouts(c->reply + at);
	}
	put_be32(c->reply, at - 4);
	return scsi_reply(c, at, get_be32(c->cdb + 6));
}

static enum scsi_next report_one(struct scsi_cmd *c, const struct scsi_op *op, bool timeouts)
{
	uint32_t len = 4;

	memset(c->reply, 0, 4);
	c->reply[1] = NOT_SUPPORTED;
	if (op) {
		c->reply[1] = (uint8_t)(AS_STANDARD | (timeouts ? 0x80 : 0));
		put_be16(c->reply + 2, op->len);
		c->reply[4] = op->opcode;
		memcpy(c->reply + 5, op->usage, op->len - 1u);
		if (op->flags & OP_ACTION)
			c->reply[5] = (uint8_t)((op->usage[0] & ~0x1f) | op->action);
		len += op->len;
		if (timeouts)
			len += put_timeouts(c->reply + len);
	}
	return scsi_reply(c, len, get_be32(c->cdb + 6));
}

/* Returns whether an opcode has service actions. */
static bool has_actions(const struct scsi_unit *u, uint8_t opcode)
{
	for (size_t i = 0; i < N_OPS; i++)
		if (ops[i].opcode == opcode && has(u, &ops[i]))
			return ops[i].flags & OP_ACTION;
	return false;
}

static enum scsi_next scsi_op_report_opcodes(struct scsi_cmd *c)
{
	uint8_t option = c->cdb[2] & 0x07, opcode = c->cdb[3];
	uint16_t action = get_be16(c->cdb + 4);
	bool timeouts = c->cdb[2] & 0x80, actions = has_actions(c->at, opcode), known;
	const struct scsi_op *op = scsi_op_find(c->at, opcode, (uint8_t)action, &known);

	if (option == REPORT_ALL)
		return report_all(c, timeouts);
	if (option > REPORT_EITHER || (option == REPORT_OPCODE && actions) ||
	    (option == REPORT_ACTION && known && !actions))
		return scsi_bad_cdb(c, 2, 2);
	if (op && actions && op->action != action)
		op = NULL;
	if (option == REPORT_EITHER && !actions && action)
		op = NULL;
	return report_one(c, op, timeouts);
}

/* ---- REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS -------------------------------------------- */

static enum scsi_next scsi_op_report_tmfs(struct scsi_cmd *c)
{
	bool extended = c->cdb[2] & 0x80;

	memset(c->reply, 0, 16);
	c->reply[0] =
		0xda; /* ATS, ATSS, CTSS, LURS, TRS: abort task, task set; clear task set; reset of unit, target */
	c->reply[3] = extended ? 12 : 0;
	return scsi_reply(c, extended ? 16 : 4, get_be32(c->cdb + 6));
}
