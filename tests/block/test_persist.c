// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_persist.c - persistent reservations: registrants, holders, and the commands of others.
 */
#include "scene.h"

#include <stdio.h>

#define READY "00 00 00 00 00 00"
#define READ  "28 00 00000000 00 0001 00"
#define SYNC  "35 00 00000000 00 0001 00"

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, ANYHOW = 6 };
enum { WE = 1, EA = 3, WERO = 5, EARO = 6, WEAR = 7, EAAR = 8 };

/* Executes PERSISTENT RESERVE OUT. */
static uint8_t persist(struct scene *s, struct scsi_nexus *n, int action, int type, uint64_t key,
		       uint64_t other)
{
	uint8_t list[24] = {0};
	struct scsi_nexus *a = s->a;
	char cdb[64];
	uint8_t status;

	put_be64(list, key);
	put_be64(list + 8, other);
	snprintf(cdb, sizeof(cdb), "5f %02x %02x 00 00 00 00 00 18 00", action, type);
	s->a = n;
	status = go_out(s, cdb, list, sizeof(list));
	s->a = a;
	return status;
}

static void expect_keys(struct scene *s, const char *hex)
{
	assert_int_equal(go_in(s, "5e 00 00 00 00 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, hex);
}

static void expect_holder(struct scene *s, const char *hex)
{
	assert_int_equal(go_in(s, "5e 01 00 00 00 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, hex);
}

static void expect_attention(struct scene *s, struct scsi_nexus *n, uint16_t asc_ascq)
{
	go_as(s, n, READY);
	expect_sense(s, SCSI_UNIT_ATTENTION, asc_ascq);
	assert_int_equal(go_as(s, n, READY), SCSI_GOOD);
}

static uint8_t write_as(struct scene *s, struct scsi_nexus *n)
{
	static const uint8_t block[BLOCK];
	struct scsi_nexus *a = s->a;
	uint8_t status;

	s->a = n;
	status = go_out(s, "2a 00 00000000 00 0001 00", block, BLOCK);
	s->a = a;
	return status;
}

static uint8_t read_as(struct scene *s, struct scsi_nexus *n)
{
	struct scsi_nexus *a = s->a;
	uint8_t status;

	s->a = n;
	status = go_in(s, READ, BLOCK);
	s->a = a;
	return status;
}

static void both_register(struct scene *s)
{
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0, 0xaa), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, REGISTER, 0, 0, 0xbb), SCSI_GOOD);
}

static void registering_sets_a_key(void **state)
{
	struct scene *s = *state;

	expect_keys(s, "00000000 00000000");
	assert_int_equal(persist(s, s->a, REGISTER, 0, 1, 0xaa), SCSI_RESERVATION_CONFLICT);
	both_register(s);
	expect_keys(s, "00000002 00000010 00000000000000aa 00000000000000bb");
	assert_int_equal(persist(s, s->a, REGISTER, 0, 1, 2), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0xaa, 0xac), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, ANYHOW, 0, 77, 0xbc), SCSI_GOOD);
	expect_keys(s, "00000004 00000010 00000000000000ac 00000000000000bc");
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0xac, 0), SCSI_GOOD);
	expect_keys(s, "00000005 00000008 00000000000000bc");
	assert_int_equal(go_in(s, "5e 00 00 00 00 00 00 00 0a 00", 10), SCSI_GOOD);
	expect_bytes(s, "00000005 00000008 0000"); /* cut to the allocation length */
}

