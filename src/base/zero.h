/* SPDX-License-Identifier: BSD-2-Clause */
/* zero.h - tests whether bytes are all zero. */
#ifndef STAG_BASE_ZERO_H
#define STAG_BASE_ZERO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compares the bytes with themselves, shifted by one: no array of zeroes is needed. */
static inline bool is_zero(const void *data, size_t len)
{
	const uint8_t *p = data;

	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

#endif
