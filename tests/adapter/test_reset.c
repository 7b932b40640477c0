// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_reset.c - queue pairs that are reset while connected or connecting.
 */
#include <errno.h>

#include "side.h"

static void reset_qp(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

/* The connection of a reset queue pair ends, and both sides are notified. */
static void reset_of_a_queue_pair_disconnects(void **state)
{
	struct pair p;

	pair_open(&p, NULL, NULL);
	reset_qp(&p.a);
	expect_disconnected(&p.a);
	expect_disconnected(&p.b);
	pair_close(&p);
}

/* rdma_accept() on a queue pair that was reset fails; a second attempt fails with EINVAL. */
static void accept_on_a_reset_queue_pair_fails_each_time(void **state)
{
	struct side a, b;

	side_listen(&b, NULL);
	side_resolve(&a, NULL, side_port(&b));
	side_connect(&a);
	side_take_request(&b);
	reset_qp(&b);
	assert_int_equal(side_accept(&b), -1);
	assert_int_equal(side_accept(&b), -1);
	assert_int_equal(errno, EINVAL);
	side_close(&b);
	side_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reset_of_a_queue_pair_disconnects),
		cmocka_unit_test(accept_on_a_reset_queue_pair_fails_each_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
