// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - the command `stag`: finds the subcommand, and helps those who don't know it.
 */
#include "stag.h"

#include <stdarg.h>
#include <string.h>

static const struct command *const commands[] = {&run_command,	   &info_command,  &heap_command,
						 &store_command,   &block_command, &pool_command,
						 &torture_command, &bench_command};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

void complain(const char *fmt, ...)
{
	va_list ap;

	fputs("stag: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int usage_error(const struct command *c)
{
	if (c)
		fprintf(stderr, "Try 'stag help %s'.\n", c->name);
	else
		fprintf(stderr, "Try 'stag --help'.\n");
	return EXIT_USAGE;
}

static void print_help(FILE *out)
{
	fputs("usage: stag COMMAND [OPTION]... [ARGUMENT]...\n\n"
	      "RDMA for every machine: a software adapter for programs that use verbs.\n\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-7s %s\n", commands[i]->name, commands[i]->summary);
	fputs("  help    explain a command\n\n"
	      "  --help, --version\n\n"
	      "Exit codes: 0 done, 1 failed, 2 wrong usage. 'stag run' ends as its program does;\n"
	      "126 says that the program cannot be executed, 127 that there is none.\n"
	      "More in stag(1), and in libstag-verbs(7) on the environment.\n",
	      out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* How many letters to change, add or take away to make b of a (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
	size_t row[32], n = strlen(b);

	if (n >= sizeof(row) / sizeof(*row))
		return n;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[n];
}

static const char *nearest_command(const char *name)
{
	const char *best = NULL;
	size_t best_distance = 3; /* farther is no typing error */

	for (size_t i = 0; i < N_COMMANDS; i++) {
		size_t d = distance(name, commands[i]->name);

		if (d < best_distance && d < strlen(commands[i]->name)) {
			best = commands[i]->name;
			best_distance = d;
		}
	}
	return best;
}

static int unknown_command(const char *name)
{
	const char *near = nearest_command(name);

	if (near)
		complain("no command '%s'; did you mean '%s'?", name, near);
	else
		complain("no command '%s'", name);
	return usage_error(NULL);
}

static int help(const char *name)
{
	const struct command *c;

	if (!name) {
		print_help(stdout);
		return EXIT_OK;
	}
	c = find_command(name);
	if (!c)
		return unknown_command(name);
	fputs(c->help, stdout);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	const struct command *c;

	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help(argv[2]);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("stag " STAG_VERSION);
		return EXIT_OK;
	}
	if (argv[1][0] == '-') {
		complain("no option '%s'", argv[1]);
		return usage_error(NULL);
	}
	c = find_command(argv[1]);
	return c ? c->run(c, argc - 1, argv + 1) : unknown_command(argv[1]);
}
