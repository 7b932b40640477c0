// SPDX-License-Identifier: BSD-2-Clause
/*
 * complain.c - reports errors (complain.h).
 */
#include "complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_MAX 1024

void (*complain_to)(const char *text);

static _Thread_local struct {
	char *why;
	size_t size;
} catcher;

void complain_catch(char *why, size_t size)
{
	catcher.why = why;
	catcher.size = size;
	if (why && size)
		*why = '\0';
}

void complain(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (catcher.why)
		snprintf(catcher.why, catcher.size, "%s", text);
	else if (complain_to)
		complain_to(text);
	else
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
}
