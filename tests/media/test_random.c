// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_random.c - many operations at once, of every kind and size, against a model in memory.
 *
 * No two operations in flight overlap if one of them writes, so the result of each is known. But
 * they are neighbours in the same blocks all the time.
 */
#include "backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"

#define SIZE	 (8 * MIB)
#define MOST	 48 /* operations in flight */
#define MOST_IOV 6

struct actor {
	struct deed deed;
	struct iovec iov[MOST_IOV];
	uint8_t *memory; /* 4 MiB and a bit */
	uint64_t from, to, value;
	bool busy;
};

static struct medium t;
static struct actor actors[MOST];
static uint8_t *model;
static unsigned long under_way, completed;
static bool small; /* use only a small part of the medium */

static bool writes(const struct actor *a)
{
	return a->deed.op.kind != MEDIA_READ;
}

static bool is_free(const struct actor *who)
{
	for (int i = 0; i < MOST; i++) {
		const struct actor *a = &actors[i];

		if (a != who && a->busy && a->from < who->to && who->from < a->to &&
		    (writes(a) || writes(who)))
			return false;
	}
	return true;
}

static void on_done(struct media_op *op)
{
	struct actor *a = container_of(op, struct actor, deed.op);
	uint64_t at = a->from;

	if (op->result)
		fail_msg("kind %d at %llu of %llu: %d", op->kind, (unsigned long long)op->offset,
			 (unsigned long long)op->length, op->result);
	if (op->kind == MEDIA_ATOMIC)
		assert_int_equal(op->found, a->value);
	for (uint32_t i = 0; op->kind == MEDIA_READ && i < op->n_iov; at += op->iov[i++].iov_len)
		if (memcmp(op->iov[i].iov_base, model + at, op->iov[i].iov_len))
			fail_msg("read at %llu of %llu", (unsigned long long)op->offset,
				 (unsigned long long)op->length);
	a->busy = false;
	under_way--;
	completed++;
}

/* Splits the memory into pieces; sometimes aligned, and with gaps. */
static void split_memory(struct actor *a, bool aligned)
{
	uint64_t left = a->to - a->from, at = aligned ? 0 : dice(600);
	uint32_t n = 0, most = 1 + (uint32_t)dice(MOST_IOV);

	while (left > 0 || n == 0) {
		uint64_t len = n + 1 == most ? left : dice(left + 1);

		if (aligned)
			len = len < 512 ? left : len - len % 512;
		a->iov[n++] = (struct iovec){a->memory + at, len};
		at += len + (aligned ? 512 * dice(2) : dice(20));
		left -= len;
		if (n == most)
			break;
	}
	a->deed.op.iov = a->iov;
	a->deed.op.n_iov = n;
}

static void choose_operation(struct actor *a)
{
	uint64_t room = small ? 64 * KIB : SIZE;
	uint64_t n = dice_size(small ? 3000 : one_in(200) ? 4 * MIB : 100 * KIB);
	bool aligned = one_in(3);
	static const uint8_t kinds[] = {MEDIA_READ, MEDIA_READ, MEDIA_WRITE, MEDIA_WRITE,
					MEDIA_ATOMIC};

	a->deed.op = (struct media_op){.kind = kinds[dice(5)], .done = on_done};
	if (a->deed.op.kind == MEDIA_ATOMIC) {
		a->deed = add_of(8 * dice(room / 8));
		a->deed.op.done = on_done;
		n = 8;
	} else {
		n = aligned ? (n + 511) / 512 * 512 : n;
		a->deed.op.offset = aligned ? 512 * dice((room - n) / 512 + 1) : dice(room - n + 1);
		a->deed.op.length = n;
		a->deed.op.cache_ms = one_in(3) ? 50 : 0;
		a->deed.op.durable = one_in(100);
	}
	a->from = a->deed.op.offset;
	a->to = a->from + n;
	if (a->deed.op.kind != MEDIA_ATOMIC)
		split_memory(a, aligned);
}

static void set_model(struct actor *a)
{
	uint64_t at = a->from, next;

	if (a->deed.op.kind == MEDIA_ATOMIC) {
		memcpy(&a->value, model + at, 8);
		next = a->value + 1;
		memcpy(model + at, &next, 8);
	}
	for (uint32_t i = 0; a->deed.op.kind == MEDIA_WRITE && i < a->deed.op.n_iov; i++) {
		dice_fill(a->iov[i].iov_base, a->iov[i].iov_len);
		memcpy(model + at, a->iov[i].iov_base, a->iov[i].iov_len);
		at += a->iov[i].iov_len;
	}
}

