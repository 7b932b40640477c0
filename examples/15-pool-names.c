// SPDX-License-Identifier: BSD-2-Clause
/*
 * 15-pool-names - values by name, and a counter that many clients increment at the same time:
 * compare and update.
 *
 *     cc 15-pool-names.c -lstag -o 15-pool-names
 *     SECRET=... stag run -- ./15-pool-names 127.0.0.1:7175 1000        # several of them at once
 *
 * Between a client's read and its write another client may change the value. Every change gives the
 * value a unique version; a client that states the version that it has read changes the value only
 * if that is still current, and otherwise starts again. A retry by the library after the loss of a
 * primary is not a second change: it has the outcome of the first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stag/pool.h>

static void die(const char *what)
{
	fprintf(stderr, "15-pool-names: %s: %s\n", what, stag_pool_error());
	exit(1);
}

/* Runs one operation asynchronously: submits, waits, polls. Many could be in flight. */
static int run_operation(struct stag_pool *pool, const struct stag_pool_io *io)
{
	struct stag_pool_done done;

	if (stag_pool_submit(pool, io, 1) != 0)
		die("submit");
	while (stag_pool_poll(pool, &done, 1) == 0)
		stag_pool_wait(pool, -1);
	return done.error;
}

/* Returns how often another client was faster. */
static long increment_counter(struct stag_pool *pool, const char *name)
{
	struct stag_pool_io io = {.op = STAG_POOL_PUT, .name = name, .flags = STAG_POOL_COMPARE};
	char text[24];
	long again = 0;
	int rc;

	do {
		size_t length = sizeof(text) - 1;

		if (stag_pool_get(pool, name, text, &length, &io.version) != 0)
			die("get");
		text[length] = '\0';
		io.length = (size_t)snprintf(text, sizeof(text), "%ld", atol(text) + 1);
		io.from = text;
		rc = run_operation(pool, &io);
		again += rc == EILSEQ;
	} while (rc == EILSEQ);
	if (rc != 0)
		die("put");
	return again;
}

int main(int argc, char **argv)
{
	struct stag_pool_attr attr = {.user = "client", .secret = getenv("SECRET")};
	struct stag_pool *pool = argc == 3 ? stag_pool_open(argv[1], &attr) : NULL;
	struct stag_pool_entry entry = {0};
	long count, again = 0;
	int rc;

	if (argc != 3) {
		fputs("usage: SECRET=... 15-pool-names HOST[:PORT][,...] COUNT\n", stderr);
		return 2;
	}
	if (!pool)
		die("open");
	/* The first client creates it. */
	rc = stag_pool_put(pool, "counter", "0", 1, STAG_POOL_EXCLUSIVE, NULL);
	if (rc != 0 && rc != EEXIST)
		die("put");
	count = atol(argv[2]);
	for (long i = 0; i < count; i++)
		again += increment_counter(pool, "counter");
	printf("incremented %ld times; retried %ld times, since another client was faster\n", count,
	       again);
	while (errno = 0, stag_pool_next(pool, &entry))
		printf("found '%s', %u bytes\n", entry.name, entry.ptr.length);
	if (errno != 0)
		die("next");
	stag_pool_close(pool);
	return 0;
}
