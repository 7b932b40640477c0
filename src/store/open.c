// SPDX-License-Identifier: BSD-2-Clause
/*
 * open.c - opens and reads stores; users of partitions learn of changes here.
 *
 * Readers take no lock: a copy of the table is good or it is not, and while one is being written
 * the other one is good. The generation in the headers indicates a change. It is read, not mapped:
 * the truncation of a mapped file would kill its readers.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/export.h"
#include "base/log.h"

/* ---- the current table ------------------------------------------------------- */

/*
 * Two changes in a row may make both copies look torn to a reader. It then reads again with the
 * table locked against changes.
 */
int store_load(const struct backing *b, struct loaded *l)
{
	int rc = commit_load(b, l);

	if (rc != -EBADMSG || lock_table(b, false) != 0)
		return rc;
	rc = commit_load(b, l);
	unlock_table(b);
	return rc;
}

static uint64_t generation_of(const struct stag_store *store, unsigned int copy)
{
	uint8_t word[8];
	int rc = io_read(store->backing.fd, word, sizeof(word),
			 (uint64_t)copy * DISK_COPY + DISK_GENERATION);

	return rc == 0 ? disk_generation(word) : 0;
}

bool store_changed(const struct stag_store *store)
{
	for (unsigned int i = 0; i < DISK_COPIES; i++)
		if (generation_of(store, i) != store->now.copies[i].generation)
			return true;
	return false;
}

/* Reads the table again. Keeps the previous one on an error. */
int store_reload(struct stag_store *store, store_load_fn load)
{
	CLEANUP_FREE struct loaded *l = malloc(sizeof(*l));
	int rc;

	if (!l)
		return store_fail(ENOMEM, "%s: no memory", store->backing.name);
	rc = load(&store->backing, l);
	if (rc != 0)
		return rc;
	if (memcmp(l->table.uuid, store->uuid, sizeof(store->uuid)) != 0)
		return store_fail(ESTALE, "%s: is another store than the one that was opened",
				  store->backing.name);
	commit_copy(&store->now, l);
	return 0;
}

int store_refresh(struct stag_store *store)
{
	int rc = backing_is_same(&store->backing);

	return rc != 0 || !store_changed(store) ? rc : store_reload(store, store_load);
}

int store_look(struct stag_store *store)
{
	int rc = store_refresh(store);

	if (rc != store->trouble && rc == -ESTALE)
		log_err("store: %s; access to its partitions is withdrawn", stag_store_error());
	else if (rc != store->trouble && rc != 0)
		log_err("store: %s; its partitions keep the settings that were read last",
			stag_store_error());
	else if (rc != store->trouble)
		log_info("store: %s: its table can be read again", store->backing.name);
	store->trouble = rc;
	return rc;
}

/* ---- open and close -------------------------------------------------------------- */

static int open_store(struct stag_store *store, const char *path, unsigned int flags)
{
	int rc;

	if (flags & ~(unsigned int)STAG_STORE_LOOK)
		return store_fail(EINVAL, "open: unknown flags %#x", flags);
	store->look = flags & STAG_STORE_LOOK;
	rc = backing_open(&store->backing, path, store->look ? BACKING_LOOK : BACKING_USE);
	if (rc != 0)
		return rc;
	rc = store_load(&store->backing, &store->now);
	if (rc != 0)
		backing_close(&store->backing);
	else
		memcpy(store->uuid, store->now.table.uuid, sizeof(store->uuid));
	return rc;
}

STAG_EXPORT struct stag_store *stag_store_open(const char *path, unsigned int flags)
{
	struct stag_store *store = calloc(1, sizeof(*store));
	int rc = store ? open_store(store, path, flags)
		       : store_fail(ENOMEM, "%s: no memory", path ? path : "store");

	if (rc == 0) {
		list_init(&store->reserved);
		return store;
	}
	free(store);
	errno = -rc;
	return NULL;
}

STAG_EXPORT void stag_store_close(struct stag_store *store)
{
	if (!store)
		return;
	backing_close(&store->backing);
	free(store);
}

STAG_EXPORT void stag_store_on_progress(struct stag_store *store, stag_store_progress fn, void *arg)
{
	store->progress = (struct io_progress){fn, arg};
}

/* ---- queries ------------------------------------------------------------------------ */

