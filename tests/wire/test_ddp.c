// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ddp.c - segment headers, encoded byte for byte and decoded.
 */
#include "test.h"

static void assert_same_header(const struct ddp_hdr *a, const struct ddp_hdr *b)
{
	assert_int_equal(a->tagged, b->tagged);
	assert_int_equal(a->last, b->last);
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->rsv, b->rsv);
	assert_int_equal(a->bits, b->bits);
	assert_int_equal(a->stag, b->stag);
	assert_int_equal(a->to, b->to);
	assert_int_equal(a->ulp, b->ulp);
	assert_int_equal(a->qn, b->qn);
	assert_int_equal(a->msn, b->msn);
	assert_int_equal(a->mo, b->mo);
}

static void tagged_header_is_14_bytes_in_order(void **state)
{
	const struct ddp_hdr h = {.tagged = true,
				  .last = true,
				  .opcode = RDMAP_WRITE,
				  .stag = 0x11223344,
				  .to = 0x0102030405060708};
	static const uint8_t wanted[] = {0xc1, 0x40, 0x11, 0x22, 0x33, 0x44, 0x01,
					 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08};
	uint8_t buf[DDP_MAX_HDR];

	assert_int_equal(ddp_encode(&h, buf), DDP_TAGGED_LEN);
	assert_memory_equal(buf, wanted, sizeof(wanted));
}

static void untagged_header_is_18_bytes_in_order(void **state)
{
	const struct ddp_hdr h = {.last = true,
				  .opcode = RDMAP_SEND_INV,
				  .ulp = 0x11223344,
				  .qn = 0x55667788,
				  .msn = 0x99aabbcc,
				  .mo = 0xddeeff00};
	static const uint8_t wanted[] = {0x41, 0x44, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
					 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00};
	uint8_t buf[DDP_MAX_HDR];

	assert_int_equal(ddp_encode(&h, buf), DDP_UNTAGGED_LEN);
	assert_memory_equal(buf, wanted, sizeof(wanted));
}

/* The first two bytes of the last segment of each message type. */
static void each_opcode_has_its_control_bytes(void **state)
{
	static const struct {
		uint8_t opcode, first, second;
	} cases[] = {
		{RDMAP_WRITE, 0xc1, 0x40},	 {RDMAP_READ_REQ, 0x41, 0x41},
		{RDMAP_READ_RESP, 0xc1, 0x42},	 {RDMAP_SEND, 0x41, 0x43},
		{RDMAP_SEND_INV, 0x41, 0x44},	 {RDMAP_SEND_SE, 0x41, 0x45},
		{RDMAP_SEND_SE_INV, 0x41, 0x46}, {RDMAP_TERMINATE, 0x41, 0x47},
		{RDMAP_IMM, 0x41, 0x48},	 {RDMAP_IMM_SE, 0x41, 0x49},
		{RDMAP_ATOMIC_REQ, 0x41, 0x4a},	 {RDMAP_ATOMIC_RESP, 0x41, 0x4b},
		{RDMAP_ESCAPE, 0x41, 0x4f},	 {RDMAP_SEND_IMM, 0x41, 0x4e},
		{RDMAP_SEND_CLOSE, 0x41, 0x4c},	 {RDMAP_SEND_ADVERTISE, 0x41, 0x4d},
	};
	uint8_t buf[DDP_MAX_HDR];

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct ddp_hdr h = {
			.tagged = cases[i].first & DDP_T, .last = true, .opcode = cases[i].opcode};

		ddp_encode(&h, buf);
		assert_int_equal(buf[0], cases[i].first);
		assert_int_equal(buf[1], cases[i].second);
		h.last = false;
		ddp_encode(&h, buf);
		assert_int_equal(buf[0], cases[i].first & ~DDP_L);
	}
}

static void solicited_send_with_immediate_sets_the_se_bit(void **state)
{
	const struct ddp_hdr h = {.opcode = RDMAP_SEND_IMM, .rsv = RDMAP_RSV_SE};
	uint8_t buf[DDP_MAX_HDR];

	ddp_encode(&h, buf);

	assert_int_equal(buf[1], 0x5e);
}

