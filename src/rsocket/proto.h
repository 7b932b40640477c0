/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * proto.h - the rsocket protocol on the wire.
 *
 * Two sides exchange an offer as private data when they connect: where data
 * may be written, how many messages may be in flight, and where the other
 * side may announce further buffers. After that, data is written directly into
 * the peer's ring, and 32-bit messages announce it.
 *
 * A message is three bits of operation and 29 bits of value. Over iWARP it is
 * the payload of a Send, in the sender's byte order; elsewhere it is the
 * immediate data of a Write.
 *
 *      0 DATA    this many bytes were appended to the ring
 *      4 CREDIT  up to this number messages may be sent; a slot may have been refilled
 *      6 IOMAP   this entry of your iomap was rewritten
 *      7 CTRL    disconnect, keepalive or shutdown
 */
#ifndef STAG_RSOCKET_PROTO_H
#define STAG_RSOCKET_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RS_OFFER_LEN 40 /* bytes of private data */
#define RS_SLOTS     2	/* buffers that a peer may hold, one for each half of the ring */
#define RS_MSG_LEN   4
#define RS_MSG_MAX   ((1u << 29) - 1) /* the largest value of a message */

enum rs_op { RS_OP_DATA = 0, RS_OP_CREDIT = 4, RS_OP_IOMAP = 6, RS_OP_CTRL = 7 };

enum rs_ctrl { RS_CTRL_DISCONNECT = 0, RS_CTRL_KEEPALIVE = 1, RS_CTRL_SHUTDOWN = 2 };

/* Memory of one side that the other may write; the layout in the slots, too. */
struct rs_region {
	uint64_t addr;
	uint32_t key;
	uint32_t length; /* bytes; for the slots, entries */
};

/* An entry of an iomap: `region` receives the stream offsets from `offset` on. */
struct rs_iomap {
	uint64_t offset;
	struct rs_region region;
};

_Static_assert(sizeof(struct rs_region) == 16, "written by the peer");
_Static_assert(sizeof(struct rs_iomap) == 24, "written by the peer");

/* The parameters that a side announces when it connects. */
struct rs_offer {
	uint16_t credits;	/* messages that may be sent before the first grant */
	uint16_t iomaps;	/* entries of the iomap, which follows the slots in memory */
	struct rs_region slots; /* where the peer announces its buffers */
	struct rs_region data;	/* the first buffer */
};

static inline uint32_t rs_msg(enum rs_op op, uint32_t value)
{
	return (uint32_t)op << 29 | (value & RS_MSG_MAX);
}

static inline unsigned rs_msg_op(uint32_t msg)
{
	return msg >> 29;
}

static inline uint32_t rs_msg_value(uint32_t msg)
{
	return msg & RS_MSG_MAX;
}

void rs_offer_pack(const struct rs_offer *offer, uint8_t out[RS_OFFER_LEN]);

/*
 * Parses an offer. Returns -EPROTO if it is too short, -ENOTSUP for another version of the
 * protocol, or for a peer of the other byte order: the layout of its slots and messages over iWARP
 * is not defined.
 */
int rs_offer_parse(const void *bytes, size_t len, struct rs_offer *out);

/* Rounds `n` down to a size that the offer's one byte can express. */
uint16_t rs_iomaps_round(int n);

#endif
