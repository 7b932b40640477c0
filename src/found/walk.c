// SPDX-License-Identifier: BSD-2-Clause
/*
 * walk.c - follows a path through our files and the real ones.
 *
 * Goes from the root, one name at a time, through directories that have something of ours in them. From where a name is not
 * ours, the rest of the path is the kernel's to follow.
 */
#include <errno.h>
#include <string.h>

#include "found/found.h"
#include "found/text.h"

enum { MAX_LINKS = 8 }; /* ours do not go in circles */

struct walker {
	const struct shown *s;
	struct spot *at;
	struct text path;	   /* at->path: where we are */
	char todo[2 * FOUND_PATH]; /* what is left of the path */
	unsigned links;
};

static void cut(struct text *path, size_t len)
{
	path->len = len;
	path->to[len] = '\0';
}

static void step_up(struct text *path)
{
	const char *slash = strrchr(path->to, '/');

	if (slash)
		cut(path, (size_t)(slash - path->to));
}

/* Ends the walk at a real file: appends what is left. */
static int leave_to_kernel(struct walker *w, const char *rest)
{
	w->at->node.kind = NODE_NONE;
	text_add(&w->path, rest);
	return w->path.too_long ? -ENAMETOOLONG : 0;
}

/* Goes on at the target of the link at which the walk is. */
static int follow_link(struct walker *w, const char *rest)
{
	char next[2 * FOUND_PATH], target[FOUND_PATH];
	struct text t;

	if (++w->links > MAX_LINKS)
		return -ELOOP;
	tree_text(w->s, &w->at->node, target);
	text_begin(&t, next, sizeof(next));
	text_add(&t, target);
	text_add(&t, rest);
	if (t.too_long)
		return -ENAMETOOLONG;
	memcpy(w->todo, next, t.len + 1);
	if (target[0] == '/')
		cut(&w->path, 0);
	else
		step_up(&w->path);
	return 0;
}

/* Ends the walk at a file that stands for another one. */
static int go_elsewhere(struct walker *w, const char *rest)
{
	char real[FOUND_PATH];

	tree_text(w->s, &w->at->node, real);
	cut(&w->path, 0);
	text_add(&w->path, real);
	return leave_to_kernel(w, rest);
}

/* Takes the first name off what is left. Returns its length, 0 at the end. */
static size_t take_name(const char **rest, const char **name)
{
	size_t len;

	*name = *rest + strspn(*rest, "/");
	len = strcspn(*name, "/");
	*rest = *name + len;
	return len;
}

enum { GO_ON = 1 };

/* Goes one name further. Returns 0 if the walk has ended. */
static int step(struct walker *w, bool follow, const char *rest, const char *name, size_t len)
{
	if (len == 1 && name[0] == '.')
		return GO_ON;
	if (len == 2 && memcmp(name, "..", 2) == 0) {
		step_up(&w->path);
		return GO_ON;
	}
	text_add(&w->path, "/");
	text_add_bytes(&w->path, name, len);
	if (w->path.too_long)
		return -ENAMETOOLONG;
	tree_find(w->s, w->path.to, &w->at->node);
	switch (w->at->node.kind) {
	case NODE_DIRECTORY:
	case NODE_SHARED:
		return GO_ON;
	case NODE_LINK:
		return *rest || follow ? follow_link(w, rest) ?: GO_ON : 0;
	case NODE_ELSEWHERE:
		return go_elsewhere(w, rest);
	case NODE_FILE:
		return *rest ? -ENOTDIR : 0;
	case NODE_NONE:
		break;
	}
	return leave_to_kernel(w, rest);
}

int walk(const struct shown *s, const char *path, bool follow, struct spot *at)
{
	struct walker w = {.s = s, .at = at};
	struct text todo;
	int rc = GO_ON;

	text_begin(&todo, w.todo, sizeof(w.todo));
	text_add(&todo, path);
	if (todo.too_long)
		return -ENAMETOOLONG;
	text_begin(&w.path, at->path, sizeof(at->path));
	for (const char *rest = w.todo; rc == GO_ON;) {
		unsigned links = w.links;
		const char *name;
		size_t len = take_name(&rest, &name);

		if (len == 0)
			break;
		rc = step(&w, follow, rest, name, len);
		if (w.links != links)
			rest = w.todo;
	}
	if (rc != GO_ON)
		return rc;
	if (!at->path[0])
		text_add(&w.path, "/");
	tree_find(s, at->path, &at->node); /* the last step may have been one up */
	return 0;
}
