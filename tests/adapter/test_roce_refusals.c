// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_refusals.c - each reason to refuse a request of roce0: what requester and responder see of it.
 *
 * Between two writes that are allowed: the first succeeds, and the second is flushed, as the refusal ends both queue pairs.
 */
#include "roce_pair.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "adapter/face.h"
#include "adapter/qp.h"
#include "adapter/qp_rx.h"

#define NO_EVENT ((enum ibv_event_type) - 1)

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

struct target { /* what the request names */
	uint64_t addr;
	uint32_t rkey;
};

static void post_to(struct end *e, enum ibv_wr_opcode op, uint64_t id, struct target t)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, 8, e->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .imm_data = 7};

	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = t.addr;
		wr.wr.atomic.rkey = t.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = t.addr;
		wr.wr.rdma.rkey = t.rkey;
	}
	assert_int_equal(try_post(e, &wr), 0);
}

static void expect_flush(struct end *e, struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc = expect_wc(cq, id, IBV_WC_WR_FLUSH_ERR);

	assert_int_equal(wc.qp_num, e->qp->qp_num);
}

/* Around the request of wr_id 2. b has one receive, of wr_id 12, or takes it from an SRQ. */
static void begin(struct roce_pair *p)
{
	memset(p->b.buf, 0x55, p->b.size);
	memset(p->a.buf, 0x55, p->a.size);
	post_recv_(&p->a, 11, 0, 64);
	post_recv_(&p->b, 12, 0, 64);
	post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p->b);
}

static void finish(struct roce_pair *p, enum ibv_wc_status status, enum ibv_event_type event)
{
	post_op(&p->a, IBV_WR_RDMA_WRITE, 3, 0, 64, &p->b);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 2, status);
	expect_flush(&p->a, p->a.scq, 3);
	expect_flush(&p->a, p->a.rcq, 11);
	await_qp_state(&p->a, IBV_QPS_ERR);
	await_qp_state(&p->b, IBV_QPS_ERR);
	if (event != NO_EVENT)
		expect_event(&p->b, event);
	expect_no_event(&p->b);
	expect_no_event(&p->a);
}

static void expect_untouched(const struct end *e)
{
	for (size_t i = 0; i < e->size; i++)
		assert_int_equal(e->buf[i], 0x55);
}

/* ---- remote access errors ---- */

static const enum ibv_wr_opcode accesses[] = {
	IBV_WR_RDMA_WRITE,	   IBV_WR_RDMA_WRITE_WITH_IMM,	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
};

struct lent { /* what a case makes at the responder */
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static struct target no_key(struct roce_pair *p, struct lent *l)
{
	return (struct target){(uintptr_t)p->b.buf, 0xdeadbeef};
}

static struct target behind_the_end(struct roce_pair *p, struct lent *l)
{
	return (struct target){(uintptr_t)p->b.buf + p->b.size, p->b.mr->rkey};
}

static struct target before_the_beginning(struct roce_pair *p, struct lent *l)
{
	return (struct target){(uintptr_t)p->b.buf - 8, p->b.mr->rkey};
}

static struct target other_domain(struct roce_pair *p, struct lent *l)
{
	l->pd = ibv_alloc_pd(p->b.ctx);
	l->mr = ibv_reg_mr(l->pd, p->b.buf, p->b.size, ROCE_ACCESS);
	return (struct target){(uintptr_t)p->b.buf, l->mr->rkey};
}

static struct target no_right(struct roce_pair *p, struct lent *l)
{
	l->mr = ibv_reg_mr(p->b.pd, p->b.buf, p->b.size, IBV_ACCESS_LOCAL_WRITE);
	return (struct target){(uintptr_t)p->b.buf, l->mr->rkey};
}

static struct target no_longer_registered(struct roce_pair *p, struct lent *l)
{
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, p->b.buf, p->b.size, ROCE_ACCESS);
	uint32_t rkey = mr->rkey;

	assert_int_equal(ibv_dereg_mr(mr), 0);
	return (struct target){(uintptr_t)p->b.buf, rkey};
}

/* Its first 64 bytes, with these rights. */
static uint32_t bind(struct roce_pair *p, struct lent *l, unsigned access)
{
	struct ibv_mw_bind bind = {
		.wr_id = 99,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {p->b.mr, (uintptr_t)p->b.buf, 64, access},
	};

	l->mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_1);
	assert_int_equal(ibv_bind_mw(p->b.qp, l->mw, &bind), 0);
	expect_wc(p->b.scq, 99, IBV_WC_SUCCESS);
	memset(p->b.buf, 0x55, p->b.size);
	memset(p->a.buf, 0x55, p->a.size);
	return l->mw->rkey;
}

