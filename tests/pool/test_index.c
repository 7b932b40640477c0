// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_index.c - names: collisions, chains of buckets, and lookups in a damaged region.
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

static struct scene scene;
static struct pool_who who;
static uint64_t sequence;

static void start_scene(uint64_t num_buckets)
{
	scene_open(&scene, 2 * POOL_MIN_SIZE, num_buckets);
	who = scene_client(&scene, 1);
	sequence = 0;
}

static int put(const char *name, const char *value)
{
	struct pool_request rq = scene_put(++sequence, name, value, (uint32_t)strlen(value));
	struct pool_answer answer;

	return scene_do(&scene, &who, &rq, &answer);
}

static int remove_name(const char *name)
{
	struct pool_request rq = scene_put(++sequence, name, NULL, 0);
	struct pool_answer answer;

	rq.op = STAG_POOL_REMOVE;
	rq.flags = 0;
	return scene_do(&scene, &who, &rq, &answer);
}

/* Looks a name up by the node and one-sided. want NULL: the name is absent. */
static void expect_named(const char *name, const char *want)
{
	struct pool_request rq = {
		.op = STAG_POOL_GET, .name = name, .name_length = (uint16_t)strlen(name)};
	struct pool_answer answer;
	struct pool_read read;
	enum pool_step step;
	void *value;

	pool_look(&scene.a, &rq, &answer);
	step = scene_get(&scene.b, name, 16, &value, &read);
	if (!want) {
		assert_int_equal(answer.status, ENOENT);
		assert_true(step == POOL_GONE || step == POOL_ASK);
		return;
	}
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.length, strlen(want));
	assert_memory_equal(answer.bytes, want, strlen(want));
	assert_int_equal(step, POOL_DONE);
	assert_int_equal(read.value_length, strlen(want));
	assert_memory_equal(value, want, strlen(want));
	free(value);
}

static const char *name_number(unsigned int i)
{
	static char name[32];

	snprintf(name, sizeof(name), "%u", i);
	return name;
}

/* All names hash to one bucket, so they are in its chain. */
static void colliding_names_are_distinguished(void **state)
{
	unsigned int n = 100;

	start_scene(1);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(put(name_number(i), name_number(i)), 0);
	assert_int_equal(pool_index_buckets(&scene.a), (n + 6) / 7 - 1);
	for (unsigned int i = 0; i < n + 10; i++)
		expect_named(name_number(i), i < n ? name_number(i) : NULL);
	for (unsigned int i = 1; i < n; i += 2)
		assert_int_equal(remove_name(name_number(i)), 0);
	for (unsigned int i = 0; i < n; i++)
		expect_named(name_number(i), i % 2 ? NULL : name_number(i));
	assert_int_equal(remove_name("1"), ENOENT);
	scene_expect_valid(&scene);
	for (unsigned int i = 0; i < n; i += 2)
		assert_int_equal(remove_name(name_number(i)), 0);
	for (unsigned int i = 0; i < 10;
	     i++) { /* the rest of the chain is freed with its next names */
		assert_int_equal(put("last", "x"), 0);
		assert_int_equal(remove_name("last"), 0);
	}
	assert_int_equal(pool_index_buckets(&scene.a), 0);
	scene_expect_valid(&scene);
	scene_close(&scene);
}

/* Returns the next number above i whose name a hash without a key sends to bucket 0 of n. */
static unsigned int next_chosen(unsigned int i, uint64_t n)
{
	const char *name;

	do
		name = name_number(++i);
	while ((unsigned __int128)pool_hash(name, strlen(name)) * n >> 64 != 0);
	return i;
}

/* Names that somebody has chosen without knowing the pool's key are spread over all buckets. */
static void names_cannot_be_chosen_to_collide(void **state)
{
	const uint64_t num_buckets = 256;
	unsigned int i = 0;

	start_scene(num_buckets);
	for (unsigned int n = 0; n < 500; n++) {
		i = next_chosen(i, num_buckets);
		assert_int_equal(put(name_number(i), name_number(i)), 0);
	}
	assert_true(pool_index_buckets(&scene.a) < 40);
	expect_named(name_number(i), name_number(i));
	scene_expect_valid(&scene);
	scene_close(&scene);
}

