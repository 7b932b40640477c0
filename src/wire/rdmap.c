// SPDX-License-Identifier: BSD-2-Clause
/*
 * rdmap.c - RDMAP messages (RFC 5040 §4, RFC 7306): the opcodes, the headers that some messages
 * carry as payload, and the result of an atomic.
 *
 * The adapter checks access to the memory that a message names.
 */
#include "wire/wire.h"

#define ANY_LENGTH     (-1)
#define ATOMIC_OP_MASK 0xf

enum op_class { UNASSIGNED, TAGGED, UNTAGGED };

struct op_rule {
	enum op_class class;
	uint8_t qn;	/* untagged messages */
	int16_t length; /* of the payload, in one segment; or ANY_LENGTH */
	uint16_t cap;	/* required enum mpa_ext_cap; 0: every peer supports it */
};

/*
 * A Terminate of any length is accepted: its content is no fault of its own. RDMAP_ESCAPE: see
 * sub_rules.
 */
static const struct op_rule op_rules[RDMAP_OPCODES] = {
	[RDMAP_WRITE] = {TAGGED, 0, ANY_LENGTH, 0},
	[RDMAP_READ_REQ] = {UNTAGGED, QN_READ, RDMAP_READ_REQ_LEN, 0},
	[RDMAP_READ_RESP] = {TAGGED, 0, ANY_LENGTH, 0},
	[RDMAP_SEND] = {UNTAGGED, QN_SEND, ANY_LENGTH, 0},
	[RDMAP_SEND_INV] = {UNTAGGED, QN_SEND, ANY_LENGTH, 0},
	[RDMAP_SEND_SE] = {UNTAGGED, QN_SEND, ANY_LENGTH, 0},
	[RDMAP_SEND_SE_INV] = {UNTAGGED, QN_SEND, ANY_LENGTH, 0},
	[RDMAP_TERMINATE] = {UNTAGGED, QN_TERMINATE, ANY_LENGTH, 0},
	[RDMAP_IMM] = {UNTAGGED, QN_SEND, RDMAP_IMM_LEN, MPA_EXT_IMM},
	[RDMAP_IMM_SE] = {UNTAGGED, QN_SEND, RDMAP_IMM_LEN, MPA_EXT_IMM},
	[RDMAP_ATOMIC_REQ] = {UNTAGGED, QN_READ, RDMAP_ATOMIC_REQ_LEN, MPA_EXT_ATOMIC},
	[RDMAP_ATOMIC_RESP] = {UNTAGGED, QN_ATOMIC, RDMAP_ATOMIC_RESP_LEN, MPA_EXT_ATOMIC},
	[RDMAP_SEND_CLOSE] = {UNTAGGED, QN_SEND, ANY_LENGTH, MPA_EXT_ONE_SHOT},
	[RDMAP_SEND_ADVERTISE] = {UNTAGGED, QN_SEND, ANY_LENGTH, MPA_EXT_ONE_SHOT},
	[RDMAP_SEND_IMM] = {UNTAGGED, QN_SEND, ANY_LENGTH, MPA_EXT_SEND_IMM},
};

/* RDMAP_ESCAPE, by enum rdmap_subtype. */
static const struct op_rule sub_rules[RDMAP_SUBTYPES] = {
	[RDMAP_SUB_FLUSH] = {UNTAGGED, QN_READ, RDMAP_FLUSH_REQ_LEN, MPA_EXT_FLUSH},
	[RDMAP_SUB_ACK] = {UNTAGGED, QN_TERMINATE, 0, MPA_EXT_ACK},
	[RDMAP_SUB_NAK] = {UNTAGGED, QN_TERMINATE, 0, MPA_EXT_ACK},
	[RDMAP_SUB_GO] = {UNTAGGED, QN_TERMINATE, 0, MPA_EXT_ACK},
	[RDMAP_SUB_RESUME] = {UNTAGGED, QN_TERMINATE, 0, MPA_EXT_ACK},
};

