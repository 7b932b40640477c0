// SPDX-License-Identifier: BSD-2-Clause
/*
 * check.c - checks whether a region contradicts itself.
 *
 * Every block in use is examined: what it is, and what refers to it. Each block in use is an object, an overflow
 * bucket of the index, or a client; each run is a body, or belongs to an upload. The number of blocks in use
 * equals the number referred to, and all that are referred to are in use.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct count {
	const struct pool_region *r;
	char *why;
	size_t room;
	uint64_t blocks, runs;			/* in use */
	uint64_t objects, bytes, names, bodies; /* in the objects found */
	uint64_t entries, buckets;		/* of the index */
	uint64_t clients, uploads;
};

static int __attribute__((format(printf, 2, 3))) set_fault(struct count *c, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (c->why)
		vsnprintf(c->why, c->room, fmt, args);
	va_end(args);
	return -EBADMSG;
}

/* ---- blocks ---------------------------------------------------------------------- */

static int check_object(struct count *c, uint64_t offset, const struct pool_object *object,
			uint64_t block)
{
	const uint8_t *bytes = c->r->at + offset + sizeof(*object);
	struct pool_stored stored;
	uint64_t body;

	if (object->length > block - sizeof(*object) || !pool_stored_read(object, bytes, &stored))
		return set_fault(c, "object %#" PRIx64 ": invalid header or contents", offset);
	if (pool_object_hash(object, c->r->address + offset, pool_hash(bytes, object->length)) !=
	    object->hash)
		return set_fault(c, "object %#" PRIx64 ": wrong hash", offset);
	if (stored.name && pool_index_look(c->r, stored.name, stored.name_length) != offset)
		return set_fault(c,
				 "object %#" PRIx64 ": the index does not lead to it by its name",
				 offset);
	c->objects++;
	c->names += stored.name != NULL;
	if (!stored.indirect) {
		c->bytes += object->length - stored.prefix;
		return 0;
	}
	c->bodies++;
	c->bytes += stored.stub.length;
	body = pool_offset(c->r, stored.stub.address);
	if (body == POOL_NOWHERE || pool_region_run_size(c->r, body) < stored.stub.length)
		return set_fault(c, "object %#" PRIx64 ": its body is not in an allocated run",
				 offset);
	if (pool_hash(c->r->at + body, stored.stub.length) != stored.stub.hash)
		return set_fault(c, "object %#" PRIx64 ": wrong hash of its body", offset);
	return 0;
}

static int check_block(struct count *c, uint64_t offset, uint64_t block)
{
	struct pool_object object;

	c->blocks++;
	memcpy(&object, c->r->at + offset, sizeof(object));
	return object.generation == 0 ? 0 : check_object(c, offset, &object, block);
}

/* Returns whether the span of an offset is free, so that no block begins in the rest of it. */
static bool is_free_span(const struct pool_region *r, uint64_t offset)
{
	uint64_t span = (offset - r->memory_at) >> POOL_SPAN_SHIFT;
	uint64_t entry = pool_word(r, r->spans_at + span * sizeof(struct pool_span));

	return (entry & UINT16_MAX) == POOL_SPAN_FREE;
}

static int check_blocks(struct count *c)
{
	uint64_t offset = c->r->memory_at, end = offset + c->r->num_spans * POOL_SPAN, size;
	int rc;

	while (offset < end) {
		if (is_free_span(c->r, offset)) {
			offset = (offset | (POOL_SPAN - 1)) + 1;
			continue;
		}
		size = pool_region_run_size(c->r, offset);
		if (size != 0) {
			c->runs += !pool_region_is_scrub(c->r, offset);
			offset += size;
			continue;
		}
		size = pool_region_block_size(c->r, offset);
		rc = size != 0 ? check_block(c, offset, size) : 0;
		if (rc != 0)
			return rc;
		offset += size != 0 ? size : POOL_ALIGN;
	}
	return 0;
}

/* ---- references ------------------------------------------------------------------ */

static void check_index(struct count *c)
{
	struct pool_index_walk walk;

	pool_index_walk(&walk, c->r, 0);
	while (pool_index_next(&walk) != POOL_NOWHERE)
		c->entries++;
	c->buckets = pool_index_buckets(c->r);
}

static int check_client(struct count *c, uint32_t slot, uint64_t at)
{
	struct pool_client client;
	uint64_t run;

	if (pool_region_block_size(c->r, at) < sizeof(client))
		return set_fault(c, "client %u: its block is not allocated", slot);
	memcpy(&client, c->r->at + at, sizeof(client));
	if (client.zero != 0)
		return set_fault(c, "client %u: its first word is not zero", slot);
	c->clients++;
	for (unsigned int i = 0; i < POOL_WINDOW; i++) {
		if (client.results[i].sequence == 0 || client.results[i].status != EINPROGRESS)
			continue;
		run = pool_offset(c->r, client.results[i].address);
		if (run == POOL_NOWHERE ||
		    pool_region_run_size(c->r, run) < client.results[i].length)
			return set_fault(c, "client %u: its upload is not in an allocated run",
					 slot);
		c->uploads++;
	}
	return 0;
}

static int check_clients(struct count *c)
{
	int rc = 0;

	for (uint32_t slot = 0; rc == 0 && slot < c->r->max_clients; slot++) {
		uint64_t at = pool_word(c->r, c->r->clients_at + slot * sizeof(uint64_t));

		if (at != 0)
			rc = check_client(c, slot, at);
	}
	return rc;
}

static int compare_count(struct count *c)
{
	const struct pool_superblock *sb = pool_superblock(c->r);

	if (c->objects != sb->objects || c->bytes != sb->bytes || c->names != sb->names ||
	    c->clients != sb->clients)
		return set_fault(c,
				 "%" PRIu64 " objects, %" PRIu64 " bytes, %" PRIu64
				 " names, %" PRIu64 " clients; the superblock has %" PRIu64
				 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
				 c->objects, c->bytes, c->names, c->clients, sb->objects, sb->bytes,
				 sb->names, sb->clients);
	if (c->entries != c->names)
		return set_fault(c, "%" PRIu64 " index entries for %" PRIu64 " names", c->entries,
				 c->names);
	if (c->blocks != c->objects + c->buckets + c->clients || c->runs != c->bodies + c->uploads)
		return set_fault(c,
				 "%" PRIu64 " blocks and %" PRIu64 " runs that nothing refers to",
				 c->blocks - c->objects - c->buckets - c->clients,
				 c->runs - c->bodies - c->uploads);
	return 0;
}

int pool_region_check(const struct pool_region *r, char *why, size_t room)
{
	struct count c = {.r = r, .why = why, .room = room};
	struct pool_core core = {.region = *r};
	int rc = pool_room_create(&core); /* checks the span table */

	if (rc == -EBADMSG)
		return set_fault(&c, "invalid span table");
	if (rc != 0)
		return rc;
	pool_room_destroy(&core);
	rc = check_blocks(&c);
	if (rc == 0)
		rc = check_clients(&c);
	if (rc != 0)
		return rc;
	check_index(&c);
	return compare_count(&c);
}
