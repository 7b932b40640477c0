// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_order.c - the send queue's order: signalling, fences, depths; and the fate of requests when
 * their queue pair ends.
 */
#include "side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static void only_signalled_work_completes(void **state)
{
	struct pair p;
	struct region *from, *lent;
	uint64_t last = 0;
	struct ibv_sge sge;

	pair_open(&p, &(struct side_wish){.quiet = true, .send_wr = 8}, NULL);
	from = own_region(&p.a, 8);
	lent = lend_region(&p.b, 8, ALL_REMOTE);
	sge = piece(from, 0, 8);
	for (int i = 0; i < 64; i++) { /* eight times the queue: completed requests make room */
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .send_flags = i % 8 == 7 ? IBV_SEND_SIGNALED : 0};

		wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr.wr.rdma.rkey = lent->mr->rkey;
		last = post(&p.a, &wr);
		if (i % 8 == 7)
			expect_sent(&p.a, last);
	}
	expect_nothing(&p.a);
	pair_close(&p);
}

/* A full queue returns ENOMEM and the first request that was not posted. */
static void post_to_a_full_queue_is_refused(void **state)
{
	struct pair p;
	struct region *sink, *lent;
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_sge sge;

	pair_open(&p, &(struct side_wish){.send_wr = 4, .ord = 1}, NULL);
	sink = own_region(&p.a, 8);
	lent = lend_region(&p.b, 8, ALL_REMOTE);
	sge = piece(sink, 0, 8);
	for (int i = 0; i < 6; i++) {
		wr[i] = (struct ibv_send_wr){.wr_id = note_posted(&p.a, i >= 4),
					     .opcode = IBV_WR_RDMA_READ,
					     .sg_list = &sge,
					     .num_sge = 1,
					     .send_flags = IBV_SEND_SIGNALED,
					     .next = i < 5 ? &wr[i + 1] : NULL};
		wr[i].wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr[i].wr.rdma.rkey = lent->mr->rkey;
	}
	assert_int_equal(ibv_post_send(p.a.qp, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[4]);
	for (int i = 0; i < 4; i++)
		expect_sent(&p.a, wr[i].wr_id);
	pair_close(&p);
}

/* If the peer accepts one read at a time, the others wait, and none fails. */
static void reads_beyond_the_ord_wait(void **state)
{
	struct pair p;
	struct region *sink, *lent;
	uint64_t id[16];

	pair_open(&p, &(struct side_wish){.ord = 1}, &(struct side_wish){.ird = 1});
	sink = own_region(&p.a, 16 * 1000);
	lent = lend_region(&p.b, 16 * 1000, ALL_REMOTE);
	fill(lent->at, lent->len, 4);
	for (int i = 0; i < 16; i++)
		id[i] = post_read(&p.a, sink, (size_t)i * 1000, 1000, lent, (size_t)i * 1000);
	for (int i = 0; i < 16; i++)
		expect_sent(&p.a, id[i]);
	expect_filled(sink->at, sink->len, 4);
	pair_close(&p);
}

static void read_with_ord_0_is_refused(void **state)
{
	struct pair p;
	struct region *r;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .num_sge = 1}, *bad;

	pair_open(&p, &(struct side_wish){.ord = NO_DEPTH}, NULL);
	r = own_region(&p.a, 8);
	sge = piece(r, 0, 8);
	wr.sg_list = &sge;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
	ping(&p);
	pair_close(&p);
}

/* Writes are carried out before the reads that they follow; they complete after them. */
static void completions_keep_the_order_of_posts(void **state)
{
	struct pair p;
	struct region *mine, *lent;
	uint64_t id[60];

	pair_open(&p, &(struct side_wish){.ord = 2}, NULL);
	mine = own_region(&p.a, 60 * 5000);
	lent = lend_region(&p.b, 60 * 5000, ALL_REMOTE);
	for (size_t i = 0; i < 60; i++)
		id[i] = i % 3 ? post_write(&p.a, mine, i * 5000, i * 80, lent, i * 5000)
			      : post_read(&p.a, mine, i * 5000, 5000, lent, i * 5000);
	for (int i = 0; i < 60; i++)
		expect_sent(&p.a, id[i]);
	pair_close(&p);
}

