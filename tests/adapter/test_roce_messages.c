// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_messages.c - what two queue pairs of roce0 do with each other, and how they meet. */
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

static void fill(struct end *e, size_t off, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		e->buf[off + i] = (uint8_t)((int)i * 7 + seed);
}

static void a_send_brings_its_bytes(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_wc wc;

	fill(&p->a, 0, 3000, 1);
	post_recv_(&p->b, 1, 4096, 4096);
	post_send_(&p->a, 2, 0, 3000);

	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 3000);
	assert_int_equal(wc.wc_flags, 0);
	assert_memory_equal(p->b.buf + 4096, p->a.buf, 3000);
	wc = expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
}

/* On stag0 it completes earlier: when TCP has the bytes. */
static void a_write_completes_when_its_bytes_are_there(void **state)
{
	struct roce_pair *p = *state;

	for (int i = 1; i < 50; i++) {
		fill(&p->a, 0, ROCE_BUF, i);
		post_op(&p->a, IBV_WR_RDMA_WRITE, 3, 0, ROCE_BUF, &p->b);
		expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
		assert_memory_equal(p->b.buf, p->a.buf, ROCE_BUF);
	}
}

static void a_read_and_an_atomic_bring_what_was_there(void **state)
{
	struct roce_pair *p = *state;
	uint64_t *word = (uint64_t *)p->b.buf, *found = (uint64_t *)(p->a.buf + 8192);

	fill(&p->b, 4096, 4000, 3);
	*word = 40;
	post_op(&p->a, IBV_WR_RDMA_READ, 1, 4096, 4000, &p->b);
	post_add(&p->a, 2, 8192, &p->b, 0, 2);
	assert_int_equal(expect_wc(p->a.scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
	assert_int_equal(expect_wc(p->a.scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
	assert_memory_equal(p->a.buf + 4096, p->b.buf + 4096, 4000);
	assert_int_equal(*found, 40);
	assert_int_equal(*word, 42);
}

static void a_write_with_immediate_takes_a_receive_without_memory(void **state)
{
	struct ibv_recv_wr wr = {.wr_id = 5}, *bad;
	struct roce_pair *p = *state;
	struct ibv_wc wc;

	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
	fill(&p->a, 0, 100, 9);
	post_op(&p->a, IBV_WR_RDMA_WRITE_WITH_IMM, 6, 0, 100, &p->b);
	wc = expect_wc(p->b.rcq, 5, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 100);
	assert_int_equal(be32toh(wc.imm_data), 7);
	assert_memory_equal(p->b.buf, p->a.buf, 100);
	expect_wc(p->a.scq, 6, IBV_WC_SUCCESS);
}

/* UCX flushes by such a write. */
static void a_request_without_bytes_needs_no_key(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct roce_pair *p = *state;

	for (int i = 0; i < 2; i++) {
		struct ibv_send_wr wr = {.wr_id = 1, .opcode = ops[i]};

		assert_int_equal(try_post(&p->a, &wr), 0);
		expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	}
}

static void both_sides_may_begin_at_once(void **state)
{
	struct roce_pair p;

	for (int i = 0; i < 50; i++) {
		roce_open(&p, NULL);
		post_recv_(&p.a, 1, 0, 64);
		post_recv_(&p.b, 2, 0, 64);
		post_send_(&p.a, 3, 0, 64);
		post_send_(&p.b, 4, 0, 64);
		expect_wc(p.a.rcq, 1, IBV_WC_SUCCESS);
		expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, 3, IBV_WC_SUCCESS);
		expect_wc(p.b.scq, 4, IBV_WC_SUCCESS);
		exchange(&p);
		roce_close(&p);
	}
}

static void a_request_waits_for_a_peer_that_is_not_ready_yet(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	end_connect(&p.a, p.b.qp->qp_num, NULL);
	post_op(&p.a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p.b);
	expect_nothing(p.a.scq);
	to_init(&p.b, NULL);
	expect_nothing(p.a.scq);
	to_rtr(&p.b, p.a.qp->qp_num, NULL);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_qp_state(&p.b, IBV_QPS_RTR);
	to_rts(&p.b, NULL);
	exchange(&p);
	roce_close(&p);
}

/* It need not be in RTS to be read and written, nor to receive. */
static void rtr_is_enough_for_a_responder(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	end_connect(&p.a, p.b.qp->qp_num, NULL);
	to_init(&p.b, NULL);
	to_rtr(&p.b, p.a.qp->qp_num, NULL);
	post_recv_(&p.b, 1, 0, 64);
	post_send_(&p.a, 2, 0, 64);
	post_op(&p.a, IBV_WR_RDMA_READ, 3, 0, 4096, &p.b);
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 3, IBV_WC_SUCCESS);
	roce_close(&p);
}

static void what_is_posted_before_rts_is_sent_in_rts(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	end_connect(&p.b, p.a.qp->qp_num, NULL);
	to_init(&p.a, NULL);
	to_rtr(&p.a, p.b.qp->qp_num, NULL);
	post_op(&p.a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p.b);
	expect_nothing(p.a.scq);
	to_rts(&p.a, NULL);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	roce_close(&p);
}

static void a_queue_pair_can_be_connected_to_itself(void **state)
{
	struct end e;

	end_open(&e, NULL);
	end_connect(&e, e.qp->qp_num, NULL);
	fill(&e, 0, 1000, 5);
	post_recv_(&e, 1, 4096, 1000);
	post_send_(&e, 2, 0, 1000);
	expect_wc(e.rcq, 1, IBV_WC_SUCCESS);
	expect_wc(e.scq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(e.buf + 4096, e.buf, 1000);
	post_op(&e, IBV_WR_RDMA_READ, 3, 0, ROCE_BUF, &e);
	expect_wc(e.scq, 3, IBV_WC_SUCCESS);
	post_send_(&e, 4, 0, 10); /* a receive is missing */
	expect_nothing(e.scq);
	post_recv_(&e, 5, 0, 10);
	expect_wc(e.scq, 4, IBV_WC_SUCCESS);
	expect_wc(e.rcq, 5, IBV_WC_SUCCESS);
	end_close(&e);
}

/* Acknowledgements go between the segments of long messages in the other direction. */
static void long_messages_pass_in_both_directions_at_once(void **state)
{
	enum { LONG = 24 << 20 };
	struct ways w = {.size = 2 * LONG};
	struct roce_pair p;

	roce_open(&p, &w);
	fill(&p.a, 0, LONG, 1);
	fill(&p.b, LONG, LONG, 2);
	for (int i = 0; i < 3; i++) {
		post_op(&p.a, IBV_WR_RDMA_WRITE, 1, 0, LONG, &p.b);
		post_op(&p.b, IBV_WR_RDMA_WRITE, 2, LONG, LONG, &p.a);
		post_op(&p.a, IBV_WR_RDMA_READ, 3, LONG, LONG, &p.b);
		expect_wc(p.b.scq, 2, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
		expect_wc(p.a.scq, 3, IBV_WC_SUCCESS);
	}
	assert_memory_equal(p.a.buf, p.b.buf, 2 * LONG);
	roce_close(&p);
}

static void many_messages_come_in_order(void **state)
{
	enum { MANY = 5000 };
	struct roce_pair *p = *state;
	unsigned sent = 0, acked = 0, seen = 0, posted = 0;
	struct ibv_wc wc;
	uint64_t until = deadline();

	while (acked < MANY || seen < MANY) {
		for (; posted < MANY && posted - seen < 32; posted++)
			post_recv_(&p->b, posted, 64 * (posted % 32), 64);
		for (; sent < MANY && sent - acked < 48; sent++)
			post_send_(&p->a, sent, 0, 8);
		if (ibv_poll_cq(p->a.scq, 1, &wc) == 1) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, acked++);
		}
		if (ibv_poll_cq(p->b.rcq, 1, &wc) == 1) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, seen++);
		}
		assert_false(clock_ns() > until);
	}
}

