/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * histogram.h - durations, counted in buckets.
 *
 * There are four buckets per octave, from 256 ns to 2^36 ns (69 s). Bucket 0 counts times of up to
 * 256 ns; bucket i counts times above stag_histogram_upper(i - 1) and up to
 * stag_histogram_upper(i); the last bucket counts all longer times. A bucket is a quarter of its
 * octave wide, so a quantile is accurate to within a quarter, for any number of times, in one
 * kilobyte.
 */
#ifndef STAG_HISTOGRAM_H
#define STAG_HISTOGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STAG_HISTOGRAM_LOW     8  /* bucket 0 ends at 1 << 8 ns */
#define STAG_HISTOGRAM_HIGH    36 /* the last bucket but one ends at 1 << 36 ns */
#define STAG_HISTOGRAM_BUCKETS (4 * (STAG_HISTOGRAM_HIGH - STAG_HISTOGRAM_LOW) + 2)

struct stag_histogram {
	uint64_t count;		 /* number of times in all buckets */
	uint64_t sum_ns, max_ns; /* sum and maximum of all times */
	/* number of times in each bucket, not cumulative */
	uint64_t bucket[STAG_HISTOGRAM_BUCKETS];
};

/* Returns the longest time that bucket i counts, in ns. The last bucket is unbounded: INT64_MAX. */
static inline uint64_t stag_histogram_upper(unsigned int i)
{
	if (i >= STAG_HISTOGRAM_BUCKETS - 1)
		return INT64_MAX;
	if (i == 0)
		return 1ull << STAG_HISTOGRAM_LOW;
	return (uint64_t)(5 + (i - 1) % 4) << (STAG_HISTOGRAM_LOW - 2 + (i - 1) / 4);
}

/* Returns the index of the bucket that counts a time. */
static inline unsigned int stag_histogram_bucket(uint64_t ns)
{
	unsigned int octave;

	if (ns <= 1ull << STAG_HISTOGRAM_LOW)
		return 0;
	if (ns > 1ull << STAG_HISTOGRAM_HIGH)
		return STAG_HISTOGRAM_BUCKETS - 1;
	octave = 63 - (unsigned int)__builtin_clzll(ns - 1);
	return 1 + 4 * (octave - STAG_HISTOGRAM_LOW) + ((ns - 1) >> (octave - 2) & 3);
}

/* Adds the counts of another histogram. */
static inline void stag_histogram_add(struct stag_histogram *to, const struct stag_histogram *from)
{
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

/*
 * Returns the time in ns that a fraction q (0 to 1) of all times did not exceed: 0.5 gives the
 * median. The result is interpolated within its bucket and never longer than max_ns; 0 if nothing
 * was counted.
 */
static inline double stag_histogram_quantile(const struct stag_histogram *h, double q)
{
	double wanted = q * (double)h->count, below = 0;

	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++) {
		double in = (double)h->bucket[i];

		if (in > 0 && below + in >= wanted) {
			double low = i ? (double)stag_histogram_upper(i - 1) : 0;
			double high = (double)stag_histogram_upper(i);

			if (high > (double)h->max_ns)
				high = (double)h->max_ns;
			if (high <
			    low) /* the histogram was read while being written: max_ns is not updated yet */
				return low;
			return low + (high - low) * (wanted > below ? (wanted - below) / in : 0);
		}
		below += in;
	}
	return (double)h->max_ns;
}

#ifdef __cplusplus
}
#endif

#endif
