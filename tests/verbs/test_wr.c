// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_wr.c - work requests built with ibv_wr_*, on two connected queue pairs.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <string.h>

static int connect_pair(void **state)
{
	*state = pair_open();
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	return 0;
}

/* Starts a list on queue pair a. Its first request has this wr_id and is signaled. */
static struct ibv_qp_ex *start_list(struct pair *p, uint64_t wr_id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a);

	assert_non_null(ex);
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

static void expect_wc(struct ibv_wc wc, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, opcode);
}

/* Waits for a completion on each side, in any order; returns the receiver's. */
static struct ibv_wc wait_both(struct pair *p, uint64_t send_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc first = wait_wc(p), second = wait_wc(p);
	struct ibv_wc sent = first.opcode & IBV_WC_RECV ? second : first;

	expect_wc(sent, send_id, opcode);
	return first.opcode & IBV_WC_RECV ? first : second;
}

static void a_send_arrives(void **state)
{
	struct pair *p = *state;

	strcpy((char *)p->mine, "hello");
	post_recv(p, p->b, 7, p->theirs, 64);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 6);
	assert_int_equal(ibv_wr_complete(ex), 0);

	struct ibv_wc wc = wait_both(p, 1, IBV_WC_SEND);

	expect_wc(wc, 7, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 6);
	assert_string_equal((char *)p->theirs, "hello");
}

static void immediate_data_arrives(void **state)
{
	struct pair *p = *state;

	post_recv(p, p->b, 7, p->theirs, 64);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_send_imm(ex, htonl(0x12345678));
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);

	struct ibv_wc wc = wait_both(p, 1, IBV_WC_SEND);

	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 0x12345678);
}

static void write_with_immediate_completes_a_receive(void **state)
{
	struct pair *p = *state;

	post_recv(p, p->b, 7, p->theirs + 64, 64);
	memcpy(p->mine, "written", 8);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_rdma_write_imm(ex, p->mr->rkey, (uintptr_t)p->theirs, htonl(9));
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);

	struct ibv_wc wc = wait_both(p, 1, IBV_WC_RDMA_WRITE);

	expect_wc(wc, 7, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 9);
	assert_string_equal((char *)p->theirs, "written");
}

/* A write and a read of the same bytes in one list: only the last one completes. */
static void list_is_carried_out_in_order(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_ex *ex = start_list(p, 1);

	memcpy(p->mine, "there and back", 15);
	ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs + 100);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 15);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(ex, p->mr->rkey, (uintptr_t)p->theirs + 100);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine + 100, 15);
	assert_int_equal(ibv_wr_complete(ex), 0);

	expect_wc(wait_wc(p), 2, IBV_WC_RDMA_READ);
	assert_string_equal((char *)p->mine + 100, "there and back");
}

static void atomics_return_the_previous_value(void **state)
{
	struct pair *p = *state;
	uint64_t *word = (uint64_t *)p->theirs, *before = (uint64_t *)p->mine;

	*word = 40;

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_atomic_fetch_add(ex, p->mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)before, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect_wc(wait_wc(p), 1, IBV_WC_FETCH_ADD);
	assert_int_equal(*before, 40);
	assert_int_equal(*word, 42);

	ex = start_list(p, 2);
	ibv_wr_atomic_cmp_swp(ex, p->mr->rkey, (uintptr_t)word, 42, 7);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)before, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect_wc(wait_wc(p), 2, IBV_WC_COMP_SWAP);
	assert_int_equal(*before, 42);
	assert_int_equal(*word, 7);
}

/* The buffers are the program's again when the setter returns. */
static void inline_data_is_copied(void **state)
{
	struct pair *p = *state;
	char one[] = "in", two[] = "line";
	struct ibv_data_buf bufs[] = {{one, 2}, {two, 5}};

	post_recv(p, p->b, 7, p->theirs, 64);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, bufs);
	memset(one, 'x', sizeof(one));
	memset(two, 'x', sizeof(two));
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_both(p, 1, IBV_WC_SEND).byte_len, 7);
	assert_string_equal((char *)p->theirs, "inline");
}

