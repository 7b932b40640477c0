// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - what went wrong, in words.
 */
#include "heap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/export.h"

static __thread char complaint[256];

int heap_fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(complaint, sizeof(complaint), fmt, args);
	va_end(args);
	return error;
}

int heap_check_attached(const struct stag_heap *heap)
{
	if (likely(heap->serial != 0))
		return 0;
	errno = EINVAL;
	return heap_fail(EINVAL,
			 heap->looking ? "heap %s: only looked at"
				       : "heap %s: inherited over a fork: attach it again",
			 heap->name);
}

void heap_abort(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	flockfile(stderr);
	fputs("stag heap: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	funlockfile(stderr);
	va_end(args);
	abort();
}

STAG_EXPORT const char *stag_heap_error(void)
{
	return complaint;
}
