// SPDX-License-Identifier: BSD-2-Clause
/*
 * colour.c - decides whether output is coloured (colour.h).
 */
#include "colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stag.h"

bool colour_set(const char *when)
{
	const char *no = strcmp(when, "never") == 0 ? "1" : "",
		   *yes = strcmp(when, "always") == 0 ? "1" : "";

	if (*no || *yes || strcmp(when, "auto") == 0)
		return setenv("NO_COLOR", no, 1) == 0 && setenv("CLICOLOR_FORCE", yes, 1) == 0;
	complain("--color must be auto, always or never, not '%s'", when);
	return false;
}

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value;
}

bool colour_wanted(void)
{
	return is_set("CLICOLOR_FORCE") || (!is_set("NO_COLOR") && isatty(STDOUT_FILENO));
}

const char *colour(enum colour which)
{
	static const char *const codes[] = {"\033[0m",	"\033[31m", "\033[32m",
					    "\033[33m", "\033[36m", "\033[1m"};

	return colour_wanted() ? codes[which] : "";
}
