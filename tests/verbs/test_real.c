// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_real.c - calls on objects of another device reach the real library. fake/ibverbs.c, found as
 * libibverbs.so.1, stands in for it.
 */
#include "pair.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct ibv_device fake_device = {.name = "fake0"};
static struct ibv_context ctx = {.device = &fake_device};
static struct ibv_pd pd = {.context = &ctx};
static struct ibv_mr mr = {.context = &ctx};
static struct ibv_cq cq = {.context = &ctx};
static struct ibv_comp_channel channel = {.context = &ctx};
static struct ibv_srq srq = {.context = &ctx};
static struct ibv_qp qp = {.context = &ctx};
static struct ibv_ah ah = {.context = &ctx};
static struct ibv_dm dm = {.context = &ctx};

static const char **called;

static int find_fake(void **state)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	called = lib ? dlsym(lib, "fake_called") : NULL;
	if (!called)
		return -1; /* rdma-core's library was loaded: LD_LIBRARY_PATH is not set */
	((void **)dlsym(lib, "fake_device_list"))[0] = &fake_device;
	return 0;
}

/* Expects the call to reach the function of the same name, and its result to be returned. */
#define passes_on(name, call)                                                                      \
	do {                                                                                       \
		*called = NULL;                                                                    \
		assert_int_equal((int)(intptr_t)(call), 42);                                       \
		assert_non_null(*called);                                                          \
		assert_string_equal(*called, #name);                                               \
	} while (0)

#define passes_on_void(name, call)                                                                 \
	do {                                                                                       \
		*called = NULL;                                                                    \
		call;                                                                              \
		assert_non_null(*called);                                                          \
		assert_string_equal(*called, #name);                                               \
	} while (0)

static void real_devices_come_first_in_the_list(void **state)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_int_equal(n, 2);
	assert_ptr_equal(list[0], &fake_device);
	assert_string_equal(list[1]->name, "stag0");
	assert_null(list[2]);
	passes_on_void(ibv_free_device_list, ibv_free_device_list(list));
}

static void device_calls_reach_the_real_library(void **state)
{
	assert_string_equal(ibv_get_device_name(&fake_device), "fake0");
	passes_on(ibv_get_device_index, ibv_get_device_index(&fake_device));
	passes_on(ibv_get_device_guid, ibv_get_device_guid(&fake_device));
	passes_on(ibv_open_device, ibv_open_device(&fake_device));
	passes_on(ibv_close_device, ibv_close_device(&ctx));
}

static void import_calls_reach_the_real_library(void **state)
{
	passes_on(ibv_import_pd, ibv_import_pd(&ctx, 1));
	passes_on(ibv_import_mr, ibv_import_mr(&pd, 1));
	passes_on(ibv_import_dm, ibv_import_dm(&ctx, 1));
	passes_on_void(ibv_unimport_pd, ibv_unimport_pd(&pd));
	passes_on_void(ibv_unimport_mr, ibv_unimport_mr(&mr));
	passes_on_void(ibv_unimport_dm, ibv_unimport_dm(&dm));
}

/*
 * The real function reads behind every device of the list that it gets, so stag0 is not in that
 * list.
 */
static void import_by_the_real_library_does_not_see_stag0(void **state)
{
	int fd = open("/dev/zero", O_RDONLY);

	assert_ptr_equal(ibv_import_device(fd), (struct ibv_context *)&fake_device);
	close(fd);
}

static void query_calls_reach_the_real_library(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;
	int type;

	passes_on(ibv_query_device, ibv_query_device(&ctx, &attr));
	passes_on(ibv_query_port, (ibv_query_port)(&ctx, 1, NULL));
	passes_on(ibv_query_gid, ibv_query_gid(&ctx, 1, 0, &gid));
	passes_on(ibv_query_gid_type, ibv_query_gid_type(&ctx, 1, 0, &type));
	passes_on(_ibv_query_gid_ex, ibv_query_gid_ex(&ctx, 1, 0, &entry, 0));
	passes_on(_ibv_query_gid_table, ibv_query_gid_table(&ctx, &entry, 1, 0));
	passes_on(ibv_query_pkey, ibv_query_pkey(&ctx, 1, 0, &pkey));
	passes_on(ibv_get_pkey_index, ibv_get_pkey_index(&ctx, 1, 0xffff));
}

static void memory_calls_reach_the_real_library(void **state)
{
	passes_on(ibv_alloc_pd, ibv_alloc_pd(&ctx));
	passes_on(ibv_dealloc_pd, ibv_dealloc_pd(&pd));
	passes_on(ibv_reg_mr, (ibv_reg_mr)(&pd, NULL, 0, 0));
	passes_on(ibv_reg_mr_iova, (ibv_reg_mr_iova)(&pd, NULL, 0, 0, 0));
	passes_on(ibv_reg_mr_iova2, ibv_reg_mr_iova2(&pd, NULL, 0, 0, 0));
	passes_on(ibv_reg_dmabuf_mr, ibv_reg_dmabuf_mr(&pd, 0, 0, 0, 0, 0));
	passes_on(ibv_rereg_mr, ibv_rereg_mr(&mr, 0, NULL, NULL, 0, 0));
	passes_on(ibv_dereg_mr, ibv_dereg_mr(&mr));
}

static void completion_calls_reach_the_real_library(void **state)
{
	struct ibv_async_event event;
	struct ibv_cq *got;
	void *context;

	passes_on(ibv_create_comp_channel, ibv_create_comp_channel(&ctx));
	passes_on(ibv_destroy_comp_channel, ibv_destroy_comp_channel(&channel));
	passes_on(ibv_create_cq, ibv_create_cq(&ctx, 0, NULL, NULL, 0));
	passes_on(ibv_resize_cq, ibv_resize_cq(&cq, 0));
	passes_on(ibv_destroy_cq, ibv_destroy_cq(&cq));
	passes_on(ibv_get_cq_event, ibv_get_cq_event(&channel, &got, &context));
	passes_on_void(ibv_ack_cq_events, ibv_ack_cq_events(&cq, 1));
	passes_on(ibv_get_async_event, ibv_get_async_event(&ctx, &event));
}

static void queue_calls_reach_the_real_library(void **state)
{
	passes_on(ibv_create_srq, ibv_create_srq(&pd, NULL));
	passes_on(ibv_modify_srq, ibv_modify_srq(&srq, NULL, 0));
	passes_on(ibv_query_srq, ibv_query_srq(&srq, NULL));
	passes_on(ibv_destroy_srq, ibv_destroy_srq(&srq));
	passes_on(ibv_create_qp, ibv_create_qp(&pd, NULL));
	passes_on(ibv_qp_to_qp_ex, ibv_qp_to_qp_ex(&qp));
	passes_on(ibv_modify_qp, ibv_modify_qp(&qp, NULL, 0));
	passes_on(ibv_query_qp, ibv_query_qp(&qp, NULL, 0, NULL));
	passes_on(ibv_query_qp_data_in_order, ibv_query_qp_data_in_order(&qp, IBV_WR_SEND, 0));
	passes_on(ibv_set_ece, ibv_set_ece(&qp, NULL));
	passes_on(ibv_query_ece, ibv_query_ece(&qp, NULL));
	passes_on(ibv_destroy_qp, ibv_destroy_qp(&qp));
}

static void datagram_calls_reach_the_real_library(void **state)
{
	uint8_t mac[6];
	uint16_t vid;

	passes_on(ibv_create_ah, ibv_create_ah(&pd, NULL));
	passes_on(ibv_create_ah_from_wc, ibv_create_ah_from_wc(&pd, NULL, NULL, 1));
	passes_on(ibv_init_ah_from_wc, ibv_init_ah_from_wc(&ctx, 1, NULL, NULL, NULL));
	passes_on(ibv_destroy_ah, ibv_destroy_ah(&ah));
	passes_on(ibv_attach_mcast, ibv_attach_mcast(&qp, NULL, 0));
	passes_on(ibv_detach_mcast, ibv_detach_mcast(&qp, NULL, 0));
	passes_on(ibv_resolve_eth_l2_from_gid, ibv_resolve_eth_l2_from_gid(&ctx, NULL, mac, &vid));
}

static void newer_calls_reach_the_real_library(void **state)
{
	struct ibv_comp_cntr *counter = (void *)&ctx;
	struct ibv_dmah *dmah = (void *)&ctx;
	struct ibv_buf *buf = (void *)&ctx;
	uint64_t n;

	passes_on(ibv_alloc_dmah, ibv_alloc_dmah(&ctx, NULL));
	passes_on(ibv_dealloc_dmah, ibv_dealloc_dmah(dmah));
	passes_on(ibv_reg_mr_ex, ibv_reg_mr_ex(&pd, NULL));
	passes_on(ibv_dm_export_dmabuf_fd, ibv_dm_export_dmabuf_fd(&dm));
	passes_on(ibv_query_port_speed, ibv_query_port_speed(&ctx, 1, &n));
	passes_on(ibv_alloc_buf, ibv_alloc_buf(&pd, 1, &buf));
	passes_on_void(ibv_free_buf, ibv_free_buf(buf));
	passes_on(ibv_reg_buf_mr, ibv_reg_buf_mr(&pd, buf, NULL, 0, 0));
	passes_on(ibv_export_buf_dmabuf_fd, ibv_export_buf_dmabuf_fd(buf));
	passes_on(_ibv_query_comp_cntr_caps, _ibv_query_comp_cntr_caps(&ctx, NULL, 0));
	passes_on(ibv_create_comp_cntr, ibv_create_comp_cntr(&ctx, NULL));
	passes_on(ibv_destroy_comp_cntr, ibv_destroy_comp_cntr(counter));
	passes_on(ibv_set_comp_cntr, ibv_set_comp_cntr(counter, 1));
	passes_on(ibv_set_err_comp_cntr, ibv_set_err_comp_cntr(counter, 1));
	passes_on(ibv_inc_comp_cntr, ibv_inc_comp_cntr(counter, 1));
	passes_on(ibv_inc_err_comp_cntr, ibv_inc_err_comp_cntr(counter, 1));
	passes_on(ibv_read_comp_cntr, ibv_read_comp_cntr(counter, &n));
	passes_on(ibv_read_err_comp_cntr, ibv_read_err_comp_cntr(counter, &n));
	passes_on(ibv_qp_attach_comp_cntr, ibv_qp_attach_comp_cntr(&qp, counter, NULL));
}

/* A real device's memory is pinned, so its library handles fork. */
static void fork_calls_reach_the_real_library(void **state)
{
	assert_true(real_devices_exist());
	passes_on(ibv_fork_init, ibv_fork_init());
	passes_on(ibv_is_fork_initialized, ibv_is_fork_initialized());
	passes_on(ibv_dontfork_range, ibv_dontfork_range(NULL, 0));
	passes_on(ibv_dofork_range, ibv_dofork_range(NULL, 0));
	passes_on_void(ibv_register_driver, ibv_register_driver("old", NULL));
}

/* stag0 works beside the real device, and none of its calls reach the real library. */
static void calls_on_stag0_do_not_reach_the_real_library(void **state)
{
	struct ibv_context *stag = open_stag();

	*called = NULL;

	struct ibv_pd *domain = ibv_alloc_pd(stag);

	assert_non_null(domain);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_close_device(stag), 0);
	assert_null(*called);
}

