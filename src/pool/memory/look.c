// SPDX-License-Identifier: BSD-2-Clause
/* look.c - reads that a node serves, from the region as it is, without the changes in flight. */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

#define LIST_STEPS                                                                                 \
	(1u << 14) /* entries examined for one request, so that others are served meanwhile */

static int find_object(const struct pool_region *r, const struct pool_request *request,
		       struct pool_object *object, uint64_t *offset)
{
	struct stag_pool_ptr ptr;

	if (pool_op_takes(request->op, POOL_TAKES_PTR))
		return request->ptr.key == r->key && !pool_scope_hides(r, request)
			       ? pool_object_find(r, &request->ptr, object, offset)
			       : -ENOENT;
	*offset = pool_index_look(r, request->name, request->name_length);
	if (*offset == POOL_NOWHERE)
		return -ENOENT;
	memcpy(&ptr.generation, r->at + *offset, sizeof(ptr.generation));
	ptr.address = r->address + *offset;
	return pool_object_find(r, &ptr, object, offset);
}

/* Sets the answer's bytes. Returns -EIO if the object's hash is wrong or its body is missing. */
static int value_of(const struct pool_region *r, const struct pool_object *object, uint64_t offset,
		    struct pool_answer *answer)
{
	const uint8_t *bytes = r->at + offset + sizeof(*object);
	struct pool_stored stored;
	uint64_t body;

	if (pool_object_hash(object, r->address + offset, pool_hash(bytes, object->length)) !=
		    object->hash ||
	    !pool_stored_read(object, bytes, &stored))
		return -EIO;
	answer->bytes = bytes + stored.prefix;
	answer->length = object->length - stored.prefix;
	if (!stored.indirect)
		return 0;
	body = pool_offset(r, stored.stub.address);
	if (body == POOL_NOWHERE || pool_region_run_size(r, body) < stored.stub.length)
		return -EIO;
	answer->bytes = r->at + body;
	answer->length = (uint32_t)stored.stub.length;
	return 0;
}

void pool_look(const struct pool_region *r, const struct pool_request *request,
	       struct pool_answer *answer)
{
	struct pool_object object;
	uint64_t offset;
	int rc = find_object(r, request, &object, &offset);

	*answer = (struct pool_answer){.sequence = request->sequence, .op = request->op};
	if (rc == 0)
		rc = value_of(r, &object, offset, answer);
	if (rc != 0) {
		*answer = (struct pool_answer){
			.sequence = request->sequence, .op = request->op, .status = (uint32_t)-rc};
		return;
	}
	answer->version = object.version;
	answer->ptr = (struct stag_pool_ptr){r->address + offset, r->key, answer->length,
					     object.generation};
}

/* ---- names ----------------------------------------------------------------------- */

static bool is_listed(const struct pool_region *r, const struct pool_request *request,
		      uint64_t offset)
{
	struct pool_object object;
	struct pool_stored stored;

	if (offset == POOL_NOWHERE)
		return false;
	memcpy(&object, r->at + offset, sizeof(object));
	return pool_stored_read(&object, r->at + offset + sizeof(object), &stored) &&
	       pool_scope_has_stored(request->scope, &stored);
}

/* Writes an entry to `to`. Returns its length, or 0 if there is no room. */
static size_t list_one(const struct pool_region *r, uint64_t offset, uint64_t cursor, uint8_t *to,
		       size_t room)
{
	const uint8_t *bytes = r->at + offset + sizeof(struct pool_object);
	struct pool_listed listed = {
		.ptr = {.address = r->address + offset, .key = r->key},
		.cursor = cursor,
	};
	struct pool_object object;
	struct pool_stored stored;
	size_t size;

	memcpy(&object, r->at + offset, sizeof(object));
	if (!pool_stored_read(&object, bytes, &stored))
		return 0;
	size = sizeof(listed) + ((stored.name_length + 7u) & ~7u);
	if (size > room)
		return 0;
	listed.ptr.generation = object.generation;
	listed.ptr.length =
		stored.indirect ? (uint32_t)stored.stub.length : object.length - stored.prefix;
	listed.version = object.version;
	listed.name_length = stored.name_length;
	memset(to, 0, size);
	memcpy(to, &listed, sizeof(listed));
	memcpy(to + sizeof(listed), stored.name, stored.name_length);
	return size;
}

uint32_t pool_list(const struct pool_region *r, const struct pool_request *request, void *to,
		   size_t room, struct pool_answer *answer)
{
	uint64_t before = request->version, offset;
	struct pool_index_walk walk;
	size_t used = 0, n;
	bool full = false;
	uint32_t steps;

	*answer = (struct pool_answer){.sequence = request->sequence, .op = request->op};
	pool_index_walk(&walk, r, request->version);
	for (steps = 0; walk.bucket != POOL_NOWHERE && steps < LIST_STEPS; steps++) {
		offset = pool_index_step(&walk);
		if (is_listed(r, request, offset)) {
			n = list_one(r, offset, walk.cursor, (uint8_t *)to + used, room - used);
			full = n == 0;
			if (full)
				break;
			used += n;
		}
		before = walk.cursor;
	}
	answer->bytes = to;
	answer->length = (uint32_t)used;
	answer->version = walk.bucket == POOL_NOWHERE && !full ? 0 : before;
	return steps;
}
