// SPDX-License-Identifier: BSD-2-Clause
/*
 * index.c - names: a hash index in the region.
 *
 * A bucket has seven entries, and perhaps an overflow bucket behind it. Clients look names up without asking the
 * node: so an entry is one word, and stays where it is as long as its name exists, whatever object it leads to. A
 * bucket is removed only if it is the last of its chain, and empty.
 *
 * The hash has a key of the pool's own. Only who knows it can choose names that collide; such names make a chain long
 * and its lookups slow, and nothing else.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

#include "base/siphash.h"

#define ENTRY_BITS 48
#define CHAIN_BITS 26  /* of a cursor: number of an entry in its chain; above: the chain */
#define BLOCK_LEAD 16u /* zeroes before an overflow bucket, in its block */

uint64_t pool_name_hash(const uint64_t key[2], const char *name, uint16_t length)
{
	return siphash(key, name, length);
}

/* Returns how many buckets a chain may have. It has fewer, unless the region is damaged, and the chain a ring. */
static uint64_t max_chain(const struct pool_region *r)
{
	uint64_t fit = r->size / sizeof(struct pool_bucket);
	uint64_t most = (1u << CHAIN_BITS) / POOL_BUCKET_ENTRIES;

	return fit < most ? fit : most;
}

uint64_t pool_name_bucket(uint64_t hash, uint64_t index_at, uint64_t num_buckets)
{
	uint64_t bucket = (uint64_t)((unsigned __int128)hash * num_buckets >> 64);

	return index_at + bucket * sizeof(struct pool_bucket);
}

/* The tag uses the low bits of the hash, because the high ones chose the bucket. */
uint64_t pool_name_entry(uint64_t hash, uint64_t offset)
{
	return hash << ENTRY_BITS | offset / POOL_ALIGN;
}

static bool has_tag(uint64_t entry, uint64_t hash)
{
	return entry != 0 && (entry ^ hash << ENTRY_BITS) >> ENTRY_BITS == 0;
}

/* ---- including what is ahead ----------------------------------------------------- */

static uint64_t next_at(uint64_t bucket)
{
	return bucket + offsetof(struct pool_bucket, next);
}

/* Returns the offset of the next bucket of the chain, or POOL_NOWHERE. */
static uint64_t next_bucket(const struct pool_core *core, uint64_t bucket)
{
	uint64_t next = pool_entry_offset(pool_see(core, next_at(bucket)));

	if (next < BLOCK_LEAD ||
	    pool_block_size(core, next - BLOCK_LEAD) < BLOCK_LEAD + sizeof(struct pool_bucket))
		return POOL_NOWHERE;
	return next;
}

static bool has_name(const struct pool_core *core, uint64_t offset, const char *name,
		     uint16_t length)
{
	uint8_t want[POOL_PREFIX_MAX], is[POOL_PREFIX_MAX];
	uint64_t block = pool_block_size(core, offset);
	uint32_t prefix = pool_prefix_write(want, name, length);
	struct pool_object object;

	if (block < sizeof(object))
		return false;
	pool_see_bytes(core, offset, &object, sizeof(object));
	if (!(object.flags & POOL_NAMED) || object.generation == 0 || object.length < prefix ||
	    object.length > block - sizeof(object))
		return false;
	pool_see_bytes(core, offset + sizeof(object), is, prefix);
	return memcmp(is, want, prefix) == 0;
}

bool pool_index_find(const struct pool_core *core, const char *name, uint16_t length,
		     uint64_t *entry, uint64_t *object)
{
	const struct pool_region *r = &core->region;
	uint64_t hash = pool_name_hash(r->name_key, name, length);
	uint64_t bucket = pool_name_bucket(hash, r->index_at, r->num_buckets);

	for (uint64_t hops = 0; bucket != POOL_NOWHERE && hops < max_chain(r); hops++) {
		for (unsigned int i = 0; i < POOL_BUCKET_ENTRIES; i++) {
			uint64_t at = bucket + i * sizeof(uint64_t);
			uint64_t word = pool_see(core, at);

			if (!has_tag(word, hash) ||
			    !has_name(core, pool_entry_offset(word), name, length))
				continue;
			*entry = at;
			*object = pool_entry_offset(word);
			return true;
		}
		bucket = next_bucket(core, bucket);
	}
	return false;
}

