// SPDX-License-Identifier: BSD-2-Clause
/*
 * datagram.c - one message of a UD queue pair: its header on the wire, and the 40 bytes before the payload.
 *
 * Decodes what the bytes claim, and refuses what no peer sends. Whether the queue pair exists, and whether the Q_Key is
 * its own, is the adapter's question.
 */
#include "wire/datagram.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"

#define MAGIC_PLAIN  0x73554430 /* "sUD0" */
#define MAGIC_SEALED 0x8caa4430 /* the first two bytes inverted; 16 bits differ */
#define VERSION	     1
#define ALL_FLAGS    (DATAGRAM_SOLICITED | DATAGRAM_IMM)
#define CRC_AT	     64

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const uint8_t gid[DATAGRAM_GID])
{
	return !memcmp(gid, v4_prefix, sizeof(v4_prefix));
}

bool datagram_is_mgid(const uint8_t gid[DATAGRAM_GID])
{
	return gid[0] == 0xff || (is_v4(gid) && (gid[12] & 0xf0) == 0xe0);
}

void datagram_encode(const struct datagram *d, uint8_t *buf)
{
	put_be32(buf, MAGIC_PLAIN);
	buf[4] = VERSION;
	buf[5] = d->flags;
	buf[6] = d->traffic_class;
	buf[7] = d->hop_limit;
	put_be32(buf + 8, d->flow_label);
	put_be32(buf + 12, d->src_qpn);
	put_be32(buf + 16, d->dst_qpn);
	put_be32(buf + 20, d->qkey);
	memcpy(buf + 24, &d->imm, sizeof(d->imm));
	put_be32(buf + 28, d->length);
	memcpy(buf + 32, d->sgid, DATAGRAM_GID);
	memcpy(buf + 48, d->dgid, DATAGRAM_GID);
	put_be32(buf + CRC_AT, 0);
}

static uint32_t sum(const uint8_t *buf, size_t len)
{
	uint32_t crc = crc32c_update(CRC32C_INIT, buf, CRC_AT);

	return crc32c_update(crc, buf + DATAGRAM_HDR, len);
}

void datagram_seal(uint8_t *buf, size_t len)
{
	put_be32(buf, MAGIC_SEALED);
	crc32c_put(buf + CRC_AT, sum(buf, len));
}

/* May a queue pair that sends have this number? */
static bool is_sender(uint32_t qpn)
{
	return qpn > 1 && qpn < DATAGRAM_MULTICAST;
}

static bool makes_sense(const struct datagram *d)
{
	return !(d->flags & ~ALL_FLAGS) && d->flow_label <= 0xfffff && is_sender(d->src_qpn) &&
	       d->dst_qpn > 1 && d->dst_qpn <= DATAGRAM_MULTICAST &&
	       (d->dst_qpn == DATAGRAM_MULTICAST) == datagram_is_mgid(d->dgid) &&
	       ((d->flags & DATAGRAM_IMM) || !d->imm);
}

int datagram_decode(const uint8_t *buf, size_t len, struct datagram *d, bool *sealed)
{
	struct datagram seen;
	uint32_t magic;

	if (len < DATAGRAM_HDR || len > DATAGRAM_MAX || buf[4] != VERSION)
		return -EPROTO;
	magic = get_be32(buf);
	if (magic != MAGIC_PLAIN && magic != MAGIC_SEALED)
		return -EPROTO;
	if (magic == MAGIC_PLAIN ? get_be32(buf + CRC_AT) != 0
				 : !crc32c_matches(buf + CRC_AT, sum(buf, len - DATAGRAM_HDR)))
		return -EPROTO;
	seen = (struct datagram){
		.flags = buf[5],
		.traffic_class = buf[6],
		.hop_limit = buf[7],
		.flow_label = get_be32(buf + 8),
		.src_qpn = get_be32(buf + 12),
		.dst_qpn = get_be32(buf + 16),
		.qkey = get_be32(buf + 20),
		.length = get_be32(buf + 28),
	};
	memcpy(&seen.imm, buf + 24, sizeof(seen.imm));
	memcpy(seen.sgid, buf + 32, DATAGRAM_GID);
	memcpy(seen.dgid, buf + 48, DATAGRAM_GID);
	if (seen.length != len - DATAGRAM_HDR || !makes_sense(&seen))
		return -EPROTO;
	*d = seen;
	*sealed = magic == MAGIC_SEALED;
	return 0;
}

