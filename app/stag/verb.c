// SPDX-License-Identifier: BSD-2-Clause
/*
 * verb.c - see verb.h.
 */
#include "verb.h"

#include <stdio.h>
#include <string.h>

#include "stag.h"
#include "suggest.h"

#define ALL_OPTIONS UINT64_MAX

const char *verb_given(const struct command *self, const char *question, int argc, char **argv,
		       int *rc)
{
	if (argc < 2) {
		complain("%s", question);
		*rc = usage_error(self);
		return NULL;
	}
	if (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0)
		return argv[1];
	fputs(self->help, stdout);
	*rc = EXIT_OK;
	return NULL;
}

/* ---- which verb -------------------------------------------------------------------------- */

static const struct verb *verb_at(const void *table, size_t i, size_t size)
{
	return (const struct verb *)((const char *)table + i * size);
}

static void list_verbs(const struct command *self, const void *table, size_t n, size_t size)
{
	fprintf(stderr, "stag %s has:", self->name);
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, " %s", verb_at(table, i, size)->name);
	fputc('\n', stderr);
}

const void *verb_find(const struct command *self, const char *name, const void *table, size_t n,
		      size_t size)
{
	struct suggestion s = {.word = name};
	char prefix[32];

	for (size_t i = 0; i < n; i++) {
		const struct verb *v = verb_at(table, i, size);

		if (strcmp(v->name, name) == 0) {
			usage_verb(v->name);
			return v;
		}
		suggest_consider(&s, v->name);
	}
	suggest_consider(&s, "--help");
	snprintf(prefix, sizeof(prefix), "stag %s ", self->name);
	suggest_complain(&s, "command", prefix);
	if (!s.best)
		list_verbs(self, table, n, size);
	usage_error(self);
	return NULL;
}

/* ---- options that are wrong ---------------------------------------------------------------- */

static bool has_option(const struct option *o, uint64_t options)
{
	return o->val < VERB_OPTION || (options & VERB_BIT(o->val)) != 0;
}

static const struct option *option_of(const struct option *table, int val)
{
	for (const struct option *o = table; o->name; o++)
		if (o->val == val)
			return o;
	return NULL;
}

/* "--sice=4K": sice is none of them. */
static void no_option(const char *called, const char *arg, const struct option *table,
		      uint64_t options)
{
	char name[64];
	struct suggestion s = {.word = name};

	if (arg[1] != '-') {
		complain("no option '%s' of '%s'", arg, called);
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
	for (const struct option *o = table; o->name; o++)
		if (has_option(o, options))
			suggest_consider(&s, o->name);
	if (s.best)
		complain("no option '--%s' of '%s'; did you mean '--%s'?", name, called, s.best);
	else
		complain("no option '--%s' of '%s'", name, called);
}

static int next_option(const char *called, int argc, char **argv, const char *shorts,
		       const struct option *table, uint64_t options)
{
	char with_colon[16];
	const struct option *o;
	int c, before = optind;

	/* "+:h", ":h": a missing argument is ':', and getopt_long() says nothing */
	snprintf(with_colon, sizeof(with_colon), "%s:%s", *shorts == '+' ? "+" : "",
		 *shorts == '+' ? shorts + 1 : shorts);
	opterr = 0;
	c = getopt_long(argc, argv, with_colon, table, NULL);
	o = c == ':' || (c == '?' && optopt) ? option_of(table, optopt) : NULL;
	if (c == ':')
		complain("--%s of '%s' wants a value", o ? o->name : argv[optind - 1] + 2, called);
	else if (c == '?' && o)
		complain("--%s of '%s' wants no value", o->name, called);
	else if (c == '?')
		no_option(called, argv[optind > before ? optind - 1 : optind], table, options);
	return c == ':' ? '?' : c;
}

int verb_option(const char *called, int argc, char **argv, const char *shorts,
		const struct option *table)
{
	return next_option(called, argc, argv, shorts, table, ALL_OPTIONS);
}

/* ---- help of a verb: cut out of that of its noun ----------------------------------------------- */

#define MAX_USAGE 2048

static const char *line_end(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

static bool is_word_at(const char *text, const char *word)
{
	size_t len = strlen(word);

	return strncmp(text, word, len) == 0 && (text[len] == ' ' || text[len] == '\n');
}

/* The lines "usage: stag NOUN VERB ..." and what goes on behind them. */
static void cut_usage(const struct command *self, const struct verb *v, char *to, size_t size)
{
	const size_t margin = strlen("usage: ");
	char call[64];
	bool ours = false;
	size_t n = 0;

	snprintf(call, sizeof(call), "stag %s %s", self->name, v->name);
	*to = '\0';
	for (const char *line = self->help; *line && *line != '\n'; line = line_end(line)) {
		if (strncmp(line + margin, "stag ", 5) == 0)
			ours = is_word_at(line + margin, call);
		if (ours && n < size)
			n += (size_t)snprintf(
				to + n, size - n, "%s%.*s", n == 0 ? "usage: " : "       ",
				(int)(line_end(line) - line - (long)margin), line + margin);
	}
}

/* "  --poll, --sleep    how": is one of them the verb's? "  URL   ...": is it in the usage? */
static bool is_about(const char *line, const struct verb *v, const struct option *table,
		     const char *usage)
{
	const char *gap, *end; /* what is behind the gap explains them */
	char word[64];

	if (strncmp(line, "  ", 2) != 0 || line[2] == ' ')
		return false;
	if (line[2] != '-') {
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(line + 2, " \n"), line + 2);
		return strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == strlen(word) &&
		       strstr(usage, word);
	}
	gap = strstr(line + 2, "  ");
	end = gap && gap < line_end(line) ? gap : line_end(line);
	for (const char *at = strstr(line, "--"); at && at < end; at = strstr(at + 2, "--")) {
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at + 2, " ,\n"), at + 2);
		for (const struct option *o = table; o->name; o++)
			if (strcmp(o->name, word) == 0 && has_option(o, v->options))
				return true;
	}
	return false;
}

