// SPDX-License-Identifier: BSD-2-Clause
/*
 * parse.c - parses a command line by the table of its noun, and explains what is wrong with it.
 */
#include <assert.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli.h"
#include "complain.h"
#include "suggest.h"

#define FIRST_OPTION 256 /* getopt's value of the table's first row: beyond all letters */

static struct {
	const struct cli_noun *noun;
	const struct cli_verb *verb; /* NULL: not known yet, or the noun has none */
} last;

/* "stag store add" */
static const char *call_of(const struct cli_noun *n, const struct cli_verb *v, char text[64])
{
	snprintf(text, 64, "%s%s%s", n->call, *n->call && *v->name ? " " : "", v->name);
	return text;
}

static void print_usage_hint(void)
{
	const struct cli_noun *n = last.noun;

	if (!n)
		complain_try("'stag --help'.");
	else if (!*n->call)
		complain_try("'help%s%s'.", last.verb ? " " : "", last.verb ? last.verb->name : "");
	else if (strncmp(n->call, "stag ", 5) != 0)
		complain_try("'%s --help'.", n->call);
	else
		complain_try("'stag help %s%s%s'.", n->name, last.verb ? " " : "",
			     last.verb ? last.verb->name : "");
}

int cli_end(int rc)
{
	if (rc == EXIT_USAGE)
		print_usage_hint();
	return complain_end(rc);
}

/* ---- the verb ---- */

static void list_verbs(const struct cli_noun *n)
{
	if (complain_is_json())
		return;
	fputs(*n->call ? n->call : "this shell", stderr);
	fputs(" has:", stderr);
	for (size_t i = 0; i < n->num_verbs; i++)
		fprintf(stderr, " %s", cli_verb_at(n, i)->name);
	fputc('\n', stderr);
}

