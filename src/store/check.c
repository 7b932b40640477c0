// SPDX-License-Identifier: BSD-2-Clause
/*
 * check.c - checks all of a store, reports, and repairs what can be repaired.
 *
 * A bad copy is rewritten from the good one. If neither is good nothing is written: their contents
 * might still be recovered by other means.
 */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/export.h"

struct checking {
	struct backing b;
	FILE *out;
	bool repair;
	int faults;
	struct table *copies[DISK_COPIES];
	struct copy_state states[DISK_COPIES];
	char why[DISK_COPIES][200];
};

__attribute__((format(printf, 2, 3))) static void report(struct checking *c, const char *fmt, ...)
{
	va_list args;

	if (!c->out)
		return;
	va_start(args, fmt);
	vfprintf(c->out, fmt, args);
	va_end(args);
	fputc('\n', c->out);
}

/* ---- the copies -------------------------------------------------------------- */

static void read_copies(struct checking *c)
{
	for (unsigned int i = 0; i < DISK_COPIES; i++)
		if (commit_read_copy(&c->b, i, c->copies[i], &c->states[i]) != 0)
			snprintf(c->why[i], sizeof(c->why[i]), "%s", stag_store_error());
}

/* Reports that neither copy is good. */
static int fail_both_bad(struct checking *c)
{
	int error = EBADMSG;

	if (c->states[0].error == -ENODATA && c->states[1].error == -ENODATA)
		return store_fail(EPROTO, "%s: is no store", c->b.name);
	for (unsigned int i = 0; i < DISK_COPIES; i++) {
		report(c, "copy %c of the table: %s", disk_copy_name(i), c->why[i]);
		if (c->states[i].error == -EPROTO)
			error = EPROTO;
	}
	return store_fail(error,
			  "%s: both copies of its table are bad; A: %s; B: %s; nothing was changed",
			  c->b.name, c->why[0], c->why[1]);
}

static unsigned int better_copy(const struct checking *c)
{
	if (c->states[0].error != 0)
		return 1;
	if (c->states[1].error != 0)
		return 0;
	return c->copies[1]->generation > c->copies[0]->generation ? 1 : 0;
}

/* Compares a copy with the better one, and reports what is wrong. */
static bool is_bad_copy(struct checking *c, unsigned int copy, unsigned int good)
{
	if (c->states[copy].error != 0)
		return true;
	if (c->copies[copy]->generation != c->copies[good]->generation)
		snprintf(c->why[copy], sizeof(c->why[copy]),
			 "is older: generation %" PRIu64 ", and %c has %" PRIu64,
			 c->copies[copy]->generation, disk_copy_name(good),
			 c->copies[good]->generation);
	else if (!table_is_same(c->copies[copy], c->copies[good]))
		snprintf(c->why[copy], sizeof(c->why[copy]), "differs from copy %c",
			 disk_copy_name(good));
	else
		return false;
	return true;
}

static int check_copy(struct checking *c, unsigned int copy, unsigned int good)
{
	const struct table *t = c->copies[good];
	int rc;

	if (!is_bad_copy(c, copy, good)) {
		report(c, "copy %c of the table: good, generation %" PRIu64 ", %u partition%s",
		       disk_copy_name(copy), t->generation, t->n, t->n == 1 ? "" : "s");
		return 0;
	}
	report(c, "copy %c of the table: %s", disk_copy_name(copy), c->why[copy]);
	c->faults++;
	if (!c->repair)
		return 0;
	rc = commit_write_copy(&c->b, copy, t, DISK_IMAGE_MAX);
	if (rc != 0)
		return rc;
	report(c, "copy %c of the table: rewritten from copy %c", disk_copy_name(copy),
	       disk_copy_name(good));
	c->faults--;
	return 0;
}

/* ---- the rest -------------------------------------------------------------------- */

static bool is_cut(const struct stag_store_partition *p, uint64_t present)
{
	return p->offset + p->size > present;
}

/*
 * Extends a truncated file only if no partition was cut: zeroes do no harm in unused space, but
 * would falsify the data of a partition.
 */
