/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * histogram.h - counts times in the buckets of <stag/histogram.h>, from any thread, without a lock.
 *
 * Zeroes are an empty one: there is nothing to set up or to take down.
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

/* The same where one thread alone counts and looks. */
void histogram_count(struct stag_histogram *h, uint64_t ns);

/*
 * Adds what h has to out, which is zeroes at first. Each number is right, though all of them need not be
 * of one instant.
 */
void histogram_sum(const struct histogram *h, struct stag_histogram *out);

#endif
