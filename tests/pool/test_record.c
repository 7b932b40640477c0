// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_record.c - records: intact or refused, applied in order, and never outside of the memory that they may
 * change.
 */
#include "scene.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "dice.h"

#define SIZE POOL_MIN_SIZE

static struct pool_region region;
static uint8_t *before;
static uint8_t record[4096];
static struct pool_build build;

static int set_up(void **state)
{
	struct pool_format format = {.size = SIZE, .address = SCENE_ADDRESS, .num_buckets = 16};
	uint8_t *at = aligned_alloc(POOL_PAGE, SIZE);

	before = malloc(SIZE);
	assert_non_null(at);
	assert_non_null(before);
	memset(at, 0, SIZE);
	assert_int_equal(pool_region_format(&region, at, &format), 0);
	memcpy(before, at, SIZE);
	pool_build_start(&build, record, sizeof(record));
	return 0;
}

static int tear_down(void **state)
{
	free(region.at);
	free(before);
	return 0;
}

static int finish(uint64_t number, uint64_t epoch)
{
	int length = pool_build_finish(&build, number, epoch, 0);

	assert_true(length > 0);
	return length;
}

static void expect_untouched(void)
{
	assert_true(memcmp(region.at, before, SIZE) == 0);
}

/* Makes a record with ranges of every kind except staged ones. */
static int make_record(uint64_t number)
{
	pool_build_bytes(&build, 8192, "a value", 7);
	pool_build_zero(&build, 16384, 100);
	pool_build_bytes(&build, 20000, "12345678", 8);
	pool_build_bytes(&build, 20008, "continued", 9);
	return finish(number, 1);
}

static void record_is_applied_as_built(void **state)
{
	struct pool_record header;
	int length;

	memset(region.at + 16384, 1, 200);
	length = make_record(1);
	assert_int_equal(build.ranges, 3); /* the last two were merged */
	assert_int_equal(pool_record_check(&region, record, (size_t)length, &header), 0);
	assert_int_equal(header.number, 1);
	assert_int_equal(header.length, length);
	assert_int_equal(pool_record_apply(&region, record, (size_t)length, NULL), 0);
	assert_memory_equal(region.at + 8192, "a value\0", 8);
	assert_memory_equal(region.at + 20000, "12345678continued", 17);
	assert_int_equal(region.at[16384], 0);
	assert_int_equal(region.at[16483], 0);
	assert_int_equal(region.at[16484], 1);
	assert_int_equal(pool_superblock(&region)->number, 1);
}

static void any_wrong_byte_is_noticed(void **state)
{
	int length = make_record(1);
	struct pool_record header;

	for (int i = 0; i < length; i++)
		for (int bit = 0; bit < 8; bit++) {
			record[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(
				pool_record_check(&region, record, (size_t)length, &header),
				-EAGAIN);
			record[i] ^= (uint8_t)(1 << bit);
		}
	for (int room = 0; room < length; room++)
		assert_int_equal(pool_record_check(&region, record, (size_t)room, &header),
				 -EAGAIN);
	expect_untouched();
}

/* Expects that a malformed record with a correct hash, as a peer could make it, is refused. */
static void expect_refused(int length)
{
	struct pool_record header;

	assert_int_equal(pool_record_check(&region, record, (size_t)length, &header), -EBADMSG);
	/* even without the check */
	assert_int_equal(pool_record_apply(&region, record, (size_t)length, NULL), -EBADMSG);
	expect_untouched();
	pool_build_start(&build, record, sizeof(record));
}

static void ranges_outside_of_the_memory_are_refused(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} bad[] = {{SIZE, 8},		{SIZE - 7, 8}, {UINT64_MAX, 8},
		   {UINT64_MAX - 7, 8}, {0, 8}, /* the fixed part, which says what the region is */
		   {POOL_FIXED - 1, 1}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pool_build_bytes(&build, bad[i].offset, "outside", bad[i].length);
		expect_refused(finish(1, 1));
		pool_build_zero(&build, bad[i].offset, bad[i].length);
		expect_refused(finish(1, 1));
	}
	pool_build_zero(&build, POOL_FIXED, UINT32_MAX);
	expect_refused(finish(1, 1));
}

static void missing_and_overlong_ranges_are_refused(void **state)
{
	struct pool_range range = {.offset = 8192, .length = 5000, .kind = POOL_RANGE_INLINE};

	pool_build_bytes(&build, 8192, "12345678", 8);
	build.ranges = 2; /* but only one range follows */
	expect_refused(finish(1, 1));
	pool_build_bytes(&build, 8192, "12345678", 8);
	build.ranges = 0;
	expect_refused(finish(1, 1));
	pool_build_bytes(&build, 8192, "12345678", 8);
	memcpy(record + build.last, &range, sizeof(range)); /* longer than the record */
	expect_refused(finish(1, 1));
	range.length = UINT32_MAX - 3; /* wraps when it is padded */
	pool_build_bytes(&build, 8192, "12345678", 8);
	memcpy(record + build.last, &range, sizeof(range));
	expect_refused(finish(1, 1));
	range = (struct pool_range){.offset = 8192, .length = 8, .kind = 77};
	pool_build_bytes(&build, 8192, "12345678", 8);
	memcpy(record + build.last, &range, sizeof(range));
	expect_refused(finish(1, 1));
}