size_t datagram_first(const uint8_t *buf, size_t len)
{
	uint32_t payload;

	if (len < DATAGRAM_HDR)
		return 0;
	payload = get_be32(buf + 28);
	return payload <= DATAGRAM_PAYLOAD && payload <= len - DATAGRAM_HDR ? DATAGRAM_HDR + payload
									    : 0;
}

/* ---- the 40 bytes ------------------------------------------------------ */

#define V4_LEN	  20
#define V4_FIRST  0x45 /* version 4, a header of 5 words */
#define DONT_FRAG 0x4000
#define UDP	  17
#define UDP_LEN	  8
#define BTH_LEN	  12
#define DETH_LEN  8
#define IMM_LEN	  4
#define ICRC_LEN  4

/* Returns what a RoCE v2 packet has behind its IP header. */
static uint16_t packet_len(const struct datagram *d)
{
	uint32_t pad = -d->length & 3;

	return (uint16_t)(UDP_LEN + BTH_LEN + DETH_LEN + (d->flags & DATAGRAM_IMM ? IMM_LEN : 0) +
			  d->length + pad + ICRC_LEN);
}

/* RFC 1071. */
static uint16_t checksum(const uint8_t *header)
{
	uint32_t total = 0;

	for (unsigned i = 0; i < V4_LEN; i += 2)
		total += get_be16(header + i);
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return (uint16_t)~total;
}

bool grh_is_v4(const struct datagram *d)
{
	return is_v4(d->sgid) && is_v4(d->dgid);
}

static void put_v4(const struct datagram *d, uint8_t *p)
{
	p[0] = V4_FIRST;
	p[1] = d->traffic_class;
	put_be16(p + 2, (uint16_t)(V4_LEN + packet_len(d)));
	put_be16(p + 4, 0);
	put_be16(p + 6, DONT_FRAG);
	p[8] = d->hop_limit;
	p[9] = UDP;
	put_be16(p + 10, 0);
	memcpy(p + 12, d->sgid + sizeof(v4_prefix), 4);
	memcpy(p + 16, d->dgid + sizeof(v4_prefix), 4);
	put_be16(p + 10, checksum(p));
}

static void put_v6(const struct datagram *d, uint8_t *p)
{
	put_be32(p, 6u << 28 | (uint32_t)d->traffic_class << 20 | (d->flow_label & 0xfffff));
	put_be16(p + 4, packet_len(d));
	p[6] = UDP;
	p[7] = d->hop_limit;
	memcpy(p + 8, d->sgid, DATAGRAM_GID);
	memcpy(p + 24, d->dgid, DATAGRAM_GID);
}

void grh_put(const struct datagram *d, uint8_t grh[GRH_LEN])
{
	if (!grh_is_v4(d)) {
		put_v6(d, grh);
		return;
	}
	memset(grh, 0, GRH_V4);
	put_v4(d, grh + GRH_V4);
}

/*
 * The first 20 bytes of an IPv4 one are undefined on some adapters, and may look like IPv6: then the checksum of the IPv4
 * header decides.
 */
static int version_of(const uint8_t grh[GRH_LEN])
{
	const uint8_t *v4 = grh + GRH_V4;

	if (grh[0] >> 4 != 6)
		return v4[0] >> 4 == 4 ? 4 : -EPROTONOSUPPORT;
	return v4[0] == V4_FIRST && checksum(v4) == 0 ? 4 : 6;
}

static void map_v4(uint8_t gid[DATAGRAM_GID], const uint8_t *addr)
{
	memcpy(gid, v4_prefix, sizeof(v4_prefix));
	memcpy(gid + sizeof(v4_prefix), addr, 4);
}

int grh_get(const uint8_t grh[GRH_LEN], struct grh *out)
{
	uint32_t first = get_be32(grh);
	int version = version_of(grh);

	if (version < 0)
		return version;
	*out = (struct grh){.version = (uint8_t)version, .flow_label = first & 0xfffff};
	if (version == 4) {
		out->traffic_class = grh[GRH_V4 + 1];
		out->hop_limit = grh[GRH_V4 + 8];
		out->next_header = grh[GRH_V4 + 9];
		map_v4(out->sgid, grh + GRH_V4 + 12);
		map_v4(out->dgid, grh + GRH_V4 + 16);
		return 0;
	}
	out->traffic_class = (uint8_t)(first >> 20);
	out->next_header = grh[6];
	out->hop_limit = grh[7];
	memcpy(out->sgid, grh + 8, DATAGRAM_GID);
	memcpy(out->dgid, grh + 24, DATAGRAM_GID);
	return 0;
}
