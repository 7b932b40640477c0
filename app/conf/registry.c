// SPDX-License-Identifier: BSD-2-Clause
/*
 * registry.c - finds and records the nodes of pools that this user has (registry.h).
 */
#include "registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "conf.h"

#define LINKS	  ".nodes" /* directory in conf_state_dir() */
#define LINKS_MAX 4096	   /* as many are read */

/* ---- nodes ---------------------------------------------------------------------------- */

static void free_node(struct registry_node *n)
{
	free(n->pool);
	free(n->node);
	free(n->ini);
	free(n->state);
	free(n->roll);
}

void registry_free(struct registry *r)
{
	for (size_t i = 0; i < r->count; i++)
		free_node(&r->list[i]);
	free(r->list);
	*r = (struct registry){0};
}

static int add_node(struct registry *r, const char *ini, const struct conf_pool *p)
{
	struct registry_node *more = realloc(r->list, (r->count + 1) * sizeof(*more));
	struct registry_node n = {.port = (uint16_t)p->port};

	if (!more)
		return -ENOMEM;
	r->list = more;
	n.pool = strdup(p->at.name);
	n.node = strdup(p->node ? p->node : "");
	n.ini = strdup(ini);
	n.state = strdup(p->state ? p->state : "");
	n.roll = strdup(p->roll ? p->roll : "");
	if (!n.pool || !n.node || !n.ini || !n.state || !n.roll) {
		free_node(&n);
		return -ENOMEM;
	}
	r->list[r->count++] = n;
	return 0;
}

static bool has_file(const struct registry *r, const char *ini)
{
	for (size_t i = 0; i < r->count; i++)
		if (strcmp(r->list[i].ini, ini) == 0)
			return true;
	return false;
}

/* Adds the pools of a file. Returns whether it may have one: a file with faults may. */
static bool add_file(struct registry *r, const char *path, int *error)
{
	CLEANUP_FREE char *ini = realpath(path, NULL);
	struct conf_pool *p = NULL;
	struct conf conf;
	size_t before = r->count;
	int rc;

	if (!ini)
		return errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
	if (has_file(r, ini))
		return true;
	rc = conf_read_as(&conf, ini, NULL, CONF_TEXT_ONLY, NULL);
	while (*error == 0 && (p = conf_next(&conf, &conf_pool_kind, p)))
		*error = add_node(r, ini, p);
	conf_free(&conf);
	return rc != 0 || r->count > before || *error != 0;
}

/* ---- reading ---------------------------------------------------------------------------- */

static int add_made_nodes(struct registry *r, const char *base)
{
	char pattern[PATH_MAX + 16];
	glob_t found;
	int error = 0;

	snprintf(pattern, sizeof(pattern), "%s/*/*/stag.ini", base);
	if (glob(pattern, 0, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc; i++)
		add_file(r, found.gl_pathv[i], &error);
	globfree(&found);
	return error;
}

/* Opens the directory of links, which is no link itself: root reads and changes the one of the user stag. Returns -1 without one. */
static int open_links(const char *base)
{
	CLEANUP_CLOSE int dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? -1 : openat(dir, LINKS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_link(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Adds the file that a link names, and removes the link if the file is gone or has no pool. */
static void add_link(struct registry *r, int dir, const char *base, const char *name, int *error)
{
	char path[PATH_MAX + 300];

	snprintf(path, sizeof(path), "%s/" LINKS "/%s", base, name);
	if (is_link(dir, name) && !add_file(r, path, error))
		unlinkat(dir, name, 0);
}

static int add_linked_nodes(struct registry *r, const char *base)
{
	int fd = open_links(base), error = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	for (int i = 0; dir && i < LINKS_MAX && (entry = readdir(dir)); i++)
		if (entry->d_name[0] != '.')
			add_link(r, fd, base, entry->d_name, &error);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return error;
}

static int compare_nodes(const void *left, const void *right)
{
	const struct registry_node *a = left, *b = right;
	int order = strcmp(a->pool, b->pool);

	if (order == 0)
		order = strcmp(a->roll, b->roll);
	return order ? order : strcmp(a->node, b->node);
}

int registry_read(struct registry *r)
{
	char base[PATH_MAX];
	int rc;

	*r = (struct registry){0};
	if (!conf_state_dir(base, sizeof(base)))
		return 0;
	rc = add_made_nodes(r, base);
	if (rc == 0)
		rc = add_linked_nodes(r, base);
	if (r->count > 1)
		qsort(r->list, r->count, sizeof(*r->list), compare_nodes);
	return rc;
}

/* ---- adding ----------------------------------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	return hash;
}

int registry_add(const char *ini)
{
	CLEANUP_FREE char *real = realpath(ini, NULL);
	char base[PATH_MAX], path[PATH_MAX + 16], name[24];
	struct registry all;
	int rc;

	if (!real)
		return -errno;
	rc = registry_read(&all); /* which removes the links that have become stale */
	if (rc == 0 && !has_file(&all, real) && conf_state_dir(base, sizeof(base))) {
		snprintf(path, sizeof(path), "%s/" LINKS, base);
		snprintf(name, sizeof(name), "%016llx", (unsigned long long)hash_of(real));
		rc = conf_make_directories(path);
		CLEANUP_CLOSE int dir = rc == 0 ? open_links(base) : -1;
		if (rc == 0 && (dir < 0 || (symlinkat(real, dir, name) != 0 && errno != EEXIST)))
			rc = -errno;
	}
	registry_free(&all);
	return rc;
}

/* ---- looking --------------------------------------------------------------------------- */

bool registry_is_same_pool(const struct registry_node *a, const struct registry_node *b)
{
	return strcmp(a->pool, b->pool) == 0 && strcmp(a->roll, b->roll) == 0;
}

const struct registry_node *registry_find(const struct registry *r, const char *pool)
{
	for (size_t i = 0; i < r->count; i++)
		if (strcmp(r->list[i].pool, pool) == 0)
			return &r->list[i];
	return NULL;
}

const struct registry_node *registry_next_pool(const struct registry *r,
					       const struct registry_node *before)
{
	const struct registry_node *n = before ? before : r->list;

	while (before && n < r->list + r->count && registry_is_same_pool(n, before))
		n++;
	return n && n < r->list + r->count ? n : NULL;
}

static void append(char *text, size_t size, const char *word)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%s", len ? ", " : "", word);
}

void registry_places(const struct registry *r, const char *pool, char *text, size_t size)
{
	*text = '\0';
	for (size_t i = 0; i < r->count; i++) {
		CLEANUP_FREE char *ini = strdup(r->list[i].ini);
		bool usual = ini && strcmp(basename(ini), "stag.ini") == 0;

		if (strcmp(r->list[i].pool, pool) == 0)
			append(text, size, usual ? dirname(ini) : r->list[i].ini);
	}
}

void registry_names(const struct registry *r, char *text, size_t size)
{
	const struct registry_node *n = NULL, *last = NULL;

	*text = '\0';
	while ((n = registry_next_pool(r, n))) {
		if (!last || strcmp(last->pool, n->pool) != 0)
			append(text, size, n->pool);
		last = n;
	}
}
