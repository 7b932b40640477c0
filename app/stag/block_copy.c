// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_copy.c - stag block read and write: between a logical unit and a file.
 *
 * Pieces are under way at once, and are taken in order, in whatever order they complete. A file need not end with a block: what
 * the unit has behind it there stays.
 */
#include "block_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"
#include "store.h"

#define PIECE  (256u << 10)
#define PIECES 16u

struct copy {
	struct stag_block *b;
	struct stag_block_info info;
	uint8_t *memory;
	int fd;
	uint64_t at, length; /* in the unit; length UINT64_MAX: as much as comes */
	uint64_t done, since;
	uint64_t put, get; /* pieces begun and ended */
	struct piece {
		uint32_t length;
		bool done;
	} piece[PIECES];
};

static uint8_t *memory_of(struct copy *c, uint64_t n)
{
	return c->memory + n % PIECES * PIECE;
}

/* ---- files --------------------------------------------------------------------------- */

static bool write_all(int fd, const uint8_t *from, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, from, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain("cannot write: %s", strerror(errno));
			return false;
		}
		from += n;
		len -= (size_t)n;
	}
	return true;
}

/* As much as there is, up to len; -1, having complained. */
static ssize_t read_all(int fd, uint8_t *to, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, to + got, len - got);

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain("cannot read: %s", strerror(errno));
			return -1;
		}
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* ---- pieces ----------------------------------------------------------------------------- */

static uint32_t whole_blocks(const struct copy *c, uint32_t length)
{
	return (length + c->info.block - 1) / c->info.block * c->info.block;
}

static bool post(struct copy *c, uint32_t op, uint64_t at, uint32_t length)
{
	struct piece *p = &c->piece[c->put % PIECES];
	struct iovec iov = {memory_of(c, c->put), whole_blocks(c, length)};
	struct stag_block_io io = {
		.op = op, .offset = at, .length = iov.iov_len, .iov = &iov, .n_iov = 1, .user = p};

	*p = (struct piece){.length = length};
	c->put++;
	if (stag_block_submit(c->b, &io) == 0)
		return true;
	complain("%s", stag_block_error());
	return false;
}

static bool wait_some(struct copy *c)
{
	struct stag_block_done done[PIECES];
	int n;

	while ((n = stag_block_poll(c->b, done, PIECES)) == 0)
		stag_block_wait(c->b, -1);
	for (int i = 0; i < n; i++) {
		if (done[i].error) {
			complain("after %llu bytes: %s", (unsigned long long)c->done,
				 strerror(done[i].error));
			return false;
		}
		((struct piece *)done[i].user)->done = true;
	}
	return true;
}

static void show(const struct copy *c, bool end)
{
	uint64_t spent = clock_ns() - c->since;
	static uint64_t shown;
	char a[32], b[32];

	if (!isatty(STDERR_FILENO) || spent < NS_PER_S)
		return;
	if (end)
		fputs("\r\033[K", stderr);
	else if (clock_ns() - shown > NS_PER_S / 5) {
		shown = clock_ns();
		fprintf(stderr, "\r%s%s%s, %.0f MB/s \033[K",
			store_size_word(c->done, a, sizeof(a)),
			c->length == UINT64_MAX ? "" : " of ",
			c->length == UINT64_MAX ? "" : store_size_word(c->length, b, sizeof(b)),
			(double)c->done * 1e3 / (double)spent);
	}
}

static uint32_t piece_of(uint64_t left)
{
	return left < PIECE ? (uint32_t)left : PIECE;
}

/* Those that are done, in order; out: to the file. */
static bool reap(struct copy *c, bool out)
{
	if (!wait_some(c))
		return false;
	for (; c->get < c->put && c->piece[c->get % PIECES].done; c->get++) {
		uint32_t n = c->piece[c->get % PIECES].length;

		if (out && !write_all(c->fd, memory_of(c, c->get), n))
			return false;
		c->done += n;
	}
	show(c, false);
	return true;
}

static bool copy_out(struct copy *c)
{
	uint64_t asked = 0;

	while (c->done < c->length) {
		while (asked < c->length && c->put - c->get < PIECES) {
			uint32_t n = piece_of(c->length - asked);

			if (!post(c, STAG_BLOCK_READ, c->at + asked, n))
				return false;
			asked += n;
		}
		if (!reap(c, true))
			return false;
	}
	return true;
}

