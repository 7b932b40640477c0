/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * await.h - waits for a condition, with a time limit. Include it after cmocka.h.
 */
#ifndef STAG_TEST_AWAIT_H
#define STAG_TEST_AWAIT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define DEADLINE_NS (60 * NS_PER_S)

/* Waits until a condition holds. */
#define await(condition)                                                                           \
	do {                                                                                       \
		uint64_t until_ = deadline();                                                      \
		while (!(condition))                                                               \
			if (too_late(until_))                                                      \
				fail_msg("%s:%d: timed out waiting for %s", __FILE__, __LINE__,    \
					 #condition);                                              \
	} while (0)

static inline uint64_t deadline(void)
{
	return clock_ns() + DEADLINE_NS;
}

/* Yields the processor if it is not too late. */
static inline bool too_late(uint64_t until)
{
	sched_yield();
	return clock_ns() > until;
}

#endif
