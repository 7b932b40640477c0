// SPDX-License-Identifier: BSD-2-Clause
/*
 * 13-block - a logical unit of any target, with several operations in flight.
 *
 *     cc 13-block.c -lstag -o 13-block
 *     stag block serve --lun 1=./disk.img &
 *     stag run -- ./13-block stag://127.0.0.1/iqn.2026-01.stag:HOST/1
 *
 * It writes a pattern to the first MiB of the unit, in pieces that are all submitted before the
 * first wait, makes it durable, and reads it back. The scheme of the URL selects the transport:
 * stag uses the best one that the target has, iser and iscsi use those. The counters show the
 * commands, and the posts and completions of the adapter.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stag/block.h>

#define PIECES 16
#define PIECE  65536

static void die(const char *what)
{
	fprintf(stderr, "13-block: %s\n", what);
	exit(1);
}

static void submit_piece(struct stag_block *b, uint32_t op, uint8_t *memory, uint64_t offset,
			 uint64_t length)
{
	struct iovec iov = {memory, length};
	struct stag_block_io io = {.op = op,
				   .offset = offset,
				   .length = length,
				   .iov = &iov,
				   .n_iov = length ? 1 : 0,
				   .user = memory}; /* returned with the completion */

	if (stag_block_submit(b, &io))
		die(stag_block_error());
}

/* Waits for so many completions. Polls before each wait, so that none is missed. */
static void reap_completions(struct stag_block *b, int n)
{
	struct stag_block_done done[PIECES];
	int got;

	while (n > 0) {
		got = stag_block_poll(b, done, PIECES);
		for (int i = 0; i < got; i++)
			if (done[i].error)
				die(strerror(done[i].error));
		n -= got;
		if (got == 0)
			stag_block_wait(b, -1);
	}
}

static void transfer_all(struct stag_block *b, uint32_t op, uint8_t *memory)
{
	for (int i = 0; i < PIECES; i++)
		submit_piece(b, op, memory + i * PIECE, (uint64_t)i * PIECE, PIECE);
	reap_completions(b, PIECES);
}

static const char *transport_name(uint32_t t)
{
	return t == STAG_BLOCK_ONE_SHOT ? "one-shot" : t == STAG_BLOCK_ISER ? "iSER" : "iSCSI";
}

int main(int argc, char **argv)
{
	struct stag_block *b = argc == 2 ? stag_block_open(argv[1], NULL) : NULL;
	uint8_t *memory = aligned_alloc(4096, PIECES * PIECE);
	struct stag_block_info info;

	if (argc != 2)
		die("usage: 13-block stag://HOST[:PORT]/TARGET/LUN");
	if (!b || !memory)
		die(b ? "out of memory" : stag_block_error());
	stag_block_query(b, &info, sizeof(info));
	printf("%s: %" PRIu64 " bytes, by %s\n", info.target, info.size,
	       transport_name(info.transport));
	if (info.size < PIECES * PIECE)
		die("the unit is too small");
	stag_block_lend(b, memory, PIECES * PIECE); /* registered once, not for each command */

	for (int i = 0; i < PIECES * PIECE; i++)
		memory[i] = (uint8_t)(i * 7 + i / 4096);
	transfer_all(b, STAG_BLOCK_WRITE, memory);
	submit_piece(b, STAG_BLOCK_FLUSH, memory, 0, 0);
	reap_completions(b, 1);
	memset(memory, 0, PIECES * PIECE);
	transfer_all(b, STAG_BLOCK_READ, memory);
	for (int i = 0; i < PIECES * PIECE; i++)
		if (memory[i] != (uint8_t)(i * 7 + i / 4096))
			die("the data that was read differs from what was written");

	stag_block_query(b, &info, sizeof(info));
	printf("read what was written: %" PRIu64 " commands, %" PRIu64 " posts, %" PRIu64
	       " completions, %" PRIu64 " STags, %" PRIu64 " of them open\n",
	       info.counters.commands, info.counters.posts, info.counters.completions,
	       info.counters.stags, info.counters.stags_open);
	stag_block_close(b);
	free(memory);
	return 0;
}