/* The read's sink is the fenced send's source: it sends what was read. */
static void fence_waits_for_the_read(void **state)
{
	struct pair p;
	struct region *mine, *lent, *in;

	pair_open(&p, NULL, NULL);
	mine = own_region(&p.a, 100000);
	lent = lend_region(&p.b, 100000, ALL_REMOTE);
	in = own_region(&p.b, 100000);
	for (unsigned round = 0; round < 20; round++) {
		struct ibv_sge sge = piece(mine, 0, 100000);
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_FENCE,
					 .sg_list = &sge,
					 .num_sge = 1};
		uint64_t received = post_receive(&p.b, in, 0, 100000), read;

		fill(lent->at, 100000, round);
		read = post_read(&p.a, mine, 0, 100000, lent, 0);
		post(&p.a, &wr);
		expect_sent(&p.a, read);
		expect_sent(&p.a, wr.wr_id);
		expect_received(&p.b, received);
		expect_filled(in->at, 100000, round);
	}
	pair_close(&p);
}

/* ---- disconnect, error, reset ---- */

static void modify(struct side *s, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to, .port_num = 1};

	assert_int_equal(
		ibv_modify_qp(s->qp, &attr,
			      to == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							   IBV_QP_ACCESS_FLAGS
						 : IBV_QP_STATE),
		0);
}

static void error_flushes_each_request_once(void **state)
{
	struct pair p;
	struct region *r, *lent;

	pair_open(&p, &(struct side_wish){.quiet = true, .ord = 1}, NULL);
	r = own_region(&p.a, 4 << 20);
	lent = lend_region(&p.b, 4 << 20, ALL_REMOTE);
	for (int i = 0; i < 10; i++)
		post_receive(&p.a, r, 0, 64);
	for (int i = 0; i < 30; i++) { /* unsignalled: they complete only if they fail */
		struct ibv_sge sge = piece(r, 0, 4 << 20);
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1};

		wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr.wr.rdma.rkey = lent->mr->rkey;
		post(&p.a, &wr);
	}
	modify(&p.a, IBV_QPS_ERR);
	expect_disconnected(&p.a);
	expect_state(&p.a, IBV_QPS_ERR);
	expect_flushed(&p.a);
	expect_disconnected(&p.b);
	expect_state(&p.b, IBV_QPS_ERR);
	while (has_async(&p.b))
		await_async(&p.b);
	pair_close(&p);
}

static void requests_posted_in_error_are_flushed(void **state)
{
	struct pair p;
	struct region *r;
	uint64_t out, in;

	pair_open(&p, NULL, NULL);
	r = own_region(&p.a, 64);
	modify(&p.a, IBV_QPS_ERR);
	expect_disconnected(&p.a);
	for (int i = 0; i < 100; i++) {
		out = post_send(&p.a, r, 0, 64);
		in = post_receive(&p.a, r, 0, 64);
		expect_failed(&p.a, out, IBV_WC_WR_FLUSH_ERR);
		expect_failed(&p.a, in, IBV_WC_WR_FLUSH_ERR);
	}
	pair_close(&p);
}

/* Everything that was posted before the disconnect arrives. */
static void requests_posted_before_disconnect_arrive(void **state)
{
	struct pair p;
	struct region *from, *to, *lent;
	uint64_t in[16], out[16], read;

	pair_open(&p, NULL, NULL);
	from = own_region(&p.a, 1 << 20);
	to = own_region(&p.b, 16 << 20);
	lent = lend_region(&p.b, 1 << 20, ALL_REMOTE);
	fill(from->at, 1 << 20, 8);
	for (size_t i = 0; i < 16; i++)
		in[i] = post_receive(&p.b, to, i << 20, 1 << 20);
	for (int i = 0; i < 16; i++)
		out[i] = post_send(&p.a, from, 0, 1 << 20);
	read = post_read(&p.a, from, 0, 0, lent, 0);
	assert_int_equal(rdma_disconnect(p.a.id), 0);
	for (size_t i = 0; i < 16; i++) {
		expect_received(&p.b, in[i]);
		expect_filled(to->at + (i << 20), 1 << 20, 8);
	}
	for (int i = 0; i < 16; i++)
		expect_sent(&p.a, out[i]);
	expect_sent(&p.a, read);
	expect_disconnected(&p.a);
	expect_disconnected(&p.b);
	expect_flushed(&p.a);
	expect_flushed(&p.b);
	expect_no_async(&p.a);
	pair_close(&p);
}

