// SPDX-License-Identifier: BSD-2-Clause
/*
 * program.c - main() of a program that has one noun.
 */
#include <string.h>

#include "cli.h"

/* The program's name and, of stag's nouns, the noun are in front of what --complete gets. */
static int words_before(const struct cli_noun *n)
{
	return strchr(n->call, ' ') ? 2 : 1;
}

int cli_main(const struct cli_noun *n, int (*run)(int argc, char **argv), int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--complete") == 0) {
		cli_complete(n, argc - 2, argv + 2, words_before(n));
		return EXIT_OK;
	}
	return cli_end(run(argc, argv));
}
