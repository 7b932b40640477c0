// SPDX-License-Identifier: BSD-2-Clause
/*
 * histogram.c - see histogram.h.
 *
 * Counting orders nothing else, so all accesses are relaxed. The total count is not stored but
 * summed by readers, which saves the counting thread one write.
 */
#include "base/histogram.h"

void histogram_add(struct histogram *h, uint64_t ns)
{
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->bucket[stag_histogram_bucket(ns)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
	while (ns > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max_ns, &max, ns, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

void histogram_count(struct stag_histogram *h, uint64_t ns)
{
	h->count++;
	h->sum_ns += ns;
	h->bucket[stag_histogram_bucket(ns)]++;
	if (ns > h->max_ns)
		h->max_ns = ns;
}

void histogram_sum(const struct histogram *h, struct stag_histogram *out)
{
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);

		out->bucket[i] += n;
		out->count += n;
	}
	out->sum_ns += atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
	if (max > out->max_ns)
		out->max_ns = max;
}
