// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - what went wrong, in words.
 */
#include "pool/admit/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/export.h"
#include "base/printable.h"
#include "stag/pool.h"

static __thread char complaint[512];

int pool_fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(complaint, sizeof(complaint), fmt, args);
	va_end(args);
	make_printable(complaint);
	return -error;
}

STAG_EXPORT const char *stag_pool_error(void)
{
	return complaint;
}
