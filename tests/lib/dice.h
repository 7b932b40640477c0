/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dice.h - reproducible random numbers: they follow from a seed, which a failing run prints and
 * STAG_SEED sets.
 */
#ifndef STAG_TEST_DICE_H
#define STAG_TEST_DICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void dice_start(void);		     /* prints the seed */
void dice_start_with(uint64_t seed); /* for a part of a run, which has printed its own seed */

uint64_t dice(uint64_t sides);	   /* 0 to sides - 1 */
uint64_t dice_size(uint64_t most); /* 1 to most, each order of magnitude equally likely */
bool one_in(uint64_t n);
void dice_fill(void *at, size_t len);

/*
 * Returns how often to repeat something: count in a normal build, less under a sanitizer, ten times
 * as often with STAG_LONG. STAG_TEST_DIVIDE divides it, for slow machines.
 */
unsigned long scaled(unsigned long count);
unsigned long lessened(unsigned long count); /* the same, never more than count */
bool is_slow_build(void);		     /* with a sanitizer */

#endif
