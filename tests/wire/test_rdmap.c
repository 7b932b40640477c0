// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rdmap.c - the valid messages, the headers of reads and atomics, and the results of atomics.
 */
#include "test.h"

enum { TAGGED = -1 };

#define ALL_CAPS                                                                                   \
	(MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM | MPA_EXT_ONE_SHOT |   \
	 MPA_EXT_FLUSH | MPA_EXT_ESCAPE)

/* RFC 5040 figure 4, RFC 7306 figure 3, and stag's own: queue, length (-1: any), capability. */
static const struct {
	int queue, length;
	unsigned cap;
} messages[16] = {
	{TAGGED, -1, 0},
	{1, 28, 0},
	{TAGGED, -1, 0},
	{0, -1, 0},
	{0, -1, 0},
	{0, -1, 0},
	{0, -1, 0},
	{2, -1, 0},
	{0, 8, MPA_EXT_IMM},
	{0, 8, MPA_EXT_IMM},
	{1, 52, MPA_EXT_ATOMIC},
	{3, 12, MPA_EXT_ATOMIC},
	{0, -1, MPA_EXT_ONE_SHOT},
	{0, -1, MPA_EXT_ONE_SHOT},
	{0, -1, MPA_EXT_SEND_IMM},
	{1, 24, MPA_EXT_FLUSH},
};

static struct wire_fault check_by_table(const struct ddp_hdr *h, size_t len, unsigned caps)
{
	bool known = (caps & messages[h->opcode].cap) == messages[h->opcode].cap;

	if (!known || (messages[h->opcode].queue == TAGGED) != h->tagged)
		return FAULT_RDMAP_OPCODE;
	if (!h->tagged && h->qn != (uint32_t)messages[h->opcode].queue)
		return FAULT_DDP_INVALID_QN;
	if (messages[h->opcode].length >= 0 && len != (size_t)messages[h->opcode].length)
		return FAULT_RDMAP_OP_OTHER;
	return WIRE_OK;
}

/*
 * Tests every opcode, with and without T, on every queue, with lengths around the fixed ones and
 * all capabilities.
 */
static void each_message_is_checked_as_the_rfcs_require(void **state)
{
	static const uint32_t queues[] = {0, 1, 2, 3, 4, 0x80000000, 0xffffffff};
	static const size_t lengths[] = {0,  1,	 3,  4,	 7,  8,	 9,  11, 12,	13,    23,
					 24, 25, 27, 28, 29, 51, 52, 53, 64768, 65535, SIZE_MAX};

	for (unsigned i = 0; i < 16 * 2 * COUNT(queues) * COUNT(lengths) * (ALL_CAPS + 1); i++) {
		unsigned rest = i;
		struct ddp_hdr h = {.last = true};
		struct wire_fault wanted, seen;
		size_t length;

		h.opcode = rest % 16, rest /= 16;
		h.tagged = rest % 2, rest /= 2;
		h.qn = queues[rest % COUNT(queues)], rest /= COUNT(queues);
		length = lengths[rest % COUNT(lengths)], rest /= COUNT(lengths);
		wanted = check_by_table(&h, length, rest);
		seen = rdmap_check(&h, length, rest);
		if (wanted.set)
			assert_fault(seen, wanted);
		else
			assert_no_fault(seen);
	}
}

static void standard_peer_may_send_the_eight_opcodes_of_rfc5040(void **state)
{
	for (unsigned op = 0; op < 16; op++) {
		struct ddp_hdr h = {
			.opcode = (uint8_t)op,
			.last = true,
			.tagged = op == RDMAP_WRITE || op == RDMAP_READ_RESP,
			.qn = messages[op].queue < 0 ? 0 : (uint32_t)messages[op].queue};
		size_t length = messages[op].length < 0 ? 100 : (size_t)messages[op].length;
		struct wire_fault seen = rdmap_check(&h, length, 0);

		if (op <= RDMAP_TERMINATE)
			assert_no_fault(seen);
		else
			assert_fault(seen, FAULT_RDMAP_OPCODE);
	}
}

