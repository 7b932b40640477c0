// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rails.c - rails that go down and come back, and requests that are canceled at every stage of
 * their life.
 */
#include "dice.h"
#include "spy.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN (4u << 20)

static struct work works[4];

static void expect_canceled(struct desk *d, struct work *w)
{
	assert_ptr_equal(await_one(d), w);
	assert_int_equal(w->req.error, ECANCELED);
	assert_true(w->req.bytes_done < w->buf.length);
	assert_int_equal(stag_xfer_cancel(d->x, &w->req), ENOENT);
}

/* ---- rails ---- */

/* Counts the work requests of each rail. */
static void count_by_rail(struct spy *spy, const struct spy_wr *wr)
{
	((uint64_t *)spy->context)[wr->rail] += wr->length;
}

static void rails_share_the_work(void **state)
{
	uint64_t bytes[PAIR_MAX_RAILS] = {0};
	struct spy spy = {.posted = count_by_rail, .context = bytes};
	struct stag_xfer_attr attr = {.max_transfer = 10000};
	struct pair_wish wish = {.rails = 3};
	struct desk d;

	desk_open(&d, &wish, &attr, LEN);
	spy_start(&spy, &d.pair);
	desk_work(&d, &works[0], STAG_XFER_WRITE, 0, LEN);
	submit(&d, &works[0]);
	expect_done(&d, &works[0]);
	expect_same(&d, 0, LEN);
	spy_stop(&spy);
	for (unsigned int i = 0; i < 3; i++)
		assert_true(bytes[i] > LEN / 10);
	desk_close(&d);
}

/* The rails go down one after the other; the remaining ones continue all requests. */
static void the_remaining_rails_continue_all_requests(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 10000, .window = 100000};
	struct pair_wish wish = {.rails = 3};
	struct desk d;

	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		desk_open(&d, &wish, &attr, LEN);
		for (unsigned int i = 0; i < 2; i++) {
			dice_fill(d.near->at, LEN);
			desk_work(&d, &works[0], op, 0, LEN);
			submit(&d, &works[0]);
			pair_end(&d.pair, i, END_NEAR_ERROR);
			expect_done(&d, &works[0]);
			expect_same(&d, 0, LEN);
			assert_false(stag_xfer_rail_up(d.x, i));
		}
		assert_true(stag_xfer_rail_up(d.x, 2));
		assert_int_equal(counters(&d).losses, 2);
		desk_close(&d);
	}
}

static void requests_outlive_all_rails(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 10000, .window = 100000};
	struct pair_wish wish = {.rails = 2};
	struct desk d;

	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		desk_open(&d, &wish, &attr, LEN);
		desk_work(&d, &works[0], op, 0, LEN);
		submit(&d, &works[0]);
		for (unsigned int i = 0; i < 2; i++) {
			pair_end(&d.pair, i, END_NEAR_ERROR);
			await_rail_down(&d, i);
		}
		/* A request submitted meanwhile waits like the others. */
		desk_work(&d, &works[1], op, 0, 100);
		submit(&d, &works[1]);
		for (int i = 0; i < 100; i++)
			assert_null(poll_one(&d));
		reconnect_rail(&d, 1);
		await(poll_one(&d));
		await(poll_one(&d));
		assert_int_equal(works[0].req.error | works[1].req.error, 0);
		expect_same(&d, 0, LEN);
		assert_int_not_equal(counters(&d).reposted, 0);
		desk_close(&d);
	}
}

static void a_rail_that_is_up_is_not_replaced(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	assert_int_equal(stag_xfer_rebind(d.x, 0, pair_qp(&d.pair, 0)), EBUSY);
	assert_string_not_equal(stag_xfer_error(d.x), "");
	desk_close(&d);
}

/* ---- canceling ---- */

static void unknown_requests_are_not_canceled(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	desk_work(&d, &works[0], STAG_XFER_WRITE, 0, LEN);
	assert_int_equal(stag_xfer_cancel(d.x, &works[0].req), ENOENT);
	submit(&d, &works[0]);
	expect_done(&d, &works[0]);
	assert_int_equal(stag_xfer_cancel(d.x, &works[0].req), ENOENT);
	desk_close(&d);
}

