// SPDX-License-Identifier: BSD-2-Clause
/*
 * shm.c - see shm.h.
 *
 * Once a user's directory exists it stays: so it is found again after a stranger has removed the
 * name that was in its way. Of several that belong to the user, the one with the lowest number is
 * used.
 */
#include "base/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/random.h"

#define PREFIX	   "stag-"
#define PATH_SIZE  64
#define IN_ORDER   8u /* numbers to try before random ones */
#define MAKE_TRIES 64u

/* ---- names ---- */

static bool parse_number(const char *text, size_t len, uint32_t *number)
{
	uint64_t n = 0;

	if (len == 0 || len > 10 || strspn(text, "0123456789") < len)
		return false;
	for (size_t i = 0; i < len; i++)
		n = n * 10 + (uint64_t)(text[i] - '0');
	*number = (uint32_t)n;
	return n < UINT32_MAX;
}

static int find_user(const char *text, size_t len, uid_t *owner)
{
	char name[64], room[4096];
	struct passwd entry, *found = NULL;

	if (parse_number(text, len, owner))
		return 0;
	if (len == 0 || len >= sizeof(name))
		return -EINVAL;
	memcpy(name, text, len);
	name[len] = '\0';
	if (getpwnam_r(name, &entry, room, sizeof(room), &found) != 0 || !found)
		return -EINVAL;
	*owner = found->pw_uid;
	return 0;
}

int shm_parse(const char *text, uid_t *owner, const char **name)
{
	const char *slash = strchr(text, '/');

	*owner = geteuid();
	*name = slash ? slash + 1 : text;
	return slash ? find_user(text, (size_t)(slash - text), owner) : 0;
}

/* Parses a directory's name: "stag-UID", number 0, or "stag-UID.N". */
static bool parse_home(const char *text, uid_t *owner, uint32_t *number)
{
	const char *dot;

	if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
		return false;
	text += strlen(PREFIX);
	dot = strchrnul(text, '.');
	*number = 0;
	return parse_number(text, (size_t)(dot - text), owner) &&
	       (!*dot || (parse_number(dot + 1, strlen(dot + 1), number) && *number > 0));
}

static void home_path(uid_t owner, uint32_t number, char path[PATH_SIZE])
{
	int n = snprintf(path, PATH_SIZE, SHM_DIR "/" PREFIX "%u", owner);

	if (number > 0)
		snprintf(path + n, PATH_SIZE - (size_t)n, ".%u", number);
}

/* ---- directories ---- */

/* Returns -ENOENT if there is nothing, or -EPERM if it is no directory of the user's alone. */
static int open_home(uid_t owner, uint32_t number)
{
	char path[PATH_SIZE];
	struct stat st;
	int fd;

	home_path(owner, number, path);
	fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? -EPERM : -errno;
	if (fstat(fd, &st) == 0 && st.st_uid == owner && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return fd;
	close(fd);
	return -EPERM;
}

/* Finds the user's directory with the lowest number. */
static int search_home(uid_t owner)
{
	DIR *dir = opendir(SHM_DIR);
	uint32_t number, least = UINT32_MAX;
	struct dirent *entry;
	uid_t user;

	while (dir && (entry = readdir(dir))) {
		CLEANUP_CLOSE int fd = -1;

		if (!parse_home(entry->d_name, &user, &number) || user != owner || number >= least)
			continue;
		fd = open_home(owner, number);
		if (fd >= 0)
			least = number;
	}
	if (dir)
		closedir(dir);
	return least == UINT32_MAX ? -ENOENT : open_home(owner, least);
}

/* Others may pass through it: an object's own mode decides who may open it. */
static int make_home(uid_t owner)
{
	char path[PATH_SIZE];
	int fd;

	for (uint32_t i = 0; i < MAKE_TRIES; i++) {
		uint32_t number = i < IN_ORDER ? i : random_u32() >> 1 | 1;

		home_path(owner, number, path);
		if (mkdir(path, 0700) == 0) {
			if (chmod(path, 0711) != 0)
				return -errno;
			if (number > 0)
				log_warn("%s/%s%u is not this user's: using %s", SHM_DIR, PREFIX,
					 owner, path);
			return search_home(owner);
		}
		if (errno != EEXIST)
			return -errno;
		fd = open_home(owner, number);
		if (fd != -EPERM)
			return fd; /* another process of this user has just made it */
	}
	return -EACCES;
}

int shm_open_home(uid_t owner, bool make)
{
	int fd = open_home(owner, 0);

	if (fd != -ENOENT && fd != -EPERM)
		return fd;
	fd = search_home(owner);
	return fd == -ENOENT && make && owner == geteuid() ? make_home(owner) : fd;
}

/* The path stays valid: nobody else can rename the directory. */
int shm_path(uid_t owner, bool make, const char *file, char *path, size_t size)
{
	CLEANUP_CLOSE int fd = shm_open_home(owner, make);
	char link[32], home[PATH_SIZE];
	ssize_t n;

	if (fd < 0)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, home, sizeof(home) - 1);
	if (n < 0)
		return -errno;
	home[n] = '\0';
	return (size_t)snprintf(path, size, "%s/%s", home, file) < size ? 0 : -ENAMETOOLONG;
}

void shm_each_user(bool (*fn)(uid_t user, void *arg), void *arg)
{
	DIR *dir = opendir(SHM_DIR);
	struct dirent *entry;
	uint32_t number;
	bool more = true;
	uid_t user;

	while (dir && more && (entry = readdir(dir))) {
		CLEANUP_CLOSE int fd = -1;

		if (!parse_home(entry->d_name, &user, &number))
			continue;
		fd = number > 0 ? open_home(user, 0) : -1;
		if (fd >= 0)
			continue; /* comes by itself */
		fd = open_home(user, number);
		if (fd >= 0)
			more = fn(user, arg);
	}
	if (dir)
		closedir(dir);
}

/* ---- objects ---- */

enum shm_fault shm_check(const struct stat *st, uid_t owner, mode_t mode)
{
	if (!S_ISREG(st->st_mode))
		return SHM_NOT_A_FILE;
	if (st->st_uid != owner)
		return SHM_STRANGE;
	if (st->st_nlink > 1)
		return SHM_LINKED;
	return st->st_mode & ~mode & (S_IWGRP | S_IWOTH) ? SHM_OPEN : SHM_GOOD;
}
