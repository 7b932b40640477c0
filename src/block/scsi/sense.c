// SPDX-License-Identifier: BSD-2-Clause
/*
 * sense.c - errors as sense data (SPC-4, "Sense data").
 *
 * The format is fixed or descriptors, as the unit's control mode page says. A field pointer names the field in error, down
 * to its bit.
 */
#include "block/scsi/ops.h"

#include <errno.h>

#define FIXED_LEN	 18
#define DESCRIPTOR_HEAD	 8
#define FIELD_IN_CDB	 0x40
#define FIELD_BIT_VALID	 0x08
#define SENSE_KEY_VALID	 0x80 /* SKSV */
#define INFORMATION_DESC 0x00
#define KEY_DESC	 0x02

/* Writes the sense-key specific bytes: a field pointer. */
static void put_field(uint8_t *to, const struct scsi_sense *s)
{
	to[0] = (uint8_t)(SENSE_KEY_VALID | (s->in_cdb ? FIELD_IN_CDB : 0) | FIELD_BIT_VALID |
			  s->bit);
	put_be16(to + 1, s->byte);
}

static uint32_t put_fixed(uint8_t *to, const struct scsi_sense *s)
{
	memset(to, 0, FIXED_LEN);
	to[0] = 0x70;
	to[2] = s->key;
	if (s->has_info && s->info <= UINT32_MAX) { /* a larger one does not fit */
		to[0] |= 0x80;
		put_be32(to + 3, (uint32_t)s->info);
	}
	to[7] = FIXED_LEN - 8;
	to[12] = s->asc;
	to[13] = s->ascq;
	if (s->has_field)
		put_field(to + 15, s);
	return FIXED_LEN;
}

static uint32_t put_descriptors(uint8_t *to, const struct scsi_sense *s)
{
	uint8_t *at = to + DESCRIPTOR_HEAD;

	memset(to, 0, SCSI_SENSE_MAX);
	to[0] = 0x72;
	to[1] = s->key;
	to[2] = s->asc;
	to[3] = s->ascq;
	if (s->has_info) {
		at[0] = INFORMATION_DESC;
		at[1] = 10;
		at[2] = 0x80;
		put_be64(at + 4, s->info);
		at += 12;
	}
	if (s->has_field) {
		at[0] = KEY_DESC;
		at[1] = 6;
		put_field(at + 4, s);
		at += 8;
	}
	to[7] = (uint8_t)(at - to - DESCRIPTOR_HEAD);
	return (uint32_t)(at - to);
}

uint32_t scsi_sense_put(uint8_t *to, const struct scsi_sense *s, bool descriptors)
{
	return descriptors ? put_descriptors(to, s) : put_fixed(to, s);
}

static enum scsi_next check(struct scsi_cmd *c, const struct scsi_sense *s)
{
	c->status = SCSI_CHECK_CONDITION;
	c->sense_len = scsi_sense_put(c->sense, s, c->at && c->at->mode.d_sense);
	c->reply_len = 0;
	c->want = 0;
	return SCSI_DONE;
}

static struct scsi_sense sense_of(uint8_t key, uint16_t asc_ascq)
{
	return (struct scsi_sense){
		.key = key,
		.asc = (uint8_t)(asc_ascq >> 8),
		.ascq = (uint8_t)asc_ascq,
	};
}

enum scsi_next scsi_refuse(struct scsi_cmd *c, uint8_t key, uint16_t asc_ascq)
{
	struct scsi_sense s = sense_of(key, asc_ascq);

	return check(c, &s);
}

void scsi_fail(struct scsi_cmd *c, uint8_t key, uint8_t asc, uint8_t ascq)
{
	scsi_refuse(c, key, (uint16_t)(asc << 8 | ascq));
}

static enum scsi_next bad_field(struct scsi_cmd *c, uint16_t asc_ascq, uint16_t byte, uint8_t bit)
{
	struct scsi_sense s = sense_of(SCSI_ILLEGAL_REQUEST, asc_ascq);

	s.has_field = true;
	s.in_cdb = asc_ascq == ASC_BAD_CDB;
	s.byte = byte;
	s.bit = bit;
	return check(c, &s);
}

enum scsi_next scsi_bad_cdb(struct scsi_cmd *c, uint16_t byte, uint8_t bit)
{
	return bad_field(c, ASC_BAD_CDB, byte, bit);
}

enum scsi_next scsi_bad_parameter(struct scsi_cmd *c, uint16_t byte, uint8_t bit)
{
	return bad_field(c, ASC_BAD_PARAMETER, byte, bit);
}

static enum scsi_next miscompare(struct scsi_cmd *c)
{
	struct scsi_sense s = sense_of(SCSI_MISCOMPARE, ASC_MISCOMPARE);

	s.has_info = true;
	s.info = c->io.where;
	return check(c, &s);
}

/* SBC-3 requires the address of the block in error. */
static enum scsi_next medium_error(struct scsi_cmd *c)
{
	bool reading = c->io.op == LUN_READ || c->io.op == LUN_VERIFY || c->io.op == LUN_EXTENT;
	struct scsi_sense s =
		sense_of(SCSI_MEDIUM_ERROR, reading ? ASC_READ_ERROR : ASC_WRITE_ERROR);

	s.has_info = c->at && c->io.length > 0;
	s.info = s.has_info ? (c->io.offset + c->io.where) / scsi_facts(c)->block : 0;
	return check(c, &s);
}

enum scsi_next scsi_result(struct scsi_cmd *c, int result)
{
	switch (result) {
	case 0:
		return SCSI_DONE;
	case -EILSEQ:
		return miscompare(c);
	case -ENOSPC:
	case -EDQUOT:
		return scsi_refuse(c, SCSI_DATA_PROTECT, ASC_NO_SPACE);
	case -EROFS:
	case -EACCES:
	case -EPERM:
		return scsi_refuse(c, SCSI_DATA_PROTECT, ASC_WRITE_PROTECTED);
	case -ENODEV:
		return scsi_refuse(c, SCSI_NOT_READY, ASC_NEEDS_HELP);
	case -ECANCELED:
		return scsi_refuse(c, SCSI_ABORTED_COMMAND, ASC_TERMINATED);
	case -ENOMEM: /* temporary */
		c->status = SCSI_BUSY;
		c->want = c->reply_len = 0;
		return SCSI_DONE;
	default:
		return medium_error(c);
	}
}
