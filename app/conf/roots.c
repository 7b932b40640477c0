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

static bool add_name(char ***list, unsigned int *num, const char *path)
{
	char **longer;

	for (unsigned int i = 0; i < *num; i++)
		if (strcmp((*list)[i], path) == 0)
			return true;
	longer = realloc(*list, (*num + 1) * sizeof(*longer));
	if (!longer)
		return false;
	*list = longer;
	longer[*num] = strdup(path);
	return longer[*num] && ++*num;
}

/* A client may name the directory as the INI file does, or by its real path. */
static bool add_root(struct access *a, const char *dir)
{
	CLEANUP_FREE char *real = realpath(dir, NULL);

	return add_name(&a->roots, &a->num_roots, dir) &&
	       (!real || add_name(&a->roots, &a->num_roots, real));
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

/* ---- the daemon's own files ---------------------------------------------------------------- */

/* Adds the path without symbolic links, which is what requests are compared by. NULL and relative ones are left out. */
static bool add_own(struct access *a, const char *path)
{
	CLEANUP_FREE char *real = path && *path == '/' ? realpath(path, NULL) : NULL;

	return !path || *path != '/' || add_name(&a->own, &a->num_own, real ? real : path);
}

static bool is_state_of_daemon(const struct conf_section *s, const struct conf_setting *set)
{
	return s->kind == &conf_daemon_kind && strcmp(set->name, "state") == 0;
}

/* Adds what the settings of a section name, but the daemon's state directory: stores may be there. */
static bool add_own_of_section(struct access *a, const struct conf_section *s)
{
	bool good = true;

	for (unsigned int i = 0; good && i < s->kind->num_settings; i++) {
		const struct conf_setting *set = &s->kind->settings[i];

		if (set->type == CONF_FILE && !is_state_of_daemon(s, set))
			good = add_own(a, *(char *const *)((const char *)s + set->at));
	}
	return good;
}

static bool add_own_of_target(struct access *a, const struct conf_target *t)
{
	bool good = true;

	for (unsigned int i = 0; good && t->parsed && i < t->attr.num_rights; i++)
		good = add_own(a, t->parsed[i].secret_file);
	return good;
}

/* The directory of drop-ins is made when the first is. */
static bool add_dropins(struct access *a, const struct conf *conf)
{
	CLEANUP_FREE char *state = NULL, *dir = NULL;

	if (!conf->daemon || !conf->daemon->state)
		return true;
	state = realpath(conf->daemon->state, NULL);
	if (asprintf(&dir, "%s/" CONF_DROPINS, state ? state : conf->daemon->state) < 0)
		return false;
	return add_name(&a->own, &a->num_own, dir);
}

static bool collect_own(struct access *a, const struct conf *conf)
{
	struct conf_section *s = NULL;
	bool good = add_own(a, conf->path) && add_dropins(a, conf);

	while (good && (s = conf_next(conf, NULL, s))) {
		good = add_own_of_section(a, s);
		if (good && s->kind == &conf_target_kind)
			good = add_own_of_target(a, (const struct conf_target *)s);
	}
	return good;
}

static bool collect_roots(struct access *a, const struct conf *conf)
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

bool roots_collect(struct access *a, const struct conf *conf)
{
	return collect_roots(a, conf) && collect_own(a, conf);
}

bool roots_copy(struct access *to, const struct access *from)
{
	bool good = true;

	for (unsigned int i = 0; good && i < from->num_roots; i++)
		good = add_name(&to->roots, &to->num_roots, from->roots[i]);
	for (unsigned int i = 0; good && i < from->num_own; i++)
		good = add_name(&to->own, &to->num_own, from->own[i]);
	return good;
}

static void free_names(char **list, unsigned int num)
{
	for (unsigned int i = 0; i < num; i++)
		free(list[i]);
	free(list);
}

void roots_free(struct access *a)
{
	free_names(a->roots, a->num_roots);
	free_names(a->own, a->num_own);
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

/* The INI files of other daemons, too, of which this one need not know. */
static bool is_ini(const char *path)
{
	size_t len = strlen(path);

	return len >= 4 && strcmp(path + len - 4, ".ini") == 0;
}

bool roots_is_own(const struct access *a, const char *real)
{
	if (is_ini(real))
		return true;
	for (unsigned int i = 0; i < a->num_own; i++)
		if (strcmp(a->own[i], real) == 0 || part_below(real, a->own[i]))
			return true;
	return false;
}

const char *root_weakness(const char *root)
{
	CLEANUP_CLOSE int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? NULL : strerror(errno);
	return others_may_change(fd, false) ? "other users may change it" : NULL;
}
