// SPDX-License-Identifier: BSD-2-Clause
/*
 * io.c - requests, and the SCSI commands that they are divided into.
 *
 * A command whose line is lost is sent again on the next one: reads, and writes of the same bytes to the same place, are
 * idempotent. (The login on the new line ends the old session and its tasks first, so that no late copy follows.) A COMPARE AND
 * WRITE is not: the second one may find its own data. It fails, unless it was never sent.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/histogram.h"

#define MAX_TRIES	 64 /* of a command, after unit attentions */
#define MAX_LOSSES	 16 /* lines lost while a command was in flight: it may be the cause */
#define BUSY_NS		 (20 * NS_PER_MS)
#define TAG_BITS	 16
#define CAPACITY_CHANGED SENSE(SCSI_UNIT_ATTENTION, 0x2a, 0x09)

enum {
	OP_UNMAP = 0x42,
	OP_READ = 0x88,
	OP_COMPARE_WRITE = 0x89,
	OP_WRITE = 0x8a,
	OP_SYNCHRONIZE = 0x91,
	OP_WRITE_SAME = 0x93
};

#define FUA_BIT 0x08

/* Sent for STAG_BLOCK_ZERO, never written. Not const, so that it takes no space in the file. */
static uint8_t zeroes[4096];

/* ---- the data's memory -------------------------------------------------------------------- */

int initiator_cmd_slice(const struct initiator_cmd *c, uint32_t from, uint32_t len,
			struct iovec *out, int max, uint32_t *covered)
{
	uint64_t skip = c->skip + from;
	int n = 0;

	*covered = 0;
	for (int i = 0; i < c->n_iov && n < max && *covered < len; i++) {
		const struct iovec *v = &c->iov[i];
		size_t some;

		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		some = v->iov_len - skip;
		if (some > len - *covered)
			some = len - *covered;
		out[n++] = (struct iovec){(uint8_t *)v->iov_base + skip, some};
		*covered += (uint32_t)some;
		skip = 0;
	}
	return n;
}

void initiator_cmd_gather(const struct initiator_cmd *c, uint32_t from, uint32_t len, uint8_t *to)
{
	uint32_t covered;

	for (uint32_t done = 0; done < len; done += covered) {
		struct iovec piece;

		if (initiator_cmd_slice(c, from + done, len - done, &piece, 1, &covered) == 0)
			break;
		memcpy(to + done, piece.iov_base, piece.iov_len);
	}
}

void initiator_cmd_scatter(const struct initiator_cmd *c, uint32_t to, uint32_t len,
			   const uint8_t *from)
{
	uint32_t covered;

	for (uint32_t done = 0; done < len; done += covered) {
		struct iovec piece;

		if (initiator_cmd_slice(c, to + done, len - done, &piece, 1, &covered) == 0)
			break;
		memcpy(piece.iov_base, from + done, piece.iov_len);
	}
}

uint32_t initiator_cmd_crc(const struct initiator_cmd *c, uint32_t from, uint32_t len, uint32_t crc)
{
	uint32_t covered;

	for (uint32_t done = 0; done < len; done += covered) {
		struct iovec piece;

		if (initiator_cmd_slice(c, from + done, len - done, &piece, 1, &covered) == 0)
			break;
		crc = crc32c_update(crc, piece.iov_base, piece.iov_len);
	}
	return crc;
}

/* ---- checks ------------------------------------------------------------------------------ */

static uint64_t bytes_of(const struct stag_block_io *io)
{
	switch (io->op) {
	case STAG_BLOCK_READ:
	case STAG_BLOCK_WRITE:
		return io->length;
	case STAG_BLOCK_COMPARE_WRITE:
		return 2 * io->length;
	}
	return 0;
}

static bool list_is_right(const struct stag_block_io *io)
{
	uint64_t all = 0, want = bytes_of(io);

	if (io->n_iov < 0 || io->n_iov > IOV_MAX || (io->n_iov && !io->iov))
		return false;
	if (want == 0)
		return io->n_iov == 0;
	for (int i = 0; i < io->n_iov; i++) {
		if (io->iov[i].iov_len > want - all)
			return false;
		all += io->iov[i].iov_len;
	}
	return all == want;
}

static bool range_is_right(const struct stag_block *b, const struct stag_block_io *io)
{
	uint32_t block = b->info.block;

	return io->length && io->offset % block == 0 && io->length % block == 0 &&
	       io->offset <= b->info.size && io->length <= b->info.size - io->offset;
}

