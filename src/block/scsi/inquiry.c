// SPDX-License-Identifier: BSD-2-Clause
/*
 * inquiry.c - commands that describe a unit: INQUIRY with vital product data, READ CAPACITY, REPORT LUNS, REQUEST SENSE.
 */
#include "block/scsi/ops.h"

#include <stdio.h>

#define VENDOR	 "STAG    "
#define REVISION "0001"

#define NOT_HERE 0x7f /* qualifier 3, type 31: no unit at this number */

/* SPC-4, "Version descriptor values" */
static const uint16_t versions[] = {
	0x00a0, /* SAM-5 */
	0x0960, /* iSCSI */
	0x0460, /* SPC-4 */
	0x04c0, /* SBC-3 */
};

enum { STANDARD_LEN = 58 + 16 }; /* eight version descriptors, of which some are zero */

enum scsi_next scsi_op_ready(struct scsi_cmd *c)
{
	return scsi_done(c);
}

/* ---- INQUIRY ------------------------------------------------------------------------- */

/* Writes text left-justified, padded with blanks. */
static void put_text(uint8_t *to, size_t room, const char *text)
{
	size_t len = strnlen(text, room);

	memcpy(to, text, len);
	memset(to + len, ' ', room - len);
}

static uint32_t standard(struct scsi_cmd *c)
{
	uint8_t *r = c->reply;

	memset(r, 0, STANDARD_LEN);
	r[0] = c->at ? 0 : NOT_HERE;
	r[2] = 6;    /* SPC-4 */
	r[3] = 0x12; /* hierarchical LUNs; response data format 2 */
	r[4] = STANDARD_LEN - 5;
	r[6] = 0x10; /* MULTIP: several ports */
	r[7] = 0x02; /* CMDQUE: queues commands */
	put_text(r + 8, 8, VENDOR);
	put_text(r + 16, 16, c->at ? scsi_facts(c)->product : "");
	put_text(r + 32, 4, REVISION);
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		put_be16(r + 58 + 2 * i, versions[i]);
	return STANDARD_LEN;
}

static uint32_t page_serial(const struct lun_facts *f, uint8_t *p)
{
	size_t len = strlen(f->serial);

	memcpy(p, f->serial, len);
	return (uint32_t)len;
}

/* Writes a designator of the unit: SPC-4, "Device Identification VPD page". */
static uint8_t *put_designator(uint8_t *p, uint8_t code_set, uint8_t type, const void *id,
			       size_t len)
{
	p[0] = code_set;
	p[1] = type;
	p[2] = 0;
	p[3] = (uint8_t)len;
	memcpy(p + 4, id, len);
	return p + 4 + len;
}

static uint32_t page_identification(const struct lun_facts *f, uint8_t *p)
{
	char t10[8 + sizeof(f->serial)];
	uint8_t *at = put_designator(p, 1, 3, f->naa, sizeof(f->naa)); /* binary, NAA */
	int len = snprintf(t10, sizeof(t10), "%s%s", VENDOR, f->serial);

	at = put_designator(at, 2, 1, t10, (size_t)len); /* ASCII, T10 vendor */
	return (uint32_t)(at - p);
}

static uint32_t page_extended(const struct lun_facts *f, uint8_t *p)
{
	memset(p, 0, 60);
	p[1] = 0x01;			    /* SIMPSUP: simple tasks */
	p[2] = f->write_back ? 0x01 : 0x00; /* V_SUP: a volatile cache */
	p[3] = 0x01; /* LUICLR: REPORT LUNS clears the attention of all units */
	return 60;
}

uint32_t scsi_max_compare(const struct lun_facts *f)
{
	uint32_t most = SCSI_COLLECT_MAX / 2 / f->block;

	return most < UINT8_MAX ? most : UINT8_MAX;
}

/* SBC-3, "Block Limits VPD page". Offsets are those of the page, less its header. */
static uint32_t page_limits(const struct lun_facts *f, uint8_t *p)
{
	uint32_t granule = f->physical / f->block;

	memset(p, 0, 60);
	p[1] = (uint8_t)scsi_max_compare(f);
	put_be16(p + 2, (uint16_t)granule);
	put_be32(p + 4, (uint32_t)(SCSI_MAX_TRANSFER / f->block));
	put_be32(p + 8, SCSI_BEST_TRANSFER / f->block);
	put_be64(p + 32, SCSI_MAX_SAME / f->block);
	if (!f->discards)
		return 60;
	put_be32(p + 16, SCSI_MAX_UNMAP);
	put_be32(p + 20, SCSI_MAX_UNMAPS);
	put_be32(p + 24, granule);
	put_be32(p + 28, 0x80000000); /* UGAVALID: alignment 0 */
	return 60;
}

static uint32_t page_characteristics(const struct lun_facts *f, uint8_t *p)
{
	(void)f;
	memset(p, 0, 60);
	put_be16(p, 1); /* non-rotating medium */
	return 60;
}

static uint32_t page_provisioning(const struct lun_facts *f, uint8_t *p)
{
	memset(p, 0, 4);
	if (!f->discards)
		return 4;
	p[1] = 0xe4; /* UNMAP, WRITE SAME 16 and 10; unmapped blocks read as zeroes */
	p[2] = 0x02; /* thin */
	return 4;
}

static uint32_t page_pages(const struct lun_facts *f, uint8_t *p);

