// SPDX-License-Identifier: BSD-2-Clause
/*
 * roots.c - which paths a request of the management API may name (access.h).
 *
 * The daemon may open files that the client may not. So a path must be below a root after every symbolic link was followed, which
 * the kernel checks (openat2(2), RESOLVE_BENEATH). It is opened later, by name, and again at every restart: that the name still
 * leads to the same place then is ensured by its directories, which only this user and root may change.
 */
#include "access.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "conf.h"

/* ---- the roots ------------------------------------------------------------------------- */

static bool add_name(struct access *a, const char *dir)
{
	char **list;

	for (unsigned int i = 0; i < a->num_roots; i++)
		if (strcmp(a->roots[i], dir) == 0)
			return true;
	list = realloc(a->roots, (a->num_roots + 1) * sizeof(*list));
	if (!list)
		return false;
	a->roots = list;
	list[a->num_roots] = strdup(dir);
	return list[a->num_roots] && ++a->num_roots;
}

/* A client may name the directory as the INI file does, or by its real path. */
static bool add_root(struct access *a, const char *dir)
{
	CLEANUP_FREE char *real = realpath(dir, NULL);

	return add_name(a, dir) && (!real || add_name(a, real));
}

/* Adds the directory of a file that the INI file names; not that of devices, which would be all of them. */
static bool add_parent(struct access *a, const char *path)
{
	CLEANUP_FREE char *copy = path ? strdup(path) : NULL;
	const char *dir = copy ? dirname(copy) : NULL;

	if (!path || *path != '/')
		return true;
	if (!copy)
		return false;
	return strcmp(dir, "/") == 0 || strncmp(path, "/dev/", 5) == 0 || add_root(a, dir);
}

static bool add_parents_of_luns(struct access *a, const struct conf *conf,
				const struct conf_target *t)
{
	struct conf quiet = {.path = conf->path, .flags = conf->flags};
	bool good = true;

	for (unsigned int i = 0; good && i < t->at.num_items; i++) {
		struct conf_lun l = {0};

		if (conf_target_lun(&quiet, &t->at.items[i], &l)) {
			good = add_parent(a, l.where);
			conf_lun_free(&l);
		}
	}
	return good;
}

static bool add_used_directories(struct access *a, const struct conf *conf)
{
	bool good = !conf->daemon || !conf->daemon->state || add_root(a, conf->daemon->state);
	struct conf_section *s = NULL;

	while (good && (s = conf_next(conf, NULL, s)))
		if (s->kind == &conf_store_kind)
			good = add_parent(a, ((const struct conf_store *)s)->store);
		else if (s->kind == &conf_target_kind)
			good = add_parents_of_luns(a, conf, (const struct conf_target *)s);
	return good;
}

bool roots_collect(struct access *a, const struct conf *conf)
{
	const struct conf_api *api = conf_find(conf, &conf_api_kind, "");
	CLEANUP_FREE char *words = api && api->roots ? strdup(api->roots) : NULL;
	char *save, *word;
	bool good = true;

	if (!api || !api->roots)
		return add_used_directories(a, conf);
	word = words ? strtok_r(words, ", \t", &save) : NULL;
	for (; good && word; word = strtok_r(NULL, ", \t", &save)) {
		CLEANUP_FREE char *path = conf_resolve_path(conf, word);

		good = path && add_root(a, path);
	}
	return good && words;
}

bool roots_copy(struct access *to, const struct access *from)
{
	bool good = true;

	for (unsigned int i = 0; good && i < from->num_roots; i++)
		good = add_name(to, from->roots[i]);
	return good;
}

void roots_free(struct access *a)
{
	for (unsigned int i = 0; i < a->num_roots; i++)
		free(a->roots[i]);
	free(a->roots);
}

/* ---- paths ------------------------------------------------------------------------------ */

/* Fails with ENOSYS before Linux 5.6, and if a filter of system calls forbids it. */
static int open_beneath(int root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd < 0 && errno == EPERM)
		errno = ENOSYS;
	return fd;
}

static char *path_of(int fd)
{
	char link[32], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

/* Returns the part of the path that is below the directory, without a leading slash; NULL: it is not below. */
static const char *part_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	while (len > 0 && dir[len - 1] == '/')
		len--;
	if (strncmp(path, dir, len) != 0 || path[len] != '/')
		return NULL;
	return path + len + strspn(path + len, "/");
}

