/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_bench.h - stag block bench: what was measured.
 */
#ifndef STAG_APP_BLOCK_BENCH_H
#define STAG_APP_BLOCK_BENCH_H

#include "block_use.h"
#include "times.h"

/* Differences of the initiator's counters over the measured time. */
struct block_costs {
	int64_t commands, posts, completions, registrations, stags;
};

struct block_figures {
	const char *url, *transport, *op, *pattern, *wait;
	uint64_t size;
	uint32_t depth, connections;
	uint64_t operations, ns, cpu; /* cpu: nanoseconds of this process */
	struct block_costs costs;
	struct times times;
	bool stags; /* list the STags */
};

/* block_bench_report.c */
void block_print_figures(const struct block_figures *f, bool json);

#endif
