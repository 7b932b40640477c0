// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_scsi_data.c - commands that read, write, compare and unmap blocks.
 */
#include "scene.h"

#include <stdio.h>

static uint8_t data[DATA_MAX];

/* Fills the data so that each block differs from its neighbours. */
static void fill(uint8_t first, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(first + i / BLOCK + i % 7);
}

/* ---- reading and writing ---- */

static void every_length_of_cdb_reads_and_writes(void **state)
{
	static const char *const pairs[][2] = {
		{"0a 00 0001 02 00", "08 00 0001 02 00"},
		{"2a 00 00000003 00 0002 00", "28 00 00000003 00 0002 00"},
		{"aa 00 00000005 00000002 00 00", "a8 00 00000005 00000002 00 00"},
		{"8a 00 0000000000000007 00000002 00 00", "88 00 0000000000000007 00000002 00 00"},
	};
	struct scene *s = *state;

	for (int i = 0; i < 4; i++) {
		fill((uint8_t)(i * 16 + 1), 2 * BLOCK);
		assert_int_equal(go_out(s, pairs[i][0], data, 2 * BLOCK), SCSI_GOOD);
		assert_int_equal(s->c.want, 2 * BLOCK);
		assert_memory_equal(fake_bytes(s->l) + (2 * i + 1) * BLOCK, data, 2 * BLOCK);
		assert_int_equal(go_in(s, pairs[i][1], 2 * BLOCK), SCSI_GOOD);
		assert_int_equal(s->w.in_len, 2 * BLOCK);
		assert_memory_equal(s->in, data, 2 * BLOCK);
	}
}

static void six_bytes_without_a_length_are_256_blocks(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "08 00 0000 00 00", 256 * BLOCK), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 256 * BLOCK);
	assert_int_equal(go_in(s, "28 00 00000000 00 0000 00", BLOCK), SCSI_GOOD);
	assert_int_equal(s->c.want, 0);
}

static void beyond_the_end_is_refused(void **state)
{
	static const char *const cdbs[] = {
		"08 00 1fff 02 00",
		"28 00 00002000 00 0001 00",
		"28 00 00002001 00 0000 00",
		"a8 00 00001fff 00000002 00 00",
		"88 00 ffffffffffffffff 00000001 00 00",
		"88 00 ffffffffffffffff ffffffff 00 00",
		"88 00 0000000000000001 ffffffff 00 00",
		"8a 00 0000000000002000 00000001 00 00",
		"8b 00 0000000000002000 00000001 00 00",
		"8e 00 0000000000002000 00000001 00 00",
		"8f 00 0000000000002000 00000001 00 00",
		"90 00 0000000000002000 00000001 00 00",
		"91 00 0000000000002000 00000001 00 00",
		"93 00 0000000000002000 00000001 00 00",
		"89 00 0000000000002000 000000 01 00 00",
		"9e 12 0000000000002000 00000018 00 00",
		"41 00 ffffffff 00 0000 00",
	};
	struct scene *s = *state;

	for (size_t i = 0; i < sizeof(cdbs) / sizeof(cdbs[0]); i++) {
		go(s, cdbs[i]);
		expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2100);
		assert_int_equal(s->w.steps, 0);
	}
	assert_int_equal(go(s, "28 00 00002000 00 0000 00"), SCSI_GOOD);
	assert_int_equal(go(s, "34 00 00001fff 00 0001 00"), SCSI_GOOD);
}

static void longer_than_the_limit_is_refused(void **state)
{
	struct scene *s = *state;

	fake_facts(s->l)->size = 1ull << 40;
	go(s, "88 00 0000000000000000 00200001 00 00");
	expect_field(s, true, 10, 7);
	go(s, "93 01 0000000000000000 00200001 00 00");
	expect_field(s, true, 10, 7);
	go(s, "a8 00 00000000 00200001 00 00");
	expect_field(s, true, 6, 7);
}

/* The transport computes residual counts (RFC 7143) from expected and want. */
static void less_data_out_writes_fewer_blocks(void **state)
{
	struct scene *s = *state;

	fill(1, 4 * BLOCK);
	assert_int_equal(go_out(s, "2a 00 00000000 00 0002 00", data, BLOCK + 200), SCSI_GOOD);
	assert_int_equal(s->c.want, 2 * BLOCK);
	assert_memory_equal(fake_bytes(s->l), data, BLOCK);
	assert_int_equal(fake_bytes(s->l)[BLOCK], 0);
	assert_int_equal(go_out(s, "2a 00 00000004 00 0001 00", data, 200), SCSI_GOOD);
	assert_int_equal(s->w.steps, 0);
	assert_int_equal(go(s, "2a 00 00000004 00 0001 00"), SCSI_GOOD);
	assert_int_equal(s->c.want, BLOCK);
	assert_int_equal(go_out(s, "2a 00 00000008 00 0001 00", data, 2 * BLOCK), SCSI_GOOD);
	assert_int_equal(s->c.want, BLOCK);
	assert_int_equal(fake_bytes(s->l)[9 * BLOCK], 0);
}