static void capabilities_are_reported(void **state)
{
	struct scene *s = *state;

	assert_int_equal(go_in(s, "5e 02 00 00 00 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "0008 00 80 ea01 0000");
}

/* Checks for each type whether registrants and others may read and write while another nexus holds it. */
static void each_type_excludes_others(void **state)
{
	static const struct {
		int type;
		bool registered_reads, registered_writes, stranger_reads;
	} types[] = {{WE, true, false, true},  {EA, false, false, false},
		     {WERO, true, true, true}, {EARO, true, true, false},
		     {WEAR, true, true, true}, {EAAR, true, true, false}};
	struct scene *s = *state;
	struct scsi_nexus *c;

	assert_int_equal(scsi_nexus_create(s->t, "c", &c), 0);
	go_as(s, c, READY);
	both_register(s);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(persist(s, s->a, RESERVE, types[i].type, 0xaa, 0), SCSI_GOOD);
		assert_int_equal(write_as(s, s->a), SCSI_GOOD);
		assert_int_equal(read_as(s, s->b) == SCSI_GOOD, types[i].registered_reads);
		assert_int_equal(write_as(s, s->b) == SCSI_GOOD, types[i].registered_writes);
		assert_int_equal(read_as(s, c) == SCSI_GOOD, types[i].stranger_reads);
		assert_int_equal(write_as(s, c), SCSI_RESERVATION_CONFLICT);
		assert_int_equal(go_as(s, c, SYNC), SCSI_RESERVATION_CONFLICT);
		assert_int_equal(go_as(s, c, READY), SCSI_GOOD);
		assert_int_equal(go_as(s, c, "12 00 00 00 00 00"), SCSI_GOOD);
		assert_int_equal(persist(s, s->a, RELEASE, types[i].type, 0xaa, 0), SCSI_GOOD);
		if (types[i].type >= WERO)
			expect_attention(s, s->b, 0x2a04);
		assert_int_equal(write_as(s, c), SCSI_GOOD);
	}
	scsi_nexus_destroy(c);
}

static void the_holder_releases_its_reservation(void **state)
{
	struct scene *s = *state;

	assert_int_equal(persist(s, s->a, RESERVE, WE, 0, 0), SCSI_RESERVATION_CONFLICT);
	both_register(s);
	expect_holder(s, "00000002 00000000");
	assert_int_equal(persist(s, s->a, RESERVE, WE, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, RESERVE, WE, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, RESERVE, EA, 0xaa, 0), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(persist(s, s->b, RESERVE, WE, 0xbb, 0), SCSI_RESERVATION_CONFLICT);
	expect_holder(s, "00000002 00000010 00000000000000aa 00000000 00 01 0000");
	assert_int_equal(persist(s, s->b, RELEASE, WE, 0xbb, 0), SCSI_GOOD); /* does nothing */
	assert_int_equal(persist(s, s->a, RELEASE, WE, 1, 0), SCSI_RESERVATION_CONFLICT);
	persist(s, s->a, RELEASE, EA, 0xaa, 0);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x2604);
	assert_int_equal(persist(s, s->a, RELEASE, WE, 0xaa, 0), SCSI_GOOD);
	expect_holder(s, "00000002 00000000");
}

/* A reservation of all registrants ends with the last of them. */
static void a_reservation_ends_with_its_last_holder(void **state)
{
	struct scene *s = *state;

	both_register(s);
	assert_int_equal(persist(s, s->a, RESERVE, EARO, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0xaa, 0), SCSI_GOOD);
	expect_attention(s, s->b, 0x2a04);
	expect_holder(s, "00000003 00000000");
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0, 0xaa), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, RESERVE, EAAR, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0xaa, 0), SCSI_GOOD);
	expect_holder(s, "00000005 00000010 0000000000000000 00000000 00 08 0000");
	assert_int_equal(write_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(persist(s, s->b, REGISTER, 0, 0xbb, 0), SCSI_GOOD);
	assert_int_equal(write_as(s, s->a), SCSI_GOOD);
}

/* A reservation belongs to the initiator, which may reconnect. */
static void a_reservation_survives_its_nexus_and_a_reset(void **state)
{
	struct scene *s = *state;
	struct scsi_nexus *c;

	assert_int_equal(scsi_nexus_create(s->t, "c", &c), 0);
	go_as(s, c, READY);
	assert_int_equal(persist(s, c, REGISTER, 0, 0, 0xcc), SCSI_GOOD);
	assert_int_equal(persist(s, c, RESERVE, EA, 0xcc, 0), SCSI_GOOD);
	scsi_nexus_destroy(c);
	assert_int_equal(read_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_LUN_RESET, 0), 0);
	go(s, READY);
	assert_int_equal(read_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(scsi_nexus_create(s->t, "c", &c), 0);
	go_as(s, c, READY);
	assert_int_equal(read_as(s, c), SCSI_GOOD);
	scsi_nexus_destroy(c);
}

static void preempting_takes_the_reservation(void **state)
{
	struct scene *s = *state;

	both_register(s);
	assert_int_equal(persist(s, s->a, RESERVE, EA, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, PREEMPT, WE, 0xbb, 0xdd), SCSI_RESERVATION_CONFLICT);
	persist(s, s->b, PREEMPT, WE, 0xbb, 0);
	expect_field(s, false, 8, 7);
	assert_int_equal(persist(s, s->b, PREEMPT, WE, 0xbb, 0xaa), SCSI_GOOD);
	expect_attention(s, s->a, 0x2a05);
	expect_keys(s, "00000003 00000008 00000000000000bb");
	expect_holder(s, "00000003 00000010 00000000000000bb 00000000 00 01 0000");
	assert_int_equal(write_as(s, s->a), SCSI_RESERVATION_CONFLICT);
}