static void start_one(void)
{
	struct actor *a = &actors[dice(MOST)];

	if (a->busy)
		return;
	choose_operation(a);
	if (!is_free(a))
		return;
	set_model(a);
	a->busy = true;
	under_way++;
	assert_int_equal(media_submit(t.m, &a->deed.op), 0);
}

static void run_operations(unsigned long count)
{
	completed = under_way = 0;
	while (completed < count) {
		for (uint64_t i = dice(20); i > 0; i--)
			start_one();
		if (one_in(2))
			media_kick(t.m);
		media_poll(t.m);
		small = one_in(50) ? !small : small;
	}
	media_kick(t.m);
	await((media_poll(t.m), under_way == 0));
	expect_on_medium(&t, model, SIZE, 0);
}

static void run_on(enum backing b, unsigned long count, const struct media_attr *attr,
		   bool shuffles)
{
	static struct faulty faulty;

	if (!open_medium(&t, b, SIZE, attr))
		return;
	if (shuffles) {
		inject_between(&t, &faulty, let_pass);
		faulty.shuffles = true;
	}
	memset(model, 0, SIZE);
	run_operations(count);
	printf("%s: %lu operations, %llu cache hits, %llu misses\n", backing_name(b), completed,
	       (unsigned long long)counters(&t).cache_hits,
	       (unsigned long long)counters(&t).cache_misses);
	close_medium(&t);
}

static void random_operations_match_the_model_on_a_disk(void **state)
{
	run_on(ON_DISK, scaled(2000), NULL, false);
}

static void random_operations_match_the_model_on_a_disk_of_large_blocks(void **state)
{
	struct media_attr attr = {.block = 4096};

	run_on(ON_DISK, scaled(1000), &attr, false);
}

static void random_operations_match_the_model_in_the_page_cache(void **state)
{
	run_on(ON_PAGES, scaled(3000), NULL, false);
}

static void random_operations_match_the_model_on_tmpfs(void **state)
{
	run_on(ON_TMPFS, scaled(20000), NULL, false);
}

static void random_operations_match_the_model_on_a_loop_device(void **state)
{
	run_on(ON_LOOP, scaled(1000), NULL, false);
}

/* Sharing with other processes costs some time, and changes no result. */
static void random_operations_match_the_model_on_shared_media(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};

	run_on(ON_DISK, scaled(1000), &attr, false);
	run_on(IN_MEMORY, scaled(10000), &attr, false);
}

static void random_operations_match_the_model_with_little_memory_and_depth(void **state)
{
	struct media_attr attr = {.staging_bytes = 1, .cache_bytes = 1, .depth = 3};

	run_on(ON_DISK, scaled(1000), &attr, false);
	run_on(ON_TMPFS, scaled(10000), &attr, false);
}

static void random_operations_match_the_model_with_late_and_reordered_events(void **state)
{
	run_on(ON_DISK, scaled(1000), NULL, true);
	run_on(ON_TMPFS, scaled(10000), NULL, true);
}

static int allocate(void **state)
{
	dice_start();
	model = malloc(SIZE);
	for (int i = 0; i < MOST; i++)
		if (posix_memalign((void **)&actors[i].memory, 4096, 4 * MIB + 64 * KIB))
			return -1;
	return !model;
}

static int release(void **state)
{
	for (int i = 0; i < MOST; i++)
		free(actors[i].memory);
	free(model);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_match_the_model_on_a_disk),
		cmocka_unit_test(random_operations_match_the_model_on_a_disk_of_large_blocks),
		cmocka_unit_test(random_operations_match_the_model_in_the_page_cache),
		cmocka_unit_test(random_operations_match_the_model_on_tmpfs),
		cmocka_unit_test(random_operations_match_the_model_on_a_loop_device),
		cmocka_unit_test(random_operations_match_the_model_on_shared_media),
		cmocka_unit_test(random_operations_match_the_model_with_little_memory_and_depth),
		cmocka_unit_test(random_operations_match_the_model_with_late_and_reordered_events),
	};

	return cmocka_run_group_tests_name("media/random", tests, allocate, release);
}
