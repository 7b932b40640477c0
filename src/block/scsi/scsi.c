// SPDX-License-Identifier: BSD-2-Clause
/*
 * scsi.c - a command, from its CDB to its status.
 *
 * Checks before a command, in this order: its unit, pending unit attentions, reservations, the opcode, bits of the CDB that
 * must not be set, write protection. The command itself is carried out by the functions of its line in the table (ops.c).
 */
#include "block/scsi/ops.h"

#include <assert.h>

/* ---- ends ------------------------------------------------------------------------- */

enum scsi_next scsi_done(struct scsi_cmd *c)
{
	c->status = SCSI_GOOD;
	return SCSI_DONE;
}

enum scsi_next scsi_reply(struct scsi_cmd *c, uint32_t len, uint32_t allocation)
{
	uint32_t taken = scsi_data_in(c);

	assert(len <= SCSI_REPLY_MAX);
	c->want = len < allocation ? len : allocation;
	c->reply_len = c->want < taken ? c->want : taken;
	return scsi_done(c);
}

enum scsi_next scsi_collect(struct scsi_cmd *c, uint32_t len)
{
	c->want = len;
	c->out_len = len;
	return SCSI_COLLECT;
}

enum scsi_next scsi_work(struct scsi_cmd *c, enum lun_op op, uint64_t lba, uint64_t blocks)
{
	uint32_t block = scsi_facts(c)->block;

	c->unit = c->at->lun;
	c->io.op = op;
	c->io.fua |= !c->at->mode.wce;
	c->io.offset = lba * block;
	c->io.length = blocks * block;
	return SCSI_WORK;
}

/* ---- checks before a command -------------------------------------------------------- */

static uint8_t highest_bit(uint8_t bits)
{
	return (uint8_t)(31 - __builtin_clz(bits));
}

/* Reports the first set bit that the command does not use. */
static bool fields_ok(struct scsi_cmd *c, const struct scsi_op *op)
{
	if (c->cdb_len < op->len) {
		scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_BAD_CDB);
		return false;
	}
	for (uint16_t i = 1; i < op->len; i++) {
		uint8_t wrong = (uint8_t)(c->cdb[i] & ~op->usage[i - 1]);

		if (!wrong)
			continue;
		scsi_bad_cdb(c, i, highest_bit(wrong));
		return false;
	}
	return true;
}

/* A nexus that only reads must not keep others from writing either. */
static bool may_write(struct scsi_cmd *c, const struct scsi_op *op)
{
	if (scsi_only_reads(c->nexus) && (op->flags & (OP_WRITES | OP_CHANGES))) {
		c->denied = "may only read";
		scsi_refuse(c, SCSI_DATA_PROTECT, ASC_WRITE_PROTECTED);
		return false;
	}
	if (!(op->flags & OP_WRITES))
		return true;
	if (scsi_facts(c)->read_only)
		scsi_refuse(c, SCSI_DATA_PROTECT, ASC_WRITE_PROTECTED);
	else if (c->at->mode.swp)
		scsi_refuse(c, SCSI_DATA_PROTECT, ASC_SOFTWARE_PROTECTED);
	else
		return true;
	return false;
}

static enum scsi_next no_such_command(struct scsi_cmd *c, bool known)
{
	if (!c->at && scsi_hides(c->nexus, c->lun))
		c->denied = "no right to this unit";
	if (!c->at)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_NO_UNIT);
	if (known)
		return scsi_bad_cdb(c, 1, 4); /* points to the service action */
	return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_BAD_OPCODE);
}

static bool has_attention(struct scsi_cmd *c, const struct scsi_op *op)
{
	uint16_t asc_ascq;

	if (!c->at || (op && (op->flags & OP_CALM)))
		return false;
	asc_ascq = scsi_pop_attention(c->nexus, c->at);
	if (asc_ascq)
		scsi_refuse(c, SCSI_UNIT_ATTENTION, asc_ascq);
	return asc_ascq != 0;
}

static bool has_conflict(struct scsi_cmd *c, const struct scsi_op *op)
{
	if (!c->at || !scsi_is_reserved(c->at, c->nexus, op))
		return false;
	c->status = SCSI_RESERVATION_CONFLICT;
	return true;
}

/* ---- the calls -------------------------------------------------------------------------- */

static void clear_answer(struct scsi_cmd *c)
{
	c->status = SCSI_GOOD;
	c->sense_len = c->reply_len = c->want = c->out_len = 0;
	c->unit = NULL;
	c->denied = NULL;
	c->data = NULL;
	c->next = c->left = 0;
	c->io.fua = c->io.verify = false;
	c->io.n_iov = 0;
	c->io.where = 0;
}

enum scsi_next scsi_begin(struct scsi_target *t, struct scsi_cmd *c)
{
	bool known = false;

	clear_answer(c);
	c->at = scsi_unit_at(t, c->nexus, c->lun);
	if (c->at)
		scsi_unit_get(c->at, c->nexus);
	c->op = scsi_op_find(c->at, c->cdb[0], c->cdb[1] & 0x1f, &known);
	if (has_attention(c, c->op) || has_conflict(c, c->op))
		return SCSI_DONE;
	if (!c->op || (!c->at && !(c->op->flags & OP_ANYWHERE)))
		return no_such_command(c, known);
	if (!fields_ok(c, c->op) || !may_write(c, c->op))
		return SCSI_DONE;
	return c->op->begin(c);
}

enum scsi_next scsi_collected(struct scsi_cmd *c, uint8_t *data)
{
	c->data = data;
	return c->op->collected(c);
}

enum scsi_next scsi_worked(struct scsi_cmd *c, int result)
{
	scsi_persist_settle(c);
	if (result != 0)
		return scsi_result(c, result);
	return c->op->worked ? c->op->worked(c) : scsi_done(c);
}

void scsi_end(struct scsi_cmd *c, int result)
{
	scsi_result(c, result);
}

void scsi_release(struct scsi_cmd *c)
{
	if (c->at) {
		scsi_persist_settle(c);
		scsi_unit_put(c->at, c->nexus);
	}
	c->at = NULL;
}
