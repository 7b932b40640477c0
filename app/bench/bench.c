// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench.c - stag-bench, the program behind `stag bench`: its command line.
 */
#include "bench.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "part.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag bench [OPTION]...\n"
	"       stag bench all [OPTION]...\n"
	"       stag bench verbs [OPTION]...\n"
	"       stag bench xfer [OPTION]...\n"
	"       stag bench heap [OPTION]...\n"
	"       stag bench store [OPTION]...\n"
	"       stag bench block [OPTION]...\n"
	"       stag bench pool [OPTION]...\n"
	"       stag bench compare OLD.json NEW.json [OPTION]...\n"
	"       stag bench page RESULT.json FILE.html\n"
	"       stag bench part NAME [WORD]...\n\n"
	"Measures parts of stag on this machine, each beside its yardsticks in the same run.\n"
	"Several may be named: stag bench verbs pool. Without a name, all are measured.\n\n"
	"  --quick              fewer cases and short passes: about a minute for all\n"
	"  --secs S             of one measurement (0.5; quick 0.1)\n"
	"  --passes N           over each case; ours and the yardsticks take turns (5; quick 3)\n"
	"  --case PATTERN       only the cases that a pattern of the shell matches; may repeat\n"
	"  --list               name the cases and their yardsticks, and end\n"
	"  --json               print all there is, for programs\n"
	"  --tsv                print a line for each case and yardstick, for programs\n"
	"  --output FILE        write the JSON there, besides\n"
	"  --html FILE          write a page with tables and plots there, besides\n"
	"  --congestion NAME    of the private network that it runs in (reno); inherit: use the\n"
	"                       machine's own network\n"
	"  --dir DIRECTORY      where files that are to be on a disk are made (TMPDIR, or "
	"/var/tmp)\n"
	"  --fail               exit with 1 if something got worse beyond noise\n"
	"  --noise PERCENT      counts as no change, at the least (5)\n"
	"  --by ratio|value     compare the ratios to a yardstick, or the figures (ratio)\n"
	"  -h, --help\n\n"
	"  stag bench --quick --html bench.html\n"
	"  stag bench compare old.json new.json --fail\n";

/* ---- parts ------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	bool adapter; /* it wants the software adapter from the start */
} parts[] = {
	{"tcp", part_tcp, false},   {"verbs", part_verbs, true}, {"xfer", part_xfer, false},
	{"heap", part_heap, false}, {"pool", part_pool, true},	 {"object", part_object, false},
	{"file", part_file, false},
};

/* ---- options ------------------------------------------------------------------------------------- */

struct words {
	struct suite_options run;
	struct compare_options compare;
	bool list;
};

enum {
	OPT_QUICK = VERB_OPTION,
	OPT_SECS,
	OPT_PASSES,
	OPT_CASE,
	OPT_LIST,
	OPT_JSON,
	OPT_TSV,
	OPT_OUTPUT,
	OPT_HTML,
	OPT_CONGESTION,
	OPT_DIRECTORY,
	OPT_FAIL,
	OPT_NOISE,
	OPT_BY,
};

