// SPDX-License-Identifier: BSD-2-Clause
/*
 * mode.c - MODE SENSE and MODE SELECT (SPC-4), with the pages of a disk (SBC-3).
 *
 * Three bits can be changed: the format of sense data, write protection and, if the unit was created with one, the write cache.
 * Nothing is saved.
 */
#include "block/scsi/ops.h"

enum { PAGE_ERRORS = 0x01, PAGE_CACHE = 0x08, PAGE_CONTROL = 0x0a, PAGE_EXCEPTIONS = 0x1c };
enum { ALL_PAGES = 0x3f, ALL_SUBPAGES = 0xff };
enum { PC_CURRENT, PC_CHANGEABLE, PC_DEFAULT, PC_SAVED };

#define PAGE_MAX 20

struct mode_page {
	uint8_t code, len; /* len: without the two bytes of the header */
};

/* In the order in which MODE SENSE returns them. */
static const struct mode_page pages[] = {
	{PAGE_ERRORS, 0x0a},
	{PAGE_CACHE, 0x12},
	{PAGE_CONTROL, 0x0a},
	{PAGE_EXCEPTIONS, 0x0a},
};

#define N_PAGES (sizeof(pages) / sizeof(pages[0]))

struct scsi_mode scsi_mode_default(const struct lun *l)
{
	return (struct scsi_mode){.wce = lun_facts(l)->write_back};
}

/* Sets the bits of a page that modes stand for; used for current and for changeable values. */
static void put_modes(const struct mode_page *page, const struct scsi_mode *m, uint8_t *p)
{
	if (page->code == PAGE_CACHE && m->wce)
		p[2] |= 0x04;
	if (page->code == PAGE_CONTROL && m->d_sense)
		p[2] |= 0x04;
	if (page->code == PAGE_CONTROL && m->swp)
		p[4] |= 0x08;
}

static void put_page(const struct mode_page *page, const struct scsi_mode *m, uint8_t *p)
{
	memset(p, 0, PAGE_MAX);
	p[0] = page->code;
	p[1] = page->len;
	if (page->code == PAGE_CONTROL) {
		p[3] = 0x10;		 /* QUEUE ALGORITHM MODIFIER: unrestricted reordering */
		put_be16(p + 8, 0xffff); /* BUSY TIMEOUT PERIOD: unlimited */
	}
	if (page->code == PAGE_EXCEPTIONS)
		p[2] = 0x08; /* DEXCPT: no exceptions are reported */
	put_modes(page, m, p);
}

/* WCE cannot be changed on a unit without a write cache. */
static struct scsi_mode changeable(const struct lun_facts *f)
{
	return (struct scsi_mode){.d_sense = true, .swp = true, .wce = f->write_back};
}

static void put_changeable(const struct mode_page *page, const struct lun_facts *f, uint8_t *p)
{
	struct scsi_mode m = changeable(f);

	memset(p, 0, PAGE_MAX);
	p[0] = page->code;
	p[1] = page->len;
	put_modes(page, &m, p);
}

/* ---- MODE SENSE -------------------------------------------------------------------------- */

static void put_values(const struct scsi_cmd *c, const struct mode_page *page, uint8_t control,
		       uint8_t *p)
{
	struct scsi_mode m = scsi_mode_default(c->at->lun);

	switch (control) {
	case PC_CHANGEABLE:
		put_changeable(page, scsi_facts(c), p);
		break;
	case PC_DEFAULT:
		put_page(page, &m, p);
		break;
	default:
		put_page(page, &c->at->mode, p);
	}
}

/* Writes the requested pages behind head bytes. Returns the total length, or 0 if there is no such page. */
static uint32_t put_pages(struct scsi_cmd *c, uint32_t head)
{
	uint8_t code = c->cdb[2] & 0x3f, control = c->cdb[2] >> 6;
	uint32_t at = head;

	for (size_t i = 0; i < N_PAGES; i++) {
		if (code != ALL_PAGES && code != pages[i].code)
			continue;
		put_values(c, &pages[i], control, c->reply + at);
		at += 2u + pages[i].len;
	}
	return at > head ? at : 0;
}

static void put_block_descriptor(const struct lun_facts *f, uint8_t *p, bool is_long)
{
	uint64_t blocks = f->size / f->block;

	if (is_long) {
		put_be64(p, blocks);
		put_be32(p + 12, f->block);
	} else {
		put_be32(p, blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX);
		put_be32(p + 4, f->block);
	}
}

static uint8_t device_specific(const struct scsi_cmd *c)
{
	bool protected = scsi_facts(c)->read_only || c->at->mode.swp || scsi_only_reads(c->nexus);

	return (uint8_t)((protected ? 0x80 : 0) | 0x10); /* WP, DPOFUA */
}

/* Checks the fields that MODE SENSE (6) and (10) have in common. */
static bool sense_ok(struct scsi_cmd *c)
{
	if (c->cdb[2] >> 6 == PC_SAVED) {
		scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_NOT_SAVED);
		return false;
	}
	if (c->cdb[3] != 0 && c->cdb[3] != ALL_SUBPAGES) {
		scsi_bad_cdb(c, 3, 7);
		return false;
	}
	return true;
}

enum scsi_next scsi_op_mode_sense6(struct scsi_cmd *c)
{
	uint32_t descriptor = c->cdb[1] & 0x08 ? 0 : 8, len;

