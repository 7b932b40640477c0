// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_persist.c - persistent reservations: registrants, holders, and the commands of others.
 */
#include "scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

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

	assert_int_equal(scsi_nexus_create(s->t, "c", NULL, &c), 0);
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

	assert_int_equal(scsi_nexus_create(s->t, "c", NULL, &c), 0);
	go_as(s, c, READY);
	assert_int_equal(persist(s, c, REGISTER, 0, 0, 0xcc), SCSI_GOOD);
	assert_int_equal(persist(s, c, RESERVE, EA, 0xcc, 0), SCSI_GOOD);
	scsi_nexus_destroy(c);
	assert_int_equal(read_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(scsi_tmf(s->t, s->a, TMF_LUN_RESET, 0), 0);
	go(s, READY);
	assert_int_equal(read_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(scsi_nexus_create(s->t, "c", NULL, &c), 0);
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
	expect_field(s, false, 20, 0); /* there is no directory for the files */
	list[20] = 8;		       /* SPEC_I_PT */
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
		assert_int_equal(scsi_nexus_create(s->t, name, NULL, &n), 0);
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

/* ---- restarts ------------------------------------------------------------------------- */

static char folder[] = "/dev/shm/stag-persist-XXXXXX";
static int dir = -1;

static int open_kept_scene(void **state)
{
	open_scene(state);
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	assert_non_null(mkdtemp(folder));
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	scsi_target_keep(((struct scene *)*state)->t, dir, "iqn.2026-01.x:t");
	return 0;
}

static const char *only_file(void)
{
	DIR *d = opendir(folder);
	static char name[256];
	struct dirent *e;

	*name = '\0';
	while ((e = readdir(d)))
		if (*e->d_name != '.')
			snprintf(name, sizeof(name), "%s", e->d_name);
	closedir(d);
	return name;
}

static int close_kept_scene(void **state)
{
	unlinkat(dir, only_file(), 0);
	close(dir);
	rmdir(folder);
	return close_scene(state);
}

/* Ends the target, and starts another one with the same unit and initiators. Returns the result of adding the unit. */
static int restart_as(struct scene *s, const char *name)
{
	int rc;

	scsi_nexus_destroy(s->a);
	scsi_nexus_destroy(s->b);
	scsi_target_destroy(s->t);
	assert_int_equal(scsi_target_create(&s->t), 0);
	scsi_target_keep(s->t, dir, name);
	rc = scsi_target_add(s->t, 0, s->l);
	assert_int_equal(scsi_nexus_create(s->t, "a", NULL, &s->a), 0);
	assert_int_equal(scsi_nexus_create(s->t, "b", NULL, &s->b), 0);
	go_as(s, s->a, READY);
	go_as(s, s->b, READY);
	return rc;
}

static int restart(struct scene *s)
{
	return restart_as(s, "iqn.2026-01.x:t");
}

/* Executes REGISTER with the bit that says whether the reservations survive. */
static uint8_t register_lasting(struct scene *s, struct scsi_nexus *n, uint64_t key,
				uint64_t new_key, bool lasts)
{
	uint8_t list[24] = {[20] = lasts}, status;
	struct scsi_nexus *a = s->a;

	put_be64(list, key);
	put_be64(list + 8, new_key);
	s->a = n;
	status = go_out(s, "5f 00 00 00 00 00 00 00 18 00", list, sizeof(list));
	s->a = a;
	return status;
}

static void reservations_survive_a_restart(void **state)
{
	struct scene *s = *state;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	assert_int_equal(register_lasting(s, s->b, 0, 0xbb, true), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, RESERVE, WE, 0xaa, 0), SCSI_GOOD);
	assert_int_equal(go_in(s, "5e 02 00 00 00 00 00 00 ff 00", 255), SCSI_GOOD);
	expect_bytes(s, "0008 01 81 ea01 0000"); /* PTPL_C, PTPL_A */
	assert_int_equal(restart(s), 0);
	expect_keys(s, "00000000 00000010 00000000000000aa 00000000000000bb");
	expect_holder(s, "00000000 00000010 00000000000000aa 00000000 00 01 0000");
	assert_int_equal(write_as(s, s->a), SCSI_GOOD);
	assert_int_equal(write_as(s, s->b), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(read_as(s, s->b), SCSI_GOOD);
	assert_int_equal(persist(s, s->b, PREEMPT, EA, 0xbb, 0xaa), SCSI_GOOD);
	assert_int_equal(restart(s), 0);
	assert_int_equal(write_as(s, s->b), SCSI_GOOD);
	assert_int_equal(read_as(s, s->a), SCSI_RESERVATION_CONFLICT);
	assert_int_equal(persist(s, s->b, CLEAR, 0, 0xbb, 0), SCSI_GOOD);
	assert_int_equal(restart(s), 0);
	expect_keys(s, "00000000 00000000");
}

static void without_the_bit_reservations_end_with_the_target(void **state)
{
	struct scene *s = *state;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	assert_int_equal(register_lasting(s, s->a, 0xaa, 0xcc, false), SCSI_GOOD);
	assert_int_equal(persist(s, s->a, RESERVE, EA, 0xcc, 0), SCSI_GOOD);
	assert_int_equal(restart(s), 0);
	expect_keys(s, "00000000 00000000");
	assert_int_equal(write_as(s, s->b), SCSI_GOOD);
}

/* Each byte of the file may be damaged, or the end lost: the unit is not served. */
static void a_damaged_file_is_an_error(void **state)
{
	struct scene *s = *state;
	char bytes[4096];
	ssize_t len;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	len = file_read(dir, only_file(), bytes, sizeof(bytes));
	assert_true(len > 0);
	for (ssize_t i = 0; i < len; i++) {
		bytes[i] ^= 1;
		assert_int_equal(file_replace(dir, only_file(), bytes, (size_t)len, 0600), 0);
		assert_int_equal(restart(s), -EBADMSG);
		assert_non_null(strstr(stag_block_error(), only_file()));
		bytes[i] ^= 1;
		assert_int_equal(file_replace(dir, only_file(), bytes, (size_t)i, 0600), 0);
		assert_int_equal(restart(s), -EBADMSG);
	}
	assert_int_equal(file_replace(dir, only_file(), bytes, (size_t)len, 0600), 0);
	assert_int_equal(restart(s), 0);
	expect_keys(s, "00000000 00000008 00000000000000aa");
}

static void a_failure_to_save_is_reported(void **state)
{
	struct scene *s = *state;
	int good = s->t->dir;

	s->t->dir = 9999; /* no such descriptor */
	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_CHECK_CONDITION);
	s->t->dir = good;
}

/* So the next attempt does not find its work done, and report success. */
static void a_change_that_is_not_saved_is_undone(void **state)
{
	struct scene *s = *state;
	int good = s->t->dir;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	s->t->dir = 9999;
	assert_int_equal(register_lasting(s, s->b, 0, 0xbb, true), SCSI_CHECK_CONDITION);
	expect_keys(s, "00000001 00000008 00000000000000aa");
	for (int i = 0; i < 2; i++)
		assert_int_equal(persist(s, s->a, RESERVE, WE, 0xaa, 0), SCSI_CHECK_CONDITION);
	assert_int_equal(write_as(s, s->b), SCSI_GOOD);
	s->t->dir = good;
	assert_int_equal(persist(s, s->a, RESERVE, WE, 0xaa, 0), SCSI_GOOD);
	s->t->dir = 9999;
	assert_int_equal(persist(s, s->a, RELEASE, WE, 0xaa, 0), SCSI_CHECK_CONDITION);
	assert_int_equal(persist(s, s->a, CLEAR, 0, 0xaa, 0), SCSI_CHECK_CONDITION);
	assert_int_equal(write_as(s, s->b), SCSI_RESERVATION_CONFLICT);
	s->t->dir = good;
	assert_int_equal(restart(s), 0);
	assert_int_equal(write_as(s, s->b), SCSI_RESERVATION_CONFLICT);
}

/* Begins a command of PERSISTENT RESERVE OUT, up to the operation of its unit. */
static enum scsi_next begin_reserve(struct scene *s, struct scsi_cmd *c, uint8_t *data)
{
	*c = (struct scsi_cmd){.nexus = s->a, .cdb_len = 10, .expected = 24, .writes = true};
	from_hex("5f 01 01 00 00 00 00 00 18 00", c->cdb, sizeof(c->cdb));
	memset(data, 0, 24);
	put_be64(data, 0xaa);
	assert_int_equal(scsi_begin(s->t, c), SCSI_COLLECT);
	return scsi_collected(c, data);
}

/* An initiator may abort a command, and send another one, before the first is saved. */
static void changes_wait_for_one_that_is_being_saved(void **state)
{
	static uint8_t data[2][UNITS_BUFFER];
	static struct scsi_cmd first, second;
	struct scene *s = *state;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	assert_int_equal(begin_reserve(s, &first, data[0]), SCSI_WORK);
	assert_int_equal(begin_reserve(s, &second, data[1]), SCSI_DONE);
	assert_int_equal(second.status, SCSI_BUSY);
	scsi_release(&second);
	scsi_release(&first); /* its unit failed before it saved anything */
	assert_int_equal(write_as(s, s->b), SCSI_GOOD);
	assert_int_equal(begin_reserve(s, &first, data[0]), SCSI_WORK);
	assert_int_equal(first.io.call(first.io.arg), 0);
	scsi_release(&first); /* aborted, and saved */
	assert_int_equal(write_as(s, s->b), SCSI_RESERVATION_CONFLICT);
}

/* Two targets serve the same object, and use the same directory. */
static void each_target_has_its_own_reservations(void **state)
{
	struct scene *s = *state;

	assert_int_equal(register_lasting(s, s->a, 0, 0xaa, true), SCSI_GOOD);
	assert_int_equal(restart_as(s, "iqn.2026-01.x:other"), 0);
	expect_keys(s, "00000000 00000000");
	assert_int_equal(restart(s), 0);
	expect_keys(s, "00000000 00000008 00000000000000aa");
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

#define KEPT(name) cmocka_unit_test_setup_teardown(name, open_kept_scene, close_kept_scene)

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
		KEPT(reservations_survive_a_restart),
		KEPT(without_the_bit_reservations_end_with_the_target),
		KEPT(a_damaged_file_is_an_error),
		KEPT(a_failure_to_save_is_reported),
		KEPT(a_change_that_is_not_saved_is_undone),
		KEPT(changes_wait_for_one_that_is_being_saved),
		KEPT(each_target_has_its_own_reservations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