/* Returns a rule of class UNASSIGNED for a subtype that does not exist. */
static const struct op_rule *find_rule(const struct ddp_hdr *h)
{
	if (h->opcode == RDMAP_ESCAPE && rdmap_subtype(h->ulp) < RDMAP_SUBTYPES)
		return &sub_rules[rdmap_subtype(h->ulp)];
	return &op_rules[h->opcode & 0xf];
}

struct wire_fault rdmap_check(const struct ddp_hdr *h, size_t payload_len, unsigned caps)
{
	const struct op_rule *rule = find_rule(h);

	if (rule->class == UNASSIGNED || (rule->cap & ~caps))
		return FAULT_RDMAP_OPCODE;
	if ((rule->class == TAGGED) != h->tagged)
		return FAULT_RDMAP_OPCODE;
	if (rule->class == UNTAGGED && rule->qn != h->qn)
		return FAULT_DDP_INVALID_QN;
	if (rule->length == ANY_LENGTH)
		return WIRE_OK;
	if (payload_len != (size_t)rule->length || !h->last)
		return FAULT_RDMAP_OP_OTHER;
	return WIRE_OK;
}

static bool is_shot(const struct ddp_hdr *h)
{
	return h->opcode == RDMAP_SEND_CLOSE || h->opcode == RDMAP_SEND_ADVERTISE;
}

/* Returns the plain opcode of a one-shot send, with or without a solicited event. */
static uint8_t plain_send(const struct ddp_hdr *h)
{
	return h->rsv & RDMAP_RSV_SE ? RDMAP_SEND_SE : RDMAP_SEND;
}

/* For a standard peer: an advertised STag is in the body, if at all. */
static void standard_send(struct ddp_hdr *h)
{
	if (h->opcode == RDMAP_SEND_CLOSE) {
		h->opcode = h->rsv & RDMAP_RSV_SE ? RDMAP_SEND_SE_INV : RDMAP_SEND_INV;
	} else {
		h->opcode = plain_send(h);
		h->ulp = 0;
	}
	h->rsv = 0;
}

void rdmap_shot_to_wire(struct ddp_hdr *h, enum shot_encoding e)
{
	if (!is_shot(h))
		return;
	switch (e) {
	case SHOT_NONE:
		standard_send(h);
		break;
	case SHOT_LITERAL: /* both solicit an event */
		h->opcode = h->opcode == RDMAP_SEND_CLOSE ? RDMAP_SEND_CLOSE : RDMAP_IMM;
		h->rsv = 0;
		break;
	case SHOT_OPCODES:
		break;
	case SHOT_BITS:
		h->bits = h->opcode == RDMAP_SEND_CLOSE ? DDP_CLOSE : DDP_ADVERTISE;
		h->opcode = plain_send(h);
		h->rsv = 0;
		break;
	}
}

static struct wire_fault from_literal(struct ddp_hdr *h)
{
	if (h->opcode == RDMAP_SEND_ADVERTISE)
		return FAULT_RDMAP_OPCODE;
	if (h->opcode == RDMAP_IMM)
		h->opcode = RDMAP_SEND_ADVERTISE;
	if (is_shot(h))
		h->rsv = RDMAP_RSV_SE;
	return WIRE_OK;
}

/* The bits have a meaning only where RsvdULP can hold an STag; elsewhere they are reserved. */
static struct wire_fault from_bits(struct ddp_hdr *h)
{
	if (is_shot(h))
		return FAULT_RDMAP_OPCODE;
	if (h->tagged || h->qn != QN_SEND || !h->bits)
		return WIRE_OK;
	if ((h->opcode != RDMAP_SEND && h->opcode != RDMAP_SEND_SE) ||
	    h->bits == (DDP_CLOSE | DDP_ADVERTISE))
		return FAULT_RDMAP_OP_OTHER;
	h->rsv = h->opcode == RDMAP_SEND_SE ? RDMAP_RSV_SE : 0;
	h->opcode = h->bits == DDP_CLOSE ? RDMAP_SEND_CLOSE : RDMAP_SEND_ADVERTISE;
	return WIRE_OK;
}