static const struct option long_options[] = {
	{"quick", no_argument, NULL, OPT_QUICK},
	{"secs", required_argument, NULL, OPT_SECS},
	{"passes", required_argument, NULL, OPT_PASSES},
	{"case", required_argument, NULL, OPT_CASE},
	{"list", no_argument, NULL, OPT_LIST},
	{"json", no_argument, NULL, OPT_JSON},
	{"tsv", no_argument, NULL, OPT_TSV},
	{"output", required_argument, NULL, OPT_OUTPUT},
	{"html", required_argument, NULL, OPT_HTML},
	{"congestion", required_argument, NULL, OPT_CONGESTION},
	{"dir", required_argument, NULL, OPT_DIRECTORY},
	{"directory", required_argument, NULL, OPT_DIRECTORY},
	{"fail", no_argument, NULL, OPT_FAIL},
	{"noise", required_argument, NULL, OPT_NOISE},
	{"by", required_argument, NULL, OPT_BY},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static bool number(const char *option, const char *text, double least, double most, double *to)
{
	char *end;

	*to = strtod(text, &end);
	if (*end == '\0' && end != text && *to >= least && *to <= most)
		return true;
	complain("--%s wants a number from %g to %g, not '%s'", option, least, most, text);
	return false;
}

static bool add_pattern(struct suite_options *o, const char *pattern)
{
	if (o->num_patterns == sizeof(o->patterns) / sizeof(*o->patterns)) {
		complain("too many --case");
		return false;
	}
	o->patterns[o->num_patterns++] = pattern;
	return true;
}

static bool choose_by(struct compare_options *o, const char *text)
{
	o->by_value = strcmp(text, "value") == 0;
	if (o->by_value || strcmp(text, "ratio") == 0)
		return true;
	complain("--by wants ratio or value, not '%s'", text);
	return false;
}

static bool take_number(struct words *w, int name, const char *text)
{
	double v;

	switch (name) {
	case OPT_SECS:
		return number("secs", text, 0.001, 60, &w->run.secs);
	case OPT_PASSES:
		if (!number("passes", text, 1, SUITE_PASSES, &v))
			return false;
		w->run.passes = (unsigned int)v;
		return true;
	default:
		return number("noise", text, 0, 1000, &w->compare.noise);
	}
}

static bool take(void *to, int name, char *text)
{
	struct words *w = to;

	switch (name) {
	case OPT_QUICK:
		w->run.quick = true;
		return true;
	case OPT_CASE:
		return add_pattern(&w->run, text);
	case OPT_LIST:
		w->list = true;
		return true;
	case OPT_JSON:
		w->run.show = SHOW_JSON;
		w->compare.json = true;
		return true;
	case OPT_TSV:
		w->run.show = SHOW_TSV;
		return true;
	case OPT_OUTPUT:
		w->run.json_file = text;
		return true;
	case OPT_HTML:
		w->run.html = text;
		return true;
	case OPT_CONGESTION:
		w->run.congestion = text;
		return true;
	case OPT_DIRECTORY:
		w->run.directory = text;
		return true;
	case OPT_FAIL:
		return w->compare.fail = true;
	case OPT_BY:
		return choose_by(&w->compare, text);
	default:
		return take_number(w, name, text);
	}
}

static const struct verb_options options = {long_options, take};

#define RUN_OPTIONS                                                                                \
	(VERB_BIT(OPT_QUICK) | VERB_BIT(OPT_SECS) | VERB_BIT(OPT_PASSES) | VERB_BIT(OPT_CASE) |    \
	 VERB_BIT(OPT_LIST) | VERB_BIT(OPT_JSON) | VERB_BIT(OPT_TSV) | VERB_BIT(OPT_OUTPUT) |      \
	 VERB_BIT(OPT_HTML) | VERB_BIT(OPT_CONGESTION) | VERB_BIT(OPT_DIRECTORY))

/* ---- what is to be done -------------------------------------------------------------------------------- */

/* argv[0]: "part", then its name; behind "bench" */
static int run_part(const struct command *self, const struct verb *v, int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(parts) / sizeof(*parts); i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		if (parts[i].adapter && preload_self(argc + 1, argv - 1) != 0)
			return EXIT_FAILED;
		return parts[i].run(argc - 1, argv + 1);
	}
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		verb_parse(self, v, &options, NULL, argc, argv, &argc);
		return EXIT_OK;
	}
	complain("stag bench part wants tcp, verbs, xfer, heap, pool, object or file");
	return usage_error(self);
}

static int run_compare(const struct command *self, const struct verb *v, int argc, char **argv)
{
	struct words w = {.compare.noise = 5};
	int rc;

	if (!verb_parse(self, v, &options, &w, argc, argv, &rc))
		return rc;
	w.compare.before = argv[optind];
	w.compare.after = argv[optind + 1];
	return compare_run(&w.compare);
}

static int run_page(const struct command *self, const struct verb *v, int argc, char **argv)
{
	json_t *result;
	int rc;

	if (!verb_parse(self, v, &options, NULL, argc, argv, &rc))
		return rc;
	result = result_load(argv[optind]);
	rc = result && page_write(result, argv[optind + 1]) == 0 ? EXIT_OK : EXIT_FAILED;
	json_decref(result);
	return rc;
}

