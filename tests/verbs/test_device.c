// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_device.c - finding, opening and querying the device.
 */
#include "pair.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int open_device(void **state)
{
	*state = open_stag();
	return 0;
}

static int close_device(void **state)
{
	return ibv_close_device(*state);
}

static void device_list_ends_with_null_and_is_counted(void **state)
{
	int n = -1, seen = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_non_null(list);
	while (list[seen])
		seen++;
	assert_int_equal(seen, n);
	assert_non_null(find_stag(list));
	ibv_free_device_list(list);
}

static void device_list_needs_no_count_argument(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(find_stag(list));
	ibv_free_device_list(list);
}

/* ibv_get_device_list() allocates a new list each time: two lists exist side by side. */
static void two_device_lists_are_independent(void **state)
{
	struct ibv_device **one = ibv_get_device_list(NULL);
	struct ibv_device **two = ibv_get_device_list(NULL);

	assert_ptr_not_equal(one, two);
	ibv_free_device_list(one);
	assert_non_null(find_stag(two));
	ibv_free_device_list(two);
}

static void guid_equals_the_guid_of_the_attributes(void **state)
{
	struct ibv_context *ctx = *state;
	struct ibv_device_attr attr;

	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_true(attr.node_guid != 0);
	assert_true(ibv_get_device_guid(ctx->device) == attr.node_guid);
}

static void device_has_no_kernel_index(void **state)
{
	struct ibv_context *ctx = *state;

	assert_int_equal(ibv_get_device_index(ctx->device), -1);
}

static void each_open_is_a_context_of_its_own(void **state)
{
	struct ibv_context *ctx = *state, *other = open_stag();

	assert_ptr_not_equal(ctx, other);
	assert_ptr_equal(ctx->device, other->device);
	assert_int_not_equal(ctx->async_fd, other->async_fd);
	assert_int_equal(ibv_close_device(other), 0);
}

/* tgtd and librdmacm compare the contexts of ids by pointer. */
static void shared_context_is_one_and_outlives_close(void **state)
{
	struct ibv_context *shared = stag_shared_context(FACE_IWARP);

	assert_non_null(shared);
	assert_int_equal(ibv_close_device(shared), 0);
	assert_ptr_equal(stag_shared_context(FACE_IWARP), shared);
	assert_ptr_equal(shared->device, ((struct ibv_context *)*state)->device);
}

/* The objects stay usable: a context is freed with the last object that uses it. */
static void closing_a_context_keeps_its_objects_usable(void **state)
{
	struct ibv_context *ctx = open_stag();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_wc wc;

	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void the_port_is_up_and_ethernet(void **state)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port((struct ibv_context *)*state, 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_in_range(attr.active_mtu, IBV_MTU_256, IBV_MTU_4096);
	assert_true(attr.gid_tbl_len >= 1);
}

static void there_is_no_port_0_or_2(void **state)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port((struct ibv_context *)*state, 0, &attr), EINVAL);
	assert_int_equal(ibv_query_port((struct ibv_context *)*state, 2, &attr), EINVAL);
}

static void reported_limits_equal_the_enforced_ones(void **state)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(*state, NULL, &attr), 0);
	assert_int_equal(attr.orig_attr.max_qp_wr, STAG_MAX_QP_WR);
	assert_int_equal(attr.orig_attr.max_sge, STAG_MAX_SGE);
	assert_int_equal(attr.orig_attr.max_cqe, STAG_MAX_CQE);
	assert_int_equal(attr.orig_attr.max_srq_wr, STAG_MAX_SRQ_WR);
	assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
	assert_true(attr.orig_attr.max_qp_rd_atom >= 1);
}

