// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_shell.c - stag pool shell: takes commands, from a terminal or from a file, over one connection.
 *
 * Its grammar is made of that of stag pool: the verbs that use values and nodes, without "stag pool" and POOL, and without the
 * options that say how to connect.
 */
#include "pool_use.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "stag.h"

#define VERBS_MAX   16
#define OPTIONS_MAX 32
#define WORDS_MAX   256
#define OFFERS_MAX  1000 /* names: more do not help */

static struct {
	struct cli_noun noun;
	struct pool_verb verbs[VERBS_MAX];
	size_t num_verbs;
	struct cli_option options[OPTIONS_MAX];
	struct cli_argument arguments[8];
	const struct pool_use *base; /* options of `stag pool shell` itself */
	struct stag_pool *pool;
	struct pool_offers *offers; /* while words are completed */
	bool over;
} shell;

/* ---- the grammar ---- */

/* Removes POOL from a usage, which may have several lines. Returns NULL without memory. */
static char *without_pool(const char *usage)
{
	static const char *const forms[] = {"[POOL] ", "POOL ", "[POOL]"};
	char *text = malloc(strlen(usage) + 1), *to = text;

	for (const char *from = usage; text && *from;) {
		for (size_t i = 0; i < 3; i++)
			if (strncmp(from, forms[i], strlen(forms[i])) == 0) {
				from += strlen(forms[i]);
				break;
			}
		while (*from && *from != '\n')
			*to++ = *from++;
		if (*from)
			*to++ = *from++;
	}
	if (text)
		*to = '\0';
	return text;
}

/* Removes "stag pool" and the name of the pool from an example. */
static char *without_call(const char *example)
{
	const char *verb = example + strlen("stag pool ");
	size_t length = strcspn(verb, " ");
	const char *pool = verb + length + strspn(verb + length, " ");
	char *text;

	if (asprintf(&text, "%.*s%s", (int)length, verb, pool + strcspn(pool, " ")) < 0)
		return NULL;
	return text;
}

static int explain(const struct pool_use *u)
{
	const struct cli_verb *v = NULL;

	if (u->num_args > 0)
		v = cli_find_verb(&shell.noun, u->args[0]);
	if (u->num_args > 0 && !v) {
		complain("no command '%s'; 'help' lists the commands", u->args[0]);
		return EXIT_USAGE;
	}
	cli_print_help(&shell.noun, v);
	return EXIT_OK;
}

static int leave(const struct pool_use *u)
{
	shell.over = true;
	return EXIT_OK;
}

static const struct pool_verb own_verbs[] = {
	{{"help", .args = "[COMMAND]", .summary = "Explains the commands, or one of them.",
	  .example = "help put"},
	 explain,
	 ALONE,
	 NOTHING,
	 IN_SHELL},
	{{"exit", .args = "", .summary = "Ends the shell.", .example = "exit", .alias = "quit"},
	 leave,
	 ALONE,
	 NOTHING,
	 IN_SHELL},
};

/* Returns false without memory. */
static bool take_verbs(void)
{
	bool good = true;

	for (size_t i = 0; i < pool_noun.num_verbs && shell.num_verbs < VERBS_MAX - 2; i++) {
		const struct pool_verb *from = (const struct pool_verb *)cli_verb_at(&pool_noun, i);
		struct pool_verb *to = &shell.verbs[shell.num_verbs];

		if (from->shell == NOT_IN_SHELL)
			continue;
		*to = *from;
		to->cli.args = without_pool(from->cli.args);
		to->cli.example = without_call(from->cli.example);
		good = good && to->cli.args && to->cli.example;
		shell.num_verbs++;
	}
	for (size_t i = 0; i < 2; i++)
		shell.verbs[shell.num_verbs++] = own_verbs[i];
	return good;
}

