// SPDX-License-Identifier: BSD-2-Clause
/*
 * usage.c - the last line after wrong usage: where to read more.
 */
#include "stag.h"

static const char *current_verb; /* the verb that usage_error() names, or NULL */

void usage_verb(const char *name)
{
	current_verb = name;
}

int usage_error(const struct command *c)
{
	if (c && current_verb)
		fprintf(stderr, "Try 'stag help %s %s'.\n", c->name, current_verb);
	else if (c)
		fprintf(stderr, "Try 'stag help %s'.\n", c->name);
	else
		fprintf(stderr, "Try 'stag --help'.\n");
	return EXIT_USAGE;
}
