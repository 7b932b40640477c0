// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_damage.c - damaged tables, and files that were truncated.
 */
#include "room.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dice.h"
#include "base/crc32c.h"

static char path[64];
static uint8_t *good;	   /* the first two MiB */
static struct table table; /* the table that is in them */

static int prepare(void **state)
{
	struct stag_store *store;
	struct stag_store_partition p = {.name = "c", .size = MIB, .num_rights = 2};

	room_clear();
	snprintf(path, sizeof(path), "%s", room_path("s"));
	make_store(path, 8 * MIB, 4096);
	store = open_store(path);
	add(store, "a", MIB);
	add(store, "b", MIB);
	assert_int_equal(stag_store_add(store, &p), 0);
	table = store->now.table;
	stag_store_close(store);
	good = realloc(good, START);
	assert_non_null(good);
	get_bytes(path, 0, good, START);
	return 0;
}

static bool is_as_it_was(void)
{
	uint8_t now[16 * KIB];
	bool same = true;

	for (uint64_t copy = 0; copy < START; copy += MIB) {
		get_bytes(path, copy, now, sizeof(now));
		same = same && memcmp(now, good + copy, sizeof(now)) == 0;
	}
	return same;
}

static void expect_opens_as_before(void)
{
	struct stag_store *store = open_store(path);
	struct stag_store_info info;

	assert_true(is_same_table(&store->now.table, &table));
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.copies, 1);
	stag_store_close(store);
}

/* ---- bytes ----------------------------------------------------------------------- */

static void every_damaged_byte_is_found_and_repaired(void **state)
{
	uint64_t used = DISK_HEADER + 3 * DISK_ENTRY;
	uint64_t step = used / scaled(used / 10), n = 0;

	for (unsigned int copy = 0; copy < 2; copy++)
		for (uint64_t at = dice(step); at < used; at += step, n++) {
			flip_byte(path, copy * MIB + at);
			assert_int_equal(stag_store_check(path, 0, NULL), 1);
			expect_opens_as_before();
			assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), 0);
			assert_true(is_as_it_was());
		}
	print_message("%llu bytes\n", (unsigned long long)n);
}

static void the_next_change_repairs_the_table(void **state)
{
	for (unsigned int copy = 0; copy < 2; copy++) {
		struct stag_store *store;

		flip_byte(path, copy * MIB + 4096 + 100);
		store = open_store(path);
		add(store, copy == 0 ? "d" : "e", 4096);
		stag_store_close(store);
		assert_int_equal(stag_store_check(path, 0, NULL), 0);
	}
}

static void if_both_copies_are_bad_nothing_is_written(void **state)
{
	uint64_t used = DISK_HEADER + 3 * DISK_ENTRY;
	FILE *out;
	char text[1000] = "";

	for (unsigned long i = 0; i < scaled(500); i++) {
		put_bytes(path, 0, good, START);
		flip_byte(path, 8 + dice(used - 8));
		flip_byte(path, MIB + 8 + dice(used - 8));
		get_bytes(path, 0, good, START);
		assert_null(stag_store_open(path, 0));
		assert_int_equal(errno, EBADMSG);
		assert_says("both copies of its table are bad; A: the ");
		out = fmemopen(text, sizeof(text), "w");
		assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, out), -EBADMSG);
		fclose(out);
		assert_says("nothing was changed");
		assert_non_null(strstr(text, "copy A of the table: the "));
		assert_non_null(strstr(text, "copy B of the table: the "));
		assert_true(is_as_it_was());
		prepare(NULL);
	}
}

static void an_open_handle_keeps_the_table_it_read(void **state)
{
	struct stag_store *store = open_store(path);

	for (uint64_t copy = 0; copy < START; copy += MIB)
		flip_byte(path, copy + DISK_HEADER + 10);
	assert_int_equal(try_add(store, "d", 4096, 0, 0), EBADMSG);
	assert_true(is_same_table(&store->now.table, &table));
	flip_byte(path, MIB + DISK_HEADER + 10);
	add(store, "d", 4096);
	stag_store_close(store);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
}

