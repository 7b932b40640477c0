/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.h - regions that a word elsewhere closes.
 */
#ifndef STAG_GUARD_H
#define STAG_GUARD_H

#include <stdint.h>

#include "adapter/keys.h"
#include "stag/stagdv.h"

int guard_check(const struct stagdv_guard *g); /* -EINVAL: it makes no sense */
/* Before an access: on KEY_OK the hazard is in *cell (NULL where there is none) until guard_leave(). */
enum key_fault guard_enter(const struct stagdv_guard *g, uint64_t **cell);
void guard_leave(uint64_t *cell); /* NULL is allowed */

#endif
