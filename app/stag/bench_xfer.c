// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench_xfer.c - stag bench xfer: its command line.
 *
 * stag0 comes from a library that is preloaded; for that it executes itself anew, as
 * `stag info` does.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stag.h"

#define AGAIN "STAG_BENCH_PRELOADED" /* set in the second life, so that there is no third */

static struct bench_options o;

static const char help_text[] =
	"usage: stag bench xfer [OPTION]...\n\n"
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

/* "64", "64K", "1G"; 0: that is no number. */
static uint64_t number(const char *text)
{
	static const char suffixes[] = "KMGT";
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	const char *suffix = *end ? strchr(suffixes, *end) : NULL;
	int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;

	if (text[0] == '-' || end == text || (*end && (!suffix || end[1])) ||
	    n > UINT64_MAX >> shift)
		return 0;
	return n << shift;
}

static bool set_number(const char *option, uint64_t *to, const char *text, uint64_t most)
{
	*to = number(text);
	if (*to && *to <= most)
		return true;
	complain("--%s wants a number from 1 to %llu, not '%s'", option, (unsigned long long)most,
		 text);
	return false;
}

static bool set_op(const char *text)
{
	if (strcmp(text, "write") && strcmp(text, "read")) {
		complain("--op wants write or read, not '%s'", text);
		return false;
	}
	o.op = *text == 'r' ? STAG_XFER_READ : STAG_XFER_WRITE;
	return true;
}

static bool set_secs(const char *text)
{
	char *end;

	o.secs = strtod(text, &end);
	if (*end == '\0' && end != text && o.secs >= 0 && o.secs <= 3600)
		return true;
	complain("--secs wants seconds, not '%s'", text);
	return false;
}

static bool add_case(const char *name)
{
	if (o.num_cases == sizeof(o.cases) / sizeof(*o.cases)) {
		complain("too many --case");
		return false;
	}
	o.cases[o.num_cases++] = name;
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
	case 'c':
		return add_case(optarg);
	case 'e':
		return set_number("elements", &o.elements, optarg, 10000000);
	case 's':
		return set_number("size", &o.size, optarg, 1 << 20);
	case 'b':
		return set_number("batches", &o.batches, optarg, 100000);
	case 'n':
		return set_number("pieces", &o.pieces, optarg, 1000000);
	case 'B':
		return set_number("bytes", &o.bytes, optarg, 8ull << 30);
	case 'd':
		return set_number("descriptors", &o.descriptors, optarg, 65536);
	case 'o':
		return set_op(optarg);
	case 't':
		return set_secs(optarg);
	case 'p':
		o.asleep = true;
		return true;
	case 'D':
		o.device = optarg;
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
	case 'L':
		o.library = optarg;
		return true;
	case 'j':
		o.format = FORMAT_JSON;
		return true;
	case 'T':
		o.format = FORMAT_TSV;
		return true;
	default:
		return false;
	}
}

/* stag0 comes from a library that has to be there from the start. */
static int start_again(char **argv)
{
	char library[PATH_MAX];
	char **args;
	size_t n = 0;

	while (argv[n])
		n++;
	args = calloc(n + 3, sizeof(*args));
	if (!args || preload_find(o.library, library, sizeof(library)) || preload_set(library))
		return EXIT_FAILED;
	args[0] = "stag";
	args[1] = "bench";
	args[2] = "xfer";
	memcpy(args + 3, argv + 1, (n - 1) * sizeof(*args));
	setenv(AGAIN, library, 1);
	execv("/proc/self/exe", args);
	complain("cannot start again: %s", strerror(errno));
	return EXIT_FAILED;
}

int bench_xfer(const struct command *self, int argc, char **argv)
{
	bool software;
	int c;

	o = (struct bench_options){.device = "stag0",
				   .op = STAG_XFER_WRITE,
				   .elements = 100000,
				   .size = 64,
				   .batches = 200,
				   .pieces = 270000,
				   .bytes = 1ull << 30,
				   .descriptors = 256,
				   .secs = 1};
	argv[0] = "stag bench xfer"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return EXIT_OK;
		}
		if (!take_option(c))
			return usage_error(self);
	}
	if (optind < argc) {
		complain("what is '%s' for?", argv[optind]);
		return usage_error(self);
	}
	software = !strcmp(o.device, "stag0");
	if (software && !bench_preloaded()) {
		if (!getenv(AGAIN))
			return start_again(argv);
		complain("%s was not loaded, or is no libstag-verbs", getenv(AGAIN));
		return EXIT_FAILED;
	}
	return o.listen ? bench_serve(&o) : bench_measure(&o);
}
