// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_terminate.c - Terminate messages for every fault, with the parts that belong to it, and the
 * decoding of those that peers send.
 */
#include "test.h"

#include <errno.h>

enum { M = 0x80, D = 0x40, R = 0x20 };

/*
 * RFC 5040 §4.8: each layer, type and code, and the parts that a Read Request's Terminate includes.
 */
static const struct {
	uint8_t layer, etype, code, parts;
} all_faults[] = {
	{0, 0, 0x00, 0},	 {0, 1, 0x00, M | D | R}, {0, 1, 0x01, M | D | R},
	{0, 1, 0x02, M | D | R}, {0, 1, 0x03, M | D | R}, {0, 1, 0x04, M | D | R},
	{0, 1, 0x09, M | D | R}, {0, 1, 0xff, M | D | R}, {0, 2, 0x05, M | D},
	{0, 2, 0x06, M | D},	 {0, 2, 0x07, M | D},	  {0, 2, 0x08, M | D},
	{0, 2, 0x09, M | D},	 {0, 2, 0xff, M | D},	  {1, 0, 0x00, M | D},
	{1, 1, 0x00, M | D},	 {1, 1, 0x01, M | D},	  {1, 1, 0x02, M | D},
	{1, 1, 0x03, M | D},	 {1, 1, 0x04, M | D},	  {1, 2, 0x01, M | D},
	{1, 2, 0x02, M | D},	 {1, 2, 0x03, M | D},	  {1, 2, 0x04, M | D},
	{1, 2, 0x05, M | D},	 {1, 2, 0x06, M | D},	  {2, 0, 0x01, 0},
	{2, 0, 0x02, 0},	 {2, 0, 0x03, 0},	  {2, 0, 0x04, 0},
	{2, 0, 0x05, 0},	 {2, 0, 0x06, 0},	  {2, 0, 0x07, 0},
};

static struct wire_fault fault_at(size_t i)
{
	return WIRE_FAULT(all_faults[i].layer, all_faults[i].etype, all_faults[i].code);
}

/* Segments that a fault may be about. */
static uint8_t read_request[DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN];
static uint8_t write_segment[DDP_TAGGED_LEN + 100];
static uint8_t send_segment[DDP_UNTAGGED_LEN + 100];

static int make_segments(void **state)
{
	const struct ddp_hdr read = {
		.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = 3};
	const struct ddp_hdr write = {
		.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 9, .to = 0x1000};
	const struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND, .msn = 5};

	fill_with_noise(read_request, sizeof(read_request));
	ddp_encode(&read, read_request);
	ddp_encode(&write, write_segment);
	ddp_encode(&send, send_segment);
	return 0;
}

static size_t terminate_for(struct wire_fault f, const uint8_t *seg, size_t avail, size_t ulpdu,
			    uint8_t *buf)
{
	struct terminate t;

	terminate_init(&t, f, seg, avail, ulpdu);
	return terminate_encode(&t, buf);
}

static size_t length_by_parts(uint8_t parts, size_t hdr_len)
{
	return 4 + (parts & D ? 2 + hdr_len : 0) + (parts & R ? RDMAP_READ_REQ_LEN : 0);
}

/* ---- Terminates that we send ---------------------------------------------- */

static void each_fault_of_a_read_request_has_its_parts(void **state)
{
	uint8_t buf[TERMINATE_MAX];

	for (size_t i = 0; i < COUNT(all_faults); i++) {
		uint8_t parts = all_faults[i].parts;
		size_t len = terminate_for(fault_at(i), read_request, sizeof(read_request),
					   sizeof(read_request), buf);

		assert_int_equal(buf[0], all_faults[i].layer << 4 | all_faults[i].etype);
		assert_int_equal(buf[1], all_faults[i].code);
		assert_int_equal(buf[2], parts);
		assert_int_equal(buf[3], 0);
		assert_int_equal(len, length_by_parts(parts, DDP_UNTAGGED_LEN));
		if (parts & D) {
			assert_int_equal(get_be16(buf + 4), sizeof(read_request));
			assert_memory_equal(buf + 6, read_request, len - 6);
		}
	}
}

