// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_stagdv.c - direct verbs: what the device and a connection say, what they
 * counted, and regions that a work request gives memory to.
 */
#include "pair.h"

#include <string.h>

#include "stag/stagdv.h"

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

static void the_device_is_known_by_its_pointer(void **state)
{
	struct pair *p = *state;
	struct ibv_device other = {.name = "stag0"};

	assert_true(stagdv_is_supported(p->ctx->device));
	assert_false(stagdv_is_supported(&other));
}

static void the_device_says_what_it_can(void **state)
{
	struct pair *p = *state;
	struct stagdv_device_attr attr;

	assert_int_equal(stagdv_query_device(p->ctx, &attr, sizeof(attr)), 0);
	assert_true(attr.abilities & STAGDV_ABILITY_MW);
	assert_true(attr.abilities & STAGDV_ABILITY_FAST_REG);
	assert_true(attr.abilities & STAGDV_ABILITY_GUARD);
	assert_true(attr.abilities & STAGDV_ABILITY_KEYED);
	assert_true(attr.abilities & STAGDV_ABILITY_LEASE);
	assert_true(attr.abilities & STAGDV_ABILITY_MIRROR);
	assert_int_not_equal(attr.version, 0);
	assert_int_equal(attr.max_ulpdu, MPA_MAX_ULPDU);
}

/* Older programs have a shorter structure, later ones a longer. */
static void no_more_than_the_callers_size_is_written(void **state)
{
	struct pair *p = *state;
	uint8_t bytes[sizeof(struct stagdv_device_attr) + 16];

	memset(bytes, 0xa5, sizeof(bytes));
	assert_int_equal(stagdv_query_device(p->ctx, (void *)bytes, 16), 0);
	for (size_t i = 16; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], 0xa5);
	assert_int_equal(stagdv_query_device(p->ctx, (void *)bytes, sizeof(bytes)), 0);
	for (size_t i = sizeof(struct stagdv_device_attr); i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], 0);
	assert_int_equal(stagdv_query_device(p->ctx, (void *)bytes, 4), EINVAL);
}

static void write_once(struct pair *p, uint32_t len)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a);

	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, p->mr->rkey, (uintptr_t)p->theirs);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, len);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_wc(p).status, IBV_WC_SUCCESS);
}

static void counters_count(void **state)
{
	struct pair *p = *state;
	struct stagdv_counters before, after, total;

	assert_int_equal(stagdv_query_qp_counters(p->a, &before, sizeof(before)), 0);
	write_once(p, 1000);
	assert_int_equal(stagdv_query_qp_counters(p->a, &after, sizeof(after)), 0);
	assert_int_equal(after.tx_msgs, before.tx_msgs + 1);
	assert_int_equal(after.tx_payload, before.tx_payload + 1000);
	assert_true(after.tx_bytes > before.tx_bytes + 1000);
	assert_true(after.tx_calls > before.tx_calls);
	assert_int_equal(stagdv_query_counters(p->ctx, &total, sizeof(total)), 0);
	assert_true(total.tx_payload >= after.tx_payload);
}

static void a_connection_says_what_it_agreed_on(void **state)
{
	struct pair *p = *state;
	struct stagdv_qp_attr attr;

	assert_int_equal(stagdv_query_qp(p->a, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.initiator, 1);
	assert_int_equal(attr.crc, 1);
	assert_int_equal(attr.ird, 16);
	assert_int_equal(attr.ord, 16);
	assert_int_equal(attr.stag_peer, 1);
	assert_true(attr.abilities & STAGDV_ABILITY_ATOMIC);
	assert_true(attr.mulpdu >= MPA_MIN_MULPDU);
	assert_int_equal(stagdv_query_qp(p->b, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.initiator, 0);
}

static void before_a_connection_there_is_nothing_to_say(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_init_attr init = {.send_cq = p->cq,
					.recv_cq = p->cq,
					.cap = {.max_send_wr = 1, .max_recv_wr = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(p->pd, &init);
	struct stagdv_qp_attr attr;

	assert_non_null(qp);
	assert_int_equal(stagdv_query_qp(qp, &attr, sizeof(attr)), ENOTCONN);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* A region without memory is given some by a work request, and loses it by another. */
static void a_fast_region_lives_by_work_requests(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *mr = stagdv_alloc_fast_mr(p->pd, 2);

	assert_non_null(mr);

	struct ibv_sge sges[] = {{(uintptr_t)p->theirs, 64, p->mr->lkey},
				 {(uintptr_t)p->theirs + 1024, 64, p->mr->lkey}};
	struct stagdv_fast_reg reg = {.wr_id = 5,
				      .mr = mr,
				      .sg_list = sges,
				      .num_sge = 2,
				      .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				      .iova = 0x10000,
				      .key = ibv_inc_rkey(mr->rkey),
				      .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(stagdv_post_fast_reg(p->b, &reg), 0);
	assert_int_equal(wait_wc(p).status, IBV_WC_SUCCESS);
	assert_int_equal(mr->rkey, reg.key);

	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a);

	memset(p->mine, 0x5a, 128);
	ibv_wr_start(ex);
	ex->wr_id = 6;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, mr->rkey, 0x10000);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine, 128);
	/* and a read of the last byte, so that the write is known to have landed */
	ibv_wr_rdma_read(ex, p->mr->rkey, (uintptr_t)p->theirs + 1024 + 63);
	ibv_wr_set_sge(ex, p->mr->lkey, (uintptr_t)p->mine + 256, 1);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_wc(p).status, IBV_WC_SUCCESS);
	assert_int_equal(wait_wc(p).status, IBV_WC_SUCCESS);
	assert_memory_equal(p->theirs, p->mine, 64);
	assert_memory_equal(p->theirs + 1024, p->mine, 64);
	assert_int_equal(p->theirs[64], 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void fast_regions_have_limits(void **state)
{
	struct pair *p = *state;
	struct stagdv_fast_reg reg = {.wr_id = 1};

	errno = 0;
	assert_null(stagdv_alloc_fast_mr(p->pd, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(stagdv_alloc_fast_mr(p->pd, STAG_FAST_MR_SGE + 1));
	assert_int_equal(stagdv_post_fast_reg(p->a, &reg), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_device_is_known_by_its_pointer, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(the_device_says_what_it_can, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(no_more_than_the_callers_size_is_written,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(counters_count, connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_connection_says_what_it_agreed_on, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(before_a_connection_there_is_nothing_to_say,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_fast_region_lives_by_work_requests, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(fast_regions_have_limits, connect_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