static void key_0_preempts_all_registrants(void **state)
{
	struct scene *s = *state;

	both_register(s);
	assert_int_equal(persist(s, s->a, RESERVE, WEAR, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, PREEMPT, EA, 0xbb, 0), SCSI_GOOD);
	expect_attention(s, s->a, 0x2a05);
	expect_holder(s, "00000003 00000010 00000000000000bb 00000000 00 03 0000");
}

static void clear_removes_all_registrations(void **state)
{
	struct scene *s = *state;

	both_register(s);
	assert_int_equal(persist(s, s->a, RESERVE, EA, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, CLEAR, 0, 0xbb, 0), SCSI_GOOD);
	expect_attention(s, s->a, 0x2a03);
	expect_keys(s, "00000003 00000000");
	assert_int_equal(write_as(s, s->b), SCSI_GOOD);
}

static void spc2_reserve_conflicts_with_registrations(void **state)
{
	struct scene *s = *state;

	assert_int_equal(persist(s, s->a, REGISTER, 0, 0, 0xaa), SCSI_GOOD);
	assert_int_equal(go(s, "16 00 00 00 00 00"), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(go_as(s, s->b, "17 00 00 00 00 00"), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(persist(s, s->a, REGISTER, 0, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(go(s, "16 00 00 00 00 00"), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, REGISTER, 0, 0, 0xbb), SCSI_RESERVATION_CONFLICT);
}

static void invalid_parameters_are_refused(void **state)
{
	struct scene *s = *state;
	uint8_t list[24] = {[15] = 1, [20] = 1}; /* APTPL */

	go_out(s, "5f 00 00 00 00 00 00 00 18 00", list, sizeof(list));
	expect_field(s, false, 20, 3);
	go_out(s, "5f 00 00 00 00 00 00 00 17 00", list, 23);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	go_out(s, "5f 00 00 00 00 00 00 00 18 00", list, 20);
	expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x1a00);
	go_out(s, "5f 07 00 00 00 00 00 00 18 00", list, sizeof(list));
	expect_field(s, true, 1, 4);
	persist(s, s->a, RESERVE, 2, 0, 0);
	expect_field(s, true, 2, 7);
	persist(s, s->a, RESERVE, 0x10 | WE, 0, 0);
	expect_field(s, true, 2, 7);
	go_in(s, "5e 04 00 00 00 00 00 00 ff 00", 255);
	expect_field(s, true, 1, 4);
}

static void full_status_describes_each_registrant(void **state)
{
	struct scene *s = *state;

	both_register(s);
	assert_int_equal(persist(s, s->b, RESERVE, EARO, 0xbb, 0), SCSI_GOOD);
	assert_int_equal(go_in(s, "5e 03 00 00 00 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "00000002 00000060 "
			"00000000000000aa 00000000 00 00 00000000 0001 00000018 "
			"45 00 0014 6100000000000000000000000000000000000000 "
			"00000000000000bb 00000000 01 06 00000000 0001 00000018 "
			"45 00 0014 6200000000000000000000000000000000000000");
}

/* There can be as many as fit in READ FULL STATUS. */
static void registrants_are_limited_by_the_reply(void **state)
{
	const unsigned int most = (SCSI_REPLY_MAX - 8) / 48;
	struct scene *s = *state;
	char name[16];

	for (unsigned int i = 0; i <= most; i++) {
		struct scsi_nexus *n;

		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(scsi_nexus_create(s->t, name, &n), 0);
		go_as(s, n, READY);
		persist(s, n, REGISTER, 0, 0, i + 1);
		if (i < most)
			assert_int_equal(s->c.status, SCSI_GOOD);
		else
			expect_sense(s, SCSI_ILLEGAL_REQUEST, 0x5504);
		scsi_nexus_destroy(n);
	}
	assert_int_equal(go_in(s, "5e 00 00 00 00 00 00 10 00 00", 4096), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 8 + 8 * most);
	assert_int_equal(get_be64(s->in + s->w.in_len - 8), most);
	assert_int_equal(go_in(s, "5e 03 00 00 00 00 00 10 00 00", 4096), SCSI_GOOD);
	assert_int_equal(s->w.in_len, 8 + 48 * most);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(registering_sets_a_key),
		STORY(capabilities_are_reported),
		STORY(each_type_excludes_others),
		STORY(the_holder_releases_its_reservation),
		STORY(a_reservation_ends_with_its_last_holder),
		STORY(a_reservation_survives_its_nexus_and_a_reset),
		STORY(preempting_takes_the_reservation),
		STORY(key_0_preempts_all_registrants),
		STORY(clear_removes_all_registrations),
		STORY(spc2_reserve_conflicts_with_registrations),
		STORY(invalid_parameters_are_refused),
		STORY(full_status_describes_each_registrant),
		STORY(registrants_are_limited_by_the_reply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