STAG_EXPORT int stag_store_query(struct stag_store *store, struct stag_store_info *info,
				 size_t size)
{
	const struct table *t = &store->now.table;
	struct stag_store_info all = {0};
	int rc = store_refresh(store);

	if (rc == 0)
		rc = backing_size(&store->backing, &all.present);
	if (rc != 0)
		return -rc;
	memcpy(all.uuid, t->uuid, sizeof(all.uuid));
	memcpy(all.label, t->label, sizeof(all.label));
	all.size = t->size;
	all.used = table_used(t);
	all.largest_gap = table_largest_gap(t);
	all.generation = t->generation;
	all.block = t->block;
	all.version = STORE_VERSION;
	all.num_partitions = t->n;
	all.copies = commit_good_copies(&store->now);
	all.owner = t->owner;
	all.served_by = store_served_by(&store->backing);
	memcpy(info, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

STAG_EXPORT bool stag_store_next(struct stag_store *store, uint32_t *index,
				 struct stag_store_partition *partition)
{
	if (*index == 0 && store_refresh(store) != 0)
		return false;
	if (*index >= store->now.table.n)
		return false;
	*partition = store->now.table.entries[(*index)++];
	return true;
}

STAG_EXPORT int stag_store_find(struct stag_store *store, const char *name,
				struct stag_store_partition *partition)
{
	const struct stag_store_partition *p;
	int rc = store_refresh(store);

	if (rc != 0)
		return -rc;
	p = table_find(&store->now.table, name);
	if (!p)
		return -store_fail(ENOENT, "%s: has no partition %s", store->backing.name, name);
	*partition = *p;
	return 0;
}

/* ---- use ------------------------------------------------------------------------------ */

/*
 * Checks that the bytes which were locked still belong to the partition. Returns 1 if it has grown
 * meanwhile.
 */
static int check_still_there(struct stag_store *store, struct stag_store_partition *p)
{
	const struct stag_store_partition *now;
	int rc = store_refresh(store);

	if (rc != 0)
		return rc;
	now = table_find_id(&store->now.table, p->id);
	if (!now)
		return store_fail(ENOENT, "%s: partition %s has been removed", store->backing.name,
				  p->name);
	rc = now->size != p->size;
	*p = *now;
	return rc;
}

int store_use(struct stag_store *store, uint64_t id, struct stag_store_partition *partition)
{
	struct stag_store_partition p = {.id = id, .name = "?"};
	int fd, rc = check_still_there(store, &p);

	if (rc < 0)
		return rc;
	fd = backing_again(&store->backing);
	if (fd < 0)
		return fd;
	for (rc = 1; rc == 1;) {
		rc = lock_range_shared(fd, p.offset, p.size);
		rc = rc != 0 ? store_fail(-rc, "%s: partition %s: cannot lock it: %s",
					  store->backing.name, p.name, strerror(-rc))
			     : check_still_there(store, &p);
	}
	if (rc != 0) {
		close(fd);
		return rc;
	}
	*partition = p;
	return fd;
}

uint32_t store_served_by(const struct backing *b)
{
	uint8_t record[16];
	uint32_t pid;

	if (!lock_is_held(b->fd, LOCK_SERVE, 1))
		return 0;
	pid = io_read(b->fd, record, sizeof(record), DISK_SERVER) == 0 ? disk_get_server(record)
								       : 0;
	return pid != 0 ? pid : UINT32_MAX;
}

int store_serve_lock(struct stag_store *store)
{
	const struct backing *b = &store->backing;
	uint8_t record[16];
	int fd, rc;

	if (!b->writable)
		return store_fail(EACCES, "%s: serving requires permission to write it", b->name);
	fd = backing_again(b);
	if (fd < 0)
		return fd;
	if (!lock_range(fd, LOCK_SERVE, 1)) {
		rc = store_fail(EBUSY, "%s: process %" PRIu32 " serves it already", b->name,
				store_served_by(b));
		close(fd);
		return rc;
	}
	disk_put_server(record, (uint32_t)getpid());
	rc = io_write(fd, record, sizeof(record), DISK_SERVER);
	if (rc == 0)
		return fd;
	close(fd);
	return store_fail(-rc, "%s: cannot write the server's record: %s", b->name, strerror(-rc));
}