static void print_options(const struct command *self, const struct verb *v,
			  const struct option *table, const char *usage)
{
	bool ours = false;

	for (const char *line = self->help; *line; line = line_end(line)) {
		if (strncmp(line, "     ", 5) != 0)
			ours = is_about(line, v, table, usage);
		if (ours)
			fwrite(line, 1, (size_t)(line_end(line) - line), stdout);
	}
}

static void print_help(const struct command *self, const struct verb *v, const struct option *table)
{
	char usage[MAX_USAGE];

	if (!*v->name) {
		fputs(self->help, stdout);
		return;
	}
	cut_usage(self, v, usage, sizeof(usage));
	printf("%s\n%s\n\n", usage, v->does);
	print_options(self, v, table, usage);
	if (v->example)
		printf("\n  %s\n", v->example);
}

/* ---- all of it ----------------------------------------------------------------------------------- */

/* false: that was the last one, or the command ends with *rc. */
static bool parse_one(const struct command *self, const struct verb *v,
		      const struct verb_options *o, void *to, int c, const char *called, int *rc)
{
	if (c == 'h') {
		print_help(self, v, o->table);
		*rc = EXIT_OK;
		return false;
	}
	*rc = EXIT_USAGE;
	if (c == '?')
		return false;
	if (v->options & VERB_BIT(c))
		return o->take(to, c, optarg);
	complain("%s has no option --%s", called, option_of(o->table, c)->name);
	return false;
}

bool verb_parse(const struct command *self, const struct verb *v, const struct verb_options *o,
		void *to, int argc, char **argv, int *rc)
{
	char called[64];
	bool good = true;
	int c;

	usage_verb(*v->name ? v->name : NULL);
	snprintf(called, sizeof(called), "stag %s%s%s", self->name, *v->name ? " " : "", v->name);
	while (good && (c = next_option(called, argc, argv, "h", o->table, v->options)) != -1)
		good = parse_one(self, v, o, to, c, called, rc);
	if (good && (argc - optind < v->least || argc - optind > v->most)) {
		complain("%s wants %s", called, v->wants);
		*rc = EXIT_USAGE;
		good = false;
	}
	if (!good && *rc == EXIT_USAGE)
		usage_error(self);
	return good;
}