static void an_older_copy_is_found_and_repaired(void **state)
{
	struct stag_store *store = open_store(path);
	uint8_t *older = malloc(MIB);
	char text[1000] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	assert_non_null(older);
	get_bytes(path, 0, older, MIB);
	add(store, "d", MIB);
	put_bytes(path, 0, older, MIB);
	assert_int_equal(count(store), 4);
	stag_store_close(store);
	assert_int_equal(stag_store_check(path, 0, out), 1);
	fclose(out);
	assert_non_null(strstr(text, "copy A of the table: is older: generation 4, and B has 5"));
	store = open_store(path);
	assert_int_equal(count(store), 4);
	stag_store_close(store);
	assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	free(older);
}

/*
 * Recomputes the checksums: they prove that nothing was damaged, not that the contents are valid.
 */
static void seal(uint8_t *image)
{
	uint32_t len;

	memcpy(&len, image + 136, 4);
	if (len <= DISK_TABLE_MAX)
		crc32c_put(image + 140, crc32c_update(CRC32C_INIT, image + DISK_HEADER, len));
	crc32c_put(image + 4092, crc32c_update(CRC32C_INIT, image, 4092));
}

static void expect_bad_seal(uint64_t at, uint64_t value, size_t bytes)
{
	uint8_t *image = malloc(START);

	assert_non_null(image);
	memcpy(image, good, START);
	memcpy(image + at, &value, bytes);
	seal(image);
	put_bytes(path, 0, image, START);
	assert_int_equal(stag_store_check(path, 0, NULL), 1);
	expect_opens_as_before();
	put_bytes(path, 0, good, START);
	free(image);
}

static void invalid_tables_with_valid_checksums_are_refused(void **state)
{
	static const struct {
		uint64_t at, value;
		size_t bytes;
	} cases[] = {
		{32, 0, 8},
		{32, UINT64_MAX, 8},
		{40, 4 * MIB, 8},
		{40, UINT64_MAX, 8},
		{48, 0, 4},
		{48, 4095, 4},
		{56, 0x2f, 1},
		{119, 0x61, 1},
		{120, 0, 8},
		{120, 3, 8},
		{128, 257, 4},
		{128, UINT32_MAX, 4},
		{128, 2, 4},
		{132, 1407, 4},
		{136, UINT32_MAX, 4},
		{136, 1408, 4},
		{144, 1, 4},
		{148, 1, 1},
		{4091, 1, 1},
		{4096, 0, 8},
		{4096, 2, 8},
		{4096 + 8, 0, 1},
		{4096 + 8, 0x62, 1},
		{4096 + 71, 0x62, 1},
		{4096 + 8, 0x20, 1},
		{4096 + 72, 0, 8},
		{4096 + 72, START + 1, 8},
		{4096 + 72, START + MIB, 8},
		{4096 + 72, UINT64_MAX & ~4095ull, 8},
		{4096 + 80, 0, 8},
		{4096 + 80, 100, 8},
		{4096 + 80, UINT64_MAX & ~4095ull, 8},
		{4096 + 80, MIB + 4096, 8},
		{4096 + 88, 0, 8},
		{4096 + 88, 512, 8},
		{4096 + 88, 12288, 8},
		{4096 + 96, 32, 4},
		{4096 + 100, 3, 4},
		{4096 + 108, 33, 4},
		{4096 + 108, UINT32_MAX, 4},
		{4096 + 112, 1, 1},
		{4096 + 128, 1, 1},
		{4096 + 1407, 1, 1},
		{4096 + 2816 + 128, 6, 1},
		{4096 + 2816 + 129, 3, 1},
		{4096 + 2816 + 130, 4, 1},
		{4096 + 2816 + 130, 9, 1},
		{4096 + 2816 + 132, 1, 1},
		{4096 + 2816 + 136, 1, 1},
		{4096 + 2816 + 128, 4, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_bad_seal(cases[i].at, cases[i].value, cases[i].bytes);
}

static void a_store_of_a_newer_format_is_not_changed(void **state)
{
	uint8_t *image = malloc(START);

	assert_non_null(image);
	for (int i = 0; i < 2; i++) {
		memcpy(image, good, START);
		image[i == 0 ? 8 : 12] = 2;
		seal(image);
		put_bytes(path, 0, image, START);
		assert_null(stag_store_open(path, STAG_STORE_LOOK));
		assert_int_equal(errno, EPROTO);
		assert_says("use a newer program");
		assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), -EPROTO);
		assert_int_equal(stag_store_format(path, NULL, 0), EEXIST);
		assert_says("newer than this program");
	}
	free(image);
}

