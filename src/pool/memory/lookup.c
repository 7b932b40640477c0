// SPDX-License-Identifier: BSD-2-Clause
/*
 * lookup.c - one-sided lookup of a name: buckets are read, then the object that an entry leads to.
 *
 * Meanwhile an entry may change to another object, and the object that it led to may be gone, or replaced. A
 * name is absent only if a whole chain was read in which no entry has its tag. If an entry has the tag, but no
 * object of the name was read there, the lookup starts again; after TRIES of them the node has to be asked. So it
 * does about a long chain, of which each bucket costs a round trip.
 */
#include "pool/memory/memory.h"

#include <string.h>

#define TRIES 8u
#define HOPS  32u

static void want_bucket(struct pool_lookup *l, uint64_t offset)
{
	l->reading = false;
	l->address = l->place.base + offset;
	l->length = sizeof(struct pool_bucket);
}

static void want_first(struct pool_lookup *l)
{
	l->hops = 0;
	l->doubt = false;
	want_bucket(l, pool_name_bucket(l->hash, l->place.index_at, l->place.num_buckets));
}

void pool_lookup_start(struct pool_lookup *l, const struct pool_place *place, const char *name,
		       uint16_t name_length, uint32_t hint)
{
	*l = (struct pool_lookup){
		.place = *place,
		.name = name,
		.name_length = name_length,
		.hint = hint,
		.hash = pool_name_hash(place->name_key, name, name_length),
	};
	want_first(l);
}

static enum pool_step lookup_again(struct pool_lookup *l)
{
	if (++l->tries >= TRIES)
		return POOL_ASK;
	want_first(l);
	return POOL_MORE;
}

static bool is_candidate(const struct pool_lookup *l, uint64_t entry)
{
	return entry != 0 && pool_name_entry(l->hash, pool_entry_offset(entry)) == entry;
}

static enum pool_step want_object(struct pool_lookup *l, uint64_t entry)
{
	struct stag_pool_ptr ptr = {
		.address = l->place.base + pool_entry_offset(entry),
		.key = l->place.key,
		.length = l->hint,
	};

	pool_read_start(&l->read, l->place.base, l->place.size, &ptr, l->name, l->name_length);
	/* Fewer tries: if the object has moved, starting again from the bucket finds it sooner. */
	l->read.tries = POOL_READ_TRIES / 2;
	l->reading = true;
	l->address = l->read.address;
	l->length = l->read.length;
	return POOL_MORE;
}

/* Continues with the entries from l->next on, then the bucket behind. */
static enum pool_step lookup_next(struct pool_lookup *l)
{
	uint64_t offset;

	while (l->next < POOL_BUCKET_ENTRIES) {
		uint64_t entry = l->bucket.entries[l->next++];

		if (!is_candidate(l, entry))
			continue;
		if (pool_entry_offset(entry) > l->place.size - sizeof(struct pool_object))
			return lookup_again(l);
		return want_object(l, entry);
	}
	if (l->bucket.next == 0)
		return l->doubt ? lookup_again(l) : POOL_GONE;
	offset = pool_entry_offset(l->bucket.next);
	if (offset > l->place.size - sizeof(struct pool_bucket))
		return lookup_again(l);
	if (++l->hops >= HOPS)
		return POOL_ASK;
	want_bucket(l, offset);
	return POOL_MORE;
}

static enum pool_step feed_object(struct pool_lookup *l, const void *header, const void *stored)
{
	enum pool_step step = pool_read_feed(&l->read, header, stored);

	switch (step) {
	case POOL_MORE:
		l->address = l->read.address;
		l->length = l->read.length;
		return POOL_MORE;
	case POOL_DONE:
		return POOL_DONE;
	case POOL_GONE:
	case POOL_ASK:
		break;
	}
	l->doubt = true;
	return lookup_next(l);
}

enum pool_step pool_lookup_feed(struct pool_lookup *l, const void *head, const void *stored)
{
	if (l->reading)
		return feed_object(l, head, stored);
	memcpy(&l->bucket, head, sizeof(l->bucket));
	l->next = 0;
	return lookup_next(l);
}
