// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_manager.c - the basic behaviour of the transfer manager, over real queue pairs.
 */
#include "dice.h"
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

static bool wish_infiniband;	/* the device shall pretend to be InfiniBand, for the manager */
static unsigned int only_rails; /* 0: the manager gets all rails of the pair */

static void skip_without_disguise(struct pair *p)
{
	wish_infiniband = false;
	pair_close(p);
	print_message("siw does not report a queue pair's state, so it cannot pretend to be "
		      "another device\n");
	skip();
}

static void open_scene(struct scene *s, const struct pair_wish *wish,
		       const struct stag_xfer_attr *attr, size_t bytes)
{
	pair_open(&s->pair, wish);
	if (wish_infiniband && pair_is_siw(&s->pair))
		skip_without_disguise(&s->pair);
	s->x = stag_xfer_create(attr);
	assert_non_null(s->x);
	s->near = near_region(&s->pair, bytes);
	s->far = far_region(&s->pair, bytes, RIGHTS);
	if (wish_infiniband)
		s->pair.context->device->transport_type = IBV_TRANSPORT_IB;
	for (unsigned int i = 0; i < (only_rails ? only_rails : s->pair.wish.rails); i++) {
		unsigned int rail;

		if (stag_xfer_add_rail(s->x, pair_qp(&s->pair, i), &rail))
			fail_msg("add_rail: %s", stag_xfer_error(s->x));
		assert_int_equal(rail, i);
	}
	if (wish_infiniband)
		s->pair.context->device->transport_type = IBV_TRANSPORT_IWARP;
	wish_infiniband = false;
	only_rails = 0;
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

/* A request of one local buffer and one remote range. */
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

static void report_disconnects(struct scene *s)
{
	for (unsigned int i = 0; i < s->pair.wish.rails; i++)
		if (pair_ended_unreported(&s->pair, i) && stag_xfer_rail_up(s->x, i))
			assert_int_equal(stag_xfer_rebind(s->x, i, NULL), 0);
}

static int poll_scene(struct scene *s, struct stag_xfer_req **done, int max)
{
	int n = stag_xfer_poll(s->x, done, max);

	report_disconnects(s);
	return n;
}

static bool poll_and_check_rail_down(struct scene *s)
{
	assert_int_equal(poll_scene(s, NULL, 0), 0);
	return !stag_xfer_rail_up(s->x, 0);
}

static struct stag_xfer_req *next_done(struct scene *s)
{
	struct stag_xfer_req *req = NULL;

	await(poll_scene(s, &req, 1) == 1);
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

static void one_descriptor_and_many_move_the_same_bytes(void **state)
{
	for (unsigned int rails = 1; rails < 4; rails++) {
		move_with(1, 0, rails);
		move_with(4096, 0, rails);
		move_with(4096, 1, rails);
		move_with(64, 2500, rails);
	}
}

static void an_empty_request_completes_immediately(void **state)
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
	/* The window keeps most of the request from being in flight when the connection ends. */
	struct stag_xfer_attr attr = {.max_transfer = 5000, .window = 65536};
	struct scene s;
	struct simple w;

	for (enum pair_end how = 0; how < END_WAYS; how++) {
		open_scene(&s, NULL, &attr, 1 << 20);
		prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
		assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
		await(stag_xfer_poll(s.x, NULL, 0) == 0 && w.req.bytes_done > 100000);
		pair_end(&s.pair, 0, how);
		await(poll_and_check_rail_down(&s));
		assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
		expect_done(&s, &w);
		assert_memory_equal(s.near->at, s.far->at, 1 << 20);
		assert_int_equal(counters(&s).losses, 1);
		close_scene(&s);
	}
}

static void a_canceled_request_is_returned_while_its_rail_is_down(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 5000, .window = 65536};
	struct scene s;
	struct simple w;

	open_scene(&s, NULL, &attr, 1 << 20);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	pair_end(&s.pair, 0, END_FAR_ERROR);
	await(poll_and_check_rail_down(&s));
	assert_int_equal(stag_xfer_destroy(s.x), EBUSY);
	assert_int_equal(stag_xfer_cancel(s.x, &w.req), 0);
	assert_ptr_equal(next_done(&s), &w.req);
	assert_int_equal(w.req.error, ECANCELED);
	close_scene(&s);
}

/* The peer refuses one of them, without saying which. */
static void only_the_refused_request_fails(void **state)
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

		left -= poll_scene(&s, &req, 1);
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