static void less_expected_data_in_reads_less(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "28 00 00000000 00 0004 00", BLOCK + 1), SCSI_GOOD);
	assert_int_equal(s->c.want, 4 * BLOCK);
	assert_int_equal(s->w.last.length, 2 * BLOCK);
	assert_int_equal(s->w.in_len, BLOCK + 1);
	assert_int_equal(go(s, "28 00 00000000 00 0004 00"), SCSI_GOOD);
	assert_int_equal(s->c.want, 4 * BLOCK);
	assert_int_equal(go_in(s, "28 00 00000000 00 0001 00", 4096), SCSI_GOOD);
	assert_int_equal(s->w.in_len, BLOCK);
}

static void fua_and_modes_decide_on_durability(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_out(s, "2a 00 00000000 00 0001 00", data, BLOCK), SCSI_GOOD);
	assert_true(s->w.last.fua); /* because there is no write cache */
	fake_facts(s->l)->write_back = true;
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_LUN_RESET, 0), 0);
	go(s, "00 00 00 00 00 00");
	assert_int_equal(go_out(s, "2a 00 00000000 00 0001 00", data, BLOCK), SCSI_GOOD);
	assert_false(s->w.last.fua);
	assert_int_equal(go_out(s, "2a 18 00000000 00 0001 00", data, BLOCK), SCSI_GOOD);
	assert_true(s->w.last.fua);
	assert_int_equal(go_out(s, "2e 02 00000000 00 0001 00", data, BLOCK), SCSI_GOOD);
	assert_true(s->w.last.fua && s->w.last.verify);
	assert_int_equal(go(s, "35 00 00000000 00 0000 00"), SCSI_GOOD);
	assert_int_equal(s->w.last.op, LUN_FLUSH);
}

static void a_read_only_unit_refuses_writes(void **state)
{
	static const char *const cdbs[] = {
		"0a 00 0000 01 00",
		"2a 00 00000000 00 0001 00",
		"aa 00 00000000 00000001 00 00",
		"8a 00 0000000000000000 00000001 00 00",
		"2e 00 00000000 00 0001 00",
		"89 00 0000000000000000 000000 01 00 00",
		"8b 00 0000000000000000 00000001 00 00",
		"41 08 00000000 00 0001 00",
		"93 01 0000000000000000 00000001 00 00",
		"42 00 00000000 00 0018 00",
	};
	struct scene *s = *state;

	fake_facts(s->l)->read_only = true;
	for (size_t i = 0; i < sizeof(cdbs) / sizeof(cdbs[0]); i++) {
		go_out(s, cdbs[i], data, BLOCK);
		expect_sense(s, SCSI_DATA_PROTECT, 0x2700);
		assert_int_equal(s->w.steps, 0);
	}
	assert_int_equal(go_in(s, "28 00 00000000 00 0001 00", BLOCK), SCSI_GOOD);
}

/* ---- comparing ---- */

static void compare_and_write_does_both_or_neither(void **state)
{
	struct scene *s = *state;

	memset(data, 0, 4 * BLOCK);
	memset(data + 2 * BLOCK, 0x77, 2 * BLOCK);
	assert_int_equal(go_out(s, "89 00 0000000000000002 000000 02 00 00", data, 4 * BLOCK),
			 SCSI_GOOD);
	assert_memory_equal(fake_bytes(s->l) + 2 * BLOCK, data + 2 * BLOCK, 2 * BLOCK);
	fake_bytes(s->l)[8 * BLOCK + 513] = 1;
	go_out(s, "89 00 0000000000000008 000000 02 00 00", data, 4 * BLOCK);
	expect_sense(s, SCSI_MISCOMPARE, 0x1d00);
	assert_int_equal(s->c.sense[0], 0xf0); /* VALID: INFORMATION has the offset */
	assert_int_equal(get_be32(s->c.sense + 3), 513);
	assert_int_equal(fake_bytes(s->l)[8 * BLOCK], 0);
}

