// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_load.c - prints the results of a load.
 *
 * Divided by tabs: operations per second, microseconds of processor time per operation, and the
 * median and 99th percentile of the latency in microseconds; or the same and more as JSON.
 */
#include "part.h"

#include <stdio.h>

#include "base/clock.h"

void part_load_begin(struct part_figures *f)
{
	*f = (struct part_figures){0};
	f->ns = clock_ns();
	f->cpu = clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

static void print_json(const struct part_figures *f)
{
	json_t *o = json_pack("{s:f s:f s:I s:f s:o}", "iops",
			      (double)f->operations * 1e9 / (double)f->ns, "cpu_us",
			      (double)f->cpu / 1e3 / (double)f->operations, "operations",
			      (json_int_t)f->operations, "seconds", (double)f->ns / 1e9,
			      "latency_us", times_json(&f->times));

	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(o);
}

void part_load_end(struct part_figures *f, bool json)
{
	f->ns = clock_ns() - f->ns;
	f->cpu = clock_read(CLOCK_PROCESS_CPUTIME_ID) - f->cpu;
	if (f->operations == 0)
		bench_die("no operation completed in that time");
	if (json)
		print_json(f);
	else
		printf("%.0f\t%.3f\t%.2f\t%.2f\n", (double)f->operations * 1e9 / (double)f->ns,
		       (double)f->cpu / 1e3 / (double)f->operations,
		       times_percentile(&f->times, 50), times_percentile(&f->times, 99));
	fflush(stdout);
}