/* Three requests that share a descriptor; the connection breaks before anything is done. */
static void break_connection_of_three(struct scene *s, struct simple reqs[3])
{
	open_scene(s, NULL, NULL, 1 << 16);
	stag_xfer_plug(s->x);
	for (size_t i = 0; i < 3; i++) {
		prepare(s, &reqs[i], STAG_XFER_WRITE, i * 1000, i * 1000, 1000);
		assert_int_equal(stag_xfer_submit(s->x, &reqs[i].req), 0);
	}
	pair_end(&s->pair, 0, END_NEAR_ERROR);
	stag_xfer_unplug(s->x);
	await(poll_and_check_rail_down(s));
	assert_int_equal(counters(s).merged, 2);
	assert_int_equal(counters(s).descriptors, 1);
}

static void any_of_three_that_share_a_descriptor_can_be_canceled(void **state)
{
	for (size_t canceled = 0; canceled < 3; canceled++) {
		struct scene s;
		struct simple reqs[3];

		break_connection_of_three(&s, reqs);
		assert_int_equal(stag_xfer_cancel(s.x, &reqs[canceled].req), 0);
		assert_ptr_equal(next_done(&s), &reqs[canceled].req);
		assert_int_equal(reqs[canceled].req.error, ECANCELED);
		assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
		for (size_t i = 0; i < 3; i++)
			if (i != canceled)
				expect_done(&s, &reqs[i]);
		for (size_t i = 0; i < 3000; i++)
			assert_int_equal(s.far->at[i], i / 1000 == canceled ? 0 : s.near->at[i]);
		close_scene(&s);
	}
}

/* The request shares a descriptor with the tail of one that is canceled. */
static void a_request_behind_a_canceled_tail_starts_at_its_first_byte(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 1000};
	struct scene s;
	struct simple tail, whole;

	open_scene(&s, NULL, &attr, 1 << 16);
	prepare(&s, &tail, STAG_XFER_WRITE, 0, 0, 1500);
	prepare(&s, &whole, STAG_XFER_WRITE, 1500, 1500, 300);
	stag_xfer_plug(s.x);
	assert_int_equal(stag_xfer_submit(s.x, &tail.req), 0);
	assert_int_equal(stag_xfer_submit(s.x, &whole.req), 0);
	pair_end(&s.pair, 0, END_NEAR_ERROR);
	stag_xfer_unplug(s.x);
	await(poll_and_check_rail_down(&s));
	assert_int_equal(counters(&s).descriptors, 2);
	assert_int_equal(stag_xfer_cancel(s.x, &tail.req), 0);
	assert_ptr_equal(next_done(&s), &tail.req);
	assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
	expect_done(&s, &whole);
	assert_memory_equal(s.near->at + 1500, s.far->at + 1500, 300);
	close_scene(&s);
}

static void all_of_three_that_share_a_descriptor_can_be_canceled(void **state)
{
	struct scene s;
	struct simple reqs[3];

	break_connection_of_three(&s, reqs);
	for (size_t i = 3; i--;)
		assert_int_equal(stag_xfer_cancel(s.x, &reqs[i].req), 0);
	for (size_t i = 3; i--;)
		assert_ptr_equal(next_done(&s), &reqs[i].req);
	assert_int_equal(stag_xfer_cancel(s.x, &reqs[0].req), ENOENT);
	close_scene(&s);
}

/* No post failed, because none was made on this rail. */
static void an_idle_rail_is_bound_again(void **state)
{
	struct scene s;
	struct simple w;

	open_scene(&s, NULL, NULL, 4096);
	assert_int_equal(stag_xfer_rebind(s.x, 0, pair_qp(&s.pair, 0)), EBUSY);
	pair_end(&s.pair, 0, END_NEAR_ERROR);
	assert_true(stag_xfer_rail_up(s.x, 0));
	assert_int_equal(stag_xfer_rebind(s.x, 0, NULL), 0);
	assert_false(stag_xfer_rail_up(s.x, 0));
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 4096);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
	expect_done(&s, &w);
	close_scene(&s);
}

/* The request is posted, and its queue pair is destroyed before a poll saw its end. */
static void requests_of_a_destroyed_queue_pair_can_be_canceled(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 1 << 19,
				      .window = 1 << 19}; /* so that some of it is left to do */
	struct scene s;
	struct simple w;

	open_scene(&s, NULL, &attr, 1 << 20);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 20);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	pair_reconnect(&s.pair, 0);
	assert_int_equal(stag_xfer_rebind(s.x, 0, NULL), 0);
	assert_int_equal(stag_xfer_cancel(s.x, &w.req), 0);
	assert_ptr_equal(next_done(&s), &w.req);
	assert_int_equal(w.req.error, ECANCELED);
	close_scene(&s);
}

