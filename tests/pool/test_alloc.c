// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_alloc.c - the allocator of a region's blocks: no blocks overlap, all memory is freed, and the overhead
 * is bounded.
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
#include "pool/memory/ops.h"

#define MOST 50000

struct block {
	uint64_t at, size;
};

static struct scene scene;
static struct block blocks[MOST];
static unsigned int num_blocks;
static uint8_t *taken; /* one byte for each 16 bytes of the region */

static int set_up(void **state)
{
	dice_start();
	scene_open(&scene, 4u << 20, 0);
	taken = calloc(scene.a.size / POOL_ALIGN, 1);
	assert_non_null(taken);
	num_blocks = 0;
	return 0;
}

static int tear_down(void **state)
{
	free(taken);
	scene_close(&scene);
	return 0;
}

/* ---- each operation in a record of its own --------------------------------------- */

static uint8_t record[POOL_RECORD_MAX];
static struct pool_build build;

static void begin_record(void)
{
	assert_int_equal(pool_begin(&scene.core, &build, record, sizeof(record), 0), 0);
}

static void end_record(void)
{
	size_t used;

	assert_int_equal(pool_end(&scene.core, &used), 0);
	assert_int_equal(pool_settle(&scene.core, record, used, NULL), 0);
}

static void mark_block(uint64_t at, uint64_t size, bool take)
{
	assert_true(at % POOL_ALIGN == 0 && at >= scene.a.memory_at);
	assert_true(pool_holds(&scene.a, at, size));
	for (uint64_t i = at / POOL_ALIGN; i < (at + size) / POOL_ALIGN; i++) {
		assert_true(taken[i] == !take);
		taken[i] = take;
	}
}

/* Returns false if memory ran out. */
static bool alloc(uint64_t size, bool run)
{
	uint64_t at, got;

	begin_record();
	at = run ? pool_alloc_run(&scene.core, size) : pool_alloc(&scene.core, size);
	end_record();
	if (at == POOL_NOWHERE)
		return false;
	got = run ? pool_region_run_size(&scene.a, at) : pool_region_block_size(&scene.a, at);
	assert_true(got >= size);
	mark_block(at, got, true);
	assert_in_range(num_blocks, 0, MOST - 1);
	blocks[num_blocks++] = (struct block){at, got};
	return true;
}

static void free_block(unsigned int i)
{
	begin_record();
	pool_free(&scene.core, blocks[i].at);
	end_record();
	mark_block(blocks[i].at, blocks[i].size, false);
	assert_int_equal(pool_region_block_size(&scene.a, blocks[i].at), 0);
	blocks[i] = blocks[--num_blocks];
}

static uint64_t a_size(void)
{
	return one_in(4) ? dice_size(POOL_BLOCK_MAX) : dice_size(500);
}

static void expect_start(const uint8_t *start)
{
	uint64_t table = scene.a.clients_at, end_of_table = scene.a.memory_at;

	assert_int_equal(scene.core.room.free_spans, scene.a.num_spans);
	assert_true(memcmp(scene.a.at + table, start + table, end_of_table - table) == 0);
	assert_true(memcmp(scene.a.at, start, offsetof(struct pool_superblock, number)) == 0);
}

/* ---- stories --------------------------------------------------------------------- */

static void memory_is_as_before_once_all_is_freed(void **state)
{
	uint8_t *start = malloc(scene.a.size);

	assert_non_null(start);
	memcpy(start, scene.a.at, scene.a.size);
	for (unsigned long round = 0; round < 2 + scaled(3); round++) {
		while (alloc(a_size(), one_in(20)) && num_blocks < MOST - 1)
			;
		while (num_blocks > 0 && !one_in(300)) /* leave holes */
			free_block((unsigned int)dice(num_blocks));
		if (round % 2) { /* rebuild the free lists from the region */
			pool_core_close(&scene.core);
			assert_int_equal(pool_core_open(&scene.core, &scene.a, scene.epoch), 0);
		}
	}
	while (num_blocks > 0)
		free_block((unsigned int)dice(num_blocks));
	expect_start(start);
	free(start);
}

