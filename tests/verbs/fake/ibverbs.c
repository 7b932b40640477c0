// SPDX-License-Identifier: BSD-2-Clause
/*
 * ibverbs.c - a libibverbs.so.1 that records which of its functions was called. Takes the place of
 * rdma-core's library in test_real.c.
 *
 * The functions accept any arguments and return one fixed value; the caller checks what it gets.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *fake_called;
EXPORT void *fake_device_list[2]; /* filled by the test; NULL-terminated */

#define FAKE(name)                                                                                 \
	EXPORT intptr_t name(void);                                                                \
	EXPORT intptr_t name(void)                                                                 \
	{                                                                                          \
		fake_called = #name;                                                               \
		return 42;                                                                         \
	}

/* Defines a function that a test may replace with its own. */
#define PLAYED(name)                                                                               \
	EXPORT intptr_t (*fake_##name)(intptr_t a, intptr_t b, intptr_t c, intptr_t d);            \
	EXPORT intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d);                      \
	EXPORT intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d)                       \
	{                                                                                          \
		fake_called = #name;                                                               \
		return fake_##name ? fake_##name(a, b, c, d) : 42;                                 \
	}

PLAYED(ibv_dereg_mr)
PLAYED(ibv_destroy_qp)
PLAYED(ibv_modify_qp)
PLAYED(ibv_query_device)
PLAYED(ibv_reg_mr)

FAKE(_ibv_query_comp_cntr_caps)
FAKE(_ibv_query_gid_ex)
FAKE(_ibv_query_gid_table)
FAKE(ibv_ack_cq_events)
FAKE(ibv_alloc_buf)
FAKE(ibv_alloc_dmah)
FAKE(ibv_alloc_pd)
FAKE(ibv_attach_mcast)
FAKE(ibv_close_device)
FAKE(ibv_create_ah)
FAKE(ibv_create_ah_from_wc)
FAKE(ibv_create_comp_channel)
FAKE(ibv_create_comp_cntr)
FAKE(ibv_create_cq)
FAKE(ibv_create_qp)
FAKE(ibv_create_srq)
FAKE(ibv_dealloc_dmah)
FAKE(ibv_dealloc_pd)
FAKE(ibv_destroy_ah)
FAKE(ibv_destroy_comp_channel)
FAKE(ibv_destroy_comp_cntr)
FAKE(ibv_destroy_cq)
FAKE(ibv_destroy_srq)
FAKE(ibv_detach_mcast)
FAKE(ibv_dm_export_dmabuf_fd)
FAKE(ibv_dofork_range)
FAKE(ibv_dontfork_range)
FAKE(ibv_export_buf_dmabuf_fd)
FAKE(ibv_fork_init)
FAKE(ibv_free_buf)
FAKE(ibv_get_async_event)
FAKE(ibv_get_cq_event)
FAKE(ibv_get_device_guid)
FAKE(ibv_get_device_index)
FAKE(ibv_get_pkey_index)
FAKE(ibv_import_dm)
FAKE(ibv_import_mr)
FAKE(ibv_import_pd)
FAKE(ibv_inc_comp_cntr)
FAKE(ibv_inc_err_comp_cntr)
FAKE(ibv_init_ah_from_wc)
FAKE(ibv_is_fork_initialized)
FAKE(ibv_modify_srq)
FAKE(ibv_open_device)
FAKE(ibv_qp_attach_comp_cntr)
FAKE(ibv_qp_to_qp_ex)
FAKE(ibv_query_ece)
FAKE(ibv_query_gid)
FAKE(ibv_query_gid_type)
FAKE(ibv_query_pkey)
FAKE(ibv_query_port)
FAKE(ibv_query_port_speed)
FAKE(ibv_query_qp)
FAKE(ibv_query_qp_data_in_order)
FAKE(ibv_query_srq)
FAKE(ibv_read_comp_cntr)
FAKE(ibv_read_err_comp_cntr)
FAKE(ibv_reg_buf_mr)
FAKE(ibv_reg_dmabuf_mr)
FAKE(ibv_reg_mr_ex)
FAKE(ibv_reg_mr_iova)
FAKE(ibv_reg_mr_iova2)
FAKE(ibv_register_driver)
FAKE(ibv_rereg_mr)
FAKE(ibv_resize_cq)
FAKE(ibv_resolve_eth_l2_from_gid)
FAKE(ibv_set_comp_cntr)
FAKE(ibv_set_ece)
FAKE(ibv_set_err_comp_cntr)
FAKE(ibv_unimport_dm)
FAKE(ibv_unimport_mr)
FAKE(ibv_unimport_pd)

EXPORT void **ibv_get_device_list(int *n);
EXPORT void **ibv_get_device_list(int *n)
{
	fake_called = "ibv_get_device_list";
	if (n)
		*n = 1;
	return fake_device_list;
}

EXPORT void ibv_free_device_list(void **list);
EXPORT void ibv_free_device_list(void **list)
{
	fake_called = list == fake_device_list ? "ibv_free_device_list" : "a stranger's list";
}

/* Like rdma-core's function, fetches the device list through the symbol that programs use. */
EXPORT void *ibv_import_device(int fd);
EXPORT void *ibv_import_device(int fd)
{
	int n = 0;
	void **list = ibv_get_device_list(&n);
	void *found = n == 1 ? list[0] : NULL;

	ibv_free_device_list(list);
	fake_called = "ibv_import_device";
	return found;
}