/* Counts the names that a list has, each of which is a number below n, and has to be there once. */
static void expect_listed(unsigned int n)
{
	uint8_t *seen = calloc(n, 1), page[4096];
	struct pool_request rq = {.op = POOL_OP_LIST};
	struct pool_answer answer;

	do {
		pool_list(&scene.a, &rq, page, sizeof(page), &answer);
		for (uint32_t at = 0; at < answer.length;) {
			struct pool_listed listed;
			char name[16] = "";

			memcpy(&listed, page + at, sizeof(listed));
			memcpy(name, page + at + sizeof(listed), listed.name_length);
			assert_true((unsigned int)atoi(name) < n);
			assert_int_equal(seen[atoi(name)]++, 0);
			at += sizeof(listed) + ((listed.name_length + 7u) & ~7u);
		}
		rq.version = answer.version;
	} while (answer.version != 0);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
}

/* Somebody who knows the pool's key makes one chain long: that is slow, and nothing else. */
static void a_chain_grows(void **state)
{
	const unsigned int n = 3000;
	struct pool_read read;
	void *value;

	start_scene(1);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(put(name_number(i), name_number(i)), 0);
	assert_int_equal(pool_index_buckets(&scene.a), (n + 6) / 7 - 1);
	scene_expect_valid(&scene);
	scene_expect_same(&scene);
	expect_listed(n);
	expect_named("0", "0");
	expect_named(name_number(n), NULL);
	/* A client does not walk all of it: it asks the node. */
	assert_int_equal(scene_get(&scene.b, name_number(n - 1), 16, &value, &read), POOL_ASK);
	for (unsigned int i = n; i-- > 0;)
		assert_int_equal(remove_name(name_number(i)), 0);
	assert_int_equal(pool_index_buckets(&scene.a), 0);
	scene_expect_valid(&scene);
	scene_close(&scene);
}

static void names_are_of_1_to_255_bytes(void **state)
{
	char name[POOL_MAX_NAME + 1];

	start_scene(0);
	for (unsigned int length = 1; length <= POOL_MAX_NAME; length++) {
		memset(name, 'n', length);
		name[length] = '\0';
		assert_int_equal(put(name, name), 0);
	}
	for (unsigned int length = 1; length <= POOL_MAX_NAME; length++) {
		name[length] = '\0';
		expect_named(name, name);
		name[length] = 'n';
	}
	scene_expect_valid(&scene);
	scene_close(&scene);
}

/* Lists in pages that fit a message. */
static void a_list_has_every_name_once(void **state)
{
	struct pool_request rq = {.op = POOL_OP_LIST};
	struct pool_answer answer;
	unsigned int seen[200] = {0}, pages = 0;
	uint8_t page[500];

	start_scene(8);
	for (unsigned int i = 0; i < 200; i++)
		assert_int_equal(put(name_number(i), "value"), 0);
	do {
		pool_list(&scene.a, &rq, page, sizeof(page), &answer);
		for (uint32_t at = 0; at < answer.length;) {
			struct pool_listed listed;
			char name[8] = "";

			memcpy(&listed, page + at, sizeof(listed));
			memcpy(name, page + at + sizeof(listed), listed.name_length);
			assert_int_equal(listed.ptr.length, 5);
			seen[atoi(name)]++;
			at += sizeof(listed) + ((listed.name_length + 7u) & ~7u);
		}
		rq.version = answer.version;
		pages++;
	} while (answer.version != 0);
	for (unsigned int i = 0; i < 200; i++)
		assert_int_equal(seen[i], 1);
	assert_true(pages > 10);
	scene_close(&scene);
}

#define LARGE 80000u /* buckets */

