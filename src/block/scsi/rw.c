// SPDX-License-Identifier: BSD-2-Clause
/*
 * rw.c - commands that read, write and compare blocks.
 *
 * If the initiator sends less data than the CDB specifies, the whole blocks of it are written; the difference is the residual
 * count.
 */
#include "block/scsi/ops.h"

enum { FUA = 0x08, BYTCHK = 0x06 };
enum { BYTCHK_NONE = 0x00, BYTCHK_ALL = 0x02, BYTCHK_ONE = 0x06 };

/* ---- ranges ----------------------------------------------------------------------- */

struct scsi_range scsi_range(const struct scsi_cmd *c)
{
	const uint8_t *cdb = c->cdb;

	switch (cdb[0] >> 5) { /* the group code determines the length of the CDB */
	case 0:
		return (struct scsi_range){get_be32(cdb) & 0x1fffff, cdb[4] ? cdb[4] : 256, 4};
	case 1:
	case 2:
		return (struct scsi_range){get_be32(cdb + 2), get_be16(cdb + 7), 7};
	case 5:
		return (struct scsi_range){get_be32(cdb + 2), get_be32(cdb + 6), 6};
	default:
		return (struct scsi_range){get_be64(cdb + 2), get_be32(cdb + 10), 10};
	}
}

bool scsi_range_ok(struct scsi_cmd *c, const struct scsi_range *r, uint64_t most)
{
	const struct lun_facts *f = scsi_facts(c);
	uint64_t blocks = f->size / f->block;

	if (r->lba > blocks || r->blocks > blocks - r->lba)
		scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_OUT_OF_RANGE);
	else if (r->blocks > most / f->block)
		scsi_bad_cdb(c, r->length_at, 7);
	else
		return true;
	return false;
}

/* ---- data in and out ----------------------------------------------------------------- */

static void set_io(struct scsi_cmd *c, enum lun_op op, const struct scsi_range *r, uint64_t length)
{
	c->unit = c->at->lun;
	c->io.op = op;
	c->io.offset = r->lba * scsi_facts(c)->block;
	c->io.length = length;
}

enum scsi_next scsi_op_read(struct scsi_cmd *c)
{
	struct scsi_range r = scsi_range(c);
	uint32_t block = scsi_facts(c)->block, taken = scsi_data_in(c);
	uint64_t length;

	if (!scsi_range_ok(c, &r, SCSI_MAX_TRANSFER))
		return SCSI_DONE;
	c->want = (uint32_t)(r.blocks * block);
	length = c->want < taken ? c->want : ((uint64_t)taken + block - 1) / block * block;
	if (length == 0)
		return scsi_done(c);
	set_io(c, LUN_READ, &r, length < c->want ? length : c->want);
	return SCSI_READ;
}

/* Begins an operation with data-out of the length of the range. */
static enum scsi_next begin_data_out(struct scsi_cmd *c, enum lun_op op)
{
	struct scsi_range r = scsi_range(c);
	uint32_t block = scsi_facts(c)->block, given = scsi_data_out(c);
	uint32_t length;

	if (!scsi_range_ok(c, &r, SCSI_MAX_TRANSFER))
		return SCSI_DONE;
	c->want = (uint32_t)(r.blocks * block);
	length = c->want < given ? c->want : given / block * block;
	if (length == 0)
		return scsi_done(c);
	set_io(c, op, &r, length);
	return SCSI_WRITE;
}

/* The FUA bit has the same place in all CDBs of more than six bytes. */
static bool has_fua(const struct scsi_cmd *c)
{
	return !c->at->mode.wce || (c->op->len > 6 && (c->cdb[1] & FUA));
}

enum scsi_next scsi_op_write(struct scsi_cmd *c)
{
	c->io.fua = has_fua(c);
	return begin_data_out(c, LUN_WRITE);
}

enum scsi_next scsi_op_or_write(struct scsi_cmd *c)
{
	c->io.fua = has_fua(c);
	return begin_data_out(c, LUN_OR);
}

/* Forces durability: the data on the medium is what has to be verified. */
enum scsi_next scsi_op_write_verify(struct scsi_cmd *c)
{
	uint8_t check = c->cdb[1] & BYTCHK;

	if (check != BYTCHK_NONE && check != BYTCHK_ALL)
		return scsi_bad_cdb(c, 1, 2);
	c->io.fua = true;
	c->io.verify = check == BYTCHK_ALL;
	return begin_data_out(c, LUN_WRITE);
}

/* ---- VERIFY -------------------------------------------------------------------------------- */

/* Checks without data-out that the range can be read. */
static enum scsi_next verify_alone(struct scsi_cmd *c, const struct scsi_range *r)
{
	return r->blocks ? scsi_work(c, LUN_VERIFY, r->lba, r->blocks) : scsi_done(c);
}

