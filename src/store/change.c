// SPDX-License-Identifier: BSD-2-Clause
/*
 * change.c - adds, changes and removes partitions; grows the store.
 *
 * Every change is made to a draft of the current table with the table lock held, and committed: so
 * of two concurrent changes neither undoes the other. Space that is added to a partition is zeroed
 * before the table assigns it.
 */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/export.h"

/* ---- begin and end ------------------------------------------------------------- */

static int load_draft(struct stag_store *store)
{
	int rc = backing_is_same(&store->backing);

	if (rc == 0)
		rc = store_reload(store, commit_load);
	if (rc == 0)
		table_copy(&store->draft, &store->now.table);
	return rc;
}

static int begin_change(struct stag_store *store)
{
	int rc;

	if (store->look)
		return store_fail(EACCES, "%s: was opened read-only", store->backing.name);
	if (!store->backing.writable)
		return store_fail(EACCES, "%s: cannot be changed: no permission to write it",
				  store->backing.name);
	rc = lock_table(&store->backing, true);
	if (rc != 0)
		return rc;
	rc = load_draft(store);
	if (rc != 0)
		unlock_table(&store->backing);
	return rc;
}

static int commit(struct stag_store *store)
{
	return commit_table(&store->backing, &store->now, &store->draft);
}

/*
 * Releases the table lock. A range lock must be released earlier, else the next change would find
 * the range in use.
 */
static int end_change(struct stag_store *store, int rc)
{
	unlock_table(&store->backing);
	return rc;
}

/* ---- free space ------------------------------------------------------------------- */

/* Returns whether no process uses the range: a partition removed by force may still be open. */
static bool is_free(void *arg, uint64_t offset, uint64_t size)
{
	const struct stag_store *store = arg;

	return !lock_is_held(store->backing.fd, offset, size);
}

static int clear_room(struct stag_store *store, const char *name, uint64_t offset, uint64_t size)
{
	uint64_t present;
	int rc = backing_size(&store->backing, &present);

	if (rc != 0)
		return rc;
	if (offset > present || size > present - offset)
		return store_fail(EIO,
				  "%s: ends at %" PRIu64
				  ", inside the space for %s: it was truncated; "
				  "see 'stag store check'",
				  store->backing.name, present, name);
	rc = io_zero(store->backing.fd, offset, size, &store->progress);
	if (rc != 0)
		return store_fail(-rc, "%s: cannot write zeroes to the space for %s: %s",
				  store->backing.name, name, strerror(-rc));
	return 0;
}

/* ---- add ---------------------------------------------------------------------------- */

static int draft_new(struct stag_store *store, struct stag_store_partition *p)
{
	struct table *t = &store->draft;

	if (table_find(t, p->name))
		return store_fail(EEXIST, "%s: partition %s exists already", store->backing.name,
				  p->name);
	if (t->n == STAG_STORE_MAX_PARTITIONS)
		return store_fail(ENOSPC, "%s: has %d partitions already, the maximum",
				  store->backing.name, STAG_STORE_MAX_PARTITIONS);
	p->id = t->next_id++;
	return table_place(t, p, is_free, store);
}

/*
 * The range lock fails only if a removed partition was there that is still in use: the new one is
 * not in the table yet.
 */
static int add_partition(struct stag_store *store, struct stag_store_partition *p)
{
	int fd = store->backing.fd, rc = begin_change(store);

	if (rc != 0)
		return rc;
	rc = draft_new(store, p);
	if (rc != 0)
		return end_change(store, rc);
	if (!lock_range(fd, p->offset, p->size))
		return end_change(store, store_fail(EBUSY, "%s: the space for %s is in use",
						    store->backing.name, p->name));
	rc = clear_room(store, p->name, p->offset, p->size);
	if (rc == 0) {
		table_insert(&store->draft, p);
		rc = commit(store);
	}
	unlock_range(fd, p->offset, p->size);
	return end_change(store, rc);
}

STAG_EXPORT int stag_store_add(struct stag_store *store, struct stag_store_partition *partition)
{
	struct stag_store_partition p = *partition;
	int rc = table_check_settings(&p);

	if (rc == 0) {
		table_clean(&p);
		rc = add_partition(store, &p);
	}
	if (rc != 0)
		return -rc;
	partition->id = p.id;
	partition->offset = p.offset;
	partition->alignment = p.alignment;
	return 0;
}

