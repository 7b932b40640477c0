// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_torn.c - one thread changes values while others copy them in pieces, as an adapter does, and check them:
 * no reader accepts a mixed value or one older than it has read before, or misses one that exists.
 *
 * `test_pool_torn caught` is for a build with a deliberate fault: it succeeds if a reader was wrong.
 */
#include "scene.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "dice.h"

#define OBJECTS	   4
#define SIZE	   (1u << 20)
#define READERS	   2
#define WORDS	   64
#define MOST_WORDS 2048
#define NAME	   "the one"

static struct scene scene;
static struct stag_pool_ptr pointers[OBJECTS];
static atomic_bool stop;
static atomic_ulong num_read, num_again, num_mixed, num_old, num_gone, num_named;
static atomic_ulong absences; /* odd: the name may be absent just now */
static uint64_t sequence;
static bool caught;

/* Fills every word with the object's number and its change count. */
static void fill_value(uint64_t *value, unsigned int words, uint64_t which, uint64_t n)
{
	for (unsigned int i = 0; i < words; i++)
		value[i] = which << 32 | n;
}

/* Copies in pieces, and yields between them. */
static void copy_in_pieces(uint8_t *to, const uint8_t *from, size_t length, uint64_t *chance)
{
	for (size_t at = 0, n; at < length; at += n) {
		*chance = *chance * 6364136223846793005u + 1442695040888963407u;
		n = 8 + (*chance >> 33) % 200 / 8 * 8;
		n = n < length - at ? n : length - at;
		memcpy(to + at, from + at, n);
		if (*chance >> 60 == 0)
			sched_yield();
	}
}

/* ---- reading --------------------------------------------------------------------- */

struct reader {
	uint64_t chance;
	uint64_t last[OBJECTS + 1]; /* newest change count seen, by object */
	uint8_t fed[SIZE];	    /* as large as the region: a torn header may claim any length */
};

static bool is_whole(const uint8_t *value, uint32_t length, uint64_t *word)
{
	memcpy(word, value, sizeof(*word));
	for (uint32_t at = 8; at < length; at += 8)
		if (memcmp(value + at, word, 8) != 0)
			return false;
	return length >= 8 && length % 8 == 0;
}

static void check_value(struct reader *r, const struct pool_read *read, uint64_t which)
{
	uint64_t word;

	atomic_fetch_add(&num_read, 1);
	if (!is_whole(r->fed + sizeof(struct pool_object) + read->at, read->value_length, &word)) {
		atomic_fetch_add(&num_mixed, 1);
		return;
	}
	if (word >> 32 != which || (uint32_t)word < r->last[which])
		atomic_fetch_add(&num_old, 1);
	r->last[which] = (uint32_t)word;
}

static void fetch(struct reader *r, uint64_t address, uint64_t length)
{
	const uint8_t *from = scene.a.at + pool_offset(&scene.a, address);

	copy_in_pieces(r->fed, from, length, &r->chance);
}

static void read_by_ptr(struct reader *r, uint64_t which)
{
	enum pool_step step = POOL_MORE;
	struct pool_read read;

	pool_read_start(&read, scene.a.address, scene.a.size, &pointers[which], NULL, 0);
	while (step == POOL_MORE) {
		fetch(r, read.address, read.length);
		assert_false(read.body);
		step = pool_read_feed(&read, r->fed, r->fed + sizeof(struct pool_object));
		atomic_fetch_add(&num_again, step == POOL_MORE);
	}
	if (step == POOL_DONE)
		check_value(r, &read, which);
	else
		atomic_fetch_add(&num_gone, step == POOL_GONE);
}

/* Reads the named object, which moves all the time; it may be absent only while `absences` is odd. */
static void read_by_name(struct reader *r)
{
	struct pool_place place = {.base = scene.a.address,
				   .size = scene.a.size,
				   .index_at = scene.a.index_at,
				   .num_buckets = scene.a.num_buckets,
				   .name_key = {scene.a.name_key[0], scene.a.name_key[1]},
				   .key = scene.a.key};
	unsigned long before = atomic_load(&absences);
	enum pool_step step = POOL_MORE;
	struct pool_lookup l;

	pool_lookup_start(&l, &place, NAME, strlen(NAME), WORDS * 8);
	while (step == POOL_MORE) {
		fetch(r, l.address, l.length);
		step = pool_lookup_feed(&l, r->fed, r->fed + sizeof(struct pool_object));
	}
	if (step == POOL_DONE) {
		check_value(r, &l.read, OBJECTS);
		atomic_fetch_add(&num_named, 1);
	} else if (step == POOL_GONE && before % 2 == 0 && before == atomic_load(&absences)) {
		atomic_fetch_add(&num_gone, 1);
	}
}

static void *reader_thread(void *arg)
{
	struct reader *r = arg;

	while (!atomic_load(&stop)) {
		for (uint64_t which = 0; which < OBJECTS; which++)
			read_by_ptr(r, which);
		read_by_name(r);
	}
	return NULL;
}

/* ---- changing -------------------------------------------------------------------- */

