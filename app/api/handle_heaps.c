// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_heaps.c - registered heaps of this user; for root, of all users.
 */
#include "handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "heap_view.h"

/* A heap has the same address in every process, so only one request at a time can map one. */
static struct lock view_lock = LOCK_INITIALIZER;

void handle_heaps(struct request *r)
{
	HOLD_FOR_SCOPE(&view_lock);
	json_t *list = json_array();
	size_t n, hidden;
	struct heap_view *views = heap_view_all(&n, &hidden);

	for (size_t i = 0; views && i < n; i++) {
		json_array_append_new(list, heap_json(&views[i]));
		heap_view_clear(&views[i]);
	}
	free(views);
	answer_json(r, 200, json_pack("{s:o s:I}", "heaps", list, "hidden", (json_int_t)hidden));
}

/* Allocates a view, which is too large for the stack. Returns NULL after answering. */
static struct heap_view *open_heap_view(struct request *r, unsigned int flags)
{
	struct heap_view *view = malloc(sizeof(*view));
	int rc;

	if (!view) {
		answer_error(r, ENOMEM, NULL, NULL);
		return NULL;
	}
	rc = heap_view_take(view, param(r, 0), flags);
	if (rc == 0)
		return view;
	if (rc == -ENOENT)
		answer_none(r, "heap", param(r, 0));
	else
		answer_error(r, rc, NULL, view->error);
	heap_view_clear(view);
	free(view);
	return NULL;
}

static void close_heap_view(struct heap_view *view)
{
	heap_view_clear(view);
	free(view);
}

void handle_heap(struct request *r)
{
	HOLD_FOR_SCOPE(&view_lock);
	struct heap_view *view =
		open_heap_view(r, (query_flag(r, "blocks") ? VIEW_BLOCKS : 0) |
					  (query_flag(r, "check") ? VIEW_CHECK : 0));

	if (!view)
		return;
	answer_json(r, 200, heap_json(view));
	close_heap_view(view);
}

/* ---- changes --------------------------------------------------------------- */

static bool memory_of(struct request *r, uint64_t *bytes)
{
	struct heap_view *view = open_heap_view(r, 0);

	if (!view)
		return false;
	*bytes = view->stats.block_bytes;
	close_heap_view(view);
	return true;
}

/*
 * A user who may write a heap can truncate it, which ends the processes that have mapped it. A command that ends is no loss, but this
 * daemon serves others: it attaches only heaps that nobody but its own user may write.
 */
static struct stag_heap *attach_own(struct request *r)
{
	const char *slash = strchr(param(r, 0), '/');
	struct stag_heap *heap;

	if (slash && strtoul(param(r, 0), NULL, 10) != geteuid()) {
		answer_fault(r, 403, "not_own", "use 'stag heap', as its owner or as root",
			     "heap %s belongs to another user", param(r, 0));
		return NULL;
	}
	heap = stag_heap_attach(param(r, 0), NULL);
	if (!heap && errno == EACCES)
		answer_fault(r, 403, "not_own", "use 'stag heap', as a user of that heap", "%s",
			     stag_heap_error());
	else if (!heap)
		answer_error(r, errno, NULL, stag_heap_error());
	return heap;
}

/* Attaching already reaps, so the call's own count is not all: the counters before and after are compared. */
static void change_heap(struct request *r, uint64_t (*what)(struct stag_heap *, unsigned int),
			unsigned int flags)
{
	HOLD_FOR_SCOPE(&view_lock);
	uint64_t before, after;
	struct stag_heap *heap;

	if (!memory_of(r, &before))
		return;
	heap = attach_own(r);
	if (!heap)
		return;
	what(heap, flags);
	stag_heap_detach(heap, true);
	if (memory_of(r, &after))
		answer_json(r, 200,
			    json_pack("{s:I}", "bytes",
				      (json_int_t)(before > after ? before - after : 0)));
}

static uint64_t trim_heap(struct stag_heap *heap, unsigned int flags)
{
	return stag_heap_trim(heap);
}

void handle_heap_reap(struct request *r)
{
	change_heap(r, stag_heap_reap, body_flag(r, "shared") ? STAG_HEAP_REAP_SHARED : 0);
}

void handle_heap_trim(struct request *r)
{
	change_heap(r, trim_heap, 0);
}

void handle_heap_delete(struct request *r)
{
	HOLD_FOR_SCOPE(&view_lock);
	struct heap_view *view = open_heap_view(r, 0);
	uint64_t living;

	if (!view)
		return;
	living = view->stats.processes - view->stats.dead_processes;
	close_heap_view(view);
	if (living && !query_flag(r, "force"))
		answer_fault(r, 409, "busy",
			     "?force=true removes its name only; attached processes keep it",
			     "heap %s: %llu process%s it attached", param(r, 0),
			     (unsigned long long)living, living == 1 ? " has" : "es have");
	else if (stag_heap_unlink(param(r, 0)) != 0)
		answer_error(r, errno, NULL, stag_heap_error());
	else
		answer_nothing(r);
}
