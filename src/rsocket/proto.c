// SPDX-License-Identifier: BSD-2-Clause
/*
 * proto.c - the offer that two rsockets exchange when they connect.
 *
 * Pure functions over bytes. Whether the regions in an offer can be written is for the adapters to
 * check.
 */
#include "rsocket/proto.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define VERSION	   1
#define FLAG_NET   (1u << 0) /* the sender is big-endian */
#define FLAG_IOMAP (1u << 1) /* the sender supports iomaps */

/* Same layout in memory and on the wire: the compiler adds no padding. */
struct offer_wire {
	uint8_t version;
	uint8_t flags;
	uint16_t credits;
	uint8_t reserved[3];
	uint8_t iomaps; /* the number itself up to 128; above, 128 + units of 256 */
	struct rs_region slots;
	struct rs_region data;
};

_Static_assert(sizeof(struct offer_wire) == RS_OFFER_LEN, "private data of rsockets");

static uint8_t iomaps_to_byte(int n)
{
	if (n <= 128)
		return (uint8_t)n;
	return (uint8_t)(128 | (n >> 8 > 127 ? 127 : n >> 8));
}

static uint16_t iomaps_from_byte(uint8_t byte)
{
	return byte <= 128 ? byte : (uint16_t)((byte & 127) << 8);
}

uint16_t rs_iomaps_round(int n)
{
	return n <= 0 ? 0 : iomaps_from_byte(iomaps_to_byte(n));
}

static struct rs_region region_swap(const struct rs_region *r)
{
	return (struct rs_region){
		.addr = htobe64(r->addr), .key = htobe32(r->key), .length = htobe32(r->length)};
}

static uint8_t own_order(void)
{
	return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? FLAG_NET : 0;
}

void rs_offer_pack(const struct rs_offer *offer, uint8_t out[RS_OFFER_LEN])
{
	struct offer_wire w = {.version = VERSION,
			       .flags = FLAG_IOMAP | own_order(),
			       .credits = htobe16(offer->credits),
			       .iomaps = iomaps_to_byte(offer->iomaps),
			       .slots = region_swap(&offer->slots),
			       .data = region_swap(&offer->data)};

	memcpy(out, &w, sizeof(w));
}

int rs_offer_parse(const void *bytes, size_t len, struct rs_offer *out)
{
	struct offer_wire w;

	if (!bytes || len < sizeof(w))
		return -EPROTO;
	memcpy(&w, bytes, sizeof(w));
	if (w.version != VERSION || (w.flags & FLAG_NET) != own_order())
		return -ENOTSUP;

	out->credits = be16toh(w.credits);
	out->iomaps = w.flags & FLAG_IOMAP ? iomaps_from_byte(w.iomaps) : 0;
	out->slots = region_swap(&w.slots);
	out->data = region_swap(&w.data);
	return out->slots.length == RS_SLOTS ? 0 : -EPROTO;
}
