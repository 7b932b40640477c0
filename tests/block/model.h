/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - random requests of every kind to a unit, many at once, and a model of their effects. Include it after cmocka.h.
 */
#ifndef STAG_TEST_MODEL_H
#define STAG_TEST_MODEL_H

#include <stdint.h>

#include "stag/block.h"

#define MODEL_BYTES (3u << 20) /* at the beginning of the unit */

/*
 * Does requests, then compares the unit's bytes (all) with the model. kills: in one of so many rounds replace() kills
 * and restarts the target; 0: never.
 */
void run_model(struct stag_block *b, const uint8_t *all, unsigned long requests, unsigned int kills,
	       void (*replace)(void));

/* Lends half of the memory that the requests use to the unit. */
void lend_model(struct stag_block *b);

#endif
