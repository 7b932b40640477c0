// SPDX-License-Identifier: BSD-2-Clause
/*
 * helper_main.c - main() of a program in libexec; see helper.h.
 */
#include "helper.h"

#include <string.h>

#include "stag.h"

/* argv[0] is the command's name. */
static int run_helper(const struct command *self, int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--complete") == 0) {
		cli_complete(self->noun, argc - 2, argv + 2, 2);
		return EXIT_OK;
	}
	return cli_end(self->run(self, argc, argv));
}

int helper_main(const struct command *self, int argc, char **argv)
{
	const char *name = self->noun->name;

	if (argc >= 2 && strcmp(argv[1], name) == 0)
		return run_helper(self, argc - 1, argv + 1);
	fprintf(stderr, "stag-%s is a part of stag: run 'stag %s'\n", name, name);
	return EXIT_USAGE;
}
