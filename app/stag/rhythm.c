// SPDX-License-Identifier: BSD-2-Clause
/*
 * rhythm.c - --interval and --count of the commands that look again and again.
 */
#include "rhythm.h"

#include <stdlib.h>

#include "complain.h"

bool rhythm_interval(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	if (end != text && !*end && *seconds >= 0.01 && *seconds <= 86400)
		return true;
	complain("--interval wants seconds, 0.01 to 86400, not '%s'", text);
	return false;
}

bool rhythm_count(const char *text, uint64_t *count)
{
	char *end;

	*count = strtoull(text, &end, 10);
	if (end != text && !*end && *text != '-' && *count)
		return true;
	complain("--count wants a number from 1 on, not '%s'", text);
	return false;
}
