// SPDX-License-Identifier: BSD-2-Clause
/*
 * scope.c - users that may use some names only: those with certain prefixes.
 *
 * What an operation reaches is in the table of operations. A value without a name has no prefix, so it is outside of every
 * scope. A name outside is refused, whether it exists or not. A pointer can be guessed; one to a value outside leads to
 * nothing, as one to a deleted value does.
 */
#include "pool/memory/memory.h"

#include <string.h>

bool pool_scope_has(const struct pool_scope *scope, const char *name, size_t length)
{
	if (!scope)
		return true;
	for (unsigned int i = 0; i < scope->count; i++) {
		size_t prefix = strlen(scope->prefixes[i]);

		if (prefix <= length && memcmp(scope->prefixes[i], name, prefix) == 0)
			return true;
	}
	return false;
}

bool pool_scope_allows(const struct pool_request *request)
{
	switch ((enum pool_reach)pool_operations[request->op].reach) {
	case POOL_REACH_NAME:
		return pool_scope_has(request->scope, request->name, request->name_length);
	case POOL_REACH_NEW:
		return !request->scope;
	case POOL_REACH_PTR:
	case POOL_REACH_NAMES:
	case POOL_REACH_NOTHING:
		break;
	}
	return true;
}

bool pool_scope_has_stored(const struct pool_scope *scope, const struct pool_stored *stored)
{
	return !scope || (stored->name && pool_scope_has(scope, stored->name, stored->name_length));
}

bool pool_scope_hides(const struct pool_region *r, const struct pool_request *request)
{
	struct pool_object object;
	struct pool_stored stored;
	uint64_t offset;

	return request->scope && pool_operations[request->op].reach == POOL_REACH_PTR &&
	       pool_object_find(r, &request->ptr, &object, &offset) == 0 &&
	       (!pool_stored_read(&object, r->at + offset + sizeof(object), &stored) ||
		!pool_scope_has_stored(request->scope, &stored));
}
