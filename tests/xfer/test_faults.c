// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults.c - a bad request fails once and alone, and reports the bytes known to be done.
 */
#include "dice.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN   (1u << 20)
#define PIECE 10000
#define MANY  5

static struct work works[MANY];

static void expect_good(struct desk *d, const struct work *w)
{
	assert_int_equal(w->returned, 1);
	assert_int_equal(w->req.error, 0);
	assert_int_equal(w->req.bytes_done, w->buf.length);
	expect_same(d, w->elem.remote_addr - (uintptr_t)d->far->at, w->buf.length);
}

static void expect_bad(const struct work *w)
{
	assert_int_equal(w->returned, 1);
	assert_int_equal(w->req.error, EIO);
	assert_int_not_equal(w->req.status, IBV_WC_SUCCESS);
	assert_true(w->req.bytes_done < w->buf.length);
}

/* ---- one bad request among good ones ---- */

typedef void (*spoil)(struct desk *d, struct work *w);

static void wrong_rkey(struct desk *d, struct work *w)
{
	w->elem.rkey ^= 0x00ffff00;
}

static void wrong_lkey(struct desk *d, struct work *w)
{
	w->buf.lkey ^= 0x00ffff00;
}

static void out_of_bounds(struct desk *d, struct work *w)
{
	w->elem.remote_addr = (uintptr_t)d->far->at + LEN - PIECE + 1;
}

static void out_of_local_bounds(struct desk *d, struct work *w)
{
	w->buf.addr = (uintptr_t)d->near->at + LEN - PIECE + 1;
}

/* Uses memory on which the peer lacks the right. */
static void no_rights(struct desk *d, struct work *w)
{
	struct region *r = far_region(
		&d->pair, PIECE,
		w->req.op == STAG_XFER_READ ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);

	w->elem.remote_addr = (uintptr_t)r->at;
	w->elem.rkey = r->mr->rkey;
}

static void line_up(struct desk *d, enum stag_xfer_op op, size_t from)
{
	dice_fill(d->near->at, LEN);
	dice_fill(d->far->at, LEN);
	for (size_t i = 0; i < MANY; i++)
		desk_work(d, &works[i], op, from + i * PIECE, PIECE);
}

/* Submits all at once, so that they merge if they may. */
static void expect_one_bad(struct desk *d, size_t bad)
{
	struct stag_xfer_counters before = counters(d), after;

	stag_xfer_plug(d->x);
	for (size_t i = 0; i < MANY; i++)
		submit(d, &works[i]);
	stag_xfer_unplug(d->x);
	await_returned(d, MANY);
	for (size_t i = 0; i < MANY; i++)
		if (i == bad)
			expect_bad(&works[i]);
		else
			expect_good(d, &works[i]);
	after = counters(d);
	assert_int_equal(after.failed - before.failed, 1);
	assert_int_equal(after.requests - before.requests, MANY - 1);
}

/* Linux 6.1's siw answers a read of any registered memory, whatever its rights. */
static bool is_excused(const struct desk *d, spoil f, int op)
{
	if (f != no_rights || op != STAG_XFER_READ || !pair_is_siw(&d->pair))
		return false;
	print_message("skipped: siw does not check IBV_ACCESS_REMOTE_READ\n");
	return true;
}

static void fail_each_in_turn(struct desk *d, spoil f)
{
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++)
		for (size_t bad = 0; bad < MANY && !is_excused(d, f, op); bad += 2) {
			line_up(d, op, 0);
			f(d, &works[bad]);
			expect_one_bad(d, bad);
		}
}

static void fail_with_setup(const struct pair_wish *wish, const struct stag_xfer_attr *attr,
			    spoil f)
{
	struct desk d;

	desk_open(&d, wish, attr, LEN);
	fail_each_in_turn(&d, f);
	desk_close(&d);
}

/* Tries one rail and two, merged and each by itself, whole and divided. */
static void expect_to_fail_alone(spoil f)
{
	static const struct stag_xfer_attr alone = {.flags = STAG_XFER_NO_MERGE},
					   divided = {.max_transfer = 3000},
					   few = {.descriptors = 1};
	static const struct pair_wish two = {.rails = 2};

	fail_with_setup(NULL, NULL, f);
	fail_with_setup(NULL, &alone, f);
	fail_with_setup(NULL, &few, f);
	fail_with_setup(&two, &divided, f);
}

static void a_wrong_rkey_fails_its_request_alone(void **state)
{
	expect_to_fail_alone(wrong_rkey);
}

static void a_wrong_lkey_fails_its_request_alone(void **state)
{
	expect_to_fail_alone(wrong_lkey);
}

static void a_range_beyond_the_remote_end_fails_its_request_alone(void **state)
{
	expect_to_fail_alone(out_of_bounds);
}

static void a_buffer_beyond_the_local_end_fails_its_request_alone(void **state)
{
	expect_to_fail_alone(out_of_local_bounds);
}

static void memory_without_the_right_fails_its_request_alone(void **state)
{
	expect_to_fail_alone(no_rights);
}

/* Merged into one descriptor, all share the failure of the last, which exceeds the region. */
static void a_failed_merged_descriptor_is_retried_request_by_request(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		line_up(&d, op, LEN - MANY * PIECE + 1);
		works[MANY - 1].buf.addr = (uintptr_t)d.near->at;
		expect_one_bad(&d, MANY - 1);
	}
	desk_close(&d);
}

/* The first element is done before the second fails: its bytes are known to be done. */
static void bytes_before_the_fault_are_counted(void **state)
{
	struct stag_xfer_attr attr = {.descriptors = 1};
	struct work *w = &works[0];
	struct stag_xfer_elem elems[2];
	struct desk d;

	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		desk_open(&d, NULL, &attr, LEN);
		desk_work(&d, w, op, 0, PIECE);
		elems[0] = elems[1] = w->elem;
		elems[1].remote_addr += LEN - 1;
		w->req.elems = elems;
		w->req.num_elems = 2;
		submit(&d, w);
		await_returned(&d, 1);
		assert_int_equal(w->req.error, EIO);
		assert_int_equal(w->req.bytes_done, PIECE);
		assert_int_equal(w->req.transfers_done, 1);
		expect_same(&d, 0, PIECE);
		desk_close(&d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_rkey_fails_its_request_alone),
		cmocka_unit_test(a_wrong_lkey_fails_its_request_alone),
		cmocka_unit_test(a_range_beyond_the_remote_end_fails_its_request_alone),
		cmocka_unit_test(a_buffer_beyond_the_local_end_fails_its_request_alone),
		cmocka_unit_test(memory_without_the_right_fails_its_request_alone),
		cmocka_unit_test(a_failed_merged_descriptor_is_retried_request_by_request),
		cmocka_unit_test(bytes_before_the_fault_are_counted),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
