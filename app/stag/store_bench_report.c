// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_bench_report.c - stag store bench: how long operations took, and what comes out.
 */
#include "store_use.h"

#include <stdio.h>

#include "store.h"

#define STEPS 32u /* between a time and its double */

/* ---- times ------------------------------------------------------------------------------ */

static unsigned int place_of(uint64_t ns)
{
	unsigned int shift;

	if (ns < STEPS)
		return (unsigned int)ns;
	shift = 63u - (unsigned int)__builtin_clzll(ns) -
		5u; /* ns >> shift is in STEPS..2*STEPS-1 */
	return shift * STEPS + (unsigned int)(ns >> shift);
}

/* The middle of what is counted there. */
static double time_at(unsigned int place)
{
	unsigned int shift = place < 2 * STEPS ? 0 : place / STEPS - 1;

	return ((double)(place - shift * STEPS) + (shift ? 0.5 : 0)) * (double)(1ull << shift);
}

void store_note_time(struct store_times *t, uint64_t ns)
{
	t->count[place_of(ns)]++;
	t->n++;
	t->sum += ns;
	if (ns > t->max)
		t->max = ns;
}

/* Microseconds. */
static double percentile(const struct store_times *t, double percent)
{
	double least = percent / 100 * (double)t->n, sum = 0;
	unsigned int i = 0;

	for (; i + 1 < STORE_TIMES; i++) {
		sum += (double)t->count[i];
		if (sum >= least && sum > 0)
			break;
	}
	return (time_at(i) < (double)t->max ? time_at(i) : (double)t->max) / 1e3;
}

/* ---- what comes out ----------------------------------------------------------------------- */

static double per_second(const struct store_figures *f, double n)
{
	return f->ns ? n * 1e9 / (double)f->ns : 0;
}

static double per_operation(const struct store_figures *f, uint64_t ns)
{
	return f->operations ? (double)ns / 1e3 / (double)f->operations : 0;
}

static void print_json(const struct store_figures *f)
{
	const struct store_times *t = &f->times;
	json_t *us =
		json_pack("{s:f s:f s:f s:f s:f s:f}", "mean", per_operation(f, t->sum), "p50",
			  percentile(t, 50), "p90", percentile(t, 90), "p99", percentile(t, 99),
			  "p99.9", percentile(t, 99.9), "max", (double)t->max / 1e3);

	store_dump(json_pack("{s:s s:s s:s s:s s:s s:I s:i s:f s:I s:f s:f s:f s:o}", "where",
			     f->where, "op", f->op, "pattern", f->pattern, "order", f->order,
			     "wait", f->wait, "size", (json_int_t)f->size, "depth", (int)f->depth,
			     "seconds", (double)f->ns / 1e9, "operations",
			     (json_int_t)f->operations, "iops",
			     per_second(f, (double)f->operations), "mb_per_s",
			     per_second(f, (double)f->operations * (double)f->size) / 1e6, "cpu_us",
			     per_operation(f, f->cpu), "latency_us", us));
}

void store_print_figures(const struct store_figures *f, bool json)
{
	const struct store_times *t = &f->times;
	char size[32];

	if (json) {
		print_json(f);
		return;
	}
	printf("%s: %s %s of %s, %u at once, order %s, %s\n", f->where, f->pattern, f->op,
	       store_size_word(f->size, size, sizeof(size)), f->depth, f->order, f->wait);
	printf("%.0f operations/s, %.1f MB/s, %.2f us of processor time an operation\n",
	       per_second(f, (double)f->operations),
	       per_second(f, (double)f->operations * (double)f->size) / 1e6,
	       per_operation(f, f->cpu));
	printf("latency in us: mean %.1f, p50 %.1f, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.1f\n",
	       per_operation(f, t->sum), percentile(t, 50), percentile(t, 90), percentile(t, 99),
	       percentile(t, 99.9), (double)t->max / 1e3);
}
