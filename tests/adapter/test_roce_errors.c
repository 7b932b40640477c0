// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_errors.c - what fails on roce0, with which status, at which of the two queue pairs, and what they do next. */
#include "roce_pair.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "adapter/qp.h"
#include "adapter/stream.h"

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

static void post_remote(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint64_t addr,
			uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, len, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	assert_int_equal(try_post(e, &wr), 0);
}

static const enum ibv_wr_opcode accesses[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
					      IBV_WR_ATOMIC_FETCH_AND_ADD};

/* Between requests that succeed and requests that are flushed. */
static void expect_refusal(struct roce_pair *p, enum ibv_wc_status status)
{
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 2, status);
	expect_wc(p->a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->a.rcq, 11, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->b.rcq, 12, IBV_WC_WR_FLUSH_ERR);
	await_qp_state(&p->a, IBV_QPS_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
}

static void begin_refusal(struct roce_pair *p)
{
	post_recv_(&p->a, 11, 0, 64);
	post_recv_(&p->b, 12, 0, 64);
	post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p->b);
}

static void an_invalid_key_is_a_remote_access_error(void **state)
{
	struct roce_pair *p = *state;

	for (int i = 0; i < 3; i++) {
		p = reopen(state, NULL);
		begin_refusal(p);
		post_remote(&p->a, accesses[i], 2, (uintptr_t)p->b.buf, 0xdeadbeef, 8);
		post_op(&p->a, IBV_WR_RDMA_WRITE, 3, 0, 64, &p->b);
		expect_refusal(p, IBV_WC_REM_ACCESS_ERR);
		expect_event(&p->b, IBV_EVENT_QP_ACCESS_ERR);
		expect_no_event(&p->a);
	}
}

