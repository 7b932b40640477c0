// SPDX-License-Identifier: BSD-2-Clause
/*
 * helper_main.c - main() of a program in libexec; see helper.h.
 */
#include "helper.h"

#include <string.h>

#include "stag.h"

int helper_main(const struct command *self, int argc, char **argv)
{
	if (argc >= 2 && strcmp(argv[1], self->name) == 0)
		return self->run(self, argc - 1, argv + 1);
	fprintf(stderr, "stag-%s is a part of stag: run 'stag %s'\n", self->name, self->name);
	return EXIT_USAGE;
}