/* Most entries of a large index are empty: a page that finds no name ends, all the same, and says what it has cost. */
static void a_page_of_a_list_examines_a_part_of_the_index(void **state)
{
	struct pool_request rq = {.op = POOL_OP_LIST};
	struct pool_answer answer;
	uint64_t sum = 0;
	uint8_t page[500];

	scene_open(&scene, 64u << 20, LARGE);
	do {
		uint32_t steps = pool_list(&scene.a, &rq, page, sizeof(page), &answer);

		assert_true(steps > 0 && steps < LARGE * POOL_BUCKET_ENTRIES);
		assert_int_equal(answer.length, 0);
		sum += steps;
		rq.version = answer.version;
	} while (answer.version != 0);
	assert_int_equal(sum, (uint64_t)LARGE * POOL_BUCKET_ENTRIES);
	scene_close(&scene);
}

/* In an index with arbitrary contents a lookup neither loops nor reads outside of the region. */
static void a_lookup_survives_any_index(void **state)
{
	unsigned long rounds = scaled(300);
	struct pool_index_walk walk;
	struct pool_read read;
	void *value;

	dice_start();
	start_scene(4);
	for (unsigned int i = 0; i < 60; i++)
		assert_int_equal(put(name_number(i), "value"), 0);
	for (unsigned long i = 0; i < rounds; i++) {
		uint64_t at = one_in(2) ? scene.a.index_at : scene.a.memory_at;
		uint64_t *word = (uint64_t *)(scene.a.at + at + dice(512) * 8), old = *word;

		*word = one_in(3) ? dice(scene.a.size) / 16 : dice(UINT64_MAX);
		if (scene_get(&scene.a, name_number((unsigned int)dice(70)), 16, &value, &read) ==
		    POOL_DONE)
			free(value);
		pool_index_look(&scene.a, "7", 1);
		pool_index_walk(&walk, &scene.a, one_in(2) ? 0 : dice(UINT64_MAX));
		while (pool_index_next(&walk) != POOL_NOWHERE)
			;
		pool_region_check(&scene.a, NULL, 0);
		if (one_in(2))
			*word = old;
	}
	scene_close(&scene);
}

/* ---- the map of a client --------------------------------------------------------- */

static void a_map_remembers_pointers(void **state)
{
	struct stag_pool_map *map = stag_pool_map_create();
	struct stag_pool_ptr ptr = {.key = 1}, got;

	assert_non_null(map);
	for (uint32_t i = 0; i < 1000; i++) {
		ptr.address = i;
		assert_int_equal(stag_pool_map_set(map, &i, sizeof(i), &ptr), 0);
	}
	for (uint32_t i = 0; i < 1000; i += 2) {
		assert_true(stag_pool_map_remove(map, &i, sizeof(i)));
		assert_false(stag_pool_map_remove(map, &i, sizeof(i)));
	}
	for (uint32_t i = 1; i < 1000; i += 4) {
		ptr.address = i + 5000;
		assert_int_equal(stag_pool_map_set(map, &i, sizeof(i), &ptr), 0);
	}
	assert_int_equal(stag_pool_map_count(map), 500);
	for (uint32_t i = 0; i < 1000; i++) {
		bool is = stag_pool_map_get(map, &i, sizeof(i), &got);

		assert_int_equal(is, i % 2);
		if (is)
			assert_int_equal(got.address, i % 4 == 1 ? i + 5000 : i);
	}
	assert_false(stag_pool_map_get(map, "", 0, &got));
	assert_int_equal(stag_pool_map_set(map, "", 0, &ptr), 0);
	assert_true(stag_pool_map_get(map, "", 0, &got));
	stag_pool_map_destroy(map);
	stag_pool_map_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(colliding_names_are_distinguished),
		cmocka_unit_test(names_cannot_be_chosen_to_collide),
		cmocka_unit_test(a_chain_grows),
		cmocka_unit_test(names_are_of_1_to_255_bytes),
		cmocka_unit_test(a_list_has_every_name_once),
		cmocka_unit_test(a_page_of_a_list_examines_a_part_of_the_index),
		cmocka_unit_test(a_lookup_survives_any_index),
		cmocka_unit_test(a_map_remembers_pointers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
