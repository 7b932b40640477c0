// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_xfer.c - stag bench part xfer: its command line.
 */
#include "part.h"

#include <string.h>

#include "stag.h"

static bool parse_op(void *to, const struct cli_option *option, char *text)
{
	struct bench_options *o = to;

	if (strcmp(text, "write") && strcmp(text, "read")) {
		complain("--op must be write or read, not '%s'", text);
		return false;
	}
	o->op = *text == 'r' ? STAG_XFER_READ : STAG_XFER_WRITE;
	return true;
}

static const struct cli_option xfer_table[] = {
	{"case", .value = "NAME", .repeats = true, .parse = bench_parse_case,
	 .words = "elements elements_random elements_contiguous requests batches batches_apart "
		  "large plan plan_contiguous",
	 .help = "elements, elements_random, elements_contiguous, requests, batches, "
		 "batches_apart, large, plan, plan_contiguous; or a shell pattern; may repeat "
		 "(all)"},
	{"elements", .value = "N", CLI_SIZE_AT(struct bench_options, elements, 1, 10000000),
	 .help = "elements of a request (100000)"},
	{"size", .value = "BYTES", CLI_SIZE_AT(struct bench_options, size, 1, 1 << 20),
	 .help = "bytes of an element (64)"},
	{"batches", .value = "N", CLI_SIZE_AT(struct bench_options, batches, 1, 100000),
	 .help = "batches of the distribution (200)"},
	{"pieces", .value = "N", CLI_SIZE_AT(struct bench_options, pieces, 1, 1000000),
	 .help = "pieces of the largest batch; the others in proportion (270000)"},
	{"bytes", .value = "BYTES", CLI_SIZE_AT(struct bench_options, bytes, 1, 8ull << 30),
	 .help = "bytes of the one large request (1G)"},
	{"descriptors", .value = "N", CLI_SIZE_AT(struct bench_options, descriptors, 1, 65536),
	 .help = "descriptors of the transfer manager (256)"},
	{"op", .value = "write|read", .parse = parse_op, .words = "write read",
	 .help = "direction of the transfer (write)"},
	{"secs", .value = "S", CLI_SECONDS_AT(struct bench_options, secs, 0, 3600),
	 .help = "seconds for a case, at least (1)"},
	{"asleep", CLI_FLAG_AT(struct bench_options, asleep),
	 .help = "the target's program sleeps instead of polling"},
	{"address", .value = "ADDRESS", CLI_TEXT_AT(struct bench_options, address),
	 .help = "address of the device on this machine, where the two processes connect"},
	{"listen", .value = "ADDRESS[:PORT]", CLI_TEXT_AT(struct bench_options, listen),
	 .help = "be the target for another machine, until interrupted (port 7472)"},
	{"connect", .value = "HOST[:PORT]", CLI_TEXT_AT(struct bench_options, connect),
	 .help = "use the target there"},
	BENCH_DEVICE_OPTIONS{0},
};

static const struct cli_verb xfer_verb = {
	"", .summary = "Measures the transfer manager beside work requests posted by hand."};

static const struct cli_noun xfer_noun = {
	.call = "stag bench part xfer",
	.name = "bench part",
	.about = "Moves the same bytes through the transfer manager and by work requests that are "
		 "posted by hand, in turn. The target is a process on this machine, or one that "
		 "was started with --listen on another.",
	.verbs = &xfer_verb,
	.verb_size = sizeof(xfer_verb),
	.num_verbs = 1,
	.options = xfer_table,
};

int part_xfer(int argc, char **argv)
{
	struct bench_options o = {.benchmark = "xfer",
				  .device = "stag0",
				  .op = STAG_XFER_WRITE,
				  .elements = 100000,
				  .size = 64,
				  .batches = 200,
				  .pieces = 270000,
				  .bytes = 1ull << 30,
				  .descriptors = 256,
				  .secs = 1};
	int rc;

	if (!bench_parse(&xfer_noun, argc, argv, &o, &rc))
		return rc;
	return o.listen ? bench_serve(&o) : bench_measure(&o);
}
