// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_view.c - sums up the memory of a heap by process. Changes nothing.
 */
#include "heap_view.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static void find_program(int pid, char *text, size_t size)
{
	char path[64];
	ssize_t n = -1;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, text, size - 1);
	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	for (char *p = text; *p; p++)
		if (!isgraph((unsigned char)*p))
			*p = '_'; /* one word, also for awk */
}

static void find_users(struct heap_view *view, struct stag_heap *heap)
{
	uint32_t number = 0;

	while (view->num_users < STAG_HEAP_MAX_PROCS) {
		struct heap_user *user = &view->users[view->num_users];

		if (!stag_heap_next_process(heap, &number, &user->process))
			break;
		if (!user->process.dead)
			find_program(user->process.pid, user->program, sizeof(user->program));
		view->num_users++;
	}
}

static struct heap_user *owner_of(struct heap_view *view, const struct stag_heap_block *block)
{
	for (unsigned int i = 0; i < view->num_users; i++)
		if ((int)view->users[i].process.number == block->owner)
			return &view->users[i];
	return &view->nobody;
}

static int keep_block(struct heap_view *view, const struct stag_heap_block *block)
{
	if ((view->num_blocks & (view->num_blocks - 1)) ==
	    0) { /* the array is full at 0 and at each power of 2 */
		size_t room = view->num_blocks ? view->num_blocks * 2 : 1;
		void *more = reallocarray(view->blocks, room, sizeof(*block));

		if (!more)
			return -ENOMEM;
		view->blocks = more;
	}
	view->blocks[view->num_blocks++] = *block;
	return 0;
}

static int add_blocks(struct heap_view *view, struct stag_heap *heap, bool keep)
{
	struct stag_heap_block block;
	uint32_t index = 0;

	while (stag_heap_next_block(heap, &index, &block)) {
		struct heap_user *owner = owner_of(view, &block);

		owner->blocks++;
		owner->block_bytes += block.size;
		owner->allocations += block.allocations;
		owner->allocated_bytes += block.allocated_bytes;
		owner->shared += block.shared;
		if (keep && keep_block(view, &block))
			return -ENOMEM;
	}
	return 0;
}

static int check_heap(struct heap_view *view, struct stag_heap *heap)
{
	size_t size;
	FILE *out = open_memstream(&view->fault_text, &size);

	if (!out)
		return -errno;
	view->faults = stag_heap_check(heap, out);
	return fclose(out) == 0 ? 0 : -errno;
}

static int set_error(struct heap_view *view, int error, const char *why)
{
	const char *next = "";

	if (error == -ENOENT)
		next = "; 'stag heap show' lists the heaps";
	else if (error == -EACCES)
		next = "; it belongs to another user";
	else if (error == -EADDRINUSE)
		next = "; try again";
	if (asprintf(&view->error, "%s%s", why, next) < 0)
		view->error = NULL;
	return error;
}

int heap_view_take(struct heap_view *view, const char *name, unsigned int flags)
{
	struct stag_heap *heap;
	int rc;

	*view = (struct heap_view){.faults = -1};
	snprintf(view->name, sizeof(view->name), "%s", name);
	heap = stag_heap_look(name);
	if (!heap)
		return set_error(view, -errno, stag_heap_error());
	stag_heap_query(heap, &view->stats, sizeof(view->stats));
	find_users(view, heap);
	rc = add_blocks(view, heap, flags & VIEW_BLOCKS);
	if (rc == 0 && (flags & VIEW_CHECK))
		rc = check_heap(view, heap);
	stag_heap_detach(heap, true);
	return rc == 0 ? 0 : set_error(view, rc, strerror(-rc));
}

void heap_view_clear(struct heap_view *view)
{
	free(view->error);
	free(view->blocks);
	free(view->fault_text);
}

/* ---- all heaps ------------------------------------------------------------ */

#define MOST_OF_ANOTHER 64u /* heaps of another user that are inspected */

struct names {
	char (*name)[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX];
	size_t n, hidden;
	char owner[STAG_HEAP_OWNER_MAX]; /* of the last name */
	unsigned int of_owner;		 /* names that were listed for him */
};

/* Returns whether the name is one of too many of another user's. The heaps of a user are listed in a row. */
static bool is_too_many(struct names *names, const char *name)
{
	size_t len = strcspn(name, "/");

	if (!name[len])
		return false;
	if (strncmp(names->owner, name, len) != 0 || names->owner[len]) {
		snprintf(names->owner, sizeof(names->owner), "%.*s", (int)len, name);
		names->of_owner = 0;
	}
	return ++names->of_owner > MOST_OF_ANOTHER;
}

static int add_name(const char *name, void *arg)
{
	struct names *names = arg;
	void *more;

	if (is_too_many(names, name)) {
		names->hidden++;
		return 0;
	}
	more = reallocarray(names->name, names->n + 1, sizeof(*names->name));
	if (!more)
		return -ENOMEM;
	names->name = more;
	snprintf(names->name[names->n++], sizeof(*names->name), "%s", name);
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

struct heap_view *heap_view_all(size_t *n, size_t *hidden)
{
	struct names names = {0};
	struct heap_view *views;

	*n = 0;
	stag_heap_list(add_name, &names);
	*hidden = names.hidden;
	if (names.n)
		qsort(names.name, names.n, sizeof(*names.name), compare);
	views = calloc(names.n + 1, sizeof(*views));
	for (size_t i = 0; views && i < names.n; i++) {
		if (heap_view_take(&views[*n], names.name[i], 0) == -ENOENT)
			heap_view_clear(&views[*n]); /* removed meanwhile */
		else
			++*n;
	}
	free(names.name);
	return views;
}

struct stag_heap *heap_view_attach(const char *name)
{
	struct stag_heap_attr attr = {.mode = 0666};

	return stag_heap_attach(name, &attr);
}
