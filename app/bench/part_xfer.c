// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_xfer.c - stag bench part xfer: its command line.
 */
#include "part.h"

#include <getopt.h>
#include <string.h>

#include "stag.h"

static struct bench_options o;

static const char help_text[] =
	"usage: stag bench part xfer [OPTION]...\n\n"
	"Moves the same bytes through the transfer manager and by work requests that are posted\n"
	"by hand, in turn. The target is a process on this machine, or one that was started\n"
	"with --listen on another.\n\n"
	"  --case NAME          elements, elements_random, elements_contiguous, requests, "
	"batches,\n"
	"                       batches_apart, large, plan, plan_contiguous; or a pattern of the\n"
	"                       shell; may repeat (all)\n"
	"  --elements N         elements of a request (100000)\n"
	"  --size BYTES         of an element (64)\n"
	"  --batches N          batches of the distribution (200)\n"
	"  --pieces N           of the largest batch; the others in proportion (270000)\n"
	"  --bytes BYTES        of the one large request (1G)\n"
	"  --descriptors N      that the manager has (256)\n"
	"  --op write|read      which way the bytes go (write)\n"
	"  --secs S             time for a case, at least (1)\n"
	"  --asleep             the target's program sleeps instead of polling\n"
	"  --device NAME        the device (stag0, which needs no hardware)\n"
	"  --address ADDRESS    of the device on this machine, where the two meet\n"
	"  --listen ADDRESS[:PORT]\n"
	"                       be the target, for others, until interrupted (port 7472)\n"
	"  --connect HOST[:PORT]\n"
	"                       use the target there\n"
	"  --library FILE       the libstag-verbs.so that makes stag0 (or STAG_LIB)\n"
	"  --json, --tsv        print every figure, for programs\n"
	"  -h, --help\n";

static bool set_op(const char *text)
{
	if (strcmp(text, "write") && strcmp(text, "read")) {
		complain("--op wants write or read, not '%s'", text);
		return false;
	}
	o.op = *text == 'r' ? STAG_XFER_READ : STAG_XFER_WRITE;
	return true;
}

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'},
	{"case", required_argument, NULL, 'c'},
	{"elements", required_argument, NULL, 'e'},
	{"size", required_argument, NULL, 's'},
	{"batches", required_argument, NULL, 'b'},
	{"pieces", required_argument, NULL, 'n'},
	{"bytes", required_argument, NULL, 'B'},
	{"descriptors", required_argument, NULL, 'd'},
	{"op", required_argument, NULL, 'o'},
	{"secs", required_argument, NULL, 't'},
	{"asleep", no_argument, NULL, 'p'},
	{"device", required_argument, NULL, 'D'},
	{"address", required_argument, NULL, 'a'},
	{"listen", required_argument, NULL, 'l'},
	{"connect", required_argument, NULL, 'C'},
	{"library", required_argument, NULL, 'L'},
	{"json", no_argument, NULL, 'j'},
	{"tsv", no_argument, NULL, 'T'},
	{0},
};

static bool take_option(int c)
{
	switch (c) {
	case 'e':
		return bench_set_number("elements", &o.elements, optarg, 10000000);
	case 's':
		return bench_set_number("size", &o.size, optarg, 1 << 20);
	case 'b':
		return bench_set_number("batches", &o.batches, optarg, 100000);
	case 'n':
		return bench_set_number("pieces", &o.pieces, optarg, 1000000);
	case 'B':
		return bench_set_number("bytes", &o.bytes, optarg, 8ull << 30);
	case 'd':
		return bench_set_number("descriptors", &o.descriptors, optarg, 65536);
	case 'o':
		return set_op(optarg);
	case 'p':
		o.asleep = true;
		return true;
	case 'a':
		o.address = optarg;
		return true;
	case 'l':
		o.listen = optarg;
		return true;
	case 'C':
		o.connect = optarg;
		return true;
	default:
		return bench_take_option(&o, c, optarg);
	}
}

int part_xfer(int argc, char **argv)
{
	int c, rc;

	o = (struct bench_options){.benchmark = "xfer",
				   .device = "stag0",
				   .op = STAG_XFER_WRITE,
				   .elements = 100000,
				   .size = 64,
				   .batches = 200,
				   .pieces = 270000,
				   .bytes = 1ull << 30,
				   .descriptors = 256,
				   .secs = 1};
	argv[0] = "stag bench part xfer"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return EXIT_OK;
		}
		if (!take_option(c))
			return usage_error(&bench_command);
	}
	if (optind < argc) {
		complain("what is '%s' for?", argv[optind]);
		return usage_error(&bench_command);
	}
	rc = bench_preload(&o, argv);
	if (rc != EXIT_OK)
		return rc;
	return o.listen ? bench_serve(&o) : bench_measure(&o);
}
