// SPDX-License-Identifier: BSD-2-Clause
/*
 * table.c - looks things up in the table of a noun (cli.h), and reads the usage of its verbs.
 */
#include <limits.h>
#include <string.h>

#include "cli.h"

const struct cli_verb *cli_verb_at(const struct cli_noun *n, size_t i)
{
	return (const struct cli_verb *)((const char *)n->verbs + i * n->verb_size);
}

const struct cli_verb *cli_find_verb(const struct cli_noun *n, const char *name)
{
	for (size_t i = 0; i < n->num_verbs; i++)
		if (strcmp(cli_verb_at(n, i)->name, name) == 0)
			return cli_verb_at(n, i);
	for (size_t i = 0; i < n->num_verbs; i++)
		if (cli_verb_at(n, i)->alias &&
		    cli_list_has(cli_verb_at(n, i)->alias, name, strlen(name)))
			return cli_verb_at(n, i);
	return NULL;
}

bool cli_has_verbs(const struct cli_noun *n)
{
	return *n->verbs->name != '\0';
}

bool cli_is_end(const struct cli_option *o)
{
	return !o->name && !o->help;
}

bool cli_list_has(const char *list, const char *word, size_t length)
{
	if (memchr(word, ' ', length)) /* "on off" is two words of a list */
		return false;
	for (const char *p = list; length && (p = strstr(p, word)); p += length)
		if ((p == list || p[-1] == ' ') && (p[length] == ' ' || !p[length]))
			return true;
	return false;
}

bool cli_verb_has(const struct cli_verb *v, const struct cli_option *o)
{
	if (!o->name)
		return false;
	return !o->verbs || cli_list_has(o->verbs, v->name, strlen(v->name));
}

const struct cli_argument *cli_find_argument(const struct cli_noun *n, const char *name)
{
	for (const struct cli_argument *a = n->arguments; a && a->name; a++)
		if (strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

/* ---- usage ---- */

/* Returns the length up to a space or a line's end that is not in brackets. */
static size_t token_length(const char *text)
{
	size_t n = 0;
	int depth = 0;

	for (; text[n] && text[n] != '\n' && (depth || text[n] != ' '); n++)
		depth += strchr("[{", text[n]) ? 1 : strchr("]}", text[n]) ? -1 : 0;
	return n;
}

/* Does the option in "--size SIZE" take a value? Then that is a part of the element. */
static bool takes_value(const struct cli_noun *n, const char *text, size_t length)
{
	for (const struct cli_option *o = n->options; !cli_is_end(o); o++)
		if (o->name && o->value && strlen(o->name) == length - 2 &&
		    strncmp(o->name, text + 2, length - 2) == 0)
			return true;
	return false;
}

bool cli_next_token(const struct cli_noun *n, const char **at, struct cli_token *t)
{
	const char *p = *at + strspn(*at, " ");
	const char *name;

	*t = (struct cli_token){.text = p + strspn(p, "\n"), .first = *p == '\n'};
	p = t->text;
	t->length = token_length(p);
	if (t->length == 0)
		return false;
	if (strncmp(p, "--", 2) == 0 && takes_value(n, p, t->length))
		t->length += 1 + token_length(p + t->length + 1);
	name = p + strspn(p, "[{");
	snprintf(t->placeholder, sizeof(t->placeholder), "%.*s", (int)strcspn(name, " ].}|\n"),
		 name);
	t->option = strncmp(name, "--", 2) == 0 || strcmp(t->placeholder, "OPTION") == 0;
	/* in {NAME | --pointer PTR} an option may be there instead */
	t->needed = *p != '[' && !(*p == '{' && memmem(p, t->length, "--", 2));
	t->endless = t->length > 3 && memmem(p, t->length, "...", 3);
	*at = p + t->length;
	return true;
}

static void count_usage(const struct cli_token *t, int *least, int *most)
{
	if (t->option)
		return;
	*least += t->needed;
	*most = t->endless || *most == INT_MAX ? INT_MAX : *most + 1;
}

void cli_count_arguments(const struct cli_noun *n, const struct cli_verb *v, int *least, int *most)
{
	const char *at = v->args ? v->args : "";
	struct cli_token t;
	int low = 0, high = 0;

	*least = INT_MAX;
	*most = 0;
	while (cli_next_token(n, &at, &t)) {
		if (t.first) {
			*least = low < *least ? low : *least;
			*most = high > *most ? high : *most;
			low = high = 0;
		}
		count_usage(&t, &low, &high);
	}
	*least = low < *least ? low : *least;
	*most = high > *most ? high : *most;
}
