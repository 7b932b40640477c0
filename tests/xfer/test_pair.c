// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_pair.c - the assumptions of the manager's tests: a pair connects, ends in every possible
 * way, and reconnects; and a zero-length read proves the writes before it.
 */
#include "pair.h"

#include <string.h>

static int open_pair(void **state)
{
	static struct pair p;
	struct pair_wish wish = {.rails = 2};

	pair_open(&p, &wish);
	*state = &p;
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	return 0;
}

static int post_operation(struct pair *p, unsigned int rail, enum ibv_wr_opcode op,
			  struct region *near, uint32_t len, const struct region *far)
{
	struct ibv_sge sge = {(uintptr_t)near->at, len, near->mr->lkey};
	struct ibv_send_wr wr = {.opcode = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {(uintptr_t)far->at, far->mr->rkey},
				 .send_flags = op == IBV_WR_RDMA_READ ? IBV_SEND_SIGNALED : 0},
			   *bad;

	return ibv_post_send(pair_qp(p, rail), &wr, &bad);
}

static enum ibv_wc_status next_status(struct pair *p, unsigned int rail)
{
	struct ibv_wc wc;

	await(ibv_poll_cq(p->rails[rail].cq, 1, &wc) == 1);
	return wc.status;
}

/*
 * Posts a write and a zero-length read behind it: when the read completes, the bytes have arrived.
 */
static void expect_proof(struct pair *p, unsigned int rail, struct region *near, struct region *far,
			 int byte)
{
	memset(near->at, byte, near->len);
	assert_int_equal(post_operation(p, rail, IBV_WR_RDMA_WRITE, near, (uint32_t)near->len, far),
			 0);
	assert_int_equal(post_operation(p, rail, IBV_WR_RDMA_READ, near, 0, far), 0);
	assert_int_equal(next_status(p, rail), IBV_WC_SUCCESS);
	assert_memory_equal(near->at, far->at, near->len);
}

static void a_zero_length_read_proves_the_writes_before_it(void **state)
{
	struct pair *p = *state;
	struct region *near = near_region(p, 100000);
	struct region *far =
		far_region(p, 100000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	for (int i = 1; i < 50; i++)
		expect_proof(p, i % 2, near, far, i);
	drop_region(p, near);
	drop_region(p, far);
}

/* A region with remote write access alone answers a zero-length read, too. */
static void a_zero_length_read_needs_no_read_access(void **state)
{
	struct pair *p = *state;
	struct region *near = near_region(p, 100),
		      *far = far_region(p, 100, IBV_ACCESS_REMOTE_WRITE);

	expect_proof(p, 0, near, far, 1);
	drop_region(p, near);
	drop_region(p, far);
}

static void a_pair_ends_in_every_way_and_reconnects(void **state)
{
	struct pair *p = *state;
	struct region *near = near_region(p, 3000);
	struct region *far = far_region(p, 3000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	for (enum pair_end how = 0; how < END_WAYS; how++) {
		pair_end(p, 0, how);
		await(!pair_is_up(p, 0));
		pair_reconnect(p, 0);
		expect_proof(p, 0, near, far, how + 100);
		expect_proof(p, 1, near, far, how + 200);
	}
	drop_region(p, near);
	drop_region(p, far);
}

static void an_old_queue_pair_may_outlive_the_connection(void **state)
{
	struct pair *p = *state;
	struct region *near = near_region(p, 3000);
	struct region *far = far_region(p, 3000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	struct rdma_cm_id *old = pair_replace(p, 1);

	expect_proof(p, 1, near, far, 7);
	pair_discard(old);
	expect_proof(p, 1, near, far, 8);
	drop_region(p, near);
	drop_region(p, far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_zero_length_read_proves_the_writes_before_it),
		cmocka_unit_test(a_zero_length_read_needs_no_read_access),
		cmocka_unit_test(a_pair_ends_in_every_way_and_reconnects),
		cmocka_unit_test(an_old_queue_pair_may_outlive_the_connection),
	};

	return cmocka_run_group_tests(tests, open_pair, close_pair);
}