static void several_sges_are_gathered(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sges[3];

	memcpy(p->mine, "abcdefghi", 10);
	for (int i = 0; i < 3; i++)
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)p->mine + 6 - 3 * i, .length = 3, .lkey = p->mr->lkey};
	post_recv(p, p->b, 7, p->theirs, 64);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 3, sges);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wait_both(p, 1, IBV_WC_SEND);
	assert_memory_equal(p->theirs, "ghidefabc", 9);
}

/* A type-2 window: bound, written through, and invalidated by its owner. */
static void window_is_valid_from_bind_to_invalidate(void **state)
{
	struct pair *p = *state;
	struct ibv_mw *mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {.mr = p->mr,
					.addr = (uintptr_t)p->mine,
					.length = 128,
					.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_bind_mw(ex, mw, rkey, &info);
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect_wc(wait_wc(p), 1, IBV_WC_BIND_MW);

	ex = start_list(p, 2);
	ibv_wr_local_inv(ex, rkey);
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect_wc(wait_wc(p), 2, IBV_WC_LOCAL_INV);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void expect_nothing_sent(struct pair *p)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(p->cq, 1, &wc), 0);
}

static void aborted_list_posts_nothing(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 8);
	ibv_wr_abort(ex);
	expect_nothing_sent(p);
	list_is_carried_out_in_order(state);
}

/* A bad request drops the whole list. */
static void error_drops_the_whole_list(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_ex *ex = start_list(p, 1);
	char big[4096] = {0};

	p->theirs[0] = 0;
	p->mine[0] = 1;
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_inline_data(ex, big, sizeof(big)); /* more than max_inline_data */
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	expect_nothing_sent(p);
	assert_int_equal(p->theirs[0], 0);
	list_is_carried_out_in_order(state);
}

static void list_longer_than_the_queue_returns_enomem(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_ex *ex = start_list(p, 1);
	unsigned room = to_stag_qp(p->a)->sq.max_wr;

	for (unsigned i = 0; i <= room; i++) {
		ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
		ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	}
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	expect_nothing_sent(p);
	list_is_carried_out_in_order(state);
}

static void unconnected_queue_pair_refuses_lists(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(p->a, &attr, IBV_QP_STATE), 0);

	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
}

/* ---- one-shot sends ---- */

static unsigned open_stags(struct pair *p)
{
	struct stagdv_stag all[64];
	int n = stagdv_query_stags(p->ctx, all, 64, sizeof(*all));
	unsigned open = 0;

	for (int i = 0; i < n && i < 64; i++)
		open += all[i].end == STAGDV_STAG_OPEN;
	return open;
}

/* Returns a command that advertises the whole half of a. sge has to outlive it. */
static struct stagdv_advertise advertise_mine(struct pair *p, struct ibv_sge sge[2])
{
	sge[0] = (struct ibv_sge){(uintptr_t)p->mine, 16, p->mr->lkey};
	sge[1] = (struct ibv_sge){(uintptr_t)p->mine, PAIR_BUF, p->mr->lkey};
	return (struct stagdv_advertise){.sg_list = sge,
					 .num_sge = 1,
					 .memory = sge + 1,
					 .num_memory = 1,
					 .access = IBV_ACCESS_REMOTE_READ,
					 .iova = 0x1000,
					 .reference = 77,
					 .stag_at = 4};
}

/* Two commands in one list; the peer closes both in one list. */
static void commands_are_advertised_and_closed_in_lists(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[2];
	struct stagdv_advertise cmd = advertise_mine(p, sge);
	uint32_t stag[2], told;
	struct ibv_qp_ex *ex;

	for (uint64_t i = 0; i < 2; i++)
		post_recv(p, p->b, 7, p->theirs + 64 * i, 64);
	ex = start_list(p, 1);
	ex->wr_flags = 0;
	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &stag[0]), 0);
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &stag[1]), 0);
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(wait_wc(p).status, IBV_WC_SUCCESS);
	for (int i = 0; i < 2; i++) {
		memcpy(&told, p->theirs + 64 * i + 4, sizeof(told));
		assert_int_equal(ntohl(told), stag[i]);
	}
	assert_int_equal(open_stags(p), 2);

	for (uint64_t i = 0; i < 2; i++)
		post_recv(p, p->a, 8 + i, p->mine + 64 * i, 64);
	ex = ibv_qp_to_qp_ex(p->b);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(stagdv_wr_send_close(ex, stag[i]), 0);
		ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->theirs, 16);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = wait_wc(p);

		assert_true(wc.wc_flags & STAGDV_WC_CLOSED);
		assert_int_equal(wc.invalidated_rkey, stag[i]);
		assert_int_equal(wc.vendor_err, 77);
	}
	assert_int_equal(open_stags(p), 0);
}