/* Subtype 0 has the bytes that the flush had before subtypes existed. */
static void flush_is_subtype_0_and_needs_no_escape(void **state)
{
	struct ddp_hdr h = {.opcode = RDMAP_ESCAPE, .last = true, .qn = QN_READ};
	uint8_t buf[DDP_MAX_HDR];

	h.ulp = rdmap_escape_ulp(RDMAP_SUB_FLUSH);
	assert_no_fault(rdmap_check(&h, RDMAP_FLUSH_REQ_LEN, MPA_EXT_FLUSH));
	ddp_encode(&h, buf);
	assert_int_equal(get_be32(buf + 2), 0);
	h.ulp |= 0xffffff; /* reserved bits: ignored */
	assert_no_fault(rdmap_check(&h, RDMAP_FLUSH_REQ_LEN, MPA_EXT_FLUSH));
}

static void unknown_subtype_is_refused(void **state)
{
	for (uint32_t subtype = RDMAP_SUBTYPES; subtype < 256; subtype++) {
		struct ddp_hdr h = {.opcode = RDMAP_ESCAPE, .last = true, .ulp = subtype << 24};

		for (h.qn = 0; h.qn < QN_COUNT; h.qn++) {
			assert_fault(rdmap_check(&h, RDMAP_FLUSH_REQ_LEN, ALL_CAPS),
				     FAULT_RDMAP_OPCODE);
			assert_fault(rdmap_check(&h, RDMAP_FLUSH_REQ_LEN,
						 ALL_CAPS & ~(unsigned)MPA_EXT_ESCAPE),
				     FAULT_RDMAP_OPCODE);
		}
	}
}

static void fixed_length_message_must_be_one_segment(void **state)
{
	struct ddp_hdr read = {.opcode = RDMAP_READ_REQ, .qn = QN_READ};
	struct ddp_hdr send = {.opcode = RDMAP_SEND, .qn = QN_SEND};

	assert_fault(rdmap_check(&read, RDMAP_READ_REQ_LEN, 0), FAULT_RDMAP_OP_OTHER);
	assert_no_fault(rdmap_check(&send, 100, 0));
}

/* ---- one-shot sends ---- */

static const enum shot_encoding encodings[] = {SHOT_NONE, SHOT_LITERAL, SHOT_OPCODES, SHOT_BITS};

static struct ddp_hdr make_shot_header(uint8_t opcode, bool solicited)
{
	return (struct ddp_hdr){.opcode = opcode,
				.last = true,
				.rsv = solicited ? RDMAP_RSV_SE : 0,
				.ulp = 0xa1b2c3d4,
				.qn = QN_SEND,
				.msn = 7};
}

/* Figure 5A with its own opcodes and with ours, figure 5B, and the bytes for a standard peer. */
static void each_one_shot_encoding_has_its_bytes(void **state)
{
	static const struct {
		enum shot_encoding e;
		uint8_t advertise[2], advertise_se[2], close[2], close_se[2];
	} wanted[] = {
		{SHOT_NONE, {0x41, 0x43}, {0x41, 0x45}, {0x41, 0x44}, {0x41, 0x46}},
		{SHOT_LITERAL, {0x41, 0x48}, {0x41, 0x48}, {0x41, 0x4c}, {0x41, 0x4c}},
		{SHOT_OPCODES, {0x41, 0x4d}, {0x41, 0x5d}, {0x41, 0x4c}, {0x41, 0x5c}},
		{SHOT_BITS, {0x51, 0x43}, {0x51, 0x45}, {0x61, 0x43}, {0x61, 0x45}},
	};

	for (size_t i = 0; i < COUNT(wanted); i++) {
		const uint8_t *bytes[] = {wanted[i].advertise, wanted[i].advertise_se,
					  wanted[i].close, wanted[i].close_se};

		for (unsigned k = 0; k < 4; k++) {
			struct ddp_hdr h = make_shot_header(
				k < 2 ? RDMAP_SEND_ADVERTISE : RDMAP_SEND_CLOSE, k & 1);
			uint8_t buf[DDP_MAX_HDR];

			rdmap_shot_to_wire(&h, wanted[i].e);
			ddp_encode(&h, buf);
			assert_memory_equal(buf, bytes[k], 2);
			/* The STag, except to a standard peer, which would not understand it. */
			assert_int_equal(get_be32(buf + 2),
					 wanted[i].e == SHOT_NONE && k < 2 ? 0 : 0xa1b2c3d4);
		}
	}
}

