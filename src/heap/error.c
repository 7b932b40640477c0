// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - what went wrong, in words.
 */
#include "heap.h"

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
