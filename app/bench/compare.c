// SPDX-License-Identifier: BSD-2-Clause
/*
 * compare.c - stag bench compare: what changed between two results, and what is only noise.
 *
 * Compares the ratio to the first yardstick that both results have, because a faster or busier
 * machine affects both sides of a ratio; without a common yardstick, or on request, compares the
 * figures. A change counts if it exceeds the spread of both results together, and a few percent.
 */
#include "bench.h"

#include <math.h>
#include <string.h>

#include "colour.h"
#include "stag.h"

enum verdict { SAME, BETTER, WORSE, GONE, NEW };

static const char *const verdict_words[] = {"same", "better", "worse", "gone", "new"};

struct change {
	const char *noun, *name, *unit, *by; /* by: the yardstick, or "value" */
	double before, after;		     /* the compared values; more is better */
	double value_before, value_after;
	double percent, noise; /* positive: better */
	enum verdict verdict;
};

static const json_t *find_case(const json_t *result, const json_t *like)
{
	size_t i;
	json_t *c;

	json_array_foreach (json_object_get(result, "cases"), i, c)
		if (json_equal(json_object_get(c, "noun"), json_object_get(like, "noun")) &&
		    json_equal(json_object_get(c, "case"), json_object_get(like, "case")))
			return c;
	return NULL;
}

/* Returns the yardstick of that name if it has a ratio, or NULL. */
static const json_t *find_yard(const json_t *c, const char *name)
{
	size_t i;
	json_t *y;

	json_array_foreach (json_object_get(c, "yardsticks"), i, y)
		if (strcmp(result_string(y, "name"), name) == 0 &&
		    isfinite(result_number(y, "ratio")))
			return y;
	return NULL;
}

/* Returns the first yardstick that both have, or NULL. */
static const json_t *common_yard(const json_t *before, const json_t *after, const json_t **old)
{
	size_t i;
	json_t *y;

	json_array_foreach (json_object_get(after, "yardsticks"), i, y) {
		*old = find_yard(before, result_string(y, "name"));
		if (*old && isfinite(result_number(y, "ratio")))
			return y;
	}
	return NULL;
}

static void decide_verdict(struct change *c, double least, double old_spread, double new_spread)
{
	double spread =
		(isfinite(old_spread) ? old_spread : 0) + (isfinite(new_spread) ? new_spread : 0);

	c->percent = 100 * (c->after / c->before - 1);
	c->noise = fmax(least, spread);
	if (fabs(c->percent) <= c->noise || !isfinite(c->percent))
		c->verdict = SAME;
	else
		c->verdict = c->percent > 0 ? BETTER : WORSE;
}

static void compare_values(struct change *c, const json_t *old, const json_t *now, double noise)
{
	bool less = strcmp(result_string(now, "better"), "less") == 0;

	c->by = "value";
	c->before = less ? 1 / c->value_before : c->value_before;
	c->after = less ? 1 / c->value_after : c->value_after;
	decide_verdict(c, noise, result_number(old, "spread_percent"),
		       result_number(now, "spread_percent"));
}

static struct change compare_case(const struct compare_options *o, const json_t *old,
				  const json_t *now)
{
	const json_t *old_yard = NULL;
	const json_t *yard = o->by_value ? NULL : common_yard(old, now, &old_yard);
	struct change c = {.noun = result_string(now, "noun"),
			   .name = result_string(now, "case"),
			   .unit = result_string(now, "unit"),
			   .value_before = result_number(old, "value"),
			   .value_after = result_number(now, "value")};

	if (!yard) {
		compare_values(&c, old, now, o->noise);
		return c;
	}
	c.by = result_string(yard, "name");
	c.before = result_number(old_yard, "ratio");
	c.after = result_number(yard, "ratio");
	decide_verdict(&c, o->noise, result_number(old_yard, "ratio_spread_percent"),
		       result_number(yard, "ratio_spread_percent"));
	return c;
}

/* Returns the change of a case that only one result has. */
static struct change unmatched_case(const json_t *c, enum verdict verdict)
{
	return (struct change){.noun = result_string(c, "noun"),
			       .name = result_string(c, "case"),
			       .unit = result_string(c, "unit"),
			       .by = "-",
			       .before = NAN,
			       .after = NAN,
			       .value_before = verdict == GONE ? result_number(c, "value") : NAN,
			       .value_after = verdict == NEW ? result_number(c, "value") : NAN,
			       .percent = NAN,
			       .noise = NAN,
			       .verdict = verdict};
}