static void a_wrong_local_key_fails_its_request_at_once(void **state)
{
	struct scene s;
	struct simple good, bad;

	open_scene(&s, NULL, NULL, 4096);
	if (pair_is_siw(&s.pair)) {
		close_scene(&s);
		print_message("siw has one status for a wrong key and a lost peer\n");
		skip();
	}
	prepare(&s, &good, STAG_XFER_WRITE, 0, 0, 1000);
	prepare(&s, &bad, STAG_XFER_WRITE, 2000, 2000, 1000);
	bad.buf.lkey ^= 0x33;
	assert_int_equal(stag_xfer_submit(s.x, &bad.req), 0);
	assert_int_equal(stag_xfer_submit(s.x, &good.req), 0);
	assert_ptr_equal(next_done(&s), &bad.req);
	assert_int_equal(bad.req.error, EIO);
	assert_int_equal(bad.req.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
	expect_done(&s, &good);
	assert_int_equal(counters(&s).losses, 1);
	close_scene(&s);
}

/* A request that breaks every connection is given up; the other is not affected. */
static void a_request_is_given_up_after_max_losses(void **state)
{
	struct stag_xfer_attr attr = {.max_losses = 3};
	struct scene s;
	struct simple bad;

	open_scene(&s, NULL, &attr, 4096);
	prepare(&s, &bad, STAG_XFER_WRITE, 0, 0, 1000);
	bad.elem.rkey ^= 0x55;
	assert_int_equal(stag_xfer_submit(s.x, &bad.req), 0);
	for (int i = 1; i <= 3; i++) {
		await(poll_and_check_rail_down(&s));
		assert_int_equal(counters(&s).losses, i);
		assert_int_equal(counters(&s).failed, i == 3);
		assert_int_equal(stag_xfer_rebind(s.x, 0, pair_reconnect(&s.pair, 0)), 0);
	}
	assert_ptr_equal(next_done(&s), &bad.req);
	assert_int_equal(bad.req.error, EIO);
	assert_int_equal(bad.req.bytes_done, 0);
	close_scene(&s);
}

/* ---- other devices, other users of the queue ---- */

/*
 * On these devices a write's own completion proves it. Disconnects are not tried: the device is
 * iWARP in fact.
 */
static void on_other_devices_completions_prove_writes(void **state)
{
	for (uint32_t send_wr = 1; send_wr < 80; send_wr += send_wr < 12 ? 1 : 13) {
		struct pair_wish wish = {.send_wr = send_wr};
		struct stag_xfer_attr attr = {.max_transfer = 1000};
		struct scene s;
		struct simple w, r;

		wish_infiniband = true;
		open_scene(&s, &wish, &attr, 1 << 18);
		prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 100000);
		prepare(&s, &r, STAG_XFER_READ, 150000, 0, 100000);
		assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
		expect_done(&s, &w);
		assert_int_equal(stag_xfer_submit(s.x, &r.req), 0);
		expect_done(&s, &r);
		assert_memory_equal(s.near->at, s.near->at + 150000, 100000);
		assert_int_equal(counters(&s).confirms, 0);
		close_scene(&s);
	}
}

static void unconfirmed_writes_post_no_reads(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 1000, .flags = STAG_XFER_UNCONFIRMED};
	struct scene s;
	struct simple w, r;

	open_scene(&s, NULL, &attr, 1 << 18);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 100000);
	prepare(&s, &r, STAG_XFER_READ, 150000, 0, 100000);
	assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
	assert_int_equal(stag_xfer_submit(s.x, &r.req), 0);
	expect_done(&s, &w);
	expect_done(&s, &r);
	assert_memory_equal(s.near->at, s.near->at + 150000, 100000);
	assert_int_equal(counters(&s).confirms, 0);
	close_scene(&s);
}

static void post_own(struct scene *s, uint64_t wr_id)
{
	struct ibv_sge sge = {(uintptr_t)s->near->at, 100000, s->near->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)s->far->at, s->far->mr->rkey}},
			   *bad;
	int err = 0;

	/* siw sends within the call, so its queue may never be full. */
	for (int n = 0; !err && !(n == 16 && pair_is_siw(&s->pair)); n++)
		err = ibv_post_send(pair_qp(&s->pair, 0), &wr, &bad);
	if (!pair_is_siw(&s->pair))
		assert_int_equal(err, ENOMEM);
}

static void a_send_queue_filled_by_others_only_delays_requests(void **state)
{
	struct pair_wish wish = {.send_wr = 16, .cqe = 64};
	struct stag_xfer_attr attr = {.max_transfer = 1000};
	struct scene s;
	struct simple w;

	open_scene(&s, &wish, &attr, 1 << 18);
	prepare(&s, &w, STAG_XFER_WRITE, 0, 0, 1 << 18);
	for (unsigned long n = scaled(50); n; n--) {
		post_own(&s, 1);
		assert_int_equal(stag_xfer_submit(s.x, &w.req), 0);
		post_own(&s, 1);
		expect_done(&s, &w);
	}
	assert_memory_equal(s.near->at, s.far->at, 1 << 18);
	close_scene(&s);
}