static void refuse_verb(const struct cli_noun *n, const char *name)
{
	struct suggestion s = {.word = name};
	char prefix[64];

	for (size_t i = 0; i < n->num_verbs; i++)
		suggest_consider(&s, cli_verb_at(n, i)->name);
	suggest_consider(&s, "--help");
	snprintf(prefix, sizeof(prefix), "%s%s", n->call, *n->call ? " " : "");
	suggest_complain(&s, "command", prefix);
	if (!s.best)
		list_verbs(n);
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Returns the verb of argv[1], and in *skip how many words of argv are before its options. NULL: over, with *rc. */
static const struct cli_verb *choose_verb(const struct cli_noun *n, int argc, char **argv,
					  int *skip, int *rc)
{
	const struct cli_verb *v;

	*skip = 0;
	if (!cli_has_verbs(n))
		return n->verbs;
	if (argc > 1 && is_help(argv[1])) {
		cli_print_help(n, NULL);
		*rc = EXIT_OK;
		return NULL;
	}
	if (n->default_verb && (argc < 2 || argv[1][0] == '-'))
		return cli_find_verb(n, n->default_verb);
	*rc = EXIT_USAGE;
	if (argc < 2) {
		complain("'%s' needs a verb", n->call);
		list_verbs(n);
		return NULL;
	}
	v = cli_find_verb(n, argv[1]);
	if (!v)
		refuse_verb(n, argv[1]);
	*skip = 1;
	last.verb = v;
	return v;
}

/* ---- options ---- */

struct parser {
	const struct cli_noun *noun;
	const struct cli_verb *verb;
	struct option *table; /* of getopt_long(); val - FIRST_OPTION is the row */
	char letters[64];
	char call[64];
};

static const struct cli_option *row_of(const struct parser *p, int val)
{
	if (val >= FIRST_OPTION)
		return &p->noun->options[val - FIRST_OPTION];
	for (const struct cli_option *o = p->noun->options; !cli_is_end(o); o++)
		if (o->letter && o->letter == val && cli_verb_has(p->verb, o))
			return o;
	return NULL;
}

static void add_option(struct option **to, const char *name, const struct cli_option *o, int row)
{
	if (name)
		*(*to)++ = (struct option){name, o->value ? required_argument : no_argument, NULL,
					   FIRST_OPTION + row};
}

static void add_letter(struct parser *p, const struct cli_option *o)
{
	size_t n = strlen(p->letters);

	if (o->letter)
		snprintf(p->letters + n, sizeof(p->letters) - n, "%c%s", o->letter,
			 o->value ? ":" : "");
}

/* Has the options of the verb only, so that those of other verbs do not make an abbreviation ambiguous. */
static bool make_table(struct parser *p)
{
	const struct cli_option *options = p->noun->options;
	struct option *to;
	size_t n = 0;

	while (!cli_is_end(&options[n]))
		n++;
	p->table = to = calloc(2 * n + 2, sizeof(*to));
	if (!to) {
		complain("out of memory");
		return false;
	}
	/* ':': getopt_long() reports a missing value as ':', and prints nothing */
	snprintf(p->letters, sizeof(p->letters), "%s:h", p->verb->program ? "+" : "");
	for (size_t i = 0; i < n; i++) {
		if (!cli_verb_has(p->verb, &options[i]))
			continue;
		add_option(&to, options[i].name, &options[i], (int)i);
		add_option(&to, options[i].alias, &options[i], (int)i);
		add_letter(p, &options[i]);
	}
	*to = (struct option){"help", no_argument, NULL, 'h'};
	return true;
}

static void refuse_option(const struct parser *p, const char *arg)
{
	char name[64];
	struct suggestion s = {.word = name};

	if (arg[1] != '-') {
		complain("'%s' has no option '%s'", p->call, arg);
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
	for (const struct cli_option *o = p->noun->options; !cli_is_end(o); o++)
		if (cli_verb_has(p->verb, o))
			suggest_consider(&s, o->name);
	suggest_consider(&s, "help");
	if (s.best)
		complain("'%s' has no option '--%s'; did you mean '--%s'?", p->call, name, s.best);
	else
		complain("'%s' has no option '--%s'", p->call, name);
}

/* Returns as getopt_long(), but '?' has been explained in our words. */
static int next_option(const struct parser *p, int argc, char **argv)
{
	const struct cli_option *o;
	int c, before = optind ? optind : 1;

	opterr = 0;
	c = getopt_long(argc, argv, p->letters, p->table, NULL);
	o = c == ':' || (c == '?' && optopt) ? row_of(p, optopt) : NULL;
	if (c == ':')
		complain("--%s of '%s' needs a value", o ? o->name : argv[optind - 1] + 2, p->call);
	else if (c == '?' && o)
		complain("--%s of '%s' takes no value", o->name, p->call);
	else if (c == '?')
		refuse_option(p, argv[optind > before ? optind - 1 : optind]);
	return c == ':' ? '?' : c;
}

/* Returns false if the command is over, with *rc. */
static bool parse_option(const struct parser *p, int c, void *to, int *rc)
{
	*rc = EXIT_USAGE;
	if (c == '?')
		return false;
	if (c == 'h') {
		cli_print_help(p->noun, p->verb);
		*rc = EXIT_OK;
		return false;
	}
	return cli_store_value(to, row_of(p, c), optarg);
}

/* ---- arguments ---- */

/* Finds the placeholder of the first argument that is missing. */
static void refuse_few(const struct parser *p, int given)
{
	const char *at = p->verb->args;
	struct cli_token t;

	while (cli_next_token(p->noun, &at, &t) && (t.option || !t.needed || given-- > 0))
		;
	complain("'%s' needs %s; usage: %s %.*s", p->call, t.placeholder, p->call,
		 (int)strcspn(p->verb->args, "\n"), p->verb->args);
}

static bool check_arguments(const struct parser *p, int argc, char **argv)
{
	int least, most, given = argc - optind;

	cli_count_arguments(p->noun, p->verb, &least, &most);
	if (given < least)
		refuse_few(p, given);
	else if (given > most)
		complain("'%s' takes no argument '%s'%s%s", p->call, argv[optind + most],
			 p->verb->excess ? "; " : "", p->verb->excess ? p->verb->excess : "");
	return given >= least && given <= most;
}

static bool parse_words(struct parser *p, int argc, char **argv, void *to, int *rc)
{
	bool good = make_table(p);
	int c;

	*rc = EXIT_FAILED;
	optind = 0; /* there may have been other command lines before */
	while (good && (c = next_option(p, argc, argv)) != -1)
		good = parse_option(p, c, to, rc);
	free(p->table);
	if (!good)
		return false;
	*rc = EXIT_USAGE;
	return check_arguments(p, argc, argv);
}

/* Is --json among the words? Errors in the other words are reported as JSON, too. */
static bool wants_json(const struct cli_noun *n, int argc, char **argv)
{
	bool has = false;

	for (const struct cli_option *o = n->options; !cli_is_end(o); o++)
		has = has || (o->name && strcmp(o->name, "json") == 0);
	for (int i = 1; has && i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

bool cli_parse(const struct cli_noun *n, int argc, char **argv, void *to, struct cli_call *call,
	       int *rc)
{
	struct parser p = {.noun = n};
	int skip;

	assert(cli_is_valid(n));
	last.noun = n;
	last.verb = NULL;
	if (wants_json(n, argc, argv))
		complain_as_json();
	p.verb = choose_verb(n, argc, argv, &skip, rc);
	if (!p.verb)
		return false;
	call_of(n, p.verb, p.call);
	if (!parse_words(&p, argc - skip, argv + skip, to, rc))
		return false;
	*call = (struct cli_call){
		.verb = p.verb, .args = argv + skip + optind, .num_args = argc - skip - optind};
	return true;
}