/* ---- files -------------------------------------------------------------------------- */

static void a_truncated_file_keeps_its_intact_partitions(void **state)
{
	struct stag_store *store = open_store(path);
	struct stag_store_info info;
	char text[1000] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	assert_int_equal(truncate(path, START + MIB + 8192), 0);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.present, START + MIB + 8192);
	assert_int_equal(info.size, 8 * MIB);
	assert_int_equal(find(store, "a").offset, START);
	assert_int_equal(try_add(store, "d", MIB, 0, 0), EIO);
	assert_says("it was truncated");
	assert_int_equal(stag_store_remove(store, "c", 0), 0);
	assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, out), 2);
	fclose(out);
	assert_non_null(strstr(text, "it ends at 3153920: 5234688 bytes are missing"));
	assert_non_null(strstr(text, "partition b: is cut off at 3153920"));
	assert_null(strstr(text, "partition a"));
	assert_int_equal(stag_store_remove(store, "b", 0), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 1);
	assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), 0);
	add(store, "d", MIB);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	stag_store_close(store);
}

/*
 * A file of any length: opening returns an error with a message or a table, and never raises a
 * signal.
 */
static void a_file_truncated_at_any_length_does_not_crash(void **state)
{
	static const uint64_t lengths[] = {MIB + 12000, MIB + 4096, MIB + 40, MIB, 8000, 4097,
					   4096,	4095,	    40,	      1,   0};
	struct stag_store *other = open_store(path);

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct stag_store *store;

		assert_int_equal(truncate(path, (off_t)lengths[i]), 0);
		store_changed(other);
		store_refresh(other);
		store = stag_store_open(path, 0);
		assert_int_equal(store != NULL, lengths[i] > 8320);
		if (lengths[i] < 40) /* the generation is cut off, too */
			assert_true(stag_store_query(other, &(struct stag_store_info){0}, 8) != 0);
		stag_store_close(store);
		assert_true(stag_store_check(path, 0, NULL) != 0);
	}
	assert_int_equal(try_add(other, "d", 4096, 0, 0), EPROTO);
	stag_store_close(other);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(every_damaged_byte_is_found_and_repaired, prepare),
		cmocka_unit_test_setup(the_next_change_repairs_the_table, prepare),
		cmocka_unit_test_setup(if_both_copies_are_bad_nothing_is_written, prepare),
		cmocka_unit_test_setup(an_open_handle_keeps_the_table_it_read, prepare),
		cmocka_unit_test_setup(an_older_copy_is_found_and_repaired, prepare),
		cmocka_unit_test_setup(invalid_tables_with_valid_checksums_are_refused, prepare),
		cmocka_unit_test_setup(a_store_of_a_newer_format_is_not_changed, prepare),
		cmocka_unit_test_setup(a_truncated_file_keeps_its_intact_partitions, prepare),
		cmocka_unit_test_setup(a_file_truncated_at_any_length_does_not_crash, prepare),
	};
	int rc;

	dice_start();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	free(good);
	return rc;
}
