// SPDX-License-Identifier: BSD-2-Clause
/*
 * memory_unit.c - see memory_unit.h.
 */
#include "memory_unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct units {
	struct list started, free;
	unsigned int made, most;
	int fd;
};

struct lun {
	struct units *units;
	struct lun_facts facts;
	uint8_t *bytes;
};

struct memory_unit_knobs memory_unit;

static uint8_t *last_bytes;
static int last_fd = -1;

/* ---- units -------------------------------------------------------------------------- */

int units_create(struct units **out, uint64_t staging_bytes)
{
	struct units *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	list_init(&u->started);
	list_init(&u->free);
	u->most = memory_unit.max_buffers ? memory_unit.max_buffers
					  : (unsigned int)(staging_bytes / UNITS_BUFFER);
	u->fd = last_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	memory_unit.in_use = memory_unit.started = 0;
	*out = u;
	return 0;
}

void units_destroy(struct units *u)
{
	list_for_each_safe (it, &u->free) {
		struct units_buffer *b = list_entry(it, struct units_buffer, link);

		free(b->bytes);
		free(b);
	}
	close(u->fd);
	free(u);
}

int units_fd(struct units *u)
{
	return u->fd;
}

void memory_unit_kick(void)
{
	eventfd_write(last_fd, 1);
}

struct units_buffer *units_buffer(struct units *u)
{
	struct units_buffer *b;

	if (!list_empty(&u->free)) {
		b = list_entry(u->free.next, struct units_buffer, link);
		list_del(&b->link);
	} else if (u->made == u->most) {
		return NULL;
	} else {
		b = calloc(1, sizeof(*b));
		if (!b || posix_memalign((void **)&b->bytes, 4096, UNITS_BUFFER) != 0)
			abort();
		u->made++;
	}
	memory_unit.in_use++;
	return b;
}

void units_put_buffer(struct units *u, struct units_buffer *b)
{
	list_add_tail(&u->free, &b->link);
	memory_unit.in_use--;
}

unsigned int units_num_buffers(const struct units *u)
{
	return u->most;
}

struct ibv_pd *units_pd(struct units *u)
{
	return NULL;
}

/* ---- operations ----------------------------------------------------------------------- */

static void move(struct lun_io *io, bool write)
{
	uint8_t *at = io->lun->bytes + io->offset;

	for (int i = 0; i < io->n_iov; i++) {
		struct iovec v = io->iov[i];

		if (write)
			memcpy(at, v.iov_base, v.iov_len);
		else
			memcpy(v.iov_base, at, v.iov_len);
		at += v.iov_len;
	}
}

static int compare(struct lun_io *io)
{
	const uint8_t *at = io->lun->bytes + io->offset, *with = io->iov[0].iov_base;

	for (uint64_t i = 0; io->n_iov && i < io->length; i++)
		if (at[i] != with[i]) {
			io->where = i;
			return -EILSEQ;
		}
	return 0;
}

static int compare_write(struct lun_io *io)
{
	int rc = compare(io);

	if (rc == 0)
		memcpy(io->lun->bytes + io->offset, (uint8_t *)io->iov[0].iov_base + io->length,
		       io->length);
	return rc;
}

static int carry_out(struct lun_io *io)
{
	if (memory_unit.error)
		return memory_unit.error;
	if (memory_unit.bad && io->offset <= memory_unit.bad &&
	    memory_unit.bad - io->offset < io->length)
		return -EIO;
	switch (io->op) {
	case LUN_READ:
		move(io, false);
		return 0;
	case LUN_WRITE:
		move(io, true);
		return 0;
	case LUN_VERIFY:
		return compare(io);
	case LUN_COMPARE_WRITE:
		return compare_write(io);
	case LUN_DISCARD:
	case LUN_ZERO:
		memset(io->lun->bytes + io->offset, 0, io->length);
		return 0;
	case LUN_EXTENT:
		io->mapped = true;
		io->where = MEMORY_UNIT_SIZE;
		return 0;
	case LUN_CALL:
		return io->call(io->arg);
	case LUN_OR:
	case LUN_FLUSH:
		return 0;
	}
	return -EIO;
}

int units_poll(struct units *u)
{
	struct list now;
	uint64_t n;
	int done = 0;

	if (read(u->fd, &n, sizeof(n)) < 0 && memory_unit.hold)
		return 0;
	if (memory_unit.hold || list_empty(&u->started))
		return 0;
	now = u->started;
	now.next->prev = now.prev->next = &now;
	list_init(&u->started);
	while (!list_empty(&now)) {
		struct lun_io *io = list_entry(now.next, struct lun_io, link);

		list_del(&io->link);
		io->done(io, carry_out(io));
		done++;
	}
	return done;
}

int units_arm(struct units *u)
{
	return !memory_unit.hold && !list_empty(&u->started);
}

/* ---- a unit ------------------------------------------------------------------------------- */

int lun_open(struct units *u, const struct stag_block_lun *attr, struct lun **out)
{
	struct lun *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->units = u;
	l->bytes = memory_unit.kept ? memory_unit.kept : calloc(1, MEMORY_UNIT_SIZE);
	l->facts = (struct lun_facts){.size = MEMORY_UNIT_SIZE,
				      .block = attr->block ? attr->block : 512,
				      .physical = 4096,
				      .read_only = attr->flags & STAG_BLOCK_READ_ONLY,
				      .write_back = attr->flags & STAG_BLOCK_WRITE_BACK,
				      .discards = true,
				      .serial = "memory-unit",
				      .product = "memory",
				      .naa = {0x60}};
	last_bytes = l->bytes;
	*out = l;
	return 0;
}

void lun_close(struct lun *l)
{
	if (l->bytes != memory_unit.kept)
		free(l->bytes);
	free(l);
}

void lun_start(struct lun *l, struct lun_io *io)
{
	io->lun = l;
	memory_unit.started++;
	list_add_tail(&l->units->started, &io->link);
}

uint8_t *lun_borrow(struct lun *l, struct lun_io *io, uint32_t *lkey)
{
	if (!memory_unit.lends || memory_unit.error || memory_unit.bad)
		return NULL;
	io->lun = l;
	memory_unit.lent++;
	*lkey = 0;
	return l->bytes + io->offset;
}

int lun_return(struct lun_io *io)
{
	memory_unit.lent--;
	return 0;
}

void lun_check_mapping(struct lun_io *io)
{
}

int lun_refresh_size(struct lun *l)
{
	return 0;
}

int lun_follow_growth(struct lun *l)
{
	return atomic_exchange(&memory_unit.grows, false);
}

const struct lun_facts *lun_facts(const struct lun *l)
{
	return &l->facts;
}

uint8_t *memory_unit_bytes(void)
{
	return last_bytes;
}