/* Two managers and the caller's own work, all on one CQ, which the caller polls. */
static void a_manager_fed_completions_handles_only_its_own(void **state)
{
	struct pair_wish wish = {.rails = 2, .one_cq = true, .cqe = 256};
	struct stag_xfer_attr attr = {.max_transfer = 1000, .flags = STAG_XFER_FED};
	struct stag_xfer *other = stag_xfer_create(&attr);
	struct stag_xfer_req *req;
	struct scene s;
	struct simple w[2];
	int done = 0, own = 0;

	only_rails = 1;
	open_scene(&s, &wish, &attr, 1 << 18);
	assert_int_equal(stag_xfer_add_rail(other, pair_qp(&s.pair, 1), NULL), 0);
	prepare(&s, &w[0], STAG_XFER_WRITE, 0, 0, 1 << 17);
	prepare(&s, &w[1], STAG_XFER_WRITE, 1 << 17, 1 << 17, 1 << 17);
	assert_int_equal(stag_xfer_submit(s.x, &w[0].req), 0);
	assert_int_equal(stag_xfer_submit(other, &w[1].req), 0);
	post_own(&s, 7);
	await(({
		struct ibv_wc wc;

		while (ibv_poll_cq(s.pair.rails[0].cq, 1, &wc) == 1)
			if (!stag_xfer_take(s.x, &wc) && !stag_xfer_take(other, &wc))
				own += wc.wr_id == 7;
		done += stag_xfer_poll(s.x, &req, 1);
		done += stag_xfer_poll(other, &req, 1);
		done == 2 && own > 0;
	}));
	assert_memory_equal(s.near->at + 100000, s.far->at + 100000, (1 << 18) - 100000);
	assert_int_equal(stag_xfer_destroy(other), 0);
	close_scene(&s);
}

/* ---- progress callbacks ---- */

struct watched {
	struct simple one;
	struct stag_xfer *x;
	uint64_t calls, last;
};

static void record_progress(struct stag_xfer_req *req, uint64_t bytes_done, uint64_t bytes_total)
{
	struct watched *w = req->context;

	assert_true(bytes_done > w->last && bytes_done <= bytes_total);
	assert_int_equal(bytes_done, req->bytes_done);
	w->last = bytes_done;
	w->calls++;
}

static void progress_is_reported(void **state)
{
	struct stag_xfer_attr attr = {.descriptors = 1, .max_transfer = 1000};
	struct scene s;
	struct watched w = {.calls = 0};

	open_scene(&s, NULL, &attr, 1 << 16);
	prepare(&s, &w.one, STAG_XFER_WRITE, 0, 0, 10000);
	w.one.req.progress = record_progress;
	w.one.req.context = &w;
	assert_int_equal(stag_xfer_submit(s.x, &w.one.req), 0);
	expect_done(&s, &w.one);
	assert_int_equal(w.calls, 10);
	assert_int_equal(w.last, 10000);
	assert_int_equal(counters(&s).pauses, 9);
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
		cmocka_unit_test(one_descriptor_and_many_move_the_same_bytes),
		cmocka_unit_test(an_empty_request_completes_immediately),
		cmocka_unit_test(plugged_requests_merge_and_complete_in_order),
		cmocka_unit_test(a_request_survives_its_connection),
		cmocka_unit_test(a_canceled_request_is_returned_while_its_rail_is_down),
		cmocka_unit_test(only_the_refused_request_fails),
		cmocka_unit_test(any_of_three_that_share_a_descriptor_can_be_canceled),
		cmocka_unit_test(all_of_three_that_share_a_descriptor_can_be_canceled),
		cmocka_unit_test(a_request_behind_a_canceled_tail_starts_at_its_first_byte),
		cmocka_unit_test(an_idle_rail_is_bound_again),
		cmocka_unit_test(requests_of_a_destroyed_queue_pair_can_be_canceled),
		cmocka_unit_test(a_wrong_local_key_fails_its_request_at_once),
		cmocka_unit_test(a_request_is_given_up_after_max_losses),
		cmocka_unit_test(on_other_devices_completions_prove_writes),
		cmocka_unit_test(unconfirmed_writes_post_no_reads),
		cmocka_unit_test(a_send_queue_filled_by_others_only_delays_requests),
		cmocka_unit_test(a_manager_fed_completions_handles_only_its_own),
		cmocka_unit_test(progress_is_reported),
		cmocka_unit_test(a_wait_sleeps_until_the_request_is_done),
	};

	return cmocka_run_group_tests_name("xfer manager", tests, NULL, NULL);
}
