// SPDX-License-Identifier: BSD-2-Clause
/*
 * complete.c - finds the words that a shell may offer at the cursor, from the table of the noun.
 *
 * The scripts of bash, zsh and fish (completion.*) call the program with --complete and the words typed so far, and
 * offer the lines that it prints: WORD, or WORD, a tab and an explanation. A line that begins with a colon requests
 * what the shell does better:
 *
 *	:files  :directories  :users  :hosts
 *	:command N    complete the words from number N on as a command line of their own
 *	:nospace      the words go on: no space follows
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli.h"

#define LIST_SECONDS 2 /* before a command that lists words is killed */

void (*cli_offer_to)(const char *word);

/* Requests what the shell does better: ":files". */
static void request(const char *line)
{
	if (cli_offer_to)
		cli_offer_to(line);
	else
		puts(line);
}

void cli_offer(struct cli_words *w, const char *word, const char *help)
{
	size_t n = strlen(word);

	if (strncmp(word, w->typed, strlen(w->typed)) != 0)
		return;
	if (cli_offer_to) {
		cli_offer_to(word);
		return;
	}
	printf("%s%s", w->prefix ? w->prefix : "", word);
	if (help)
		printf("\t%.*s", (int)strcspn(help, "\n"), help);
	puts("");
	w->open = w->open || (n > 0 && strchr(":=/", word[n - 1]));
}

void cli_offer_list(struct cli_words *w, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, " ");
		char word[64];

		snprintf(word, sizeof(word), "%.*s", (int)n, words);
		cli_offer(w, word, NULL);
		words += n + strspn(words + n, " ");
	}
}

/* ---- what another command prints ---- */

static pid_t start(char *const *argv, int out[2])
{
	pid_t pid;

	if (pipe(out) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		close(out[1]);
		alarm(LIST_SECONDS);
		execv("/proc/self/exe", argv);
		_exit(EXIT_NOT_FOUND);
	}
	close(out[1]);
	if (pid < 0)
		close(out[0]);
	return pid;
}

char *cli_run(char *const *argv)
{
	char *text = NULL;
	size_t room = 0;
	int out[2];
	pid_t pid = start(argv, out);
	FILE *f = pid > 0 ? fdopen(out[0], "r") : NULL;

	if (f && getdelim(&text, &room, '\0', f) < 0) {
		free(text);
		text = NULL;
	}
	if (f)
		fclose(f);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return text;
}

void cli_offer_output(struct cli_words *w, char *const *argv)
{
	CLEANUP_FREE char *text = cli_run(argv);
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		line[strcspn(line, " \t")] = '\0';
		if (*line)
			cli_offer(w, line, NULL);
	}
}

/* ---- values ---- */

static void offer_values(struct cli_words *w, enum cli_type type, const char *words,
			 cli_list_fn list, char *const *args)
{
	if (words)
		cli_offer_list(w, words);
	if (list)
		list(w, args);
	if (type == CLI_FILE)
		request(":files");
	else if (type == CLI_DIRECTORY)
		request(":directories");
	else if (type == CLI_USER)
		request(":users");
	else if (type == CLI_HOST)
		request(":hosts");
}

static void offer_option_values(struct cli_words *w, const struct cli_option *o, char *const *args)
{
	offer_values(w, o->type, o->words, o->list, args);
}

/* ---- what stands at the cursor ---- */

struct position {
	const struct cli_noun *noun;
	const struct cli_verb *verb;
	char **args; /* arguments so far, ended by NULL */
	int num_args;
	const struct cli_option *pending; /* the word before is this option, which takes a value */
	int program;	     /* index of the word where another command begins, or -1 */
	bool only_arguments; /* "--" was there */
};

static const struct cli_option *find_option(const struct position *at, const char *word)
{
	size_t n = strcspn(word, "=");

	for (const struct cli_option *o = at->noun->options; !cli_is_end(o); o++) {
		if (!cli_verb_has(at->verb, o))
			continue;
		if (word[1] == o->letter && o->letter && !word[2])
			return o;
		if (strncmp(word, "--", 2) == 0 &&
		    ((strlen(o->name) == n - 2 && strncmp(o->name, word + 2, n - 2) == 0) ||
		     (o->alias && strlen(o->alias) == n - 2 &&
		      strncmp(o->alias, word + 2, n - 2) == 0)))
			return o;
	}
	return NULL;
}

