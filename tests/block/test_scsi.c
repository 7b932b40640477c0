// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_scsi.c - checks before a command (attentions, reservations, invalid CDBs), INQUIRY and modes. The bytes are those
 * of SPC-4 and SBC-3.
 */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>

#define READY "00 00 00 00 00 00"

/* ---- attentions ---- */

static void power_on_is_reported_once(void **state)
{
	struct scene *s = *state;
	struct scsi_nexus *n;

	assert_int_equal(scsi_nexus_create(s->t, "c", NULL, &n), 0);
	go_as(s, n, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2900);
	assert_int_equal(go_as(s, n, READY), SCSI_GOOD);
	scsi_nexus_destroy(n);
}

static void inquiry_and_report_luns_leave_attentions(void **state)
{
	struct scene *s = *state;

	scsi_target_resized(s->t, 0);
	assert_int_equal(go_in(s, "12 00 00 00 ff 00", 255), SCSI_GOOD);
	assert_int_equal(go_in(s, "a0 00 00 00 00 00 00 00 10 00 00 00", 4096), SCSI_GOOD);
	go(s, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2a09);
}

static void request_sense_clears_an_attention(void **state)
{
	struct scene *s = *state;

	scsi_target_resized(s->t, 0);
	assert_int_equal(go_in(s, "03 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "70 00 06 00000000 0a 00000000 2a 09 00 000000");
	assert_int_equal(go_in(s, "03 01 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "72 00 00 00 000000 00");
	assert_int_equal(go(s, READY), SCSI_GOOD);
}

static void attentions_are_reported_by_precedence(void **state)
{
	const uint16_t order[] = {0x2900, 0x2903, 0x3f0e, 0x2a09};
	struct scene *s = *state;
	struct lun *l = fake_unit(4096, 512);

	scsi_target_resized(s->t, 0);
	assert_int_equal(scsi_target_add(s->t, 7, l), 0);
	assert_int_equal(scsi_tmf(s->t, s->b, TMF_LUN_RESET, 0), 0);
	assert_int_equal(scsi_tmf(s->t, s->b, TMF_TARGET_COLD_RESET, 0), 0);
	for (int i = 0; i < 4; i++) {
		go(s, READY);
		expect_sense(s, SCSI_UNIT_ATTENTION, order[i]);
	}
	assert_int_equal(go(s, READY), SCSI_GOOD);
	fake_free(l);
}

static void report_luns_clears_luns_changed(void **state)
{
	struct scene *s = *state;
	struct lun *l = fake_unit(4096, 512), *k = fake_unit(4096, 512);

	assert_int_equal(scsi_target_add(s->t, 300, l), 0);
	assert_int_equal(scsi_target_add(s->t, 7, k), 0);
	assert_int_equal(go_in(s, "a0 00 00 00 00 00 00 00 10 00 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00000018 00000000 0000000000000000 0007000000000000 412c000000000000");
	assert_int_equal(go(s, READY), SCSI_GOOD); /* no more attentions */
	go_at(s, 7ull << 48, READY, 0);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2900);
	fake_free(l);
	fake_free(k);
}

/* ---- units ---- */

static void units_have_two_addresses(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_at(s, 0x4000ull << 48, READY, 0), SCSI_GOOD);
	go_at(s, 1, READY, 0); /* a second addressing level */
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
	go_at(s, 0x0100ull << 48, READY, 0); /* another bus */
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
	go_at(s, 0x8000ull << 48, READY, 0);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
}

static void a_missing_unit_answers_some_commands(void **state)
{
	struct scene *s = *state;
	uint64_t lun = 9ull << 48;

	go_at(s, lun, "28 00 00000000 00 0001 00", 512);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
	assert_int_equal(go_at(s, lun, "12 00 00 0005 00", 5), SCSI_GOOD);
	expect_bytes(s, "7f 00 06 12 45");
	assert_int_equal(go_at(s, lun, "03 00 00 00 12 00", 18), SCSI_GOOD);
	expect_bytes(s, "70 00 05 00000000 0a 00000000 25 00 00 000000");
	assert_int_equal(go_at(s, lun, "a0 00 00 00 00 00 00 00 10 00 00 00", 4096), SCSI_GOOD);
}

static void note(void *arg, struct lun *l)
{
	*(struct lun **)arg = l;
}

static void a_removed_unit_waits_for_its_commands(void **state)
{
	struct scene *s = *state;
	struct lun *l = fake_unit(4096, 512), *gone = NULL;
	struct scsi_cmd c = {.nexus = s->a, .lun = 5ull << 48, .cdb = {0x12}, .cdb_len = 6}, d = c;

	assert_int_equal(scsi_target_add(s->t, 5, l), 0);
	assert_int_equal(scsi_target_add(s->t, 5, l), -EEXIST);
	assert_int_equal(scsi_begin(s->t, &c), SCSI_DONE);
	assert_int_equal(scsi_begin(s->t, &d), SCSI_DONE);
	assert_int_equal(scsi_target_remove(s->t, 5, note, &gone), 0);
	assert_null(gone);
	assert_null(scsi_target_find(s->t, 5));
	go_at(s, 5ull << 48, READY, 0);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
	scsi_release(&c);
	assert_null(gone);
	scsi_release(&d);
	assert_ptr_equal(gone, l);
	assert_int_equal(scsi_target_remove(s->t, 5, note, &gone), -ENOENT);
	fake_free(l);
}

/* ---- CDBs ---- */

static void unknown_commands_are_refused(void **state)
{
	struct scene *s = *state;

	go(s, "83 00 00000000 00000000 00000008 00 00"); /* EXTENDED COPY */
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2000);
	go(s, "37 00 00 00 00 00 00 00 08 00");
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2000);
	go(s, "9e 11 00000000 00000000 00000020 00 00");
	expect_field(s, true, 1, 4);
	go(s, "28 00 00 00");
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2400);
}

