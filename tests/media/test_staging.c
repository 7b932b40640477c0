// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_staging.c - the medium's staging buffers: bounded, granted in order, and never exhausted so
 * far that operations stop.
 */
#include "backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"

#define SIZE (4 * MIB)
#define POOL MIB
#define MANY 10000

static uint8_t *lowest, *highest;

static int note_memory(struct faulty *f, struct media_io *io)
{
	uint8_t *at = io->buffer;

	if (!lowest || at < lowest)
		lowest = at;
	if (at + io->length > highest)
		highest = at + io->length;
	return 0;
}

static void ten_thousand_operations_stay_within_the_memory_limit(void **state)
{
	struct media_attr attr = {.staging_bytes = POOL};
	unsigned long many = lessened(MANY);
	struct deed *deeds = calloc(many, sizeof(*deeds));
	static struct faulty faulty;
	uint8_t bytes[101];
	struct medium t;

	assert_true(open_medium(&t, ON_DISK, SIZE, &attr));
	if (!media_is_direct(t.m)) {
		close_medium(&t);
		skip();
	}
	inject_between(&t, &faulty, note_memory);
	memset(bytes, 0xa5, sizeof(bytes));
	for (unsigned long i = 0; i < many; i++) {
		deeds[i] = write_of(bytes, 101, 300 * i + 1);
		begin(&t, &deeds[i]);
	}
	media_kick(t.m);
	for (unsigned long i = 0; i < many; i++)
		assert_int_equal(end(&t, &deeds[i]), 0);
	assert_in_range(highest - lowest, 1, POOL);
	for (unsigned long i = 0; i < many; i++)
		expect_on_medium(&t, bytes, 101, 300 * i + 1);
	free(deeds);
	close_medium(&t);
}

#define MOST 64

struct guest {
	struct media_waiter waiter;
	void *buffer;
	unsigned int turn;
};

static unsigned int granted_so_far;

static void note_granted(struct media_waiter *w, void *buffer)
{
	struct guest *g = container_of(w, struct guest, waiter);

	g->buffer = buffer;
	g->turn = ++granted_so_far;
}

/* Takes all buffers, and returns their number. Later guests wait. */
static unsigned int take_all(struct medium *t, struct guest *guests)
{
	unsigned int n = 0;

	granted_so_far = 0;
	memset(guests, 0, MOST * sizeof(*guests));
	for (unsigned int i = 0; i < MOST; i++)
		guests[i].waiter.granted = note_granted;
	while ((guests[n].buffer = media_take_buffer(t->m, &guests[n].waiter)))
		n++;
	return n;
}

static void waiters_get_buffers_in_order(void **state)
{
	struct media_attr attr = {.staging_bytes = POOL};
	struct guest guests[MOST];
	struct medium t;
	unsigned int n;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));
	n = take_all(&t, guests);
	assert_int_equal(n, POOL / MEDIA_BUFFER_SIZE * 3 / 4);
	for (unsigned int i = 1; i < 4; i++)
		assert_null(media_take_buffer(t.m, &guests[n + i].waiter));
	assert_int_equal(counters(&t).pauses, 4);
	assert_true(media_stop_waiting(t.m, &guests[n + 1].waiter));
	assert_int_equal(media_poll(t.m), 0);
	media_give_buffer(t.m, guests[0].buffer);
	media_give_buffer(t.m, guests[1].buffer);
	media_give_buffer(t.m, guests[2].buffer);
	/*
	 * Granted, but not notified yet: the waiter may still withdraw, and the next gets the
	 * buffer.
	 */
	assert_true(media_stop_waiting(t.m, &guests[n + 3].waiter));
	assert_null(guests[n].buffer);
	assert_int_equal(media_poll(t.m), 2);
	assert_int_equal(guests[n].turn, 1);
	assert_int_equal(guests[n + 2].turn, 2);
	assert_false(media_stop_waiting(t.m, &guests[n].waiter));
	media_give_buffer(t.m, guests[n].buffer);
	media_give_buffer(t.m, guests[n + 2].buffer);
	for (unsigned int i = 3; i < n; i++)
		media_give_buffer(t.m, guests[i].buffer);
	assert_int_equal(take_all(&t, guests), n);
	assert_true(media_stop_waiting(t.m, &guests[n].waiter));
	close_medium(&t);
}

/* Peers may hold every buffer, and write each to an unaligned place. */
static void operations_from_all_buffers_complete(void **state)
{
	struct media_attr attr = {.staging_bytes = POOL};
	struct deed deeds[MOST];
	struct guest guests[MOST];
	struct medium t;
	unsigned int n;

	assert_true(open_medium(&t, ON_DISK, SIZE, &attr));
	n = take_all(&t, guests);
	for (unsigned int i = 0; i < n; i++) {
		memset(guests[i].buffer, (int)i + 1, MEDIA_BUFFER_SIZE);
		deeds[i] = write_of(guests[i].buffer, MEDIA_BUFFER_SIZE,
				    77 + (uint64_t)i * MEDIA_BUFFER_SIZE);
		begin(&t, &deeds[i]);
	}
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(end(&t, &deeds[i]), 0);
		expect_on_medium(&t, guests[i].buffer, MEDIA_BUFFER_SIZE,
				 77 + (uint64_t)i * MEDIA_BUFFER_SIZE);
		media_give_buffer(t.m, guests[i].buffer);
	}
	media_poll(t.m);
	close_medium(&t);
}

static void aligned_writes_go_directly_from_a_buffer(void **state)
{
	static const enum backing backings[] = {ON_DISK, ON_PAGES, ON_TMPFS};
	struct media_waiter w = {.granted = note_granted};

	for (int b = 0; b < 3; b++) {
		struct medium t;
		void *buffer;

		assert_true(open_medium(&t, backings[b], SIZE, NULL));
		buffer = media_take_buffer(t.m, &w);
		assert_non_null(buffer);
		dice_fill(buffer, MEDIA_BUFFER_SIZE);
		assert_int_equal(perform(&t, write_of(buffer, MEDIA_BUFFER_SIZE, 4096)), 0);
		expect_on_medium(&t, buffer, MEDIA_BUFFER_SIZE, 4096);
		assert_int_equal(perform(&t, read_of(buffer, MEDIA_BUFFER_SIZE, 0)), 0);
		expect_on_medium(&t, buffer, MEDIA_BUFFER_SIZE, 0);
		assert_int_equal(counters(&t).copied_bytes, 0);
		media_give_buffer(t.m, buffer);
		close_medium(&t);
	}
}

static int seed_dice(void **state)
{
	dice_start();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_thousand_operations_stay_within_the_memory_limit),
		cmocka_unit_test(waiters_get_buffers_in_order),
		cmocka_unit_test(operations_from_all_buffers_complete),
		cmocka_unit_test(aligned_writes_go_directly_from_a_buffer),
	};

	return cmocka_run_group_tests_name("media/staging", tests, seed_dice, NULL);
}
