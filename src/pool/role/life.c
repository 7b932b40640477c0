// SPDX-License-Identifier: BSD-2-Clause
/*
 * life.c - proof that a process has ended (life.h). The file is locked and written before it gets its name, so a
 * process that opens it by name finds it locked, or its owner dead.
 */
#include "pool/role/life.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/cleanup.h"

#define XFS_MAGIC 0x58465342
#define ZFS_MAGIC 0x2fc12fc1
#define HIGH	  1000

static bool is_of_this_machine(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0)
		return false;
	switch ((unsigned int)fs.f_type) {
	case TMPFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case XFS_MAGIC:
	case ZFS_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/*
 * Moves a descriptor to a high number. The kernel closes the descriptors of a killed process from the highest
 * down, and a lower one may take long to close: an inotify descriptor takes tens of milliseconds.
 */
static int move_up(int fd)
{
	struct rlimit limit;
	int high;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, limit.rlim_cur < HIGH ? (int)limit.rlim_cur - 1 : HIGH);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static int make_file(struct life *l, const char *name)
{
	CLEANUP_CLOSE int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	if (!is_of_this_machine(fd))
		return -EOPNOTSUPP;
	if (RAND_bytes(l->token, sizeof(l->token)) != 1)
		return -EIO;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		return -errno;
	if (write(fd, l->token, sizeof(l->token)) != sizeof(l->token))
		return -ENOSPC;
	l->fd = move_up(fd);
	fd = -1;
	return 0;
}

/*
 * Returns whether PATH.PID was left by a process that was killed before it renamed the file: no process has that
 * number, and none holds the lock.
 */
static bool is_left_behind(int dir, const char *name, const char *number)
{
	CLEANUP_CLOSE int fd = -1;
	char *end;
	long pid = strtol(number, &end, 10);

	if (end == number || *end || pid <= 0 || pid > INT_MAX || kill((pid_t)pid, 0) == 0 ||
	    errno != ESRCH)
		return false;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_leftovers(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char folder[PATH_MAX] = ".";
	size_t len = strlen(name);
	DIR *dir;

	if (slash && snprintf(folder, sizeof(folder), "%.*s/", (int)(slash - path), path) >=
			     (int)sizeof(folder))
		return;
	dir = opendir(folder);
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (strncmp(e->d_name, name, len) == 0 && e->d_name[len] == '.' &&
		    is_left_behind(dirfd(dir), e->d_name, e->d_name + len + 1))
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
}

int life_begin(struct life *l, const char *path)
{
	char name[PATH_MAX];
	int rc;

	*l = LIFE_NONE;
	if (snprintf(name, sizeof(name), "%s.%d", path, (int)getpid()) >= (int)sizeof(name))
		return -ENAMETOOLONG;
	remove_leftovers(path);
	unlink(name); /* left by a process with our number that was killed before it renamed the file */
	rc = make_file(l, name);
	if (rc == 0 && rename(name, path) != 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	unlink(name);
	life_end(l);
	return rc;
}

void life_end(struct life *l)
{
	if (l->fd >= 0)
		close(l->fd);
	*l = LIFE_NONE;
}

static bool has_token(int fd, const uint8_t token[LIFE_TOKEN_LEN])
{
	uint8_t found[LIFE_TOKEN_LEN];

	return pread(fd, found, sizeof(found), 0) == sizeof(found) &&
	       CRYPTO_memcmp(found, token, sizeof(found)) == 0;
}

int life_watch(const char *path, const uint8_t token[LIFE_TOKEN_LEN])
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int found;

	if (fd < 0)
		return -errno;
	if (!is_of_this_machine(fd))
		return -EOPNOTSUPP;
	/* A lock that cannot be seen held could not be seen released. */
	if (!has_token(fd, token) || life_is_over(fd))
		return -ESRCH;
	found = fd;
	fd = -1;
	return found;
}

/* Several processes may check the same file at once. */
bool life_is_over(int fd)
{
	if (flock(fd, LOCK_SH | LOCK_NB) != 0)
		return false;
	flock(fd, LOCK_UN);
	return true;
}