/* A queue pair of stag0 with a CQ of another device, and the like, is refused. */
static void objects_of_two_devices_cannot_be_combined(void **state)
{
	struct ibv_context *stag = open_stag();
	struct ibv_pd *domain = ibv_alloc_pd(stag);
	struct ibv_qp_init_attr attr = {.send_cq = &cq,
					.recv_cq = &cq,
					.cap = {.max_send_wr = 1, .max_recv_wr = 1},
					.qp_type = IBV_QPT_RC};

	errno = 0;
	assert_null(ibv_create_qp(domain, &attr));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(ibv_create_cq(stag, 1, NULL, &channel, 0));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_close_device(stag), 0);
}

static void stagdv_refuses_real_devices(void **state)
{
	struct stagdv_device_attr attr;
	struct stagdv_counters counters;
	struct stagdv_fast_reg reg = {.wr_id = 1};
	struct stagdv_guard guard = {.word = &reg.comp_mask};
	struct stagdv_mirror mirror = {.qp = &qp};
	uint32_t key;

	assert_false(stagdv_is_supported(&fake_device));
	assert_int_equal(stagdv_query_device(&ctx, &attr, sizeof(attr)), EOPNOTSUPP);
	assert_int_equal(stagdv_query_counters(&ctx, &counters, sizeof(counters)), EOPNOTSUPP);
	assert_int_equal(stagdv_query_qp_counters(&qp, &counters, sizeof(counters)), EOPNOTSUPP);
	errno = 0;
	assert_null(stagdv_reg_guarded_mr(&pd, &reg, sizeof(reg), 0, &guard));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(stagdv_alloc_fast_mr(&pd, 1));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(stagdv_post_fast_reg(&qp, &reg), EOPNOTSUPP);
	errno = 0;
	assert_null(stagdv_reg_mr_keyed(&pd, &reg, sizeof(reg), 0, 1u << 8));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(stagdv_choose_key(&ctx, &key), EOPNOTSUPP);
	assert_int_equal(stagdv_set_mr_lease(&mr, 1), EOPNOTSUPP);
	assert_int_equal(stagdv_mirror_mr(&mr, &mirror), EOPNOTSUPP);
	assert_int_equal(stagdv_unmirror_mr(&mr, &qp), EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_devices_come_first_in_the_list),
		cmocka_unit_test(device_calls_reach_the_real_library),
		cmocka_unit_test(import_calls_reach_the_real_library),
		cmocka_unit_test(import_by_the_real_library_does_not_see_stag0),
		cmocka_unit_test(query_calls_reach_the_real_library),
		cmocka_unit_test(memory_calls_reach_the_real_library),
		cmocka_unit_test(completion_calls_reach_the_real_library),
		cmocka_unit_test(queue_calls_reach_the_real_library),
		cmocka_unit_test(datagram_calls_reach_the_real_library),
		cmocka_unit_test(newer_calls_reach_the_real_library),
		cmocka_unit_test(fork_calls_reach_the_real_library),
		cmocka_unit_test(calls_on_stag0_do_not_reach_the_real_library),
		cmocka_unit_test(objects_of_two_devices_cannot_be_combined),
		cmocka_unit_test(stagdv_refuses_real_devices),
	};

	return cmocka_run_group_tests(tests, find_fake, NULL);
}