int initiator_io_check(const struct stag_block *b, const struct stag_block_io *io)
{
	if (io->comp_mask || io->op > STAG_BLOCK_COMPARE_WRITE || (io->flags & ~STAG_BLOCK_FUA) ||
	    (io->flags && io->op != STAG_BLOCK_WRITE))
		return block_fail(EINVAL, "invalid operation or flags");
	if (io->op != STAG_BLOCK_FLUSH && !range_is_right(b, io))
		return block_fail(EINVAL,
				  "%llu bytes at %llu: out of range or not aligned; the unit has "
				  "%llu bytes, in blocks of %u",
				  (unsigned long long)io->length, (unsigned long long)io->offset,
				  (unsigned long long)b->info.size, b->info.block);
	if (!list_is_right(io))
		return block_fail(
			EINVAL,
			"the lengths of the iovecs do not add up to the length of the data");
	if ((io->op == STAG_BLOCK_UNMAP && !b->limits.unmap) ||
	    (io->op == STAG_BLOCK_COMPARE_WRITE && !b->limits.compare))
		return block_fail(EOPNOTSUPP, "the unit does not support this operation");
	if (io->op == STAG_BLOCK_COMPARE_WRITE && io->length / b->info.block > b->limits.compare)
		return block_fail(EINVAL, "a COMPARE AND WRITE is limited to %u blocks by the unit",
				  b->limits.compare);
	return 0;
}

int initiator_io_queue(struct stag_block *b, const struct stag_block_io *io)
{
	struct initiator_request *r = calloc(1, sizeof(*r) + (size_t)io->n_iov * sizeof(*r->iov));

	if (!r)
		return block_fail(ENOMEM, "out of memory");
	r->op = io->op;
	r->flags = io->flags;
	r->offset = io->op == STAG_BLOCK_FLUSH ? 0 : io->offset;
	r->length = io->op == STAG_BLOCK_FLUSH ? 0 : io->length;
	r->since = clock_ns();
	r->user = io->user;
	r->n_iov = io->n_iov;
	if (io->n_iov)
		memcpy(r->iov, io->iov, (size_t)io->n_iov * sizeof(*r->iov));
	list_add_tail(&b->io.queue, &r->link);
	return 0;
}

/* ---- commands of a request ------------------------------------------------------------------ */

/* Returns the maximum number of bytes of one command. */
static uint64_t max_command(const struct stag_block *b, const struct initiator_request *r)
{
	uint64_t block = b->info.block;

	switch (r->op) {
	case STAG_BLOCK_UNMAP:
		return b->limits.unmap * block;
	case STAG_BLOCK_ZERO:
		return b->limits.zero * block;
	case STAG_BLOCK_COMPARE_WRITE:
	case STAG_BLOCK_FLUSH:
		return UINT64_MAX;
	}
	return b->info.max_transfer;
}

static void fill_unmap(struct initiator_cmd *c, uint64_t lba, uint32_t blocks)
{
	memset(c->params, 0, sizeof(c->params));
	put_be16(c->params, CMD_PARAMS - 2);
	put_be16(c->params + 2, CMD_PARAMS - 8);
	put_be64(c->params + 8, lba);
	put_be32(c->params + 16, blocks);
	c->cdb[0] = OP_UNMAP;
	put_be16(c->cdb + 7, CMD_PARAMS);
	c->own = (struct iovec){c->params, CMD_PARAMS};
}

static void use_own(struct initiator_cmd *c)
{
	c->iov = &c->own;
	c->n_iov = 1;
	c->skip = 0;
	c->writes = true;
	c->length = (uint32_t)c->own.iov_len;
}

static void use_request(struct initiator_cmd *c, uint8_t op, const struct initiator_request *r,
			uint64_t n)
{
	c->cdb[0] = op;
	c->iov = r->iov;
	c->n_iov = r->n_iov;
	c->skip = r->issued;
	c->reads = op == OP_READ;
	c->writes = !c->reads;
	c->length = (uint32_t)n;
}

static void fill(const struct stag_block *b, struct initiator_cmd *c,
		 const struct initiator_request *r, uint64_t n)
{
	uint64_t lba = (r->offset + r->issued) / b->info.block;
	uint32_t blocks = (uint32_t)(n / b->info.block);

	memset(c->cdb, 0, sizeof(c->cdb));
	c->reads = c->writes = false;
	c->length = 0;
	put_be64(c->cdb + 2, lba);
	put_be32(c->cdb + 10, blocks);
	switch (r->op) {
	case STAG_BLOCK_READ:
		use_request(c, OP_READ, r, n);
		return;
	case STAG_BLOCK_WRITE:
		use_request(c, OP_WRITE, r, n);
		c->cdb[1] = r->flags & STAG_BLOCK_FUA ? FUA_BIT : 0;
		return;
	case STAG_BLOCK_COMPARE_WRITE:
		use_request(c, OP_COMPARE_WRITE, r, 2 * n);
		put_be32(c->cdb + 10, blocks & 0xff);
		return;
	case STAG_BLOCK_ZERO:
		c->cdb[0] = OP_WRITE_SAME;
		c->own = (struct iovec){zeroes, b->info.block};
		use_own(c);
		return;
	case STAG_BLOCK_UNMAP:
		memset(c->cdb, 0, sizeof(c->cdb));
		fill_unmap(c, lba, blocks);
		use_own(c);
		return;
	}
	c->cdb[0] = OP_SYNCHRONIZE; /* LBA 0, 0 blocks: all */
}