/* Only a Read Request has an RDMAP header to include. */
static void faults_of_writes_and_sends_have_no_rdmap_part(void **state)
{
	uint8_t buf[TERMINATE_MAX];

	for (size_t i = 0; i < COUNT(all_faults); i++) {
		uint8_t parts = all_faults[i].parts & (uint8_t)~R;

		assert_int_equal(terminate_for(fault_at(i), write_segment, sizeof(write_segment),
					       sizeof(write_segment), buf),
				 length_by_parts(parts, DDP_TAGGED_LEN));
		assert_int_equal(buf[2], parts);
		if (parts & D)
			assert_memory_equal(buf + 6, write_segment, DDP_TAGGED_LEN);
		assert_int_equal(terminate_for(fault_at(i), send_segment, sizeof(send_segment),
					       sizeof(send_segment), buf),
				 length_by_parts(parts, DDP_UNTAGGED_LEN));
		assert_int_equal(buf[2], parts);
	}
}

static void longest_terminate_is_52_bytes(void **state)
{
	uint8_t buf[TERMINATE_MAX];

	assert_int_equal(terminate_for(FAULT_RDMAP_ACCESS, read_request, sizeof(read_request),
				       sizeof(read_request), buf),
			 52);
	assert_int_equal(TERMINATE_MAX, 52);
}

static void terminate_without_a_segment_has_no_parts(void **state)
{
	uint8_t buf[TERMINATE_MAX];

	assert_int_equal(terminate_for(FAULT_DDP_BASE_BOUNDS, NULL, 0, 0, buf), 4);
	assert_int_equal(buf[2], 0);
	assert_int_equal(terminate_for(FAULT_DDP_BASE_BOUNDS, write_segment, 0, 0, buf), 4);
	assert_int_equal(buf[2], 0);
}

/* A ULPDU too short for its own header, or one whose rest has not arrived. */
static void missing_parts_of_a_segment_are_not_included(void **state)
{
	uint8_t buf[TERMINATE_MAX];

	for (size_t avail = 0; avail <= sizeof(read_request); avail++) {
		uint8_t *seg = alloc_before_guard_page(avail);
		uint8_t parts = 0;

		memcpy(seg, read_request, avail);
		if (avail >= DDP_UNTAGGED_LEN)
			parts = M | D;
		if (avail >= sizeof(read_request))
			parts |= R;
		assert_int_equal(terminate_for(FAULT_RDMAP_ACCESS, seg, avail, 46, buf),
				 length_by_parts(parts, DDP_UNTAGGED_LEN));
		assert_int_equal(buf[2], parts);
		free_before_guard_page(seg, avail);
	}
}

/* ---- Terminates that we receive ------------------------------------------- */

static void assert_same_terminate(const struct terminate *a, const struct terminate *b)
{
	assert_fault(a->fault, b->fault);
	assert_int_equal(a->has_seg_len, b->has_seg_len);
	assert_int_equal(a->has_ddp, b->has_ddp);
	assert_int_equal(a->has_rdmap, b->has_rdmap);
	assert_int_equal(a->seg_len, b->seg_len);
	assert_memory_equal(a->ddp, b->ddp, sizeof(a->ddp));
	assert_memory_equal(a->read_req, b->read_req, sizeof(a->read_req));
}

static void every_terminate_survives_encode_and_decode(void **state)
{
	const uint8_t *segs[] = {read_request, write_segment, send_segment, NULL};
	const size_t lens[] = {sizeof(read_request), sizeof(write_segment), sizeof(send_segment),
			       0};

	for (size_t i = 0; i < COUNT(all_faults); i++)
		for (size_t k = 0; k < COUNT(segs); k++) {
			struct terminate sent, seen;
			uint8_t buf[TERMINATE_MAX];
			bool swapped = true;

			terminate_init(&sent, fault_at(i), segs[k], lens[k], lens[k]);
			assert_int_equal(terminate_decode(buf, terminate_encode(&sent, buf), &seen,
							  &swapped),
					 0);
			assert_false(swapped);
			assert_same_terminate(&sent, &seen);
		}
}

