// SPDX-License-Identifier: BSD-2-Clause
/*
 * lookup.c - the messages of a lookup, in and out of a byte buffer.
 *
 * Refuses what no peer sends. Whether a lookup of that id exists, and whether the cookie is right, is the question of src/cm.
 */
#include "wire/lookup.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/zero.h"

#define MAGIC	0x734c4b50 /* "sLKP" */
#define VERSION 1

/* Offsets */
enum {
	AT_VERSION = 4,
	AT_KIND = 5,
	AT_STATUS = 6,
	AT_PRIVATE_LEN = 7,
	AT_ID = 8,
	AT_COOKIE = 16,
	AT_QPN = 24,
	AT_QKEY = 28,
	AT_PRIVATE = 32,
	AT_CRC = AT_PRIVATE + LOOKUP_ASK_PRIVATE,
};

_Static_assert(AT_CRC + 4 == LOOKUP_LEN, "the CRC is last");

void lookup_encode(const struct lookup_msg *m, uint8_t buf[LOOKUP_LEN])
{
	memset(buf, 0, LOOKUP_LEN);
	put_be32(buf, MAGIC);
	buf[AT_VERSION] = VERSION;
	buf[AT_KIND] = m->kind;
	buf[AT_STATUS] = m->status;
	buf[AT_PRIVATE_LEN] = m->private_len;
	put_be64(buf + AT_ID, m->id);
	put_be64(buf + AT_COOKIE, m->cookie);
	put_be32(buf + AT_QPN, m->qpn);
	put_be32(buf + AT_QKEY, m->qkey);
	memcpy(buf + AT_PRIVATE, m->private_data, m->private_len);
	crc32c_put(buf + AT_CRC, crc32c_update(CRC32C_INIT, buf, AT_CRC));
}

static unsigned most_private(uint8_t kind)
{
	switch (kind) {
	case LOOKUP_ASK:
		return LOOKUP_ASK_PRIVATE;
	case LOOKUP_ANSWER:
		return LOOKUP_ANS_PRIVATE;
	default:
		return 0;
	}
}

bool lookup_is_number(uint32_t qpn)
{
	return qpn > 1 && qpn < 0xffffff;
}

static bool makes_sense(const struct lookup_msg *m)
{
	bool found = m->kind == LOOKUP_ANSWER && m->status == LOOKUP_FOUND;

	if (m->kind < LOOKUP_ASK || m->kind > LOOKUP_ANSWER || !m->id)
		return false;
	if (m->status > LOOKUP_REJECTED || (m->kind != LOOKUP_ANSWER && m->status))
		return false;
	if (m->private_len > most_private(m->kind) || (m->kind == LOOKUP_PROVE && !m->cookie))
		return false;
	return found ? lookup_is_number(m->qpn) : !m->qpn && !m->qkey;
}

int lookup_decode(const uint8_t *buf, size_t len, struct lookup_msg *m)
{
	struct lookup_msg seen = {0};

	if (len != LOOKUP_LEN || get_be32(buf) != MAGIC || buf[AT_VERSION] != VERSION ||
	    !crc32c_matches(buf + AT_CRC, crc32c_update(CRC32C_INIT, buf, AT_CRC)))
		return -EPROTO;
	seen.kind = buf[AT_KIND];
	seen.status = buf[AT_STATUS];
	seen.private_len = buf[AT_PRIVATE_LEN];
	seen.id = get_be64(buf + AT_ID);
	seen.cookie = get_be64(buf + AT_COOKIE);
	seen.qpn = get_be32(buf + AT_QPN);
	seen.qkey = get_be32(buf + AT_QKEY);
	if (!makes_sense(&seen) ||
	    !is_zero(buf + AT_PRIVATE + seen.private_len, LOOKUP_ASK_PRIVATE - seen.private_len))
		return -EPROTO;
	memcpy(seen.private_data, buf + AT_PRIVATE, seen.private_len);
	*m = seen;
	return 0;
}
