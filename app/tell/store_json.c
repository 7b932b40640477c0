// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_json.c - stores and partitions as JSON.
 */
#include "store_words.h"

#include <stdio.h>

#include "control.h"

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

json_t *store_partition_json(const struct stag_store_partition *p)
{
	json_t *rights = json_array();
	char text[128];

	for (unsigned int i = 0; i < p->num_rights; i++) {
		store_right_words(&p->rights[i], text, sizeof(text));
		json_array_append_new(rights, json_string(text));
	}
	store_order_words(p->relax, text, sizeof(text));
	return json_pack("{s:s s:o s:o s:o s:o s:s s:s s:o s:o}", "name", p->name, "id",
			 number(p->id), "offset", number(p->offset), "size", number(p->size),
			 "alignment", number(p->alignment), "order", text, "level",
			 store_level_word(p->level), "cache_ms", number(p->cache_ms), "rights",
			 rights);
}

json_t *store_counters_json(const struct stag_store_counters *c)
{
	return json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "reads",
			 (json_int_t)c->reads, "writes", (json_int_t)c->writes, "flushes",
			 (json_int_t)c->flushes, "atomics", (json_int_t)c->atomics, "read_bytes",
			 (json_int_t)c->read_bytes, "written_bytes", (json_int_t)c->written_bytes,
			 "errors", (json_int_t)c->errors, "cache_hits", (json_int_t)c->cache_hits,
			 "cache_misses", (json_int_t)c->cache_misses, "cache_bytes",
			 (json_int_t)c->cache_bytes, "connections", (json_int_t)c->connections,
			 "refused", (json_int_t)c->refused, "evicted", (json_int_t)c->evicted);
}

/* Names the store in the query: a process may serve several. */
json_t *store_ask_counters(const struct stag_store_info *info)
{
	char word[64], uuid[37];

	store_uuid_word(info->uuid, uuid);
	snprintf(word, sizeof(word), "counters %s", uuid);
	return control_query(STORE_KIND, (int)info->served_by, word);
}

static json_t *table_json(struct stag_store *store, const struct stag_store_info *info,
			  const char *path)
{
	json_t *partitions = json_array();
	struct stag_store_partition p;
	char uuid[37];

	for (uint32_t i = 0; stag_store_next(store, &i, &p);)
		json_array_append_new(partitions, store_partition_json(&p));
	store_uuid_word(info->uuid, uuid);
	return json_pack("{s:s s:s s:s s:o s:o s:o s:o s:o s:i s:i s:i s:o s:o s:o}", "path", path,
			 "label", info->label, "uuid", uuid, "size", number(info->size), "present",
			 number(info->present), "used", number(info->used), "largest_gap",
			 number(info->largest_gap), "generation", number(info->generation), "block",
			 (int)info->block, "version", (int)info->version, "copies",
			 (int)info->copies, "owner", number(info->owner), "served_by",
			 number(info->served_by), "partitions", partitions);
}

json_t *store_table_json(struct stag_store *store, const char *path)
{
	struct stag_store_info info;

	return stag_store_query(store, &info, sizeof(info)) == 0 ? table_json(store, &info, path)
								 : NULL;
}

json_t *store_json(struct stag_store *store, const char *path)
{
	struct stag_store_info info;
	json_t *o, *counters;

	if (stag_store_query(store, &info, sizeof(info)) != 0)
		return NULL;
	o = table_json(store, &info, path);
	counters = info.served_by ? store_ask_counters(&info) : NULL;
	if (counters)
		json_object_set_new(o, "counters", counters);
	return o;
}
