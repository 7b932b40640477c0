// SPDX-License-Identifier: BSD-2-Clause
/*
 * malloc_count.c - a preloaded library that counts the allocations of a process.
 *
 * `stag bench` looks for bench_malloc_calls(), and if it exists reports the number of allocations,
 * by any thread, while the transfer manager was at work.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* The functions of the C library, under the names that it reserves for wrappers. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

EXPORT uint64_t bench_malloc_calls(void);
EXPORT void *malloc(size_t size);
EXPORT void *calloc(size_t n, size_t size);
EXPORT void *realloc(void *p, size_t size);
EXPORT void *memalign(size_t alignment, size_t size);
EXPORT void *aligned_alloc(size_t alignment, size_t size);
EXPORT int posix_memalign(void **out, size_t alignment, size_t size);

static atomic_uint_fast64_t calls;

static void count(void)
{
	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
}

uint64_t bench_malloc_calls(void)
{
	return atomic_load_explicit(&calls, memory_order_relaxed);
}

void *malloc(size_t size)
{
	count();
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	count();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	count();
	return __libc_realloc(p, size);
}

void *memalign(size_t alignment, size_t size)
{
	count();
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count();
	return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	void *p;

	count();
	p = __libc_memalign(alignment, size);
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