/* Takes one word that is complete. i: its index */
static void pass_word(struct position *at, char *word, int i)
{
	if (at->pending) {
		at->pending = NULL;
	} else if (at->only_arguments || *word != '-') {
		if (at->verb->program && at->program < 0)
			at->program = i;
		at->args[at->num_args++] = word;
	} else if (strcmp(word, "--") == 0) {
		at->only_arguments = true;
	} else if (!strchr(word, '=')) {
		const struct cli_option *o = find_option(at, word);

		at->pending = o && o->value ? o : NULL;
	}
}

/* "--crc=o": the value is a part of the word. */
static bool offer_assigned(struct cli_words *w, const struct position *at)
{
	const char *equals = strchr(w->typed, '=');
	const struct cli_option *o = equals ? find_option(at, w->typed) : NULL;
	char prefix[64];

	if (!o)
		return false;
	snprintf(prefix, sizeof(prefix), "%.*s", (int)(equals + 1 - w->typed), w->typed);
	w->prefix = prefix;
	w->typed = equals + 1;
	offer_option_values(w, o, at->args);
	w->prefix = NULL;
	return true;
}

static void offer_options(struct cli_words *w, const struct position *at)
{
	char name[64];

	if (offer_assigned(w, at))
		return;
	for (const struct cli_option *o = at->noun->options; !cli_is_end(o); o++) {
		if (!cli_verb_has(at->verb, o))
			continue;
		snprintf(name, sizeof(name), "--%s", o->name);
		cli_offer(w, name, o->help);
	}
	cli_offer(w, "--help", "show this help");
	if (at->verb->program)
		cli_offer(w, "--", "end of the options");
}

/* Finds the placeholder of the argument at the cursor in the verb's first usage. */
static const struct cli_argument *argument_at(const struct position *at)
{
	const char *usage = at->verb->args ? at->verb->args : "";
	int left = at->num_args;
	struct cli_token t;

	while (cli_next_token(at->noun, &usage, &t) && !t.first)
		if (!t.option && (left-- == 0 || t.endless))
			return cli_find_argument(at->noun, t.placeholder);
	return NULL;
}

static void offer_arguments(struct cli_words *w, const struct position *at)
{
	const struct cli_argument *a = argument_at(at);

	if (a)
		offer_values(w, a->type, a->words, a->list, at->args);
}

static void offer_at(struct cli_words *w, const struct position *at, int index)
{
	if (at->verb->program && at->program >= 0)
		printf(":command %d\n", at->program);
	else if (at->pending)
		offer_option_values(w, at->pending, at->args);
	else if (!at->only_arguments && *w->typed == '-')
		offer_options(w, at);
	else if (at->verb->program)
		printf(":command %d\n", index);
	else
		offer_arguments(w, at);
}

static void offer_verbs(struct cli_words *w, const struct cli_noun *n)
{
	for (size_t i = 0; i < n->num_verbs; i++)
		cli_offer(w, cli_verb_at(n, i)->name, cli_verb_at(n, i)->summary);
	cli_offer(w, "--help", "show this help");
}

void cli_complete(const struct cli_noun *n, int num_words, char **words, int before)
{
	struct cli_words w = {.typed = words[num_words - 1]};
	struct position at = {.noun = n, .verb = n->verbs, .program = -1};
	int i = 0;

	if (cli_has_verbs(n) && n->default_verb && words[0][0] == '-') {
		at.verb = cli_find_verb(n, n->default_verb);
	} else if (cli_has_verbs(n) && num_words == 1) {
		offer_verbs(&w, n);
		return;
	} else if (cli_has_verbs(n)) {
		at.verb = cli_find_verb(n, words[i++]);
	}
	at.args = calloc((size_t)num_words + 1, sizeof(*at.args));
	if (!at.verb || !at.args) {
		free(at.args);
		return;
	}
	for (; i < num_words - 1; i++)
		pass_word(&at, words[i], before + i);
	offer_at(&w, &at, before + i);
	if (w.open)
		request(":nospace");
	free(at.args);
}
