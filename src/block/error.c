// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - the text of the last error of a thread.
 */
#include "block/block.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/export.h"
#include "base/printable.h"

static __thread char complaint[512];

int block_fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(complaint, sizeof(complaint), fmt, args);
	va_end(args);
	make_printable(complaint); /* names come from peers */
	return -error;
}

STAG_EXPORT const char *stag_block_error(void)
{
	return complaint;
}