static void each_one_shot_encoding_survives_encode_and_decode(void **state)
{
	for (size_t i = 1; i < COUNT(encodings); i++)
		for (unsigned k = 0; k < 4; k++) {
			struct ddp_hdr h = make_shot_header(
					       k < 2 ? RDMAP_SEND_ADVERTISE : RDMAP_SEND_CLOSE,
					       k & 1),
				       seen;
			uint8_t buf[DDP_MAX_HDR];

			rdmap_shot_to_wire(&h, encodings[i]);
			ddp_encode(&h, buf);
			assert_no_fault(ddp_decode(buf, &seen));
			assert_no_fault(rdmap_shot_from_wire(&seen, encodings[i]));
			assert_no_fault(rdmap_check(&seen, 48, MPA_EXT_ONE_SHOT));
			assert_int_equal(seen.opcode,
					 k < 2 ? RDMAP_SEND_ADVERTISE : RDMAP_SEND_CLOSE);
			assert_int_equal(seen.ulp, 0xa1b2c3d4);
			/* Literal one-shot sends are always solicited. */
			assert_int_equal(seen.rsv, (k & 1) || encodings[i] == SHOT_LITERAL
							   ? RDMAP_RSV_SE
							   : 0);
		}
}

/* Every other message is unchanged in every encoding, in both directions. */
static void one_shot_encoding_leaves_other_messages_unchanged(void **state)
{
	for (size_t i = 0; i < COUNT(encodings); i++)
		for (uint8_t op = 0; op < 16; op++) {
			struct ddp_hdr h = make_shot_header(op, true), before = h;

			if (op == RDMAP_SEND_CLOSE || op == RDMAP_SEND_ADVERTISE ||
			    (op == RDMAP_IMM && encodings[i] == SHOT_LITERAL))
				continue;
			rdmap_shot_to_wire(&h, encodings[i]);
			assert_memory_equal(&h, &before, sizeof(h));
			assert_no_fault(rdmap_shot_from_wire(&h, encodings[i]));
			assert_memory_equal(&h, &before, sizeof(h));
		}
}

static void messages_of_another_one_shot_encoding_are_refused(void **state)
{
	struct ddp_hdr advertise = make_shot_header(RDMAP_SEND_ADVERTISE, false);
	struct ddp_hdr close = make_shot_header(RDMAP_SEND_CLOSE, false);

	assert_fault(rdmap_shot_from_wire(&advertise, SHOT_LITERAL), FAULT_RDMAP_OPCODE);
	assert_fault(rdmap_shot_from_wire(&advertise, SHOT_BITS), FAULT_RDMAP_OPCODE);
	assert_fault(rdmap_shot_from_wire(&close, SHOT_BITS), FAULT_RDMAP_OPCODE);
	/* In these encodings the bits are reserved. */
	for (size_t i = 0; i < 3; i++) {
		struct ddp_hdr h = make_shot_header(RDMAP_SEND, false);

		h.bits = DDP_CLOSE;
		assert_no_fault(rdmap_shot_from_wire(&h, encodings[i]));
		assert_int_equal(h.opcode, RDMAP_SEND);
	}
}

