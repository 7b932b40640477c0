// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_stagdv.c - direct verbs: attributes and counters of the device and of a connection, and fast
 * regions, to which a work request gives memory.
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

static void device_is_recognized_by_its_pointer(void **state)
{
	struct pair *p = *state;
	struct ibv_device other = {.name = "stag0"};

	assert_true(stagdv_is_supported(p->ctx->device));
	assert_false(stagdv_is_supported(&other));
}

static void device_reports_its_capabilities(void **state)
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

/* Older programs have a shorter structure, later ones a longer one. */
static void query_writes_no_more_than_the_callers_size(void **state)
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

static void counters_count_traffic(void **state)
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

static void query_qp_reports_the_negotiated_parameters(void **state)
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

static void query_qp_before_a_connection_is_refused(void **state)
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

/* A fast region gets its memory by a work request, and loses it by another. */
static void fast_region_is_registered_and_invalidated_by_work_requests(void **state)
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
	/* a read of the last byte: when it completes, the write has been placed */
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

static void fast_regions_beyond_the_limits_are_refused(void **state)
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
		cmocka_unit_test_setup_teardown(device_is_recognized_by_its_pointer, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(device_reports_its_capabilities, connect_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(query_writes_no_more_than_the_callers_size,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(counters_count_traffic, connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(query_qp_reports_the_negotiated_parameters,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(query_qp_before_a_connection_is_refused,
						connect_pair, close_pair),
		cmocka_unit_test_setup_teardown(
			fast_region_is_registered_and_invalidated_by_work_requests, connect_pair,
			close_pair),
		cmocka_unit_test_setup_teardown(fast_regions_beyond_the_limits_are_refused,
						connect_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
