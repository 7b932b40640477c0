// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_bench_report.c - stag block bench: prints the figures.
 */
#include "block_bench.h"

#include <stdio.h>

#include "store.h"

static double per_second(const struct block_figures *f, double n)
{
	return f->ns ? n * 1e9 / (double)f->ns : 0;
}

static double per_operation(const struct block_figures *f, double n)
{
	return f->operations ? n / (double)f->operations : 0;
}

static json_t *costs_json(const struct block_figures *f)
{
	const struct block_costs *c = &f->costs;

	return json_pack("{s:f s:f s:f s:f s:f}", "commands", per_operation(f, (double)c->commands),
			 "posts", per_operation(f, (double)c->posts), "completions",
			 per_operation(f, (double)c->completions), "registrations",
			 per_operation(f, (double)c->registrations), "stags",
			 per_operation(f, (double)c->stags));
}

static void print_json(const struct block_figures *f)
{
	json_t *o = json_pack("{s:s s:s s:s s:s s:s s:I s:i s:i}", "url", f->url, "transport",
			      f->transport, "op", f->op, "pattern", f->pattern, "wait", f->wait,
			      "size", (json_int_t)f->size, "depth", (int)f->depth, "connections",
			      (int)f->connections);

	json_object_update_new(
		o, json_pack("{s:f s:I s:f s:f s:f s:o s:o}", "seconds", (double)f->ns / 1e9,
			     "operations", (json_int_t)f->operations, "iops",
			     per_second(f, (double)f->operations), "mb_per_s",
			     per_second(f, (double)f->operations * (double)f->size) / 1e6, "cpu_us",
			     per_operation(f, (double)f->cpu / 1e3), "per_operation", costs_json(f),
			     "latency_us", times_json(&f->times)));
	if (f->stags)
		json_object_set_new(o, "stags", block_own_stags_json());
	store_dump(o);
}

void block_print_figures(const struct block_figures *f, bool json)
{
	const struct block_costs *c = &f->costs;
	char size[32];

	if (json) {
		print_json(f);
		return;
	}
	printf("%s: %s %s of %s, %u at once on %u connection%s, %s, %s\n", f->url, f->pattern,
	       f->op, store_size_word(f->size, size, sizeof(size)), f->depth, f->connections,
	       f->connections == 1 ? "" : "s", f->wait, f->transport);
	printf("%.0f operations/s, %.1f MB/s, %.2f us of processor time an operation\n",
	       per_second(f, (double)f->operations),
	       per_second(f, (double)f->operations * (double)f->size) / 1e6,
	       per_operation(f, (double)f->cpu / 1e3));
	printf("an operation: %.2f commands, %.2f posts, %.2f completions, %.2f registrations, "
	       "%.2f STags\n",
	       per_operation(f, (double)c->commands), per_operation(f, (double)c->posts),
	       per_operation(f, (double)c->completions), per_operation(f, (double)c->registrations),
	       per_operation(f, (double)c->stags));
	times_print(&f->times);
	if (f->stags)
		block_print_own_stags(stdout);
}