/* In a directory with the sticky bit others cannot replace what exists, but they can create what does not. */
static bool others_may_change(int fd, bool sticky_is_enough)
{
	struct stat st;

	return fstat(fd, &st) != 0 || (st.st_uid != geteuid() && st.st_uid != 0) ||
	       ((st.st_mode & 022) && !(sticky_is_enough && st.st_mode & S_ISVTX));
}

/* Checks each directory from the root to the one that holds the last part. `real` has no links, so none is followed. */
static int check_directories(int root, const char *rest, char *why, size_t size)
{
	CLEANUP_CLOSE int at = fcntl(root, F_DUPFD_CLOEXEC, 0);

	for (;;) {
		size_t len = strcspn(rest, "/");
		char part[256];
		int next;

		if (at < 0)
			return -errno;
		if (others_may_change(at, rest[len])) {
			CLEANUP_FREE char *dir = path_of(at);

			snprintf(why, size, "other users may change the directory %s", dir ?: "");
			return -EPERM;
		}
		if (!rest[len])
			return 0;
		if (len >= sizeof(part))
			return -ENAMETOOLONG;
		snprintf(part, sizeof(part), "%.*s", (int)len, rest);
		next = openat(at, part, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
		rest += len + 1;
	}
}

/* Opens the path below the root or, if its last part does not exist, its directory; then *last is that part. */
static int open_or_parent(int root, const char *rest, char *copy, const char **last)
{
	int fd = open_beneath(root, rest);
	char *slash;

	*last = NULL;
	if (fd >= 0 || errno != ENOENT)
		return fd;
	strcpy(copy, rest);
	slash = strrchr(copy, '/');
	*last = slash ? slash + 1 : rest;
	if (slash)
		*slash = '\0';
	if (!**last || strcmp(*last, ".") == 0 || strcmp(*last, "..") == 0) {
		errno = ENOENT;
		return -1;
	}
	return open_beneath(root, slash ? copy : ".");
}

/* A link as the last part that leads nowhere would be followed when the file is created. */
static bool is_dangling(int dir, const char *last)
{
	struct stat st;

	return fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int resolve_below(const char *root, const char *rest, char **real, char *why, size_t size)
{
	CLEANUP_CLOSE int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FREE char *copy = strdup(rest), *top = dir >= 0 ? path_of(dir) : NULL;
	const char *last = NULL;
	CLEANUP_CLOSE int fd = dir >= 0 && copy ? open_or_parent(dir, rest, copy, &last) : -1;
	int error = errno;
	CLEANUP_FREE char *path = fd >= 0 ? path_of(fd) : NULL;

	if (fd < 0)
		return -error;
	if (!path || !top)
		return -ENOMEM;
	if (last && is_dangling(fd, last))
		return -EXDEV;
	if (asprintf(real, "%s%s%s", path, last && strcmp(path, "/") != 0 ? "/" : "",
		     last ? last : "") < 0)
		return -ENOMEM;
	rest = part_below(*real, top);
	return rest && *rest ? check_directories(dir, rest, why, size) : -EXDEV;
}

int roots_resolve(const struct access *a, const char *path, char **real, char *why, size_t size)
{
	int rc = -EXDEV;

	*real = NULL;
	for (unsigned int i = 0; i < a->num_roots && rc != 0 && rc != -EPERM; i++) {
		const char *rest = part_below(path, a->roots[i]);

		if (!rest)
			continue;
		free(*real);
		*real = NULL;
		snprintf(why, size, "%s: ", path);
		rc = resolve_below(a->roots[i], rest, real, why, size);
	}
	if (rc == 0)
		return 0;
	free(*real);
	*real = NULL;
	if (rc == -EXDEV || rc == -ELOOP)
		snprintf(why, size, "%s is not below a directory that requests may name", path);
	else if (rc == -ENOSYS)
		snprintf(why, size, "%s cannot be checked: this kernel has no openat2", path);
	else if (rc != -EPERM)
		snprintf(why, size, "%s: %s", path, strerror(-rc));
	return rc == -ELOOP ? -EXDEV : rc;
}

const char *root_weakness(const char *root)
{
	CLEANUP_CLOSE int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? NULL : strerror(errno);
	return others_may_change(fd, false) ? "other users may change it" : NULL;
}
