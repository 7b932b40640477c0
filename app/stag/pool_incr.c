// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_incr.c - stag pool incr: adds to a number, by get and by a put that requires the version.
 */
#include "pool_use.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"
#include "store.h"

#define NUMBER_MAX 32 /* digits, a sign, and the end of the line */

/* Parses a decimal number, which may have the end of a line after it. */
static bool parse_number(const char *text, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(text, &end, 10);
	end += *end == '\n';
	return end != text && !*end && errno == 0 && !strchr(" \t\n", *text);
}

/*
 * Reads a number and its version, or 0 and version 0 if it does not exist. Returns an errno value; EINVAL: it is no
 * number.
 */
static int read_number(struct stag_pool *pool, const char *name, int64_t *n,
		       struct stag_pool_done *done)
{
	char text[NUMBER_MAX + 1];
	struct stag_pool_io io = {
		.op = STAG_POOL_GET, .name = name, .to = text, .length = NUMBER_MAX};

	*n = 0;
	if (pool_value_run(pool, &io, name, done) == ENOENT) {
		*done = (struct stag_pool_done){0};
		return 0;
	}
	if (done->error != 0)
		return done->error == EMSGSIZE ? EINVAL : done->error;
	text[done->length] = '\0';
	return strlen(text) == done->length && parse_number(text, n) ? 0 : EINVAL;
}

/*
 * Adds to a number, again and again until no other client changes it between our get and our put. Returns an errno value;
 * EINVAL: it is no number, EOVERFLOW: the sum is too large.
 */
static int run_incr(struct stag_pool *pool, struct stag_pool_io *put, int64_t by, int64_t *sum,
		    struct stag_pool_done *done)
{
	char text[NUMBER_MAX];
	int rc;

	put->from = text;
	do {
		rc = read_number(pool, put->name, sum, done);
		if (rc != 0)
			return rc;
		if (__builtin_add_overflow(*sum, by, sum))
			return EOVERFLOW;
		put->length = (size_t)snprintf(text, sizeof(text), "%" PRId64, *sum);
		put->version = done->version;
		put->flags = done->version ? STAG_POOL_COMPARE : STAG_POOL_EXCLUSIVE;
		rc = pool_value_run(pool, put, put->name, done);
	} while (put->version ? rc == EILSEQ || rc == ENOENT : rc == EEXIST);
	return rc;
}

static void explain_incr(int error, const struct stag_pool_io *put,
			 const struct stag_pool_done *done)
{
	if (error == EINVAL)
		complain("%s: its value is no number; 'stag pool put' replaces it", put->name);
	else if (error == EOVERFLOW)
		complain("%s: the sum exceeds 64 bits", put->name);
	else
		pool_value_explain(put->name, done, put);
}

static void print_sum(const struct pool_use *u, const struct stag_pool_io *put, int64_t sum,
		      const struct stag_pool_done *d)
{
	json_t *o;

	if (!u->json) {
		printf("%" PRId64 "\n", sum);
		return;
	}
	o = pool_value_json(put->name, &d->ptr, d->version, put->length);
	json_object_set_new(o, "value", json_integer(sum));
	store_dump(o);
}

int pool_use_incr(const struct pool_use *u)
{
	struct stag_pool_io put = {.op = STAG_POOL_PUT};
	struct stag_pool_done done = {0};
	struct stag_pool *pool;
	int64_t by = 1, sum;
	const char *what;
	int rc;

	if (!pool_value_target(u, &put, &what, NULL))
		return EXIT_USAGE;
	if (u->by && !parse_number(u->by, &by)) {
		complain("--by must be a number, not '%s'", u->by);
		return EXIT_USAGE;
	}
	pool = pool_use_open(u, 0);
	if (!pool)
		return EXIT_FAILED;
	rc = run_incr(pool, &put, by, &sum, &done);
	if (rc != 0)
		explain_incr(rc, &put, &done);
	else
		print_sum(u, &put, sum, &done);
	pool_use_close(u, pool);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