static void compare_and_write_requires_all_its_data(void **state)
{
	struct scene *s = *state;

	go_out(s, "89 00 0000000000000002 000000 02 00 00", data, 3 * BLOCK);
	expect_field(s, true, 13, 7);
	go_out(s, "89 00 0000000000000002 000000 02 00 00", data, 5 * BLOCK);
	expect_field(s, true, 13, 7);
	assert_int_equal(go(s, "89 00 0000000000000002 000000 00 00 00"), SCSI_GOOD);
	assert_int_equal(s->w.steps, 0);
	fake_facts(s->l)->block = 4096;
	go_out(s, "89 00 0000000000000000 000000 21 00 00", data, 2 * 33 * 4096);
	expect_field(s, true, 13, 7);
}

static void verify_compares_in_three_ways(void **state)
{
	struct scene *s = *state;

	fill(3, 300 * BLOCK);
	memcpy(fake_bytes(s->l), data, 300 * BLOCK);
	assert_int_equal(go_out(s, "2f 02 00000000 00 012c 00", data, 300 * BLOCK), SCSI_GOOD);
	data[200 * BLOCK + 5] ^= 1;
	go_out(s, "2f 02 00000000 00 012c 00", data, 300 * BLOCK);
	expect_sense(s, SCSI_MISCOMPARE, 0x1d00);
	assert_int_equal(get_be32(s->c.sense + 3), 200 * BLOCK + 5);
	assert_int_equal(go(s, "2f 00 00000000 00 012c 00"), SCSI_GOOD);
	assert_int_equal(s->w.last.op, LUN_VERIFY);
	memset(data, 0, BLOCK);
	assert_int_equal(go_out(s, "2f 06 00000400 00 1c00 00", data, BLOCK), SCSI_GOOD);
	fake_bytes(s->l)[8000 * BLOCK] = 1;
	go_out(s, "2f 06 00000400 00 1c00 00", data, BLOCK);
	expect_sense(s, SCSI_MISCOMPARE, 0x1d00);
	go_out(s, "2f 04 00000000 00 0001 00", data, BLOCK);
	expect_field(s, true, 1, 2);
}

static void or_write_sets_bits(void **state)
{
	struct scene *s = *state;

	memset(fake_bytes(s->l), 0x0f, BLOCK);
	memset(data, 0x31, BLOCK);
	assert_int_equal(go_out(s, "8b 00 0000000000000000 00000001 00 00", data, BLOCK),
			 SCSI_GOOD);
	assert_int_equal(fake_bytes(s->l)[17], 0x3f);
}

/* ---- blocks without data ---- */

static bool all_are(const uint8_t *p, uint8_t byte, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (p[i] != byte)
			return false;
	return true;
}

static void write_same_fills_many_blocks_with_one(void **state)
{
	struct scene *s = *state;

	memset(data, 0x5c, BLOCK);
	assert_int_equal(go_out(s, "93 00 0000000000000001 00001ffe 00 00", data, BLOCK),
			 SCSI_GOOD);
	assert_int_equal(fake_bytes(s->l)[0], 0);
	assert_true(all_are(fake_bytes(s->l) + BLOCK, 0x5c, 8190 * BLOCK));
	assert_int_equal(fake_bytes(s->l)[8191 * BLOCK], 0);
	assert_true(s->w.last.fua);
	memset(data, 0, BLOCK);
	assert_int_equal(go_out(s, "41 00 00000001 00 0003 00", data, BLOCK), SCSI_GOOD);
	assert_int_equal(s->w.last.op, LUN_ZERO);
	assert_int_equal(go_out(s, "41 08 00000001 00 0003 00", data, BLOCK), SCSI_GOOD);
	assert_int_equal(s->w.last.op, LUN_DISCARD);
	assert_int_equal(go(s, "93 09 0000000000000010 00000020 00 00"),
			 SCSI_GOOD); /* NDOB: no data-out */
	assert_int_equal(s->w.last.op, LUN_DISCARD);
	assert_true(all_are(fake_bytes(s->l) + 16 * BLOCK, 0, 32 * BLOCK));
	assert_int_equal(fake_bytes(s->l)[48 * BLOCK], 0x5c);
}

static void write_same_requires_one_block(void **state)
{
	struct scene *s = *state;

	go_out(s, "93 00 0000000000000001 00000001 00 00", data, BLOCK / 2);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x0e03);
	go_out(s, "93 00 0000000000000001 00000001 00 00", data, 2 * BLOCK);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x0e03);
	go_out(s, "93 10 0000000000000001 00000001 00 00", data, BLOCK); /* ANCHOR */
	expect_field(s, true, 1, 4);
	fake_facts(s->l)->discards = false;
	go_out(s, "93 08 0000000000000001 00000001 00 00", data, BLOCK);
	expect_field(s, true, 1, 3);
	assert_int_equal(go(s, "93 01 0000000000000001 00000001 00 00"), SCSI_GOOD);
}