static int check_length(struct checking *c, const struct table *t)
{
	uint64_t present;
	unsigned int cut = 0;
	int rc = backing_size(&c->b, &present);

	if (rc != 0 || present >= t->size)
		return rc;
	c->faults++;
	report(c, "it ends at %" PRIu64 ": %" PRIu64 " bytes are missing", present,
	       t->size - present);
	for (uint32_t i = 0; i < t->n; i++)
		if (is_cut(&t->entries[i], present))
			cut++;
	if (cut > 0 || !c->repair || !S_ISREG(c->b.st.st_mode))
		return 0;
	rc = io_extend(c->b.fd, t->size);
	if (rc != 0)
		return store_fail(-rc, "%s: cannot grow to %" PRIu64 " bytes: %s", c->b.name,
				  t->size, strerror(-rc));
	report(c, "no partition was truncated: extended to its full size again");
	c->faults--;
	return 0;
}

static void check_partition(struct checking *c, const struct table *t,
			    const struct stag_store_partition *p)
{
	CLEANUP_FREE uint8_t *block = malloc(t->block);
	uint64_t at = p->offset, present = 0;
	int rc = block ? io_read(c->b.fd, block, t->block, at) : -ENOMEM;

	if (rc == 0) {
		at = p->offset + p->size - t->block;
		rc = io_read(c->b.fd, block, t->block, at);
	}
	if (rc == 0)
		return;
	c->faults++;
	if (rc == -ENODATA && backing_size(&c->b, &present) == 0)
		report(c,
		       "partition %s: is cut off at %" PRIu64 ": its last %" PRIu64
		       " bytes are lost; "
		       "restore them from a backup, or replace them by zeroes with "
		       "'truncate -s %" PRIu64 " %s'",
		       p->name, present, p->offset + p->size - (present > at ? present : at),
		       t->size, c->b.path);
	else
		report(c, "partition %s: cannot be read at %" PRIu64 ": %s", p->name, at,
		       strerror(-rc));
}

static int check_all(struct checking *c)
{
	const struct table *t;
	unsigned int good;
	int rc = 0;

	read_copies(c);
	if ((c->states[0].error != 0 && c->states[1].error != 0) || c->states[0].error == -EPROTO ||
	    c->states[1].error == -EPROTO)
		return fail_both_bad(c);
	good = better_copy(c);
	t = c->copies[good];
	for (unsigned int i = 0; i < DISK_COPIES && rc == 0; i++)
		rc = check_copy(c, i, good);
	if (rc == 0)
		rc = check_length(c, t);
	for (uint32_t i = 0; i < t->n && rc == 0; i++)
		check_partition(c, t, &t->entries[i]);
	return rc;
}

static int check_open(struct checking *c)
{
	int rc = -ENOMEM;

	if (c->repair && !c->b.writable)
		return store_fail(EACCES, "%s: cannot be repaired: no permission to write it",
				  c->b.name);
	for (unsigned int i = 0; i < DISK_COPIES; i++)
		c->copies[i] = calloc(1, sizeof(struct table));
	if (!c->copies[0] || !c->copies[1])
		store_fail(ENOMEM, "%s: no memory", c->b.name);
	else
		rc = lock_table(&c->b, c->repair);
	if (rc == 0)
		rc = check_all(c);
	for (unsigned int i = 0; i < DISK_COPIES; i++)
		free(c->copies[i]);
	return rc;
}

STAG_EXPORT int stag_store_check(const char *path, unsigned int flags, FILE *out)
{
	struct checking c = {.out = out, .repair = flags & STAG_STORE_REPAIR};
	int rc;

	if (flags & ~(unsigned int)STAG_STORE_REPAIR)
		return store_fail(EINVAL, "check: unknown flags %#x", flags);
	rc = backing_open(&c.b, path, c.repair ? BACKING_USE : BACKING_LOOK);
	if (rc != 0)
		return rc;
	rc = check_open(&c);
	backing_close(&c.b);
	return rc != 0 ? rc : c.faults;
}