/* ---- change --------------------------------------------------------------------------- */

#define EVERY_CHANGE                                                                               \
	(STAG_STORE_CHANGE_RIGHTS | STAG_STORE_CHANGE_RELAX | STAG_STORE_CHANGE_LEVEL |            \
	 STAG_STORE_CHANGE_CACHE | STAG_STORE_CHANGE_NAME | STAG_STORE_CHANGE_SIZE)

static void copy_settings(struct stag_store_partition *to, const struct stag_store_partition *from,
			  unsigned int what)
{
	if (what & STAG_STORE_CHANGE_RIGHTS) {
		to->num_rights = from->num_rights;
		memcpy(to->rights, from->rights, sizeof(to->rights));
	}
	if (what & STAG_STORE_CHANGE_RELAX)
		to->relax = from->relax;
	if (what & STAG_STORE_CHANGE_LEVEL)
		to->level = from->level;
	if (what & STAG_STORE_CHANGE_CACHE)
		to->cache_ms = from->cache_ms;
	if (what & STAG_STORE_CHANGE_NAME)
		memcpy(to->name, from->name, sizeof(to->name));
}

static int check_size(struct stag_store *store, const struct stag_store_partition *p, uint64_t size)
{
	uint64_t gap = table_gap_behind(&store->draft, p);

	if (size < p->size || size % store->draft.block != 0)
		return store_fail(EINVAL,
				  "%s: cannot change to %" PRIu64
				  " bytes: it can grow from %" PRIu64
				  " in steps of %u, and never shrinks",
				  p->name, size, p->size, store->draft.block);
	if (size - p->size > gap)
		return store_fail(ENOSPC,
				  "%s: cannot grow: there are %" PRIu64
				  " bytes free behind it, not %" PRIu64,
				  p->name, gap, size - p->size);
	return 0;
}

/* Adds space to a partition and commits. The added range stays locked until the commit. */
static int grow_partition(struct stag_store *store, struct stag_store_partition *p, uint64_t size)
{
	uint64_t offset = p->offset + p->size, more = size - p->size;
	int rc;

	if (!lock_range(store->backing.fd, offset, more))
		return store_fail(EBUSY,
				  "%s: cannot grow: the space behind it belonged to a removed "
				  "partition that is still in use",
				  p->name);
	rc = clear_room(store, p->name, offset, more);
	p->size = size;
	if (rc == 0)
		rc = commit(store);
	unlock_range(store->backing.fd, offset, more);
	return rc;
}

static int draft_change(struct stag_store *store, const struct stag_store_partition *wanted,
			unsigned int what, struct stag_store_partition **p)
{
	const struct stag_store_partition *same;

	*p = table_find_id(&store->draft, wanted->id);
	if (!*p)
		return store_fail(ENOENT, "%s: no partition has the id %" PRIu64,
				  store->backing.name, wanted->id);
	same = what & STAG_STORE_CHANGE_NAME ? table_find(&store->draft, wanted->name) : NULL;
	if (same && same != *p)
		return store_fail(EEXIST, "%s: has a partition %s already", store->backing.name,
				  wanted->name);
	copy_settings(*p, wanted, what);
	return what & STAG_STORE_CHANGE_SIZE ? check_size(store, *p, wanted->size) : 0;
}

static int change(struct stag_store *store, const struct stag_store_partition *wanted,
		  unsigned int what)
{
	struct stag_store_partition *p;
	int rc = begin_change(store);

	if (rc != 0)
		return rc;
	rc = draft_change(store, wanted, what, &p);
	if (rc == 0)
		rc = table_check_settings(p);
	if (rc != 0)
		return end_change(store, rc);
	table_clean(p);
	if (what & STAG_STORE_CHANGE_SIZE && wanted->size > p->size)
		rc = grow_partition(store, p, wanted->size);
	else
		rc = commit(store);
	return end_change(store, rc);
}

STAG_EXPORT int stag_store_change(struct stag_store *store,
				  const struct stag_store_partition *partition, unsigned int what)
{
	if (what == 0 || what & ~(unsigned int)EVERY_CHANGE)
		return -store_fail(EINVAL, "%s: unknown change flags %#x", store->backing.name,
				   what);
	if (what & STAG_STORE_CHANGE_NAME && table_check_name("partition", partition->name) != 0)
		return EINVAL;
	return -change(store, partition, what);
}