static void contradictory_one_shot_bits_are_refused(void **state)
{
	static const uint8_t taken[] = {RDMAP_SEND_INV, RDMAP_SEND_SE_INV, RDMAP_SEND_IMM,
					RDMAP_IMM};
	struct ddp_hdr h = make_shot_header(RDMAP_SEND, false);

	h.bits = DDP_CLOSE | DDP_ADVERTISE;
	assert_fault(rdmap_shot_from_wire(&h, SHOT_BITS), FAULT_RDMAP_OP_OTHER);
	for (size_t i = 0; i < COUNT(taken); i++) {
		h = make_shot_header(taken[i], false);
		h.bits = DDP_CLOSE;
		assert_fault(rdmap_shot_from_wire(&h, SHOT_BITS), FAULT_RDMAP_OP_OTHER);
	}
	h = (struct ddp_hdr){.tagged = true, .opcode = RDMAP_WRITE, .bits = DDP_CLOSE};
	assert_no_fault(rdmap_shot_from_wire(&h, SHOT_BITS));
	assert_int_equal(h.opcode, RDMAP_WRITE);
}

static void a_read_request_is_28_bytes_in_order(void **state)
{
	const struct rdmap_read_req r = {.sink_stag = 0x01020304,
					 .sink_to = 0x05060708090a0b0c,
					 .size = 0x0d0e0f10,
					 .src_stag = 0x11121314,
					 .src_to = 0x15161718191a1b1c};
	struct rdmap_read_req seen;
	uint8_t *buf = alloc_before_guard_page(RDMAP_READ_REQ_LEN);

	rdmap_put_read_req(buf, &r);
	for (unsigned i = 0; i < RDMAP_READ_REQ_LEN; i++)
		assert_int_equal(buf[i], i + 1);

	rdmap_get_read_req(buf, &seen);
	assert_int_equal(seen.sink_stag, r.sink_stag);
	assert_int_equal(seen.sink_to, r.sink_to);
	assert_int_equal(seen.size, r.size);
	assert_int_equal(seen.src_stag, r.src_stag);
	assert_int_equal(seen.src_to, r.src_to);
	free_before_guard_page(buf, RDMAP_READ_REQ_LEN);
}

static void an_atomic_request_is_52_bytes_in_order(void **state)
{
	const struct rdmap_atomic_req r = {.op = RDMAP_CMP_SWAP,
					   .id = 0x05060708,
					   .stag = 0x090a0b0c,
					   .to = 0x0d0e0f1011121314,
					   .data = 0x15161718191a1b1c,
					   .mask = 0x1d1e1f2021222324,
					   .compare = 0x25262728292a2b2c,
					   .compare_mask = 0x2d2e2f3031323334};
	struct rdmap_atomic_req seen;
	uint8_t *buf = alloc_before_guard_page(RDMAP_ATOMIC_REQ_LEN);

	rdmap_put_atomic_req(buf, &r);
	assert_int_equal(get_be32(buf), 2);
	for (unsigned i = 4; i < RDMAP_ATOMIC_REQ_LEN; i++)
		assert_int_equal(buf[i], i + 1);

	rdmap_get_atomic_req(buf, &seen);
	assert_int_equal(seen.op, r.op);
	assert_int_equal(seen.id, r.id);
	assert_int_equal(seen.stag, r.stag);
	assert_int_equal(seen.to, r.to);
	assert_int_equal(seen.data, r.data);
	assert_int_equal(seen.mask, r.mask);
	assert_int_equal(seen.compare, r.compare);
	assert_int_equal(seen.compare_mask, r.compare_mask);
	free_before_guard_page(buf, RDMAP_ATOMIC_REQ_LEN);
}

static void a_flush_request_is_24_bytes_in_order(void **state)
{
	const struct rdmap_flush_req r = {.flags = 0x01020304,
					  .stag = 0x05060708,
					  .to = 0x090a0b0c0d0e0f10,
					  .length = 0x1112131415161718};
	struct rdmap_flush_req seen;
	uint8_t *buf = alloc_before_guard_page(RDMAP_FLUSH_REQ_LEN);

	rdmap_put_flush_req(buf, &r);
	for (unsigned i = 0; i < RDMAP_FLUSH_REQ_LEN; i++)
		assert_int_equal(buf[i], i + 1);

	rdmap_get_flush_req(buf, &seen);
	assert_int_equal(seen.flags, r.flags);
	assert_int_equal(seen.stag, r.stag);
	assert_int_equal(seen.to, r.to);
	assert_int_equal(seen.length, r.length);
	free_before_guard_page(buf, RDMAP_FLUSH_REQ_LEN);
}

