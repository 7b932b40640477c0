/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * random.h - numbers that a peer cannot guess (getrandom, buffered).
 */
#ifndef STAG_BASE_RANDOM_H
#define STAG_BASE_RANDOM_H

#include <stdint.h>

uint32_t random_u32(void); /* thread-safe */

#endif
