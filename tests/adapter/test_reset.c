// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_reset.c - queue pairs that are reset, in the middle of something.
 */
#include <errno.h>

#include "side.h"

static void reset(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

/* Its connection ends, and both sides are told. */
static void a_reset_ends_the_connection(void **state)
{
	struct pair p;

	pair_open(&p, NULL, NULL);
	reset(&p.a);
	expect_disconnected(&p.a);
	expect_disconnected(&p.b);
	pair_close(&p);
}

/*
 * The reset queue pair does not take the connection; a second attempt is an error, and nothing
 * worse.
 */
static void accepting_on_a_reset_one_fails_twice(void **state)
{
	struct side a, b;

	side_listen(&b, NULL);
	side_resolve(&a, NULL, side_port(&b));
	side_connect(&a);
	side_take_request(&b);
	reset(&b);
	assert_int_equal(side_accept(&b), -1);
	assert_int_equal(side_accept(&b), -1);
	assert_int_equal(errno, EINVAL);
	side_close(&b);
	side_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reset_ends_the_connection),
		cmocka_unit_test(accepting_on_a_reset_one_fails_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