	if (!sense_ok(c))
		return SCSI_DONE;
	memset(c->reply, 0, 4 + 8);
	c->reply[2] = device_specific(c);
	c->reply[3] = (uint8_t)descriptor;
	if (descriptor)
		put_block_descriptor(scsi_facts(c), c->reply + 4, false);
	len = put_pages(c, 4 + descriptor);
	if (!len)
		return scsi_bad_cdb(c, 2, 5);
	c->reply[0] = (uint8_t)(len - 1);
	return scsi_reply(c, len, c->cdb[4]);
}

enum scsi_next scsi_op_mode_sense10(struct scsi_cmd *c)
{
	bool is_long = c->cdb[1] & 0x10;
	uint32_t descriptor = c->cdb[1] & 0x08 ? 0 : is_long ? 16 : 8, len;

	if (!sense_ok(c))
		return SCSI_DONE;
	memset(c->reply, 0, 8 + 16);
	c->reply[3] = device_specific(c);
	c->reply[4] = is_long && descriptor;
	put_be16(c->reply + 6, (uint16_t)descriptor);
	if (descriptor)
		put_block_descriptor(scsi_facts(c), c->reply + 8, is_long);
	len = put_pages(c, 8 + descriptor);
	if (!len)
		return scsi_bad_cdb(c, 2, 5);
	put_be16(c->reply, (uint16_t)(len - 2));
	return scsi_reply(c, len, get_be16(c->cdb + 7));
}

/* ---- MODE SELECT ----------------------------------------------------------------------------- */

enum { MODE_SELECT6 = 0x15 };

enum scsi_next scsi_op_mode_select(struct scsi_cmd *c)
{
	uint32_t len = c->cdb[0] == MODE_SELECT6 ? c->cdb[4] : get_be16(c->cdb + 7);

	if (c->cdb[1] & 0x01) /* SP: nothing can be saved */
		return scsi_bad_cdb(c, 1, 0);
	if (len == 0)
		return scsi_done(c);
	if (scsi_data_out(c) < len)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	return scsi_collect(c, len);
}

/* Accepts only a block descriptor with the current values, or with zeroes (no change). */
static bool descriptor_ok(struct scsi_cmd *c, uint32_t at, uint32_t len, bool is_long)
{
	const struct lun_facts *f = scsi_facts(c);
	uint8_t same[16] = {0};
	uint32_t block;

	if (len == 0)
		return true;
	if (len != (is_long ? 16 : 8)) {
		scsi_bad_parameter(c, (uint16_t)(at - 1), 7);
		return false;
	}
	put_block_descriptor(f, same, is_long);
	block = get_be32(c->data + at + len - 4) & (is_long ? UINT32_MAX : 0xffffff);
	if (block != f->block) {
		scsi_bad_parameter(c, (uint16_t)(at + len - 4), 7);
		return false;
	}
	for (uint32_t i = 0; i < len - 4; i++) {
		if (!c->data[at + i] || c->data[at + i] == same[i])
			continue;
		scsi_bad_parameter(c, (uint16_t)(at + i), 7);
		return false;
	}
	return true;
}

static const struct mode_page *find_page(uint8_t code)
{
	for (size_t i = 0; i < N_PAGES; i++)
		if (pages[i].code == code)
			return &pages[i];
	return NULL;
}

/* Applies the changes of a page to m. Returns false if it changes a fixed field: the command has ended. */
static bool apply_page(struct scsi_cmd *c, const struct mode_page *page, uint32_t at,
		       struct scsi_mode *m)
{
	uint8_t is[PAGE_MAX], may[PAGE_MAX];
	const uint8_t *p = c->data + at;

	put_page(page, &c->at->mode, is);
	put_changeable(page, scsi_facts(c), may);
	for (uint32_t i = 2; i < 2u + page->len; i++) {
		uint8_t wrong = (uint8_t)((p[i] ^ is[i]) & ~may[i]);

		if (!wrong)
			continue;
		scsi_bad_parameter(c, (uint16_t)(at + i), (uint8_t)(31 - __builtin_clz(wrong)));
		return false;
	}
	if (page->code == PAGE_CACHE)
		m->wce = p[2] & 0x04;
	if (page->code == PAGE_CONTROL) {
		m->d_sense = p[2] & 0x04;
		m->swp = p[4] & 0x08;
	}
	return true;
}

static bool apply_pages(struct scsi_cmd *c, uint32_t at, struct scsi_mode *m)
{
	while (at < c->out_len) {
		const struct mode_page *page =
			find_page(c->data[at] & 0x7f); /* PS is reserved here */

		if (!page) {
			scsi_bad_parameter(c, (uint16_t)at, 5);
			return false;
		}
		if (c->out_len - at < 2u + page->len) {
			scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
			return false;
		}
		if (c->data[at + 1] != page->len) {
			scsi_bad_parameter(c, (uint16_t)(at + 1), 7);
			return false;
		}
		if (!apply_page(c, page, at, m))
			return false;
		at += 2u + page->len;
	}
	return true;
}

enum scsi_next scsi_op_mode_select_collected(struct scsi_cmd *c)
{
	bool is_short = c->cdb[0] == MODE_SELECT6;
	uint32_t head = is_short ? 4 : 8, descriptor;
	struct scsi_mode m = c->at->mode;

	if (c->out_len < head)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	descriptor = is_short ? c->data[3] : get_be16(c->data + 6);
	if (c->out_len - head < descriptor)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	if (!descriptor_ok(c, head, descriptor, !is_short && (c->data[4] & 1)) ||
	    !apply_pages(c, head + descriptor, &m))
		return SCSI_DONE;
	if (memcmp(&m, &c->at->mode, sizeof(m)) != 0)
		scsi_raise_attention(c->at, ATTENTION_MODE, c->nexus);
	c->at->mode = m;
	return scsi_done(c);
}
