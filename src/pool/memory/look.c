// SPDX-License-Identifier: BSD-2-Clause
/* look.c - reads that a node serves, from the region as it is, without the changes in flight. */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

static int find_object(const struct pool_region *r, const struct pool_request *request,
		       struct pool_object *object, uint64_t *offset)
{
	struct stag_pool_ptr ptr;

	if (pool_op_takes(request->op, POOL_TAKES_PTR))
		return request->ptr.key == r->key
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

void pool_list(const struct pool_region *r, const struct pool_request *request, void *to,
	       size_t room, struct pool_answer *answer)
{
	uint64_t cursor = request->version, before = cursor, offset;
	size_t used = 0, n;

	*answer = (struct pool_answer){.sequence = request->sequence, .op = request->op};
	while ((offset = pool_index_next(r, &cursor)) != POOL_NOWHERE) {
		n = list_one(r, offset, cursor, (uint8_t *)to + used, room - used);
		if (n == 0)
			break;
		used += n;
		before = cursor;
	}
	answer->bytes = to;
	answer->length = (uint32_t)used;
	answer->version = offset == POOL_NOWHERE ? 0 : before;
}
