// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - what the C library's calls do with a file, a link or a directory of ours.
 *
 * A file that is opened is a memfd with the content. So is a directory: the name of the memfd is its path, which stays true
 * when the file descriptor is duplicated or inherited. What it has in it is a matter of list.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "found/found.h"
#include "found/next.h"
#include "found/text.h"

#define DIRECTORY_NAME "stag-directory:"

enum { DIRECTORY_MODE = 0555 };

atomic_bool serve_has_directories;

/* ---- what it is ---- */

/* The same for a path at all times. */
ino_t serve_ino(const char *path)
{
	uint64_t h = 0xcbf29ce484222325ull;

	while (*path)
		h = (h ^ (uint8_t)*path++) * 0x100000001b3ull;
	return h;
}

static mode_t mode_of(const struct node *node)
{
	switch (node->kind) {
	case NODE_LINK:
		return S_IFLNK | 0777;
	case NODE_FILE:
		return S_IFREG | 0444;
	default:
		return S_IFDIR | 0755;
	}
}

int serve_stat(const struct shown *s, const struct spot *at, struct stat *st)
{
	char text[FOUND_PATH];

	/* owner, times, block size and file system as those of real files there */
	if (NEXT(stat)(strncmp(at->path, "/dev", 4) == 0 ? "/dev" : "/sys", st) != 0)
		memset(st, 0, sizeof(*st));
	st->st_mode = mode_of(&at->node);
	st->st_ino = serve_ino(at->path);
	st->st_nlink = 1; /* of a directory: unknown */
	st->st_blocks = 0;
	st->st_size = 0;
	if (at->node.kind == NODE_FILE)
		st->st_size = 4096; /* as in sysfs */
	else if (at->node.kind == NODE_LINK)
		st->st_size = tree_text(s, &at->node, text);
	return 0;
}

static struct statx_timestamp to_timestamp(const struct timespec *t)
{
	return (struct statx_timestamp){.tv_sec = t->tv_sec, .tv_nsec = (uint32_t)t->tv_nsec};
}

int serve_statx(const struct shown *s, const struct spot *at, struct statx *to)
{
	struct stat st;

	serve_stat(s, at, &st);
	*to = (struct statx){
		.stx_mask = STATX_BASIC_STATS,
		.stx_blksize = (uint32_t)st.st_blksize,
		.stx_nlink = (uint32_t)st.st_nlink,
		.stx_uid = st.st_uid,
		.stx_gid = st.st_gid,
		.stx_mode = (uint16_t)st.st_mode,
		.stx_ino = st.st_ino,
		.stx_size = (uint64_t)st.st_size,
		.stx_atime = to_timestamp(&st.st_atim),
		.stx_ctime = to_timestamp(&st.st_ctim),
		.stx_mtime = to_timestamp(&st.st_mtim),
		.stx_dev_major = major(st.st_dev),
		.stx_dev_minor = minor(st.st_dev),
	};
	return 0;
}

int serve_access(const struct spot *at, int mode)
{
	int granted = at->node.kind == NODE_FILE ? R_OK : R_OK | X_OK;

	if (mode & ~(R_OK | W_OK | X_OK))
		return -EINVAL;
	return mode & ~granted ? -EACCES : 0;
}

ssize_t serve_readlink(const struct shown *s, const struct spot *at, char *to, size_t room)
{
	char text[FOUND_PATH];
	size_t len;

	if (at->node.kind != NODE_LINK || room == 0)
		return -EINVAL;
	len = (size_t)tree_text(s, &at->node, text);
	if (len > room)
		len = room;
	memcpy(to, text, len);
	return (ssize_t)len;
}

/* ---- open ---- */

static int new_memfd(const char *name, int flags)
{
	unsigned cloexec = flags & O_CLOEXEC ? MFD_CLOEXEC : 0;
	int fd = memfd_create(name, cloexec | MFD_ALLOW_SEALING);

	return fd < 0 ? -errno : fd;
}

static int open_directory(const struct spot *at, int flags)
{
	char name[FOUND_PATH];
	struct text t;
	int fd;

	if ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT)
		return -EISDIR;
	text_begin(&t, name, sizeof(name));
	text_add(&t, DIRECTORY_NAME);
	text_add(&t, at->path);
	fd = t.too_long ? -ENAMETOOLONG : new_memfd(name, flags);
	if (fd < 0)
		return fd;
	fchmod(fd, DIRECTORY_MODE);
	atomic_store(&serve_has_directories, true);
	return fd;
}

/* A file descriptor that cannot be read: read() says EINVAL. */
static int open_unreadable(int flags)
{
	int fd = epoll_create1(flags & O_CLOEXEC ? EPOLL_CLOEXEC : 0);

	return fd < 0 ? -errno : fd;
}

static int open_text(const char *text, size_t len, int flags)
{
	int fd = new_memfd("stag-file", flags);

	if (fd < 0)
		return fd;
	if (pwrite(fd, text, len, 0) != (ssize_t)len) {
		close(fd);
		return -EIO;
	}
	fchmod(fd, 0444);
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	return fd;
}

static int open_file(const struct shown *s, const struct spot *at, int flags)
{
	char text[FOUND_PATH];
	int len;

	if (flags & O_DIRECTORY)
		return -ENOTDIR;
	if (flags & O_CREAT && flags & O_EXCL)
		return -EEXIST;
	if ((flags & O_ACCMODE) != O_RDONLY)
		return -EACCES;
	len = tree_text(s, &at->node, text);
	return len < 0 ? open_unreadable(flags) : open_text(text, (size_t)len, flags);
}

int serve_open(const struct shown *s, const struct spot *at, int flags)
{
	switch (at->node.kind) {
	case NODE_FILE:
		return open_file(s, at, flags);
	case NODE_LINK: /* was not followed */
		return -ELOOP;
	default:
		return open_directory(at, flags);
	}
}

/* Is it an open memfd that could be a directory of ours? */
static bool could_be_directory(int fd)
{
	struct stat st;

	return NEXT(fstat)(fd, &st) == 0 && st.st_mode == (S_IFREG | DIRECTORY_MODE) &&
	       st.st_nlink == 0 && st.st_size == 0;
}

bool serve_directory(int fd, char path[FOUND_PATH])
{
	static const char before[] = "/memfd:" DIRECTORY_NAME, behind[] = " (deleted)";
	char link[32], name[FOUND_PATH + sizeof(before) + sizeof(behind)];
	struct text t;
	ssize_t n;

	if (fd < 0 || !could_be_directory(fd))
		return false;
	text_begin(&t, link, sizeof(link));
	text_add(&t, "/proc/self/fd/");
	text_add_number(&t, (unsigned)fd);
	n = NEXT(readlink)(link, name, sizeof(name));
	if (n < (ssize_t)(strlen(before) + strlen(behind)) || n == sizeof(name) ||
	    memcmp(name, before, strlen(before)) != 0)
		return false;
	text_begin(&t, path, FOUND_PATH);
	text_add_bytes(&t, name + strlen(before), (size_t)n - strlen(before) - strlen(behind));
	return !t.too_long;
}
