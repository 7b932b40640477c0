// SPDX-License-Identifier: BSD-2-Clause
/*
 * error_text.c - a library's last error of the calling thread, in words.
 */
#include "base/error_text.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"

int error_text_set(char *text, size_t size, int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, size, fmt, args);
	va_end(args);
	make_printable(text);
	return error;
}
