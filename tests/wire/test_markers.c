// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_markers.c - a marker at every 512th byte of the stream, wherever an FPDU begins, pointing to
 * the beginning of its FPDU.
 */
#include "test.h"

#include <errno.h>

#define RAW_MAX (FPDU_MAX_LEN + MARKER_LEN * (FPDU_MAX_LEN / 508 + 2))

static uint8_t fpdu[FPDU_MAX_LEN], raw[RAW_MAX], back[RAW_MAX];

static int make_noise(void **state)
{
	fill_with_noise(fpdu, sizeof(fpdu));
	return 0;
}

static void assert_marker(const uint8_t *p, uint16_t wanted_ptr)
{
	assert_int_equal(get_be16(p), 0);
	assert_int_equal(get_be16(p + 2), wanted_ptr);
}

/* Inserts markers byte by byte, as the RFC describes it, for comparison. */
static size_t insert_slowly(uint64_t pos, size_t len, uint8_t *to)
{
	size_t begin = pos % 512 ? 0 : 4, out = 0;

	for (size_t i = 0; i < len; i++) {
		if ((pos + out) % 512 == 0) {
			put_be16(to + out, 0);
			put_be16(to + out + 2, (uint16_t)(out ? out - begin : 0));
			out += 4;
		}
		to[out++] = fpdu[i];
	}
	return out;
}

static void first_fpdu_begins_with_a_marker_that_holds_0(void **state)
{
	assert_int_equal(markers_insert(0, fpdu, 48, raw), 52);
	assert_marker(raw, 0);
	assert_memory_equal(raw + 4, fpdu, 48);
}

/* RFC 5044 appendix B's second FPDU has a marker 20 bytes behind its beginning. */
static void rfc5044_second_vector_has_its_marker_at_20(void **state)
{
	const uint64_t pos = 512 - 20;

	assert_int_equal(markers_insert(pos, fpdu, 48, raw), 52);
	assert_memory_equal(raw, fpdu, 20);
	assert_marker(raw + 20, 0x14);
	assert_memory_equal(raw + 24, fpdu + 20, 28);
}

/* The marker belongs to this FPDU and holds 0; the next marker counts from behind it. */
static void marker_right_before_the_length_field_holds_0(void **state)
{
	assert_int_equal(markers_insert(1024, fpdu, 600, raw), 608);
	assert_marker(raw, 0);
	assert_marker(raw + 512, 508);
}

static void marker_between_pad_and_crc_belongs_to_its_fpdu(void **state)
{
	const size_t len = fpdu_len(40);
	const uint64_t pos = 512 - (len - MPA_CRC_LEN);

	assert_int_equal(markers_insert(pos, fpdu, len, raw), len + 4);
	assert_marker(raw + len - 4, (uint16_t)(len - 4));
	assert_memory_equal(raw + len, fpdu + len - 4, 4);
}

/* A marker due exactly behind the CRC belongs to the next FPDU. */
static void no_marker_follows_the_crc(void **state)
{
	assert_int_equal(markers_raw_len(512 - 48, 48), 48);
	assert_int_equal(markers_insert(512 - 48, fpdu, 48, raw), 48);
	assert_memory_equal(raw, fpdu, 48);
}

static void all_markers_of_an_fpdu_point_to_its_beginning(void **state)
{
	const uint64_t pos = 100;
	size_t raw_len = markers_insert(pos, fpdu, 5000, raw);
	unsigned seen = 0;

	for (size_t off = 412; off < raw_len; off += 512, seen++)
		assert_marker(raw + off, (uint16_t)off);
	assert_int_equal(seen, 10);
	assert_int_equal(raw_len, 5000 + 4 * seen);
}

/* Tests every phase of 512, lengths around the interval, and a length of many intervals. */
static void markers_at_each_phase_are_where_the_rfc_requires_them(void **state)
{
	for (uint64_t pos = 0; pos < 512; pos += 4)
		for (size_t len = 20; len < 5200; len += 4 + len / 6 / 4 * 4) {
			size_t wanted = insert_slowly(pos, len, back);

			assert_int_equal(markers_raw_len(pos, len), wanted);
			assert_int_equal(markers_insert(pos, fpdu, len, raw), wanted);
			assert_memory_equal(raw, back, wanted);
		}
}

static void markers_are_stripped_at_each_phase(void **state)
{
	for (uint64_t pos = 0; pos < 512; pos += 4)
		for (size_t len = 20; len < 5200; len += 4 + len / 6 / 4 * 4) {
			size_t raw_len = markers_insert(pos, fpdu, len, raw);

			assert_int_equal(markers_strip(pos, raw, raw_len, back), len);
			assert_memory_equal(back, fpdu, len);
		}
}

