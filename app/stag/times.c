// SPDX-License-Identifier: BSD-2-Clause
/*
 * times.c - counts how long operations took (times.h).
 */
#include "times.h"

#include <stdio.h>

#define STEPS 32u /* buckets between a time and its double */

static unsigned int place_of(uint64_t ns)
{
	unsigned int shift;

	if (ns < STEPS)
		return (unsigned int)ns;
	shift = 63u - (unsigned int)__builtin_clzll(ns) -
		5u; /* ns >> shift is in STEPS..2*STEPS-1 */
	return shift * STEPS + (unsigned int)(ns >> shift);
}

/* Returns the middle of a bucket, in nanoseconds. */
static double time_at(unsigned int place)
{
	unsigned int shift = place < 2 * STEPS ? 0 : place / STEPS - 1;

	return ((double)(place - shift * STEPS) + (shift ? 0.5 : 0)) * (double)(1ull << shift);
}

void times_note(struct times *t, uint64_t ns)
{
	t->count[place_of(ns)]++;
	t->n++;
	t->sum += ns;
	if (ns > t->max)
		t->max = ns;
}

double times_percentile(const struct times *t, double percent)
{
	double least = percent / 100 * (double)t->n, sum = 0;
	unsigned int i = 0;

	for (; i + 1 < TIMES_PLACES; i++) {
		sum += (double)t->count[i];
		if (sum >= least && sum > 0)
			break;
	}
	return (time_at(i) < (double)t->max ? time_at(i) : (double)t->max) / 1e3;
}

static double mean(const struct times *t)
{
	return t->n ? (double)t->sum / 1e3 / (double)t->n : 0;
}

json_t *times_json(const struct times *t)
{
	static const double points[] = {10, 25, 50, 75, 90, 95, 99, 99.9, 99.99};
	json_t *o = json_pack("{s:f s:f}", "mean", mean(t), "max", (double)t->max / 1e3);
	char name[16];

	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		snprintf(name, sizeof(name), "p%g", points[i]);
		json_object_set_new(o, name, json_real(times_percentile(t, points[i])));
	}
	return o;
}

void times_print(const struct times *t)
{
	printf("latency in us: mean %.1f, p50 %.1f, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.1f\n",
	       mean(t), times_percentile(t, 50), times_percentile(t, 90), times_percentile(t, 99),
	       times_percentile(t, 99.9), (double)t->max / 1e3);
}