static void blocks_of_one_size_waste_little(void **state)
{
	unsigned long n;
	uint64_t size, used;

	for (size = 96; size <= POOL_BLOCK_MAX; size = size * 9 / 8 + 16) {
		for (n = 0; alloc(size, false); n++)
			;
		used = scene.a.num_spans * POOL_SPAN;
		if (n * size * 10 <
		    used * 7) /* spans too few for a slab, and classes an eighth apart */
			fail_msg("%lu blocks of %lu bytes took %lu bytes", n, (unsigned long)size,
				 (unsigned long)used);
		while (num_blocks > 0)
			free_block(num_blocks - 1);
	}
}

/* "The memory overhead per 64-byte value is at most 48 bytes." */
static void overhead_of_a_64_byte_value_is_at_most_48(void **state)
{
	struct pool_who who = scene_client(&scene, 1);
	uint8_t value[64] = {1};
	struct pool_answer answer;
	uint64_t n = 0;
	double cost;

	for (;;) {
		struct pool_request insert = scene_insert(n + 1, value, sizeof(value));

		if (scene_do(&scene, &who, &insert, &answer) != 0)
			break;
		n++;
	}
	assert_int_equal(answer.status, ENOSPC);
	cost = (double)scene.a.size / (double)n - sizeof(value);
	printf("%lu values of 64 bytes in %lu bytes: overhead %.1f bytes each\n", (unsigned long)n,
	       (unsigned long)scene.a.size, cost);
	assert_true(cost <= 48);
	scene_expect_same(&scene);
}

static void failed_insert_leaves_no_trace(void **state)
{
	struct pool_who who = scene_client(&scene, 1);
	static uint8_t value[POOL_DIRECT_MAX];
	struct pool_request rq = scene_insert(1, value, sizeof(value));
	struct pool_answer answer;
	uint64_t sequence, free_spans;

	for (sequence = 1; scene_do(&scene, &who, &rq, &answer) == 0;)
		rq.sequence = ++sequence;
	free_spans = scene.core.room.free_spans;
	for (int i = 0; i < 20; i++) {
		rq = scene_put(++sequence, "a name", value, sizeof(value));
		assert_int_equal(scene_do(&scene, &who, &rq, &answer), ENOSPC);
	}
	assert_int_equal(scene.core.room.free_spans, free_spans);
	scene_expect_valid(&scene);
}

static void impossible_span_tables_are_refused(void **state)
{
	struct pool_core core;
	struct pool_span *table = (struct pool_span *)(scene.a.at + scene.a.spans_at);
	const struct pool_span bad[] = {
		{.kind = UINT16_MAX},
		{.kind = POOL_SPAN_TAIL, .spans = 1},
		{.kind = POOL_SPAN_RUN, .spans = 0},
		{.kind = POOL_SPAN_RUN, .spans = UINT32_MAX},
		{.kind = POOL_SLAB, .used = 0},
		{.kind = POOL_SLAB, .used = UINT16_MAX},
		{.kind = POOL_SLAB + 95,
		 .used = 1}, /* spans several entries, whose tails are missing */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		table[3] = bad[i];
		assert_int_equal(pool_core_open(&core, &scene.a, 1), -EBADMSG);
	}
	table[3] = (struct pool_span){0};
	table[scene.a.num_spans - 1] = (struct pool_span){.kind = POOL_SPAN_RUN, .spans = 2};
	assert_int_equal(pool_core_open(&core, &scene.a, 1), -EBADMSG);
	table[scene.a.num_spans - 1] = (struct pool_span){0};
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(memory_is_as_before_once_all_is_freed),
		STORY(blocks_of_one_size_waste_little),
		STORY(overhead_of_a_64_byte_value_is_at_most_48),
		STORY(failed_insert_leaves_no_trace),
		STORY(impossible_span_tables_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
