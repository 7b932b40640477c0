// SPDX-License-Identifier: BSD-2-Clause
/*
 * object.c - objects: their hash, their contents, and one-sided reads.
 *
 * A reader sees bytes that may be changing. It takes a value for whole if the hash in the header matches what it
 * read. The hash also covers the object's address, generation and version, so that neither a mix of two versions
 * nor a copy of an object elsewhere passes. As long as an object exists, its generation stays in its place.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

uint64_t pool_object_hash(const struct pool_object *o, uint64_t address, uint64_t stored)
{
	uint64_t all[] = {address, o->generation, o->version, (uint64_t)o->flags << 32 | o->length,
			  stored};

	return pool_hash(all, sizeof(all));
}

uint32_t pool_prefix_write(uint8_t to[POOL_PREFIX_MAX], const char *name, uint16_t length)
{
	uint32_t prefix = pool_prefix_length(length);

	memset(to, 0, prefix);
	memcpy(to, &length, sizeof(length));
	memcpy(to + sizeof(length), name, length);
	return prefix;
}

static bool read_name(const struct pool_object *object, const uint8_t *bytes,
		      struct pool_stored *stored)
{
	if (object->length < sizeof(stored->name_length))
		return false;
	memcpy(&stored->name_length, bytes, sizeof(stored->name_length));
	if (stored->name_length > POOL_MAX_NAME)
		return false;
	stored->prefix = pool_prefix_length(stored->name_length);
	stored->name = (const char *)bytes + sizeof(stored->name_length);
	return stored->prefix <= object->length;
}

bool pool_stored_read(const struct pool_object *object, const void *bytes,
		      struct pool_stored *stored)
{
	*stored = (struct pool_stored){.indirect = object->flags & POOL_INDIRECT};
	if ((object->flags & POOL_NAMED) && !read_name(object, bytes, stored))
		return false;
	if (!stored->indirect)
		return true;
	if (object->length - stored->prefix != sizeof(stored->stub))
		return false;
	memcpy(&stored->stub, (const uint8_t *)bytes + stored->prefix, sizeof(stored->stub));
	return stored->stub.length > POOL_DIRECT_MAX && stored->stub.length <= POOL_MAX_VALUE;
}

/* ---- one-sided ------------------------------------------------------------------- */

static bool is_in(const struct pool_read *read, uint64_t address, uint64_t length)
{
	return address >= read->base && address - read->base <= read->size &&
	       length <= read->size - (address - read->base);
}

/* Requests the header and `stored` bytes behind it, clamped to the region. */
static void want_object(struct pool_read *read, uint64_t stored)
{
	uint64_t left = read->size - (read->ptr.address - read->base);

	read->body = false;
	read->address = read->ptr.address;
	read->length = sizeof(struct pool_object) + stored;
	if (read->length > left)
		read->length = left;
}

static uint64_t probably_stored(const struct pool_read *read)
{
	uint64_t prefix = read->name ? pool_prefix_length(read->name_length) : 0;

	return prefix +
	       (read->ptr.length > POOL_DIRECT_MAX ? sizeof(struct pool_stub) : read->ptr.length);
}

void pool_read_start(struct pool_read *read, uint64_t base, uint64_t size,
		     const struct stag_pool_ptr *ptr, const char *name, uint16_t name_length)
{
	*read = (struct pool_read){
		.base = base,
		.size = size,
		.ptr = *ptr,
		.name = name,
		.name_length = name_length,
	};
	if (is_in(read, ptr->address, sizeof(struct pool_object)))
		want_object(read, probably_stored(read));
}

static enum pool_step read_again(struct pool_read *read, uint64_t stored)
{
	if (++read->tries >= POOL_READ_TRIES)
		return POOL_ASK;
	want_object(read, stored);
	return POOL_MORE;
}

static enum pool_step feed_body(struct pool_read *read, const void *bytes)
{
	uint64_t hash = bytes ? pool_hash(bytes, read->length) : read->hash;

	if (hash != read->stub.hash)
		return read_again(read, probably_stored(read));
	read->at = 0;
	return POOL_DONE;
}

/* Finishes with the value of an intact object of the wanted generation, or continues with its body. */
static enum pool_step feed_value(struct pool_read *read, const struct pool_object *object,
				 const struct pool_stored *stored)
{
	read->version = object->version;
	read->ptr.generation = object->generation;
	if (!stored->indirect) {
		read->at = stored->prefix;
		read->value_length = read->ptr.length = object->length - stored->prefix;
		return POOL_DONE;
	}
	if (!is_in(read, stored->stub.address, stored->stub.length))
		return POOL_ASK;
	read->stub = stored->stub;
	read->value_length = read->ptr.length = (uint32_t)stored->stub.length;
	read->address = stored->stub.address;
	read->length = stored->stub.length;
	read->body = true;
	return POOL_MORE;
}

static bool is_named(const struct pool_read *read, const struct pool_stored *stored)
{
	return stored->name && stored->name_length == read->name_length &&
	       memcmp(stored->name, read->name, read->name_length) == 0;
}

static bool has_generation(const struct pool_read *read, const struct pool_object *object)
{
	return read->ptr.generation == 0 || read->ptr.generation == object->generation;
}

/* Returns whether the header's length, which is more than was read, is plausible, and not from a torn header. */
static bool may_be_longer(const struct pool_read *read, const struct pool_object *object)
{
	return has_generation(read, object) &&
	       object->length <= POOL_DIRECT_MAX + POOL_PREFIX_MAX &&
	       is_in(read, read->ptr.address, sizeof(*object) + object->length);
}

static bool is_whole(const struct pool_read *read, const struct pool_object *object,
		     const void *bytes)
{
	uint64_t stored = pool_hash(bytes, object->length);

	return object->hash == pool_object_hash(object, read->ptr.address, stored);
}

static bool is_zero(const struct pool_object *object)
{
	static const struct pool_object none;

	return memcmp(object, &none, sizeof(none)) == 0;
}

enum pool_step pool_read_feed(struct pool_read *read, const void *header, const void *bytes)
{
	struct pool_object object;
	struct pool_stored stored;

	if (read->length == 0 && !read->body) /* the pointer is not into the region */
		return POOL_GONE;
	if (read->body)
		return feed_body(read, bytes);
	memcpy(&object, header, sizeof(object));
	if (is_zero(&object))
		return POOL_GONE;
	if (object.length > read->length - sizeof(object))
		return read_again(
			read, may_be_longer(read, &object) ? object.length : probably_stored(read));
	if (!is_whole(read, &object, bytes))
		return read_again(read, read->length - sizeof(object));
	read->other = !has_generation(read, &object);
	if (read->other)
		return POOL_GONE;
	if (!pool_stored_read(&object, bytes, &stored))
		return POOL_ASK;
	read->other = read->name && !is_named(read, &stored);
	if (read->other)
		return POOL_GONE;
	return feed_value(read, &object, &stored);
}

/* ---- on the node ----------------------------------------------------------------- */

int pool_object_find(const struct pool_region *r, const struct stag_pool_ptr *ptr,
		     struct pool_object *object, uint64_t *offset)
{
	uint64_t at = pool_offset(r, ptr->address);
	uint64_t block = at == POOL_NOWHERE ? 0 : pool_region_block_size(r, at);

	if (block < sizeof(*object) || ptr->generation == 0)
		return -ENOENT;
	memcpy(object, r->at + at, sizeof(*object));
	if (object->generation != ptr->generation || object->length > block - sizeof(*object))
		return -ENOENT;
	*offset = at;
	return 0;
}
