/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate.h - limits how often something happens, and counts what was left out; without a lock, from any thread.
 *
 * A struct rate of zeroes is ready for use. It allows a burst at once, and then a rate (the generic cell rate algorithm: it keeps
 * one time, which is how far ahead of the rate its user is).
 */
#ifndef STAG_BASE_RATE_H
#define STAG_BASE_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct rate {
	_Atomic uint64_t due;	     /* when all that was allowed would have happened at the rate */
	_Atomic uint32_t suppressed; /* since the last one that was allowed */
};

struct rate_limit {
	uint64_t interval_ns; /* between two, in the long run */
	uint64_t ahead_ns;    /* the burst: how far ahead of the rate one may be */
};

#define RATE_LIMIT(per_second, burst)                                                              \
	{                                                                                          \
		.interval_ns = NS_PER_S / (per_second),                                            \
		.ahead_ns = ((burst)-1) * (NS_PER_S / (per_second))                                \
	}

/* Returns whether it may happen now. Then *suppressed is the number of times that it might not, since it last did. */
static inline bool rate_allows(struct rate *r, const struct rate_limit *limit, uint64_t now,
			       uint32_t *suppressed)
{
	uint64_t due = atomic_load_explicit(&r->due, memory_order_relaxed), from;

	do {
		from = due > now ? due : now;
		if (from - now > limit->ahead_ns) {
			atomic_fetch_add_explicit(&r->suppressed, 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&r->due, &due, from + limit->interval_ns,
							memory_order_relaxed,
							memory_order_relaxed));
	*suppressed = atomic_exchange_explicit(&r->suppressed, 0, memory_order_relaxed);
	return true;
}

#endif
