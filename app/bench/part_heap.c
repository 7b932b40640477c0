// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_heap.c - stag bench part heap: its command line.
 */
#include "part.h"

#include <getopt.h>

#include "stag.h"

static struct bench_options o;

static const char help_text[] =
	"usage: stag bench part heap [OPTION]...\n\n"
	"Allocates and frees in the registered heap and with malloc(), in turn; by one process,\n"
	"by two at once, and by one for another. Gets keys from the heap and by registering.\n\n"
	"  --case NAME          churn_64, churn_4k, churn_1m, churn2_64, churn2_4k, churn2_1m,\n"
	"                       cross_64, cross_4k, cross_1m, ready_4k, ready_1m, keys, attach;\n"
	"                       or a pattern of the shell; may repeat (all)\n"
	"  --secs S             time for a case, at least (1)\n"
	"  --device NAME        where memory is registered (stag0, which needs no hardware)\n"
	"  --library FILE       the libstag-verbs.so that makes stag0 (or STAG_LIB)\n"
	"  --json, --tsv        print every figure, for programs\n"
	"  -h, --help\n";

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'},	   {"case", required_argument, NULL, 'c'},
	{"secs", required_argument, NULL, 't'},	   {"device", required_argument, NULL, 'D'},
	{"library", required_argument, NULL, 'L'}, {"json", no_argument, NULL, 'j'},
	{"tsv", no_argument, NULL, 'T'},	   {0},
};

int part_heap(int argc, char **argv)
{
	int c, rc;

	o = (struct bench_options){.benchmark = "heap", .device = "stag0", .secs = 1};
	argv[0] = "stag bench part heap"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return EXIT_OK;
		}
		if (!bench_take_option(&o, c, optarg))
			return usage_error(&bench_command);
	}
	if (optind < argc) {
		complain("what is '%s' for?", argv[optind]);
		return usage_error(&bench_command);
	}
	rc = bench_preload(&o, argv);
	return rc != EXIT_OK ? rc : bench_heap_measure(&o);
}
