// SPDX-License-Identifier: BSD-2-Clause
/*
 * suite.c - a run: selects the cases, measures them in order, shows progress, and prints and saves
 * the result.
 */
#include "bench.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "progress.h"
#include "stag.h"

static const struct suite_noun *const nouns[] = {&suite_verbs, &suite_xfer,  &suite_heap,
						 &suite_store, &suite_block, &suite_pool};

#define N_NOUNS (sizeof(nouns) / sizeof(*nouns))

bool suite_is_noun(const char *word)
{
	for (size_t i = 0; i < N_NOUNS; i++)
		if (strcmp(nouns[i]->name, word) == 0)
			return true;
	return strcmp(word, "all") == 0;
}

/* ---- cases ---- */

static bool is_noun_selected(const struct suite_options *o, const char *name)
{
	for (unsigned int i = 0; i < o->num_nouns; i++)
		if (strcmp(o->nouns[i], name) == 0 || strcmp(o->nouns[i], "all") == 0)
			return true;
	return o->num_nouns == 0;
}

/* A pattern matches the name of the case, alone or after its noun: verbs/write_lat. */
static bool matches_pattern(const char *pattern, const char *noun, const char *name)
{
	char full[80];

	snprintf(full, sizeof(full), "%s/%s", noun, name);
	return fnmatch(pattern, name, 0) == 0 || fnmatch(pattern, full, 0) == 0;
}

/* A case that was named is measured in a short run, too. */
static bool is_case_selected(const struct suite_options *o, const char *noun, const char *name,
			     bool quick)
{
	for (unsigned int i = 0; i < o->num_patterns; i++)
		if (matches_pattern(o->patterns[i], noun, name))
			return true;
	return o->num_patterns == 0 && (quick || !o->quick);
}

struct suite_case *suite_add(struct suite *s, const struct suite_noun *noun, const char *name,
			     bool quick)
{
	struct suite_case *more, *c;

	if (!is_case_selected(&s->o, noun->name, name, quick))
		return NULL;
	more = realloc(s->cases, (s->num_cases + 1) * sizeof(*more));
	if (!more)
		return NULL;
	s->cases = more;
	c = &more[s->num_cases++];
	*c = (struct suite_case){.noun = noun};
	snprintf(c->name, sizeof(c->name), "%s", name);
	suite_yardstick(c, "stag", "");
	return c;
}

bool suite_wants(const struct suite *s, const struct suite_noun *noun, const char *pattern)
{
	for (unsigned int i = 0; i < s->num_cases; i++)
		if (s->cases[i].noun == noun && fnmatch(pattern, s->cases[i].name, 0) == 0)
			return true;
	return false;
}

void suite_yardstick(struct suite_case *c, const char *name, const char *what)
{
	struct suite_series *y;

	if (!c->series)
		c->series = calloc(SUITE_SERIES, sizeof(*c->series));
	if (!c->series || c->num_series == SUITE_SERIES)
		return;
	y = &c->series[c->num_series++];
	y->name = name;
	snprintf(y->what, sizeof(y->what), "%s", what);
}

struct suite_series *suite_find(struct suite_case *c, const char *name)
{
	for (unsigned int i = 0; i < c->num_series; i++)
		if (strcmp(c->series[i].name, name) == 0)
			return &c->series[i];
	return NULL;
}

