/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_bench.h - stag block bench: what was measured.
 */
#ifndef STAG_APP_BLOCK_BENCH_H
#define STAG_APP_BLOCK_BENCH_H

#include "block_use.h"
#include "times.h"

/* As the initiator's counters say: in all, of the time that was measured. */
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
	bool stags; /* are told of */
};

/* block_bench_report.c */
void block_print_figures(const struct block_figures *f, bool json);

#endif
