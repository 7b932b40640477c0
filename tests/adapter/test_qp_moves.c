// SPDX-License-Identifier: BSD-2-Clause
/* test_qp_moves.c - which attributes each change of a queue pair's state needs and takes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "adapter/qp_moves.h"

#define PATH	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR	(IBV_QP_STATE | PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                     \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define ALL_BITS 21

static int check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int wrong;

	return qp_move_check(type, from, to, mask, &wrong);
}

static void an_rc_queue_pair_goes_to_rts_with_exactly_its_attributes(void **state)
{
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT), 0);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR), 0);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS), 0);
}

static void a_ud_queue_pair_needs_a_qkey_and_a_psn(void **state)
{
	assert_int_equal(check(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
			 0);
	assert_int_equal(check(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE), 0);
	assert_int_equal(check(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
	assert_int_equal(check(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT), -EINVAL);
}

static void a_uc_queue_pair_has_no_reads_and_no_retries(void **state)
{
	assert_int_equal(check(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE | PATH), 0);
	assert_int_equal(check(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR), -EINVAL);
	assert_int_equal(check(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
}

/* Takes away each bit that is needed, and adds each that does not belong there. */
static void check_every_bit(enum ibv_qp_state from, enum ibv_qp_state to, int required,
			    int optional)
{
	for (int i = 0; i < ALL_BITS; i++) {
		int bit = 1 << i, wrong;

		if (bit == IBV_QP_STATE)
			continue;
		if (required & bit)
			assert_int_equal(check(IBV_QPT_RC, from, to, required & ~bit), -EINVAL);
		else if (optional & bit)
			assert_int_equal(check(IBV_QPT_RC, from, to, required | bit), 0);
		else {
			assert_int_equal(
				qp_move_check(IBV_QPT_RC, from, to, required | bit, &wrong),
				-EINVAL);
			assert_int_equal(wrong, bit);
		}
	}
}

static void every_single_bit_counts(void **state)
{
	check_every_bit(IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT, 0);
	check_every_bit(IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR,
			IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX);
	check_every_bit(IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS,
			IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE);
	check_every_bit(IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

static void moves_backwards_are_refused(void **state)
{
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTR, TO_RTR), -EINVAL);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTR, TO_RTR), -EINVAL);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_INIT, TO_INIT), -EINVAL);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, TO_RTS), -EINVAL);
}

static void reset_and_err_are_reached_with_the_state_alone(void **state)
{
	static const enum ibv_qp_state from[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
						 IBV_QPS_SQD,  IBV_QPS_SQE, IBV_QPS_ERR};

	for (size_t i = 0; i < sizeof(from) / sizeof(*from); i++) {
		assert_int_equal(check(IBV_QPT_RC, from[i], IBV_QPS_RESET, IBV_QP_STATE), 0);
		assert_int_equal(check(IBV_QPT_RC, from[i], IBV_QPS_ERR, IBV_QP_STATE), 0);
		assert_int_equal(
			check(IBV_QPT_RC, from[i], IBV_QPS_ERR, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS),
			-EINVAL);
	}
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_ERR, IBV_QP_STATE), -EINVAL);
}

/* libfabric sets the RNR timer alone, in RTS. */
static void a_mask_without_a_state_is_judged_as_if_it_stayed(void **state)
{
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTR, IBV_QP_ACCESS_FLAGS), -EINVAL);
}

static void a_claimed_state_is_taken_from_rtr_on(void **state)
{
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_CUR_STATE), 0);
	assert_int_equal(check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT | IBV_QP_CUR_STATE),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_rc_queue_pair_goes_to_rts_with_exactly_its_attributes),
		cmocka_unit_test(a_ud_queue_pair_needs_a_qkey_and_a_psn),
		cmocka_unit_test(a_uc_queue_pair_has_no_reads_and_no_retries),
		cmocka_unit_test(every_single_bit_counts),
		cmocka_unit_test(moves_backwards_are_refused),
		cmocka_unit_test(reset_and_err_are_reached_with_the_state_alone),
		cmocka_unit_test(a_mask_without_a_state_is_judged_as_if_it_stayed),
		cmocka_unit_test(a_claimed_state_is_taken_from_rtr_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