static void write_same_of_no_blocks_goes_to_the_end(void **state)
{
	struct scene *s = *state;

	memset(data, 0x3a, BLOCK);
	assert_int_equal(go_out(s, "93 00 0000000000001ffe 00000000 00 00", data, BLOCK),
			 SCSI_GOOD);
	assert_int_equal(fake_bytes(s->l)[8190 * BLOCK - 1], 0);
	assert_true(all_are(fake_bytes(s->l) + 8190 * BLOCK, 0x3a, 2 * BLOCK));
	go_out(s, "93 00 0000000000002000 00000000 00 00", data, BLOCK);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2100);
	fake_facts(s->l)->size = 1ull << 40;
	go_out(s, "41 00 00000000 00 0000 00", data, BLOCK); /* more than the limit */
	expect_field(s, true, 7, 7);
}

static void unmap_takes_a_list(void **state)
{
	uint8_t list[64], empty[8] = {0};
	struct scene *s = *state;
	size_t len =
		from_hex("002e 0030 00000000 0000000000000001 00000002 00000000 "
			 "0000000000000010 00000000 00000000 0000000000001fff 00000001 00000000",
			 list, sizeof(list));

	memset(fake_bytes(s->l), 0xff, (size_t)BLOCK * BLOCKS);
	assert_int_equal(go_out(s, "42 00 00000000 00 0038 00", list, (uint32_t)len), SCSI_GOOD);
	assert_int_equal(s->w.steps, 2); /* one descriptor is empty */
	assert_true(all_are(fake_bytes(s->l), 0xff, BLOCK));
	assert_true(all_are(fake_bytes(s->l) + BLOCK, 0, 2 * BLOCK));
	assert_int_equal(fake_bytes(s->l)[3 * BLOCK], 0xff);
	assert_int_equal(fake_bytes(s->l)[16 * BLOCK], 0xff);
	assert_true(all_are(fake_bytes(s->l) + 8191 * BLOCK, 0, BLOCK));
	assert_int_equal(go(s, "42 00 00000000 00 0000 00"), SCSI_GOOD);
	assert_int_equal(go_out(s, "42 00 00000000 00 0008 00", empty, 8), SCSI_GOOD);
}

static void a_bad_list_unmaps_nothing(void **state)
{
	uint8_t list[64], many[8 + 257 * 16] = {0x10, 0x16, 0x10, 0x10};
	struct scene *s = *state;
	size_t len = from_hex("001e 0020 00000000 0000000000000001 00000002 00000000 "
			      "0000000000001fff 00000002 00000000",
			      list, sizeof(list));

	go_out(s, "42 00 00000000 00 0028 00", list, (uint32_t)len);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2100);
	assert_int_equal(s->w.steps, 0);
	go_out(s, "42 00 00000000 00 0007 00", list, (uint32_t)len);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	go_out(s, "42 00 00000000 00 0018 00", list, (uint32_t)len);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	go_out(s, "42 00 00000000 00 0028 00", list, 20);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	go_out(s, "42 00 00000000 00 1018 00", many, sizeof(many));
	expect_field(s, false, 2, 7);
	fake_facts(s->l)->size = 1ull << 43;
	put_be32(list + 16, 0xffffffff);
	go_out(s, "42 00 00000000 00 0028 00", list, (uint32_t)len);
	expect_field(s, false, 16, 7);
}

static void lba_status_is_one_descriptor(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "9e 12 0000000000000005 00000018 00 00", 24), SCSI_GOOD);
	expect_bytes(s, "00000014 00000000 0000000000000005 00001ffb 01 000000");
	fake_bytes(s->l)[5 * BLOCK] = 1;
	assert_int_equal(go_in(s, "9e 12 0000000000000005 00000018 00 00", 24), SCSI_GOOD);
	expect_bytes(s, "00000014 00000000 0000000000000005 00001ffb 00 000000");
}

/* ---- errors of the backing --------------- */