static void many_queue_pairs_of_one_process_find_each_other(void **state)
{
	enum { MANY = 200 };
	static struct roce_pair p[MANY];

	for (int i = 0; i < MANY; i++) {
		roce_open(&p[i], &(struct ways){.size = 64});
		post_recv_(&p[i].b, (uint64_t)i, 0, 8);
		p[i].a.buf[0] = (uint8_t)i;
	}
	for (int i = 0; i < MANY; i++)
		post_send_(&p[i].a, (uint64_t)i, 0, 8);
	for (int i = 0; i < MANY; i++) {
		expect_wc(p[i].b.rcq, (uint64_t)i, IBV_WC_SUCCESS);
		expect_wc(p[i].a.scq, (uint64_t)i, IBV_WC_SUCCESS);
		assert_int_equal(p[i].b.buf[0], (uint8_t)i);
	}
	for (int i = 0; i < MANY; i++)
		roce_close(&p[i]);
}

static void a_queue_pair_that_was_reset_connects_elsewhere(void **state)
{
	struct roce_pair *p = *state, second;
	struct end c;

	exchange(p);
	end_move(&p->a, IBV_QPS_RESET);
	end_open(&c, NULL);
	end_connect(&p->a, c.qp->qp_num, NULL);
	end_connect(&c, p->a.qp->qp_num, NULL);
	second = (struct roce_pair){.a = p->a, .b = c};
	exchange(&second);
	expect_qp_state(&p->b, IBV_QPS_RTS); /* it has noticed nothing */
	end_close(&c);
}

