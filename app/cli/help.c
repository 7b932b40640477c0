// SPDX-License-Identifier: BSD-2-Clause
/*
 * help.c - prints what a noun or a verb does, from its table.
 */
#include <ctype.h>
#include <string.h>

#include "cli.h"

#define WIDTH	    80
#define HELP_COLUMN 21 /* where the explanation of an option begins */

/* ---- paragraphs ---- */

void cli_print_wrapped(FILE *out, const char *text, size_t column)
{
	size_t at = column;

	while (*text) {
		size_t n = strcspn(text, " \n");

		if (at > column && at + 1 + n > WIDTH) {
			fprintf(out, "\n%*s", (int)column, "");
			at = column;
		} else if (at > column) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, n, out);
		at += n;
		text += n;
		if (*text == '\n') {
			fprintf(out, "\n%*s", text[1] && text[1] != '\n' ? (int)column : 0, "");
			at = column;
		}
		text += *text != '\0';
	}
	fputc('\n', out);
}

/* "  --size SIZE        explanation" */
static void print_entry(const char *name, const char *help)
{
	int n = printf("  %s", name);

	if (!help || !*help) {
		puts("");
		return;
	}
	if (n + 2 > HELP_COLUMN) {
		puts("");
		n = 0;
	}
	printf("%*s", HELP_COLUMN - n, "");
	cli_print_wrapped(stdout, help, HELP_COLUMN);
}

/* ---- usage ---- */

struct usage {
	size_t indent, at;
};

static void add_token(struct usage *u, const char *text, size_t length)
{
	if (u->at + 1 + length > WIDTH) {
		printf("\n%*s", (int)u->indent, "");
		u->at = u->indent;
	} else {
		putchar(' ');
		u->at++;
	}
	printf("%.*s", (int)length, text);
	u->at += length;
}

/* Does the usage of the verb that is written by hand name the option? */
static bool is_named(const struct cli_verb *v, const char *name)
{
	size_t length = strlen(name);

	for (const char *p = v->args; p && (p = strstr(p, "--")); p += 2)
		if (strncmp(p + 2, name, length) == 0 && p[2 + length] != '-' &&
		    !islower((unsigned char)p[2 + length]))
			return true;
	return false;
}

static void add_option(struct usage *u, const struct cli_option *o)
{
	char text[128];

	snprintf(text, sizeof(text), "[--%s%s%s]%s", o->name, o->value ? " " : "",
		 o->value ? o->value : "", o->repeats ? "..." : "");
	add_token(u, text, strlen(text));
}

/* Adds the options that the usage does not name. all: also those that are common to many verbs. */
static void add_options(struct usage *u, const struct cli_noun *n, const struct cli_verb *v,
			bool all)
{
	bool left_off = false;

	if (v->args && strstr(v->args, "[OPTION]..."))
		return;
	for (const struct cli_option *o = n->options; !cli_is_end(o); o++) {
		if (!cli_verb_has(v, o) || is_named(v, o->name))
			continue;
		if (all || !o->common)
			add_option(u, o);
		else
			left_off = true;
	}
	if (left_off)
		add_token(u, "[OPTION]...", strlen("[OPTION]..."));
}

static struct usage begin_usage(const struct cli_noun *n, const struct cli_verb *v, bool first)
{
	int at = printf("%s%s%s%s", first ? "usage: " : "       ", n->call,
			*n->call && *v->name ? " " : "", v->name);

	/* no space follows yet: the next element brings it */
	return (struct usage){.indent = (size_t)at + 1, .at = (size_t)at};
}

static void print_usage(const struct cli_noun *n, const struct cli_verb *v, bool first, bool all)
{
	struct usage u = begin_usage(n, v, first);
	const char *at = v->args ? v->args : "";
	struct cli_token t;

	while (cli_next_token(n, &at, &t)) {
		if (t.first) {
			add_options(&u, n, v, all);
			puts("");
			u = begin_usage(n, v, false);
		}
		add_token(&u, t.text, t.length);
	}
	add_options(&u, n, v, all);
	puts("");
}

/* ---- what is explained ---- */

static bool uses_argument(const struct cli_verb *v, const char *name)
{
	size_t length = strlen(name);

	for (const char *p = v->args; p && (p = strstr(p, name)); p += length)
		if ((p == v->args || strchr(" [{|\n", p[-1])) && strchr(" ]}|.\n", p[length]))
			return true;
	return false;
}

/* v NULL: of all verbs */
static void print_arguments(const struct cli_noun *n, const struct cli_verb *v)
{
	for (const struct cli_argument *a = n->arguments; a && a->name; a++)
		if (a->help && (!v || uses_argument(v, a->name)))
			print_entry(a->name, a->help);
}

static void print_option(const struct cli_option *o)
{
	const char letter[] = {'-', o->letter, ',', ' ', '\0'};
	char name[128];

	snprintf(name, sizeof(name), "%s--%s%s%s", o->letter ? letter : "", o->name,
		 o->value ? " " : "", o->value ? o->value : "");
	print_entry(name, o->help);
}

static void print_options(const struct cli_noun *n, const struct cli_verb *v)
{
	for (const struct cli_option *o = n->options; !cli_is_end(o); o++)
		if (!o->name && !v)
			printf("\n%s\n", o->help);
		else if (o->name && (!v || cli_verb_has(v, o)))
			print_option(o);
	print_entry("-h, --help", "show this help");
}

static void print_examples(const char *lines)
{
	while (lines && *lines) {
		size_t n = strcspn(lines, "\n");

		printf("  %.*s\n", (int)n, lines);
		lines += n + (lines[n] == '\n');
	}
}

static void print_verbs(const struct cli_noun *n)
{
	for (size_t i = 0; i < n->num_verbs; i++)
		print_entry(cli_verb_at(n, i)->name, cli_verb_at(n, i)->summary);
	puts("");
}

static void print_noun_help(const struct cli_noun *n)
{
	for (size_t i = 0; i < n->num_verbs; i++)
		print_usage(n, cli_verb_at(n, i), i == 0, !cli_has_verbs(n));
	puts("");
	cli_print_wrapped(stdout, n->about, 0);
	puts("");
	if (cli_has_verbs(n))
		print_verbs(n);
	print_arguments(n, NULL);
	print_options(n, NULL);
	if (n->notes) {
		puts("");
		cli_print_wrapped(stdout, n->notes, 0);
	}
	if (n->examples) {
		puts("");
		print_examples(n->examples);
	}
}

void cli_print_help(const struct cli_noun *n, const struct cli_verb *v)
{
	if (!v || !*v->name) {
		print_noun_help(n);
		return;
	}
	print_usage(n, v, true, true);
	puts("");
	cli_print_wrapped(stdout, v->summary, 0);
	puts("");
	print_arguments(n, v);
	print_options(n, v);
	if (v->example)
		printf("\n  %s\n", v->example);
}
