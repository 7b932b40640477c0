// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - what went wrong, in words.
 */
#include "store.h"

#include <stdarg.h>

#include "base/export.h"
#include "base/printable.h"

static __thread char complaint[512];

int store_fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(complaint, sizeof(complaint), fmt, args);
	va_end(args);
	make_printable(complaint); /* labels come from disks */
	return -error;
}

STAG_EXPORT const char *stag_store_error(void)
{
	return complaint;
}
