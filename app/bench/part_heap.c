// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_heap.c - stag bench part heap: its command line.
 */
#include "part.h"

#include "stag.h"

static const struct cli_option heap_table[] = {
	{"case", .value = "NAME", .repeats = true, .parse = bench_parse_case,
	 .words = "churn_64 churn_4k churn_1m churn2_64 churn2_4k churn2_1m cross_64 cross_4k "
		  "cross_1m ready_4k ready_1m keys attach",
	 .help = "churn_64, churn_4k, churn_1m, churn2_64, churn2_4k, churn2_1m, cross_64, "
		 "cross_4k, cross_1m, ready_4k, ready_1m, keys, attach; or a shell pattern; may "
		 "repeat (all)"},
	{"secs", .value = "S", CLI_SECONDS_AT(struct bench_options, secs, 0, 3600),
	 .help = "seconds for a case, at least (1)"},
	BENCH_DEVICE_OPTIONS{0},
};

static const struct cli_verb heap_verb = {
	"", .summary = "Measures the registered heap beside malloc and registering."};

static const struct cli_noun heap_noun = {
	.call = "stag bench part heap",
	.name = "bench part",
	.about = "Allocates and frees in the registered heap and with malloc(), in turn: in one "
		 "process, in two at once, and in one for the other. Gets keys from the heap and "
		 "by registering.",
	.verbs = &heap_verb,
	.verb_size = sizeof(heap_verb),
	.num_verbs = 1,
	.options = heap_table,
};

int part_heap(int argc, char **argv)
{
	struct bench_options o = {.benchmark = "heap", .device = "stag0", .secs = 1};
	int rc;

	return bench_parse(&heap_noun, argc, argv, &o, &rc) ? bench_heap_measure(&o) : rc;
}