static struct initiator_cmd *next_part(struct stag_block *b)
{
	struct initiator_request *r = list_entry(b->io.queue.next, struct initiator_request, link);
	struct initiator_cmd *c = list_entry(b->io.spare.next, struct initiator_cmd, link);
	uint64_t n = r->length - r->issued;

	if (n > max_command(b, r))
		n = max_command(b, r);
	list_del(&c->link);
	c->request = r;
	c->tries = c->losses = 0;
	c->begun = b->now;
	fill(b, c, r, n);
	r->issued += n;
	r->in_flight++;
	r->all_issued = r->issued == r->length;
	if (r->all_issued)
		list_del(&r->link);
	return c;
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void count(struct stag_block *b, const struct initiator_request *r)
{
	struct stag_block_counters *k = &b->info.counters;

	if (r->error) {
		k->errors++;
		return;
	}
	if (r->op == STAG_BLOCK_READ) {
		k->reads++;
		k->read_bytes += r->length;
		histogram_count(&k->read_times, clock_ns() - r->since);
	} else if (r->op == STAG_BLOCK_WRITE) {
		k->writes++;
		k->written_bytes += r->length;
		histogram_count(&k->write_times, clock_ns() - r->since);
	}
}

static void end_part(struct stag_block *b, struct initiator_cmd *c, int error, uint32_t sense)
{
	struct initiator_request *r = c->request;

	c->request = NULL;
	list_del(&c->link);
	list_add_tail(&b->io.spare, &c->link);
	r->in_flight--;
	if (error && !r->error) {
		r->error = error;
		r->sense = sense;
		if (!r->all_issued) /* the rest is not sent */
			list_del(&r->link);
		r->all_issued = true;
	}
	if (r->in_flight || !r->all_issued)
		return;
	count(b, r);
	list_add_tail(&b->io.done, &r->link);
}

/* Removes a command from those in flight. The caller puts it in another list. */
static void end_flight(struct stag_block *b, struct initiator_cmd *c)
{
	list_del(&c->link);
	c->itt = TAG_NONE;
	b->io.num_in_flight--;
	if (b->line)
		b->line->ops->forget(b->line, c);
}

/* Ends a command that cannot be sent: no memory, or memory that cannot be lent. */
static int fail_unsent(struct stag_block *b, struct initiator_cmd *c, int error)
{
	end_flight(b, c);
	if (!c->request)
		return -error;
	end_part(b, c, error, 0);
	return 0;
}

/* ---- sending -------------------------------------------------------------------------------- */

void initiator_io_prepare(struct stag_block *b, struct initiator_cmd *c)
{
	c->generation = (uint16_t)((c->generation + 1) & 0x7fff);
	c->itt = (uint32_t)c->generation << TAG_BITS | c->index;
	c->got = c->data_sn = c->asked = c->r2t_sn = 0;
	c->sent = false;
}

uint64_t initiator_io_lun(const struct stag_block *b)
{
	uint16_t lun = b->config.url.lun;

	return (uint64_t)(lun < 256 ? lun : 0x4000 | lun) << 48;
}

int initiator_io_send(struct stag_block *b, struct initiator_cmd *c)
{
	struct pdu p = {.opcode = SCSI_COMMAND,
			.flags = (uint8_t)(PDU_FINAL | (c->reads ? CMD_READ : 0) |
					   (c->writes ? CMD_WRITE : 0) | 1 /* simple task */),
			.lun = initiator_io_lun(b),
			.expected = c->length,
			.cmd_sn = b->session.cmd_sn};
	int rc;

	initiator_io_prepare(b, c);
	p.itt = c->itt;
	c->cmd_sn = b->session.cmd_sn;
	c->sent_at = b->now;
	memcpy(p.cdb, c->cdb, sizeof(p.cdb));
	b->io.num_in_flight++;
	list_add_tail(&b->io.in_flight, &c->link);
	rc = b->line->ops->command(b->line, c, &p);
	if (rc > 0)
		return fail_unsent(b, c, rc);
	b->session.cmd_sn++;
	return rc;
}

static struct initiator_cmd *next_command(struct stag_block *b)
{
	struct initiator_cmd *c;