/* ---- output ---- */

static void print_change(const struct change *c)
{
	static const enum colour colours[] = {
		[BETTER] = COLOUR_GREEN, [WORSE] = COLOUR_RED, [NEW] = COLOUR_NONE};
	char a[24], b[24], r[24], t[24], percent[32] = "-", noise[32] = "-";

	if (isfinite(c->percent)) {
		snprintf(percent, sizeof(percent), "%+.1f %%", c->percent);
		snprintf(noise, sizeof(noise), "±%.1f %%", c->noise);
	}
	printf("%-6s %-19s %9s %9s %-4s  %-10s %8s %8s  %9s  %8s  %s%s%s\n", c->noun, c->name,
	       report_number(c->value_before, a, sizeof(a)),
	       report_number(c->value_after, b, sizeof(b)), c->unit, c->by,
	       strcmp(c->by, "value") ? report_number(c->before, r, sizeof(r)) : "-",
	       strcmp(c->by, "value") ? report_number(c->after, t, sizeof(t)) : "-", percent, noise,
	       colour(colours[c->verdict]), verdict_words[c->verdict], colour(COLOUR_NONE));
}

static json_t *number_or_null(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *change_json(const struct change *c)
{
	return json_pack(
		"{s:s s:s s:s s:s s:o s:o s:o s:o s:o s:o s:s}", "noun", c->noun, "case", c->name,
		"unit", c->unit, "by", c->by, "value_before", number_or_null(c->value_before),
		"value_after", number_or_null(c->value_after), "before", number_or_null(c->before),
		"after", number_or_null(c->after), "change_percent", number_or_null(c->percent),
		"noise_percent", number_or_null(c->noise), "verdict", verdict_words[c->verdict]);
}

struct tally {
	unsigned int count[5];
	json_t *list; /* NULL: print a table */
};

static void count_change(struct tally *t, struct change c)
{
	t->count[c.verdict]++;
	if (t->list)
		json_array_append_new(t->list, change_json(&c));
	else
		print_change(&c);
}

static void compare_all(const struct compare_options *o, const json_t *old, const json_t *now,
			struct tally *t)
{
	size_t i;
	json_t *c;

	json_array_foreach (json_object_get(now, "cases"), i, c) {
		const json_t *before = find_case(old, c);

		count_change(t, before ? compare_case(o, before, c) : unmatched_case(c, NEW));
	}
	json_array_foreach (json_object_get(old, "cases"), i, c)
		if (!find_case(now, c))
			count_change(t, unmatched_case(c, GONE));
}

static void warn_of_machines(const json_t *old, const json_t *now)
{
	static const char *const facts[] = {"cpu", "cpus", "kernel", "congestion"};
	const json_t *a = json_object_get(old, "machine"), *b = json_object_get(now, "machine");

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		if (!json_equal(json_object_get(a, facts[i]), json_object_get(b, facts[i])))
			fprintf(stderr, "stag: the two results are of machines with different %s\n",
				facts[i]);
}

static void print_all(struct tally *t)
{
	if (t->list) {
		json_t *o = json_pack("{s:O s:i s:i s:i}", "changes", t->list, "better",
				      (int)t->count[BETTER], "worse", (int)t->count[WORSE], "same",
				      (int)t->count[SAME]);

		json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
		puts("");
		json_decref(o);
		return;
	}
	printf("\n%u better, %u worse, %u the same within the noise", t->count[BETTER],
	       t->count[WORSE], t->count[SAME]);
	if (t->count[GONE] + t->count[NEW])
		printf("; %u gone, %u new", t->count[GONE], t->count[NEW]);
	puts("");
}

int compare_run(const struct compare_options *o)
{
	json_t *old = result_load(o->before), *now = old ? result_load(o->after) : NULL;
	struct tally t = {.list = o->json ? json_array() : NULL};
	int rc = EXIT_FAILED;

	if (old && now) {
		warn_of_machines(old, now);
		if (!t.list)
			printf("%-6s %-19s %9s %9s %-4s  %-10s %8s %8s  %9s  %8s\n", "", "case",
			       "before", "after", "", "by", "before", "after", "change", "noise");
		compare_all(o, old, now, &t);
		print_all(&t);
		rc = o->fail && t.count[WORSE] ? EXIT_FAILED : EXIT_OK;
	}
	json_decref(t.list);
	json_decref(old);
	json_decref(now);
	return rc;
}