static void an_address_out_of_bounds_is_a_remote_access_error(void **state)
{
	struct roce_pair *p = *state;

	begin_refusal(p);
	post_remote(&p->a, IBV_WR_RDMA_WRITE, 2, (uintptr_t)p->b.buf + ROCE_BUF - 8, p->b.mr->rkey,
		    16);
	post_op(&p->a, IBV_WR_RDMA_WRITE, 3, 0, 64, &p->b);
	expect_refusal(p, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(p->b.buf[ROCE_BUF - 1], 0);
}

/* iWARP has no such check. */
static void a_right_that_the_queue_pair_lacks_is_an_invalid_request(void **state)
{
	static const unsigned rights[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
					  IBV_ACCESS_REMOTE_ATOMIC};
	struct roce_pair *p;

	for (int i = 0; i < 3; i++) {
		struct ways w = {.access = ROCE_ACCESS & ~rights[i]};

		p = reopen(state, &w);
		post_remote(&p->a, accesses[i], 2, (uintptr_t)p->b.buf, p->b.mr->rkey, 8);
		expect_wc(p->a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
		expect_event(&p->b, IBV_EVENT_QP_REQ_ERR);
		await_qp_state(&p->b, IBV_QPS_ERR);
	}
}

static void an_atomic_that_is_not_aligned_is_an_invalid_request(void **state)
{
	struct roce_pair *p = *state;

	/* also with a key that is invalid: the address is looked at first */
	post_remote(&p->a, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, (uintptr_t)p->b.buf + 4, 1, 8);
	expect_wc(p->a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
}

static void a_message_longer_than_the_receive_fails_at_both_ends(void **state)
{
	struct roce_pair *p = *state;

	post_recv_(&p->b, 1, 0, 64);
	post_send_(&p->a, 2, 0, 65);
	expect_wc(p->a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(p->b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	await_qp_state(&p->a, IBV_QPS_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
}

static void a_receive_with_invalid_memory_is_a_remote_operation_error(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_sge sge = {(uintptr_t)p->b.buf, 64, 0xdead00};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
	post_send_(&p->a, 2, 0, 64);
	expect_wc(p->a.scq, 2, IBV_WC_REM_OP_ERR);
	expect_wc(p->b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
}

static void invalid_memory_of_our_own_concerns_nobody_else(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct roce_pair *p;

	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = {
			.wr_id = 1, .opcode = ops[i], .sg_list = &sge, .num_sge = 1};

		p = reopen(state, NULL);
		sge = (struct ibv_sge){(uintptr_t)p->a.buf, 64, 0xdead00};
		wr.wr.rdma.remote_addr = (uintptr_t)p->b.buf;
		wr.wr.rdma.rkey = p->b.mr->rkey;
		exchange(p);
		post_recv_(&p->b, 5, 0, 64);
		assert_int_equal(try_post(&p->a, &wr), 0);
		expect_wc(p->a.scq, 1, IBV_WC_LOC_PROT_ERR);
		await_qp_state(&p->a, IBV_QPS_ERR);
		expect_qp_state(&p->b, IBV_QPS_RTS);
		expect_no_event(&p->b);
	}
}

/* The responder has more to send than the stream takes when it refuses. */
static void a_refusal_is_heard_behind_a_stream_that_was_full(void **state)
{
	enum { LONG = 64 << 20 };
	struct roce_pair *p = reopen(state, &(struct ways){.size = LONG});
	struct stag_qp *a = to_stag_qp(p->a.qp);

	exchange(p);
	lock_acquire(&a->rx_lock); /* a does not read */
	post_op(&p->a, IBV_WR_RDMA_READ, 1, 0, LONG, &p->b);
	await(atomic_load(&to_stag_qp(p->b.qp)->progress.tx_blocked));
	post_remote(&p->a, IBV_WR_RDMA_WRITE, 2, (uintptr_t)p->b.buf, 0xdeadbeef, 8);
	await_qp_state(&p->b, IBV_QPS_ERR);
	lock_release(&a->rx_lock);
	expect_wc(p->a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->a.scq, 2, IBV_WC_REM_ACCESS_ERR);
}

/* T is taken as 100 ms: (3 + 1) * T. */
static const struct ways short_of_patience = {.timeout = 10, .retry_cnt = 3};

static void expect_silence(struct roce_pair *p)
{
	uint64_t began = clock_ns();

	post_send_(&p->a, 1, 0, 64);
	post_send_(&p->a, 2, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_true(clock_ns() - began >= 300 * NS_PER_MS);
	expect_qp_state(&p->a, IBV_QPS_ERR);
	expect_no_event(&p->a);
}

static void a_peer_that_does_not_exist_is_waited_for_in_vain(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	end_connect(&p.a, p.b.qp->qp_num + 5, &short_of_patience);
	expect_silence(&p);
	roce_close(&p);
}

static void a_peer_that_wants_another_does_not_answer(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	end_connect(&p.a, p.b.qp->qp_num, &short_of_patience);
	end_connect(&p.b, p.a.qp->qp_num + 1, NULL);
	post_recv_(&p.b, 1, 0, 64);
	expect_silence(&p);
	expect_nothing(p.b.rcq);
	roce_close(&p);
}

static void a_peer_in_err_does_not_answer(void **state)
{
	struct roce_pair *p = reopen(state, &short_of_patience);

	exchange(p);
	end_move(&p->b, IBV_QPS_ERR);
	expect_qp_state(&p->a, IBV_QPS_RTS);
	expect_silence(p);
}

/* Also while requests are under way, whose time was counted in the old one. */
static void a_shorter_timeout_counts_at_once(void **state)
{
	struct roce_pair *p = *state; /* 17 s */
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .timeout = 10, .retry_cnt = 3};
	uint64_t began;

	exchange(p);
	end_drain(&p->a);
	assert_int_equal(
		ibv_modify_qp(p->a.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
	end_move(&p->a, IBV_QPS_RTS);
	assert_int_equal(ibv_destroy_qp(p->b.qp), 0);
	p->b.qp = NULL;
	began = clock_ns();
	expect_silence(p);
	assert_true(clock_ns() - began < 10 * NS_PER_S);
}

static void a_peer_that_was_destroyed_does_not_answer(void **state)
{
	struct roce_pair *p = reopen(state, &short_of_patience);

	exchange(p);
	assert_int_equal(ibv_destroy_qp(p->b.qp), 0);
	p->b.qp = NULL;
	expect_qp_state(&p->a, IBV_QPS_RTS);
	expect_silence(p);
}

/* It is another one than the one that was met: its requests and ours belong to no common stream. */
static void a_peer_that_was_reset_is_a_stranger(void **state)
{
	struct roce_pair *p = reopen(state, &short_of_patience);

	exchange(p);
	end_move(&p->b, IBV_QPS_RESET);
	end_connect(&p->b, p->a.qp->qp_num, NULL);
	post_recv_(&p->b, 1, 0, 64);
	expect_silence(p);
	expect_nothing(p->b.rcq);
}

static void cut(struct end *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);

	qp_lock_both(qp);
	if (qp->stream)
		shutdown(qp->stream->fd, SHUT_RDWR);
	qp_unlock_both(qp);
}

static uint32_t streams_of(struct end *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);
	uint32_t n;

	lock_acquire(&qp->tx_lock);
	n = qp->link_no;
	lock_release(&qp->tx_lock);
	return n;
}

static void a_stream_that_is_cut_while_idle_is_made_again(void **state)
{
	struct roce_pair *p = *state;

	for (int i = 0; i < 20; i++) {
		exchange(p);
		cut(i % 2 ? &p->a : &p->b);
		await(atomic_load(&to_stag_qp(p->a.qp)->state) == QP_IDLE &&
		      atomic_load(&to_stag_qp(p->b.qp)->state) == QP_IDLE);
	}
	expect_qp_state(&p->a, IBV_QPS_RTS);
	expect_no_event(&p->a);
	expect_no_event(&p->b);
}

static void a_request_that_waits_for_a_receive_goes_on_the_next_stream(void **state)
{
	struct roce_pair *p = reopen(state, &short_of_patience);

	exchange(p);
	post_send_(&p->a, 1, 0, 64); /* waits for a receive: it can go on the next stream */
	post_op(&p->b, IBV_WR_RDMA_READ, 2, 0, 8, &p->a);
	expect_wc(p->b.scq, 2, IBV_WC_SUCCESS);
	cut(&p->b);
	await(atomic_load(&to_stag_qp(p->a.qp)->state) == QP_IDLE || streams_of(&p->a) > 1);
	post_recv_(&p->b, 3, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->b.rcq, 3, IBV_WC_SUCCESS);
}

static void a_queue_pair_with_a_shared_queue_reports_its_last_request(void **state)
{
	struct roce_pair *p = reopen(state, &(struct ways){.with_srq = true});

	end_move(&p->a, IBV_QPS_ERR);
	expect_event(&p->a, IBV_EVENT_QP_LAST_WQE_REACHED);
	end_move(&p->a, IBV_QPS_ERR);
	expect_no_event(&p->a);
}

static void in_err_requests_are_taken_and_flushed(void **state)
{
	struct roce_pair *p = *state;

	end_move(&p->a, IBV_QPS_ERR);
	post_send_(&p->a, 1, 0, 64);
	post_recv_(&p->a, 2, 0, 64);
	expect_wc(p->a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->a.rcq, 2, IBV_WC_WR_FLUSH_ERR);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_invalid_key_is_a_remote_access_error),
		TEST(an_address_out_of_bounds_is_a_remote_access_error),
		TEST(a_right_that_the_queue_pair_lacks_is_an_invalid_request),
		TEST(an_atomic_that_is_not_aligned_is_an_invalid_request),
		TEST(a_message_longer_than_the_receive_fails_at_both_ends),
		TEST(a_receive_with_invalid_memory_is_a_remote_operation_error),
		TEST(a_refusal_is_heard_behind_a_stream_that_was_full),
		TEST(invalid_memory_of_our_own_concerns_nobody_else),
		cmocka_unit_test(a_peer_that_does_not_exist_is_waited_for_in_vain),
		cmocka_unit_test(a_peer_that_wants_another_does_not_answer),
		TEST(a_peer_in_err_does_not_answer),
		TEST(a_shorter_timeout_counts_at_once),
		TEST(a_peer_that_was_destroyed_does_not_answer),
		TEST(a_peer_that_was_reset_is_a_stranger),
		TEST(a_stream_that_is_cut_while_idle_is_made_again),
		TEST(a_request_that_waits_for_a_receive_goes_on_the_next_stream),
		TEST(a_queue_pair_with_a_shared_queue_reports_its_last_request),
		TEST(in_err_requests_are_taken_and_flushed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
