// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_cq_ex.c - extended completion queues, filled by the test.
 */
#include "pair.h"

#include <time.h>

#include "base/clock.h"

static int open_device(void **state)
{
	*state = open_stag();
	return 0;
}

static int close_device(void **state)
{
	return ibv_close_device(*state);
}

static struct ibv_cq_ex *new_cq(struct ibv_context *ctx, uint64_t wc_flags, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16,
					   .wc_flags = wc_flags,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = flags};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	assert_non_null(cq);
	return cq;
}

static void push(struct ibv_cq_ex *cq, uint64_t wr_id)
{
	struct ibv_wc wc = {.wr_id = wr_id,
			    .status = IBV_WC_SUCCESS,
			    .opcode = IBV_WC_RECV,
			    .byte_len = 100 + (uint32_t)wr_id,
			    .imm_data = 0x01020304,
			    .qp_num = 77,
			    .src_qp = 0,
			    .wc_flags = IBV_WC_WITH_IMM};

	cq_push(to_stag_cq(ibv_cq_ex_to_cq(cq)), &wc, false);
}

static void expect_entry(struct ibv_cq_ex *cq, uint64_t wr_id)
{
	assert_int_equal(cq->wr_id, wr_id);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(cq), 100 + wr_id);
	assert_int_equal(ibv_wc_read_imm_data(cq), 0x01020304);
	assert_int_equal(ibv_wc_read_qp_num(cq), 77);
	assert_int_equal(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_IMM);
	assert_int_equal(ibv_wc_read_vendor_err(cq), 0);
	assert_int_equal(ibv_wc_read_src_qp(cq), 0);
	assert_int_equal(ibv_wc_read_slid(cq), 0);
	assert_int_equal(ibv_wc_read_sl(cq), 0);
	assert_int_equal(ibv_wc_read_dlid_path_bits(cq), 0);
}

static void poll_entries(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {0};

	assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
	push(cq, 1);
	push(cq, 2);
	assert_int_equal(ibv_start_poll(cq, &attr), 0);
	expect_entry(cq, 1);
	assert_int_equal(ibv_next_poll(cq), 0);
	expect_entry(cq, 2);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
	attr.comp_mask = 1;
	assert_int_equal(ibv_start_poll(cq, &attr), EINVAL);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void entries_are_read_one_by_one(void **state)
{
	poll_entries(new_cq(*state, IBV_WC_STANDARD_FLAGS, 0));
}

static void single_threaded_cq_entries_are_read_one_by_one(void **state)
{
	poll_entries(new_cq(*state, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED));
}

/* A program may mix ibv_poll_cq() and ibv_start_poll(). */
static void poll_cq_and_start_poll_share_one_queue(void **state)
{
	struct ibv_cq_ex *cq = new_cq(*state, IBV_WC_STANDARD_FLAGS, 0);
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc wc;

	push(cq, 1);
	push(cq, 2);
	assert_int_equal(ibv_start_poll(cq, &attr), 0);
	ibv_end_poll(cq);
	assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc), 1);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static uint64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void timestamps_are_taken_at_completion(void **state)
{
	struct ibv_cq_ex *cq = new_cq(
		*state,
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
		0);
	struct ibv_poll_cq_attr attr = {0};
	uint64_t before = clock_ns(), wall_before = wall_ns();

	push(cq, 1);

	uint64_t after = clock_ns(), wall_after = wall_ns();

	assert_int_equal(ibv_start_poll(cq, &attr), 0);
	assert_in_range(ibv_wc_read_completion_ts(cq), before, after);
	assert_in_range(ibv_wc_read_completion_wallclock_ns(cq), wall_before, wall_after);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void fields_of_other_transports_are_refused(void **state)
{
	static const uint64_t fields[] = {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
					  IBV_WC_EX_WITH_TM_INFO, 1ull << 40};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct ibv_cq_init_attr_ex attr = {.cqe = 1, .wc_flags = fields[i]};

		errno = 0;
		assert_null(ibv_create_cq_ex(*state, &attr));
		assert_int_equal(errno, EOPNOTSUPP);
	}
}

static void unknown_flags_are_refused(void **state)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1 << 9};

	errno = 0;
	assert_null(ibv_create_cq_ex(*state, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.flags = 0;
	attr.comp_mask = 1 << 9;
	assert_null(ibv_create_cq_ex(*state, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_read_one_by_one),
		cmocka_unit_test(single_threaded_cq_entries_are_read_one_by_one),
		cmocka_unit_test(poll_cq_and_start_poll_share_one_queue),
		cmocka_unit_test(timestamps_are_taken_at_completion),
		cmocka_unit_test(fields_of_other_transports_are_refused),
		cmocka_unit_test(unknown_flags_are_refused),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
