// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - the text of the thread's last error, and heap_abort() for misuse by the program.
 */
#include "heap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/export.h"

__thread char heap_error_text[256];

int heap_check_attached(const struct stag_heap *heap)
{
	if (likely(heap->serial != 0))
		return 0;
	errno = EINVAL;
	return heap_fail(EINVAL,
			 heap->looking ? "heap %s: a snapshot (stag_heap_look()), not attached"
				       : "heap %s: inherited by fork: attach it in this process",
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
	return heap_error_text;
}