static bool take_noun(struct suite_options *o, const char *word)
{
	if (!suite_is_noun(word)) {
		complain("no benchmark '%s': verbs, xfer, heap, store, block, pool or all", word);
		return false;
	}
	o->nouns[o->num_nouns++] = word;
	return true;
}

static int run_suite(const struct command *self, const struct verb *v, int argc, char **argv)
{
	struct words w = {.run.congestion = "reno"};
	int rc;

	if (!verb_parse(self, v, &options, &w, argc, argv, &rc))
		return rc;
	take_noun(&w.run, v->name);
	for (int i = optind; i < argc; i++)
		if (!take_noun(&w.run, argv[i]))
			return usage_error(self);
	if (w.run.html && !w.list && !page_available())
		return EXIT_FAILED;
	if (w.run.passes == 0)
		w.run.passes = w.run.quick ? 3 : 5;
	if (w.run.secs == 0)
		w.run.secs = w.run.quick ? 0.1 : 0.5;
	return w.list ? suite_list(&w.run) : suite_run(&w.run);
}

#define NOUN(name, does)                                                                           \
	{                                                                                          \
		{name,                                                                             \
		 "no more than the names of other benchmarks",                                     \
		 0,                                                                                \
		 6,                                                                                \
		 RUN_OPTIONS,                                                                      \
		 does,                                                                             \
		 "stag bench " name " --quick"},                                                   \
			run_suite                                                                  \
	}

static const struct bench_verb {
	struct verb verb;
	int (*run)(const struct command *self, const struct verb *v, int argc, char **argv);
} verbs[] = {
	NOUN("all", "Measures every part of stag beside its yardsticks."),
	NOUN("verbs", "Measures the software adapter beside raw TCP and libfabric."),
	NOUN("xfer", "Measures the transfer manager beside posting by hand."),
	NOUN("heap",
	     "Measures the registered heap beside malloc, Boost.Interprocess and registering."),
	NOUN("store", "Measures the store, near and far, beside plain reads and writes, fio, "
		      "nbdkit and TCP."),
	NOUN("block", "Measures the block target beside tgt, nbdkit and raw TCP."),
	NOUN("pool", "Measures replicated memory beside redis and memcached."),
	{{"compare", "two results of 'stag bench --json'", 2, 2,
	  VERB_BIT(OPT_FAIL) | VERB_BIT(OPT_NOISE) | VERB_BIT(OPT_BY) | VERB_BIT(OPT_JSON),
	  "Says what changed between two results, and what is only noise.",
	  "stag bench compare old.json new.json --fail"},
	 run_compare},
	{{"page", "a result of 'stag bench --json', and a file to write", 2, 2, 0,
	  "Makes the page with tables and plots of a result.",
	  "stag bench page result.json bench.html"},
	 run_page},
	{{"part", "tcp, verbs, xfer, heap, pool, object or file", 1, 99, 0,
	  "Runs one measurement, or one side of it, by itself: tcp, verbs, xfer, heap, pool, "
	  "object\n"
	  "or file. What words each wants is in stag-bench(1).",
	  "stag bench part xfer --listen 192.0.2.1"},
	 run_part},
};

static int bench(const struct command *self, int argc, char **argv)
{
	const struct bench_verb *v = &verbs[0];
	int rc;

	if (argc < 2 || (argv[1][0] == '-' && strcmp(argv[1], "-h") && strcmp(argv[1], "--help")))
		return v->run(self, &v->verb, argc, argv);
	if (!verb_given(self, "", argc, argv, &rc))
		return rc;
	v = verb_find(self, argv[1], verbs, sizeof(verbs) / sizeof(*verbs), sizeof(*verbs));
	return v ? v->run(self, &v->verb, argc - 1, argv + 1) : EXIT_USAGE;
}

const struct command bench_command = {.name = "bench", .help = help_text, .run = bench};

int main(int argc, char **argv)
{
	return helper_main(&bench_command, argc, argv);
}
