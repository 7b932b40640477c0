// SPDX-License-Identifier: BSD-2-Clause
/*
 * commit.c - the two copies of the table: the better one is read, both are written.
 *
 * A copy is written and flushed before the other is touched, beginning with the one that the
 * current table was not read from. So whatever is lost or torn in a power failure, one copy is
 * intact: the old table or the new.
 *
 * A copy whose write failed may be intact in the page cache and torn on the medium. That cannot be
 * detected, so it is invalidated: all readers see that it is bad, and the next commit begins with
 * it.
 */
#include "store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

static uint64_t place_of(unsigned int copy)
{
	return (uint64_t)copy * DISK_COPY;
}

/* ---- reading --------------------------------------------------------------- */

static int read_image(const struct backing *b, unsigned int copy, uint8_t *image, uint32_t *len)
{
	uint32_t length = 0;
	int rc = io_read(b->fd, image, DISK_HEADER, place_of(copy));

	if (rc == -ENODATA)
		return store_fail(ENODATA, "the file ends before this copy");
	if (rc != 0)
		return store_fail(-rc, "the header cannot be read: %s", strerror(-rc));
	rc = disk_table_length(image, copy, &length);
	if (rc != 0)
		return rc;
	rc = io_read(b->fd, image + DISK_HEADER, length, place_of(copy) + DISK_HEADER);
	if (rc != 0)
		return store_fail(rc == -ENODATA ? EBADMSG : -rc, "the table cannot be read: %s",
				  rc == -ENODATA ? "the file ends before its end" : strerror(-rc));
	*len = DISK_HEADER + length;
	return 0;
}

int commit_read_copy(const struct backing *b, unsigned int copy, struct table *t,
		     struct copy_state *state)
{
	CLEANUP_FREE uint8_t *image = malloc(DISK_IMAGE_MAX);
	uint32_t len = 0;

	*state = (struct copy_state){.length = DISK_IMAGE_MAX};
	if (!image)
		return state->error = store_fail(ENOMEM, "%s: no memory", b->name);
	memset(image, 0, DISK_HEADER);
	state->error = read_image(b, copy, image, &len);
	state->generation = disk_generation(image + DISK_GENERATION);
	if (state->error == 0)
		state->error = disk_decode(image, len, copy, t);
	if (state->error == 0)
		state->length = len;
	return state->error;
}

/* Chooses the error to return when neither copy is good; its text has both causes. */
static int fail_both_bad(const struct backing *b, const struct loaded *l,
			 char why[DISK_COPIES][200])
{
	int a = l->copies[0].error, other = l->copies[1].error;

	if (a == -EPROTO || other == -EPROTO)
		return store_fail(EPROTO, "%s: is a store, but %s", b->name,
				  why[a == -EPROTO ? 0 : 1]);
	if (a == -ENODATA && other == -ENODATA)
		return store_fail(EPROTO, "%s: is no store; 'stag store format' creates one",
				  b->name);
	return store_fail(a == -EBADMSG || other == -EBADMSG ? EBADMSG
			  : a == -ENODATA		     ? -other
							     : -a,
			  "%s: both copies of its table are bad; A: %s; B: %s", b->name, why[0],
			  why[1]);
}

int commit_load(const struct backing *b, struct loaded *l)
{
	CLEANUP_FREE struct table *second = malloc(sizeof(*second));
	char why[DISK_COPIES][200] = {{0}};
	bool newer;

	if (!second)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	if (commit_read_copy(b, 0, &l->table, &l->copies[0]) != 0)
		snprintf(why[0], sizeof(why[0]), "%s", stag_store_error());
	if (commit_read_copy(b, 1, second, &l->copies[1]) != 0)
		snprintf(why[1], sizeof(why[1]), "%s", stag_store_error());
	newer = l->copies[0].error == -EPROTO || l->copies[1].error == -EPROTO;
	if (newer || (l->copies[0].error != 0 && l->copies[1].error != 0))
		return fail_both_bad(b, l, why);
	l->from = l->copies[0].error != 0 ||
		  (l->copies[1].error == 0 && second->generation > l->table.generation);
	if (l->from == 1)
		table_copy(&l->table, second);
	return 0;
}

void commit_copy(struct loaded *to, const struct loaded *from)
{
	table_copy(&to->table, &from->table);
	memcpy(to->copies, from->copies, sizeof(to->copies));
	to->from = from->from;
}

uint32_t commit_good_copies(const struct loaded *l)
{
	return l->copies[0].error == 0 && l->copies[1].error == 0 &&
			       l->copies[0].generation == l->copies[1].generation
		       ? 2
		       : 1;
}

/* ---- writing ----------------------------------------------------------------- */

int commit_write_copy(const struct backing *b, unsigned int copy, const struct table *t,
		      uint32_t old_length)
{
	CLEANUP_FREE uint8_t *image = malloc(DISK_IMAGE_MAX);
	size_t len;
	int rc;

	if (!image)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	len = disk_encode(t, copy, image);
	if (len < old_length) {
		memset(image + len, 0, old_length - len);
		len = old_length;
	}
	rc = io_write(b->fd, image, len, place_of(copy));
	if (rc == 0)
		rc = io_sync(b->fd);
	if (rc != 0)
		return store_fail(-rc, "%s: cannot write copy %c of its table: %s", b->name,
				  disk_copy_name(copy), strerror(-rc));
	return 0;
}

/*
 * Overwrites the header of a copy whose write failed. Returns false if that fails, too: then others
 * may see the change.
 */
static bool invalidate_copy(const struct backing *b, unsigned int copy, struct copy_state *state)
{
	static uint8_t nothing[DISK_HEADER]; /* not const, for .bss */
	int rc = io_write(b->fd, nothing, sizeof(nothing), place_of(copy));

	io_sync(b->fd);
	*state = (struct copy_state){.error = -EIO, .length = DISK_IMAGE_MAX};
	return rc == 0;
}

static int replace_copy(const struct backing *b, struct loaded *l, unsigned int copy,
			const struct table *t)
{
	int rc = commit_write_copy(b, copy, t, l->copies[copy].length);

	if (rc == -ENOMEM)
		return rc;
	if (rc != 0 && !invalidate_copy(b, copy, &l->copies[copy]))
		return store_fail(
			-rc,
			"%s: cannot write copy %c of its table: %s; cannot undo it either: the "
			"change may or may not take effect",
			b->name, disk_copy_name(copy), strerror(-rc));
	if (rc != 0)
		return rc;
	l->copies[copy] = (struct copy_state){.generation = t->generation,
					      .length = DISK_HEADER + t->n * DISK_ENTRY};
	return 0;
}

/*
 * The change is in effect once the first copy is written; a failure of the second is only logged.
 */
int commit_table(const struct backing *b, struct loaded *l, const struct table *next)
{
	struct table *t = malloc(sizeof(*t));
	unsigned int last = l->from;
	int rc;

	if (!t)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	table_copy(t, next);
	t->generation = l->table.generation + 1;
	rc = table_check(t);
	if (rc == 0)
		rc = replace_copy(b, l, 1 - last, t);
	if (rc == 0) {
		table_copy(&l->table, t);
		l->from = 1 - last;
		if (replace_copy(b, l, last, t) == 0)
			l->from = 0;
		else
			log_warn("%s; the other copy has the change; repair with 'stag store check "
				 "--repair'",
				 stag_store_error());
	}
	free(t);
	return rc;
}