static void change(struct pool_who *who, uint64_t which, uint64_t n)
{
	struct pool_request rq;
	struct pool_answer answer;
	uint64_t value[WORDS];

	fill_value(value, WORDS, which, n);
	rq = scene_insert(++sequence, value, sizeof(value));
	if (n > 0) {
		rq.op = STAG_POOL_UPDATE;
		rq.ptr = pointers[which];
	}
	assert_int_equal(scene_do(&scene, who, &rq, &answer), 0);
	pointers[which] = answer.ptr;
}

static void remove_named(struct pool_who *who)
{
	struct pool_request rq = scene_put(++sequence, NAME, NULL, 0);
	struct pool_answer answer;

	rq.op = STAG_POOL_REMOVE;
	rq.flags = 0;
	scene_do(&scene, who, &rq, &answer);
}

/* Lets the named object outgrow its place repeatedly, until it is removed. */
static void change_named(struct pool_who *who, uint64_t n)
{
	static uint64_t value[MOST_WORDS];
	static unsigned int words = MOST_WORDS;
	struct pool_request rq;
	struct pool_answer answer;
	bool removed = words == MOST_WORDS;

	words = removed ? 8 : words * 5 / 4 < MOST_WORDS ? words * 5 / 4 : MOST_WORDS;
	if (removed) {
		atomic_fetch_add(&absences, 1);
		remove_named(who);
	}
	fill_value(value, words, OBJECTS, n);
	rq = scene_put(++sequence, NAME, value, words * 8);
	assert_int_equal(scene_do(&scene, who, &rq, &answer), 0);
	if (removed)
		atomic_fetch_add(&absences, 1);
}

static bool ran_long_enough(uint64_t n, unsigned long rounds)
{
	if (caught)
		return atomic_load(&num_mixed) + atomic_load(&num_old) + atomic_load(&num_gone) > 0;
	return n >= rounds && atomic_load(&num_named) >= 10 && atomic_load(&num_again) >= 10;
}

static void no_value_is_mixed_or_old(void **state)
{
	unsigned long rounds = scaled(1000);
	static struct reader readers[READERS];
	pthread_t threads[READERS];
	struct pool_who who;

	scene_open(&scene, SIZE, 8);
	who = scene_client(&scene, 1);
	for (uint64_t which = 0; which < OBJECTS; which++)
		change(&who, which, 0);
	change_named(&who, 0);
	for (int i = 0; i < READERS; i++) {
		readers[i].chance = (uint64_t)i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, reader_thread, &readers[i]), 0);
	}
	for (uint64_t n = 1; !ran_long_enough(n, rounds); n++) {
		for (uint64_t which = 0; which < OBJECTS; which++)
			change(&who, which, n);
		change_named(&who, n);
		if (n % 8 == 0)
			sched_yield();
	}
	atomic_store(&stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu values read, %lu of them by name, %lu times again; %lu mixed, %lu old, %lu "
	       "gone\n",
	       num_read, num_named, num_again, num_mixed, num_old, num_gone);
	if (!caught)
		assert_int_equal(num_mixed + num_old + num_gone, 0);
	scene_close(&scene);
}

/*
 * Feeds a copy with the first `cut` bytes of one version and the rest of another: DONE only if it equals one of
 * them.
 */
static void expect_noticed(const uint8_t *one, const uint8_t *two, size_t length, size_t cut)
{
	static uint8_t fed[SIZE];
	struct pool_read read;
	enum pool_step step;

	memcpy(fed, one, cut);
	memcpy(fed + cut, two + cut, length - cut);
	pool_read_start(&read, scene.a.address, scene.a.size, &pointers[0], NULL, 0);
	assert_int_equal(read.length, length);
	step = pool_read_feed(&read, fed, fed + sizeof(struct pool_object));
	if (memcmp(fed, one, length) == 0 || memcmp(fed, two, length) == 0)
		assert_int_equal(step, POOL_DONE);
	else if (step == POOL_DONE)
		atomic_fetch_add(&num_mixed, 1);
}

static void read_torn_at_any_byte_is_noticed(void **state)
{
	size_t length = sizeof(struct pool_object) + WORDS * 8;
	uint8_t old[sizeof(struct pool_object) + WORDS * 8];
	const uint8_t *new;
	struct pool_who who;

	scene_open(&scene, SIZE, 8);
	who = scene_client(&scene, 1);
	sequence = 0;
	change(&who, 0, 0);
	new = scene.a.at + pool_offset(&scene.a, pointers[0].address);
	memcpy(old, new, length);
	change(&who, 0, 1);
	for (size_t cut = 0; cut <= length; cut++) {
		expect_noticed(old, new, length, cut);
		expect_noticed(new, old, length, cut);
	}
	if (!caught)
		assert_int_equal(num_mixed, 0);
	scene_close(&scene);
	sequence = 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_torn_at_any_byte_is_noticed),
		cmocka_unit_test(no_value_is_mixed_or_old),
	};

	caught = argc > 1 && strcmp(argv[1], "caught") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
