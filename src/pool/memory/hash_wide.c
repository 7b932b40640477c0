// SPDX-License-Identifier: BSD-2-Clause
/* hash_wide.c - XXH3 with the instruction set that this file is compiled for, named POOL_HASH_WIDE: once for each. */
#include "pool/memory/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define JOIN(a, b)   a##b
#define NAME(a, b)   JOIN(a, b)
#define WIDE(prefix) NAME(prefix, POOL_HASH_WIDE)

uint64_t WIDE(pool_hash_)(const void *bytes, size_t length)
{
	return XXH3_64bits(bytes, length);
}

void WIDE(pool_hash_add_)(void *state, const void *bytes, size_t length)
{
	XXH3_64bits_update(state, bytes, length);
}
