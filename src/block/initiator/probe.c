// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe.c - queries the properties of the unit after each login, one command after the other.
 *
 * Optional information (VPD pages, mode pages) may be missing. After a reconnection the unit has to be the same one.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

#define MAX_TRIES	  32
#define MAX_TRANSFER	  (1u << 20)   /* several commands in flight are faster than a longer one */
#define ISER_MAX_TRANSFER (512u << 10) /* the limit of tgt, and what Linux uses */
#define MAX_ZERO	  (1u << 20)   /* blocks */
#define NO_LUN		  0x25

/* ---- answers ---------------------------------------------------------------------------- */

/* Copies an ASCII field without surrounding spaces. */
static void copy_text(char *to, size_t size, const uint8_t *from, size_t len)
{
	while (len && (*from == ' ' || *from == 0)) {
		from++;
		len--;
	}
	while (len && (from[len - 1] == ' ' || from[len - 1] == 0))
		len--;
	len = len < size - 1 ? len : size - 1;
	for (size_t i = 0; i < len; i++)
		to[i] = from[i] >= ' ' && from[i] < 0x7f ? (char)from[i] : '?';
	to[len] = '\0';
}

static int fail_no_unit(const struct stag_block *b)
{
	return block_fail(ENOENT, "%s: LUN %u does not exist", b->config.url.target,
			  b->config.url.lun);
}

static int read_inquiry(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	if (len < 36)
		return block_fail(EPROTO, "LUN %u: the INQUIRY data is too short",
				  b->config.url.lun);
	if (d[0] >> 5) /* PERIPHERAL QUALIFIER: no unit at this LUN */
		return fail_no_unit(b);
	if (d[0] & 0x1f)
		return block_fail(EMEDIUMTYPE, "LUN %u: not a disk", b->config.url.lun);
	copy_text(b->info.vendor, sizeof(b->info.vendor), d + 8, 8);
	copy_text(b->info.product, sizeof(b->info.product), d + 16, 16);
	copy_text(b->info.revision, sizeof(b->info.revision), d + 32, 4);
	return 0;
}

static int read_serial(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	char serial[sizeof(b->info.serial)] = "";

	if (len >= 4 && d[1] == 0x80)
		copy_text(serial, sizeof(serial), d + 4, d[3] < len - 4 ? d[3] : len - 4);
	if (b->attempt.ever_live && strcmp(serial, b->info.serial) != 0)
		return block_fail(ENODEV,
				  "LUN %u: replaced by another unit: serial number %s, was %s",
				  b->config.url.lun, serial, b->info.serial);
	memcpy(b->info.serial, serial, sizeof(serial));
	return 0;
}

static int read_limits(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	bool good = len >= 44 && d[1] == 0xb0;
	uint64_t zero = good ? get_be64(d + 36) : 0;

	b->limits.compare = good ? d[5] : 0;
	b->info.max_transfer = good ? get_be32(d + 8) : 0; /* blocks, until the capacity is known */
	b->limits.unmap = good ? get_be32(d + 20) : 0;
	b->limits.zero = zero && zero < MAX_ZERO ? (uint32_t)zero : MAX_ZERO;
	return 0;
}

static int read_provisioning(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	b->info.unmaps = len >= 6 && d[1] == 0xb2 && (d[5] & 0x80) && b->limits.unmap;
	if (!b->info.unmaps)
		b->limits.unmap = 0;
	return 0;
}

static int read_modes(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	uint32_t page = len >= 4 ? 4u + d[3] : 0;

	b->info.read_only = len >= 4 && (d[2] & 0x80);
	b->info.write_back =
		len >= 4 && len > page + 2 && (d[page] & 0x3f) == 0x08 && (d[page + 2] & 0x04);
	return 0;
}

static bool is_block(uint32_t n)
{
	return n >= 512 && n <= 4096 && (n & (n - 1)) == 0;
}

static int read_capacity(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	uint64_t last = len >= 12 ? get_be64(d) : 0;
	uint32_t block = len >= 12 ? get_be32(d + 8) : 0;

	if (!is_block(block) || last >= UINT64_MAX / block)
		return block_fail(EPROTO, "LUN %u: invalid capacity: %llu blocks of %u bytes",
				  b->config.url.lun, (unsigned long long)last, block);
	if (b->attempt.ever_live && block != b->info.block)
		return block_fail(ENODEV, "LUN %u: the block size has changed to %u",
				  b->config.url.lun, block);
	b->info.block = block;
	b->info.size = (last + 1) * block;
	return 0;
}

