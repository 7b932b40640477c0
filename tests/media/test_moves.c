// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_moves.c - one operation at a time, on every backing: writes arrive, reads return the bytes
 * of the medium, and not one byte beside them changes.
 */
#include "backing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"

#define SIZE (6 * MIB)

static uint8_t *model, *memory; /* SIZE bytes, memory page-aligned */

static void each_backing(void (*story)(struct medium *t))
{
	for (int b = 0; b < NUM_BACKINGS; b++) {
		struct medium t;

		if (!open_medium(&t, (enum backing)b, SIZE, NULL))
			continue;
		printf("on %s, block %u\n", backing_name((enum backing)b), media_block(t.m));
		memset(model, 0, SIZE);
		story(&t);
		close_medium(&t);
	}
}

static void write_and_compare(struct medium *t, uint64_t offset, uint64_t n, unsigned int shift)
{
	uint64_t from = offset > 4096 ? offset - 4096 : 0;
	uint64_t to = offset + n + 4096 < SIZE ? offset + n + 4096 : SIZE;

	dice_fill(memory + shift, n);
	memcpy(model + offset, memory + shift, n);
	assert_int_equal(perform(t, write_of(memory + shift, n, offset)), 0);
	expect_on_medium(t, model + from, to - from, from);
}

static void read_and_compare(struct medium *t, uint64_t offset, uint64_t n, unsigned int shift)
{
	memset(memory, 0x55, n + shift + 64);
	assert_int_equal(perform(t, read_of(memory + shift, n, offset)), 0);
	assert_memory_equal(memory + shift, model + offset, n);
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(memory[shift + n + i], 0x55);
	for (unsigned int i = 0; i < shift; i++)
		assert_int_equal(memory[i], 0x55);
}

static const uint64_t ends[] = {0, 1, 7, 511, 512, 513, 2048, 4095};
#define NUM_ENDS (sizeof(ends) / sizeof(ends[0]))

static void try_every_end(struct medium *t)
{
	for (size_t a = 0; a < NUM_ENDS; a++)
		for (size_t b = 0; b < NUM_ENDS; b++)
			for (uint64_t blocks = 0; blocks < 4; blocks++) {
				uint64_t from = 8192 + ends[a], to = 8192 + blocks * 4096 + ends[b];
				unsigned int shift =
					(unsigned int)dice(3) * 256 + (unsigned int)dice(2);

				if (from >= to ||
				    !one_in(media_is_direct(t->m) || is_slow_build() ? 4 : 1))
					continue;
				write_and_compare(t, from, to - from, shift);
				read_and_compare(t, from, to - from, (unsigned int)dice(600));
			}
}

static void operations_may_begin_and_end_at_any_byte(void **state)
{
	each_backing(try_every_end);
}

static void try_sizes(struct medium *t)
{
	static const uint64_t sizes[] = {1,	8,     100,    512, 4096,    5000,   65535,
					 65536, 65537, 200000, MIB, MIB + 1, 4 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int k = 0; k < 3; k++) {
			uint64_t offset = k ? dice(SIZE - sizes[i]) : dice(MIB / 4096) * 4096;
			unsigned int shift = k == 2 ? (unsigned int)dice(512) : 0;

			write_and_compare(t, offset, sizes[i], shift);
			read_and_compare(t, offset, sizes[i], shift);
		}
}

static void operations_may_have_any_size(void **state)
{
	each_backing(try_sizes);
}

/* Uses the same offset within a block in memory and on the medium: only the ends are copied. */
static void try_congruent(struct medium *t)
{
	uint64_t before = counters(t).copied_bytes, copied;

	if (!media_is_direct(t->m))
		return;
	write_and_compare(t, 100, 4 * MIB, 100);
	copied = counters(t).copied_bytes - before;
	assert_in_range(copied, 1, 2 * media_block(t->m));
	read_and_compare(t, 100, 4 * MIB, 100);
	assert_in_range(counters(t).copied_bytes - before, copied + 1, 4 * media_block(t->m));
}

static void only_the_ends_go_through_staging(void **state)
{
	each_backing(try_congruent);
}

static void try_aligned(struct medium *t)
{
	write_and_compare(t, 8 * 4096, MIB, 0);
	read_and_compare(t, 8 * 4096, MIB, 0);
	assert_int_equal(counters(t).copied_bytes, 0);
	assert_int_equal(counters(t).written_bytes, MIB);
	assert_int_equal(counters(t).read_bytes, MIB);
}

static void aligned_operations_are_not_copied(void **state)
{
	each_backing(try_aligned);
}

