/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * siphash.h - SipHash-2-4 (Aumasson and Bernstein, 2012): a short hash with a key, for tables whose keys strangers
 * choose. Who does not know the key cannot find inputs that collide.
 */
#ifndef STAG_BASE_SIPHASH_H
#define STAG_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint64_t key[2], const void *bytes, size_t length);

#endif
