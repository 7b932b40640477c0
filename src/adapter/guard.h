/* SPDX-License-Identifier: BSD-2-Clause */
/* guard.h - regions to which a word elsewhere closes access. */
#ifndef STAG_GUARD_H
#define STAG_GUARD_H

#include <stdint.h>

#include "adapter/keys.h"
#include "stag/stagdv.h"

int guard_check(const struct stagdv_guard *g); /* -EINVAL: inconsistent attributes */
/*
 * Enters an access. On KEY_OK the hazard is in *cell (NULL: the guard has none) until
 * guard_leave().
 */
enum key_fault guard_enter(const struct stagdv_guard *g, uint64_t **cell);
void guard_leave(uint64_t *cell); /* NULL is allowed */

#endif