static void read_from_siw(const uint8_t *bytes, size_t len, struct terminate *t)
{
	bool swapped = false;

	assert_int_equal(terminate_decode(bytes, len, t, &swapped), 0);
	assert_true(swapped);
}

/* The next three were seen on the wire. */
static void crc_error_of_siw_is_decoded(void **state)
{
	static const uint8_t bytes[] = {0x02, 0x02, 0x00, 0x00};
	struct terminate t;

	read_from_siw(bytes, sizeof(bytes), &t);

	assert_fault(t.fault, FAULT_MPA_CRC);
	assert_false(t.has_ddp);
}

/* With R set: all parts are included for a Read Request. */
static void bad_tag_of_a_read_from_siw_is_decoded(void **state)
{
	uint8_t bytes[4 + 2 + sizeof(read_request)] = {0x10, 0x00, 0x07, 0x00, 0x00, 0x1c};
	struct terminate t;

	memcpy(bytes + 6, read_request, sizeof(read_request));
	read_from_siw(bytes, sizeof(bytes), &t);

	assert_fault(t.fault, FAULT_RDMAP_INVALID_STAG);
	assert_true(t.has_seg_len);
	assert_int_equal(t.seg_len, 28);
	assert_true(t.has_ddp);
	assert_memory_equal(t.ddp, read_request, DDP_UNTAGGED_LEN);
	assert_true(t.has_rdmap);
	assert_memory_equal(t.read_req, read_request + DDP_UNTAGGED_LEN, RDMAP_READ_REQ_LEN);
}

static void bad_msn_from_siw_is_decoded(void **state)
{
	uint8_t bytes[4 + 2 + DDP_UNTAGGED_LEN] = {0x21, 0x03, 0x03, 0x00, 0x00, 0x64};
	struct terminate t;

	memcpy(bytes + 6, send_segment, DDP_UNTAGGED_LEN);
	read_from_siw(bytes, sizeof(bytes), &t);

	assert_fault(t.fault, FAULT_DDP_MSN_RANGE);
	assert_true(t.has_ddp);
	assert_memory_equal(t.ddp, send_segment, DDP_UNTAGGED_LEN);
	assert_false(t.has_rdmap);
}

/* For a fault of a Send siw sets R and appends nothing. */
static void part_that_siw_announces_but_omits_is_absent(void **state)
{
	uint8_t bytes[4 + 2 + DDP_UNTAGGED_LEN] = {0x10, 0x09, 0x07, 0x00, 0x00, 0x64};
	struct terminate t;

	memcpy(bytes + 6, send_segment, DDP_UNTAGGED_LEN);
	read_from_siw(bytes, sizeof(bytes), &t);

	assert_fault(t.fault, FAULT_RDMAP_PROT_CANT_INV);
	assert_true(t.has_ddp);
	assert_false(t.has_rdmap);
}

/* Layer and type have the same value: only the control bits show that they are swapped. */
static void tagged_fault_of_siw_is_recognized_by_its_control_bits(void **state)
{
	uint8_t bytes[4 + 2 + DDP_TAGGED_LEN] = {0x11, 0x01, 0x03};
	struct terminate t;

	memcpy(bytes + 6, write_segment, DDP_TAGGED_LEN);
	read_from_siw(bytes, sizeof(bytes), &t);

	assert_fault(t.fault, FAULT_DDP_BASE_BOUNDS);
	assert_true(t.has_ddp);
}

/* Both byte orders give a known fault: the RFC's is used. */
static void known_fault_without_control_bits_is_decoded_as_written(void **state)
{
	static const uint8_t bytes[] = {0x02, 0x05, 0x00, 0x00};
	struct terminate t;
	bool swapped = true;

	assert_int_equal(terminate_decode(bytes, sizeof(bytes), &t, &swapped), 0);
	assert_false(swapped);
	assert_fault(t.fault, FAULT_RDMAP_VERSION);
}

static void unknown_fault_is_decoded_as_written(void **state)
{
	static const uint8_t bytes[] = {0x5a, 0x77, 0x00, 0x00};
	struct terminate t;
	bool swapped = true;

	assert_int_equal(terminate_decode(bytes, sizeof(bytes), &t, &swapped), 0);
	assert_false(swapped);
	assert_fault(t.fault, WIRE_FAULT(5, 10, 0x77));
}

