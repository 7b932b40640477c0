// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_ddp.c - arbitrary DDP and RDMAP headers, Terminates and CRCs.
 *
 * The first byte chooses the property below that the rest is for.
 */
#include "fuzz.h"

#include <errno.h>

#include "base/crc32c.h"
#include "wire/wire.h"

enum { HEADER, READ_AND_ATOMIC, TERMINATE_IN, TERMINATE_OUT, CRC, KINDS };

#define ALL_CAPS 0xff

/*
 * A one-shot send is decoded as it was encoded, except for the solicited event, which a literal one
 * always has.
 */
static void one_shot(struct ddp_hdr h, enum shot_encoding e)
{
	struct ddp_hdr seen;

	if (rdmap_shot_from_wire(&h, e).set ||
	    (h.opcode != RDMAP_SEND_ADVERTISE && h.opcode != RDMAP_SEND_CLOSE) || h.tagged)
		return;
	h.rsv &= RDMAP_RSV_SE;
	h.bits = 0;
	seen = h;
	rdmap_shot_to_wire(&seen, e);
	CHECK(!rdmap_shot_from_wire(&seen, e).set);
	CHECK(seen.opcode == h.opcode && seen.ulp == h.ulp && seen.rsv == h.rsv);
}

/* A decoded header is encoded to the same bytes, except for unused reserved bits of DDP. */
static void header(const uint8_t *p, size_t len)
{
	uint8_t buf[DDP_MAX_HDR];
	struct ddp_hdr h;
	struct wire_fault fault;

	if (len == 0 || len < ddp_hdr_len(p[0]))
		return;
	fault = ddp_decode(p, &h);
	if (fault.set) {
		CHECK((p[0] & 3) != 1 || (p[1] & 0xc0) != 0x40);
		return;
	}
	CHECK(ddp_encode(&h, buf) == ddp_hdr_len(p[0]));
	CHECK(buf[0] == (p[0] & 0xfb));
	CHECK(!memcmp(buf + 1, p + 1, ddp_hdr_len(p[0]) - 1));
	/* A peer with extensions may send everything that a standard peer may. */
	if (!rdmap_check(&h, len - ddp_hdr_len(p[0]), 0).set)
		CHECK(!rdmap_check(&h, len - ddp_hdr_len(p[0]), ALL_CAPS).set);
	for (unsigned e = SHOT_LITERAL; e <= SHOT_BITS; e++)
		one_shot(h, e);
}

static uint64_t add_bit_by_bit(uint64_t a, uint64_t b, uint64_t tops)
{
	uint64_t result = 0;
	unsigned carry = 0;

	for (int i = 0; i < 64; i++) {
		unsigned sum = carry + (a >> i & 1) + (b >> i & 1);

		result |= (uint64_t)(sum & 1) << i;
		carry = tops >> i & 1 ? 0 : sum >> 1;
	}
	return result;
}

static void check_atomic(const struct rdmap_atomic_req *r, uint64_t found)
{
	uint64_t result = rdmap_atomic_result(r, found);

	if (r->op == RDMAP_FETCH_ADD) {
		CHECK(result == add_bit_by_bit(found, r->data, r->mask));
	} else if (r->op == RDMAP_CMP_SWAP &&
		   (found & r->compare_mask) == (r->compare & r->compare_mask)) {
		CHECK((result & r->mask) == (r->data & r->mask));
		CHECK((result & ~r->mask) == (found & ~r->mask));
	} else {
		CHECK(result == found);
	}
}