/*
 * Checks that every bit not in the usage data of REPORT SUPPORTED OPERATION CODES is refused, with a field pointer.
 * acts: byte 1 has the service action.
 */
static void expect_other_bits_refused(struct scene *s, const uint8_t *usage, uint32_t len,
				      bool acts)
{
	for (uint32_t bit = 0; bit < 8 * (len - 1); bit++) {
		uint32_t byte = 1 + bit / 8;
		char hex[64] = "";

		if (usage[byte] & (1 << bit % 8) || (byte == 1 && acts))
			continue;
		for (uint32_t i = 0; i < len; i++)
			snprintf(hex + 2 * i, 3, "%02x",
				 i == 0 || (i == 1 && acts) ? usage[i]
				 : i == byte		    ? 1u << bit % 8
							    : 0);
		go(s, hex);
		expect_field(s, true, (uint16_t)byte, bit % 8);
	}
}

static void every_reserved_bit_is_refused(void **state)
{
	struct scene *s = *state;
	uint8_t all[4096];
	uint32_t n;

	assert_int_equal(go_in(s, "a3 0c 00 00 0000 00001000 00 00", 4096), SCSI_GOOD);
	n = get_be32(s->in) / 8;
	assert_int_equal(s->w.in_len, 4 + 8 * n);
	assert_true(n > 35);
	memcpy(all, s->in + 4, (size_t)8 * n);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *op = all + (size_t)8 * i;
		uint8_t usage[16];
		char hex[64];

		snprintf(hex, sizeof(hex), "a3 0c 03 %02x %04x 00001000 00 00", op[0],
			 get_be16(op + 2));
		assert_int_equal(go_in(s, hex, 4096), SCSI_GOOD);
		assert_int_equal(s->in[1], 3);
		assert_int_equal(get_be16(s->in + 2), get_be16(op + 6));
		memcpy(usage, s->in + 4, get_be16(op + 6));
		assert_int_equal(usage[0], op[0]);
		expect_other_bits_refused(s, usage, get_be16(op + 6), op[5] & 1);
	}
}

