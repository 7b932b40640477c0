// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_options.c - the command lines of the parts xfer and heap, as far as they are the same.
 *
 * stag0 comes from a library that is preloaded; to load it, a part executes itself again, as `stag
 * info` does.
 */
#include "part.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stag.h"

#define AGAIN "STAG_BENCH_PRELOADED" /* set in the second run, so that there is no third */

bool bench_parse_case(void *to, const struct cli_option *option, char *text)
{
	struct bench_options *o = to;

	if (o->num_cases == sizeof(o->cases) / sizeof(*o->cases)) {
		complain("too many --case; a pattern such as 'churn_*' names several cases");
		return false;
	}
	o->cases[o->num_cases++] = text;
	return true;
}

bool bench_wants(const struct bench_options *o, const char *name)
{
	for (unsigned int i = 0; i < o->num_cases; i++)
		if (!fnmatch(o->cases[i], name, 0))
			return true;
	return o->num_cases == 0;
}

bool bench_parse(const struct cli_noun *n, int argc, char **argv, struct bench_options *o, int *rc)
{
	struct cli_call call;

	if (!cli_parse(n, argc, argv, o, &call, rc))
		return false;
	o->format = o->json ? FORMAT_JSON : o->tsv ? FORMAT_TSV : FORMAT_TABLE;
	*rc = bench_preload(o, argv);
	return *rc == EXIT_OK;
}

/* Executes the part again with the library preloaded. */
static int execute_preloaded(const struct bench_options *o, char **argv)
{
	char library[PATH_MAX];
	char **args;
	size_t n = 0;

	while (argv[n])
		n++;
	args = calloc(n + 4, sizeof(*args));
	if (!args || preload_find(o->library, library, sizeof(library)) || preload_set(library))
		return EXIT_FAILED;
	args[0] = "stag";
	args[1] = "bench";
	args[2] = "part";
	args[3] = (char *)o->benchmark;
	memcpy(args + 4, argv + 1, (n - 1) * sizeof(*args));
	setenv(AGAIN, library, 1);
	execv("/proc/self/exe", args);
	complain("cannot execute this program again with %s: %s", library, strerror(errno));
	return EXIT_FAILED;
}

int bench_preload(const struct bench_options *o, char **argv)
{
	if (strcmp(o->device, "stag0") || bench_preloaded())
		return EXIT_OK;
	if (!getenv(AGAIN))
		return execute_preloaded(o, argv);
	complain("%s was not loaded, or is not libstag-verbs", getenv(AGAIN));
	return EXIT_FAILED;
}
