// SPDX-License-Identifier: BSD-2-Clause
/*
 * ddp.c - DDP segments (RFC 5041 §4): encodes and decodes headers.
 *
 * The second byte is RDMAP's, and is decoded here, too, since no segment is of use without it.
 * Decodes what a header claims; rdmap.c checks the opcode, and the adapter the access.
 */
#include "wire/wire.h"

#define DDP_VERSION	   0x01
#define DDP_VERSION_MASK   0x03
#define DDP_BITS_MASK	   (DDP_CLOSE | DDP_ADVERTISE)
#define RDMAP_VERSION	   0x40
#define RDMAP_VERSION_MASK 0xc0
#define RDMAP_RSV_MASK	   0x30
#define RDMAP_OPCODE_MASK  0x0f

size_t ddp_encode(const struct ddp_hdr *h, uint8_t *buf)
{
	buf[0] = (uint8_t)((h->tagged ? DDP_T : 0) | (h->last ? DDP_L : 0) |
			   (h->bits & DDP_BITS_MASK) | (h->summed ? DDP_SUM : 0) | DDP_VERSION);
	buf[1] = (uint8_t)(RDMAP_VERSION | (h->rsv & RDMAP_RSV_MASK) |
			   (h->opcode & RDMAP_OPCODE_MASK));
	if (h->tagged) {
		put_be32(buf + 2, h->stag);
		put_be64(buf + 6, h->to);
		return DDP_TAGGED_LEN;
	}
	put_be32(buf + 2, h->ulp);
	put_be32(buf + 6, h->qn);
	put_be32(buf + 10, h->msn);
	put_be32(buf + 14, h->mo);
	return DDP_UNTAGGED_LEN;
}

static struct wire_fault check_versions(const uint8_t *buf)
{
	if ((buf[0] & DDP_VERSION_MASK) != DDP_VERSION)
		return buf[0] & DDP_T ? FAULT_DDP_TAGGED_VERSION : FAULT_DDP_UNTAGGED_VERSION;
	if ((buf[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
		return FAULT_RDMAP_VERSION;
	return WIRE_OK;
}

struct wire_fault ddp_decode(const uint8_t *buf, struct ddp_hdr *h)
{
	struct wire_fault fault = check_versions(buf);

	if (fault.set)
		return fault;
	*h = (struct ddp_hdr){
		.tagged = buf[0] & DDP_T,
		.last = buf[0] & DDP_L,
		.summed = buf[0] & DDP_SUM,
		.opcode = buf[1] & RDMAP_OPCODE_MASK,
		.rsv = buf[1] & RDMAP_RSV_MASK,
		.bits = buf[0] & DDP_BITS_MASK,
	};
	if (h->tagged) {
		h->stag = get_be32(buf + 2);
		h->to = get_be64(buf + 6);
		return WIRE_OK;
	}
	h->ulp = get_be32(buf + 2);
	h->qn = get_be32(buf + 6);
	h->msn = get_be32(buf + 10);
	h->mo = get_be32(buf + 14);
	return WIRE_OK;
}
