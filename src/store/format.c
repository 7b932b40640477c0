// SPDX-License-Identifier: BSD-2-Clause
/* format.c - formats a file, a block device or memory as a store. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/export.h"
#include "base/random.h"

#define UDEV_TRIES 50

static int check_attr(const struct stag_store_attr *attr, unsigned int flags)
{
	if (flags & ~(unsigned int)STAG_STORE_FORCE)
		return store_fail(EINVAL, "format: unknown flags %#x", flags);
	if (attr->comp_mask != 0)
		return store_fail(EINVAL, "format: comp_mask is not zero");
	return attr->label[0] != '\0' ? table_check_name("label", attr->label) : 0;
}

/* ---- checks of the existing content -------------------------------------------- */

/* Opens the device with O_EXCL, which fails if it is mounted or part of another device. */
static int hold_device(const struct backing *b, int *fd)
{
	if (!S_ISBLK(b->st.st_mode))
		return 0;
	*fd = open(b->path, O_RDWR | O_EXCL | O_CLOEXEC);
	if (*fd >= 0)
		return 0;
	return store_fail(
		errno, "%s: %s", b->name,
		errno == EBUSY ? "is mounted, or otherwise in use by the system" : strerror(errno));
}

/*
 * Locks the file as block targets lock the files and devices that they serve (flock(2)), until it is
 * closed. udev holds this lock of a device for an instant after each change (systemd's "Locking
 * Block Device Access"): that is waited for.
 */
static int lock_whole(const struct backing *b)
{
	const struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
	int tries = S_ISBLK(b->st.st_mode) ? UDEV_TRIES : 1;

	while (flock(b->fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK) /* a file system without this lock */
			return 0;
		if (--tries == 0)
			return store_fail(EBUSY,
					  "%s: another process has it locked: a block target that "
					  "serves it, or another program that uses it; stop it "
					  "first",
					  b->name);
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int check_unused(const struct backing *b)
{
	uint32_t pid = store_served_by(b);

	if (pid != 0)
		return store_fail(EBUSY, "%s: is a store that process %u serves; stop it first",
				  b->name, pid);
	if (lock_is_held(b->fd, LOCK_SERVE, 0))
		return store_fail(EBUSY, "%s: is a store with partitions in use", b->name);
	return lock_whole(b);
}

/* ---- its size --------------------------------------------------------------------- */

static int choose_geometry(const struct backing *b, const struct stag_store_attr *attr,
			   uint64_t present, struct table *t)
{
	uint32_t sector;
	int rc = backing_sector(b, &sector);

	if (rc != 0)
		return rc;
	t->block = attr->block != 0 ? attr->block : STORE_BLOCK > sector ? STORE_BLOCK : sector;
	t->size = attr->size;
	if (t->size == 0 && present == 0)
		return store_fail(EINVAL, "%s: is new or empty: specify its size", b->name);
	if (t->size == 0)
		t->size = present - present % t->block;
	rc = table_check_geometry(t->size, t->block);
	if (rc == 0 && t->block < sector)
		return store_fail(EINVAL,
				  "%s: block size %u is less than the device's sector size, %u",
				  b->name, t->block, sector);
	return rc;
}

static int choose_size(const struct backing *b, const struct stag_store_attr *attr, struct table *t)
{
	uint64_t present;
	int rc = backing_size(b, &present);

	if (rc == 0)
		rc = choose_geometry(b, attr, present, t);
	if (rc != 0 || t->size <= present)
		return rc;
	if (S_ISBLK(b->st.st_mode))
		return store_fail(ENOSPC, "%s: the device has %" PRIu64 " bytes, not %" PRIu64,
				  b->name, present, t->size);
	rc = io_extend(b->fd, t->size);
	return rc == 0 ? 0
		       : store_fail(-rc, "%s: cannot grow to %" PRIu64 " bytes: %s", b->name,
				    t->size, strerror(-rc));
}

/* ---- writing ------------------------------------------------------------------------ */

static void fill_table(struct table *t, const struct stag_store_attr *attr)
{
	for (size_t i = 0; i < sizeof(t->uuid); i += sizeof(uint32_t)) {
		uint32_t r = random_u32();

		memcpy(t->uuid + i, &r, sizeof(r));
	}
	t->uuid[6] = (uint8_t)((t->uuid[6] & 0x0f) | 0x40); /* RFC 9562 §5.4: version 4 */
	t->uuid[8] = (uint8_t)((t->uuid[8] & 0x3f) | 0x80);
	t->generation = 1;
	t->next_id = 1;
	t->owner = geteuid();
	snprintf(t->label, sizeof(t->label), "%s", attr->label);
}

static int write_all(const struct backing *b, const struct table *t)
{
	CLEANUP_FREE uint8_t *zeroes = calloc(1, STAG_STORE_DATA_OFFSET);
	int rc;

	if (!zeroes)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	rc = io_write(b->fd, zeroes, STAG_STORE_DATA_OFFSET, 0);
	if (rc == 0)
		rc = io_sync(b->fd);
	if (rc != 0)
		return store_fail(-rc, "%s: cannot write its first bytes: %s", b->name,
				  strerror(-rc));
	for (unsigned int copy = DISK_COPIES; rc == 0 && copy-- > 0;)
		rc = commit_write_copy(b, copy, t, 0);
	return rc;
}

/* Syncs the directory, so that a new file's name is durable, too. */
static int sync_folder(const struct backing *b)
{
	CLEANUP_FREE char *path = strdup(b->path);
	CLEANUP_CLOSE int fd = path ? open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
		return store_fail(errno, "%s: cannot flush its directory: %s", b->name,
				  strerror(errno));
	return 0;
}

static int format_locked(const struct backing *b, const struct stag_store_attr *attr, bool force)
{
	CLEANUP_FREE struct table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return store_fail(ENOMEM, "%s: no memory", b->name);
	rc = check_unused(b);
	if (rc == 0 && !force)
		rc = found_anything(b);
	if (rc == 0)
		rc = choose_size(b, attr, t);
	if (rc == 0 && force && !b->created)
		rc = found_wipe(b);
	if (rc != 0)
		return rc;
	fill_table(t, attr);
	rc = write_all(b, t);
	return rc == 0 && b->created ? sync_folder(b) : rc;
}

static int format(const char *path, const struct stag_store_attr *attr, bool force)
{
	struct backing b;
	CLEANUP_CLOSE int held = -1;
	int rc = backing_open(&b, path, BACKING_CREATE);

	if (rc != 0)
		return rc;
	rc = hold_device(&b, &held);
	if (rc == 0)
		rc = lock_table(&b, true);
	if (rc == 0)
		rc = format_locked(&b, attr, force);
	if (rc != 0 && b.created)
		unlink(b.path);
	backing_close(&b);
	return rc;
}

STAG_EXPORT int stag_store_format(const char *path, const struct stag_store_attr *attr,
				  unsigned int flags)
{
	static const struct stag_store_attr defaults;
	int rc;

	if (!attr)
		attr = &defaults;
	rc = check_attr(attr, flags);
	return -(rc != 0 ? rc : format(path, attr, flags & STAG_STORE_FORCE));
}
