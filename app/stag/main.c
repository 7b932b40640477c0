// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - the command `stag`: finds the subcommand, and helps those who don't know it.
 */
#include "stag.h"

#include <string.h>

#include "colour.h"
#include "helper.h"
#include "suggest.h"

/* Programs of their own, which explain themselves. */
static const struct command
	bench_command = {.name = "bench",
			 .summary = "measure every part of stag beside its yardsticks",
			 .run = helper_exec},
	torture_command = {.name = "torture",
			   .summary = "inject faults, and check that the guarantees hold",
			   .run = helper_exec};

static const struct command *const commands[] = {
	&run_command,	  &info_command,  &top_command,	      &doctor_command,
	&heap_command,	  &store_command, &block_command,     &pool_command,
	&torture_command, &bench_command, &completion_command};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static const char *name_of(const struct command *c)
{
	return c->noun ? c->noun->name : c->name;
}

static const char *summary_of(const struct command *c)
{
	return c->noun ? c->noun->summary : c->summary;
}

static void print_help(FILE *out)
{
	fputs("usage: stag COMMAND [OPTION]... [ARGUMENT]...\n\n"
	      "RDMA for every machine: a software adapter for programs that use verbs.\n\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-11s %s\n", name_of(commands[i]), summary_of(commands[i]));
	fputs("  help        explain a command, or what it does: 'stag help store add'\n\n"
	      "  --color=WHEN   auto (on a terminal, unless NO_COLOR is set), always or never\n"
	      "  --help, --version\n\n"
	      "Exit codes: 0 done, 1 failed, 2 wrong usage. 'stag run' ends as its program does;\n"
	      "126 says that the program cannot be executed, 127 that there is none.\n"
	      "More in stag(1), and in libstag-verbs(7) on the environment.\n",
	      out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(name_of(commands[i]), name) == 0)
			return commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	struct suggestion s = {.word = name};

	for (size_t i = 0; i < N_COMMANDS; i++)
		suggest_consider(&s, name_of(commands[i]));
	suggest_complain(&s, "command", "");
	return usage_error(NULL);
}

static int unknown_option(const char *name)
{
	struct suggestion s = {.word = name};

	suggest_consider(&s, "--help");
	suggest_consider(&s, "--version");
	suggest_consider(&s, "--color");
	suggest_complain(&s, "option", "");
	return usage_error(NULL);
}

static int start_command(const struct command *c, int argc, char **argv)
{
	int rc = c->run(c, argc, argv);

	return c->noun && rc == EXIT_USAGE ? cli_usage_hint() : rc;
}

/* words: a command, or a command and its verb, or none. */
static int help(int argc, char **words)
{
	const struct command *c;
	char *verb[] = {words[0], argc > 1 ? words[1] : "--help", argc > 1 ? "--help" : NULL, NULL};

	if (argc < 1) {
		print_help(stdout);
		return EXIT_OK;
	}
	c = find_command(words[0]);
	if (!c)
		return unknown_command(words[0]);
	if (c->noun && argc < 2) {
		cli_print_help(c->noun, NULL);
		return EXIT_OK;
	}
	if (argc > 1 || !c->help)
		return start_command(c, argc > 1 ? 3 : 2, verb);
	fputs(c->help, stdout);
	return EXIT_OK;
}

/* --color=WHEN may stand anywhere before a "--"; of what 'stag run' runs, before the command only. False, having complained. */
static bool take_colour(int *argc, char **argv)
{
	bool own = true;
	int to = 1;

	for (int i = 1; i < *argc; i++) {
		if (own && strncmp(argv[i], "--color=", 8) == 0) {
			if (!colour_set(argv[i] + 8))
				return false;
			continue;
		}
		own = own && strcmp(argv[i], "--") != 0 && (to > 1 || strcmp(argv[i], "run") != 0);
		argv[to++] = argv[i];
	}
	argv[to] = NULL;
	*argc = to;
	return true;
}

/* Lets the program that the command is print it; words[0] is the command. */
static int complete_helper(const struct command *c, int num_words, char **words)
{
	char *argv[num_words + 2];

	argv[0] = words[0];
	argv[1] = "--complete";
	memcpy(argv + 2, words + 1, (size_t)num_words * sizeof(*words));
	return helper_exec(c, num_words + 1, argv);
}

/* Prints what may follow the words typed so far (app/cli/complete.c); the last one is to be completed. */
static int complete(int num_words, char **words)
{
	struct cli_words w = {.typed = words[num_words - 1]};
	bool helps = num_words > 1 && strcmp(words[0], "help") == 0;
	const struct command *c = num_words > 1 + helps ? find_command(words[helps]) : NULL;

	for (size_t i = 0; num_words == 1 + helps && i < N_COMMANDS; i++)
		cli_offer(&w, name_of(commands[i]), summary_of(commands[i]));
	if (num_words == 1) {
		cli_offer(&w, "help", "explain a command");
		cli_offer(&w, "--help", "show this help");
		cli_offer(&w, "--version", "show the version");
	}
	if (!c || (helps && num_words > 3))
		return EXIT_OK;
	words += helps;
	num_words -= helps;
	if (c->run == helper_exec)
		return complete_helper(c, num_words, words);
	if (c->noun)
		cli_complete(c->noun, num_words - 1, words + 1, 2);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	const struct command *c;

	if (argc > 2 && strcmp(argv[1], "--complete") == 0)
		return complete(argc - 2, argv + 2);
	if (!take_colour(&argc, argv))
		return usage_error(NULL);
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help(argc - 2, argv + 2);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("stag " STAG_VERSION);
		return EXIT_OK;
	}
	if (argv[1][0] == '-')
		return unknown_option(argv[1]);
	c = find_command(argv[1]);
	return c ? start_command(c, argc - 1, argv + 1) : unknown_command(argv[1]);
}
