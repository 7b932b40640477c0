/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * histogram.h - counts times in the buckets of <stag/histogram.h>, from any thread, without a lock.
 *
 * A zeroed struct is an empty histogram: it needs no initialisation and no destruction.
 */
#ifndef STAG_BASE_HISTOGRAM_H
#define STAG_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stag/histogram.h>

struct histogram {
	_Atomic uint64_t sum_ns, max_ns;
	_Atomic uint64_t bucket[STAG_HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t ns);

/* Counts a time in a plain histogram that only one thread counts in and reads. */
void histogram_count(struct stag_histogram *h, uint64_t ns);

/*
 * Adds the counts of h to out, which the caller zeroes first. Each number is exact, but they need
 * not all be of one instant.
 */
void histogram_sum(const struct histogram *h, struct stag_histogram *out);

#endif
