// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_heaps.c - registered heaps of this machine, that this user may look at.
 */
#include "handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "heap_view.h"

/* A heap has one address in every process: while one request looks at it, another cannot map it. */
static struct lock looking = LOCK_INITIALIZER;

void handle_heaps(struct request *r)
{
	HOLD_FOR_SCOPE(&looking);
	json_t *list = json_array();
	size_t n;
	struct heap_view *views = heap_view_all(&n);

	for (size_t i = 0; views && i < n; i++) {
		json_array_append_new(list, heap_json(&views[i]));
		heap_view_clear(&views[i]);
	}
	free(views);
	answer_json(r, 200, json_pack("{s:o}", "heaps", list));
}

/* A view is large. NULL: it was answered. */
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

static void look_away(struct heap_view *view)
{
	heap_view_clear(view);
	free(view);
}

void handle_heap(struct request *r)
{
	HOLD_FOR_SCOPE(&looking);
	struct heap_view *view =
		open_heap_view(r, (query_flag(r, "blocks") ? VIEW_BLOCKS : 0) |
					  (query_flag(r, "check") ? VIEW_CHECK : 0));

	if (!view)
		return;
	answer_json(r, 200, heap_json(view));
	look_away(view);
}

/* ---- what changes a heap --------------------------------------------------------------- */

static bool memory_of(struct request *r, uint64_t *bytes)
{
	struct heap_view *view = open_heap_view(r, 0);

	if (!view)
		return false;
	*bytes = view->stats.block_bytes;
	look_away(view);
	return true;
}

/* Attaching reaps already, so that what it says itself is not all. */
static void change_heap(struct request *r, uint64_t (*what)(struct stag_heap *, unsigned int),
			unsigned int flags)
{
	HOLD_FOR_SCOPE(&looking);
	uint64_t before, after;
	struct stag_heap *heap;

	if (!memory_of(r, &before))
		return;
	heap = stag_heap_attach(param(r, 0), NULL);
	if (!heap) {
		answer_error(r, errno, NULL, stag_heap_error());
		return;
	}
	what(heap, flags);
	stag_heap_detach(heap, true);
	if (memory_of(r, &after))
		answer_json(r, 200,
			    json_pack("{s:I}", "bytes",
				      (json_int_t)(before > after ? before - after : 0)));
}

static uint64_t trim(struct stag_heap *heap, unsigned int flags)
{
	return stag_heap_trim(heap);
}

void handle_heap_reap(struct request *r)
{
	change_heap(r, stag_heap_reap, body_flag(r, "shared") ? STAG_HEAP_REAP_SHARED : 0);
}

void handle_heap_trim(struct request *r)
{
	change_heap(r, trim, 0);
}

void handle_heap_delete(struct request *r)
{
	HOLD_FOR_SCOPE(&looking);
	struct heap_view *view = open_heap_view(r, 0);
	uint64_t living;

	if (!view)
		return;
	living = view->stats.processes - view->stats.dead_processes;
	look_away(view);
	if (living && !query_flag(r, "force"))
		answer_fault(r, 409, "busy", "?force=true takes only its name away",
			     "heap %s: %llu process%s it attached", param(r, 0),
			     (unsigned long long)living, living == 1 ? " has" : "es have");
	else if (stag_heap_unlink(param(r, 0)) != 0)
		answer_error(r, errno, NULL, stag_heap_error());
	else
		answer_nothing(r);
}
