// SPDX-License-Identifier: BSD-2-Clause
/*
 * valid.c - checks the table of a noun for mistakes.
 */
#include <string.h>

#include "cli.h"

static bool mistake(const struct cli_noun *n, const char *name, const char *what)
{
	fprintf(stderr, "%s: --%s: %s\n", n->call, name, what);
	return false;
}

static bool has_verbs_of(const struct cli_noun *n, const struct cli_option *o)
{
	char name[64];

	for (const char *p = o->verbs; p && *p;) {
		size_t length = strcspn(p, " ");

		snprintf(name, sizeof(name), "%.*s", (int)length, p);
		if (!cli_find_verb(n, name))
			return false;
		p += length + strspn(p + length, " ");
	}
	return true;
}

static bool takes_no_value(enum cli_type type)
{
	return type == CLI_FLAG || type == CLI_CLEAR;
}

static bool is_option_valid(const struct cli_noun *n, const struct cli_option *o)
{
	if (!has_verbs_of(n, o))
		return mistake(n, o->name, "a verb in `verbs` does not exist");
	if (!o->help)
		return mistake(n, o->name, "no help");
	if (!o->parse && !o->value != takes_no_value(o->type))
		return mistake(n, o->name, "the type and the placeholder of the value disagree");
	if (o->type == CLI_WORD && !o->words)
		return mistake(n, o->name, "no words");
	if (!o->parse && o->width == 0)
		return mistake(n, o->name, "neither a field nor a function for the value");
	if (o->repeats && !o->parse)
		return mistake(n, o->name, "a value that repeats needs a function");
	return true;
}

/* Does a verb have two rows of one name? */
static bool is_name_unique(const struct cli_noun *n, const struct cli_option *o)
{
	for (const struct cli_option *other = o + 1; !cli_is_end(other); other++)
		for (size_t i = 0; i < n->num_verbs; i++)
			if (cli_verb_has(cli_verb_at(n, i), o) &&
			    cli_verb_has(cli_verb_at(n, i), other) &&
			    strcmp(o->name, other->name) == 0)
				return mistake(n, o->name, "a verb has it twice");
	return true;
}

static bool has_option(const struct cli_noun *n, const struct cli_verb *v, const char *name)
{
	for (const struct cli_option *o = n->options; !cli_is_end(o); o++)
		if (cli_verb_has(v, o) && strcmp(o->name, name) == 0)
			return true;
	return false;
}

/* Does the verb have the options that its usage names? */
static bool is_usage_valid(const struct cli_noun *n, const struct cli_verb *v)
{
	char name[64];

	for (const char *p = v->args; p && (p = strstr(p, "--")); p += 2) {
		snprintf(name, sizeof(name), "%.*s",
			 (int)strspn(p + 2, "abcdefghijklmnopqrstuvwxyz0123456789-"), p + 2);
		if (*name && !has_option(n, v, name))
			return mistake(n, name,
				       "a usage names an option that the verb does not have");
	}
	return true;
}

bool cli_is_valid(const struct cli_noun *n)
{
	for (const struct cli_option *o = n->options; !cli_is_end(o); o++)
		if (o->name && (!is_option_valid(n, o) || !is_name_unique(n, o)))
			return false;
	for (size_t i = 0; i < n->num_verbs; i++)
		if (!is_usage_valid(n, cli_verb_at(n, i)))
			return false;
	return true;
}
