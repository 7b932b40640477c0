// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_manager.c - the first stories of the transfer manager, over real queue pairs.
 */
#include "pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <stag/xfer.h>

#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct scene {
	struct pair pair;
	struct stag_xfer *x;
	struct region *near, *far;
};

static void open_scene(struct scene *s, const struct pair_wish *wish,
		       const struct stag_xfer_attr *attr, size_t bytes)
{
	pair_open(&s->pair, wish);
	s->x = stag_xfer_create(attr);
	assert_non_null(s->x);
	for (unsigned int i = 0; i < s->pair.wish.rails; i++) {
		unsigned int rail;

		if (stag_xfer_add_rail(s->x, pair_qp(&s->pair, i), &rail))
			fail_msg("add_rail: %s", stag_xfer_error(s->x));
		assert_int_equal(rail, i);
	}
	s->near = near_region(&s->pair, bytes);
	s->far = far_region(&s->pair, bytes, RIGHTS);
	for (size_t i = 0; i < bytes; i++)
		s->near->at[i] = (uint8_t)(i * 7 + i / 251);
}

static void close_scene(struct scene *s)
{
	assert_int_equal(stag_xfer_destroy(s->x), 0);
	drop_region(&s->pair, s->near);
	drop_region(&s->pair, s->far);
	pair_close(&s->pair);
}

static struct stag_xfer_counters counters(const struct scene *s)
{
	struct stag_xfer_counters c;

	assert_int_equal(stag_xfer_query_counters(s->x, &c, sizeof(c)), 0);
	return c;
}

/* One buffer here, one range there. */
struct simple {
	struct stag_xfer_req req;
	struct stag_xfer_elem elem;
	struct stag_xfer_buf buf;
};

static void prepare(const struct scene *s, struct simple *one, enum stag_xfer_op op, size_t from,
		    size_t to, size_t len)
{
	*one = (struct simple){
		.buf = {(uintptr_t)s->near->at + from, len, s->near->mr->lkey, 0},
		.elem = {&one->buf, 1, s->far->mr->rkey, (uintptr_t)s->far->at + to},
		.req = {.op = op, .elems = &one->elem, .num_elems = 1},
	};
}

static struct stag_xfer_req *next_done(struct scene *s)
{
	struct stag_xfer_req *req = NULL;

	await(stag_xfer_poll(s->x, &req, 1) == 1);
	return req;
}

static void expect_done(struct scene *s, struct simple *one)
{
	assert_ptr_equal(next_done(s), &one->req);
	assert_int_equal(one->req.error, 0);
	assert_int_equal(one->req.bytes_done, one->req.bytes_total);
	assert_int_equal(one->req.transfers, one->req.transfers_done);
}

/* ---- moving bytes ---- */

static void a_write_and_a_read_move_bytes(void **state)
{
	struct scene s;
	struct simple w, r;

	open_scene(&s, NULL, NULL, 1 << 20);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 5, 300000);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	expect_done(&s, &w);
	assert_memory_equal(s.near->at, s.far->at + 5, 300000);
	prepare(&s, &r, STAG_XFER_READ, 400000, 5, 300000);
	assert_int_equal(stag_xfer_submit(s.x, &r.req), 0);
	expect_done(&s, &r);
	assert_memory_equal(s.near->at, s.near->at + 400000, 300000);
	close_scene(&s);
}

static void move_with(uint32_t descriptors, uint64_t window, unsigned int rails)
{
	struct pair_wish wish = {.rails = rails};
	struct stag_xfer_attr attr = {
		.descriptors = descriptors, .max_transfer = 1000, .window = window};
	struct scene s;
	struct simple w;

	open_scene(&s, &wish, &attr, 1 << 18);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 18);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	expect_done(&s, &w);
	assert_int_equal(w.req.transfers, ((1 << 18) + 999) / 1000);
	assert_memory_equal(s.near->at, s.far->at, 1 << 18);
	close_scene(&s);
}

static void one_descriptor_and_many_give_the_same_bytes(void **state)
{
	for (unsigned int rails = 1; rails < 4; rails++) {
		move_with(1, 0, rails);
		move_with(4096, 0, rails);
		move_with(4096, 1, rails);
		move_with(64, 2500, rails);
	}
}

static void nothing_is_done_at_once(void **state)
{
	struct scene s;
	struct simple w;

	open_scene(&s, NULL, NULL, 4096);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 0);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	expect_done(&s, &w);
	assert_int_equal(counters(&s).descriptors, 0);
	close_scene(&s);
}

/* ---- many requests ---- */

#define MANY 500

