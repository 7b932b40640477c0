/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * datagram.h - one message of a UD queue pair: its header on the wire, and the 40 bytes that its receiver sees before the
 * payload. Pure functions over buffers.
 *
 * A datagram carries a whole message: a header of DATAGRAM_HDR bytes, big-endian, then the payload.
 *
 *    0  magic: 4 bytes, one value with a CRC and another one without
 *    4  version (1)       5  flags      6  traffic class    7  hop limit
 *    8  flow label       12  source QPN
 *   16  destination QPN  20  Q_Key
 *   24  immediate        28  length of the payload
 *   32  source GID       48  destination GID (of multicast: the MGID)
 *   64  CRC32C of bytes 0 to 63 and the payload, least significant byte first; or zero
 *
 * The two magics differ in 16 bits, so that damage does not turn off the CRC.
 */
#ifndef STAG_DATAGRAM_H
#define STAG_DATAGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATAGRAM_HDR	   68
#define DATAGRAM_PAYLOAD   4096 /* at most: the largest MTU */
#define DATAGRAM_MAX	   (DATAGRAM_HDR + DATAGRAM_PAYLOAD)
#define DATAGRAM_GID	   16
#define DATAGRAM_MULTICAST 0xffffff /* destination QPN of multicast, and only of that */

enum datagram_flag { DATAGRAM_SOLICITED = 0x01, DATAGRAM_IMM = 0x02 };

struct datagram {
	uint8_t flags; /* enum datagram_flag */
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;	   /* 20 bits */
	uint32_t src_qpn, dst_qpn; /* 24 bits */
	uint32_t qkey;
	uint32_t imm; /* in the order of bytes that the program gave; 0 without DATAGRAM_IMM */
	uint32_t length;
	uint8_t sgid[DATAGRAM_GID], dgid[DATAGRAM_GID];
};

/* Encodes a header, without a CRC. */
void datagram_encode(const struct datagram *d, uint8_t *buf);

/* Turns an encoded datagram with its payload of len bytes behind the header into one with a CRC. */
void datagram_seal(uint8_t *buf, size_t len);

/*
 * Decodes a datagram of len bytes. Returns -EPROTO if a field has a value that a peer cannot have sent, if the length is
 * not that of the payload, or if there is a CRC and it is wrong. *sealed: there is one.
 */
int datagram_decode(const uint8_t *buf, size_t len, struct datagram *d, bool *sealed);

/*
 * A train: several datagrams one behind the other, on a local socket. Returns the length of the first one in len bytes, or 0
 * if there is no whole one.
 */
size_t datagram_first(const uint8_t *buf, size_t len);

/* Is the GID a multicast address: ff00::/8, or one of IPv4? */
bool datagram_is_mgid(const uint8_t gid[DATAGRAM_GID]);

/* ---- the 40 bytes ------------------------------------------------------ */

#define GRH_LEN 40
#define GRH_V4	20 /* where the header of IPv4 is, behind zeroes */

/* Writes them as a RoCE v2 adapter does: an IPv4 header if both GIDs are IPv4 addresses, else an IPv6 header. */
void grh_put(const struct datagram *d, uint8_t grh[GRH_LEN]);

bool grh_is_v4(const struct datagram *d); /* which of the two grh_put() writes */

/* What they say. version: 4 or 6. */
struct grh {
	uint8_t version, traffic_class, hop_limit, next_header;
	uint32_t flow_label;
	uint8_t sgid[DATAGRAM_GID], dgid[DATAGRAM_GID];
};

/* Reads 40 bytes of any adapter, as libibverbs does. Returns -EPROTONOSUPPORT if they are neither. */
int grh_get(const uint8_t grh[GRH_LEN], struct grh *out);

#endif