static void all_gid_queries_agree(void **state)
{
	struct ibv_gid_entry entry, table[4];
	union ibv_gid gid;
	int type = -1;

	assert_int_equal(ibv_query_gid(*state, 1, 0, &gid), 0);
	assert_int_equal(ibv_query_gid_ex(*state, 1, 0, &entry, 0), 0);
	assert_memory_equal(&entry.gid, &gid, sizeof(gid));
	assert_int_equal(entry.port_num, 1);
	assert_int_equal(ibv_query_gid_table(*state, table, 4, 0), STAG_GID_COUNT);
	assert_memory_equal(&table[0], &entry, sizeof(entry));
	assert_int_equal(ibv_query_gid_type(*state, 1, 0, &type), 0);
	assert_int_equal(type, 0);
}

static void a_gid_beyond_the_table_is_refused(void **state)
{
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	errno = 0;
	assert_int_equal(ibv_query_gid(*state, 1, STAG_GID_COUNT, &gid), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_query_gid(*state, 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(*state, 1, STAG_GID_COUNT, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(*state, 1, 0, &entry, 1), EOPNOTSUPP);
	assert_int_equal(ibv_query_gid_table(*state, &entry, 0, 0), -EINVAL);
}

static void the_pkey_is_the_default_one(void **state)
{
	__be16 pkey = 0;

	assert_int_equal(ibv_query_pkey(*state, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_get_pkey_index(*state, 1, pkey), 0);
	assert_int_equal(ibv_query_pkey(*state, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(*state, 1, 0x1234), -1);
}

static void raw_clock_does_not_go_backwards(void **state)
{
	struct ibv_values_ex one = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, two = one;

	assert_int_equal(ibv_query_rt_values_ex(*state, &one), 0);
	assert_int_equal(ibv_query_rt_values_ex(*state, &two), 0);
	assert_int_equal(one.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	assert_true(two.raw_clock.tv_nsec >= one.raw_clock.tv_nsec);
}

/*
 * The real library reads behind each device of the list to find the one that belongs to this file
 * descriptor.
 */
static void a_context_cannot_be_imported(void **state)
{
	struct ibv_context *ctx = *state;
	int other = open("/dev/zero", O_RDONLY);

	errno = 0;
	assert_null(ibv_import_device(ctx->cmd_fd));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_import_device(other));
	close(other);
}

/* libfabric gives up a device whose library cannot make fork safe. */
static void fork_is_safe_without_doing_anything(void **state)
{
	if (real_devices_exist())
		skip();
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void sysfs_value_has_no_newline(void **state)
{
	char buf[16], small[2];

	assert_string_equal(ibv_get_sysfs_path(), "/sys");
	assert_int_equal(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", buf, sizeof(buf)), 5);
	assert_string_equal(buf, "Linux");
	assert_int_equal(ibv_read_sysfs_file("/proc/sys/kernel", "none", buf, sizeof(buf)), -1);
	assert_int_equal(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", small, sizeof(small)),
			 -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_list_ends_with_null_and_is_counted),
		cmocka_unit_test(device_list_needs_no_count_argument),
		cmocka_unit_test(two_device_lists_are_independent),
		cmocka_unit_test(guid_equals_the_guid_of_the_attributes),
		cmocka_unit_test(device_has_no_kernel_index),
		cmocka_unit_test(each_open_is_a_context_of_its_own),
		cmocka_unit_test(shared_context_is_one_and_outlives_close),
		cmocka_unit_test(closing_a_context_keeps_its_objects_usable),
		cmocka_unit_test(the_port_is_up_and_ethernet),
		cmocka_unit_test(there_is_no_port_0_or_2),
		cmocka_unit_test(reported_limits_equal_the_enforced_ones),
		cmocka_unit_test(all_gid_queries_agree),
		cmocka_unit_test(a_gid_beyond_the_table_is_refused),
		cmocka_unit_test(the_pkey_is_the_default_one),
		cmocka_unit_test(raw_clock_does_not_go_backwards),
		cmocka_unit_test(a_context_cannot_be_imported),
		cmocka_unit_test(fork_is_safe_without_doing_anything),
		cmocka_unit_test(sysfs_value_has_no_newline),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