static void plugged_requests_merge_and_complete_in_order(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 10000};
	struct simple *many = calloc(MANY, sizeof(*many));
	struct scene s;

	assert_non_null(many);
	open_scene(&s, NULL, &attr, 1 << 20);
	stag_xfer_plug(s.x);
	for (size_t i = 0; i < MANY; i++) {
		prepare(&s, &many[i], STAG_XFER_WRITE, i * 100, i * 100, i % 7 ? 100 : 0);
		if (!(i % 7))
			prepare(&s, &many[i], STAG_XFER_WRITE, i * 100, i * 100, 0);
		assert_int_equal(stag_xfer_submit(s.x, &many[i].req), 0);
	}
	assert_int_equal(counters(&s).descriptors, 0);
	stag_xfer_unplug(s.x);
	for (size_t i = 0; i < MANY; i++)
		expect_done(&s, &many[i]);
	assert_true(counters(&s).merged > MANY / 2);
	for (size_t i = 0; i < MANY; i++)
		if (i % 7)
			assert_memory_equal(s.near->at + i * 100, s.far->at + i * 100, 100);
	close_scene(&s);
	free(many);
}

/* ---- broken connections ---- */

static void a_request_survives_its_connection(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 5000};
	struct scene s;
	struct simple w;

	for (enum pair_end how = 0; how < END_WAYS; how++) {
		open_scene(&s, NULL, &attr, 1 << 20);
		prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
		assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
		await(stag_xfer_poll(s.x, NULL, 0) == 0 && w.req.bytes_done > 100000);
		pair_end(&s.pair, 0, how);
		await(stag_xfer_poll(s.x, NULL, 0) == 0 && !stag_xfer_rail_up(s.x, 0));
		assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
		expect_done(&s, &w);
		assert_memory_equal(s.near->at, s.far->at, 1 << 20);
		assert_int_equal(counters(&s).losses, 1);
		close_scene(&s);
	}
}

static void a_canceled_request_comes_back_while_its_rail_is_down(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 5000};
	struct scene s;
	struct simple w;

	open_scene(&s, NULL, &attr, 1 << 20);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	pair_end(&s.pair, 0, END_FAR_ERROR);
	await(stag_xfer_poll(s.x, NULL, 0) == 0 && !stag_xfer_rail_up(s.x, 0));
	assert_int_equal(stag_xfer_destroy(s.x), EBUSY);
	assert_int_equal(stag_xfer_cancel(s.x, &w.req), 0);
	assert_ptr_equal(next_done(&s), &w.req);
	assert_int_equal(w.req.error, ECANCELED);
	close_scene(&s);
}

/* The peer refuses one of them; nobody says which. */
static void only_the_guilty_one_fails(void **state)
{
	struct scene s;
	struct simple reqs[3];
	int left = 3;

	open_scene(&s, NULL, NULL, 1 << 16);
	stag_xfer_plug(s.x);
	for (size_t i = 0; i < 3; i++)
		prepare(&s, &reqs[i], STAG_XFER_WRITE, i * 1000, i * 1000, 1000);
	reqs[1].elem.rkey ^= 0x55;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(stag_xfer_submit(s.x, &reqs[i].req), 0);
	stag_xfer_unplug(s.x);
	while (left) {
		struct stag_xfer_req *req;

		left -= stag_xfer_poll(s.x, &req, 1);
		if (!stag_xfer_rail_up(s.x, 0))
			assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
	}
	assert_int_equal(reqs[0].req.error, 0);
	assert_int_equal(reqs[1].req.error, EIO);
	assert_int_equal(reqs[2].req.error, 0);
	assert_memory_equal(s.near->at, s.far->at, 1000);
	assert_memory_equal(s.near->at + 2000, s.far->at + 2000, 1000);
	close_scene(&s);
}

/* ---- waiting ---- */

static void a_wait_sleeps_until_the_request_is_done(void **state)
{
	struct pair_wish wish = {.rails = 2, .channel = true};
	struct stag_xfer_attr attr = {.max_transfer = 5000, .descriptors = 3};
	struct stag_xfer_req *req;
	struct scene s;
	struct simple w;

	open_scene(&s, &wish, &attr, 1 << 20);
	for (int i = 0; i < 20; i++) {
		prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
		assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
		assert_int_equal(stag_xfer_wait(s.x, &req, 1, PATIENCE_MS), 1);
		assert_int_equal(req->error, 0);
		memset(s.far->at, 0, 100);
	}
	assert_int_equal(stag_xfer_wait(s.x, &req, 1, -1), 0);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_and_a_read_move_bytes),
		cmocka_unit_test(one_descriptor_and_many_give_the_same_bytes),
		cmocka_unit_test(nothing_is_done_at_once),
		cmocka_unit_test(plugged_requests_merge_and_complete_in_order),
		cmocka_unit_test(a_request_survives_its_connection),
		cmocka_unit_test(a_canceled_request_comes_back_while_its_rail_is_down),
		cmocka_unit_test(only_the_guilty_one_fails),
		cmocka_unit_test(a_wait_sleeps_until_the_request_is_done),
	};

	return cmocka_run_group_tests_name("xfer manager", tests, NULL, NULL);
}
