// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_bench_report.c - stag store bench: prints the figures.
 */
#include "store_options.h"

#include <stdio.h>

#include "store.h"

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
	store_dump(json_pack("{s:s s:s s:s s:s s:s s:I s:i s:f s:I s:f s:f s:f s:o}", "where",
			     f->where, "op", f->op, "pattern", f->pattern, "order", f->order,
			     "wait", f->wait, "size", (json_int_t)f->size, "depth", (int)f->depth,
			     "seconds", (double)f->ns / 1e9, "operations",
			     (json_int_t)f->operations, "iops",
			     per_second(f, (double)f->operations), "mb_per_s",
			     per_second(f, (double)f->operations * (double)f->size) / 1e6, "cpu_us",
			     per_operation(f, f->cpu), "latency_us", times_json(&f->times)));
}

void store_print_figures(const struct store_figures *f, bool json)
{
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
	times_print(&f->times);
}
