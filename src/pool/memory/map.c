// SPDX-License-Identifier: BSD-2-Clause
/* map.c - the program's map of pointers by keys of its own (figure 3, 310 and 312). */
#include "pool/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"

#define FIRST_BITS 6

struct entry {
	struct entry *next;
	uint64_t hash;
	struct stag_pool_ptr ptr;
	size_t length;
	uint8_t key[];
};

struct stag_pool_map {
	struct entry **heads;
	size_t mask, count;
};

STAG_EXPORT struct stag_pool_map *stag_pool_map_create(void)
{
	struct stag_pool_map *map = calloc(1, sizeof(*map));

	if (!map)
		return NULL;
	map->mask = (1u << FIRST_BITS) - 1;
	map->heads = calloc(map->mask + 1, sizeof(*map->heads));
	if (map->heads)
		return map;
	free(map);
	return NULL;
}

STAG_EXPORT void stag_pool_map_destroy(struct stag_pool_map *map)
{
	struct entry *next;

	if (!map)
		return;
	for (size_t i = 0; i <= map->mask; i++)
		for (struct entry *e = map->heads[i]; e; e = next) {
			next = e->next;
			free(e);
		}
	free(map->heads);
	free(map);
}

/* Returns the link to the entry, or to where it would be. */
static struct entry **place_of(const struct stag_pool_map *map, uint64_t hash, const void *key,
			       size_t length)
{
	struct entry **at = &map->heads[hash & map->mask];

	while (*at && ((*at)->hash != hash || (*at)->length != length ||
		       memcmp((*at)->key, key, length) != 0))
		at = &(*at)->next;
	return at;
}

/* Doubles the number of chains. If memory runs out, the chains get longer instead. */
static void grow_table(struct stag_pool_map *map)
{
	size_t mask = map->mask * 2 + 1;
	struct entry **heads = calloc(mask + 1, sizeof(*heads));
	struct entry *next;

	if (!heads)
		return;
	for (size_t i = 0; i <= map->mask; i++)
		for (struct entry *e = map->heads[i]; e; e = next) {
			next = e->next;
			e->next = heads[e->hash & mask];
			heads[e->hash & mask] = e;
		}
	free(map->heads);
	map->heads = heads;
	map->mask = mask;
}

static struct entry *add_entry(struct stag_pool_map *map, uint64_t hash, const void *key,
			       size_t length)
{
	struct entry *e = length > SIZE_MAX / 2 ? NULL : malloc(sizeof(*e) + length);

	if (!e)
		return NULL;
	if (map->count > map->mask)
		grow_table(map);
	e->hash = hash;
	e->length = length;
	memcpy(e->key, key, length);
	e->next = map->heads[hash & map->mask];
	map->heads[hash & map->mask] = e;
	map->count++;
	return e;
}

STAG_EXPORT int stag_pool_map_set(struct stag_pool_map *map, const void *key, size_t length,
				  const struct stag_pool_ptr *ptr)
{
	uint64_t hash = pool_hash(key, length);
	struct entry *e = *place_of(map, hash, key, length);

	if (!e)
		e = add_entry(map, hash, key, length);
	if (!e)
		return ENOMEM;
	e->ptr = *ptr;
	return 0;
}

STAG_EXPORT bool stag_pool_map_get(const struct stag_pool_map *map, const void *key, size_t length,
				   struct stag_pool_ptr *ptr)
{
	const struct entry *e = *place_of(map, pool_hash(key, length), key, length);

	if (e)
		*ptr = e->ptr;
	return e != NULL;
}

STAG_EXPORT bool stag_pool_map_remove(struct stag_pool_map *map, const void *key, size_t length)
{
	struct entry **at = place_of(map, pool_hash(key, length), key, length);
	struct entry *e = *at;

	if (!e)
		return false;
	*at = e->next;
	free(e);
	map->count--;
	return true;
}

STAG_EXPORT size_t stag_pool_map_count(const struct stag_pool_map *map)
{
	return map->count;
}
