// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_cache.c - the medium's cache: how long it keeps bytes, how many, and that no read returns
 * stale ones.
 */
#include "backing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dice.h"

#define SIZE	(4 * MIB)
#define LONG_MS 1000000
#define UNIT	4096

static uint8_t *memory;

static struct deed with_cache_time(struct deed d, uint32_t ms)
{
	d.op.cache_ms = ms;
	return d;
}

/* Changes the file behind the medium's back, to show whether a read comes from the cache. */
static void poke_byte(struct medium *t, uint64_t at, uint8_t value)
{
	poke(t, &value, 1, at);
}

static uint8_t read_byte(struct medium *t, uint64_t at, uint32_t ms)
{
	uint8_t byte = 0;

	assert_int_equal(perform(t, with_cache_time(read_of(&byte, 1, at), ms)), 0);
	return byte;
}

static void a_second_read_comes_from_the_cache(void **state)
{
	static const enum backing backings[] = {ON_DISK, ON_PAGES, ON_TMPFS};

	for (int b = 0; b < 3; b++) {
		struct medium t;

		assert_true(open_medium(&t, backings[b], SIZE, NULL));
		poke_byte(&t, 5000, 1);
		assert_int_equal(read_byte(&t, 5000, LONG_MS), 1);
		poke_byte(&t, 5000, 2);
		assert_int_equal(read_byte(&t, 5000, LONG_MS), 1);
		/* The rest of the cache unit was read with it. */
		assert_int_equal(perform(&t, with_cache_time(read_of(memory, UNIT, 4096), LONG_MS)),
				 0);
		assert_int_equal(memory[5000 - 4096], 1);
		assert_int_equal(counters(&t).cache_hits, 2);
		assert_int_equal(counters(&t).cache_misses, 1);
		assert_int_equal(counters(&t).cache_bytes, UNIT);
		/* An operation without a cache time reads the medium. */
		assert_int_equal(read_byte(&t, 5000, 0), 2);
		close_medium(&t);
	}
}

static void a_write_goes_to_the_cache_and_the_medium(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	dice_fill(memory, 3 * UNIT);
	assert_int_equal(perform(&t, with_cache_time(write_of(memory, 3 * UNIT, 8192), LONG_MS)),
			 0);
	expect_on_medium(&t, memory, 3 * UNIT, 8192);
	poke_byte(&t, 8192 + 5, (uint8_t)~memory[5]);
	assert_int_equal(read_byte(&t, 8192 + 5, LONG_MS), memory[5]);
	assert_int_equal(counters(&t).cache_hits, 1);
	close_medium(&t);
}

static void cached_bytes_expire_after_the_requested_time(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	assert_int_equal(read_byte(&t, 100, 1), 0);
	poke_byte(&t, 100, 9);
	for (uint64_t until = clock_ns() + 2 * NS_PER_MS; clock_ns() < until;)
		;
	assert_int_equal(read_byte(&t, 100, 1), 9);
	assert_int_equal(counters(&t).cache_misses, 2);
	close_medium(&t);
}

static void a_full_cache_evicts_the_least_recently_used(void **state)
{
	struct media_attr attr = {.cache_bytes = 16 * UNIT};
	struct medium t;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));
	for (uint64_t i = 0; i < 200; i++) {
		assert_int_equal(
			perform(&t, with_cache_time(read_of(memory, UNIT, i * UNIT), LONG_MS)), 0);
		assert_int_equal(perform(&t, with_cache_time(read_of(memory, UNIT, 0), LONG_MS)),
				 0);
		assert_true(counters(&t).cache_bytes <= 16 * UNIT);
	}
	assert_int_equal(counters(&t).cache_bytes, 16 * UNIT);
	/* The first one was used all the time. */
	assert_int_equal(counters(&t).cache_hits, 200);
	close_medium(&t);
}

static void a_write_is_seen_by_every_later_read(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	for (int i = 0; i < 100; i++) {
		uint64_t at = dice(10 * UNIT), n = dice_size(3 * UNIT), value;
		uint8_t bytes[3 * UNIT], back[3 * UNIT];

		dice_fill(bytes, n);
		assert_int_equal(perform(&t, with_cache_time(read_of(back, n, at), LONG_MS)), 0);
		assert_int_equal(perform(&t, with_cache_time(write_of(bytes, n, at),
							     one_in(2) ? LONG_MS : 0)),
				 0);
		assert_int_equal(perform(&t, with_cache_time(read_of(back, n, at), LONG_MS)), 0);
		assert_memory_equal(bytes, back, n);
		at = at / 8 * 8;
		assert_int_equal(perform(&t, with_cache_time(read_of(&value, 8, at), LONG_MS)), 0);
		assert_int_equal(perform(&t, add_of(at)), 0);
		assert_int_equal(perform(&t, with_cache_time(read_of(back, 8, at), LONG_MS)), 0);
		value++;
		assert_memory_equal(&value, back, 8);
	}
	close_medium(&t);
}

