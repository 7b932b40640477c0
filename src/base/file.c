// SPDX-License-Identifier: BSD-2-Clause
/*
 * file.c - see file.h.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static ssize_t read_all(int fd, char *to, size_t room)
{
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len < room) {
		n = read(fd, to + len, room - len);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			len += (size_t)n;
	}
	if (n < 0)
		return -errno;
	if (len == room)
		return -EFBIG;
	to[len] = '\0';
	return (ssize_t)len;
}

ssize_t file_read(int dir, const char *name, char *to, size_t room)
{
	CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : read_all(fd, to, room);
}

static int check_private(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077) ||
	    (st.st_uid != geteuid() && st.st_uid != 0))
		return -EPERM;
	return 0;
}

ssize_t file_read_private(int dir, const char *name, char *to, size_t room)
{
	/* Opening a pipe must not wait for its writer. */
	CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int rc = fd < 0 ? -errno : check_private(fd);

	return rc != 0 ? rc : read_all(fd, to, room);
}

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
	return fsync(fd) == 0 ? 0 : -errno;
}

/* Creates the file: one that is there may be another name of something else, or be open in another process. */
static int write_new(int dir, const char *name, const char *text, size_t len, mode_t mode)
{
	CLEANUP_CLOSE int fd = -1;

	if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0 || fchmod(fd, mode) != 0)
		return -errno;
	return write_all(fd, text, len);
}

/* Syncs the directory that contains name. dir may be AT_FDCWD, which itself cannot be synced. */
static int sync_directory(int dir, const char *name)
{
	const char *slash = strrchr(name, '/');
	char path[PATH_MAX] = ".";
	CLEANUP_CLOSE int fd = -1;

	if (slash)
		snprintf(path, sizeof(path), "%.*s", (int)(slash - name) + 1, name);
	fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && fsync(fd) == 0 ? 0 : -errno;
}

int file_replace(int dir, const char *name, const char *text, size_t len, mode_t mode)
{
	char new_name[PATH_MAX];
	int rc;

	if (snprintf(new_name, sizeof(new_name), "%s.new", name) >= (int)sizeof(new_name))
		return -ENAMETOOLONG;
	rc = write_new(dir, new_name, text, len, mode);
	if (rc == 0 && renameat(dir, new_name, dir, name) != 0)
		rc = -errno;
	if (rc != 0) {
		unlinkat(dir, new_name, 0);
		return rc;
	}
	return sync_directory(dir, name);
}