/* Returns an empty entry of the chain, or POOL_NOWHERE and the last bucket of the chain. */
static uint64_t empty_entry(const struct pool_core *core, uint64_t bucket, uint64_t *last,
			    uint64_t *hops)
{
	for (*hops = 0; bucket != POOL_NOWHERE && *hops < max_chain(&core->region); ++*hops) {
		for (unsigned int i = 0; i < POOL_BUCKET_ENTRIES; i++)
			if (pool_see(core, bucket + i * sizeof(uint64_t)) == 0)
				return bucket + i * sizeof(uint64_t);
		*last = bucket;
		bucket = next_bucket(core, bucket);
	}
	return POOL_NOWHERE;
}

/* Adds an overflow bucket with one entry. It is complete before the chain leads to it. */
static int add_bucket(struct pool_core *core, uint64_t last, uint64_t entry)
{
	static const uint64_t lead[BLOCK_LEAD / sizeof(uint64_t)];
	struct pool_bucket bucket = {.entries = {entry}};
	uint64_t block = pool_alloc(core, BLOCK_LEAD + sizeof(bucket));

	if (block == POOL_NOWHERE)
		return -ENOSPC;
	pool_put_bytes(core, block, lead, sizeof(lead));
	pool_put_bytes(core, block + BLOCK_LEAD, &bucket, sizeof(bucket));
	pool_put(core, next_at(last), (block + BLOCK_LEAD) / POOL_ALIGN);
	return 0;
}

int pool_index_add(struct pool_core *core, const char *name, uint16_t length, uint64_t object)
{
	const struct pool_region *r = &core->region;
	uint64_t hash = pool_name_hash(r->name_key, name, length);
	uint64_t bucket = pool_name_bucket(hash, r->index_at, r->num_buckets);
	uint64_t last = bucket, at;
	uint64_t hops;

	at = empty_entry(core, bucket, &last, &hops);
	if (at == POOL_NOWHERE && hops == max_chain(r))
		return -ENOSPC;
	if (at == POOL_NOWHERE)
		return add_bucket(core, last, pool_name_entry(hash, object));
	pool_put(core, at, pool_name_entry(hash, object));
	return 0;
}

void pool_index_move(struct pool_core *core, uint64_t entry, uint64_t object)
{
	uint64_t tag = pool_see(core, entry) >> ENTRY_BITS;

	pool_put(core, entry, pool_name_entry(tag, object));
}

static bool is_empty(const struct pool_core *core, uint64_t bucket)
{
	for (unsigned int i = 0; i < POOL_BUCKET_ENTRIES; i++)
		if (pool_see(core, bucket + i * sizeof(uint64_t)) != 0)
			return false;
	return true;
}

/* Finds the last bucket of the chain, and the one before it. Returns false if there is only one. */
static bool last_two(const struct pool_core *core, uint64_t bucket, uint64_t two[2])
{
	uint64_t next;

	two[0] = two[1] = bucket;
	for (uint64_t hops = 0; hops < max_chain(&core->region); hops++) {
		next = next_bucket(core, two[1]);
		if (next == POOL_NOWHERE)
			break;
		two[0] = two[1];
		two[1] = next;
	}
	return two[0] != two[1];
}

void pool_index_remove(struct pool_core *core, const char *name, uint16_t length, uint64_t entry)
{
	const struct pool_region *r = &core->region;
	uint64_t hash = pool_name_hash(r->name_key, name, length);
	uint64_t bucket = pool_name_bucket(hash, r->index_at, r->num_buckets);
	uint64_t two[2];

	pool_put(core, entry, 0);
	for (unsigned int n = 0; n < 4;
	     n++) { /* room in a record is bounded: later removals free the rest */
		if (!last_two(core, bucket, two) || !is_empty(core, two[1]) ||
		    pool_see(core, next_at(two[1])) != 0)
			return;
		pool_put(core, next_at(two[0]), 0);
		pool_free(core, two[1] - BLOCK_LEAD);
	}
}

/* ---- the region as it is --------------------------------------------------------- */

static uint64_t region_next_bucket(const struct pool_region *r, uint64_t bucket)
{
	uint64_t next = pool_entry_offset(pool_word(r, next_at(bucket)));

	if (next < BLOCK_LEAD ||
	    pool_region_block_size(r, next - BLOCK_LEAD) < BLOCK_LEAD + sizeof(struct pool_bucket))
		return POOL_NOWHERE;
	return next;
}

