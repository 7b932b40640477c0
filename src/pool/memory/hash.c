// SPDX-License-Identifier: BSD-2-Clause
/*
 * hash.c - the pool's hash, XXH3: of bytes, of pieces, and incremental. Long inputs use the widest instructions
 * that this processor has (hash_wide.c).
 */
#include "pool/memory/memory.h"
#include "pool/memory/hash.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define LONG 2048u /* bytes from which on choosing a variant costs nothing in comparison */

struct pool_hashing {
	XXH3_state_t state; /* the same for all widths */
};

#ifdef POOL_HASH_X86
static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}
#endif

uint64_t pool_hash(const void *bytes, size_t length)
{
#ifdef POOL_HASH_X86
	if (length >= LONG && has_avx512())
		return pool_hash_avx512f(bytes, length);
	if (length >= LONG && has_avx2())
		return pool_hash_avx2(bytes, length);
#endif
	return XXH3_64bits(bytes, length);
}

uint64_t pool_hash_pieces(const struct pool_piece *pieces, int n)
{
	struct pool_hashing all;

	if (n == 1)
		return pool_hash(pieces[0].bytes, pieces[0].length);
	pool_hashing_start(&all);
	for (int i = 0; i < n; i++)
		pool_hashing_add(&all, pieces[i].bytes, pieces[i].length);
	return pool_hashing_end(&all);
}

/* ---- incremental ------------------------------------------------------------------- */

struct pool_hashing *pool_hashing_new(void)
{
	return aligned_alloc(_Alignof(struct pool_hashing), sizeof(struct pool_hashing));
}

void pool_hashing_free(struct pool_hashing *h)
{
	free(h);
}

void pool_hashing_start(struct pool_hashing *h)
{
	XXH3_64bits_reset(&h->state);
}

void pool_hashing_add(struct pool_hashing *h, const void *bytes, size_t length)
{
#ifdef POOL_HASH_X86
	if (length >= LONG && has_avx512()) {
		pool_hash_add_avx512f(&h->state, bytes, length);
		return;
	}
	if (length >= LONG && has_avx2()) {
		pool_hash_add_avx2(&h->state, bytes, length);
		return;
	}
#endif
	XXH3_64bits_update(&h->state, bytes, length);
}

uint64_t pool_hashing_end(const struct pool_hashing *h)
{
	return XXH3_64bits_digest(&h->state);
}
