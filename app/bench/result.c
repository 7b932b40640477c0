// SPDX-License-Identifier: BSD-2-Clause
/*
 * result.c - the result of a run, as one JSON document.
 *
 * A figure is the median over the passes. A ratio says how many times as good as the yardstick stag
 * is, whether more is better or less: it is the median of the ratios of the passes, because what
 * one pass compares was measured within seconds. The spread of either is half the distance between
 * the least and the greatest, in percent of the median.
 */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "stag.h"

#define NOISY 20.0 /* percent */

double result_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *result_string(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* ---- statistics ---- */

struct spread {
	double middle, low, high, percent;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static struct spread spread_of(double *v, size_t n)
{
	struct spread s = {NAN, NAN, NAN, NAN};

	if (n == 0)
		return s;
	qsort(v, n, sizeof(*v), by_size);
	s.middle = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	s.low = v[0];
	s.high = v[n - 1];
	s.percent = s.middle > 0 ? 50 * (s.high - s.low) / s.middle : 0;
	return s;
}

static json_t *number_or_null(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

/* ---- a series ---- */

static struct spread spread_of_values(const struct suite_series *y, unsigned int passes)
{
	double v[SUITE_PASSES];
	size_t n = 0;

	for (unsigned int i = 0; i < passes; i++)
		if (y->samples[i].taken)
			v[n++] = y->samples[i].value;
	return spread_of(v, n);
}

static double median_cpu(const struct suite_series *y, unsigned int passes, bool server)
{
	double v[SUITE_PASSES];
	size_t n = 0;

	for (unsigned int i = 0; i < passes; i++) {
		double one = server ? y->samples[i].server_us : y->samples[i].cpu_us;

		if (y->samples[i].taken && one >= 0)
			v[n++] = one;
	}
	return spread_of(v, n).middle;
}

/* Returns the median over the passes for each percentile. */
static json_t *latency_of(const struct suite_series *y, unsigned int passes)
{
	json_t *all = NULL, *ignored;
	const char *key;
	double v[SUITE_PASSES];

	for (unsigned int i = 0; i < passes && !all; i++)
		if (y->samples[i].latency)
			all = json_object();
	for (unsigned int first = 0; all && first < passes; first++) {
		if (!y->samples[first].latency)
			continue;
		json_object_foreach (y->samples[first].latency, key, ignored) {
			size_t n = 0;

			for (unsigned int i = 0; i < passes; i++) {
				double one = result_number(y->samples[i].latency, key);

				if (isfinite(one))
					v[n++] = one;
			}
			json_object_set_new(all, key, number_or_null(spread_of(v, n).middle));
		}
		break;
	}
	return all ? all : json_null();
}

static json_t *values_of(const struct suite_series *y, unsigned int passes)
{
	json_t *a = json_array();

	for (unsigned int i = 0; i < passes; i++)
		json_array_append_new(
			a, y->samples[i].taken ? number_or_null(y->samples[i].value) : json_null());
	return a;
}

static json_t *series_json(const struct suite_series *y, unsigned int passes)
{
	struct spread s = spread_of_values(y, passes);

	return json_pack("{s:o s:o s:o s:o s:o s:o s:o s:o}", "value", number_or_null(s.middle),
			 "low", number_or_null(s.low), "high", number_or_null(s.high),
			 "spread_percent", number_or_null(s.percent), "cpu_us",
			 number_or_null(median_cpu(y, passes, false)), "server_cpu_us",
			 number_or_null(median_cpu(y, passes, true)), "latency_us",
			 latency_of(y, passes), "passes", values_of(y, passes));
}

static struct spread ratio_of(const struct suite_case *c, const struct suite_series *y,
			      unsigned int passes)
{
	const struct suite_series *ours = &c->series[0];
	double v[SUITE_PASSES];
	size_t n = 0;

	for (unsigned int i = 0; i < passes; i++) {
		double a = ours->samples[i].value, b = y->samples[i].value;

		if (ours->samples[i].taken && y->samples[i].taken && a > 0 && b > 0)
			v[n++] = c->better == BETTER_MORE ? a / b : b / a;
	}
	return spread_of(v, n);
}

static json_t *yardstick_json(const struct suite_case *c, const struct suite_series *y,
			      unsigned int passes)
{
	struct spread r = ratio_of(c, y, passes);
	json_t *o = json_pack("{s:s s:s}", "name", y->name, "what", y->what);

	if (*y->missing && !isfinite(r.middle)) {
		json_object_set_new(o, "missing", json_string(y->missing));
		json_object_set_new(o, "install",
				    *y->install ? json_string(y->install) : json_null());
		return o;
	}
	json_object_update_new(o, series_json(y, passes));
	json_object_update_new(
		o, json_pack("{s:o s:o s:o s:o}", "ratio", number_or_null(r.middle), "ratio_low",
			     number_or_null(r.low), "ratio_high", number_or_null(r.high),
			     "ratio_spread_percent", number_or_null(r.percent)));
	return o;
}

static json_t *case_json(const struct suite_case *c, unsigned int passes)
{
	json_t *yards = json_array();
	json_t *o =
		json_pack("{s:s s:s s:s s:s s:s s:I}", "noun", c->noun->name, "case", c->name,
			  "what", c->what, "unit", c->unit, "better",
			  c->better == BETTER_MORE ? "more" : "less", "size", (json_int_t)c->size);

	json_object_update_new(o, series_json(&c->series[0], passes));
	json_object_set_new(o, "error", *c->error ? json_string(c->error) : json_null());
	for (unsigned int i = 1; i < c->num_series; i++)
		json_array_append_new(yards, yardstick_json(c, &c->series[i], passes));
	json_object_set_new(o, "yardsticks", yards);
	return o;
}

/* ---- the document ---- */

/* Lists the yardsticks that were not measured, once each. */
static json_t *missing_json(const struct suite *s)
{
	json_t *all = json_object(), *list = json_array(), *one;
	const char *key;

	for (unsigned int i = 0; i < s->num_cases; i++)
		for (unsigned int k = 1; k < s->cases[i].num_series; k++) {
			const struct suite_series *y = &s->cases[i].series[k];
			char id[64];

			if (!*y->missing)
				continue;
			snprintf(id, sizeof(id), "%s %s", s->cases[i].noun->name, y->name);
			one = json_pack("{s:s s:s s:s s:s*}", "noun", s->cases[i].noun->name,
					"yardstick", y->name, "why", y->missing, "install",
					*y->install ? y->install : NULL);
			json_object_set_new(all, id, one);
		}
	json_object_foreach (all, key, one)
		json_array_append(list, one);
	json_decref(all);
	return list;
}

/* Adds a note if the ratios of the passes differ much. */
static void note_spread(const json_t *cases, json_t *noise)
{
	size_t i, k;
	json_t *c, *y;
	unsigned int noisy = 0, all = 0;

	json_array_foreach (cases, i, c)
		json_array_foreach (json_object_get(c, "yardsticks"), k, y) {
			double percent = result_number(y, "ratio_spread_percent");

			all += isfinite(percent);
			noisy += isfinite(percent) && percent > NOISY;
		}
	if (noisy)
		json_array_append_new(
			noise,
			json_sprintf("%u of %u ratios have a spread of more than %.0f %%: take "
				     "more passes, or a machine that does nothing else",
				     noisy, all, NOISY));
}

static json_t *settings_json(const struct suite *s)
{
	json_t *o = json_pack("{s:i s:f s:b s:s s:b}", "passes", (int)s->o.passes, "secs",
			      s->o.secs, "quick", s->o.quick, "congestion", s->o.congestion,
			      "private_network", s->private_network);
	json_t *names = json_array();

	for (unsigned int i = 0; i < s->o.num_nouns; i++)
		json_array_append_new(names, json_string(s->o.nouns[i]));
	json_object_set_new(o, "nouns", names);
	names = json_array();
	for (unsigned int i = 0; i < s->o.num_patterns; i++)
		json_array_append_new(names, json_string(s->o.patterns[i]));
	json_object_set_new(o, "cases", names);
	return o;
}

static json_t *now_json(void)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[32];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	return json_string(text);
}

json_t *result_make(const struct suite *s)
{
	json_t *cases = json_array(), *noise = machine_noise();

	for (unsigned int i = 0; i < s->num_cases; i++)
		json_array_append_new(cases, case_json(&s->cases[i], s->o.passes));
	note_spread(cases, noise);
	return json_pack("{s:i s:s s:o s:f s:o s:O s:o s:o s:o s:o}", "version", 1, "stag",
			 STAG_VERSION, "time", now_json(), "seconds",
			 (double)(clock_ns() - s->began) / 1e9, "machine", machine_facts(s),
			 "programs", s->programs, "settings", settings_json(s), "noise", noise,
			 "missing", missing_json(s), "cases", cases);
}

json_t *result_load(const char *file)
{
	json_error_t error;
	json_t *o = json_load_file(file, 0, &error);

	if (!o) {
		complain("%s: line %d: %s", file, error.line, error.text);
	} else if (json_integer_value(json_object_get(o, "version")) != 1 ||
		   !json_is_array(json_object_get(o, "cases"))) {
		complain("%s is not a result of 'stag bench --json'", file);
		json_decref(o);
		o = NULL;
	}
	return o;
}
