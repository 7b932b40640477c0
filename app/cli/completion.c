// SPDX-License-Identifier: BSD-2-Clause
/*
 * completion.c - finds the completion script of a shell.
 */
#include <string.h>

#include "cli.h"
#include "scripts.h"

const char *cli_completion_script(const char *shell)
{
	for (const struct completion_script *s = completion_scripts; s->shell; s++)
		if (strcmp(s->shell, shell) == 0)
			return s->text;
	return NULL;
}
