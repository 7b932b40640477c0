/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - requests of every kind to a unit, many at once, beside a model of what they do. Behind cmocka.h.
 */
#ifndef STAG_TEST_MODEL_H
#define STAG_TEST_MODEL_H

#include <stdint.h>

#include "stag/block.h"

#define MODEL_BYTES (3u << 20) /* of the unit: from its beginning on */

/*
 * So many requests, and then whether the unit has what the model has: its bytes are at all. kills: one in so many rounds
 * replace() takes the target away, and brings it back.
 */
void run_model(struct stag_block *b, const uint8_t *all, unsigned long requests, unsigned int kills,
	       void (*replace)(void));

/* Half of the memory that the requests use is lent to the unit. */
void lend_model(struct stag_block *b);

#endif