static void errors_become_sense_data(void **state)
{
	static const struct {
		int error;
		uint8_t key;
		uint16_t reading, writing;
	} cases[] = {
		{-EIO, SCSI_MEDIUM_ERROR, 0x1100, 0x0c00},
		{-ENOSPC, SCSI_DATA_PROTECT, 0x2707, 0x2707},
		{-EROFS, SCSI_DATA_PROTECT, 0x2700, 0x2700},
		{-ENODEV, SCSI_NOT_READY, 0x0403, 0x0403},
	};
	struct scene *s = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_fail(s->l, cases[i].error);
		go_in(s, "28 00 00000000 00 0001 00", BLOCK);
		expect_sense(s, cases[i].key, cases[i].reading);
		go_out(s, "2a 00 00000000 00 0001 00", data, BLOCK);
		expect_sense(s, cases[i].key, cases[i].writing);
		go(s, "91 00 0000000000000000 00000000 00 00");
		expect_sense(s, cases[i].key, cases[i].writing);
		go(s, "2f 00 00000000 00 0001 00");
		expect_sense(s, cases[i].key, cases[i].reading);
	}
	fake_fail(s->l, -ENOMEM);
	assert_int_equal(go_in(s, "28 00 00000000 00 0001 00", BLOCK), SCSI_BUSY);
	fake_fail(s->l, 0);
	assert_int_equal(go_in(s, "28 00 00000000 00 0001 00", BLOCK), SCSI_GOOD);
}

/* INFORMATION has the address of the first bad block; a flush has none. */
static void medium_errors_have_the_block_address(void **state)
{
	struct scene *s = *state;

	fake_fail(s->l, -EIO);
	go_in(s, "28 00 00000017 00 0004 00", 4 * BLOCK);
	assert_int_equal(s->c.sense[0], 0xf0);
	assert_int_equal(get_be32(s->c.sense + 3), 0x17);
	go_out(s, "8a 00 0000000000000102 00000001 00 00", data, BLOCK);
	assert_int_equal(s->c.sense[0], 0xf0);
	assert_int_equal(get_be32(s->c.sense + 3), 0x102);
	go(s, "91 00 0000000000000000 00000000 00 00");
	assert_int_equal(s->c.sense[0], 0x70);
	fake_fail(s->l, 0);
}

static void sense_data_matches_spc4(void **state)
{
	static const char *const golden[] = {
		"f0 00 0e 12345678 0a 00000000 1d 00 00 000000",
		"70 00 05 00000000 0a 00000000 24 00 00 cd0102",
		"70 00 05 00000000 0a 00000000 26 00 00 8f0007",
		"70 00 0e 00000000 0a 00000000 1d 00 00 000000", /* too big for the field */
		"72 0e 1d 00 000000 0c 00 0a 80 00 0000000912345678",
		"72 05 24 00 000000 08 02 06 0000 cd0102 00",
	};
	const struct scsi_sense senses[] = {
		{.key = 0xe, .asc = 0x1d, .has_info = true, .info = 0x12345678},
		{.key = 5, .asc = 0x24, .has_field = true, .in_cdb = true, .byte = 0x102, .bit = 5},
		{.key = 5, .asc = 0x26, .has_field = true, .byte = 7, .bit = 7},
		{.key = 0xe, .asc = 0x1d, .has_info = true, .info = 0x912345678},
		{.key = 0xe, .asc = 0x1d, .has_info = true, .info = 0x912345678},
		{.key = 5, .asc = 0x24, .has_field = true, .in_cdb = true, .byte = 0x102, .bit = 5},
	};

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		uint8_t bytes[SCSI_SENSE_MAX], sense[SCSI_SENSE_MAX];
		size_t len = from_hex(golden[i], bytes, sizeof(bytes));

		assert_int_equal(scsi_sense_put(sense, &senses[i], i >= 4), len);
		assert_memory_equal(sense, bytes, len);
	}
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(every_length_of_cdb_reads_and_writes),
		STORY(six_bytes_without_a_length_are_256_blocks),
		STORY(beyond_the_end_is_refused),
		STORY(longer_than_the_limit_is_refused),
		STORY(less_data_out_writes_fewer_blocks),
		STORY(less_expected_data_in_reads_less),
		STORY(fua_and_modes_decide_on_durability),
		STORY(a_read_only_unit_refuses_writes),
		STORY(compare_and_write_does_both_or_neither),
		STORY(compare_and_write_requires_all_its_data),
		STORY(verify_compares_in_three_ways),
		STORY(or_write_sets_bits),
		STORY(write_same_fills_many_blocks_with_one),
		STORY(write_same_requires_one_block),
		STORY(write_same_of_no_blocks_goes_to_the_end),
		STORY(unmap_takes_a_list),
		STORY(a_bad_list_unmaps_nothing),
		STORY(lba_status_is_one_descriptor),
		STORY(errors_become_sense_data),
		STORY(medium_errors_have_the_block_address),
		STORY(sense_data_matches_spc4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