static const struct {
	uint8_t code;
	uint32_t (*put)(const struct lun_facts *f,
			uint8_t *p); /* writes what follows the header; returns its length */
} pages[] = {
	{0x00, page_pages},	   {0x80, page_serial}, {0x83, page_identification},
	{0x86, page_extended},	   {0xb0, page_limits}, {0xb1, page_characteristics},
	{0xb2, page_provisioning},
};

#define N_PAGES (sizeof(pages) / sizeof(pages[0]))

static uint32_t page_pages(const struct lun_facts *f, uint8_t *p)
{
	(void)f;
	for (size_t i = 0; i < N_PAGES; i++)
		p[i] = pages[i].code;
	return N_PAGES;
}

static enum scsi_next reply_vpd(struct scsi_cmd *c)
{
	uint8_t code = c->cdb[2];

	if (!c->at)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_NO_UNIT);
	for (size_t i = 0; i < N_PAGES; i++) {
		uint32_t len;

		if (pages[i].code != code)
			continue;
		len = pages[i].put(scsi_facts(c), c->reply + 4);
		c->reply[0] = 0;
		c->reply[1] = code;
		put_be16(c->reply + 2, (uint16_t)len);
		return scsi_reply(c, 4 + len, get_be16(c->cdb + 3));
	}
	return scsi_bad_cdb(c, 2, 7);
}

enum scsi_next scsi_op_inquiry(struct scsi_cmd *c)
{
	if (c->cdb[1] & 1)
		return reply_vpd(c);
	if (c->cdb[2])
		return scsi_bad_cdb(c, 2, 7);
	return scsi_reply(c, standard(c), get_be16(c->cdb + 3));
}

/* ---- capacity -------------------------------------------------------------------------- */

static uint64_t last_block(const struct lun_facts *f)
{
	return f->size / f->block - 1;
}

enum scsi_next scsi_op_read_capacity10(struct scsi_cmd *c)
{
	const struct lun_facts *f = scsi_facts(c);
	uint64_t last = last_block(f);

	put_be32(c->reply, last < UINT32_MAX ? (uint32_t)last : UINT32_MAX);
	put_be32(c->reply + 4, f->block);
	return scsi_reply(c, 8, 8);
}

enum scsi_next scsi_op_read_capacity16(struct scsi_cmd *c)
{
	const struct lun_facts *f = scsi_facts(c);

	memset(c->reply, 0, 32);
	put_be64(c->reply, last_block(f));
	put_be32(c->reply + 8, f->block);
	/* Byte 13 stays 0, whatever the physical block: the target merges smaller writes. Block Limits has the optimal size. */
	c->reply[14] =
		f->discards ? 0xc0 : 0; /* LBPME, LBPRZ: thin; unmapped blocks read as zeroes */
	return scsi_reply(c, 32, get_be32(c->cdb + 10));
}

/* ---- units ----------------------------------------------------------------------------------- */

enum { REPORT_PLAIN = 0, REPORT_WELL_KNOWN = 1, REPORT_ALL = 2 };

static void put_lun(uint8_t *to, uint16_t number)
{
	memset(to, 0, 8);
	put_be16(to, number <= 0xff ? number : (uint16_t)(0x4000 | number));
}

/* Lists the units that the nexus sees in ascending order of their LUNs. */
static uint32_t list_units(const struct scsi_nexus *nexus, uint8_t *to)
{
	const struct scsi_target *t = nexus->target;
	uint32_t n = 0;
	int32_t last = -1;

	for (;;) {
		int32_t next = SCSI_LUN_MAX + 1;

		for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++) {
			const struct scsi_unit *u = t->units[i];

			if (u && !u->removed && u->number > last && u->number < next &&
			    scsi_sees(nexus, u->number))
				next = u->number;
		}
		if (next > SCSI_LUN_MAX)
			return n;
		put_lun(to + (size_t)8 * n++, (uint16_t)next);
		last = next;
	}
}

enum scsi_next scsi_op_report_luns(struct scsi_cmd *c)
{
	uint32_t allocation = get_be32(c->cdb + 6), n = 0;

	if (c->cdb[2] > REPORT_ALL)
		return scsi_bad_cdb(c, 2, 7);
	if (allocation < 16)
		return scsi_bad_cdb(c, 6, 7);
	memset(c->reply, 0, 8);
	if (c->cdb[2] != REPORT_WELL_KNOWN)
		n = list_units(c->nexus, c->reply + 8);
	put_be32(c->reply, 8 * n);
	for (int i = 0; i < STAG_BLOCK_MAX_LUNS; i++) /* this nexus knows the change now */
		c->nexus->at[i].attentions &= (uint16_t) ~(1 << ATTENTION_LUNS);
	return scsi_reply(c, 8 + 8 * n, allocation);
}

/* ---- sense ------------------------------------------------------------------------------------- */

enum scsi_next scsi_op_request_sense(struct scsi_cmd *c)
{
	uint16_t asc_ascq = c->at ? scsi_pop_attention(c->nexus, c->at) : ASC_NO_UNIT;
	struct scsi_sense s = {
		.key = !c->at	  ? SCSI_ILLEGAL_REQUEST
		       : asc_ascq ? SCSI_UNIT_ATTENTION
				  : SCSI_NO_SENSE,
		.asc = (uint8_t)(asc_ascq >> 8),
		.ascq = (uint8_t)asc_ascq,
	};

	return scsi_reply(c, scsi_sense_put(c->reply, &s, c->cdb[1] & 1), c->cdb[4]);
}