static int read_luns(struct stag_block *b, const uint8_t *d, uint32_t len)
{
	if (len < 8)
		return block_fail(EPROTO, "%s: the list of units is too short",
				  b->config.url.target);
	b->report.len = len - 8 < get_be32(d) ? len : 8 + get_be32(d);
	return 0;
}

/* ---- queries -------------------------------------------------------------------------------- */

static const struct question {
	uint8_t cdb[16];
	uint32_t length;
	bool needed;
	int (*take)(struct stag_block *b, const uint8_t *data, uint32_t len);
} questions[] = {
	{{0x12, 0, 0, 0, 96}, 96, true, read_inquiry},
	{{0x12, 1, 0x80, 0, 255}, 255, false, read_serial},
	{{0x12, 1, 0xb0, 0, 64}, 64, false, read_limits},
	{{0x12, 1, 0xb2, 0, 64}, 64, false, read_provisioning},
	{{0x1a, 0x08, 0x08, 0, 192}, 192, false, read_modes},
	{{0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32}, 32, true, read_capacity},
};

#define N_QUESTIONS (sizeof(questions) / sizeof(*questions))

static const struct question which_units = {
	{0xa0, 0, 0, 0, 0, 0, 0, 0, REPORT_LUNS_MAX >> 8, REPORT_LUNS_MAX & 0xff},
	REPORT_LUNS_MAX,
	true,
	read_luns,
};

static unsigned int num_questions(const struct stag_block *b)
{
	return b->report.data ? 1 : N_QUESTIONS;
}

static const struct question *question_of(const struct stag_block *b)
{
	return b->report.data ? &which_units : &questions[b->probe.step];
}

static uint8_t *answer_of(struct stag_block *b)
{
	return b->report.data ? b->report.data : b->probe.data;
}

static int send_query(struct stag_block *b)
{
	struct initiator_cmd *c = &b->io.cmds[b->config.depth];
	const struct question *q = question_of(b);

	memcpy(c->cdb, q->cdb, sizeof(c->cdb));
	c->request = NULL;
	c->reads = true;
	c->writes = false;
	c->length = q->length;
	c->own = (struct iovec){answer_of(b), q->length};
	c->iov = &c->own;
	c->n_iov = 1;
	c->skip = 0;
	return initiator_io_send(b, c);
}

int initiator_probe_resume(struct stag_block *b)
{
	return b->probe.active ? send_query(b) : 0;
}

int initiator_probe_begin(struct stag_block *b, bool all)
{
	b->io.cmds[b->config.depth].tries = 0;
	b->probe.step = all ? 0 : num_questions(b) - 1;
	b->probe.active = true;
	return send_query(b);
}

/* Converts the limits to bytes, as the block size is known now. */
static void finish_probe(struct stag_block *b)
{
	uint64_t most = (uint64_t)b->info.max_transfer * b->info.block;
	uint32_t limit = b->info.transport == STAG_BLOCK_ISER ? ISER_MAX_TRANSFER : MAX_TRANSFER;

	b->probe.active = false;
	if (b->state != INIT_PROBE)
		return;
	b->info.max_transfer = most && most < limit ? (uint32_t)most : limit;
	initiator_set_state(b, INIT_LIVE);
}

int initiator_probe_response(struct stag_block *b, struct initiator_cmd *c, uint8_t status,
			     uint32_t sense)
{
	const struct question *q = question_of(b);
	bool good = status == SCSI_GOOD;
	int rc;

	if (!good && initiator_sense_retries(sense) && ++c->tries < MAX_TRIES)
		return send_query(b);
	if (!good && sense >> 16 == SCSI_ILLEGAL_REQUEST && (sense >> 8 & 0xff) == NO_LUN)
		return fail_no_unit(b);
	if (!good && q->needed)
		return block_fail(EIO, "LUN %u: probing failed: status 0x%02x, sense 0x%06x",
				  b->config.url.lun, status, sense);
	rc = q->take(b, answer_of(b), good ? c->got : 0);
	if (rc != 0)
		return rc;
	if (++b->probe.step < num_questions(b))
		return send_query(b);
	finish_probe(b);
	return 0;
}
