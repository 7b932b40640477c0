// SPDX-License-Identifier: BSD-2-Clause
/*
 * terminate.c - Terminate messages (RFC 5040 §4.8): the faults, and the part of the faulty
 * segment that each message carries.
 *
 * A peer's Terminate is never refused for its content: the stream ends either way, and the
 * reason is for people to read.
 */
#include "wire/wire.h"

#include <errno.h>

#define CONTROL_LEN 4
#define SEG_LEN_LEN 2
#define SHORTEST    3 /* layer and type, code, control bits */
#define ANY_CODE    (-1)

/* Control bits, in the third byte; siw writes them in reverse order. */
enum { CONTROL_M = 0x80, CONTROL_D = 0x40, CONTROL_R = 0x20, CONTROL_ALL = 0xe0 };
enum { SIW_M = 0x01, SIW_D = 0x02, SIW_R = 0x04, SIW_ALL = 0x07 };

enum { RDMAP_LOCAL = 0, RDMAP_PROTECTION = 1, RDMAP_OPERATION = 2 };

struct fault_words {
	uint8_t layer, etype;
	int16_t code;
	const char *words;
};

static const struct fault_words known_faults[] = {
	{0, 0, ANY_CODE, "RDMAP: local catastrophic error"},
	{0, 1, 0x00, "RDMAP protection: invalid STag"},
	{0, 1, 0x01, "RDMAP protection: base or bounds violation"},
	{0, 1, 0x02, "RDMAP protection: access rights violation"},
	{0, 1, 0x03, "RDMAP protection: STag not associated with the stream"},
	{0, 1, 0x04, "RDMAP protection: TO wrap"},
	{0, 1, 0x09, "RDMAP protection: STag cannot be invalidated"},
	{0, 1, 0xff, "RDMAP protection: unspecified error"},
	{0, 2, 0x05, "RDMAP operation: invalid RDMAP version"},
	{0, 2, 0x06, "RDMAP operation: unexpected opcode"},
	{0, 2, 0x07, "RDMAP operation: catastrophic error of the stream"},
	{0, 2, 0x08, "RDMAP operation: catastrophic error of all streams"},
	{0, 2, 0x09, "RDMAP operation: STag cannot be invalidated"},
	{0, 2, 0xff, "RDMAP operation: unspecified error"},
	{1, 0, 0x00, "DDP: local catastrophic error"},
	{1, 1, 0x00, "DDP tagged: invalid STag"},
	{1, 1, 0x01, "DDP tagged: base or bounds violation"},
	{1, 1, 0x02, "DDP tagged: STag not associated with the stream"},
	{1, 1, 0x03, "DDP tagged: TO wrap"},
	{1, 1, 0x04, "DDP tagged: invalid DDP version"},
	{1, 2, 0x01, "DDP untagged: invalid queue number"},
	{1, 2, 0x02, "DDP untagged: invalid MSN, no buffer"},
	{1, 2, 0x03, "DDP untagged: invalid MSN, out of range"},
	{1, 2, 0x04, "DDP untagged: invalid MO"},
	{1, 2, 0x05, "DDP untagged: message too long for the buffer"},
	{1, 2, 0x06, "DDP untagged: invalid DDP version"},
	{2, 0, 0x01, "MPA: TCP connection lost"},
	{2, 0, 0x02, "MPA: CRC mismatch"},
	{2, 0, 0x03, "MPA: marker and length disagree"},
	{2, 0, 0x04, "MPA: invalid request or reply frame"},
	{2, 0, 0x05, "MPA: local catastrophic error"},
	{2, 0, 0x06, "MPA: insufficient IRD"},
	{2, 0, 0x07, "MPA: no matching RTR option"},
};

static const struct fault_words *find_fault(struct wire_fault f)
{
	for (size_t i = 0; i < sizeof(known_faults) / sizeof(known_faults[0]); i++) {
		const struct fault_words *k = &known_faults[i];

		if (k->layer == f.layer && k->etype == f.etype &&
		    (k->code == ANY_CODE || k->code == f.code))
			return k;
	}
	return NULL;
}

const char *wire_fault_str(struct wire_fault f)
{
	const struct fault_words *known = f.set ? find_fault(f) : NULL;

	if (!f.set)
		return "no fault";
	if (known)
		return known->words;
	switch (f.layer) {
	case FAULT_LAYER_RDMAP:
		return "RDMAP: unknown fault";
	case FAULT_LAYER_DDP:
		return "DDP: unknown fault";
	case FAULT_LAYER_LLP:
		return "MPA: unknown fault";
	}
	return "unknown fault of an unknown layer";
}

/* Does the message for this fault carry the terminated segment's header? */
static bool wants_ddp(struct wire_fault f)
{
	return f.layer == FAULT_LAYER_DDP ||
	       (f.layer == FAULT_LAYER_RDMAP && f.etype != RDMAP_LOCAL);
}