static struct target behind_a_window(struct roce_pair *p, struct lent *l)
{
	return (struct target){(uintptr_t)p->b.buf + 64, bind(p, l, ROCE_ACCESS & ~1u & ~16u)};
}

static struct target window_without_right(struct roce_pair *p, struct lent *l)
{
	return (struct target){(uintptr_t)p->b.buf, bind(p, l, 0)};
}

static void give_back(struct lent *l)
{
	if (l->mw)
		assert_int_equal(ibv_dealloc_mw(l->mw), 0);
	if (l->mr)
		assert_int_equal(ibv_dereg_mr(l->mr), 0);
	if (l->pd)
		assert_int_equal(ibv_dealloc_pd(l->pd), 0);
}

/* The receive of a write with immediate is not taken, as the write is refused before its end. */
static void refuse_each(void **state, struct target (*make)(struct roce_pair *, struct lent *))
{
	for (size_t i = 0; i < sizeof(accesses) / sizeof(*accesses); i++) {
		struct roce_pair *p = i ? reopen(state, NULL) : *state;
		struct lent l = {0};
		struct target t = make(p, &l);

		begin(p);
		post_to(&p->a, accesses[i], 2, t);
		finish(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		expect_flush(&p->b, p->b.rcq, 12);
		expect_untouched(&p->a);
		expect_untouched(&p->b);
		give_back(&l);
	}
}

#define ACCESS_TEST(name)                                                                          \
	static void name##_is_a_remote_access_error(void **state)                                  \
	{                                                                                          \
		refuse_each(state, name);                                                          \
	}

ACCESS_TEST(no_key)
ACCESS_TEST(behind_the_end)
ACCESS_TEST(before_the_beginning)
ACCESS_TEST(other_domain)
ACCESS_TEST(no_right)
ACCESS_TEST(no_longer_registered)
ACCESS_TEST(behind_a_window)
ACCESS_TEST(window_without_right)

/* ---- invalid requests ---- */

static void a_right_of_the_queue_pair_that_is_missing_is_an_invalid_request(void **state)
{
	static const unsigned rights[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE,
					  IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
					  IBV_ACCESS_REMOTE_ATOMIC};

	for (size_t i = 0; i < sizeof(accesses) / sizeof(*accesses); i++) {
		struct ways w = {.access = ROCE_ACCESS & ~rights[i]};
		struct roce_pair *p = reopen(state, &w);

		post_recv_(&p->b, 12, 0, 64);
		post_to(&p->a, accesses[i], 2,
			(struct target){(uintptr_t)p->b.buf, 0xdeadbeef}); /* looked at first */
		expect_wc(p->a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
		expect_event(&p->b, IBV_EVENT_QP_REQ_ERR);
		expect_no_event(&p->b);
		expect_flush(&p->b, p->b.rcq, 12);
		await_qp_state(&p->a, IBV_QPS_ERR);
		expect_no_event(&p->a);
	}
}

static void an_atomic_that_is_not_aligned_is_an_invalid_request(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct roce_pair *p = i ? reopen(state, NULL) : *state;

		begin(p);
		post_to(&p->a, i ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, 2,
			(struct target){(uintptr_t)p->b.buf + 4, p->b.mr->rkey});
		finish(p, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		expect_flush(&p->b, p->b.rcq, 12);
		expect_untouched(&p->b);
	}
}

/* The responder's depth is 0. The requester does not hold back for ever what it was not told. */
static void a_read_that_the_peer_takes_none_of_is_an_invalid_request(void **state)
{
	static const enum ibv_wr_opcode reads[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (int i = 0; i < 2; i++) {
		struct roce_pair *p = reopen(state, &(struct ways){.no_reads = true});

		begin(p);
		post_to(&p->a, reads[i], 2, (struct target){(uintptr_t)p->b.buf, p->b.mr->rkey});
		finish(p, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		expect_flush(&p->b, p->b.rcq, 12);
	}
}

static void a_read_longer_than_the_longest_is_an_invalid_request(void **state)
{
	enum { BIT = 1 << 30 };
	struct roce_pair *p = *state;
	size_t room = 2ul * BIT + 4096;
	void *at = mmap(NULL, room, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *here, *there;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1};

	assert_true(at != MAP_FAILED);
	here = ibv_reg_mr(p->a.pd, at, room, ROCE_ACCESS);
	there = ibv_reg_mr(p->b.pd, at, room, ROCE_ACCESS);
	begin(p);
	sge = (struct ibv_sge){(uintptr_t)at, 2u * BIT + 8, here->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)at;
	wr.wr.rdma.rkey = there->rkey;
	assert_int_equal(try_post(&p->a, &wr), 0);
	finish(p, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	expect_flush(&p->b, p->b.rcq, 12);
	assert_int_equal(ibv_dereg_mr(here), 0);
	assert_int_equal(ibv_dereg_mr(there), 0);
	munmap(at, room);
}

/* White-box: b has received nearly as much of it as may be. */
static void a_write_longer_than_the_longest_is_an_invalid_request(void **state)
{
	struct roce_pair *p = *state;
	struct stag_qp *b = to_stag_qp(p->b.qp);

	exchange(p);
	memset(p->b.buf, 0x55, p->b.size);
	lock_acquire(&b->rx_lock);
	b->rx->write_begun = true;
	b->rx->write_len = ROCE_MAX_MSG - 7;
	lock_release(&b->rx_lock);
	post_to(&p->a, IBV_WR_RDMA_WRITE, 2, (struct target){(uintptr_t)p->b.buf, p->b.mr->rkey});
	expect_wc(p->a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
	expect_event(&p->b, IBV_EVENT_QP_REQ_ERR);
	expect_untouched(&p->b);
}

/* ---- the receive is to blame ---- */

static void send_into_bad_receive(struct roce_pair *p, enum ibv_wc_status theirs,
				  enum ibv_wc_status ours)
{
	struct ibv_wc wc;

	post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p->b);
	post_send_(&p->a, 2, 0, 64);
	post_recv_(&p->a, 11, 0, 64);
	finish(p, theirs, NO_EVENT);
	wc = expect_wc(p->b.rcq, 12, ours);
	assert_int_equal(wc.qp_num, p->b.qp->qp_num);
}

static void a_message_longer_than_its_receive_fails_at_both(void **state)
{
	struct roce_pair *p = *state;

	post_recv_(&p->b, 12, 0, 63);
	send_into_bad_receive(p, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
}

static void post_bad_receive(struct end *e, uint64_t addr, uint32_t lkey)
{
	struct ibv_sge sge = {addr, 64, lkey};
	struct ibv_recv_wr wr = {.wr_id = 12, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

static void a_receive_with_a_wrong_key_is_a_remote_operation_error(void **state)
{
	struct roce_pair *p = *state;

	post_bad_receive(&p->b, (uintptr_t)p->b.buf, 0xdead00);
	send_into_bad_receive(p, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
}

static void a_receive_out_of_bounds_is_a_remote_operation_error(void **state)
{
	struct roce_pair *p = *state;

	post_bad_receive(&p->b, (uintptr_t)p->b.buf + p->b.size - 8, p->b.mr->lkey);
	send_into_bad_receive(p, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
}

static void a_receive_whose_region_is_gone_is_a_remote_operation_error(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, p->b.buf, 64, ROCE_ACCESS);

	post_bad_receive(&p->b, (uintptr_t)p->b.buf, mr->lkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	send_into_bad_receive(p, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
}

static void a_send_that_invalidates_a_wrong_key_is_a_remote_access_error(void **state)
{
	struct roce_pair *p = *state;
	struct ibv_sge sge = {(uintptr_t)p->a.buf, 64, p->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2,
				 .opcode = IBV_WR_SEND_WITH_INV,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .invalidate_rkey = 0xdeadbeef};

	begin(p);
	assert_int_equal(try_post(&p->a, &wr), 0);
	finish(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	expect_wc(p->b.rcq, 12, IBV_WC_REM_INV_REQ_ERR);
}

/* ---- our own memory: the peer learns nothing ---- */

static void post_own(struct roce_pair *p, enum ibv_wr_opcode op, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = op, .sg_list = sge, .num_sge = 1};

	exchange(p);
	post_recv_(&p->b, 12, 0, 64);
	post_op(&p->a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p->b);
	wr.wr.rdma.remote_addr = (uintptr_t)p->b.buf;
	wr.wr.rdma.rkey = p->b.mr->rkey;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)p->b.buf;
		wr.wr.atomic.rkey = p->b.mr->rkey;
	}
	assert_int_equal(try_post(&p->a, &wr), 0);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 2, IBV_WC_LOC_PROT_ERR);
	await_qp_state(&p->a, IBV_QPS_ERR);
	expect_qp_state(&p->b, IBV_QPS_RTS);
	expect_no_event(&p->a);
	expect_no_event(&p->b);
	expect_nothing(p->b.rcq);
}

static void own_memory_that_is_wrong_concerns_nobody_else(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						 IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (int i = 0; i < 8; i++) {
		struct roce_pair *p = i ? reopen(state, NULL) : *state;
		struct ibv_sge key = {(uintptr_t)p->a.buf, 8, 0xdead00};
		struct ibv_sge bounds = {(uintptr_t)p->a.buf + p->a.size - 4, 8, p->a.mr->lkey};

		post_own(p, ops[i / 2], i % 2 ? &key : &bounds);
	}
}

/* ---- a peer that does not hear us ---- */

static void a_peer_in_init_does_not_answer(void **state)
{
	static const struct ways brief = {.timeout = 10, .retry_cnt = 1};
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	to_init(&p.b, NULL);
	end_connect(&p.a, p.b.qp->qp_num, &brief);
	post_recv_(&p.b, 12, 0, 64);
	post_send_(&p.a, 1, 0, 64);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	expect_qp_state(&p.b, IBV_QPS_INIT);
	expect_nothing(p.b.rcq);
	expect_no_event(&p.a);
	expect_no_event(&p.b);
	roce_close(&p);
}

/* ---- events and flushing ---- */

static void a_refusal_reports_the_last_request_of_a_shared_queue_which_keeps_its_receives(
	void **state)
{
	struct roce_pair *p = reopen(state, &(struct ways){.with_srq = true});

	post_recv_(&p->b, 12, 0, 64);
	post_to(&p->a, IBV_WR_RDMA_WRITE, 2, (struct target){(uintptr_t)p->b.buf, 0xdeadbeef});
	expect_wc(p->a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	expect_event(&p->b, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_event(&p->b, IBV_EVENT_QP_ACCESS_ERR);
	expect_no_event(&p->b);
	expect_event(&p->a, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_no_event(&p->a);
	expect_nothing(p->b.rcq);
}

static void requests_are_flushed_in_order(void **state)
{
	struct roce_pair *p = *state;

	exchange(p);
	end_drain(&p->a);
	for (uint64_t i = 0; i < 20; i++) {
		post_op(&p->a, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_SEND, i, 0, 8, &p->b);
		post_recv_(&p->a, 100 + i, 0, 8);
	}
	end_move(&p->a, IBV_QPS_ERR);
	for (uint64_t i = 0; i < 20; i++) {
		expect_flush(&p->a, p->a.scq, i);
		expect_flush(&p->a, p->a.rcq, 100 + i);
	}
	expect_nothing(p->a.scq);
	expect_nothing(p->a.rcq);
	expect_qp_state(&p->b, IBV_QPS_RTS); /* the peer learns nothing */
	expect_no_event(&p->b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_key_is_a_remote_access_error),
		TEST(behind_the_end_is_a_remote_access_error),
		TEST(before_the_beginning_is_a_remote_access_error),
		TEST(other_domain_is_a_remote_access_error),
		TEST(no_right_is_a_remote_access_error),
		TEST(no_longer_registered_is_a_remote_access_error),
		TEST(behind_a_window_is_a_remote_access_error),
		TEST(window_without_right_is_a_remote_access_error),
		TEST(a_right_of_the_queue_pair_that_is_missing_is_an_invalid_request),
		TEST(an_atomic_that_is_not_aligned_is_an_invalid_request),
		TEST(a_read_that_the_peer_takes_none_of_is_an_invalid_request),
		TEST(a_read_longer_than_the_longest_is_an_invalid_request),
		TEST(a_write_longer_than_the_longest_is_an_invalid_request),
		TEST(a_message_longer_than_its_receive_fails_at_both),
		TEST(a_receive_with_a_wrong_key_is_a_remote_operation_error),
		TEST(a_receive_out_of_bounds_is_a_remote_operation_error),
		TEST(a_receive_whose_region_is_gone_is_a_remote_operation_error),
		TEST(a_send_that_invalidates_a_wrong_key_is_a_remote_access_error),
		TEST(own_memory_that_is_wrong_concerns_nobody_else),
		cmocka_unit_test(a_peer_in_init_does_not_answer),
		TEST(a_refusal_reports_the_last_request_of_a_shared_queue_which_keeps_its_receives),
		TEST(requests_are_flushed_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