/* Returns whether a named object begins there that is complete enough to be read. */
static bool is_named_object(const struct pool_region *r, uint64_t offset,
			    struct pool_object *object, struct pool_stored *stored)
{
	uint64_t block = pool_region_block_size(r, offset);

	if (block < sizeof(*object))
		return false;
	memcpy(object, r->at + offset, sizeof(*object));
	return object->generation != 0 && (object->flags & POOL_NAMED) &&
	       object->length <= block - sizeof(*object) &&
	       pool_stored_read(object, r->at + offset + sizeof(*object), stored);
}

uint64_t pool_index_look(const struct pool_region *r, const char *name, uint16_t length)
{
	uint64_t hash = pool_name_hash(r->name_key, name, length);
	uint64_t bucket = pool_name_bucket(hash, r->index_at, r->num_buckets);
	struct pool_object object;
	struct pool_stored stored;

	for (uint64_t hops = 0; bucket != POOL_NOWHERE && hops < max_chain(r); hops++) {
		for (unsigned int i = 0; i < POOL_BUCKET_ENTRIES; i++) {
			uint64_t word = pool_word(r, bucket + i * sizeof(uint64_t));
			uint64_t offset = pool_entry_offset(word);

			if (has_tag(word, hash) && is_named_object(r, offset, &object, &stored) &&
			    stored.name_length == length && memcmp(stored.name, name, length) == 0)
				return offset;
		}
		bucket = region_next_bucket(r, bucket);
	}
	return POOL_NOWHERE;
}

static uint64_t number_in_chain(uint64_t cursor)
{
	return cursor & ((1u << CHAIN_BITS) - 1);
}

static void walk_chain(struct pool_index_walk *w, uint64_t chain)
{
	w->cursor = chain << CHAIN_BITS;
	w->bucket = chain < w->region->num_buckets
			    ? w->region->index_at + chain * sizeof(struct pool_bucket)
			    : POOL_NOWHERE;
}

void pool_index_walk(struct pool_index_walk *w, const struct pool_region *r, uint64_t cursor)
{
	uint64_t hops = number_in_chain(cursor) / POOL_BUCKET_ENTRIES;

	w->region = r;
	walk_chain(w, cursor >> CHAIN_BITS);
	while (hops-- > 0 && w->bucket != POOL_NOWHERE)
		w->bucket = region_next_bucket(r, w->bucket);
	if (w->bucket != POOL_NOWHERE)
		w->cursor = cursor;
	else /* the chain is shorter by now */
		walk_chain(w, (cursor >> CHAIN_BITS) + 1);
}

/* Goes to the entry behind: of the bucket, of the chain, or of the next chain. */
static void walk_on(struct pool_index_walk *w)
{
	uint64_t number = number_in_chain(w->cursor) + 1, chain = w->cursor >> CHAIN_BITS;

	w->cursor++;
	if (number % POOL_BUCKET_ENTRIES != 0)
		return;
	w->bucket = number / POOL_BUCKET_ENTRIES < max_chain(w->region)
			    ? region_next_bucket(w->region, w->bucket)
			    : POOL_NOWHERE;
	if (w->bucket == POOL_NOWHERE)
		walk_chain(w, chain + 1);
}

uint64_t pool_index_step(struct pool_index_walk *w)
{
	uint64_t i = number_in_chain(w->cursor) % POOL_BUCKET_ENTRIES;
	uint64_t word = pool_word(w->region, w->bucket + i * sizeof(uint64_t));
	struct pool_object object;
	struct pool_stored stored;

	walk_on(w);
	if (word != 0 && is_named_object(w->region, pool_entry_offset(word), &object, &stored))
		return pool_entry_offset(word);
	return POOL_NOWHERE;
}

uint64_t pool_index_next(struct pool_index_walk *w)
{
	uint64_t found = POOL_NOWHERE;

	while (found == POOL_NOWHERE && w->bucket != POOL_NOWHERE)
		found = pool_index_step(w);
	return found;
}

uint64_t pool_index_buckets(const struct pool_region *r)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < r->num_buckets; i++) {
		uint64_t bucket = r->index_at + i * sizeof(struct pool_bucket);

		for (uint64_t hops = 1; hops < max_chain(r); hops++) {
			bucket = region_next_bucket(r, bucket);
			if (bucket == POOL_NOWHERE)
				break;
			n++;
		}
	}
	return n;
}