/* ---- remove ------------------------------------------------------------------------------ */

/*
 * Refuses if the partition's bytes, which are locked, are not all zero: however it was written, it
 * has data. Bytes behind the end of a truncated file are lost already.
 */
static int check_unwritten(struct stag_store *store, const struct stag_store_partition *p)
{
	uint64_t at = p->offset, end = p->offset + p->size, present;
	int rc = backing_size(&store->backing, &present);

	if (rc != 0)
		return rc;
	if (end > present)
		end = present > at ? present : at;
	rc = io_find_data(store->backing.fd, &at, end, &store->progress);
	if (rc < 0)
		return store_fail(-rc,
				  "%s: cannot read partition %s at byte %" PRIu64
				  " to see whether it has data: %s",
				  store->backing.name, p->name, at - p->offset, strerror(-rc));
	if (rc > 0)
		return store_fail(ENOTEMPTY,
				  "%s: partition %s has been written: it has data from byte "
				  "%" PRIu64 " on",
				  store->backing.name, p->name, at - p->offset);
	return 0;
}

/* Removes the partition from the table, and releases its space if its bytes are locked. */
static int commit_removal(struct stag_store *store, struct stag_store_partition *p, bool locked)
{
	struct stag_store_partition gone = *p;
	int rc;

	table_delete(&store->draft, p);
	rc = commit(store);
	if (rc == 0 && locked)
		io_release(store->backing.fd, gone.offset, gone.size);
	return rc;
}

static int remove_partition(struct stag_store *store, const char *name, bool force)
{
	struct stag_store_partition *p;
	int fd = store->backing.fd, rc = begin_change(store);
	uint64_t offset, size;
	bool locked;

	if (rc != 0)
		return rc;
	p = table_find(&store->draft, name);
	if (!p)
		return end_change(store, store_fail(ENOENT, "%s: has no partition %s",
						    store->backing.name, name));
	offset = p->offset;
	size = p->size;
	locked = lock_range(fd, offset, size);
	if (!locked && !force)
		return end_change(store, store_fail(EBUSY, "%s: partition %s is in use",
						    store->backing.name, name));
	rc = force ? 0 : check_unwritten(store, p);
	if (rc == 0)
		rc = commit_removal(store, p, locked);
	if (locked)
		unlock_range(fd, offset, size);
	return end_change(store, rc);
}

STAG_EXPORT int stag_store_remove(struct stag_store *store, const char *name, unsigned int flags)
{
	if (flags & ~(unsigned int)STAG_STORE_FORCE)
		return -store_fail(EINVAL, "%s: unknown flags %#x", store->backing.name, flags);
	return -remove_partition(store, name, flags & STAG_STORE_FORCE);
}

/* ---- grow ---------------------------------------------------------------------------------- */

static int find_room(struct stag_store *store, uint64_t *size)
{
	const struct backing *b = &store->backing;
	uint64_t present;
	int rc = backing_size(b, &present);

	if (rc != 0)
		return rc;
	if (*size == 0)
		*size = present & ~(uint64_t)(store->draft.block - 1);
	if (*size < store->draft.size)
		return store_fail(EINVAL, "%s: has %" PRIu64 " bytes; it cannot shrink to %" PRIu64,
				  b->name, store->draft.size, *size);
	rc = table_check_geometry(*size, store->draft.block);
	if (rc != 0 || *size <= present)
		return rc;
	if (S_ISBLK(b->st.st_mode))
		return store_fail(ENOSPC, "%s: the device ends at %" PRIu64, b->name, present);
	rc = io_extend(b->fd, *size);
	return rc == 0 ? 0
		       : store_fail(-rc, "%s: cannot grow to %" PRIu64 " bytes: %s", b->name, *size,
				    strerror(-rc));
}

STAG_EXPORT int stag_store_grow(struct stag_store *store, uint64_t size)
{
	int rc = begin_change(store);

	if (rc != 0)
		return -rc;
	rc = find_room(store, &size);
	if (rc == 0 && size > store->draft.size) {
		store->draft.size = size;
		rc = commit(store);
	}
	return -end_change(store, rc);
}
