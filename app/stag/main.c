// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c - the command `stag`: finds the command to run, and prints help.
 */
#include "stag.h"

#include <string.h>

#include "colour.h"
#include "helper.h"
#include "suggest.h"

/* Programs of their own (helper.h), which have the rest of their tables. */
static const struct cli_noun
	bench_noun = {.name = "bench",
		      .summary = "measure every part of stag beside its yardsticks"},
	torture_noun = {.name = "torture",
			.summary = "inject faults, and check that the guarantees hold"};
static const struct command bench_command = {&bench_noun, helper_exec},
			    torture_command = {&torture_noun, helper_exec};

static const struct command *const commands[] = {
	&run_command,	  &info_command,  &top_command,	      &doctor_command, &heap_command,
	&store_command,	  &block_command, &pool_command,      &token_command,  &audit_command,
	&torture_command, &bench_command, &completion_command};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static void print_help(FILE *out)
{
	fputs("usage: stag COMMAND [OPTION]... [ARGUMENT]...\n\n"
	      "RDMA for every machine: a software adapter for programs that use verbs.\n\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-11s %s\n", commands[i]->noun->name, commands[i]->noun->summary);
	fputs("  help        explain a command or a verb: 'stag help store add'\n\n"
	      "  --color=WHEN   auto (on a terminal, unless NO_COLOR is set), always or never\n"
	      "  --help, --version\n\n"
	      "Exit codes:\n",
	      out);
	for (const struct exit_meaning *m = exit_meanings; m->word; m++)
		fprintf(out, "  %-3d %s\n", m->code, m->help);
	fputs("'stag run' ends with the exit code of its program; 126 if that cannot be executed,\n"
	      "127 if it does not exist.\n"
	      "More in stag(1), and in libstag-verbs(7) on the environment.\n",
	      out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i]->noun->name, name) == 0)
			return commands[i];
	return NULL;
}

static int refuse_command(const char *name)
{
	struct suggestion s = {.word = name};

	for (size_t i = 0; i < N_COMMANDS; i++)
		suggest_consider(&s, commands[i]->noun->name);
	suggest_complain(&s, "command", "");
	return cli_end(EXIT_USAGE);
}

static int refuse_option(const char *name)
{
	struct suggestion s = {.word = name};

	suggest_consider(&s, "--help");
	suggest_consider(&s, "--version");
	suggest_consider(&s, "--color");
	suggest_complain(&s, "option", "");
	return cli_end(EXIT_USAGE);
}

static int start_command(const struct command *c, int argc, char **argv)
{
	return cli_end(c->run(c, argc, argv));
}

/* Runs NOUN --help, or NOUN VERB --help. */
static int print_help_of(int argc, char **words)
{
	char *argv[] = {words[0], argc > 1 ? words[1] : "--help", argc > 1 ? "--help" : NULL, NULL};
	const struct command *c;

	if (argc < 1) {
		print_help(stdout);
		return EXIT_OK;
	}
	c = find_command(words[0]);
	return c ? start_command(c, argc > 1 ? 3 : 2, argv) : refuse_command(words[0]);
}

/*
 * Removes --color=WHEN from argv and applies it. It may be anywhere before a "--", but not among the words of a
 * program that 'stag run' runs. Returns false after it has complained.
 */
static bool apply_colour_option(int *argc, char **argv)
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

/* ---- completion ---- */

/* Lets the program behind a command complete; words[0] is the command. */
static int complete_helper(const struct command *c, int num_words, char **words)
{
	char *argv[num_words + 2];

	argv[0] = words[0];
	argv[1] = "--complete";
	memcpy(argv + 2, words + 1, (size_t)num_words * sizeof(*words));
	return helper_exec(c, num_words + 1, argv);
}

/* Prints the words that may follow (app/cli/complete.c); the last of `words` is to be completed. */
static int complete_words(int num_words, char **words)
{
	struct cli_words w = {.typed = words[num_words - 1]};
	bool helps = num_words > 1 && strcmp(words[0], "help") == 0;
	const struct command *c = num_words > 1 + helps ? find_command(words[helps]) : NULL;

	for (size_t i = 0; num_words == 1 + helps && i < N_COMMANDS; i++)
		cli_offer(&w, commands[i]->noun->name, commands[i]->noun->summary);
	if (num_words == 1) {
		cli_offer(&w, "help", "explain a command");
		cli_offer(&w, "--help", "show this help");
		cli_offer(&w, "--version", "show the version");
		cli_offer(&w, "--color=", "auto, always or never");
	}
	if (!c || (helps && num_words > 3))
		return EXIT_OK;
	words += helps;
	num_words -= helps;
	if (c->run == helper_exec)
		return complete_helper(c, num_words, words);
	cli_complete(c->noun, num_words - 1, words + 1, 2);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	const struct command *c;

	if (argc > 2 && strcmp(argv[1], "--complete") == 0)
		return complete_words(argc - 2, argv + 2);
	if (!apply_colour_option(&argc, argv))
		return cli_end(EXIT_USAGE);
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return print_help_of(argc - 2, argv + 2);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("stag " STAG_VERSION);
		return EXIT_OK;
	}
	if (argv[1][0] == '-')
		return refuse_option(argv[1]);
	c = find_command(argv[1]);
	return c ? start_command(c, argc - 1, argv + 1) : refuse_command(argv[1]);
}
