// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_rnr.c - a queue pair of roce0 whose peer has no receive waits, repeats, and gives up in time. */
#include "roce_pair.h"

#include <stdlib.h>

static int open_pair(void **state)
{
	struct roce_pair *p = calloc(1, sizeof(*p));

	roce_open(p, NULL);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	roce_close(*state);
	free(*state);
	return 0;
}

static struct roce_pair *reopen(void **state, const struct ways *w)
{
	struct roce_pair *p = *state;

	roce_close(p);
	roce_open(p, w);
	return p;
}

/* A write that has come back as a read: everything that was sent before has been dropped or carried out. */
static void let_pass(struct roce_pair *p)
{
	post_op(&p->b, IBV_WR_RDMA_READ, 800, 0, 8, &p->a);
	expect_wc(p->b.scq, 800, IBV_WC_SUCCESS);
}

static void a_send_waits_for_a_receive(void **state)
{
	struct roce_pair *p = *state;

	p->a.buf[0] = 77;
	post_send_(&p->a, 1, 0, 64);
	let_pass(p);
	expect_nothing(p->a.scq);
	post_recv_(&p->b, 2, 0, 64);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(p->b.buf[0], 77);
}

static void it_waits_for_a_receive_of_a_shared_queue(void **state)
{
	struct roce_pair *p = reopen(state, &(struct ways){.with_srq = true});

	for (int i = 0; i < 10; i++) {
		post_send_(&p->a, 1, 0, 64);
		let_pass(p);
		expect_nothing(p->a.scq);
		post_recv_(&p->b, 2, 0, 64);
		expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	}
}

/* Each is carried out once, and in its place. */
static void requests_behind_it_are_carried_out_once_and_in_order(void **state)
{
	struct roce_pair *p = *state;
	uint64_t *word = (uint64_t *)(p->b.buf + 4096), *seen = (uint64_t *)(p->a.buf + 8192);

	*word = 100;
	post_add(&p->a, 1, 8192, &p->b, 4096, 1);
	post_send_(&p->a, 2, 0, 64);
	post_add(&p->a, 3, 8200, &p->b, 4096, 10);
	post_op(&p->a, IBV_WR_RDMA_WRITE, 4, 1024, 64, &p->b);
	post_op(&p->a, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 2048, 64, &p->b);
	post_op(&p->a, IBV_WR_RDMA_READ, 6, 1024, 64, &p->b);
	post_add(&p->a, 7, 8208, &p->b, 4096, 100);
	memset(p->a.buf + 1024, 9, 64);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	let_pass(p);
	expect_nothing(p->a.scq);
	assert_int_equal(*word, 101);
	post_recv_(&p->b, 12, 0, 64);
	expect_wc(p->b.rcq, 12, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 4, IBV_WC_SUCCESS);
	let_pass(p); /* the write with immediate waits now */
	expect_nothing(p->a.scq);
	post_recv_(&p->b, 15, 0, 64);
	assert_int_equal(expect_wc(p->b.rcq, 15, IBV_WC_SUCCESS).byte_len, 64);
	for (uint64_t id = 5; id <= 7; id++)
		expect_wc(p->a.scq, id, IBV_WC_SUCCESS);
	assert_int_equal(*word, 211);
	assert_int_equal(seen[0], 100);
	assert_int_equal(seen[1], 101);
	assert_int_equal(seen[2], 111);
	assert_memory_equal(p->a.buf + 1024, p->b.buf + 1024, 64);
}

static void the_other_direction_goes_on_meanwhile(void **state)
{
	struct roce_pair *p = *state;

	post_send_(&p->a, 1, 0, 64);
	let_pass(p);
	for (uint64_t i = 10; i < 30; i++) {
		post_recv_(&p->a, i, 0, 64);
		post_send_(&p->b, i, 0, 64);
		expect_wc(p->a.rcq, i, IBV_WC_SUCCESS);
		expect_wc(p->b.scq, i, IBV_WC_SUCCESS);
	}
	post_recv_(&p->b, 2, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
}

static void both_directions_may_wait_at_once(void **state)
{
	struct roce_pair *p = *state;

	for (int i = 0; i < 100; i++) {
		post_send_(&p->a, 1, 0, 64);
		post_send_(&p->b, 2, 0, 64);
		post_recv_(&p->a, 3, 64, 64);
		post_recv_(&p->b, 4, 64, 64);
		expect_wc(p->a.rcq, 3, IBV_WC_SUCCESS);
		expect_wc(p->b.rcq, 4, IBV_WC_SUCCESS);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
		expect_wc(p->b.scq, 2, IBV_WC_SUCCESS);
	}
}

/* Longer than what sockets hold: most of it has not been sent when the NAK comes. */
static void a_long_message_waits_too(void **state)
{
	enum { LONG = 24 << 20 };
	struct roce_pair *p = reopen(state, &(struct ways){.size = LONG});

	for (int i = 0; i < 3; i++) {
		memset(p->a.buf, i + 1, LONG);
		post_send_(&p->a, 1, 0, LONG);
		post_op(&p->a, IBV_WR_RDMA_WRITE, 2, 0, LONG, &p->b);
		post_recv_(&p->b, 3, 0, LONG);
		expect_wc(p->b.rcq, 3, IBV_WC_SUCCESS);
		assert_memory_equal(p->a.buf, p->b.buf, LONG);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
		expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	}
}

static void without_retries_the_first_refusal_is_the_last(void **state)
{
	struct roce_pair *p = reopen(state, &(struct ways){.no_rnr_retries = true});

	post_send_(&p->a, 1, 0, 64);
	post_send_(&p->a, 2, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_qp_state(&p->a, IBV_QPS_ERR);
	expect_qp_state(&p->b, IBV_QPS_RTS);
}

/* The responder's timer: 20 is 10.24 ms. */
static void retries_are_used_up_in_time(void **state)
{
	struct ways w = {.rnr_retry = 5, .min_rnr_timer = 20};
	struct roce_pair *p = reopen(state, &w);
	uint64_t began = clock_ns();

	post_send_(&p->a, 1, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_true(clock_ns() - began >= 5 * 10 * NS_PER_MS);
	expect_qp_state(&p->b, IBV_QPS_RTS);
}

static void a_receive_in_time_saves_it(void **state)
{
	struct ways w = {.rnr_retry = 6, .min_rnr_timer = 31}; /* 3 s */
	struct roce_pair *p = reopen(state, &w);

	for (int i = 0; i < 20; i++) {
		post_send_(&p->a, 1, 0, 64);
		let_pass(p);
		post_recv_(&p->b, 2, 0, 64);
		expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	}
}

/* It waits for the peer's program, not for the peer. */
static void waiting_for_a_receive_is_no_silence_of_the_peer(void **state)
{
	struct ways w = {.timeout = 1, .no_retries = true};
	struct roce_pair *p = reopen(state, &w);
	uint64_t began;

	post_send_(&p->a, 1, 0, 64);
	for (began = clock_ns(); clock_ns() - began < 400 * NS_PER_MS;)
		expect_nothing(p->a.scq);
	post_recv_(&p->b, 2, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_send_waits_for_a_receive),
		TEST(it_waits_for_a_receive_of_a_shared_queue),
		TEST(requests_behind_it_are_carried_out_once_and_in_order),
		TEST(the_other_direction_goes_on_meanwhile),
		TEST(both_directions_may_wait_at_once),
		TEST(a_long_message_waits_too),
		TEST(without_retries_the_first_refusal_is_the_last),
		TEST(retries_are_used_up_in_time),
		TEST(a_receive_in_time_saves_it),
		TEST(waiting_for_a_receive_is_no_silence_of_the_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
