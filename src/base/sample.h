/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sample.h - chooses which operations are timed: reading the clock twice is expensive for an
 * operation that takes less than a microsecond.
 *
 * The first operations are all timed, so that rare ones are seen, too; after that about one of
 * sixteen, at random gaps, so that a program with a periodic pattern is not always sampled at the
 * same point. The choice does not depend on how long operations take.
 */
#ifndef STAG_BASE_SAMPLE_H
#define STAG_BASE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_FIRST 64
#define SAMPLE_GAP                                                                                 \
	8 /* operations between two samples; a random part of up to twice as many is added */

/* Must be zeroed before its first use. */
struct sample {
	uint64_t next; /* number of the next operation to sample */
	uint32_t dice;
};

static inline bool sample_is_due(const struct sample *s, uint64_t seen)
{
	return seen >= s->next;
}

/* Returns a random number: xorshift is good enough to be out of step with the program. */
static inline uint32_t sample_dice(struct sample *s)
{
	s->dice = s->dice * 1664525u + 1013904223u;
	return s->dice >> 16;
}

static inline void sample_take(struct sample *s, uint64_t seen)
{
	if (seen >= SAMPLE_FIRST)
		s->next = seen + SAMPLE_GAP + sample_dice(s) % (2 * SAMPLE_GAP);
}

#endif
