// SPDX-License-Identifier: BSD-2-Clause
/*
 * random.c - see random.h.
 *
 * Each thread has a buffer, refilled from the kernel. A forked child discards it, so that parent
 * and child never return the same numbers.
 */
#include "base/random.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static __thread struct {
	uint32_t word[64];
	unsigned left;
	pid_t pid;
} pool;

uint32_t random_u32(void)
{
	if (pool.left == 0 || pool.pid != getpid()) {
		if (getrandom(pool.word, sizeof(pool.word), 0) != (ssize_t)sizeof(pool.word))
			abort(); /* getrandom() of up to 256 bytes is never short once the pool is seeded */
		pool.left = sizeof(pool.word) / sizeof(*pool.word);
		pool.pid = getpid();
	}
	return pool.word[--pool.left];
}
