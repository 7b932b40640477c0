/* SPDX-License-Identifier: BSD-2-Clause */
/* clock.h - time in nanoseconds, of the monotonic clock and of the one that includes suspend. */
#ifndef STAG_BASE_CLOCK_H
#define STAG_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

static inline uint64_t clock_boot_ns(void)
{
	return clock_read(CLOCK_BOOTTIME);
}

#endif
