// SPDX-License-Identifier: BSD-2-Clause
/*
 * thin.c - thin provisioning: WRITE SAME, UNMAP, GET LBA STATUS.
 *
 * Unmapped blocks read as zeroes. So a WRITE SAME of zeroes with the UNMAP bit unmaps.
 */
#include "block/scsi/ops.h"

#include "base/zero.h"

enum { UNMAP = 0x08, NDOB = 0x01 };

/* ---- WRITE SAME ------------------------------------------------------------------------ */

/* Checks the range. A count of 0 means all blocks up to the end of the unit. */
static bool same_ok(struct scsi_cmd *c, struct scsi_range *r)
{
	const struct lun_facts *f = scsi_facts(c);

	if (r->blocks == 0 && r->lba < f->size / f->block)
		r->blocks = f->size / f->block - r->lba;
	else if (r->blocks == 0)
		r->blocks = 1; /* past the end: out of range, too */
	if (!scsi_range_ok(c, r, SCSI_MAX_SAME))
		return false;
	if (!(c->cdb[1] & UNMAP) || f->discards)
		return true;
	scsi_bad_cdb(c, 1, 3);
	return false;
}

static enum scsi_next same_zeroes(struct scsi_cmd *c)
{
	uint64_t left = c->left;

	c->left = 0;
	return scsi_work(c, c->cdb[1] & UNMAP ? LUN_DISCARD : LUN_ZERO, c->next, left);
}

enum scsi_next scsi_op_write_same(struct scsi_cmd *c)
{
	struct scsi_range r = scsi_range(c);
	uint32_t block = scsi_facts(c)->block;

	if (!same_ok(c, &r))
		return SCSI_DONE;
	c->next = r.lba;
	c->left = r.blocks;
	if (c->cdb[1] & NDOB)
		return same_zeroes(c);
	if (scsi_data_out(c) != block)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_BAD_INFORMATION_UNIT);
	return scsi_collect(c, block);
}

enum scsi_next scsi_op_write_same_collected(struct scsi_cmd *c)
{
	if (is_zero(c->data, c->out_len))
		return same_zeroes(c);
	return scsi_repeat_block(c, LUN_WRITE);
}

/* ---- UNMAP --------------------------------------------------------------------------------- */

#define UNMAP_HEAD 8
#define UNMAP_EACH 16

enum scsi_next scsi_op_unmap(struct scsi_cmd *c)
{
	uint32_t len = get_be16(c->cdb + 7);

	if (len == 0)
		return scsi_done(c);
	if (len < UNMAP_HEAD || scsi_data_out(c) < len)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	return scsi_collect(c, len);
}

static struct scsi_range unmap_range(const struct scsi_cmd *c, uint64_t i)
{
	const uint8_t *p = c->data + UNMAP_HEAD + i * UNMAP_EACH;

	return (struct scsi_range){get_be64(p), get_be32(p + 8), 0};
}

/* Checks all descriptors before the first one is carried out. */
static bool unmaps_ok(struct scsi_cmd *c)
{
	uint64_t blocks = 0;

	if (c->left > SCSI_MAX_UNMAPS) {
		scsi_bad_parameter(c, 2, 7);
		return false;
	}
	for (uint64_t i = 0; i < c->left; i++) {
		struct scsi_range r = unmap_range(c, i);

		if (!scsi_range_ok(c, &r, UINT64_MAX))
			return false;
		blocks += r.blocks;
		if (blocks > SCSI_MAX_UNMAP) {
			scsi_bad_parameter(c, (uint16_t)(UNMAP_HEAD + i * UNMAP_EACH + 8), 7);
			return false;
		}
	}
	return true;
}

enum scsi_next scsi_op_unmap_worked(struct scsi_cmd *c)
{
	while (c->next < c->left) {
		struct scsi_range r = unmap_range(c, c->next++);

		if (r.blocks)
			return scsi_work(c, LUN_DISCARD, r.lba, r.blocks);
	}
	return scsi_done(c);
}

enum scsi_next scsi_op_unmap_collected(struct scsi_cmd *c)
{
	uint32_t descriptors = get_be16(c->data + 2);

	if (descriptors > c->out_len - UNMAP_HEAD)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	c->left = descriptors / UNMAP_EACH;
	return unmaps_ok(c) ? scsi_op_unmap_worked(c) : SCSI_DONE;
}

/* ---- GET LBA STATUS ---------------------------------------------------------------------------- */

enum scsi_next scsi_op_lba_status(struct scsi_cmd *c)
{
	const struct lun_facts *f = scsi_facts(c);
	uint64_t lba = get_be64(c->cdb + 2), blocks = f->size / f->block;

	if (lba >= blocks)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_OUT_OF_RANGE);
	return scsi_work(c, LUN_EXTENT, lba, blocks - lba);
}

/* Returns one descriptor; the initiator requests more from its end on. */
enum scsi_next scsi_op_lba_status_worked(struct scsi_cmd *c)
{
	uint64_t blocks = (c->io.where - c->io.offset) / scsi_facts(c)->block;

	memset(c->reply, 0, 24);
	put_be32(c->reply, 20);
	put_be64(c->reply + 8, get_be64(c->cdb + 2));
	put_be32(c->reply + 16, blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX);
	c->reply[20] = c->io.mapped ? 0 : 1;
	return scsi_reply(c, 24, get_be32(c->cdb + 10));
}
