/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sample.h - of many things some, whose time is taken: to look at the clock twice is dear, where a thing takes less than a microsecond.
 *
 * The first ones all, so that who does little is seen, too; then about one of sixteen, at odds of their own, so
 * that who does things in turn is not always caught at the same one. How long they take has no say in it.
 */
#ifndef STAG_BASE_SAMPLE_H
#define STAG_BASE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_FIRST 64
#define SAMPLE_GAP   8 /* between two, and up to twice as many more */

/* Zeroes to begin with. */
struct sample {
	uint64_t next; /* how many have to be seen, before another one's turn */
	uint32_t dice;
};

static inline bool sample_is_due(const struct sample *s, uint64_t seen)
{
	return seen >= s->next;
}

/* Good enough to be out of step with a program. */
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