static void records_come_in_order(void **state)
{
	size_t length;

	pool_superblock(&region)->number = 7;
	pool_superblock(&region)->epoch = 3;
	memcpy(before, region.at, SIZE);
	length = (size_t)finish(9, 3);
	assert_int_equal(pool_record_apply(&region, record, length, NULL), -EPROTO);
	length = (size_t)finish(7, 3);
	assert_int_equal(pool_record_apply(&region, record, length, NULL), -EALREADY);
	length = (size_t)finish(8, 2); /* of a former primary */
	assert_int_equal(pool_record_apply(&region, record, length, NULL), -EPROTO);
	expect_untouched();
	length = (size_t)finish(8, 4);
	assert_int_equal(pool_record_apply(&region, record, length, NULL), 0);
	assert_int_equal(pool_superblock(&region)->epoch, 4);
}

/* A client overwrites its staging memory while the record that names it is in flight. */
static void staged_bytes_that_changed_are_noticed(void **state)
{
	uint8_t staging[256] = "first second";
	struct pool_staged staged = {.offset = 1006, .hash = pool_hash("second", 6)};
	struct pool_staging there = {.at = staging, .base = 1000, .length = sizeof(staging)};
	size_t length;

	pool_build_staged(&build, 8192, 6, &staged);
	pool_build_bytes(&build, 16384, "header", 6);
	length = (size_t)finish(1, 1);
	staging[8] = 'X';
	assert_int_equal(pool_record_apply(&region, record, length, &there), -EILSEQ);
	assert_int_equal(pool_superblock(&region)->number, 0);
	assert_int_equal(region.at[16384], 0);
	assert_int_equal(pool_record_apply(&region, record, length, NULL), -EILSEQ);
	there.length = 11; /* and the staging memory ends too early */
	assert_int_equal(pool_record_apply(&region, record, length, &there), -EILSEQ);
	there.base = 1007;
	assert_int_equal(pool_record_apply(&region, record, length, &there), -EILSEQ);
	there = (struct pool_staging){.at = staging, .base = 1000, .length = sizeof(staging)};
	staging[8] = 'c';
	assert_int_equal(pool_record_apply(&region, record, length, &there), 0);
	assert_memory_equal(region.at + 8192, "second", 6);
	assert_memory_equal(region.at + 16384, "header", 6);
}

static void record_that_does_not_fit_its_buffer_fails(void **state)
{
	pool_build_start(&build, record, 64);
	pool_build_bytes(&build, 8192, "12345678", 8);
	pool_build_bytes(&build, 9000, "12345678", 8);
	pool_build_zero(&build, 9008, 8);
	assert_int_equal(pool_build_finish(&build, 1, 1, 0), -ENOBUFS);
	pool_build_start(&build, record, 8);
	assert_int_equal(pool_build_finish(&build, 1, 1, 0), -ENOBUFS);
}

/* ---- the ring -------------------------------------------------------------------- */

#define RING 4096u

/* Records of many lengths, in many laps; the last one has arrived in part. */
static void ring_is_drained_up_to_the_partial_record(void **state)
{
	static uint8_t here[RING], there[RING], value[1000];
	struct pool_log log = {.at = here, .size = RING};
	struct pool_ring ring = {.at = there, .size = RING};
	struct pool_segment parts[2];
	uint64_t sent = 0;

	dice_start();
	for (uint64_t number = 1; number <= 300; number++) {
		uint32_t length = (uint32_t)dice(sizeof(value));
		void *at = pool_log_room(&log, length + 64, number, 1);
		uint64_t part;
		int n;

		assert_non_null(at);
		dice_fill(value, length);
		pool_build_start(&build, at, length + 64);
		pool_build_bytes(&build, 8192, value, length);
		pool_log_add(&log, (size_t)finish(number, 1));

		part = sent + dice((log.put - sent) / 8) * 8;
		for (uint64_t to = part;; to = log.put) {
			n = pool_log_segments(RING, sent, to, parts);
			for (int i = 0; i < n; i++)
				memcpy(there + parts[i].offset, here + parts[i].offset,
				       parts[i].length);
			sent = to;
			assert_int_equal(pool_ring_drain(&ring, &region, NULL, 99), to == log.put);
			if (to == log.put)
				break;
		}
		assert_int_equal(ring.get, log.put);
		assert_int_equal(pool_superblock(&region)->number, number);
		assert_memory_equal(region.at + 8192, value, length);
		log.tail = log.put;
	}
}

