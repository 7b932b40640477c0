// SPDX-License-Identifier: BSD-2-Clause
/*
 * fake_unit.c - see fake_unit.h.
 */
#include "fake_unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#define PIECE 65536 /* bytes of a piece of data */

struct lun {
	struct lun_facts facts;
	uint8_t *bytes;
	int error;
};

/* ---- the unit ---- */

struct lun *fake_unit(uint64_t size, uint32_t block)
{
	struct lun *l = calloc(1, sizeof(*l));

	MUST(l);
	l->bytes = calloc(1, size);
	MUST(l->bytes);
	l->facts = (struct lun_facts){
		.size = size,
		.block = block,
		.physical = 4096,
		.discards = true,
		.serial = "0123456789abcdef",
		.product = "fake",
		.naa = {0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
	return l;
}

void fake_free(struct lun *l)
{
	free(l->bytes);
	free(l);
}

struct lun_facts *fake_facts(struct lun *l)
{
	return &l->facts;
}

int lun_follow_growth(struct lun *l)
{
	return 0;
}

const struct lun_facts *lun_facts(const struct lun *l)
{
	return &l->facts;
}

uint8_t *fake_bytes(struct lun *l)
{
	return l->bytes;
}

void fake_fail(struct lun *l, int error)
{
	l->error = error;
}

/* ---- its operations ---- */

static uint64_t memory_of(const struct lun_io *io)
{
	uint64_t len = 0;

	MUST(io->n_iov >= 0 && io->n_iov <= LUN_MAX_IOV);
	for (int i = 0; i < io->n_iov; i++)
		len += io->iov[i].iov_len;
	return len;
}

static void check(const struct lun *l, const struct lun_io *io)
{
	uint64_t memory = memory_of(io);

	MUST(io->offset <= l->facts.size && io->length <= l->facts.size - io->offset);
	MUST(io->offset % l->facts.block == 0 && io->length % l->facts.block == 0);
	MUST(io->length || io->op == LUN_FLUSH || io->op == LUN_CALL);
	if (io->op == LUN_COMPARE_WRITE)
		MUST(memory == 2 * io->length && io->length <= LUN_COMPARE_MAX);
	else if (io->op <= LUN_OR && !(io->op == LUN_VERIFY && memory == 0))
		MUST(memory == io->length);
	else
		MUST(memory == 0);
}

static uint8_t byte_of(const struct lun_io *io, uint64_t at)
{
	for (int i = 0; i < io->n_iov; i++) {
		if (at < io->iov[i].iov_len)
			return ((uint8_t *)io->iov[i].iov_base)[at];
		at -= io->iov[i].iov_len;
	}
	abort();
}

static int compare(const struct lun *l, struct lun_io *io)
{
	for (uint64_t i = 0; io->n_iov && i < io->length; i++) {
		if (l->bytes[io->offset + i] == byte_of(io, i))
			continue;
		io->where = i;
		return -EILSEQ;
	}
	return 0;
}

static int change(struct lun *l, const struct lun_io *io, uint64_t skip, uint8_t keep)
{
	for (uint64_t i = 0; i < io->length; i++) {
		uint8_t *p = &l->bytes[io->offset + i];

		*p = (uint8_t)((*p & keep) | byte_of(io, skip + i));
	}
	return 0;
}

static int fake_do(struct lun *l, struct lun_io *io)
{
	check(l, io);
	if (l->error)
		return l->error;
	switch (io->op) {
	case LUN_WRITE:
		return change(l, io, 0, 0);
	case LUN_OR:
		return change(l, io, 0, 0xff);
	case LUN_VERIFY:
		return compare(l, io);
	case LUN_COMPARE_WRITE:
		return compare(l, io) == 0 ? change(l, io, io->length, 0) : -EILSEQ;
	case LUN_DISCARD:
	case LUN_ZERO:
		memset(l->bytes + io->offset, 0, io->length);
		return 0;
	case LUN_EXTENT:
		io->mapped = l->bytes[io->offset];
		io->where = io->offset + io->length;
		return 0;
	case LUN_CALL:
		return io->call(io->arg);
	case LUN_READ:
	case LUN_FLUSH:
		return 0;
	}
	abort();
}

/* ---- the transport ---- */

static void carry_in(struct scsi_cmd *c, struct wire *w)
{
	struct lun *l = c->unit;
	uint32_t taken = c->io.length < c->expected ? (uint32_t)c->io.length : c->expected;

	MUST(c->reads && c->io.op == LUN_READ);
	MUST(c->io.offset <= l->facts.size && c->io.length <= l->facts.size - c->io.offset);
	MUST(c->io.length <= c->want && c->io.length % l->facts.block == 0);
	memcpy(w->in, l->bytes + c->io.offset, taken);
	w->in_len = taken;
	w->last = c->io;
	scsi_end(c, l->error);
}

/* Moves the data in pieces, as a transport does. */
static void carry_out(struct scsi_cmd *c, struct wire *w)
{
	int result = 0;

	MUST(c->writes && c->io.length <= c->expected && c->io.length <= c->want);
	for (uint64_t at = 0; at < c->io.length && result == 0; at += PIECE) {
		struct lun_io io = {.op = c->io.op,
				    .fua = c->io.fua,
				    .verify = c->io.verify,
				    .offset = c->io.offset + at,
				    .length = c->io.length - at < PIECE ? c->io.length - at : PIECE,
				    .n_iov = 1};

		io.iov[0] = (struct iovec){(void *)(w->out + at), io.length};
		result = fake_do(c->unit, &io);
		c->io.where = at + io.where;
		w->steps++;
		w->last = io;
	}
	scsi_end(c, result);
}

/* Collects data-out in a buffer that exists until the end of the command. */
static enum scsi_next collect(struct scsi_cmd *c, struct wire *w, uint8_t **buffer)
{
	MUST(c->writes && c->out_len <= c->expected && c->out_len <= SCSI_COLLECT_MAX && !*buffer);
	*buffer = malloc(UNITS_BUFFER);
	MUST(*buffer);
	memcpy(*buffer, w->out, c->out_len);
	return scsi_collected(c, *buffer);
}

static enum scsi_next work(struct scsi_cmd *c, struct wire *w)
{
	w->steps++;
	w->last = c->io;
	return scsi_worked(c, fake_do(c->unit, &c->io));
}

static enum scsi_next carry(struct scsi_cmd *c, struct wire *w, enum scsi_next next,
			    uint8_t **buffer)
{
	switch (next) {
	case SCSI_READ:
		carry_in(c, w);
		return SCSI_DONE;
	case SCSI_WRITE:
		carry_out(c, w);
		return SCSI_DONE;
	case SCSI_COLLECT:
		return collect(c, w, buffer);
	case SCSI_WORK:
		return work(c, w);
	case SCSI_DONE:
		break;
	}
	return SCSI_DONE;
}

void fake_carry(struct scsi_target *t, struct scsi_cmd *c, struct wire *w)
{
	uint8_t *buffer = NULL;
	enum scsi_next next = scsi_begin(t, c);

	w->in_len = w->steps = 0;
	while (next != SCSI_DONE)
		next = carry(c, w, next, &buffer);
	MUST(c->sense_len <= SCSI_SENSE_MAX && c->reply_len <= SCSI_REPLY_MAX);
	MUST(c->reply_len == 0 || (c->reads && c->reply_len <= c->expected));
	MUST((c->status == SCSI_CHECK_CONDITION) == (c->sense_len > 0));
	if (c->reply_len) {
		memcpy(w->in, c->reply, c->reply_len);
		w->in_len = c->reply_len;
	}
	scsi_release(c);
	free(buffer);
}
