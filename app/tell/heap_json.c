// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_json.c - a view of a heap as JSON (heap_view.h).
 */
#include "heap_view.h"

#include <string.h>

static json_t *sums_json(const struct heap_user *user)
{
	return json_pack("{s:I s:I s:I s:I s:I}", "blocks", (json_int_t)user->blocks, "block_bytes",
			 (json_int_t)user->block_bytes, "allocations",
			 (json_int_t)user->allocations, "allocated_bytes",
			 (json_int_t)user->allocated_bytes, "shared", (json_int_t)user->shared);
}

static json_t *user_json(const struct heap_user *user)
{
	const struct stag_heap_process *p = &user->process;
	json_t *o = json_pack(
		"{s:i s:s s:b s:I s:I s:I s:I s:I s:I}", "pid", p->pid, "program", user->program,
		"dead", p->dead, "blocks_taken", (json_int_t)p->blocks_taken, "blocks_released",
		(json_int_t)p->blocks_released, "registrations", (json_int_t)p->registrations,
		"registrations_made", (json_int_t)p->registrations_made, "registrations_saved",
		(json_int_t)p->registrations_saved, "stale_found", (json_int_t)p->stale_found);

	json_object_update_new(o, sums_json(user));
	json_object_update_new(o, json_pack("{s:f s:f s:f}", "blocks_taken_rate", user->taken_rate,
					    "blocks_released_rate", user->released_rate,
					    "registrations_made_rate", user->made_rate));
	return o;
}

static json_t *address_json(uint64_t address)
{
	return json_sprintf("%#llx", (unsigned long long)address);
}

static json_t *block_json(const struct stag_heap_block *b)
{
	return json_pack("{s:i s:I s:o s:I s:i s:I s:I s:I}", "index", (int)b->index, "block_id",
			 (json_int_t)b->block_id, "address", address_json(b->address), "size",
			 (json_int_t)b->size, "owner_pid", b->owner_pid, "allocations",
			 (json_int_t)b->allocations, "allocated_bytes",
			 (json_int_t)b->allocated_bytes, "shared", (json_int_t)b->shared);
}

static json_t *lines_json(const char *text)
{
	json_t *lines = json_array();

	for (size_t n; text && *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		json_array_append_new(lines, json_stringn(text, n));
	}
	return lines;
}

static void add_parts(json_t *o, const struct heap_view *view)
{
	json_t *users = json_array(), *blocks = json_array();

	for (unsigned int i = 0; i < view->num_users; i++)
		json_array_append_new(users, user_json(&view->users[i]));
	for (size_t i = 0; i < view->num_blocks; i++)
		json_array_append_new(blocks, block_json(&view->blocks[i]));
	json_object_set_new(o, "processes", users);
	json_object_set_new(o, "nobody", sums_json(&view->nobody));
	if (view->blocks)
		json_object_set_new(o, "table", blocks);
	else
		json_decref(blocks);
	if (view->faults >= 0)
		json_object_set_new(o, "faults", lines_json(view->fault_text));
}

json_t *heap_json(const struct heap_view *view)
{
	const struct stag_heap_stats *s = &view->stats;
	json_t *o;

	if (view->error)
		return json_pack("{s:s s:s}", "name", view->name, "error", view->error);
	o = json_pack("{s:s s:o s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "name", view->name,
		      "address", address_json(s->address), "size", (json_int_t)s->size,
		      "block_size", (json_int_t)s->block_size, "max_blocks",
		      (json_int_t)s->max_blocks, "blocks", (json_int_t)s->blocks, "block_bytes",
		      (json_int_t)s->block_bytes, "allocations", (json_int_t)s->allocations,
		      "allocated_bytes", (json_int_t)s->allocated_bytes, "shared",
		      (json_int_t)s->shared, "dead_processes", (json_int_t)s->dead_processes,
		      "reaped", (json_int_t)s->reaped);
	add_parts(o, view);
	return o;
}