/* Lists those verbs of an option that the shell has. Returns NULL without memory; "": none. */
static char *own_verbs_of(const struct cli_option *o)
{
	char *list = calloc(1, 256);

	for (size_t i = 0; list && i < shell.num_verbs; i++)
		if (cli_verb_has(&shell.verbs[i].cli, o))
			snprintf(list + strlen(list), 256 - strlen(list), "%s%s", *list ? " " : "",
				 shell.verbs[i].cli.name);
	return list;
}

/* Takes --json, and the options of single verbs: those that are common to all say how to connect. */
static bool take_options(void)
{
	size_t n = 0;

	for (const struct cli_option *o = pool_noun.options; !cli_is_end(o); o++) {
		bool is_json = o->name && strcmp(o->name, "json") == 0;
		CLEANUP_FREE char *verbs = NULL;

		if (!o->name || (o->common && !is_json) || n == OPTIONS_MAX - 1)
			continue;
		verbs = own_verbs_of(o);
		if (!verbs)
			return false;
		if (!*verbs)
			continue;
		shell.options[n] = *o;
		shell.options[n].verbs = is_json ? NULL : verbs;
		shell.options[n++].common = false;
		if (!is_json)
			verbs = NULL;
	}
	return true;
}

/* ---- completion ---- */

static void take_offer(const char *word)
{
	if (strcmp(word, ":nospace") == 0)
		shell.offers->goes_on = true;
	else
		pool_offers_add(shell.offers, word);
}

static void offer_names(struct cli_words *w, char *const *args)
{
	struct stag_pool_entry e = {0};

	while (shell.offers->count < OFFERS_MAX && stag_pool_next(shell.pool, &e))
		cli_offer(w, e.name, NULL);
}

static void offer_nodes(struct cli_words *w, char *const *args)
{
	struct stag_pool_info info = {0};

	if (stag_pool_query(shell.pool, &info, sizeof(info)) != 0)
		return;
	for (uint32_t i = 0; i < info.num_members; i++)
		cli_offer(w, info.members[i].name, NULL);
}

static void offer_commands(struct cli_words *w, char *const *args)
{
	for (size_t i = 0; i < shell.num_verbs; i++)
		cli_offer(w, shell.verbs[i].cli.name, NULL);
}

static void take_arguments_table(void)
{
	const struct cli_argument *value = cli_find_argument(&pool_noun, "VALUE");
	const struct cli_argument table[] = {{"NAME", .type = CLI_TEXT, .list = offer_names},
					     {"NODE", .type = CLI_TEXT, .list = offer_nodes},
					     {"COMMAND", .type = CLI_TEXT, .list = offer_commands},
					     *value};

	memcpy(shell.arguments, table, sizeof(table));
}