/* Compares every block of the range with one block of data-out. */
static enum scsi_next verify_one(struct scsi_cmd *c, const struct scsi_range *r)
{
	uint32_t block = scsi_facts(c)->block;

	if (r->blocks == 0)
		return scsi_done(c);
	if (scsi_data_out(c) != block)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_BAD_INFORMATION_UNIT);
	c->next = r->lba;
	c->left = r->blocks;
	return scsi_collect(c, block);
}

enum scsi_next scsi_op_verify(struct scsi_cmd *c)
{
	struct scsi_range r = scsi_range(c);

	switch (c->cdb[1] & BYTCHK) {
	case BYTCHK_ALL:
		return begin_data_out(c, LUN_VERIFY);
	case BYTCHK_NONE:
		return scsi_range_ok(c, &r, SCSI_MAX_TRANSFER) ? verify_alone(c, &r) : SCSI_DONE;
	case BYTCHK_ONE:
		return scsi_range_ok(c, &r, SCSI_MAX_TRANSFER) ? verify_one(c, &r) : SCSI_DONE;
	default:
		return scsi_bad_cdb(c, 1, 2);
	}
}

enum scsi_next scsi_op_verify_collected(struct scsi_cmd *c)
{
	return scsi_repeat_block(c, LUN_VERIFY);
}

/* ---- repeating one block ------------------------------------------------------------------------ */

/* Begins the next step, of as many blocks as a list of buffers holds. */
enum scsi_next scsi_repeat_more(struct scsi_cmd *c)
{
	uint32_t block = scsi_facts(c)->block, filled = (uint32_t)c->io.iov[0].iov_len;
	uint64_t most = (uint64_t)LUN_MAX_IOV * filled, bytes;
	enum lun_op op = c->io.op;

	if (c->left == 0)
		return scsi_done(c);
	bytes = c->left < most / block ? c->left * block : most;
	c->io.n_iov = 0;
	for (uint64_t at = 0; at < bytes; at += filled)
		c->io.iov[c->io.n_iov++] =
			(struct iovec){c->data, bytes - at < filled ? bytes - at : filled};
	scsi_work(c, op, c->next, bytes / block);
	c->next += bytes / block;
	c->left -= bytes / block;
	return SCSI_WORK;
}

enum scsi_next scsi_repeat_block(struct scsi_cmd *c, enum lun_op op)
{
	uint32_t block = scsi_facts(c)->block;
	uint64_t bytes = c->left < UNITS_BUFFER / block ? c->left * block : UNITS_BUFFER;

	for (uint64_t have = block; have < bytes; have *= 2)
		memcpy(c->data + have, c->data, have < bytes - have ? have : bytes - have);
	c->io.op = op;
	c->io.iov[0].iov_len = bytes;
	return scsi_repeat_more(c);
}

/* ---- without data ---------------------------------------------------------------------------------- */

/* Succeeds without effect: the target has no read cache. */
enum scsi_next scsi_op_prefetch(struct scsi_cmd *c)
{
	struct scsi_range r = scsi_range(c);

	return scsi_range_ok(c, &r, UINT64_MAX) ? scsi_done(c) : SCSI_DONE;
}

enum scsi_next scsi_op_synchronize(struct scsi_cmd *c)
{
	struct scsi_range r = scsi_range(c);

	return scsi_range_ok(c, &r, UINT64_MAX) ? scsi_work(c, LUN_FLUSH, 0, 0) : SCSI_DONE;
}

/* ---- COMPARE AND WRITE ------------------------------------------------------------------------------ */

enum scsi_next scsi_op_compare_write(struct scsi_cmd *c)
{
	struct scsi_range r = {get_be64(c->cdb + 2), c->cdb[13], 13};
	const struct lun_facts *f = scsi_facts(c);

	if (!scsi_range_ok(c, &r, (uint64_t)scsi_max_compare(f) * f->block))
		return SCSI_DONE;
	if (scsi_data_out(c) != 2 * r.blocks * f->block)
		return scsi_bad_cdb(c, r.length_at, 7);
	if (r.blocks == 0)
		return scsi_done(c);
	return scsi_collect(c, (uint32_t)(2 * r.blocks * f->block));
}

enum scsi_next scsi_op_compare_write_collected(struct scsi_cmd *c)
{
	c->io.fua = has_fua(c);
	c->io.n_iov = 1;
	c->io.iov[0] = (struct iovec){c->data, c->out_len};
	return scsi_work(c, LUN_COMPARE_WRITE, get_be64(c->cdb + 2), c->cdb[13]);
}
