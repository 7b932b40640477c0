// SPDX-License-Identifier: BSD-2-Clause
/*
 * copy.c - copies between storage and a file, in pieces of which several are in flight.
 *
 * Pieces may complete in any order; they are written to the file in order. Shows progress on a terminal.
 */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"
#include "store.h"

uint8_t *copy_memory(struct copy *c, uint64_t n)
{
	return c->memory + n % COPY_PIECES * COPY_PIECE;
}

void copy_piece_done(struct copy *c, uint64_t n)
{
	c->piece[n % COPY_PIECES].done = true;
}

void copy_end_line(struct copy *c)
{
	progress_end(&c->progress);
}

/* ---- files --------------------------------------------------------------------------------- */

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

/* Returns how much there is, up to len, or -1 after it has complained. */
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

/* ---- pieces ---------------------------------------------------------------------------------- */

static uint32_t piece_of(uint64_t left)
{
	return left < COPY_PIECE ? (uint32_t)left : COPY_PIECE;
}

static bool post_piece(struct copy *c, uint64_t at, uint32_t length)
{
	c->piece[c->put % COPY_PIECES].length = length;
	c->piece[c->put % COPY_PIECES].done = false;
	return c->ops->post(c, c->put++, at, length);
}

/* Waits for completions, and finishes the completed pieces in order. */
static bool finish_pieces(struct copy *c)
{
	if (!c->ops->wait(c))
		return false;
	for (; c->get < c->put && c->piece[c->get % COPY_PIECES].done; c->get++) {
		uint32_t n = c->piece[c->get % COPY_PIECES].length;

		if (c->out && !write_all(c->fd, copy_memory(c, c->get), n))
			return false;
		c->done += n;
	}
	progress_show(&c->progress, c->done, NULL);
	return true;
}

static bool copy_out(struct copy *c)
{
	uint64_t posted = 0;

	while (c->done < c->length) {
		while (posted < c->length && c->put - c->get < COPY_PIECES) {
			uint32_t n = piece_of(c->length - posted);

			if (!post_piece(c, c->at + posted, n))
				return false;
			posted += n;
		}
		if (!finish_pieces(c))
			return false;
	}
	return true;
}

/* A stream that does not fit is written up to the end of the storage, and is an error. */
static bool copy_in(struct copy *c)
{
	uint64_t sent = 0, room = c->size - c->at;
	ssize_t n = COPY_PIECE;

	while (n == COPY_PIECE && sent < c->length) {
		while (c->put - c->get == COPY_PIECES)
			if (!finish_pieces(c))
				return false;
		n = read_all(c->fd, copy_memory(c, c->put), piece_of(c->length - sent));
		if (n < 0)
			return false;
		if ((uint64_t)n > room - sent) {
			copy_end_line(c);
			complain_for(ENOSPC, c->where,
				     "the input does not fit: the %s ends after %llu bytes",
				     c->kind, (unsigned long long)room);
			return false;
		}
		if (n > 0 && !post_piece(c, c->at + sent, (uint32_t)n))
			return false;
		sent += (uint64_t)n;
	}
	while (c->get < c->put)
		if (!finish_pieces(c))
			return false;
	return c->ops->finish(c);
}

/* ---- the range -------------------------------------------------------------------------------- */

static bool set_range(struct copy *c, const struct copy_range *r)
{
	uint64_t all;

	if ((r->offset && !store_parse_offset(r->offset, &c->at)) ||
	    (r->length && !store_parse_size("--length", r->length, NULL, &c->length)))
		return false;
	if (c->at % c->block) {
		complain("--offset must be a multiple of the %s's blocks of %u bytes", c->kind,
			 c->block);
		return false;
	}
	all = c->at <= c->size ? c->size - c->at : 0;
	if (!r->length)
		c->length = c->out ? all : UINT64_MAX;
	if (c->at <= c->size && (c->length == UINT64_MAX || c->length <= all))
		return true;
	complain("the range exceeds %s, which has %llu bytes", c->where,
		 (unsigned long long)c->size);
	return false;
}

static bool is_stream(const struct copy_range *r)
{
	return !r->file || strcmp(r->file, "-") == 0;
}

static bool open_file(struct copy *c, const struct copy_range *r)
{
	if (is_stream(r))
		c->fd = dup(c->out ? STDOUT_FILENO : STDIN_FILENO);
	else
		c->fd = open(r->file,
			     O_CLOEXEC | (c->out ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY), 0666);
	if (c->fd < 0)
		complain_for(errno, r->file, "%s: %s", r->file ? r->file : "-", strerror(errno));
	return c->fd >= 0;
}

/* Refuses a file that does not fit, before anything is written. */
static bool fits(const struct copy *c)
{
	uint64_t room = c->size - c->at;
	struct stat st;
	off_t from;

	if (c->out || fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode) || c->length != UINT64_MAX)
		return true;
	from = lseek(c->fd, 0, SEEK_CUR);
	if (from < 0 || from > st.st_size || (uint64_t)(st.st_size - from) <= room)
		return true;
	complain_for(ENOSPC, c->where,
		     "%llu bytes do not fit: %s has room for %llu; nothing was written",
		     (unsigned long long)(st.st_size - from), c->where, (unsigned long long)room);
	return false;
}

static void print_summary(struct copy *c, const struct copy_range *r)
{
	double seconds = (double)(clock_ns() - c->progress.since) / 1e9;
	bool to_stdout = c->out && is_stream(r);
	json_t *o = NULL;

	if (r->json && !to_stdout)
		o = json_pack("{s:s, s:I, s:I, s:f}", "where", c->where, "offset",
			      (json_int_t)c->at, "bytes", (json_int_t)c->done, "seconds", seconds);
	if (c->ops->report)
		c->ops->report(c, o, to_stdout ? stderr : stdout);
	if (o)
		store_dump(o);
}

/* Returns how many bytes will be copied; 0: not known. */
static uint64_t expected_bytes(const struct copy *c)
{
	struct stat st;

	if (c->length != UINT64_MAX)
		return c->length;
	return fstat(c->fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

int copy_run(struct copy *c, const struct copy_range *range)
{
	bool ok = false;

	c->fd = -1;
	progress_begin(&c->progress, c->where, PROGRESS_BYTES, 0);
	if (set_range(c, range) && open_file(c, range) && fits(c)) {
		c->progress.total = expected_bytes(c);
		ok = c->out ? copy_out(c) : copy_in(c);
	}
	copy_end_line(c);
	if (ok)
		print_summary(c, range);
	if (c->fd >= 0 && close(c->fd) != 0 && ok) {
		complain("cannot write: %s", strerror(errno));
		ok = false;
	}
	return ok ? EXIT_OK : EXIT_FAILED;
}
