// SPDX-License-Identifier: BSD-2-Clause
/*
 * list.c - directories that are read by readdir(): ours, and real ones in which ours are merged.
 *
 * The program holds a DIR of ours where it expects one of the C library's. Ours are the elements of an array, so that the two
 * are told apart by their address.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "found/found.h"
#include "found/next.h"
#include "found/text.h"

enum { MAX_LISTS = 64 }; /* open at a time in a process */

static struct list {
	atomic_bool used;
	int fd;
	char path[FOUND_PATH];
	struct dirent *entries;
	unsigned num, room;
	unsigned next;
	bool failed; /* out of memory */
} lists[MAX_LISTS];

bool list_is_ours(const DIR *dir)
{
	uintptr_t at = (uintptr_t)dir, first = (uintptr_t)lists;

	return at >= first && at < first + sizeof(lists);
}

static struct list *to_list(const DIR *dir)
{
	return (struct list *)(uintptr_t)dir;
}

/* ---- filling ---- */

static bool has_entry(const struct list *l, const char *name)
{
	for (unsigned i = 0; i < l->num; i++)
		if (strcmp(l->entries[i].d_name, name) == 0)
			return true;
	return false;
}

/* Makes room for one more entry; NULL without memory. */
static struct dirent *new_entry(struct list *l)
{
	if (l->num == l->room) {
		unsigned room = l->room ? 2 * l->room : 16;
		struct dirent *more = reallocarray(l->entries, room, sizeof(*more));

		if (!more) {
			l->failed = true;
			return NULL;
		}
		l->entries = more;
		l->room = room;
	}
	return &l->entries[l->num];
}

static void take_real(struct list *l, const struct dirent *from)
{
	struct dirent *e = new_entry(l);

	if (!e)
		return;
	memcpy(e, from, from->d_reclen < sizeof(*e) ? from->d_reclen : sizeof(*e));
	e->d_reclen = sizeof(*e);
	e->d_off = ++l->num;
}

static unsigned char type_of(enum node_kind kind)
{
	switch (kind) {
	case NODE_LINK:
		return DT_LNK;
	case NODE_FILE:
		return DT_REG;
	case NODE_ELSEWHERE:
		return DT_UNKNOWN;
	default:
		return DT_DIR;
	}
}

static bool take_ours(void *arg, const char *name, enum node_kind kind)
{
	char path[FOUND_PATH + NAME_MAX + 2];
	struct list *l = arg;
	struct dirent *e;

	if (has_entry(l, name))
		return true;
	e = new_entry(l);
	if (!e)
		return false;
	snprintf(path, sizeof(path), strcmp(name, ".") == 0 ? "%s" : "%s/%s", l->path, name);
	*e = (struct dirent){.d_ino = serve_ino(path),
			     .d_off = ++l->num,
			     .d_reclen = sizeof(*e),
			     .d_type = type_of(kind)};
	snprintf(e->d_name, sizeof(e->d_name), "%s", name);
	return true;
}

static void take_all_real(struct list *l)
{
	DIR *real = NEXT(opendir)(l->path);

	for (struct dirent *e; real && (e = NEXT(readdir)(real));)
		take_real(l, e);
	if (real)
		NEXT(closedir)(real);
}

static void fill(struct list *l, const struct shown *s, enum node_kind kind)
{
	l->num = 0;
	if (kind == NODE_SHARED)
		take_all_real(l);
	else {
		take_ours(l, ".", NODE_DIRECTORY);
		take_ours(l, "..", NODE_DIRECTORY);
	}
	tree_each(s, l->path, take_ours, l);
}

/* ---- the calls ---- */

static struct list *take_list(void)
{
	for (unsigned i = 0; i < MAX_LISTS; i++)
		if (!atomic_exchange(&lists[i].used, true))
			return &lists[i];
	return NULL;
}

static void drop_list(struct list *l)
{
	free(l->entries);
	l->entries = NULL;
	l->num = l->room = l->next = 0;
	l->failed = false;
	atomic_store(&l->used, false);
}

DIR *list_open(const struct shown *s, const struct spot *at, int fd)
{
	struct list *l = take_list();
	struct text path;

	if (!l) {
		errno = EMFILE;
		return NULL;
	}
	text_begin(&path, l->path,
		   sizeof(l->path)); /* a directory's path is never longer: see tree.c */
	text_add(&path, at->path);
	l->fd = fd;
	fill(l, s, at->node.kind);
	if (l->failed) {
		drop_list(l);
		errno = ENOMEM;
		return NULL;
	}
	return (DIR *)l;
}

struct dirent *list_next(DIR *dir)
{
	struct list *l = to_list(dir);

	return l->next < l->num ? &l->entries[l->next++] : NULL;
}

int list_close(DIR *dir)
{
	struct list *l = to_list(dir);
	int fd = l->fd;

	drop_list(l);
	return close(fd);
}

int list_fd(const DIR *dir)
{
	return to_list(dir)->fd;
}

void list_seek(DIR *dir, long where)
{
	struct list *l = to_list(dir);

	l->next = where >= 0 && where <= (long)l->num ? (unsigned)where : l->num;
}

long list_tell(const DIR *dir)
{
	return to_list(dir)->next;
}
