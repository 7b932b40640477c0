// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_ports.c - how many queue pairs roce0 has with STAG_PORTS; the argument is the expected number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "verbs/verbs.h"

static int expected;

static struct ibv_context *open_device(void)
{
	struct ibv_context *ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv);

	assert_non_null(ctx);
	return ctx;
}

static void max_qp_is_what_the_ports_have_numbers_for(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_device_attr a;

	assert_int_equal(ibv_query_device(ctx, &a), 0);
	assert_int_equal(a.max_qp, expected);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void so_many_queue_pairs_can_be_made(void **state)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp[256];
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int n = 0;

	if (expected >= 256)
		skip(); /* that would take too long */
	ctx = open_device();
	pd = ibv_alloc_pd(ctx);
	cq = init.send_cq = init.recv_cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	while (n < 256 && (qp[n] = ibv_create_qp(pd, &init)))
		n++;
	for (int i = 0; i < n; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	if (!n)
		skip(); /* another process has the port */
	assert_int_equal(n, expected);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(max_qp_is_what_the_ports_have_numbers_for),
		cmocka_unit_test(so_many_queue_pairs_can_be_made),
	};

	expected = argc > 1 ? atoi(argv[1]) : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
