// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_alloc.c - once a manager is created, moving data allocates no memory.
 *
 * The program's own malloc() counts the allocations of every library in the process: the manager's
 * and the device's.
 */
#include "dice.h"
#include "work.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN	 (1u << 20)
#define REQUESTS 64

static atomic_bool counting;
static atomic_uint by_manager, by_others;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count_allocation, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static bool called_by_manager(const void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "/libstag.so");
}

static void count_allocation(const void *caller)
{
	if (!atomic_load(&counting))
		return;
	if (called_by_manager(caller))
		atomic_fetch_add(&by_manager, 1);
	else
		atomic_fetch_add(&by_others, 1);
}

#define CALLER __builtin_return_address(0)

/* Replacements for the process's allocator. */
__attribute__((visibility("default"))) void *malloc(size_t size)
{
	count_allocation(CALLER);
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	count_allocation(CALLER);
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *at, size_t size)
{
	count_allocation(CALLER);
	return __libc_realloc(at, size);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size)
{
	count_allocation(CALLER);
	return __libc_memalign(alignment, size);
}

__attribute__((visibility("default"))) int posix_memalign(void **at, size_t alignment, size_t size)
{
	count_allocation(CALLER);
	*at = __libc_memalign(alignment, size);
	return *at ? 0 : ENOMEM;
}

static struct work works[REQUESTS];

/* Moves requests that are merged and divided, with too few descriptors. */
static void move_all(struct desk *d, enum stag_xfer_op op)
{
	stag_xfer_plug(d->x);
	for (size_t i = 0; i < REQUESTS; i++) {
		desk_work(d, &works[i], op, i * (LEN / REQUESTS), LEN / REQUESTS - i % 3);
		submit(d, &works[i]);
	}
	stag_xfer_unplug(d->x);
	for (size_t i = 0; i < REQUESTS; i++)
		assert_int_equal(await_one(d)->req.error, 0);
}

static void open_desk(struct desk *d)
{
	static const struct stag_xfer_attr attr = {.descriptors = 8, .max_transfer = 30000};
	static const struct pair_wish wish = {.rails = 2};

	desk_open(d, &wish, &attr, LEN);
	/* Warm up: what other libraries allocate at first use is allocated now. */
	move_all(d, STAG_XFER_WRITE);
	move_all(d, STAG_XFER_READ);
	by_manager = by_others = 0;
}

static void the_malloc_counter_counts(void **state)
{
	void *volatile at;

	by_others = 0;
	counting = true;
	at = malloc(1);
	free(at);
	counting = false;
	assert_int_equal(by_others, 1);
}

static void moving_data_allocates_nothing(void **state)
{
	struct desk d;

	open_desk(&d);
	counting = true;
	for (int i = 0; i < 100; i++) {
		move_all(&d, STAG_XFER_WRITE);
		move_all(&d, STAG_XFER_READ);
	}
	counting = false;
	print_message("%u allocations outside of the manager\n", by_others);
	assert_int_equal(by_manager, 0);
	assert_int_equal(by_others, 0);
	desk_close(&d);
}

/* Reconnecting allocates memory outside the manager; the manager itself needs none for it. */
static void losing_a_rail_allocates_nothing(void **state)
{
	struct desk d;

	open_desk(&d);
	counting = true;
	for (unsigned int i = 0; i < 10; i++) {
		desk_work(&d, &works[0], STAG_XFER_WRITE, 0, LEN);
		submit(&d, &works[0]);
		pair_end(&d.pair, i % 2, END_NEAR_ERROR);
		await_returned(&d, 1);
		expect_same(&d, 0, LEN);
	}
	counting = false;
	assert_int_equal(by_manager, 0);
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_malloc_counter_counts),
		cmocka_unit_test(moving_data_allocates_nothing),
		cmocka_unit_test(losing_a_rail_allocates_nothing),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
