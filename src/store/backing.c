// SPDX-License-Identifier: BSD-2-Clause
/* backing.c - the file, block device or shared memory object that holds a store. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/fs.h>

#include "base/cleanup.h"
#include "base/shm.h"

#define MEM	 "mem:"
#define MEM_FILE "store." /* of a name in its owner's directory: base/shm.h */

/* Makes the path absolute: the process may change its directory while the store is open. */
static char *absolute(const char *name)
{
	CLEANUP_FREE char *here = NULL;
	char *path = NULL;

	if (*name == '/')
		return strdup(name);
	here = getcwd(NULL, 0);
	return here && asprintf(&path, "%s/%s", here, name) >= 0 ? path : NULL;
}

/* Finds the file of mem:NAME, a store of this user's, or of mem:OWNER/NAME. */
static int find_memory(struct backing *b, const char *name, bool make)
{
	char file[sizeof(MEM_FILE) + STAG_STORE_NAME_MAX], path[PATH_MAX];
	const char *bare;
	int known = shm_parse(name + strlen(MEM), &b->owner, &bare), rc;

	rc = table_check_name("memory store", bare);
	if (rc != 0)
		return rc;
	if (known != 0)
		return store_fail(EINVAL, "%s: there is no such user", name);
	snprintf(file, sizeof(file), MEM_FILE "%s", bare);
	rc = shm_path(b->owner, make, file, path, sizeof(path));
	if (rc != 0)
		return store_fail(-rc, "%s: %s", name, strerror(-rc));
	b->in_memory = true;
	b->path = strdup(path);
	return 0;
}

static int find_path(struct backing *b, const char *name, bool make)
{
	int rc = 0;

	if (strncmp(name, MEM, strlen(MEM)) == 0)
		rc = find_memory(b, name, make);
	else
		b->path = absolute(name);
	if (rc != 0)
		return rc;
	if (!b->path)
		return store_fail(ENOMEM, "%s: cannot resolve the path: %s", name, strerror(errno));
	b->name = strdup(name);
	return b->name ? 0 : store_fail(ENOMEM, "%s: no memory", name);
}

/* O_NONBLOCK: opening a pipe must not wait for its other end. */
static int open_for(struct backing *b, enum backing_mode mode)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (b->in_memory ? O_NOFOLLOW : 0);

	b->writable = mode != BACKING_LOOK;
	b->fd = open(b->path, (b->writable ? O_RDWR : O_RDONLY) | flags);
	if (b->fd < 0 && errno == ENOENT && mode == BACKING_CREATE) {
		b->fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
		b->created = b->fd >= 0;
	}
	if (b->fd < 0 && mode == BACKING_USE &&
	    (errno == EACCES || errno == EPERM || errno == EROFS)) {
		b->writable = false;
		b->fd = open(b->path, O_RDONLY | flags);
	}
	return b->fd < 0 ? -errno : 0;
}

static int check_kind(struct backing *b)
{
	if (fstat(b->fd, &b->st) != 0)
		return store_fail(errno, "%s: %s", b->name, strerror(errno));
	if (b->in_memory && shm_check(&b->st, b->owner, 0666) != SHM_GOOD)
		return store_fail(EACCES, "%s: is no file of user %u alone (%s)", b->name, b->owner,
				  b->path);
	if (S_ISREG(b->st.st_mode) || S_ISBLK(b->st.st_mode))
		return 0;
	return store_fail(EINVAL, "%s: neither a file nor a block device", b->name);
}

int backing_open(struct backing *b, const char *name, enum backing_mode mode)
{
	int rc;

	*b = (struct backing){.fd = -1};
	if (!name || !*name)
		return store_fail(EINVAL, "a store must be named by its path, or by mem:NAME");
	rc = find_path(b, name, mode == BACKING_CREATE);
	if (rc == 0) {
		rc = open_for(b, mode);
		if (rc != 0)
			store_fail(-rc, "%s: %s", name, strerror(-rc));
	}
	if (rc == 0)
		rc = check_kind(b);
	if (rc != 0)
		backing_close(b);
	return rc;
}

void backing_close(struct backing *b)
{
	if (b->fd >= 0)
		close(b->fd);
	free(b->path);
	free(b->name);
	*b = (struct backing){.fd = -1};
}

int backing_size(const struct backing *b, uint64_t *size)
{
	struct stat st;

	if (S_ISBLK(b->st.st_mode)) {
		if (ioctl(b->fd, BLKGETSIZE64, size) != 0)
			return store_fail(errno, "%s: cannot query its size: %s", b->name,
					  strerror(errno));
		return 0;
	}
	if (fstat(b->fd, &st) != 0)
		return store_fail(errno, "%s: %s", b->name, strerror(errno));
	*size = (uint64_t)st.st_size;
	return 0;
}

int backing_sector(const struct backing *b, uint32_t *bytes)
{
	int sector = 0;

	*bytes = STORE_BLOCK_MIN;
	if (!S_ISBLK(b->st.st_mode))
		return 0;
	if (ioctl(b->fd, BLKSSZGET, &sector) != 0 || sector <= 0)
		return store_fail(errno, "%s: cannot query its sector size: %s", b->name,
				  strerror(errno));
	*bytes = (uint32_t)sector;
	return 0;
}

bool backing_is_same_file(const struct stat *a, const struct stat *b)
{
	if (S_ISBLK(a->st_mode))
		return S_ISBLK(b->st_mode) && a->st_rdev == b->st_rdev;
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int backing_is_same(const struct backing *b)
{
	struct stat st;

	if (stat(b->path, &st) != 0)
		return store_fail(ESTALE, "%s: has been removed since it was opened", b->name);
	if (!backing_is_same_file(&b->st, &st))
		return store_fail(ESTALE, "%s: is another file than the one that was opened",
				  b->name);
	return 0;
}

int backing_again(const struct backing *b)
{
	struct backing again;
	int rc = backing_open(&again, b->path, b->writable ? BACKING_USE : BACKING_LOOK);
	int fd;

	if (rc != 0)
		return rc;
	fd = backing_is_same_file(&b->st, &again.st)
		     ? fcntl(again.fd, F_DUPFD_CLOEXEC, 0)
		     : store_fail(ESTALE, "%s: is another file than the one that was opened",
				  b->name);
	if (fd == -1)
		fd = store_fail(errno, "%s: %s", b->name, strerror(errno));
	backing_close(&again);
	return fd;
}