struct wire_fault rdmap_shot_from_wire(struct ddp_hdr *h, enum shot_encoding e)
{
	switch (e) {
	case SHOT_LITERAL:
		return from_literal(h);
	case SHOT_BITS:
		return from_bits(h);
	case SHOT_NONE:	   /* rdmap_check() refuses one-shot sends, */
	case SHOT_OPCODES: /* or accepts them as they are */
		break;
	}
	return WIRE_OK;
}

void rdmap_put_read_req(uint8_t *buf, const struct rdmap_read_req *r)
{
	put_be32(buf, r->sink_stag);
	put_be64(buf + 4, r->sink_to);
	put_be32(buf + 12, r->size);
	put_be32(buf + 16, r->src_stag);
	put_be64(buf + 20, r->src_to);
}

void rdmap_get_read_req(const uint8_t *buf, struct rdmap_read_req *r)
{
	r->sink_stag = get_be32(buf);
	r->sink_to = get_be64(buf + 4);
	r->size = get_be32(buf + 12);
	r->src_stag = get_be32(buf + 16);
	r->src_to = get_be64(buf + 20);
}

void rdmap_put_atomic_req(uint8_t *buf, const struct rdmap_atomic_req *r)
{
	put_be32(buf, r->op & ATOMIC_OP_MASK);
	put_be32(buf + 4, r->id);
	put_be32(buf + 8, r->stag);
	put_be64(buf + 12, r->to);
	put_be64(buf + 20, r->data);
	put_be64(buf + 28, r->mask);
	put_be64(buf + 36, r->compare);
	put_be64(buf + 44, r->compare_mask);
}

void rdmap_get_atomic_req(const uint8_t *buf, struct rdmap_atomic_req *r)
{
	r->op = buf[3] & ATOMIC_OP_MASK;
	r->id = get_be32(buf + 4);
	r->stag = get_be32(buf + 8);
	r->to = get_be64(buf + 12);
	r->data = get_be64(buf + 20);
	r->mask = get_be64(buf + 28);
	r->compare = get_be64(buf + 36);
	r->compare_mask = get_be64(buf + 44);
}

void rdmap_put_atomic_resp(uint8_t *buf, const struct rdmap_atomic_resp *r)
{
	put_be32(buf, r->id);
	put_be64(buf + 4, r->value);
}

void rdmap_get_atomic_resp(const uint8_t *buf, struct rdmap_atomic_resp *r)
{
	r->id = get_be32(buf);
	r->value = get_be64(buf + 4);
}

void rdmap_put_flush_req(uint8_t *buf, const struct rdmap_flush_req *r)
{
	put_be32(buf, r->flags);
	put_be32(buf + 4, r->stag);
	put_be64(buf + 8, r->to);
	put_be64(buf + 16, r->length);
}

void rdmap_get_flush_req(const uint8_t *buf, struct rdmap_flush_req *r)
{
	r->flags = get_be32(buf);
	r->stag = get_be32(buf + 4);
	r->to = get_be64(buf + 8);
	r->length = get_be64(buf + 16);
}

/*
 * Adds field by field: a bit in tops is the top bit of a field, and no carry leaves the field.
 * So the top bits are added separately, without carry.
 */
static uint64_t add_fields(uint64_t a, uint64_t b, uint64_t tops)
{
	return ((a & ~tops) + (b & ~tops)) ^ ((a ^ b) & tops);
}

uint64_t rdmap_atomic_result(const struct rdmap_atomic_req *r, uint64_t found)
{
	if (r->op == RDMAP_FETCH_ADD)
		return add_fields(found, r->data, r->mask);
	if (r->op == RDMAP_CMP_SWAP && !((found ^ r->compare) & r->compare_mask))
		return (found & ~r->mask) | (r->data & r->mask);
	return found;
}
