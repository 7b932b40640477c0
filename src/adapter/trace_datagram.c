// SPDX-License-Identifier: BSD-2-Clause
/*
 * trace_datagram.c - datagrams in a trace, as RoCE v2 packets.
 *
 * A datagram has a header of our own, and travels by UDP or through a Unix socket (wire/datagram.h). The trace has the packet
 * that a RoCE v2 adapter would have sent instead: IP, UDP to port 4791, the InfiniBand headers BTH and DETH, the payload and
 * the invariant CRC. Wireshark decodes these.
 */
#include "adapter/trace.h"

#include <netinet/in.h>
#include <string.h>

#include "adapter/config.h"
#include "adapter/trace_file.h"
#include "base/bytes.h"
#include "wire/datagram.h"

#define ROCE_PORT   4791
#define SOURCE_PORT 0xc000 /* RoCE v2 takes ports from here on; its low bits vary */
#define UDP_LEN	    8
#define BTH_LEN	    12
#define DETH_LEN    8
#define IMM_LEN	    4
#define ICRC_LEN    4
#define UD_SEND	    0x64 /* UD, Send Only; with immediate data the next one */
#define SOLICITED   0x80
#define MIGRATED    0x40
#define V4_PREFIX   12 /* bytes of ::ffff:0:0/96 */
#define HEADERS_MAX (TRACE_IP_MAX + UDP_LEN + BTH_LEN + DETH_LEN + IMM_LEN)
#define DUMMY_LRH   8 /* bytes of ones, as if an InfiniBand header was before the IP header */
#define CRC_POLY    0xedb88320u

/* ---- the invariant CRC: Ethernet's CRC32 without the bytes that routers change ---- */

static uint32_t crc32_add(uint32_t crc, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC_POLY : 0);
	}
	return crc;
}

/* Sets what is masked to ones: of IP, of UDP the checksum, of BTH the reserved byte. */
static void mask(uint8_t *headers, size_t ip_len)
{
	uint8_t *udp = headers + ip_len;

	if (ip_len == TRACE_IP_MAX) {
		headers[0] |= 0x0f; /* traffic class and flow label */
		memset(headers + 1, 0xff, 3);
		headers[7] = 0xff; /* hop limit */
	} else {
		headers[1] = 0xff; /* type of service */
		headers[8] = 0xff; /* time to live */
		memset(headers + 10, 0xff, 2);
	}
	memset(udp + 6, 0xff, 2);
	udp[UDP_LEN + 4] = 0xff;
}

static uint32_t icrc(const uint8_t *headers, size_t len, size_t ip_len, const uint8_t *payload,
		     size_t payload_len)
{
	uint8_t masked[DUMMY_LRH + HEADERS_MAX];

	memset(masked, 0xff, DUMMY_LRH);
	memcpy(masked + DUMMY_LRH, headers, len);
	mask(masked + DUMMY_LRH, ip_len);
	return ~crc32_add(crc32_add(~0u, masked, DUMMY_LRH + len), payload, payload_len);
}

/* ---- headers ---- */

static struct trace_path path_of(const struct datagram *d)
{
	struct trace_path path = {
		.ipv6 = !grh_is_v4(d),
		.traffic_class = d->traffic_class,
		.hop_limit = d->hop_limit,
		.flow_label = d->flow_label,
	};
	size_t skip = path.ipv6 ? 0 : V4_PREFIX;

	memcpy(path.from, d->sgid + skip, DATAGRAM_GID - skip);
	memcpy(path.to, d->dgid + skip, DATAGRAM_GID - skip);
	return path;
}

/* Writes BTH, DETH and immediate data. Returns their length. */
static size_t put_transport(uint8_t *p, const struct datagram *d)
{
	static uint32_t psn; /* trace_lock */
	bool imm = d->flags & DATAGRAM_IMM;

	p[0] = UD_SEND + imm;
	p[1] = (uint8_t)((d->flags & DATAGRAM_SOLICITED ? SOLICITED : 0) | MIGRATED |
			 (-d->length & 3) << 4);
	put_be16(p + 2, 0xffff); /* the partition key */
	put_be32(p + 4, d->dst_qpn);
	put_be32(p + 8, psn++ & 0xffffff);
	put_be32(p + BTH_LEN, d->qkey);
	put_be32(p + BTH_LEN + 4, d->src_qpn);
	if (imm)
		memcpy(p + BTH_LEN + DETH_LEN, &d->imm, IMM_LEN);
	return BTH_LEN + DETH_LEN + (imm ? IMM_LEN : 0);
}

static void put_udp(uint8_t *p, const struct datagram *d, size_t len)
{
	put_be16(p, (uint16_t)(SOURCE_PORT | (d->src_qpn & 0x3fff)));
	put_be16(p + 2, ROCE_PORT);
	put_be16(p + 4, (uint16_t)len);
	put_be16(p + 6, 0);
}

/* UDP's checksum: of everything behind the IP header. */
static void set_checksum(uint8_t *udp, const struct trace_path *path, size_t headers_len,
			 const uint8_t *rest, size_t rest_len)
{
	struct checksum c = {0};
	uint16_t sum;

	checksum_add_path(&c, path, IPPROTO_UDP, headers_len + rest_len);
	checksum_add(&c, udp, headers_len);
	checksum_add(&c, rest, rest_len);
	sum = checksum_end(&c);
	memcpy(udp + 6, &(uint16_t){sum ? sum : 0xffff}, sizeof(sum));
}

static void record(bool sent, const struct datagram *d, const uint8_t *payload)
{
	static uint8_t
		rest[DATAGRAM_PAYLOAD + 3 + ICRC_LEN]; /* payload, padding, CRC; trace_lock */
	struct trace_path path = path_of(d);
	size_t padded = d->length + (-d->length & 3), rest_len = padded + ICRC_LEN;
	size_t ip_len = path.ipv6 ? TRACE_IP_MAX : TRACE_IP_MAX / 2, udp_len;
	uint8_t headers[HEADERS_MAX], *udp = headers + ip_len;
	uint32_t crc;

	udp_len = UDP_LEN + put_transport(udp + UDP_LEN, d);
	put_udp(udp, d, udp_len + rest_len);
	trace_put_ip(headers, &path, IPPROTO_UDP, udp_len + rest_len);
	memcpy(rest, payload, d->length);
	memset(rest + d->length, 0, padded - d->length);
	crc = icrc(headers, ip_len + udp_len, ip_len, rest, padded);
	put_le32(rest + padded, crc);
	set_checksum(udp, &path, udp_len, rest, rest_len);
	trace_file_packet(sent, headers, ip_len + udp_len, rest, rest_len);
}

void trace_datagram(bool sent, const struct datagram *d, const uint8_t *payload)
{
	if (!config()->trace)
		return;
	trace_file_prepare();
	HOLD_FOR_SCOPE(&trace_lock);
	if (trace_file_open())
		record(sent, d, payload);
}