static void a_request_not_started_is_canceled(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	memcpy(d.model, d.far->at, LEN);
	stag_xfer_plug(d.x);
	for (int i = 0; i < 3; i++) {
		desk_work(&d, &works[i], STAG_XFER_WRITE, i * 1000, 1000);
		submit(&d, &works[i]);
	}
	assert_int_equal(stag_xfer_cancel(d.x, &works[1].req), 0);
	expect_canceled(&d, &works[1]);
	assert_int_equal(works[1].req.bytes_done, 0);
	stag_xfer_unplug(d.x);
	expect_done(&d, &works[0]);
	expect_done(&d, &works[2]);
	expect_same(&d, 0, 1000);
	expect_same(&d, 2000, 1000);
	assert_memory_equal(d.far->at + 1000, d.model + 1000, 1000);
	assert_int_equal(counters(&d).canceled, 1);
	desk_close(&d);
}

static void a_request_half_done_is_canceled(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 1000, .descriptors = 2};
	struct desk d;

	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		desk_open(&d, NULL, &attr, LEN);
		desk_work(&d, &works[0], op, 0, LEN);
		submit(&d, &works[0]);
		await((assert_null(poll_one(&d)), works[0].req.bytes_done > 10000));
		assert_int_equal(stag_xfer_destroy(d.x), EBUSY);
		assert_int_equal(stag_xfer_cancel(d.x, &works[0].req), 0);
		expect_canceled(&d, &works[0]);
		expect_same(&d, 0, works[0].req.bytes_done);
		assert_int_equal(works[0].req.transfers, works[0].req.transfers_done);
		desk_close(&d);
	}
}

/* Everything is posted: it may still complete. */
static void a_canceled_request_in_flight_may_still_complete(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	desk_work(&d, &works[0], STAG_XFER_READ, 0, 1000);
	submit(&d, &works[0]);
	assert_int_equal(works[0].req.cursor.elem, 1);
	assert_int_equal(stag_xfer_cancel(d.x, &works[0].req), 0);
	assert_ptr_equal(await_one(&d), &works[0]);
	assert_true(works[0].req.error == 0 || works[0].req.error == ECANCELED);
	if (works[0].req.error == 0)
		expect_same(&d, 0, 1000);
	desk_close(&d);
}

/* With the connection lost nothing is in flight, so canceling needs no other connection. */
static void a_request_without_a_connection_is_canceled(void **state)
{
	struct desk d;

	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		desk_open(&d, NULL, NULL, LEN);
		pair_end(&d.pair, 0, END_NEAR_ERROR);
		desk_work(&d, &works[0], op, 0, LEN);
		submit(&d, &works[0]);
		await_rail_down(&d, 0);
		desk_work(&d, &works[1], op, 0, LEN);
		submit(&d, &works[1]);
		assert_int_equal(stag_xfer_cancel(d.x, &works[1].req), 0);
		expect_canceled(&d, &works[1]);
		assert_int_equal(stag_xfer_cancel(d.x, &works[0].req), 0);
		expect_canceled(&d, &works[0]);
		/* The manager works as before. */
		reconnect_rail(&d, 0);
		desk_work(&d, &works[2], op, 0, LEN);
		submit(&d, &works[2]);
		expect_done(&d, &works[2]);
		expect_same(&d, 0, LEN);
		desk_close(&d);
	}
}

/* Other requests that share its descriptor are not affected. */
static void a_merged_request_is_canceled_alone(void **state)
{
	struct stag_xfer_attr attr = {.descriptors = 1};
	struct desk d;

	desk_open(&d, NULL, &attr, LEN);
	for (int i = 0; i < 4; i++) {
		desk_work(&d, &works[i], STAG_XFER_READ, i * 1000, 1000);
		submit(&d, &works[i]);
	}
	/* The first is in flight, the others wait for its descriptor. */
	assert_int_equal(stag_xfer_cancel(d.x, &works[2].req), 0);
	for (int i = 0; i < 4; i++)
		await(poll_one(&d));
	for (int i = 0; i < 4; i++) {
		assert_int_equal(works[i].returned, 1);
		assert_int_equal(works[i].req.error, i == 2 ? ECANCELED : 0);
		if (i != 2)
			expect_same(&d, i * 1000, 1000);
	}
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rails_share_the_work),
		cmocka_unit_test(the_remaining_rails_continue_all_requests),
		cmocka_unit_test(requests_outlive_all_rails),
		cmocka_unit_test(a_rail_that_is_up_is_not_replaced),
		cmocka_unit_test(unknown_requests_are_not_canceled),
		cmocka_unit_test(a_request_not_started_is_canceled),
		cmocka_unit_test(a_request_half_done_is_canceled),
		cmocka_unit_test(a_canceled_request_in_flight_may_still_complete),
		cmocka_unit_test(a_request_without_a_connection_is_canceled),
		cmocka_unit_test(a_merged_request_is_canceled_alone),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