static void fewer_than_three_bytes_are_no_terminate(void **state)
{
	for (size_t len = 0; len < 3; len++) {
		uint8_t *buf = alloc_before_guard_page(len);
		struct terminate t = {.seg_len = 77};
		bool swapped;

		memset(buf, 0x20, len);
		assert_int_equal(terminate_decode(buf, len, &t, &swapped), -EPROTO);
		assert_int_equal(t.seg_len, 77); /* outputs on success only */
		free_before_guard_page(buf, len);
	}
}

static void truncated_terminate_has_the_parts_that_are_whole(void **state)
{
	uint8_t whole[TERMINATE_MAX];

	terminate_for(FAULT_RDMAP_ACCESS, read_request, sizeof(read_request), 46, whole);
	for (size_t len = 3; len <= sizeof(whole); len++) {
		uint8_t *buf = alloc_before_guard_page(len);
		struct terminate t;
		bool swapped;

		memcpy(buf, whole, len);
		assert_int_equal(terminate_decode(buf, len, &t, &swapped), 0);
		assert_fault(t.fault, FAULT_RDMAP_ACCESS);
		assert_int_equal(t.has_ddp, len >= 6 + DDP_UNTAGGED_LEN);
		assert_int_equal(t.has_seg_len, t.has_ddp);
		assert_int_equal(t.has_rdmap, len >= sizeof(whole));
		free_before_guard_page(buf, len);
	}
}

/* ---- descriptions --------------------------------------------------------- */

static void each_fault_has_its_own_description(void **state)
{
	for (size_t i = 0; i < COUNT(all_faults); i++) {
		assert_null(strstr(wire_fault_str(fault_at(i)), "unknown"));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(wire_fault_str(fault_at(i)),
						wire_fault_str(fault_at(k)));
	}
}

static void description_names_layer_and_reason(void **state)
{
	assert_string_equal(wire_fault_str(FAULT_DDP_BASE_BOUNDS),
			    "DDP tagged: base or bounds violation");
	assert_string_equal(wire_fault_str(FAULT_MPA_CRC), "MPA: CRC mismatch");
	assert_string_equal(wire_fault_str(WIRE_FAULT(0, 0, 0x42)),
			    "RDMAP: local catastrophic error");
	assert_string_equal(wire_fault_str(WIRE_OK), "no fault");
}

static void unknown_fault_has_a_description(void **state)
{
	for (unsigned i = 0; i < 16 * 16; i++)
		assert_non_null(wire_fault_str(WIRE_FAULT(i / 16, i % 16, 0x77)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fault_of_a_read_request_has_its_parts),
		cmocka_unit_test(faults_of_writes_and_sends_have_no_rdmap_part),
		cmocka_unit_test(longest_terminate_is_52_bytes),
		cmocka_unit_test(terminate_without_a_segment_has_no_parts),
		cmocka_unit_test(missing_parts_of_a_segment_are_not_included),
		cmocka_unit_test(every_terminate_survives_encode_and_decode),
		cmocka_unit_test(crc_error_of_siw_is_decoded),
		cmocka_unit_test(bad_tag_of_a_read_from_siw_is_decoded),
		cmocka_unit_test(bad_msn_from_siw_is_decoded),
		cmocka_unit_test(part_that_siw_announces_but_omits_is_absent),
		cmocka_unit_test(tagged_fault_of_siw_is_recognized_by_its_control_bits),
		cmocka_unit_test(known_fault_without_control_bits_is_decoded_as_written),
		cmocka_unit_test(unknown_fault_is_decoded_as_written),
		cmocka_unit_test(fewer_than_three_bytes_are_no_terminate),
		cmocka_unit_test(truncated_terminate_has_the_parts_that_are_whole),
		cmocka_unit_test(each_fault_has_its_own_description),
		cmocka_unit_test(description_names_layer_and_reason),
		cmocka_unit_test(unknown_fault_has_a_description),
	};

	return cmocka_run_group_tests(tests, make_segments, NULL);
}
