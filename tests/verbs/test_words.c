// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_words.c - names of statuses and events, and rates. The rates are compared with those of the
 * installed library.
 */
#include "pair.h"

#include <dlfcn.h>
#include <string.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

static void *real_function(const char *name, const char *version)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

	return lib ? dlvsym(lib, name, version) : NULL;
}

static void rates_equal_those_of_rdma_core(void **state)
{
	int (*to_mult)(enum ibv_rate) = real_function("ibv_rate_to_mult", "IBVERBS_1.0");
	enum ibv_rate (*from_mult)(int) = real_function("mult_to_ibv_rate", "IBVERBS_1.0");
	int (*to_mbps)(enum ibv_rate) = real_function("ibv_rate_to_mbps", "IBVERBS_1.1");
	enum ibv_rate (*from_mbps)(int) = real_function("mbps_to_ibv_rate", "IBVERBS_1.1");

	if (!to_mult || !from_mult || !to_mbps || !from_mbps)
		skip();
	assert_true(to_mult != ibv_rate_to_mult);
	for (int rate = -1; rate < 30; rate++) {
		assert_int_equal(ibv_rate_to_mult(rate), to_mult(rate));
		assert_int_equal(ibv_rate_to_mbps(rate), to_mbps(rate));
		assert_int_equal(mbps_to_ibv_rate(to_mbps(rate)), from_mbps(to_mbps(rate)));
	}
	for (int mult = -1; mult < 500; mult++)
		assert_int_equal(mult_to_ibv_rate(mult), from_mult(mult));
}

static void every_status_has_its_own_name(void **state)
{
	for (int i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++) {
		assert_string_not_equal(ibv_wc_status_str(i), "unknown");
		for (int j = IBV_WC_SUCCESS; j < i; j++)
			assert_string_not_equal(ibv_wc_status_str(i), ibv_wc_status_str(j));
	}
}

static void every_event_has_its_own_name(void **state)
{
	for (int i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL; i++) {
		assert_string_not_equal(ibv_event_type_str(i), "unknown");
		for (int j = IBV_EVENT_CQ_ERR; j < i; j++)
			assert_string_not_equal(ibv_event_type_str(i), ibv_event_type_str(j));
	}
}

static void numbers_beyond_the_tables_are_unknown(void **state)
{
	assert_string_equal(ibv_wc_status_str(1000), "unknown");
	assert_string_equal(ibv_wc_status_str(-1), "unknown");
	assert_string_equal(ibv_event_type_str(1000), "unknown");
	assert_string_equal(ibv_port_state_str(1000), "unknown");
	assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	assert_string_equal(ibv_node_type_str(0), "unknown");
	assert_string_not_equal(ibv_node_type_str(IBV_NODE_RNIC), "unknown");
	assert_string_not_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "unknown");
}

/* Fills a structure with bytes that all differ from their neighbours. */
static void fill(void *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)at)[i] = (uint8_t)(i * 7 + 3);
}

static void path_records_survive_a_round_trip(void **state)
{
	struct ib_user_path_rec kern, again;
	struct ibv_sa_path_rec rec;

	fill(&kern, sizeof(kern));
	kern.mtu = 4; /* wider in the kernel's record than in ours */
	memset(&again, 0, sizeof(again));
	ibv_copy_path_rec_from_kern(&rec, &kern);
	ibv_copy_path_rec_to_kern(&again, &rec);
	assert_memory_equal(&again, &kern, sizeof(kern));
}

static void queue_pair_attributes_are_copied_as_rdma_core_does(void **state)
{
	void (*real_copy)(struct ibv_qp_attr *, struct ib_uverbs_qp_attr *) =
		real_function("ibv_copy_qp_attr_from_kern", "IBVERBS_1.0");
	struct ib_uverbs_qp_attr kern;
	struct ibv_qp_attr ours, theirs;

	if (!real_copy)
		skip();
	fill(&kern, sizeof(kern));
	memset(&ours, 0, sizeof(ours));
	memset(&theirs, 0, sizeof(theirs));
	ibv_copy_qp_attr_from_kern(&ours, &kern);
	real_copy(&theirs, &kern);
	assert_memory_equal(&ours, &theirs, sizeof(ours));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_equal_those_of_rdma_core),
		cmocka_unit_test(every_status_has_its_own_name),
		cmocka_unit_test(every_event_has_its_own_name),
		cmocka_unit_test(numbers_beyond_the_tables_are_unknown),
		cmocka_unit_test(path_records_survive_a_round_trip),
		cmocka_unit_test(queue_pair_attributes_are_copied_as_rdma_core_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