/* Replaces the request ":files" by the files themselves. */
static void offer_files(struct pool_offers *o, const char *typed)
{
	char pattern[4096];
	glob_t found;

	if (o->count == 0 || strcmp(o->list[o->count - 1], ":files") != 0)
		return;
	free(o->list[--o->count]);
	snprintf(pattern, sizeof(pattern), "%s*", typed);
	if (glob(pattern, GLOB_MARK, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		pool_offers_add(o, found.gl_pathv[i]);
	globfree(&found);
}

/* Finds where the last word of a line begins, as it is typed; 0: it is empty. */
static size_t last_word_length(const char *text)
{
	size_t n = strlen(text), at = n;

	while (at > 0 &&
	       (!isspace((unsigned char)text[at - 1]) || (at > 1 && text[at - 2] == '\\')))
		at--;
	return n - at;
}

static void complete(const char *text, struct pool_offers *offers)
{
	CLEANUP_FREE char *line = strdup(text);
	char *words[WORDS_MAX + 1], *typed = "";
	size_t length = last_word_length(text);
	int n;

	if (!line || strpbrk(text, "'\"#")) /* in quotes nothing is completed */
		return;
	n = cli_split(line, words, WORDS_MAX);
	if (n < 0)
		return;
	if (length == 0)
		words[n++] = typed;
	words[n] = NULL;
	typed = words[n - 1];
	shell.offers = offers;
	offers->typed = length;
	cli_offer_to = take_offer;
	cli_complete(&shell.noun, n, words, 0);
	cli_offer_to = NULL;
	offer_files(offers, typed);
}

/* ---- one command ---- */

/* Runs the words of a line; words[0] is free. Returns the exit code. */
static int run_words(int n, char **words)
{
	struct pool_use u = *shell.base;
	struct cli_call call;
	int rc;

	for (char *p = words[1]; *p; p++)
		*p = (char)tolower((unsigned char)*p); /* people who know redis type GET */
	if (shell.base->json)
		complain_as_json();
	if (cli_parse(&shell.noun, n, words, &u, &call, &rc)) {
		u.args = call.args;
		u.num_args = call.num_args;
		rc = ((const struct pool_verb *)call.verb)->run(&u);
	}
	return rc;
}

static int run_line(const char *text)
{
	CLEANUP_FREE char *line = strdup(text);
	char *words[WORDS_MAX + 2] = {"pool"};
	int n, rc = EXIT_OK;

	n = line ? cli_split(line, words + 1, WORDS_MAX) : -1;
	if (n < 0)
		rc = EXIT_USAGE;
	else if (n > 0)
		rc = run_words(n + 1, words);
	rc = n < 0 ? complain_end(rc) : cli_end(rc);
	fflush(stdout);
	return rc;
}

/* ---- the lines ---- */

/* Runs the lines of standard input, to the end. Returns the exit code of the first that failed. */
static int run_script(void)
{
	CLEANUP_FREE char *line = NULL;
	unsigned long number = 0;
	size_t room = 0;
	char prefix[64];
	int first = EXIT_OK, rc;

	complain_prefix(prefix);
	while (!shell.over && getline(&line, &room, stdin) >= 0) {
		snprintf(prefix, sizeof(prefix), "stag: line %lu: ", ++number);
		rc = run_line(line);
		first = first == EXIT_OK ? rc : first;
	}
	complain_prefix(NULL);
	return first;
}

static int run_typed(const char *prompt)
{
	CLEANUP_FREE char *line = NULL;
	size_t room = 0;
	const char *text;

	complain_prefix("");
	if (pool_edit_begin(prompt, complete)) {
		while (!shell.over && (text = pool_edit_line()))
			run_line(text);
		pool_edit_end();
	} else {
		while (!shell.over && fputs(prompt, stdout) >= 0 && fflush(stdout) == 0 &&
		       getline(&line, &room, stdin) >= 0)
			run_line(line);
	}
	complain_prefix(NULL);
	if (!shell.over)
		puts("");
	return EXIT_OK;
}

static bool make_grammar(void)
{
	if (!take_verbs() || !take_options()) {
		complain("out of memory");
		return false;
	}
	take_arguments_table();
	shell.noun = (struct cli_noun){
		.call = "",
		.name = "",
		.about = "Words are divided by spaces; 'single' and \"double\" quotes and \\ keep "
			 "them "
			 "together, and # begins a comment. In double quotes \\n is the end of a "
			 "line. "
			 "A get ends its line; --file writes the bytes as they are.",
		.verbs = &shell.verbs[0].cli,
		.verb_size = sizeof(shell.verbs[0]),
		.num_verbs = shell.num_verbs,
		.options = shell.options,
		.arguments = shell.arguments,
	};
	return true;
}

int pool_use_shell(const struct pool_use *u)
{
	bool typed = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	struct pool_use base = *u;
	struct stag_pool_info info = {0};
	char prompt[80];
	int rc;

	if (!make_grammar())
		return EXIT_FAILED;
	shell.pool = pool_use_open(u, 0);
	if (!shell.pool)
		return EXIT_FAILED;
	rc = stag_pool_query(shell.pool, &info, sizeof(info));
	snprintf(prompt, sizeof(prompt), "%s> ", rc == 0 ? info.name : "pool");
	base.shared = shell.pool;
	base.in_script = !typed;
	shell.base = &base;
	rc = typed ? run_typed(prompt) : run_script();
	stag_pool_close(shell.pool);
	return rc;
}
