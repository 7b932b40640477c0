// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench.c - stag-bench, the program behind `stag bench`: its command line.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "part.h"
#include "stag.h"

#define BENCHMARKS "all verbs xfer heap store block pool"
#define PARTS	   "tcp verbs xfer heap pool object file"

struct bench_words {
	struct suite_options suite;
	struct compare_options compare;
	bool list, json, tsv;
	const char *by;
};

/* ---- what the verbs do ---- */

struct part {
	const char *name;
	int (*run)(int argc, char **argv);
	bool adapter; /* the software adapter has to be in the process from the start */
};

static const struct part *find_part(const char *name)
{
	static const struct part parts[] = {
		{"tcp", part_tcp, false},   {"verbs", part_verbs, true},
		{"xfer", part_xfer, false}, {"heap", part_heap, false},
		{"pool", part_pool, true},  {"object", part_object, false},
		{"file", part_file, false},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
	return NULL;
}

/* argv is {"bench", "part", NAME, WORD...}. */
static int run_part(const struct part *part, int argc, char **argv)
{
	if (part->adapter && preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	return part->run(argc - 2, argv + 2);
}

static int refuse_part(const char *name)
{
	complain("no part '%s': must be tcp, verbs, xfer, heap, pool, object or file", name);
	return EXIT_USAGE;
}

static int run_compare(struct bench_words *w, char **args)
{
	w->compare.before = args[0];
	w->compare.after = args[1];
	w->compare.by_value = strcmp(w->by, "value") == 0;
	w->compare.json = w->json;
	return compare_run(&w->compare);
}

static int write_page(const char *file, const char *html)
{
	json_t *result = result_load(file);
	int rc = result && page_write(result, html) == 0 ? EXIT_OK : EXIT_FAILED;

	json_decref(result);
	return rc;
}

static bool add_benchmark(struct suite_options *o, const char *name)
{
	if (!suite_is_noun(name)) {
		complain("no benchmark '%s': must be verbs, xfer, heap, store, block, pool or all",
			 name);
		return false;
	}
	if (o->num_nouns == sizeof(o->nouns) / sizeof(*o->nouns)) {
		complain("too many benchmarks; 'all' measures all of them");
		return false;
	}
	o->nouns[o->num_nouns++] = name;
	return true;
}

static int run_benchmarks(struct bench_words *w, const struct cli_call *call)
{
	struct suite_options *o = &w->suite;

	if (!add_benchmark(o, call->verb->name))
		return EXIT_USAGE;
	for (int i = 0; i < call->num_args; i++)
		if (!add_benchmark(o, call->args[i]))
			return EXIT_USAGE;
	if (o->html && !w->list && !page_available())
		return EXIT_FAILED;
	if (o->passes == 0)
		o->passes = o->quick ? 3 : 5;
	if (o->secs == 0)
		o->secs = o->quick ? 0.1 : 0.5;
	o->show = w->json ? SHOW_JSON : w->tsv ? SHOW_TSV : SHOW_TABLE;
	return w->list ? suite_list(o) : suite_run(o);
}

/* ---- the command line ---- */

static bool parse_case(void *to, const struct cli_option *option, char *text)
{
	struct suite_options *o = &((struct bench_words *)to)->suite;

	if (o->num_patterns == sizeof(o->patterns) / sizeof(*o->patterns)) {
		complain("too many --case; a pattern such as 'read_*' names several cases");
		return false;
	}
	o->patterns[o->num_patterns++] = text;
	return true;
}

static bool parse_noise(void *to, const struct cli_option *option, char *text)
{
	double *noise = &((struct bench_words *)to)->compare.noise;
	char *end;

	*noise = strtod(text, &end);
	if (*end == '\0' && end != text && *noise >= 0 && *noise <= 1000)
		return true;
	complain("--noise must be a percentage from 0 to 1000, not '%s'", text);
	return false;
}

static const struct cli_option bench_table[] = {
	{"quick", .verbs = BENCHMARKS, .common = true, CLI_FLAG_AT(struct bench_words, suite.quick),
	 .help = "fewer cases and short passes: about a minute for all"},
	{"secs", .value = "S", .verbs = BENCHMARKS, .common = true,
	 CLI_SECONDS_AT(struct bench_words, suite.secs, 0.001, 60),
	 .help = "seconds of one measurement (0.5; with --quick 0.1)"},
	{"passes", .value = "N", .verbs = BENCHMARKS, .common = true,
	 CLI_NUMBER_AT(struct bench_words, suite.passes, 1, SUITE_PASSES),
	 .help = "passes over each case; stag and the yardsticks take turns (5; with --quick 3)"},
	{"case", .value = "PATTERN", .verbs = BENCHMARKS, .common = true, .repeats = true,
	 .parse = parse_case, .help = "only the cases that match this shell pattern; may repeat"},
	{"list", .verbs = BENCHMARKS, .common = true, CLI_FLAG_AT(struct bench_words, list),
	 .help = "list the cases and their yardsticks, and end"},
	{"json", .verbs = BENCHMARKS " compare", CLI_FLAG_AT(struct bench_words, json),
	 .help = "print the whole result, for programs"},
	{"tsv", .verbs = BENCHMARKS, .common = true, CLI_FLAG_AT(struct bench_words, tsv),
	 .help = "print a line for each case and yardstick, for programs"},
	{"output", .value = "FILE", .verbs = BENCHMARKS, .common = true,
	 CLI_FILE_AT(struct bench_words, suite.json_file), .help = "also write the JSON to FILE"},
	{"html", .value = "FILE", .verbs = BENCHMARKS, .common = true,
	 CLI_FILE_AT(struct bench_words, suite.html),
	 .help = "also write a page with tables and plots to FILE"},
	{"congestion", .value = "NAME", .verbs = BENCHMARKS, .common = true,
	 CLI_TEXT_AT(struct bench_words, suite.congestion), .words = "reno cubic inherit",
	 .help = "congestion control of the private network that it runs in (reno); inherit: use "
		 "the machine's own network"},
	{"dir", .alias = "directory", .value = "DIRECTORY", .verbs = BENCHMARKS, .common = true,
	 CLI_DIRECTORY_AT(struct bench_words, suite.directory),
	 .help = "where files that have to be on a disk are made (TMPDIR, or /var/tmp)"},
	{"fail", .verbs = "compare", CLI_FLAG_AT(struct bench_words, compare.fail),
	 .help = "exit with 1 if a case got worse beyond noise"},
	{"noise", .value = "PERCENT", .verbs = "compare", .parse = parse_noise,
	 .help = "changes up to this are noise (5)"},
	{"by", .value = "ratio|value", .verbs = "compare",
	 CLI_WORD_AT(struct bench_words, by, "ratio value"),
	 .help = "compare the ratios to a yardstick, or the figures (ratio)"},
	{0},
};

static const struct bench_verb {
	struct cli_verb cli;
} bench_verbs[] = {
	{{"all", .args = "[BENCHMARK]...",
	  .summary = "Measures every part of stag beside its yardsticks.",
	  .example = "stag bench all --quick"}},
	{{"verbs", .args = "[BENCHMARK]...",
	  .summary = "Measures the software adapter beside raw TCP and libfabric.",
	  .example = "stag bench verbs --quick"}},
	{{"xfer", .args = "[BENCHMARK]...",
	  .summary = "Measures the transfer manager beside work requests posted by hand.",
	  .example = "stag bench xfer --quick"}},
	{{"heap", .args = "[BENCHMARK]...",
	  .summary = "Measures the registered heap beside malloc, Boost.Interprocess and "
		     "registering each time.",
	  .example = "stag bench heap --quick"}},
	{{"store", .args = "[BENCHMARK]...",
	  .summary = "Measures the store, near and far, beside plain reads and writes, fio, nbdkit "
		     "and TCP.",
	  .example = "stag bench store --quick"}},
	{{"block", .args = "[BENCHMARK]...",
	  .summary = "Measures the block target beside tgt, nbdkit and raw TCP.",
	  .example = "stag bench block --quick"}},
	{{"pool", .args = "[BENCHMARK]...",
	  .summary = "Measures replicated memory beside redis and memcached.",
	  .example = "stag bench pool --quick"}},
	{{"compare", .args = "OLD NEW",
	  .summary = "Compares two results, and says which changes are only noise.",
	  .example = "stag bench compare old.json new.json --fail"}},
	{{"page", .args = "RESULT FILE",
	  .summary = "Writes the page with tables and plots of a result.",
	  .example = "stag bench page result.json bench.html"}},
	{{"part", .args = "PART [WORD]...",
	  .summary = "Runs one measurement, or one side of it, by itself. stag-bench(1) says which "
		     "words each part takes.",
	  .example = "stag bench part xfer --listen 192.0.2.1"}},
};

static const struct cli_argument bench_arguments[] = {
	{"BENCHMARK", "a further benchmark: 'stag bench verbs pool'", .words = BENCHMARKS},
	{"OLD", "a result of --json or --output", .type = CLI_FILE},
	{"NEW", "a later one", .type = CLI_FILE},
	{"RESULT", "a result of --json or --output", .type = CLI_FILE},
	{"FILE", "the page to write", .type = CLI_FILE},
	{"PART", "tcp, verbs, xfer, heap, pool, object or file", .words = PARTS},
	{0},
};

static const struct cli_noun bench_noun = {
	.call = "stag bench",
	.name = "bench",
	.summary = "measure every part of stag beside its yardsticks",
	.about = "Measures parts of stag on this machine, each beside its yardsticks in the same "
		 "run. Several may be named: stag bench verbs pool. Without a name, all are "
		 "measured.",
	.examples = "stag bench --quick --html bench.html\n"
		    "stag bench compare old.json new.json --fail",
	CLI_VERBS(bench_verbs),
	.default_verb = "all",
	.options = bench_table,
	.arguments = bench_arguments,
};

static int run_bench(const struct command *self, int argc, char **argv)
{
	struct bench_words w = {.suite.congestion = "reno", .compare.noise = 5, .by = "ratio"};
	const struct part *part;
	struct cli_call call;
	const char *verb;
	int rc;

	/* a part parses its own options */
	part = argc > 2 && strcmp(argv[1], "part") == 0 ? find_part(argv[2]) : NULL;
	if (part)
		return run_part(part, argc, argv);
	if (!cli_parse(&bench_noun, argc, argv, &w, &call, &rc))
		return rc;
	verb = call.verb->name;
	if (strcmp(verb, "part") == 0)
		return refuse_part(call.args[0]);
	if (strcmp(verb, "compare") == 0)
		return run_compare(&w, call.args);
	if (strcmp(verb, "page") == 0)
		return write_page(call.args[0], call.args[1]);
	return run_benchmarks(&w, &call);
}

int main(int argc, char **argv)
{
	static const struct command bench_command = {.noun = &bench_noun, .run = run_bench};

	return helper_main(&bench_command, argc, argv);
}