/* Both sides were reset, and connect again with the same numbers. */
static void two_queue_pairs_that_were_reset_meet_again(void **state)
{
	struct roce_pair *p = *state;

	for (int i = 0; i < 5; i++) {
		exchange(p);
		end_move(&p->a, IBV_QPS_RESET);
		end_move(&p->b, IBV_QPS_RESET);
		end_connect(&p->a, p->b.qp->qp_num, NULL);
		end_connect(&p->b, p->a.qp->qp_num, NULL);
	}
	exchange(p);
}

static void reset_drops_requests_and_completions(void **state)
{
	struct roce_pair *p = *state;

	post_recv_(&p->a, 1, 0, 64);
	post_recv_(&p->a, 2, 0, 64);
	post_send_(&p->b, 3, 0, 64);
	expect_wc(p->b.scq, 3, IBV_WC_SUCCESS); /* the receive is complete, then */
	end_move(&p->a, IBV_QPS_RESET);
	expect_nothing(p->a.rcq);
	expect_nothing(p->a.scq);
}

static void sqd_finishes_what_was_begun_and_holds_the_rest(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD};

	exchange(p);
	end_drain(&p->a);
	assert_int_equal(ibv_modify_qp(p->a.qp, &sqd, IBV_QP_STATE | IBV_QP_TIMEOUT), 0);
	expect_no_event(&p->a); /* it was drained before */
	post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p->b);
	post_recv_(&p->a, 2, 0, 64);
	post_send_(&p->b, 3, 0, 64); /* receives go on */
	expect_wc(p->a.rcq, 2, IBV_WC_SUCCESS);
	expect_wc(p->b.scq, 3, IBV_WC_SUCCESS);
	expect_nothing(p->a.scq);
	end_move(&p->a, IBV_QPS_RTS);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
}

static bool is_draining(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.sq_draining;
}

/* Each time that the queue pair goes there. */
static void a_drained_queue_is_reported_if_the_program_asked(void **state)
{
	for (int uc = 0; uc < 2; uc++) {
		struct roce_pair p;

		roce_open(&p, &(struct ways){.uc = uc});
		exchange(&p);
		end_drain(&p.a);
		end_move(&p.a, IBV_QPS_RTS);
		end_move(&p.a, IBV_QPS_SQD);
		await(!is_draining(&p.a));
		expect_no_event(&p.a);
		roce_close(&p);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_send_brings_its_bytes),
		TEST(a_write_completes_when_its_bytes_are_there),
		TEST(a_read_and_an_atomic_bring_what_was_there),
		TEST(a_write_with_immediate_takes_a_receive_without_memory),
		TEST(a_request_without_bytes_needs_no_key),
		cmocka_unit_test(both_sides_may_begin_at_once),
		cmocka_unit_test(a_request_waits_for_a_peer_that_is_not_ready_yet),
		cmocka_unit_test(rtr_is_enough_for_a_responder),
		cmocka_unit_test(what_is_posted_before_rts_is_sent_in_rts),
		cmocka_unit_test(a_queue_pair_can_be_connected_to_itself),
		cmocka_unit_test(long_messages_pass_in_both_directions_at_once),
		TEST(many_messages_come_in_order),
		cmocka_unit_test(many_queue_pairs_of_one_process_find_each_other),
		TEST(a_queue_pair_that_was_reset_connects_elsewhere),
		TEST(two_queue_pairs_that_were_reset_meet_again),
		TEST(reset_drops_requests_and_completions),
		TEST(sqd_finishes_what_was_begun_and_holds_the_rest),
		cmocka_unit_test(a_drained_queue_is_reported_if_the_program_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