/*
 * Bytes of an earlier lap may be overwritten by the next record while they are looked at, so they are not
 * checked.
 */
static void leftover_of_an_earlier_lap_is_not_checked(void **state)
{
	static uint8_t there[RING];
	struct pool_ring ring = {.at = there, .size = RING};

	pool_superblock(&region)->number = 5;
	for (uint64_t number = 4; number <= 7; number++) {
		pool_build_start(&build, there, RING);
		pool_build_bytes(&build, SIZE, "out of bounds", 13);
		pool_build_finish(&build, number, 1, 0);
		assert_int_equal(pool_ring_drain(&ring, &region, NULL, 99),
				 number == 6 ? -EBADMSG : 0);
	}
	pool_superblock(&region)->number = 0;
	expect_untouched();
}

static void a_log_that_is_full_has_no_room(void **state)
{
	static uint8_t here[RING];
	struct pool_log log = {.at = here, .size = RING};

	assert_non_null(pool_log_room(&log, RING, 1, 1));
	assert_null(pool_log_room(&log, RING + 8, 1, 1));
	pool_log_add(&log, RING - 64);
	assert_null(pool_log_room(&log, 128, 1,
				  1)); /* neither behind the end nor before records still needed */
	assert_non_null(pool_log_room(&log, 64, 1, 1));
	log.tail = 64;
	assert_null(pool_log_room(&log, 128, 1, 1));
	log.tail = 128;
	assert_ptr_equal(pool_log_room(&log, 128, 1, 1), here);
	assert_int_equal(log.put, RING);
}

static void drain_of_a_ring_full_of_skips_ends(void **state)
{
	static uint8_t there[RING];
	struct pool_ring ring = {.at = there, .size = RING, .get = 64};

	for (unsigned int at = 0; at <= 64; at += 64) {
		pool_build_start(&build, there + at, 64);
		pool_build_finish(&build, 1, 1, POOL_RECORD_SKIP);
	}
	assert_int_equal(pool_ring_drain(&ring, &region, NULL, 99), -EBADMSG);
	expect_untouched();
}

/* ---- the region ------------------------------------------------------------------ */

static void a_superblock_that_is_wrong_is_refused(void **state)
{
	struct pool_region adopted;

	assert_int_equal(pool_region_adopt(&adopted, region.at, SIZE), 0);
	assert_int_equal(adopted.memory_at, region.memory_at);
	assert_int_equal(adopted.num_spans, region.num_spans);
	assert_memory_equal(adopted.name_key, region.name_key, sizeof(region.name_key));
	assert_int_equal(pool_region_adopt(&adopted, region.at, SIZE * 2), -EINVAL);
	for (size_t i = 0; i < POOL_FIXED; i++) {
		region.at[i] ^= 0x10;
		assert_int_not_equal(pool_region_adopt(&adopted, region.at, SIZE), 0);
		region.at[i] ^= 0x10;
	}
	/* the hash is right, but the index does not fit */
	pool_superblock(&region)->num_buckets = SIZE;
	pool_superblock(&region)->check =
		pool_hash(region.at, offsetof(struct pool_superblock, check));
	assert_int_equal(pool_region_adopt(&adopted, region.at, SIZE), -EBADMSG);
}

static void an_address_that_is_taken_is_refused(void **state)
{
	uint64_t address = POOL_DEFAULT_ADDRESS;
	char why[256] = "", at[32];

	assert_int_equal(pool_region_map(address, SIZE, why, sizeof(why)), 0);
	memset((void *)address, 1, SIZE);
	assert_int_equal(pool_region_map(address + POOL_SPAN, SIZE, why, sizeof(why)), -EADDRINUSE);
	snprintf(at, sizeof(at), "%llx-", (unsigned long long)address);
	assert_non_null(strstr(why, at)); /* the mapping in the way */
	assert_int_equal(*(uint8_t *)(address + SIZE - 1), 1);
	pool_region_unmap(address, SIZE);
	assert_int_equal(pool_region_map(address + POOL_SPAN, SIZE, why, sizeof(why)), 0);
	pool_region_unmap(address + POOL_SPAN, SIZE);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(record_is_applied_as_built),
		STORY(any_wrong_byte_is_noticed),
		STORY(ranges_outside_of_the_memory_are_refused),
		STORY(missing_and_overlong_ranges_are_refused),
		STORY(records_come_in_order),
		STORY(staged_bytes_that_changed_are_noticed),
		STORY(record_that_does_not_fit_its_buffer_fails),
		STORY(ring_is_drained_up_to_the_partial_record),
		STORY(leftover_of_an_earlier_lap_is_not_checked),
		STORY(a_log_that_is_full_has_no_room),
		STORY(drain_of_a_ring_full_of_skips_ends),
		STORY(a_superblock_that_is_wrong_is_refused),
		STORY(an_address_that_is_taken_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
