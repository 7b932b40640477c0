// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_file.c - reads and writes a file in the simplest way: the yardstick of the store that is
 * always available.
 *
 *   stag bench part file FILE OFFSET BYTES read|write SIZE DEPTH SECS [direct] [sequential] [json]
 *
 * A DEPTH of 1 uses pread() and pwrite(), more uses io_uring: DEPTH operations are kept in flight,
 * and one call submits all that replace completed ones.
 */
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "load.h"

static struct {
	int fd;
	uint64_t offset, places, size, next, dice;
	unsigned int depth;
	uint64_t ns;
	bool write, direct, sequential, json;
	char *memory;
	uint64_t *since; /* of each operation in flight */
	struct part_figures figures;
} f;

static off_t any_place(void)
{
	uint64_t place = f.sequential ? f.next++ : load_dice(&f.dice);

	return (off_t)(f.offset + place % f.places * f.size);
}

static void one_by_one(void)
{
	uint64_t now = clock_ns(), until = now + f.ns, then;

	do {
		ssize_t n = f.write ? pwrite(f.fd, f.memory, f.size, any_place())
				    : pread(f.fd, f.memory, f.size, any_place());

		if (n != (ssize_t)f.size)
			bench_die("%s: %s", f.write ? "pwrite" : "pread", strerror(errno));
		then = now;
		now = clock_ns();
		times_note(&f.figures.times, now - then);
		f.figures.operations++;
	} while (now < until);
}

static void submit_one(struct io_uring *ring, unsigned int slot, uint64_t now)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	char *memory = f.memory + slot * f.size;

	if (f.write)
		io_uring_prep_write(sqe, f.fd, memory, (unsigned int)f.size, (uint64_t)any_place());
	else
		io_uring_prep_read(sqe, f.fd, memory, (unsigned int)f.size, (uint64_t)any_place());
	io_uring_sqe_set_data64(sqe, slot);
	f.since[slot] = now;
}

/* Reaps completions; again: submits another operation for each. */
static unsigned int reap_completions(struct io_uring *ring, bool again)
{
	struct io_uring_cqe *cqe;
	uint64_t now = clock_ns();
	unsigned int head, n = 0;

	io_uring_for_each_cqe (ring, head, cqe) {
		unsigned int slot = (unsigned int)io_uring_cqe_get_data64(cqe);

		if (cqe->res != (int)f.size)
			bench_die("io_uring: %s", strerror(cqe->res < 0 ? -cqe->res : EIO));
		times_note(&f.figures.times, now - f.since[slot]);
		if (again)
			submit_one(ring, slot, now);
		n++;
	}
	io_uring_cq_advance(ring, n);
	return n;
}

static void many_at_once(void)
{
	struct io_uring ring;
	uint64_t until;
	int rc = io_uring_queue_init(f.depth, &ring, 0);

	if (rc < 0)
		bench_die("io_uring_queue_init: %s", strerror(-rc));
	until = clock_ns() + f.ns;
	for (unsigned int i = 0; i < f.depth; i++)
		submit_one(&ring, i, clock_ns());
	while (clock_ns() < until || f.figures.operations == 0) {
		rc = io_uring_submit_and_wait(&ring, 1);
		if (rc < 0 && rc != -EINTR)
			bench_die("io_uring_submit_and_wait: %s", strerror(-rc));
		f.figures.operations += reap_completions(&ring, true);
	}
	for (unsigned int left = f.depth; left; left -= reap_completions(&ring, false))
		io_uring_submit_and_wait(&ring, 1);
	io_uring_queue_exit(&ring);
}

static void parse_words(int argc, char **argv)
{
	if (argc < 8)
		bench_die("file needs FILE OFFSET BYTES read|write SIZE DEPTH SECS [direct] "
			  "[sequential] "
			  "[json]");
	f.offset = strtoull(argv[2], NULL, 10);
	f.write = strcmp(argv[4], "write") == 0;
	f.size = strtoull(argv[5], NULL, 10);
	f.depth = (unsigned int)strtoul(argv[6], NULL, 10);
	f.ns = (uint64_t)(strtod(argv[7], NULL) * 1e9);
	for (int i = 8; i < argc; i++) {
		f.direct |= strcmp(argv[i], "direct") == 0;
		f.sequential |= strcmp(argv[i], "sequential") == 0;
		f.json |= strcmp(argv[i], "json") == 0;
	}
	if (f.size == 0 || f.depth == 0 || f.depth > 4096)
		bench_die("SIZE and DEPTH must be numbers, DEPTH at most 4096");
	f.places = strtoull(argv[3], NULL, 10) / f.size;
	if (f.places == 0)
		bench_die("SIZE must not be larger than BYTES");
}

int part_file(int argc, char **argv)
{
	parse_words(argc, argv);
	f.dice = 88172645463325252u;
	f.fd = open(argv[1], O_RDWR | O_CLOEXEC | (f.direct ? O_DIRECT : 0));
	if (f.fd < 0)
		bench_die("%s: %s", argv[1], strerror(errno));
	f.memory = bench_memory((f.size * f.depth + 4095) / 4096 * 4096);
	f.since = bench_zeroed(f.depth * sizeof(*f.since));
	part_load_begin(&f.figures);
	if (f.depth == 1)
		one_by_one();
	else
		many_at_once();
	part_load_end(&f.figures, f.json);
	return 0;
}
