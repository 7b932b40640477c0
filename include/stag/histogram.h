/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * histogram.h - how long things took, counted in buckets.
 *
 * Four buckets an octave, from 256 ns to 2^36 ns (69 s). Bucket 0 has what took up to 256 ns; bucket i
 * what took longer than stag_histogram_upper(i - 1), and up to stag_histogram_upper(i); the last one
 * whatever took longer still. So a bucket is a quarter of its octave wide, and a quantile is right to
 * within a quarter: of any number of times, in a kilobyte.
 */
#ifndef STAG_HISTOGRAM_H
#define STAG_HISTOGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STAG_HISTOGRAM_LOW     8  /* bucket 0 ends at 1 << 8 ns */
#define STAG_HISTOGRAM_HIGH    36 /* and the last but one at 1 << 36 ns */
#define STAG_HISTOGRAM_BUCKETS (4 * (STAG_HISTOGRAM_HIGH - STAG_HISTOGRAM_LOW) + 2)

struct stag_histogram {
	uint64_t count;				 /* of all buckets */
	uint64_t sum_ns, max_ns;		 /* of all times */
	uint64_t bucket[STAG_HISTOGRAM_BUCKETS]; /* how many times it has; not cumulative */
};

/* The longest time that bucket i has, in ns. The last one has no end: INT64_MAX. */
static inline uint64_t stag_histogram_upper(unsigned int i)
{
	if (i >= STAG_HISTOGRAM_BUCKETS - 1)
		return INT64_MAX;
	if (i == 0)
		return 1ull << STAG_HISTOGRAM_LOW;
	return (uint64_t)(5 + (i - 1) % 4) << (STAG_HISTOGRAM_LOW - 2 + (i - 1) / 4);
}

/* The bucket of a time. */
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

/* Adds what another one has. */
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
 * The time in ns that q (0 to 1) of all were no longer than: 0.5 is the median. Interpolated in its
 * bucket, never longer than max_ns; 0 where nothing was counted.
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
			    low) /* read while it was written: its longest is not there yet */
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