	if (!list_empty(&b->io.retry)) {
		c = list_entry(b->io.retry.next, struct initiator_cmd, link);
		list_del(&c->link);
		return c;
	}
	return list_empty(&b->io.queue) || list_empty(&b->io.spare) ? NULL : next_part(b);
}

int initiator_io_launch(struct stag_block *b)
{
	int rc = 0;

	while (rc == 0 && b->state == INIT_LIVE && !b->io.pause_end &&
	       sn_le(b->session.cmd_sn, b->session.max_cmd_sn)) {
		struct initiator_cmd *c = next_command(b);

		if (!c)
			break;
		rc = initiator_io_send(b, c);
	}
	return rc;
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_repeatable(const struct initiator_cmd *c)
{
	return c->request->op != STAG_BLOCK_COMPARE_WRITE;
}

static bool may_retry(struct stag_block *b, struct initiator_cmd *c, uint8_t status, uint32_t sense)
{
	if (status == SCSI_BUSY || status == SCSI_TASK_SET_FULL) {
		b->io.pause_end = b->now + BUSY_NS;
		return !b->config.command_ns || b->now - c->begun < b->config.command_ns;
	}
	if (status != SCSI_CHECK_CONDITION || !initiator_sense_retries(sense) ||
	    ++c->tries > MAX_TRIES)
		return false;
	return sense >> 16 == SCSI_UNIT_ATTENTION || is_repeatable(c);
}

/* Returns the error of a command. A read without all of its data has failed, too. */
static int outcome(const struct initiator_cmd *c, uint8_t response, uint8_t status, uint32_t sense)
{
	int error = response ? EIO : initiator_sense_errno(status, sense);

	return error == 0 && c->reads && c->got != c->length ? EIO : error;
}

int initiator_io_response(struct stag_block *b, struct initiator_cmd *c, uint8_t response,
			  uint8_t status, const uint8_t *sense, uint32_t len)
{
	uint32_t code = status == SCSI_CHECK_CONDITION ? initiator_sense_parse(sense, len) : 0;

	end_flight(b, c);
	b->info.counters.commands++;
	if (!c->request)
		return initiator_probe_response(b, c, response ? SCSI_TASK_ABORTED : status, code);
	if (!response && may_retry(b, c, status, code)) {
		list_add_tail(&b->io.retry, &c->link);
		return code == CAPACITY_CHANGED && !b->probe.active
			       ? initiator_probe_begin(b, false)
			       : 0;
	}
	end_part(b, c, outcome(c, response, status, code), code);
	return 0;
}

void initiator_io_aborted(struct stag_block *b, struct initiator_cmd *c, int error)
{
	end_flight(b, c);
	end_part(b, c, error, 0);
}

void initiator_io_requeue(struct stag_block *b)
{
	struct list waiting;

	/* Commands in flight go before those that were waiting to be sent again. */
	list_init(&waiting);
	list_for_each_safe (it, &b->io.retry) {
		list_del(it);
		list_add_tail(&waiting, it);
	}
	list_for_each_safe (it, &b->io.in_flight) {
		struct initiator_cmd *c = list_entry(it, struct initiator_cmd, link);

		end_flight(b, c);
		if (!c->request)
			continue;
		if (c->sent && (!is_repeatable(c) || ++c->losses > MAX_LOSSES)) {
			end_part(b, c, EIO, 0);
			continue;
		}
		b->info.counters.retried += c->sent;
		list_add_tail(&b->io.retry, it);
	}
	list_for_each_safe (it, &waiting) {
		list_del(it);
		list_add_tail(&b->io.retry, it);
	}
}

static void fail_request(struct stag_block *b, struct initiator_request *r, int error)
{
	list_del(&r->link);
	r->error = r->error ? r->error : error;
	r->all_issued = true;
	count(b, r);
	list_add_tail(&b->io.done, &r->link);
}

void initiator_io_fail_all(struct stag_block *b, int error)
{
	list_for_each_safe (it, &b->io.retry)
		end_part(b, list_entry(it, struct initiator_cmd, link), error, 0);
	list_for_each_safe (it, &b->io.queue)
		fail_request(b, list_entry(it, struct initiator_request, link), error);
}

void initiator_io_free_all(struct stag_block *b)
{
	list_for_each_safe (it, &b->io.done) {
		list_del(it);
		free(list_entry(it, struct initiator_request, link));
	}
}