/* The last block of a file that ends within it is what the file has, then what the unit has. */
static bool fill_block(struct copy *c, uint64_t at, uint32_t n)
{
	uint32_t block = c->info.block, part = n % block;
	uint8_t *last = memory_of(c, c->put) + n - part, was[4096];

	if (part == 0)
		return true;
	if (block > sizeof(was) || stag_block_read(c->b, was, at + n - part, block) != 0) {
		complain("cannot read the last block: %s", stag_block_error());
		return false;
	}
	memcpy(last + part, was + part, block - part);
	return true;
}

static bool copy_in(struct copy *c)
{
	uint64_t sent = 0, room = c->info.size - c->at;
	ssize_t n = PIECE;

	while (n == PIECE && sent < c->length) {
		while (c->put - c->get == PIECES)
			if (!reap(c, false))
				return false;
		n = read_all(c->fd, memory_of(c, c->put), piece_of(c->length - sent));
		if (n < 0)
			return false;
		if ((uint64_t)n > room - sent) {
			complain("the unit ends after %llu bytes", (unsigned long long)room);
			return false;
		}
		if (n > 0 && (!fill_block(c, c->at + sent, (uint32_t)n) ||
			      !post(c, STAG_BLOCK_WRITE, c->at + sent, (uint32_t)n)))
			return false;
		sent += (uint64_t)n;
	}
	while (c->get < c->put)
		if (!reap(c, false))
			return false;
	if (stag_block_flush(c->b) == 0)
		return true;
	complain("cannot flush: %s", stag_block_error());
	return false;
}

/* ---- the commands --------------------------------------------------------------------------- */

static bool set_range(struct copy *c, const struct block_use *u, bool out)
{
	uint64_t all;

	if ((u->offset && !store_parse_size("--offset", u->offset, NULL, &c->at)) ||
	    (u->length && !store_parse_size("--length", u->length, NULL, &c->length)))
		return false;
	if (c->at % c->info.block) {
		complain("--offset: the unit has blocks of %u bytes", c->info.block);
		return false;
	}
	all = c->at <= c->info.size ? c->info.size - c->at : 0;
	if (!u->length)
		c->length = out ? all : UINT64_MAX;
	if (c->at <= c->info.size && (c->length == UINT64_MAX || c->length <= all))
		return true;
	complain("the unit has %llu bytes", (unsigned long long)c->info.size);
	return false;
}

static bool open_file(struct copy *c, const struct block_use *u, bool out)
{
	if (!u->file || strcmp(u->file, "-") == 0)
		c->fd = dup(out ? STDOUT_FILENO : STDIN_FILENO);
	else
		c->fd = open(u->file, O_CLOEXEC | (out ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY),
			     0666);
	if (c->fd < 0)
		complain("%s: %s", u->file ? u->file : "-", strerror(errno));
	return c->fd >= 0;
}

static void summary(const struct copy *c, const struct block_use *u, bool out)
{
	double seconds = (double)(clock_ns() - c->since) / 1e9;
	bool to_stdout = out && (!u->file || strcmp(u->file, "-") == 0);
	json_t *o;

	show(c, true);
	if (!u->json || to_stdout) {
		if (u->stags)
			block_print_own_stags(to_stdout ? stderr : stdout);
		return;
	}
	o = json_pack("{s:s, s:I, s:I, s:f}", "target", c->info.target, "offset", (json_int_t)c->at,
		      "bytes", (json_int_t)c->done, "seconds", seconds);
	if (u->stags)
		json_object_set_new(o, "stags", block_own_stags_json());
	store_dump(o);
}

static int copy(const struct block_use *u, bool out)
{
	struct copy c = {.fd = -1, .since = clock_ns()};
	bool ok = false;

	c.b = stag_block_open(u->url, &u->attr);
	if (!c.b) {
		complain("%s", stag_block_error());
		return EXIT_FAILED;
	}
	stag_block_query(c.b, &c.info, sizeof(c.info));
	c.memory = aligned_alloc(4096, PIECE * PIECES);
	if (!c.memory || stag_block_lend(c.b, c.memory, PIECE * PIECES) != 0)
		complain("no memory");
	else if (set_range(&c, u, out) && open_file(&c, u, out))
		ok = out ? copy_out(&c) : copy_in(&c);
	if (ok)
		summary(&c, u, out);
	stag_block_close(c.b);
	free(c.memory);
	if (c.fd >= 0 && close(c.fd) != 0 && ok) {
		complain("cannot write: %s", strerror(errno));
		ok = false;
	}
	return ok ? EXIT_OK : EXIT_FAILED;
}

int block_read(const struct block_use *u)
{
	return copy(u, true);
}

int block_write(const struct block_use *u)
{
	return copy(u, false);
}