void suite_missing(struct suite *s, const struct suite_noun *noun, const char *yardstick,
		   const char *install, const char *fmt, ...)
{
	char why[192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	for (unsigned int i = 0; i < s->num_cases; i++) {
		struct suite_series *y =
			s->cases[i].noun == noun ? suite_find(&s->cases[i], yardstick) : NULL;

		if (!y)
			continue;
		snprintf(y->missing, sizeof(y->missing), "%s", why);
		snprintf(y->install, sizeof(y->install), "%s", install ? install : "");
	}
}

void suite_failed(struct suite_case *c, const char *why)
{
	snprintf(c->error, sizeof(c->error), "%s", why);
}

void suite_turns(struct suite *s, struct suite_case *c, unsigned int pass,
		 bool (*take)(struct suite *s, struct suite_case *c, unsigned int series,
			      struct suite_sample *to))
{
	for (unsigned int i = 0; i < c->num_series && !child_interrupted; i++) {
		unsigned int n = pass % 2 ? c->num_series - 1 - i : i;
		struct suite_series *y = &c->series[n];
		struct suite_sample *to = &y->samples[pass];

		if (*y->missing)
			continue;
		to->cpu_us = to->server_us = -1;
		to->taken = take(s, c, n, to);
		if (to->taken || child_interrupted)
			continue;
		if (n == 0)
			suite_failed(c, child_complaint());
		else
			snprintf(y->missing, sizeof(y->missing), "gave no figure: %.160s",
				 child_complaint());
	}
}

/* ---- progress ---- */

static struct progress progress;
static unsigned int steps_done, steps_all;

/* Extrapolates the total time from the steps done so far. */
static void show_progress(const struct suite *s, const struct suite_case *c, unsigned int pass)
{
	uint64_t past = clock_ns() - s->began;
	char note[96];

	if (steps_done * 50 > steps_all)
		progress.total = past / steps_done * steps_all;
	snprintf(note, sizeof(note), "%s %s, pass %u of %u", c->noun->name, c->name, pass + 1,
		 s->o.passes);
	progress_show(&progress, past, note);
}

/* ---- the run ---- */

static void on_interrupt(int sig)
{
	child_interrupted = sig;
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void measure_noun(struct suite *s, const struct suite_noun *noun)
{
	if (!suite_wants(s, noun, "*"))
		return;
	if (noun->begin && !child_interrupted)
		noun->begin(s);
	for (unsigned int pass = 0; pass < s->o.passes; pass++)
		for (unsigned int i = 0; i < s->num_cases && !child_interrupted; i++) {
			struct suite_case *c = &s->cases[i];

			if (c->noun != noun)
				continue;
			s->noun = noun;
			s->pass = pass;
			show_progress(s, c, pass);
			if (!*c->error)
				noun->measure(s, c, pass);
			steps_done++;
		}
	child_stop_all();
}

static int list_cases(struct suite *s)
{
	for (size_t i = 0; i < N_NOUNS; i++)
		if (is_noun_selected(&s->o, nouns[i]->name))
			nouns[i]->list(s);
	if (s->num_cases)
		return EXIT_OK;
	complain("no such case; 'stag bench --list' names them");
	return EXIT_USAGE;
}

static void free_cases(struct suite *s)
{
	for (unsigned int i = 0; i < s->num_cases; i++) {
		struct suite_case *c = &s->cases[i];

		for (unsigned int k = 0; k < c->num_series; k++)
			for (unsigned int p = 0; p < SUITE_PASSES; p++)
				json_decref(c->series[k].samples[p].latency);
		free(c->series);
	}
	free(s->cases);
	json_decref(s->programs);
}

int suite_list(const struct suite_options *o)
{
	struct suite s = {.o = *o};
	int rc = list_cases(&s);

	for (unsigned int i = 0; i < s.num_cases; i++) {
		const struct suite_case *c = &s.cases[i];

		printf("%s/%s\t%s\t", c->noun->name, c->name, c->what);
		for (unsigned int k = 1; k < c->num_series; k++)
			printf("%s%s", k > 1 ? ", " : "", c->series[k].name);
		putchar('\n');
	}
	free_cases(&s);
	return rc;
}

/* Writes all digits, so that a page made from the file later is the same. */
static int dump_json(const json_t *result, FILE *to)
{
	int rc = json_dumpf(result, to, JSON_INDENT(2));

	fputc('\n', to);
	return rc;
}

static int save_json(const json_t *result, const char *file)
{
	FILE *to = fopen(file, "w");
	int rc = to ? dump_json(result, to) : -1;

	if (to && fclose(to) != 0)
		rc = -1;
	if (rc != 0)
		complain("cannot write %s: %s", file, strerror(errno));
	return rc;
}

/* Prints each error once, with the first case that had it. Returns true if there are any. */
static bool print_errors(const struct suite *s)
{
	const char *last = "";

	for (unsigned int i = 0; i < s->num_cases; i++) {
		const struct suite_case *c = &s->cases[i];

		if (*c->error && strcmp(c->error, last) != 0)
			complain("%s %s gave no figure: %s", c->noun->name, c->name, c->error);
		if (*c->error)
			last = c->error;
	}
	return *last;
}

/* Returns an exit code. */
static int print_result(const struct suite *s, const json_t *result)
{
	int rc = EXIT_OK;

	if (s->o.show == SHOW_JSON)
		dump_json(result, stdout);
	else if (s->o.show == SHOW_TSV)
		report_tsv(result, stdout);
	else
		report_table(result, stdout);
	fflush(stdout);
	if (s->o.json_file && save_json(result, s->o.json_file) != 0)
		rc = EXIT_FAILED;
	if (s->o.html && page_write(result, s->o.html) != 0)
		rc = EXIT_FAILED;
	if (print_errors(s))
		rc = EXIT_FAILED;
	return rc;
}

static int run_all(struct suite *s)
{
	json_t *result;
	int rc;

	if (place_make(s) != 0)
		return EXIT_FAILED;
	steps_done = 0;
	steps_all = s->num_cases * s->o.passes;
	s->began = clock_ns();
	machine_watch();
	progress_begin(&progress, "bench", PROGRESS_TIME, 0);
	for (size_t i = 0; i < N_NOUNS; i++)
		measure_noun(s, nouns[i]);
	progress_end(&progress);
	child_stop_all();
	if (child_interrupted) {
		complain("interrupted");
		return 128 + child_interrupted;
	}
	result = result_make(s);
	rc = print_result(s, result);
	json_decref(result);
	return rc;
}

int suite_run(const struct suite_options *o)
{
	struct suite s = {.o = *o, .programs = json_object()};
	int rc = list_cases(&s);

	catch_signals();
	if (rc == EXIT_OK)
		rc = run_all(&s);
	place_remove(&s);
	free_cases(&s);
	return rc;
}