static void markers_are_stripped_in_place(void **state)
{
	size_t raw_len = markers_insert(512 * 7 + 8, fpdu, 3000, raw);

	assert_int_equal(markers_strip(512 * 7 + 8, raw, raw_len, raw), 3000);
	assert_memory_equal(raw, fpdu, 3000);
}

static void largest_fpdu_survives_insertion_and_stripping(void **state)
{
	const size_t len = fpdu_len(65535);
	size_t raw_len = markers_insert(512, fpdu, len, raw);

	assert_int_equal(markers_strip(512, raw, raw_len, back), len);
	assert_memory_equal(back, fpdu, len);
}

/* FPDUPTR has 16 bits; RFC 5044's limit on a ULPDU keeps the pointer within them. */
static void last_marker_of_the_largest_ulpdu_fits_its_pointer(void **state)
{
	const size_t len = fpdu_len(MPA_MAX_ULPDU);

	for (uint64_t pos = 0; pos < 512; pos += 4)
		assert_true(markers_raw_len(pos, len) <= 65536);
}

static void stream_position_may_be_beyond_4_gib(void **state)
{
	const uint64_t pos = (5ull << 32) + 512 - 20;

	assert_int_equal(markers_insert(pos, fpdu, 48, raw), 52);
	assert_marker(raw + 20, 0x14);
	assert_int_equal(markers_strip(pos, raw, 52, back), 48);
}

static void marker_with_a_wrong_pointer_is_refused(void **state)
{
	const uint64_t pos = 512 - 20;
	size_t raw_len = markers_insert(pos, fpdu, 1100, raw);

	for (size_t at = 20; at < raw_len; at += 512)
		for (unsigned bit = 2; bit < 16; bit++) {
			uint16_t good = get_be16(raw + at + 2);

			put_be16(raw + at + 2, (uint16_t)(good ^ 1u << bit));
			assert_int_equal(markers_strip(pos, raw, raw_len, back), -EPROTO);
			put_be16(raw + at + 2, good);
		}
	assert_int_equal(markers_strip(pos, raw, raw_len, back), 1100);
}

static void marker_before_the_length_field_must_hold_0(void **state)
{
	size_t raw_len = markers_insert(0, fpdu, 48, raw);

	put_be16(raw + 2, 4);
	assert_int_equal(markers_strip(0, raw, raw_len, back), -EPROTO);
}

/* RFC 5044 §4.3: RESERVED is ignored, the pointer's low bits are taken as zero. */
static void reserved_parts_of_a_marker_are_ignored(void **state)
{
	size_t raw_len = markers_insert(512 - 20, fpdu, 48, raw);

	put_be16(raw + 20, 0xffff);
	raw[23] |= 3;
	assert_int_equal(markers_strip(512 - 20, raw, raw_len, back), 48);
	assert_memory_equal(back, fpdu, 48);
}

static void bytes_that_end_in_a_marker_are_no_whole_fpdu(void **state)
{
	const uint64_t pos = 512 - 20;

	markers_insert(pos, fpdu, 48, raw);
	for (size_t raw_len = 21; raw_len <= 24; raw_len++) {
		uint8_t *part = alloc_before_guard_page(raw_len);

		memcpy(part, raw, raw_len);
		assert_int_equal(markers_strip(pos, part, raw_len, back), -EPROTO);
		free_before_guard_page(part, raw_len);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_fpdu_begins_with_a_marker_that_holds_0),
		cmocka_unit_test(rfc5044_second_vector_has_its_marker_at_20),
		cmocka_unit_test(marker_right_before_the_length_field_holds_0),
		cmocka_unit_test(marker_between_pad_and_crc_belongs_to_its_fpdu),
		cmocka_unit_test(no_marker_follows_the_crc),
		cmocka_unit_test(all_markers_of_an_fpdu_point_to_its_beginning),
		cmocka_unit_test(markers_at_each_phase_are_where_the_rfc_requires_them),
		cmocka_unit_test(markers_are_stripped_at_each_phase),
		cmocka_unit_test(markers_are_stripped_in_place),
		cmocka_unit_test(largest_fpdu_survives_insertion_and_stripping),
		cmocka_unit_test(last_marker_of_the_largest_ulpdu_fits_its_pointer),
		cmocka_unit_test(stream_position_may_be_beyond_4_gib),
		cmocka_unit_test(marker_with_a_wrong_pointer_is_refused),
		cmocka_unit_test(marker_before_the_length_field_must_hold_0),
		cmocka_unit_test(reserved_parts_of_a_marker_are_ignored),
		cmocka_unit_test(bytes_that_end_in_a_marker_are_no_whole_fpdu),
	};

	return cmocka_run_group_tests(tests, make_noise, NULL);
}