/* STags that a list was to advertise are withdrawn when the list is dropped for any reason. */
static void dropped_list_leaves_no_stag_open(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[2];
	struct stagdv_advertise cmd = advertise_mine(p, sge), bad = cmd;
	struct ibv_qp_ex *ex = start_list(p, 1);
	uint32_t stag = 0, other = 0;

	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &stag), 0);
	assert_int_equal(open_stags(p), 1);
	ibv_wr_abort(ex);
	assert_int_equal(open_stags(p), 0);
	assert_int_equal(stagdv_withdraw(p->a, stag, NULL), ENOENT);

	bad.access = IBV_ACCESS_REMOTE_ATOMIC;
	ex = start_list(p, 1);
	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &stag), 0);
	assert_int_equal(stagdv_wr_send_advertise(ex, &bad, &other), EINVAL);
	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &other), EINVAL);
	assert_int_equal(other, 0);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	assert_int_equal(open_stags(p), 0);

	bad = cmd;
	bad.comp_mask = 1;
	ex = start_list(p, 1);
	assert_int_equal(stagdv_wr_send_advertise(ex, &bad, &other), EINVAL);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	expect_nothing_sent(p);
}

/* No STag stays open after the end of a connection. */
static void failed_queue_pair_leaves_no_stag_open(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_sge sge[2];
	struct stagdv_advertise cmd = advertise_mine(p, sge);
	struct ibv_qp_ex *ex;
	uint32_t stag;

	assert_int_equal(ibv_modify_qp(p->a, &attr, IBV_QP_STATE), 0);
	ex = start_list(p, 5);
	assert_int_equal(stagdv_wr_send_advertise(ex, &cmd, &stag), 0);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_wc(p).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(open_stags(p), 0);
}

/* In the error state a list is accepted, and flushed at once. */
static void failed_queue_pair_flushes_lists(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(ibv_modify_qp(p->a, &attr, IBV_QP_STATE), 0);

	struct ibv_qp_ex *ex = start_list(p, 5);

	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	assert_int_equal(ibv_wr_complete(ex), 0);

	struct ibv_wc wc = wait_wc(p);

	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.qp_num, p->a->qp_num);
}

static void setter_without_a_request_is_refused(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_ex *ex = start_list(p, 1);

	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
}

/* Operations not requested at creation are refused, as are those that iWARP does not have. */
static void operations_not_requested_at_creation_are_refused(void **state)
{
	struct pair *p = *state;
	uint64_t all = to_stag_qp(p->a)->config.send_ops;
	struct ibv_qp_ex *ex = start_list(p, 1);

	to_stag_qp(p->a)->config.send_ops = IBV_QP_EX_WITH_SEND;
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 1);
	to_stag_qp(p->a)->config.send_ops = all;
	assert_int_equal(ibv_wr_complete(ex), EINVAL);

	ex = start_list(p, 1);
	ibv_wr_send_tso(ex, p->mine, 14, 1000);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ex = start_list(p, 1);
	ibv_wr_atomic_write(ex, p->mr->rkey, (uintptr_t)p->theirs, p->mine);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ex = start_list(p, 1);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, NULL, 1, 2);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	expect_nothing_sent(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_send_arrives, connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(immediate_data_arrives, connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(write_with_immediate_completes_a_receive,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(list_is_carried_out_in_order, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(atomics_return_the_previous_value, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(inline_data_is_copied, connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(several_sges_are_gathered, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(window_is_valid_from_bind_to_invalidate,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(aborted_list_posts_nothing, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(error_drops_the_whole_list, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(list_longer_than_the_queue_returns_enomem,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(unconnected_queue_pair_refuses_lists, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(commands_are_advertised_and_closed_in_lists,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(dropped_list_leaves_no_stag_open, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(failed_queue_pair_leaves_no_stag_open, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(failed_queue_pair_flushes_lists, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(setter_without_a_request_is_refused, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(operations_not_requested_at_creation_are_refused,
						connect_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
