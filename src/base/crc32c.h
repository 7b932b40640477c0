/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crc32c.h - CRC32C, the Castagnoli polynomial: of iWARP (RFC 5044 §4.4), iSCSI (RFC 7143 §13.1) and the store's
 * partition table.
 */
#ifndef STAG_BASE_CRC32C_H
#define STAG_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define CRC32C_INIT 0xffffffffu

/* Continues a running CRC32C; start from CRC32C_INIT, end with crc32c_put(). */
uint32_t crc32c_update(uint32_t crc, const void *data, size_t len);

/* Copies and continues a running CRC32C over the copied bytes, even if the source changes meanwhile. */
uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t len);

/* Does the same as crc32c_update(), by table look-up alone. */
uint32_t crc32c_update_portable(uint32_t crc, const void *data, size_t len);

/* Returns the name of the implementation that crc32c_update() uses on this processor. */
const char *crc32c_implementation(void);

/* RFC 5044 §4.4: stores the complement, least significant byte first. */
static inline void crc32c_put(uint8_t *p, uint32_t crc)
{
	put_le32(p, ~crc);
}

static inline bool crc32c_matches(const uint8_t *p, uint32_t crc)
{
	return get_le32(p) == (uint32_t)~crc;
}

#endif