static void reserved_bits_of_an_atomic_are_ignored(void **state)
{
	uint8_t buf[RDMAP_ATOMIC_REQ_LEN] = {0xff, 0xff, 0xff, 0xf1};
	struct rdmap_atomic_req seen;

	rdmap_get_atomic_req(buf, &seen);

	assert_int_equal(seen.op, 1);
}

static void an_atomic_response_is_12_bytes_in_order(void **state)
{
	const struct rdmap_atomic_resp r = {.id = 0x01020304, .value = 0x05060708090a0b0c};
	struct rdmap_atomic_resp seen;
	uint8_t *buf = alloc_before_guard_page(RDMAP_ATOMIC_RESP_LEN);

	rdmap_put_atomic_resp(buf, &r);
	for (unsigned i = 0; i < RDMAP_ATOMIC_RESP_LEN; i++)
		assert_int_equal(buf[i], i + 1);

	rdmap_get_atomic_resp(buf, &seen);
	assert_int_equal(seen.id, r.id);
	assert_int_equal(seen.value, r.value);
	free_before_guard_page(buf, RDMAP_ATOMIC_RESP_LEN);
}

/* ---- results of atomics --------------------------------------------------- */

static uint64_t add(uint64_t found, uint64_t data, uint64_t mask)
{
	const struct rdmap_atomic_req r = {
		.op = RDMAP_FETCH_ADD, .data = data, .mask = mask, .compare_mask = UINT64_MAX};

	return rdmap_atomic_result(&r, found);
}

static uint64_t swap(uint64_t found, uint64_t compare, uint64_t compare_mask, uint64_t data,
		     uint64_t mask)
{
	const struct rdmap_atomic_req r = {.op = RDMAP_CMP_SWAP,
					   .data = data,
					   .mask = mask,
					   .compare = compare,
					   .compare_mask = compare_mask};

	return rdmap_atomic_result(&r, found);
}

/* RFC 7306 §5.1.1, bit by bit. */
static uint64_t add_bit_by_bit(uint64_t found, uint64_t data, uint64_t mask)
{
	uint64_t result = 0;
	unsigned carry = 0;

	for (int i = 0; i < 64; i++) {
		unsigned sum = carry + (found >> i & 1) + (data >> i & 1);

		result |= (uint64_t)(sum & 1) << i;
		carry = mask >> i & 1 ? 0 : sum >> 1;
	}
	return result;
}

static void add_without_a_mask_is_a_64_bit_add(void **state)
{
	assert_int_equal(add(40, 2, 0), 42);
	assert_int_equal(add(0xffffffff, 1, 0), 0x100000000);
	assert_int_equal(add(UINT64_MAX, 1, 0), 0);
	assert_int_equal(add(5, (uint64_t)-7, 0), (uint64_t)-2);
	assert_int_equal(add(5, 0, 0), 5);
}

static void carry_does_not_leave_its_field(void **state)
{
	const uint64_t halves = 0x8000000080000000, bytes = 0x8080808080808080;

	assert_int_equal(add(0x00000001ffffffff, 1, halves), 0x0000000100000000);
	assert_int_equal(add(0xffffffffffffffff, 0x0000000100000001, halves), 0);
	assert_int_equal(add(0x00ff00ff00ff00ff, 0x0001000100010001, bytes), 0);
	assert_int_equal(add(0x7f7f7f7f7f7f7f7f, 0x0101010101010101, bytes), bytes);
}

static void each_bit_may_be_a_field(void **state)
{
	assert_int_equal(add(0x0f0f, 0x00ff, UINT64_MAX), 0x0f0f ^ 0x00ff);
}