static void read_and_atomic(const uint8_t *p, size_t len)
{
	uint8_t buf[RDMAP_ATOMIC_REQ_LEN];
	struct rdmap_read_req read;
	struct rdmap_atomic_req atomic;
	struct rdmap_atomic_resp resp;

	if (len < RDMAP_ATOMIC_REQ_LEN + 8)
		return;
	rdmap_get_read_req(p, &read);
	rdmap_put_read_req(buf, &read);
	CHECK(!memcmp(buf, p, RDMAP_READ_REQ_LEN));
	rdmap_get_atomic_resp(p, &resp);
	rdmap_put_atomic_resp(buf, &resp);
	CHECK(!memcmp(buf, p, RDMAP_ATOMIC_RESP_LEN));
	rdmap_get_atomic_req(p, &atomic);
	rdmap_put_atomic_req(buf, &atomic);
	CHECK(get_be32(buf) == (get_be32(p) & 0xf));
	CHECK(!memcmp(buf + 4, p + 4, RDMAP_ATOMIC_REQ_LEN - 4));
	check_atomic(&atomic, get_be64(p + RDMAP_ATOMIC_REQ_LEN));
}

static void check_same(const struct terminate *a, const struct terminate *b)
{
	CHECK(a->fault.layer == b->fault.layer && a->fault.etype == b->fault.etype);
	CHECK(a->fault.code == b->fault.code && a->fault.set == b->fault.set);
	CHECK(a->has_seg_len == b->has_seg_len && a->seg_len == b->seg_len);
	CHECK(a->has_ddp == b->has_ddp && a->has_rdmap == b->has_rdmap);
	CHECK(!memcmp(a->ddp, b->ddp, sizeof(a->ddp)));
	CHECK(!memcmp(a->read_req, b->read_req, sizeof(a->read_req)));
}

/* The DDP part has control bits, so the header cannot be misread. */
static void check_comes_back(const struct terminate *t)
{
	uint8_t buf[TERMINATE_MAX];
	size_t len = terminate_encode(t, buf);
	struct terminate again;
	bool swapped;

	CHECK(len >= 4 && len <= sizeof(buf));
	CHECK(terminate_decode(buf, len, &again, &swapped) == 0);
	CHECK(wire_fault_str(again.fault));
	if (t->has_ddp) {
		CHECK(!swapped);
		check_same(t, &again);
	}
}

static void terminate_in(const uint8_t *p, size_t len)
{
	struct terminate t;
	bool swapped;
	int ret = terminate_decode(p, len, &t, &swapped);

	if (len < 3) {
		CHECK(ret == -EPROTO);
		return;
	}
	CHECK(ret == 0 && t.fault.set);
	CHECK(t.has_ddp || (!t.has_rdmap && !t.has_seg_len));
	check_comes_back(&t);
}

static void terminate_out(const uint8_t *p, size_t len)
{
	struct terminate t;

	if (len < 4)
		return;
	terminate_init(&t, WIRE_FAULT(p[0] & 0x0f, p[1] & 0x0f, p[2]), p + 4, len - 4,
		       (len - 4) & 0xffff);
	CHECK(!t.has_rdmap || t.has_ddp);
	check_comes_back(&t);
	terminate_init(&t, WIRE_FAULT(p[0] & 0x0f, p[1] & 0x0f, p[2]), NULL, 0, 0);
	CHECK(!t.has_ddp);
	check_comes_back(&t);
}

static void crc(const uint8_t *p, size_t len)
{
	size_t cut = len ? p[0] * len / 256 : 0;
	uint32_t whole = crc32c_update_portable(CRC32C_INIT, p, len);

	CHECK(crc32c_update(CRC32C_INIT, p, len) == whole);
	CHECK(crc32c_update(crc32c_update(CRC32C_INIT, p, cut), p + cut, len - cut) == whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const properties[KINDS])(const uint8_t *p, size_t len) = {
		[HEADER] = header,
		[READ_AND_ATOMIC] = read_and_atomic,
		[TERMINATE_IN] = terminate_in,
		[TERMINATE_OUT] = terminate_out,
		[CRC] = crc,
	};
	struct input in = {data, size};
	unsigned kind = (unsigned)take(&in, 1) % KINDS;
	uint8_t *exact = copy_of(in.p, in.len);

	properties[kind](exact, in.len);
	free(exact);
	return 0;
}
