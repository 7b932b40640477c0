// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_options.c - what the command lines of all benchmarks have in common.
 *
 * stag0 comes from a library that is preloaded; for that a benchmark executes itself anew, as
 * `stag info` does.
 */
#include "part.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stag.h"

#define AGAIN "STAG_BENCH_PRELOADED" /* set in the second life, so that there is no third */

/* "64", "64K", "1G"; 0: that is no number. */
static uint64_t number(const char *text)
{
	static const char suffixes[] = "KMGT";
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	const char *suffix = *end ? strchr(suffixes, *end) : NULL;
	int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;

	if (text[0] == '-' || end == text || (*end && (!suffix || end[1])) ||
	    n > UINT64_MAX >> shift)
		return 0;
	return n << shift;
}

bool bench_set_number(const char *option, uint64_t *to, const char *text, uint64_t most)
{
	*to = number(text);
	if (*to && *to <= most)
		return true;
	complain("--%s wants a number from 1 to %llu, not '%s'", option, (unsigned long long)most,
		 text);
	return false;
}

static bool set_secs(struct bench_options *o, const char *text)
{
	char *end;

	o->secs = strtod(text, &end);
	if (*end == '\0' && end != text && o->secs >= 0 && o->secs <= 3600)
		return true;
	complain("--secs wants seconds, not '%s'", text);
	return false;
}

static bool add_case(struct bench_options *o, const char *name)
{
	if (o->num_cases == sizeof(o->cases) / sizeof(*o->cases)) {
		complain("too many --case");
		return false;
	}
	o->cases[o->num_cases++] = name;
	return true;
}

bool bench_wants(const struct bench_options *o, const char *name)
{
	for (unsigned int i = 0; i < o->num_cases; i++)
		if (!fnmatch(o->cases[i], name, 0))
			return true;
	return o->num_cases == 0;
}

/* stag0 comes from a library that has to be there from the start. */
static int start_again(const struct bench_options *o, char **argv)
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
	complain("cannot start again: %s", strerror(errno));
	return EXIT_FAILED;
}

int bench_preload(const struct bench_options *o, char **argv)
{
	if (strcmp(o->device, "stag0") || bench_preloaded())
		return EXIT_OK;
	if (!getenv(AGAIN))
		return start_again(o, argv);
	complain("%s was not loaded, or is no libstag-verbs", getenv(AGAIN));
	return EXIT_FAILED;
}

bool bench_take_option(struct bench_options *o, int c, char *arg)
{
	switch (c) {
	case 'c':
		return add_case(o, arg);
	case 't':
		return set_secs(o, arg);
	case 'D':
		o->device = arg;
		return true;
	case 'L':
		o->library = arg;
		return true;
	case 'j':
		o->format = FORMAT_JSON;
		return true;
	case 'T':
		o->format = FORMAT_TSV;
		return true;
	default:
		return false;
	}
}