static void carry_stops_at_field_boundaries_only(void **state)
{
	for (int top = 0; top < 64; top++) {
		uint64_t field = top == 63 ? UINT64_MAX : (2ull << top) - 1;

		assert_int_equal(add(field, 1, 1ull << top), 0);
		assert_int_equal(add(field, 1, 0), field + 1);
		assert_int_equal(add(field >> 1, 1, 1ull << top), top ? 1ull << top : 1);
	}
}

static void masked_adds_equal_the_rfcs_loop(void **state)
{
	for (int i = 0; i < 20000; i++) {
		uint64_t found = dice(), data = dice(), mask = dice() & dice();

		assert_int_equal(add(found, data, mask), add_bit_by_bit(found, data, mask));
	}
}

static void swap_happens_if_the_value_is_as_expected(void **state)
{
	assert_int_equal(swap(7, 7, UINT64_MAX, 9, UINT64_MAX), 9);
	assert_int_equal(swap(8, 7, UINT64_MAX, 9, UINT64_MAX), 8);
	assert_int_equal(swap(7 | 1ull << 63, 7, UINT64_MAX, 9, UINT64_MAX), 7 | 1ull << 63);
}

static void only_masked_bits_are_compared_and_swapped(void **state)
{
	const uint64_t found = 0x1122334455667788;

	assert_int_equal(swap(found, 0x88, 0xff, 0, 0xff00), 0x1122334455660088);
	assert_int_equal(swap(found, 0x89, 0xff, 0, 0xff00), found);
	assert_int_equal(swap(found, 0xffffffffffffff88, 0xff, UINT64_MAX, 0xff), found | 0xff);
	assert_int_equal(swap(found, 0, 0, 42, UINT64_MAX), 42);	/* compares no bit */
	assert_int_equal(swap(found, found, UINT64_MAX, 42, 0), found); /* swaps no bit */
}

static void an_unknown_atomic_changes_nothing(void **state)
{
	for (unsigned op = 0; op < 16; op++) {
		const struct rdmap_atomic_req r = {
			.op = (uint8_t)op, .data = 1, .mask = UINT64_MAX, .compare_mask = 0};

		if (op != RDMAP_FETCH_ADD && op != RDMAP_CMP_SWAP)
			assert_int_equal(rdmap_atomic_result(&r, 1234), 1234);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_message_is_checked_as_the_rfcs_require),
		cmocka_unit_test(standard_peer_may_send_the_eight_opcodes_of_rfc5040),
		cmocka_unit_test(flush_is_subtype_0_and_needs_no_escape),
		cmocka_unit_test(unknown_subtype_is_refused),
		cmocka_unit_test(fixed_length_message_must_be_one_segment),
		cmocka_unit_test(each_one_shot_encoding_has_its_bytes),
		cmocka_unit_test(each_one_shot_encoding_survives_encode_and_decode),
		cmocka_unit_test(one_shot_encoding_leaves_other_messages_unchanged),
		cmocka_unit_test(messages_of_another_one_shot_encoding_are_refused),
		cmocka_unit_test(contradictory_one_shot_bits_are_refused),
		cmocka_unit_test(a_read_request_is_28_bytes_in_order),
		cmocka_unit_test(a_flush_request_is_24_bytes_in_order),
		cmocka_unit_test(an_atomic_request_is_52_bytes_in_order),
		cmocka_unit_test(reserved_bits_of_an_atomic_are_ignored),
		cmocka_unit_test(an_atomic_response_is_12_bytes_in_order),
		cmocka_unit_test(add_without_a_mask_is_a_64_bit_add),
		cmocka_unit_test(carry_does_not_leave_its_field),
		cmocka_unit_test(each_bit_may_be_a_field),
		cmocka_unit_test(carry_stops_at_field_boundaries_only),
		cmocka_unit_test(masked_adds_equal_the_rfcs_loop),
		cmocka_unit_test(swap_happens_if_the_value_is_as_expected),
		cmocka_unit_test(only_masked_bits_are_compared_and_swapped),
		cmocka_unit_test(an_unknown_atomic_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
