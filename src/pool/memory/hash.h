/* SPDX-License-Identifier: BSD-2-Clause */
/* hash.h - the variants of hash_wide.c, compiled for different processors. */
#ifndef POOL_HASH_H
#define POOL_HASH_H

#include <stddef.h>
#include <stdint.h>

/* state is an XXH3_state_t. */
uint64_t pool_hash_avx2(const void *bytes, size_t length);
void pool_hash_add_avx2(void *state, const void *bytes, size_t length);
uint64_t pool_hash_avx512f(const void *bytes, size_t length);
void pool_hash_add_avx512f(void *state, const void *bytes, size_t length);

#endif