/* The peer sees the end; nothing hangs, nothing is left. */
static void queue_pair_is_destroyed_with_requests_in_flight(void **state)
{
	struct pair p;
	struct region *from, *to, *lent, *shown;

	pair_open(&p, NULL, NULL);
	from = own_region(&p.a, 8 << 20);
	to = own_region(&p.a, 8 << 20);
	lent = lend_region(&p.b, 8 << 20, ALL_REMOTE);
	shown = lend_region(&p.b, 8 << 20, ALL_REMOTE);
	for (int i = 0; i < 8; i++) {
		post_write(&p.a, from, 0, 8 << 20, lent, 0);
		post_read(&p.a, to, 0, 8 << 20, shown, 0);
		post_receive(&p.b, lent, 0, 8);
	}
	rdma_destroy_qp(p.a.id);
	expect_disconnected(&p.b);
	expect_flushed(&p.b);
	expect_state(&p.b, IBV_QPS_ERR);
	while (has_async(&p.b))
		await_async(&p.b);
	pair_close(&p);
}

/* RESET drops all requests and completions, and disconnects. */
static void reset_drops_requests_and_completions(void **state)
{
	struct pair p;
	struct region *r;
	struct ibv_wc wc;

	pair_open(&p, NULL, NULL);
	r = own_region(&p.a, 64);
	for (int i = 0; i < 10; i++)
		post_receive(&p.a, r, 0, 64);
	modify(&p.a, IBV_QPS_RESET);
	assert_int_equal(p.a.qp->state, IBV_QPS_RESET);
	assert_int_equal(ibv_poll_cq(p.a.rcq, 1, &wc), 0);
	expect_disconnected(&p.a);
	expect_disconnected(&p.b);
	pair_close(&p);
}

/* Connects a's queue pair again, by a new id, to a new side. */
static void connect_again(struct side *a, struct side *again, struct side *b)
{
	struct rdma_conn_param param = {.initiator_depth = 1, .responder_resources = 1};
	struct side_wish w = {.pd = a->pd};

	side_listen(b, NULL);
	side_resolve(again, &w, side_port(b)); /* its own queue pair is not the one used */
	rdma_destroy_qp(again->id);
	param.qp_num = a->qp->qp_num;
	assert_int_equal(rdma_connect(again->id, &param), 0);
	side_take_request(b);
	assert_int_equal(side_accept(b), 0);
	expect_cm(again, RDMA_CM_EVENT_ESTABLISHED);
	expect_cm(b, RDMA_CM_EVENT_ESTABLISHED);
}

static void reset_queue_pair_connects_again(void **state)
{
	struct pair p;
	struct side again, b;

	pair_open(&p, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		struct pair now;

		modify(&p.a, IBV_QPS_ERR);
		modify(&p.a, IBV_QPS_RESET);
		modify(&p.a, IBV_QPS_INIT);
		connect_again(&p.a, &again, &b);
		now = (struct pair){.a = p.a, .b = b};
		ping(&now);
		p.a = now.a; /* its ledger has grown */
		b = now.b;
		expect_cm_silence(&again);
		modify(&p.a, IBV_QPS_RESET);
		expect_disconnected(&again);
		expect_disconnected(&b);
		side_close(&again);
		side_close(&b);
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_signalled_work_completes),
		cmocka_unit_test(post_to_a_full_queue_is_refused),
		cmocka_unit_test(reads_beyond_the_ord_wait),
		cmocka_unit_test(read_with_ord_0_is_refused),
		cmocka_unit_test(completions_keep_the_order_of_posts),
		cmocka_unit_test(fence_waits_for_the_read),
		cmocka_unit_test(error_flushes_each_request_once),
		cmocka_unit_test(requests_posted_in_error_are_flushed),
		cmocka_unit_test(requests_posted_before_disconnect_arrive),
		cmocka_unit_test(queue_pair_is_destroyed_with_requests_in_flight),
		cmocka_unit_test(reset_drops_requests_and_completions),
		cmocka_unit_test(reset_queue_pair_connects_again),
	};

	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