/* Does it carry the Read Request as well, if the segment was one? */
static bool wants_rdmap(struct wire_fault f)
{
	return f.layer == FAULT_LAYER_RDMAP && f.etype == RDMAP_PROTECTION;
}

static bool is_read_request(const uint8_t *seg)
{
	return !(seg[0] & DDP_T) && (seg[1] & 0x0f) == RDMAP_READ_REQ;
}

void terminate_init(struct terminate *t, struct wire_fault f, const uint8_t *seg, size_t avail,
		    size_t ulpdu_len)
{
	size_t hdr_len = seg && avail ? ddp_hdr_len(seg[0]) : 0;

	*t = (struct terminate){.fault = f};
	if (!wants_ddp(f) || hdr_len == 0 || avail < hdr_len)
		return;
	t->has_seg_len = true;
	t->seg_len = (uint16_t)ulpdu_len;
	t->has_ddp = true;
	memcpy(t->ddp, seg, hdr_len);
	if (!wants_rdmap(f) || !is_read_request(seg) || avail - hdr_len < RDMAP_READ_REQ_LEN)
		return;
	t->has_rdmap = true;
	memcpy(t->read_req, seg + hdr_len, RDMAP_READ_REQ_LEN);
}

size_t terminate_encode(const struct terminate *t, uint8_t *buf)
{
	size_t hdr_len = ddp_hdr_len(t->ddp[0]);
	uint8_t *p = buf + CONTROL_LEN;

	buf[0] = (uint8_t)(t->fault.layer << 4 | (t->fault.etype & 0x0f));
	buf[1] = t->fault.code;
	buf[2] = buf[3] = 0;
	if (!t->has_ddp)
		return CONTROL_LEN;

	buf[2] = (uint8_t)((t->has_seg_len ? CONTROL_M : 0) | CONTROL_D |
			   (t->has_rdmap ? CONTROL_R : 0));
	put_be16(p, t->has_seg_len ? t->seg_len : 0);
	memcpy(p + SEG_LEN_LEN, t->ddp, hdr_len);
	p += SEG_LEN_LEN + hdr_len;
	if (t->has_rdmap) {
		memcpy(p, t->read_req, RDMAP_READ_REQ_LEN);
		p += RDMAP_READ_REQ_LEN;
	}
	return (size_t)(p - buf);
}

/* siw's bit fields begin at the other end of the byte on little-endian machines. */
static uint8_t swap_nibbles(uint8_t b)
{
	return (uint8_t)(b << 4 | b >> 4);
}

static uint8_t from_siw_control(uint8_t b)
{
	return (uint8_t)((b & SIW_M ? CONTROL_M : 0) | (b & SIW_D ? CONTROL_D : 0) |
			 (b & SIW_R ? CONTROL_R : 0));
}

static struct wire_fault read_fault(uint8_t layer_etype, uint8_t code)
{
	return WIRE_FAULT(layer_etype >> 4, layer_etype & 0x0f, code);
}

/*
 * The control bits tell, if any are set: RFC 5040 reserves those that siw sets. If none is set:
 * a fault that exists only in the swapped reading.
 */
static bool is_swapped(const uint8_t *buf)
{
	bool standard_bits = buf[2] & CONTROL_ALL, siw_bits = buf[2] & SIW_ALL;

	if (standard_bits != siw_bits)
		return siw_bits;
	return !find_fault(read_fault(buf[0], buf[1])) &&
	       find_fault(read_fault(swap_nibbles(buf[0]), buf[1]));
}

/* Reads the parts that the control bits announce, as far as they are there. */
static void read_parts(const uint8_t *p, size_t len, uint8_t control, struct terminate *t)
{
	size_t hdr_len;

	if (!(control & CONTROL_D) || len < SEG_LEN_LEN + 1)
		return;
	hdr_len = ddp_hdr_len(p[SEG_LEN_LEN]);
	if (len - SEG_LEN_LEN < hdr_len)
		return;
	t->has_seg_len = control & CONTROL_M;
	t->seg_len = t->has_seg_len ? get_be16(p) : 0;
	t->has_ddp = true;
	memcpy(t->ddp, p + SEG_LEN_LEN, hdr_len);
	p += SEG_LEN_LEN + hdr_len;
	len -= SEG_LEN_LEN + hdr_len;
	if (!(control & CONTROL_R) || len < RDMAP_READ_REQ_LEN)
		return;
	t->has_rdmap = true;
	memcpy(t->read_req, p, RDMAP_READ_REQ_LEN);
}

int terminate_decode(const uint8_t *buf, size_t len, struct terminate *t, bool *swapped)
{
	uint8_t first, control;

	if (len < SHORTEST)
		return -EPROTO;
	*swapped = is_swapped(buf);
	first = *swapped ? swap_nibbles(buf[0]) : buf[0];
	control = *swapped ? from_siw_control(buf[2]) : buf[2];
	*t = (struct terminate){.fault = read_fault(first, buf[1])};
	if (len > CONTROL_LEN)
		read_parts(buf + CONTROL_LEN, len - CONTROL_LEN, control, t);
	return 0;
}