/* Splits the operation into n pieces of random lengths, or of whole blocks. */
static void scatter(struct deed *d, struct iovec *iov, uint32_t n, uint64_t unit)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = unit > 1 ? unit * (1 + dice(3)) : dice_size(9000) - 1;

		iov[i] = (struct iovec){memory + (uint64_t)i * 16384 + (unit > 1 ? 0 : dice(99)),
					len};
		sum += len;
	}
	d->op.iov = iov;
	d->op.n_iov = n;
	d->op.length = sum;
}

static void try_pieces(struct medium *t)
{
	for (unsigned long round = 0, n = 4 + lessened(36); round < n; round++) {
		struct iovec iov[32];
		struct deed d = write_of(NULL, 0, round % 2 ? dice(MIB) : 4096 * dice(99));
		uint64_t at = d.op.offset;

		scatter(&d, iov, 2 + (uint32_t)dice(30), one_in(2) ? 4096 : 1);
		dice_fill(memory, MIB);
		for (uint32_t i = 0; i < d.op.n_iov; at += iov[i++].iov_len)
			memcpy(model + at, iov[i].iov_base, iov[i].iov_len);
		assert_int_equal(perform(t, d), 0);
		expect_on_medium(t, model, 2 * MIB, 0);

		memset(memory, 0, MIB);
		d.op.kind = MEDIA_READ;
		assert_int_equal(perform(t, d), 0);
		at = d.op.offset;
		for (uint32_t i = 0; i < d.op.n_iov; at += iov[i++].iov_len)
			assert_memory_equal(iov[i].iov_base, model + at, iov[i].iov_len);
	}
}

static void operations_may_scatter_and_gather(void **state)
{
	each_backing(try_pieces);
}

static uint64_t swap_in_7(const struct media_op *op, uint64_t found)
{
	return found == 5 ? 7 : found;
}

static void try_atomics(struct medium *t)
{
	uint64_t five = 5;
	struct deed d = add_of(24);

	dice_fill(memory, 8192);
	memcpy(memory + 4096, &five, sizeof(five));
	poke(t, memory, 8192, 0);
	d.op.apply = swap_in_7;
	d.op.offset = 4096;
	begin(t, &d);
	assert_int_equal(end(t, &d), 0);
	assert_int_equal(d.op.found, 5);
	memory[4096] = 7;
	begin(t, &d);
	assert_int_equal(end(t, &d), 0);
	assert_int_equal(d.op.found, 7);
	expect_on_medium(t, memory, 8192, 0);
	assert_int_equal(counters(t).atomics, 2);
}

static void an_atomic_changes_only_its_word(void **state)
{
	each_backing(try_atomics);
}

static void try_bounds(struct medium *t)
{
	struct deed d = read_of(memory, 8, 4);
	uint64_t size = media_size(t->m);

	assert_int_equal(size, SIZE);
	assert_int_equal(perform(t, read_of(memory, 2, size - 1)), -ENXIO);
	assert_int_equal(perform(t, write_of(memory, 1, size)), -ENXIO);
	assert_int_equal(perform(t, write_of(memory, 1, UINT64_MAX)), -ENXIO);
	assert_int_equal(perform(t, write_of(memory, MIB, UINT64_MAX - 5)), -ENXIO);
	assert_int_equal(perform(t, add_of(size)), -ENXIO);
	assert_int_equal(perform(t, read_of(memory, 0, size)), 0);
	assert_int_equal(perform(t, write_of(memory, 0, 5)), 0);
	assert_int_equal(perform(t, write_of(memory, 1, size - 1)), 0);
	assert_int_equal(media_size(t->m), SIZE);
	assert_int_equal(counters(t).errors, 5);
	/* An invalid kind of operation. */
	assert_int_equal(media_submit(t->m, &d.op), -EINVAL);
	d = add_of(4);
	d.op.done = (void (*)(struct media_op *))abort;
	assert_int_equal(media_submit(t->m, &d.op), -EINVAL);
	d = read_of(memory, 8, 0);
	d.op.done = (void (*)(struct media_op *))abort;
	d.op.iov = &d.iov;
	d.op.length = 9;
	assert_int_equal(media_submit(t->m, &d.op), -EINVAL);
}

static void access_beyond_the_end_is_an_error(void **state)
{
	each_backing(try_bounds);
}

static int allocate(void **state)
{
	dice_start();
	model = malloc(SIZE);
	return posix_memalign((void **)&memory, 4096, SIZE) || !model;
}

static int release(void **state)
{
	free(model);
	free(memory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_may_begin_and_end_at_any_byte),
		cmocka_unit_test(operations_may_have_any_size),
		cmocka_unit_test(only_the_ends_go_through_staging),
		cmocka_unit_test(aligned_operations_are_not_copied),
		cmocka_unit_test(operations_may_scatter_and_gather),
		cmocka_unit_test(an_atomic_changes_only_its_word),
		cmocka_unit_test(access_beyond_the_end_is_an_error),
	};

	return cmocka_run_group_tests_name("media/moves", tests, allocate, release);
}