static void a_write_of_another_process_invalidates_the_cache(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct medium a, b;

	assert_true(open_medium(&a, ON_TMPFS, SIZE, &attr));
	attr.fd = b.fd = a.fd;
	assert_int_equal(media_open(&b.m, &attr), 0);
	for (int i = 1; i < 100; i++) {
		struct medium *writer = one_in(2) ? &a : &b;
		uint8_t value = (uint8_t)i;

		assert_int_equal(perform(writer, write_of(&value, 1, 5000)), 0);
		assert_int_equal(read_byte(&a, 5000, LONG_MS), i);
		assert_int_equal(read_byte(&b, 5000, LONG_MS), i);
		assert_int_equal(read_byte(&a, 5001, LONG_MS), 0);
	}
	assert_true(counters(&a).cache_hits >= 99);
	media_close(b.m);
	close_medium(&a);
}

/* The bytes are read, then written through another medium, and only then does the read complete. */
static void a_read_overtaken_by_a_write_is_not_cached(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	static struct faulty faulty;
	uint8_t old = 1, new = 2, seen;
	struct deed d = with_cache_time(read_of(&seen, 1, 5000), LONG_MS);
	struct medium a, b;

	assert_true(open_medium(&a, ON_TMPFS, SIZE, &attr));
	attr.fd = b.fd = a.fd;
	assert_int_equal(media_open(&b.m, &attr), 0);
	inject_between(&a, &faulty, let_pass);
	assert_int_equal(perform(&b, write_of(&old, 1, 5000)), 0);
	atomic_store(&faulty.holds, true);
	begin(&a, &d);
	media_kick(a.m);
	await((media_poll(a.m), atomic_load(&faulty.n_events) == 1));
	assert_int_equal(perform(&b, write_of(&new, 1, 5000)), 0);
	atomic_store(&faulty.holds, false);
	assert_int_equal(end(&a, &d), 0);
	assert_int_equal(seen, old);
	assert_int_equal(read_byte(&a, 5000, LONG_MS), new);
	media_close(b.m);
	close_medium(&a);
}

/* ---- concurrent reads and writes ---- */

struct run_race {
	struct medium *writer, *reader;
	_Atomic uint64_t published;
	uint64_t count;
	bool in_place; /* by atomics, not by writes of a block */
};

static void *write_numbers(void *arg)
{
	struct run_race *r = arg;
	uint64_t *block;

	if (posix_memalign((void **)&block, 4096, UNIT))
		abort();
	for (uint64_t v = 1; v <= r->count; v++) {
		for (int i = 0; i < UNIT / 8; i++)
			block[i] = v;
		if (r->in_place ? perform(r->writer, add_of(UNIT))
				: perform(r->writer, with_cache_time(write_of(block, UNIT, UNIT),
								     v % 3 ? LONG_MS : 0)))
			abort();
		atomic_store(&r->published, v);
	}
	free(block);
	return NULL;
}

static void run_race(struct medium *writer, struct medium *reader, bool in_place)
{
	struct run_race r = {
		.writer = writer, .reader = reader, .count = lessened(3000), .in_place = in_place};
	uint64_t known = 0, seen;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, write_numbers, &r), 0);
	while (known < r.count) {
		known = atomic_load(&r.published);
		assert_int_equal(perform(reader, with_cache_time(read_of(&seen, 8, UNIT), LONG_MS)),
				 0);
		if (seen < known)
			fail_msg("%llu was written, %llu was read", (unsigned long long)known,
				 (unsigned long long)seen);
		known = seen > known ? seen : known;
		if (known > atomic_load(&r.published))
			known = atomic_load(&r.published);
	}
	pthread_join(thread, NULL);
}

static void concurrent_reads_never_return_stale_bytes(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	run_race(&t, &t, false);
	close_medium(&t);
	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	run_race(&t, &t, true);
	close_medium(&t);
}

static void reads_never_return_bytes_stale_by_another_process(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct medium a, b;

	assert_true(open_medium(&a, ON_TMPFS, SIZE, &attr));
	attr.fd = b.fd = a.fd;
	assert_int_equal(media_open(&b.m, &attr), 0);
	run_race(&a, &b, false);
	media_close(b.m);
	close_medium(&a);
}

static int allocate_memory(void **state)
{
	dice_start();
	return posix_memalign((void **)&memory, 4096, MIB);
}

static int free_memory(void **state)
{
	free(memory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_second_read_comes_from_the_cache),
		cmocka_unit_test(a_write_goes_to_the_cache_and_the_medium),
		cmocka_unit_test(cached_bytes_expire_after_the_requested_time),
		cmocka_unit_test(a_full_cache_evicts_the_least_recently_used),
		cmocka_unit_test(a_write_is_seen_by_every_later_read),
		cmocka_unit_test(a_write_of_another_process_invalidates_the_cache),
		cmocka_unit_test(a_read_overtaken_by_a_write_is_not_cached),
		cmocka_unit_test(concurrent_reads_never_return_stale_bytes),
		cmocka_unit_test(reads_never_return_bytes_stale_by_another_process),
	};

	return cmocka_run_group_tests_name("media/cache", tests, allocate_memory, free_memory);
}
