// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - what went wrong, in words.
 */
#include "store.h"

#include <stdarg.h>

#include "base/export.h"

static __thread char complaint[512];

int store_fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(complaint, sizeof(complaint), fmt, args);
	va_end(args);
	/* Labels come from disks: none of them shall command a terminal. */
	for (char *p = complaint; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return -error;
}

STAG_EXPORT const char *stag_store_error(void)
{
	return complaint;
}