static struct ddp_hdr any_header(bool tagged, bool last, uint8_t opcode)
{
	struct ddp_hdr h = {.tagged = tagged, .last = last, .opcode = opcode};

	h.rsv = dice() & 0x30;
	h.bits = dice() & (DDP_CLOSE | DDP_ADVERTISE);
	if (tagged) {
		h.stag = (uint32_t)dice();
		h.to = dice();
	} else {
		h.ulp = (uint32_t)dice();
		h.qn = (uint32_t)dice();
		h.msn = (uint32_t)dice();
		h.mo = (uint32_t)dice();
	}
	return h;
}

static void every_header_survives_encode_and_decode(void **state)
{
	for (int i = 0; i < 10000; i++) {
		struct ddp_hdr h = any_header(i & 1, i & 2, (i >> 2) & 15), seen;
		size_t len = h.tagged ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN;
		uint8_t *buf = alloc_before_guard_page(len);

		assert_int_equal(ddp_encode(&h, buf), len);
		assert_int_equal(ddp_hdr_len(buf[0]), len);
		assert_no_fault(ddp_decode(buf, &seen));
		assert_same_header(&h, &seen);
		free_before_guard_page(buf, len);
	}
}

/* Two of the bits are kept as received: the connection decides on their meaning. */
static void reserved_bits_of_ddp_are_ignored(void **state)
{
	struct ddp_hdr h = any_header(false, true, RDMAP_SEND), seen;
	uint8_t buf[DDP_MAX_HDR];

	ddp_encode(&h, buf);
	buf[0] |= 0x3c;

	assert_no_fault(ddp_decode(buf, &seen));
	h.bits = DDP_CLOSE | DDP_ADVERTISE;
	assert_same_header(&h, &seen);
}

static void wrong_ddp_version_is_a_fault_of_the_segments_buffer_model(void **state)
{
	struct ddp_hdr seen = {.msn = 77};
	uint8_t buf[DDP_MAX_HDR] = {0};

	for (uint8_t version = 0; version < 4; version++) {
		if (version == 1)
			continue;
		buf[1] = 0x40;
		buf[0] = DDP_T | DDP_L | version;
		assert_fault(ddp_decode(buf, &seen), FAULT_DDP_TAGGED_VERSION);
		buf[0] = DDP_L | version;
		assert_fault(ddp_decode(buf, &seen), FAULT_DDP_UNTAGGED_VERSION);
	}
	assert_int_equal(seen.msn, 77); /* outputs on success only */
}

/* 0 is the RDMA Consortium's version. */
static void wrong_rdmap_version_is_refused(void **state)
{
	struct ddp_hdr seen;
	uint8_t buf[DDP_MAX_HDR] = {DDP_L | 1};

	for (unsigned version = 0; version < 4; version++) {
		if (version == 1)
			continue;
		buf[1] = (uint8_t)(version << 6 | RDMAP_SEND);
		assert_fault(ddp_decode(buf, &seen), FAULT_RDMAP_VERSION);
	}
}

static void wrong_ddp_version_is_reported_before_a_wrong_rdmap_version(void **state)
{
	struct ddp_hdr seen;
	uint8_t buf[DDP_MAX_HDR] = {DDP_T | 2, 0xc0};

	assert_fault(ddp_decode(buf, &seen), FAULT_DDP_TAGGED_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tagged_header_is_14_bytes_in_order),
		cmocka_unit_test(untagged_header_is_18_bytes_in_order),
		cmocka_unit_test(each_opcode_has_its_control_bytes),
		cmocka_unit_test(solicited_send_with_immediate_sets_the_se_bit),
		cmocka_unit_test(every_header_survives_encode_and_decode),
		cmocka_unit_test(reserved_bits_of_ddp_are_ignored),
		cmocka_unit_test(wrong_ddp_version_is_a_fault_of_the_segments_buffer_model),
		cmocka_unit_test(wrong_rdmap_version_is_refused),
		cmocka_unit_test(wrong_ddp_version_is_reported_before_a_wrong_rdmap_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
