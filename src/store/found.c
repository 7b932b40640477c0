// SPDX-License-Identifier: BSD-2-Clause
/*
 * found.c - detects what a medium to be formatted already contains.
 *
 * A store, by its header; file systems, partition tables, swap space and the like, by libblkid's
 * signatures; and bytes that are not zero.
 */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <blkid.h>

#include "base/cleanup.h"

#define SIGNATURES_MAX 256 /* maximum on one medium */

static int found_store(const struct backing *b)
{
	CLEANUP_FREE struct loaded *l = malloc(sizeof(*l));
	int rc;

	if (!l)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	rc = commit_load(b, l);
	if (rc == 0)
		return store_fail(EEXIST, "%s: holds a store already: %s%swith %u partition%s%s%s",
				  b->name, l->table.label, l->table.label[0] ? ", " : "",
				  l->table.n, l->table.n == 1 ? "" : "s",
				  l->table.n ? ", the first is " : "",
				  l->table.n ? l->table.entries[0].name : "");
	if (rc == -EBADMSG || l->copies[0].error == -EPROTO || l->copies[1].error == -EPROTO)
		return store_fail(EEXIST,
				  "%s: holds a store that is damaged, or newer than this "
				  "program: see 'stag store check'",
				  b->name);
	return 0;
}

/* ---- signatures -------------------------------------------------------------- */

static void free_probe(blkid_probe *probe)
{
	if (*probe)
		blkid_free_probe(*probe);
}

static int open_probe(const struct backing *b, blkid_probe *probe)
{
	*probe = blkid_new_probe();
	if (!*probe || blkid_probe_set_device(*probe, b->fd, 0, 0) != 0)
		return store_fail(*probe ? EIO : ENOMEM, "%s: cannot search it for signatures",
				  b->name);
	blkid_probe_enable_superblocks(*probe, 1);
	blkid_probe_set_superblocks_flags(*probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
							  BLKID_SUBLKS_USAGE | BLKID_SUBLKS_MAGIC);
	blkid_probe_enable_partitions(*probe, 1);
	blkid_probe_set_partitions_flags(*probe, BLKID_PARTS_MAGIC);
	return 0;
}

static const char *value(blkid_probe probe, const char *name)
{
	const char *text;

	return blkid_probe_lookup_value(probe, name, &text, NULL) == 0 ? text : NULL;
}

static const char *kind_of(const char *usage)
{
	static const struct {
		const char *usage, *kind;
	} kinds[] = {{"filesystem", "a file system"},
		     {"raid", "a part of a RAID or volume group"},
		     {"crypto", "an encrypted volume"}};

	for (size_t i = 0; usage && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].usage, usage) == 0)
			return kinds[i].kind;
	return "something";
}

static int found_signature(const struct backing *b)
{
	__attribute__((cleanup(free_probe))) blkid_probe probe = NULL;
	const char *type, *label, *table;
	int rc = open_probe(b, &probe);

	if (rc != 0)
		return rc;
	if (blkid_do_probe(probe) != 0)
		return 0;
	type = value(probe, "TYPE");
	label = value(probe, "LABEL");
	table = value(probe, "PTTYPE");
	if (!type && table)
		return store_fail(EEXIST, "%s: holds a partition table (%s)", b->name, table);
	if (type && strcmp(type, "swap") == 0)
		return store_fail(EEXIST, "%s: holds swap space", b->name);
	return store_fail(EEXIST, "%s: holds %s (%s%s%s)", b->name, kind_of(value(probe, "USAGE")),
			  type ? type : "unknown", label ? ", label " : "", label ? label : "");
}

int found_wipe(const struct backing *b)
{
	__attribute__((cleanup(free_probe))) blkid_probe probe = NULL;
	int rc = open_probe(b, &probe);

	if (rc != 0)
		return rc;
	for (int i = 0; i < SIGNATURES_MAX && blkid_do_probe(probe) == 0; i++)
		if (blkid_do_wipe(probe, 0) != 0)
			return store_fail(EIO, "%s: cannot wipe a signature of its former content",
					  b->name);
	return 0;
}

/* ---- bytes ------------------------------------------------------------------------ */

static int found_bytes(const struct backing *b, uint64_t size)
{
	uint64_t end = size < STAG_STORE_DATA_OFFSET ? size : STAG_STORE_DATA_OFFSET, at = 0;
	int rc = io_find_data(b->fd, &at, end, NULL);

	if (rc < 0)
		return store_fail(-rc, "%s: cannot be read at %" PRIu64 ": %s", b->name, at,
				  strerror(-rc));
	return rc == 0 ? 0
		       : store_fail(EEXIST,
				    "%s: holds data of an unknown kind, from byte %" PRIu64 " on",
				    b->name, at);
}

int found_anything(const struct backing *b)
{
	uint64_t size;
	int rc = backing_size(b, &size);

	if (rc != 0 || size == 0)
		return rc;
	rc = found_store(b);
	if (rc == 0)
		rc = found_signature(b);
	if (rc == 0)
		rc = found_bytes(b, size);
	return rc;
}
