// SPDX-License-Identifier: BSD-2-Clause
/*
 * report.c - results of stag torture pool, as text and as JSON.
 */
#include "torture.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "progress.h"

double percentile(const double *sorted, size_t n, double p)
{
	size_t at = n ? (size_t)ceil(p / 100 * (double)n) : 0;

	return n ? sorted[at ? at - 1 : 0] : 0;
}

static struct progress progress;

/* A phase that has to reach a number of failovers has no known length. */
void show_progress(const struct torture *t)
{
	char note_fault[80];

	if (t->o.json || !t->now || !t->now->name)
		return;
	if (progress.what != t->now->name) {
		progress_begin(&progress, t->now->name, PROGRESS_TIME,
			       t->o.failovers ? 0 : (uint64_t)(t->o.seconds * NS_PER_S));
		progress.since = t->phase_began;
	}
	if (!progress_is_due(&progress, clock_ns()))
		return;
	snprintf(note_fault, sizeof(note_fault), "%" PRIu64 " operations, %" PRIu64 " failovers",
		 clients_done(t), nodes_epoch(t) - t->first_epoch);
	progress_spent(&progress, note_fault);
}

void show_nothing(void)
{
	progress_end(&progress);
	progress.what = NULL;
}

static const char *linear_word(const struct check_result *j)
{
	return j->operations == 0	   ? "not checked"
	       : j->linear == VERDICT_GOOD ? "linearizable"
	       : j->linear == VERDICT_BAD  ? "NOT linearizable"
					   : "undecided";
}

void show_phase(const struct torture *t, const struct phase_result *r)
{
	const struct check_result *j = &r->check_result;

	show_nothing();
	if (t->o.json)
		return;
	if (r->skipped) {
		printf("%-12s skipped: %s\n", r->name, r->why);
		return;
	}
	printf("%-12s %6.1f s %8zu operations %4" PRIu64 " failovers", r->name, r->seconds,
	       j->operations, r->failovers);
	if (j->num_times)
		printf(" (p50 %.0f, p99 %.0f ms)", percentile(j->times, j->num_times, 50),
		       percentile(j->times, j->num_times, 99));
	printf("  %zu lost %zu twice %zu unknown, %s, memory %s\n", j->lost, j->twice, j->unknown,
	       linear_word(j), r->compared ? "equal" : "not compared");
	if (r->no_room)
		printf("  pool full: %u changes refused\n", r->no_room);
	if (r->failed)
		printf("  FAILED: %s\n", r->why);
	if (*r->history)
		printf("  history: %s\n", r->history);
	fflush(stdout);
}

static json_t *phase_json(const struct phase_result *r)
{
	const struct check_result *j = &r->check_result;
	json_t *o = json_pack("{s:s, s:b, s:b}", "phase", r->name, "skipped", r->skipped, "failed",
			      r->failed);

	if (*r->why)
		json_object_set_new(o, "why", json_string(r->why));
	if (*r->history)
		json_object_set_new(o, "history", json_string(r->history));
	if (r->skipped)
		return o;
	json_object_update_new(
		o, json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:b}", "seconds", r->seconds,
			     "operations", (json_int_t)j->operations, "failovers",
			     (json_int_t)r->failovers, "no_room", (json_int_t)r->no_room, "lost",
			     (json_int_t)j->lost, "twice", (json_int_t)j->twice, "unknown",
			     (json_int_t)j->unknown, "history_is", linear_word(j), "memory_equal",
			     r->compared));
	if (j->num_times)
		json_object_set_new(
			o, "failover_ms",
			json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)j->num_times, "p50",
				  percentile(j->times, j->num_times, 50), "p99",
				  percentile(j->times, j->num_times, 99), "max",
				  j->times[j->num_times - 1]));
	return o;
}

static int by_size(const void *x, const void *y)
{
	const double *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* Returns the failover times of all phases, sorted; the caller frees them. */
static double *all_times(const struct phase_result *results, unsigned int n, size_t *count)
{
	double *times;

	*count = 0;
	for (unsigned int i = 0; i < n; i++)
		*count += results[i].check_result.num_times;
	times = malloc((*count + 1) * sizeof(*times));
	*count = 0;
	for (unsigned int i = 0; times && i < n; i++) {
		const struct check_result *j = &results[i].check_result;

		if (j->num_times)
			memcpy(times + *count, j->times, j->num_times * sizeof(*times));
		*count += j->num_times;
	}
	if (times)
		qsort(times, *count, sizeof(*times), by_size);
	return times;
}

static void end_json(const struct torture *t, const struct phase_result *results, unsigned int n,
		     const double *times, size_t count)
{
	json_t *list = json_array(), *o;

	for (unsigned int i = 0; i < n; i++)
		json_array_append_new(list, phase_json(&results[i]));
	o = json_pack("{s:I, s:i, s:i, s:s, s:b, s:o}", "seed", (json_int_t)t->o.seed, "nodes",
		      (int)t->o.nodes, "clients", (int)t->o.clients, "roll", t->roll, "namespaces",
		      t->net.real, "phases", list);
	if (count)
		json_object_set_new(
			o, "failover_ms",
			json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)count, "p50",
				  percentile(times, count, 50), "p99", percentile(times, count, 99),
				  "max", times[count - 1]));
	json_dumpf(o, stdout, JSON_INDENT(2));
	puts("");
	json_decref(o);
}

void show_end(const struct torture *t, const struct phase_result *results, unsigned int n)
{
	uint64_t failovers = 0;
	size_t count, operations = 0;
	unsigned int failed = 0;
	double *times = all_times(results, n, &count);

	if (!times)
		return;
	for (unsigned int i = 0; i < n; i++) {
		failovers += results[i].failovers;
		operations += results[i].check_result.operations;
		failed += results[i].failed;
	}
	if (t->o.json) {
		end_json(t, results, n, times, count);
	} else {
		printf("%zu operations, %" PRIu64 " failovers", operations, failovers);
		if (count)
			printf(", of killed primaries %zu: p50 %.1f ms, p99 %.1f ms, max %.1f ms",
			       count, percentile(times, count, 50), percentile(times, count, 99),
			       times[count - 1]);
		printf("; %s (seed %#" PRIx64 ")\n", failed ? "FAILED" : "all guarantees held",
		       t->o.seed);
	}
	free(times);
}
