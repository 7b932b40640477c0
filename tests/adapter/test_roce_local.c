// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_local.c - requests of roce0 that concern the adapter alone, and need no peer. */
#include "roce_pair.h"

#include "adapter/qp.h"

/* In RTS, and connected to a queue pair that does not exist. */
static void open_alone(struct end *e)
{
	end_open(e, NULL);
	end_connect(e, 1, NULL);
}

static void post_invalidate(struct end *e, uint64_t id, uint32_t rkey)
{
	struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey};

	assert_int_equal(try_post(e, &wr), 0);
}

static void post_bind(struct end *e, uint64_t id, struct ibv_mw *mw)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {mw, mw->rkey, {e->mr, (uintptr_t)e->buf, 64, IBV_ACCESS_REMOTE_READ}},
	};

	assert_int_equal(try_post(e, &wr), 0);
}

/* A thread that has posted finds the completion: nothing else has to happen first. */
static void expect_now(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void windows_are_bound_and_invalidated_without_a_peer(void **state)
{
	struct end e;
	struct ibv_mw *mw;

	open_alone(&e);
	mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
	for (uint64_t i = 0; i < 100; i++) {
		post_bind(&e, 2 * i, mw);
		expect_now(e.scq, 2 * i);
		post_invalidate(&e, 2 * i + 1, mw->rkey);
		expect_now(e.scq, 2 * i + 1);
	}
	expect_qp_state(&e, IBV_QPS_RTS);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	end_close(&e);
}

static void windows_that_are_bound_early_are_bound_in_rts(void **state)
{
	struct end e;
	struct ibv_mw *mw;

	end_open(&e, NULL);
	mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
	to_init(&e, NULL);
	post_bind(&e, 1, mw);
	to_rtr(&e, 1, NULL);
	expect_nothing(e.scq);
	to_rts(&e, NULL);
	expect_now(e.scq, 1);
	end_move(&e, IBV_QPS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	end_close(&e);
}

/* White-box. A request before it waits for the peer. */
static void a_window_is_not_bound_before_its_turn(void **state)
{
	struct end e;
	struct ibv_mw *mw;
	struct stag_qp *qp;

	open_alone(&e);
	qp = to_stag_qp(e.qp);
	mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
	post_send_(&e, 1, 0, 8);
	post_bind(&e, 2, mw);
	lock_acquire(&qp->tx_lock);
	assert_false(qp->sq.wqe[1].done);
	lock_release(&qp->tx_lock);
	end_move(&e, IBV_QPS_ERR);
	expect_wc(e.scq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	end_close(&e);
}

static void a_wrong_local_request_fails_without_a_peer(void **state)
{
	struct end e;

	open_alone(&e);
	post_invalidate(&e, 1, 0xdeadbeef);
	post_invalidate(&e, 2, 0xdeadbeef);
	post_send_(&e, 3, 0, 8);
	expect_wc(e.scq, 1, IBV_WC_LOC_PROT_ERR);
	expect_wc(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(e.scq, 3, IBV_WC_WR_FLUSH_ERR);
	await_qp_state(&e, IBV_QPS_ERR);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_are_bound_and_invalidated_without_a_peer),
		cmocka_unit_test(windows_that_are_bound_early_are_bound_in_rts),
		cmocka_unit_test(a_window_is_not_bound_before_its_turn),
		cmocka_unit_test(a_wrong_local_request_fails_without_a_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