static void opcodes_are_reported_one_by_one(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "a3 0c 01 28 0000 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00 03 000a 28 18 ffffffff 1f ffff 00");
	assert_int_equal(go_in(s, "a3 0c 81 28 0000 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00 83 000a 28 18 ffffffff 1f ffff 00 000a 0000 00000000 00000000");
	assert_int_equal(go_in(s, "a3 0c 02 9e 0010 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00 03 0010 9e 10 0000000000000000 ffffffff 00 00");
	assert_int_equal(go_in(s, "a3 0c 01 83 0000 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00 01 0000");
	go_in(s, "a3 0c 01 9e 0010 00001000 00 00", 4096); /* it has service actions */
	expect_field(s, true, 2, 2);
	go_in(s, "a3 0c 02 28 0000 00001000 00 00", 4096); /* it has none */
	expect_field(s, true, 2, 2);
	fake_facts(s->l)->discards = false;
	assert_int_equal(go_in(s, "a3 0c 01 42 0000 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "00 01 0000");
	assert_int_equal(go_in(s, "a3 0d 80 00 0000 00001000 00 00", 4096), SCSI_GOOD);
	expect_bytes(s, "da 00 00 0c 000000000000000000000000");
}

/* ---- INQUIRY and capacity ---- */

static void inquiry_identifies_the_unit(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "12 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 00 06 12 45 00 10 02 5354414720202020 66616b65202020202020202020202020 "
			"30303031 0000000000000000000000000000000000000000 00 00 "
			"00a0 0960 0460 04c0 0000 0000 0000 0000");
	assert_int_equal(s->c.want, 74);
	go_in(s, "12 00 80 00 ff 00", 255); /* a page code without EVPD */
	expect_field(s, true, 2, 7);
}

static void replies_are_cut_to_the_allocation_length(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "12 00 00 00 24 00", 255), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 36);
	assert_int_equal(s->c.want, 36); /* 219 less than allocated */
	assert_int_equal(go_in(s, "12 00 00 00 ff 00", 5), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 5);
	assert_int_equal(s->c.want, 74); /* 69 more than allocated */
	assert_int_equal(go(s, "12 00 00 00 ff 00"), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 0);
}

static void vital_product_data_matches_sbc3(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "12 01 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 00 0007 00 80 83 86 b0 b1 b2");
	assert_int_equal(go_in(s, "12 01 80 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 80 0010 30313233343536373839616263646566");
	assert_int_equal(go_in(s, "12 01 83 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 83 0030 01 03 00 10 600102030405060708090a0b0c0d0e0f "
			"02 01 00 18 5354414720202020 30313233343536373839616263646566");
	assert_int_equal(go_in(s, "12 01 b2 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 b2 0004 00 e4 02 00");
	assert_int_equal(go_in(s, "12 01 b1 00 06 00", 255), SCSI_GOOD);
	expect_bytes(s, "00 b1 003c 0001");
	go_in(s, "12 01 b3 00 ff 00", 255);
	expect_field(s, true, 2, 7);
}

static void reported_limits_match_the_limits(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "12 01 b0 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s,
		     "00 b0 003c 00 ff 0008 00200000 00000800 00000000 00100000 00000100 "
		     "00000008 80000000 0000000000200000 0000000000000000000000000000000000000000");
	fake_facts(s->l)->discards = false;
	assert_int_equal(go_in(s, "12 01 b0 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s,
		     "00 b0 003c 00 ff 0008 00200000 00000800 00000000 00000000 00000000 "
		     "00000000 00000000 0000000000200000 0000000000000000000000000000000000000000");
}

static void capacity_is_the_last_block(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "25 00 00000000 000000 00", 8), SCSI_GOOD);
	expect_bytes(s, "00001fff 00000200");
	assert_int_equal(go_in(s, "9e 10 0000000000000000 00000020 00 00", 32), SCSI_GOOD);
	expect_bytes(s, "0000000000001fff 00000200 00 00 c000 00000000000000000000000000000000");
	fake_facts(s->l)->size = 1ull << 43;
	assert_int_equal(go_in(s, "25 00 00000000 000000 00", 8), SCSI_GOOD);
	expect_bytes(s, "ffffffff 00000200");
	assert_int_equal(go_in(s, "9e 10 0000000000000000 00000008 00 00", 32), SCSI_GOOD);
	expect_bytes(s, "00000003ffffffff");
}

/* ---- modes ---- */

static void modes_are_reported(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "1a 00 0a 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "17 00 10 08 00002000 00000200 0a 0a 00 10 00 00 0000 ffff 0000");
	assert_int_equal(go_in(s, "1a 08 4a 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "0f 00 10 00 0a 0a 04 00 08 00 0000 0000 0000");
	assert_int_equal(go_in(s, "5a 18 08 00 000000 00ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "001a 00 10 00 00 0000 08 12 00 00 00000000000000000000000000000000");
	fake_facts(s->l)->read_only = true;
	assert_int_equal(go_in(s, "1a 08 3f 00 04 00", 4), SCSI_GOOD);
	expect_bytes(s, "3b 00 90 00");
	go_in(s, "1a 00 02 00 ff 00", 255);
	expect_field(s, true, 2, 5);
	go_in(s, "1a 00 0a 01 ff 00", 255);
	expect_field(s, true, 3, 7);
	go_in(s, "1a 00 ca 00 ff 00", 255); /* saved values */
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x3900);
}

static uint8_t select_control(struct scene *s, const char *page)
{
	uint8_t list[32] = {0};
	size_t len = from_hex(page, list + 4, sizeof(list) - 4);
	char cdb[32];

	snprintf(cdb, sizeof(cdb), "15 10 0000 %02zx 00", 4 + len);
	return go_out(s, cdb, list, (uint32_t)(4 + len));
}

static void write_protection_can_be_set_and_is_announced(void **state)
{
	uint8_t block[BLOCK] = {1};
	struct scene *s = *state;

	assert_int_equal(select_control(s, "0a 0a 00 10 08 00 0000 ffff 0000"), SCSI_GOOD);
	go_out(s, "2a 00 00000000 00 0001 00", block, BLOCK);
	expect_sense(s, SCSI_DATA_PROTECT, 0x2702);
	assert_int_equal(fake_bytes(s->l)[0], 0);
	assert_int_equal(go_in(s, "28 00 00000000 00 0001 00", BLOCK), SCSI_GOOD);
	go_as(s, s->b, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2a01);
	assert_int_equal(go(s, READY), SCSI_GOOD); /* no attention for the nexus that changed it */
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_LUN_RESET, 0), 0);
	go(s, READY);
	assert_int_equal(go_out(s, "2a 00 00000000 00 0001 00", block, BLOCK), SCSI_GOOD);
}

static void sense_data_can_be_descriptors(void **state)
{
	struct scene *s = *state;
	uint8_t golden[32];
	size_t len =
		from_hex("72 05 24 00 000000 08 02 06 0000 cf 0001 00", golden, sizeof(golden));

	assert_int_equal(select_control(s, "0a 0a 04 10 00 00 0000 ffff 0000"), SCSI_GOOD);
	go(s, "28 80 00000000 00 0001 00");
	assert_int_equal(s->c.sense_len, len);
	assert_memory_equal(s->c.sense, golden, len);
}

static void fixed_modes_cannot_be_changed(void **state)
{
	uint8_t list[24] = {0, 0, 0, 8};
	struct scene *s = *state;

	select_control(s, "0a 0a 00 00 00 00 0000 ffff 0000");
	expect_field(s, false, 4 + 3, 4);
	select_control(s, "08 12 04 00 0000 0000 0000 0000 00 00 00 00 00000000"); /* without WCE */
	expect_field(s, false, 4 + 2, 2);
	select_control(s, "0a 0b 00 10 00 00 0000 ffff 0000 00");
	expect_field(s, false, 5, 7);
	select_control(s, "0b 0a 00 10 00 00 0000 ffff 0000");
	expect_field(s, false, 4, 5);
	select_control(s, "0a 0a 00 10");
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	put_be32(list + 8, 1024); /* another block size */
	go_out(s, "15 10 0000 0c 00", list, 12);
	expect_field(s, false, 8, 7);
	go_out(s, "15 11 0000 0c 00", list, 12);
	expect_field(s, true, 1, 0);
	fake_facts(s->l)->write_back = true;
	assert_int_equal(select_control(s, "08 12 04 00 0000 0000 0000 0000 00 00 00 00 00000000"),
			 SCSI_GOOD);
}

/* ---- reservations ---- */

static void a_reserved_unit_refuses_others(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go(s, "16 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(go(s, READY), SCSI_GOOD);
	assert_int_equal(go_as(s, s->b, READY), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(go_as(s, s->b, "56 00 00 00 00 00 00 00 00 00"),
			 SCSI_RESERVATION_CONFLICT);
	assert_int_equal(go_as(s, s->b, "12 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(go_as(s, s->b, "17 00 00 00 00 00"), SCSI_GOOD); /* has no effect */
	assert_int_equal(go_as(s, s->b, READY), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(go(s, "17 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(go_as(s, s->b, READY), SCSI_GOOD);
}

static void a_reservation_ends_with_its_holder(void **state)
{
	struct scene *s = *state;
	struct scsi_nexus *n;

	assert_int_equal(scsi_nexus_create(s->t, "c", NULL, &n), 0);
	go_as(s, n, READY);
	assert_int_equal(go_as(s, n, "16 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(go(s, READY), SCSI_RESERVATION_CONFLICT);
	scsi_nexus_destroy(n);
	assert_int_equal(go(s, READY), SCSI_GOOD);
}

/* A nexus sees the units of its view: others do not exist for it. */
static void a_view_hides_units(void **state)
{
	static const struct scsi_view view = {.some = true, .luns = {1 << 3}};
	struct scene *s = *state;
	struct scsi_nexus *all = s->a, *n;

	assert_int_equal(scsi_target_add(s->t, 3, s->l), 0);
	assert_int_equal(scsi_nexus_create(s->t, "c", &view, &n), 0);
	s->a = n;
	assert_int_equal(go_in(s, "a0 00 00 00 00 00 00 00 01 00 00 00", 256), SCSI_GOOD);
	expect_bytes(s, "00 00 00 08 00 00 00 00 00 03 00 00 00 00 00 00");
	assert_int_equal(go_in(s, "12 00 00 00 24 00", 36), SCSI_GOOD);
	assert_int_equal(s->in[0], 0x7f); /* no unit here */
	go_in(s, "28 00 00 00 00 00 00 00 01 00", 512);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2500);
	go_at(s, 3ull << 48, READY, 0);
	assert_int_equal(go_at(s, 3ull << 48, "28 00 00 00 00 00 00 00 01 00", 512), SCSI_GOOD);
	assert_int_equal(scsi_tmf(s->t, n, TMF_LUN_RESET, 0), -ENOENT);
	assert_int_equal(scsi_tmf(s->t, n, TMF_TARGET_WARM_RESET, 0), -EACCES);
	assert_int_equal(scsi_tmf(s->t, n, TMF_LUN_RESET, 3ull << 48), 0);
	s->a = all;
	scsi_nexus_destroy(n);
}

static void a_view_may_be_read_only(void **state)
{
	static const struct scsi_view view = {.read_only = true};
	static const uint8_t block[BLOCK], list[24];
	struct scene *s = *state;
	struct scsi_nexus *all = s->a, *n;

	assert_int_equal(scsi_nexus_create(s->t, "c", &view, &n), 0);
	s->a = n;
	go(s, READY);
	assert_int_equal(go_in(s, "28 00 00 00 00 00 00 00 01 00", 512), SCSI_GOOD);
	go_out(s, "2a 00 00 00 00 00 00 00 01 00", block, sizeof(block));
	expect_sense(s, SCSI_DATA_PROTECT, 0x2700);
	go_out(s, "5f 00 00 00 00 00 00 00 18 00", list, sizeof(list));
	expect_sense(s, SCSI_DATA_PROTECT, 0x2700);
	go(s, "16 00 00 00 00 00");
	expect_sense(s, SCSI_DATA_PROTECT, 0x2700);
	assert_int_equal(go_in(s, "1a 00 3f 00 ff 00", 255), SCSI_GOOD);
	assert_int_equal(s->in[2] & 0x80, 0x80); /* write protected */
	assert_int_equal(scsi_tmf(s->t, n, TMF_LUN_RESET, 0), -EACCES);
	s->a = all;
	assert_int_equal(go_out(s, "2a 00 00 00 00 00 00 00 01 00", block, sizeof(block)),
			 SCSI_GOOD);
	scsi_nexus_destroy(n);
}

static void a_reset_ends_a_reservation(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_as(s, s->b, "16 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_TARGET_WARM_RESET, 0), 0);
	go(s, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2903);
	assert_int_equal(go(s, READY), SCSI_GOOD);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_LUN_RESET, 9ull << 48), -ENOENT);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_CLEAR_ACA, 0), -EOPNOTSUPP);
}

static void cleared_commands_raise_an_attention(void **state)
{
	struct scene *s = *state;
	struct scsi_cmd c = {.nexus = s->b, .cdb = {0x12}, .cdb_len = 6};

	scsi_begin(s->t, &c);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_CLEAR_TASK_SET, 0), 0);
	scsi_release(&c);
	go_as(s, s->b, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, 0x2f00);
	assert_int_equal(go(s, READY), SCSI_GOOD);
}

static void stop_flushes_and_eject_is_refused(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go(s, "1b 00 00 00 01 00"), SCSI_GOOD);
	assert_int_equal(s->w.steps, 0);
	assert_int_equal(go(s, "1b 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(s->w.last.op, LUN_FLUSH);
	go(s, "1b 00 00 00 02 00");
	expect_field(s, true, 4, 1);
	assert_int_equal(go(s, "1e 00 00 00 01 00"), SCSI_GOOD);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(power_on_is_reported_once),
		STORY(inquiry_and_report_luns_leave_attentions),
		STORY(request_sense_clears_an_attention),
		STORY(attentions_are_reported_by_precedence),
		STORY(report_luns_clears_luns_changed),
		STORY(units_have_two_addresses),
		STORY(a_missing_unit_answers_some_commands),
		STORY(a_removed_unit_waits_for_its_commands),
		STORY(unknown_commands_are_refused),
		STORY(every_reserved_bit_is_refused),
		STORY(opcodes_are_reported_one_by_one),
		STORY(inquiry_identifies_the_unit),
		STORY(replies_are_cut_to_the_allocation_length),
		STORY(vital_product_data_matches_sbc3),
		STORY(reported_limits_match_the_limits),
		STORY(capacity_is_the_last_block),
		STORY(modes_are_reported),
		STORY(write_protection_can_be_set_and_is_announced),
		STORY(sense_data_can_be_descriptors),
		STORY(fixed_modes_cannot_be_changed),
		STORY(a_reserved_unit_refuses_others),
		STORY(a_reservation_ends_with_its_holder),
		STORY(a_reset_ends_a_reservation),
		STORY(a_view_hides_units),
		STORY(a_view_may_be_read_only),
		STORY(cleared_commands_raise_an_attention),
		STORY(stop_flushes_and_eject_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
