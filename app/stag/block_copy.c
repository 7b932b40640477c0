// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_copy.c - stag block read and write: copy between a logical unit and a file.
 *
 * A file may end within a block: the rest of that block in the unit is not changed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "block_use.h"
#include "copy.h"
#include "stag.h"

struct unit_copy {
	struct copy c; /* first */
	struct stag_block *b;
	bool lists_stags;
};

static struct unit_copy *to_unit(struct copy *c)
{
	return (struct unit_copy *)c;
}

/* Completes a block that the file ends in with the bytes of the unit. */
static bool fill_block(struct copy *c, uint64_t piece, uint64_t at, uint32_t n)
{
	uint32_t block = c->block, part = n % block;
	uint8_t *last = copy_memory(c, piece) + n - part, was[4096];
	int rc;

	if (part == 0)
		return true;
	rc = block > sizeof(was) ? EMSGSIZE
				 : stag_block_read(to_unit(c)->b, was, at + n - part, block);
	if (rc != 0) {
		complain_for(rc, NULL, "cannot read the last block: %s", stag_block_error());
		return false;
	}
	memcpy(last + part, was + part, block - part);
	return true;
}

static bool post(struct copy *c, uint64_t n, uint64_t at, uint32_t length)
{
	uint32_t whole = (length + c->block - 1) / c->block * c->block;
	struct iovec iov = {copy_memory(c, n), whole};
	struct stag_block_io io = {.op = c->out ? STAG_BLOCK_READ : STAG_BLOCK_WRITE,
				   .offset = at,
				   .length = whole,
				   .iov = &iov,
				   .n_iov = 1,
				   .user = (void *)(uintptr_t)n};
	int rc;

	if (!c->out && !fill_block(c, n, at, length))
		return false;
	rc = stag_block_submit(to_unit(c)->b, &io);
	if (rc == 0)
		return true;
	complain_for(rc, NULL, "%s", stag_block_error());
	return false;
}

static bool wait_for_pieces(struct copy *c)
{
	struct stag_block_done done[COPY_PIECES];
	int n;

	while ((n = stag_block_poll(to_unit(c)->b, done, COPY_PIECES)) == 0)
		stag_block_wait(to_unit(c)->b, -1);
	for (int i = 0; i < n; i++) {
		if (done[i].error) {
			copy_end_line(c);
			complain_for(done[i].error, NULL, "after %llu bytes: %s",
				     (unsigned long long)c->done, strerror(done[i].error));
			return false;
		}
		copy_piece_done(c, (uintptr_t)done[i].user);
	}
	return true;
}

static bool flush(struct copy *c)
{
	int rc = stag_block_flush(to_unit(c)->b);

	if (rc == 0)
		return true;
	complain_for(rc, NULL, "cannot flush: %s", stag_block_error());
	return false;
}

static void list_stags(struct copy *c, json_t *o, FILE *to)
{
	if (!to_unit(c)->lists_stags)
		return;
	if (o)
		json_object_set_new(o, "stags", block_own_stags_json());
	else
		block_print_own_stags(to);
}

static int copy_unit(const struct block_use *u, bool out)
{
	static const struct copy_ops ops = {post, wait_for_pieces, flush, list_stags};
	struct copy_range range = {u->file, u->offset, u->length, u->json};
	struct unit_copy w = {.c = {.ops = &ops, .kind = "unit", .out = out}};
	struct stag_block_info info;
	int rc = EXIT_FAILED;

	w.lists_stags = u->stags;
	w.b = stag_block_open(u->url, &u->attr);
	if (!w.b)
		return block_failed(u, errno);
	stag_block_query(w.b, &info, sizeof(info));
	w.c.where = info.target;
	w.c.size = info.size;
	w.c.block = info.block;
	w.c.memory = aligned_alloc(4096, COPY_PIECE * COPY_PIECES);
	if (!w.c.memory || stag_block_lend(w.b, w.c.memory, COPY_PIECE * COPY_PIECES) != 0)
		complain("out of memory");
	else
		rc = copy_run(&w.c, &range);
	stag_block_close(w.b);
	free(w.c.memory);
	return rc;
}

int block_read(const struct block_use *u)
{
	return copy_unit(u, true);
}

int block_write(const struct block_use *u)
{
	return copy_unit(u, false);
}
