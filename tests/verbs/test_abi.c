// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_abi.c - the ABI that long-compiled programs rely on behind the pointers we return. Linked
 * with libstag-verbs.so, as programs are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <infiniband/verbs.h>

/* Measured with the header of rdma-core 44 on x86-64; the ABI keeps these sizes forever. */
_Static_assert(sizeof(struct ibv_device) == 664, "ibv_device");
_Static_assert(offsetof(struct ibv_device, node_type) == 16, "node_type");
_Static_assert(offsetof(struct ibv_device, name) == 24, "name");
_Static_assert(sizeof(struct ibv_context) == 328, "ibv_context");
_Static_assert(offsetof(struct ibv_context, async_fd) == 268, "async_fd");
_Static_assert(offsetof(struct ibv_context, abi_compat) == 320, "abi_compat");
_Static_assert(sizeof(struct ibv_context_ops) == 256, "ibv_context_ops");
_Static_assert(offsetof(struct ibv_context_ops, poll_cq) == 88, "poll_cq");
_Static_assert(offsetof(struct ibv_context_ops, post_send) == 200, "post_send");
_Static_assert(sizeof(struct ibv_qp) == 160 && sizeof(struct ibv_qp_ex) == 352, "ibv_qp");
_Static_assert(offsetof(struct ibv_qp, qp_num) == 52, "qp_num");
_Static_assert(offsetof(struct ibv_qp, events_completed) == 152, "events_completed");
_Static_assert(sizeof(struct ibv_cq) == 128 && sizeof(struct ibv_cq_ex) == 288, "ibv_cq");
_Static_assert(sizeof(struct ibv_mr) == 48 && sizeof(struct ibv_wc) == 48, "ibv_mr, ibv_wc");
_Static_assert(sizeof(struct ibv_port_attr) == 52, "ibv_port_attr");
_Static_assert(sizeof(struct verbs_context) - offsetof(struct verbs_context, context) ==
		       sizeof(struct ibv_context),
	       "context is the last member: the header grows before it");

static struct ibv_device *find_stag0(struct ibv_device **list)
{
	for (; *list; list++)
		if (strcmp((*list)->name, "stag0") == 0)
			return *list;
	fail_msg("stag0 is not in the device list");
	return NULL;
}

static int open_device(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	*state = ibv_open_device(find_stag0(list));
	ibv_free_device_list(list);
	return *state ? 0 : -1;
}

static int close_device(void **state)
{
	return ibv_close_device(*state);
}

/*
 * Provider libraries read behind ibv_device to tell whether a device is theirs: they find zeroes.
 */
static void memory_behind_the_device_is_zero(void **state)
{
	static const uint8_t zeroes[1024];
	struct ibv_context *ctx = *state;

	assert_memory_equal(ctx->device + 1, zeroes, sizeof(zeroes));
}

/* Programs and librdmacm compare device pointers. */
static void the_device_pointer_is_stable(void **state)
{
	struct ibv_context *ctx = *state;

	for (int i = 0; i < 3; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);

		assert_ptr_equal(find_stag0(list), ctx->device);
		ibv_free_device_list(list);
	}
}

static void device_is_an_iwarp_rnic(void **state)
{
	struct ibv_context *ctx = *state;

	assert_int_equal(ctx->device->node_type, IBV_NODE_RNIC);
	assert_int_equal(ctx->device->transport_type, IBV_TRANSPORT_IWARP);
}

/* The header's inline functions find the extended context by these fields. */
static void context_is_an_extended_one(void **state)
{
	struct ibv_context *ctx = *state;
	struct verbs_context *v = verbs_get_ctx(ctx);

	assert_non_null(v);
	assert_int_equal(v->sz, sizeof(*v));
	assert_null(v->priv); /* only code that bypasses our functions needs it */
	assert_non_null(verbs_get_ctx_op(ctx, query_port));
	assert_non_null(verbs_get_ctx_op(ctx, create_qp_ex));
	assert_null(verbs_get_ctx_op(ctx, create_wq));
}

/* No entry of the old table is NULL: the header does not check. */
static void every_entry_of_the_old_table_has_a_function(void **state)
{
	struct ibv_context *ctx = *state;
	void *slots[sizeof(ctx->ops) / sizeof(void *)];

	memcpy(slots, &ctx->ops, sizeof(slots));
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
		assert_non_null(slots[i]);
}

/* tgtd divides by it. */
static void device_has_a_completion_vector(void **state)
{
	struct ibv_context *ctx = *state;

	assert_true(ctx->num_comp_vectors >= 1);
}

static void async_events_can_be_polled_for(void **state)
{
	struct ibv_context *ctx = *state;
	struct pollfd pfd = {.fd = ctx->async_fd, .events = POLLIN};

	assert_int_equal(poll(&pfd, 1, 0), 0);
}

/* The function ibv_query_port() takes a shorter structure than the header's wrapper does. */
static void old_query_port_writes_48_bytes(void **state)
{
	struct ibv_context *ctx = *state;
	uint8_t attr[64];

	memset(attr, 0xa5, sizeof(attr));
	assert_int_equal((ibv_query_port)(ctx, 1, (struct _compat_ibv_port_attr *)attr), 0);
	assert_int_equal(((struct ibv_port_attr *)attr)->link_layer, IBV_LINK_LAYER_ETHERNET);
	for (size_t i = 48; i < sizeof(attr); i++)
		assert_int_equal(attr[i], 0xa5);
}

/*
 * A program built with a later header passes a larger size, one built with an older header a
 * smaller one.
 */
static void queries_write_the_callers_size(void **state)
{
	struct verbs_context *v = verbs_get_ctx((struct ibv_context *)*state);
	union {
		struct ibv_device_attr_ex attr;
		uint8_t bytes[sizeof(struct ibv_device_attr_ex) + 64];
	} u;
	size_t small = sizeof(struct ibv_device_attr) + 8, large = sizeof(u.attr) + 32;

	memset(&u, 0xa5, sizeof(u));
	assert_int_equal(v->query_device_ex(&v->context, NULL, &u.attr, small), 0);
	assert_int_equal(u.attr.orig_attr.phys_port_cnt, 1);
	for (size_t i = small; i < sizeof(u.bytes); i++)
		assert_int_equal(u.bytes[i], 0xa5);

	memset(&u, 0xa5, sizeof(u));
	assert_int_equal(v->query_device_ex(&v->context, NULL, &u.attr, large), 0);
	for (size_t i = sizeof(u.attr); i < large; i++)
		assert_int_equal(u.bytes[i], 0);
	for (size_t i = large; i < sizeof(u.bytes); i++)
		assert_int_equal(u.bytes[i], 0xa5);
}

static void expect_ours(void *symbol)
{
	Dl_info info;

	assert_non_null(symbol);
	assert_int_not_equal(dladdr(symbol, &info), 0);
	assert_non_null(strstr(info.dli_fname, "libstag-verbs.so"));
}

/* Holds for programs that look functions up by name, and by name and version, too. */
static void dlsym_and_dlvsym_find_our_functions(void **state)
{
	expect_ours(dlsym(RTLD_DEFAULT, "ibv_open_device"));
	expect_ours(dlvsym(RTLD_DEFAULT, "ibv_open_device", "IBVERBS_1.1"));
	expect_ours(dlvsym(RTLD_DEFAULT, "ibv_create_comp_channel", "IBVERBS_1.0"));
	expect_ours(dlvsym(RTLD_DEFAULT, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
	expect_ours(dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", "IBVERBS_PRIVATE_34"));
}

/* ---- calls of releases after the one that this is built with ---- */

struct version {
	const char *node, *names[12];
};

static const struct version newer[] = {
	{"IBVERBS_1.15", {"ibv_alloc_dmah", "ibv_dealloc_dmah", "ibv_reg_mr_ex"}},
	{"IBVERBS_1.16", {"ibv_dm_export_dmabuf_fd", "ibv_query_port_speed"}},
	{"IBVERBS_1.17", {"ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr"}},
	{"IBVERBS_1.18",
	 {"_ibv_query_comp_cntr_caps", "ibv_create_comp_cntr", "ibv_destroy_comp_cntr",
	  "ibv_export_buf_dmabuf_fd", "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr",
	  "ibv_qp_attach_comp_cntr", "ibv_read_comp_cntr", "ibv_read_err_comp_cntr",
	  "ibv_set_comp_cntr", "ibv_set_err_comp_cntr"}},
	{"RDMACM_1.4", {"rdma_query_addrinfo", "rdma_resolve_addrinfo", "rdma_write_cm_event"}},
	{"RDMACM_1.5", {"repoll_create", "repoll_ctl", "repoll_wait"}},
	{"IBVERBS_PRIVATE_25", {"ibv_query_gid_type"}},
	{"IBVERBS_PRIVATE_33", {"ibv_query_gid_type"}},
	{"IBVERBS_PRIVATE_57", {"ibv_query_gid_type"}},
	{"IBVERBS_PRIVATE_59", {"ibv_query_gid_type"}},
	{"IBVERBS_PRIVATE_64", {"ibv_query_gid_type"}},
	{"IBVERBS_PRIVATE_65", {"ibv_query_gid_type"}},
};

static void functions_of_newer_releases_are_ours(void **state)
{
	for (size_t i = 0; i < sizeof(newer) / sizeof(*newer); i++)
		for (const char *const *name = newer[i].names; *name; name++)
			expect_ours(dlvsym(RTLD_DEFAULT, *name, newer[i].node));
}

/* Calls a function with an object of ours and up to three more arguments, as a program with the newer header would. */
static intptr_t call(const char *name, void *object, intptr_t b, void *c, intptr_t d)
{
	intptr_t (*fn)(void *, intptr_t, void *, intptr_t);

	*(void **)&fn = dlsym(RTLD_DEFAULT, name);
	assert_non_null(fn);
	errno = 0;
	return fn(object, b, c, d);
}

static void expect_null(const char *name, void *object, intptr_t b, void *c, int err)
{
	assert_int_equal(call(name, object, b, c, 0), 0);
	assert_int_equal(errno, err);
}

static void newer_calls_say_what_is_not_supported(void **state)
{
	struct ibv_context *ctx = *state;
	struct ibv_qp qp = {.context = ctx};
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	uint64_t room[16] = {0};

	assert_non_null(pd);
	expect_null("ibv_alloc_dmah", ctx, (intptr_t)room, NULL, EOPNOTSUPP);
	expect_null("ibv_alloc_buf", pd, 4096, room, EOPNOTSUPP);
	expect_null("ibv_reg_buf_mr", pd, (intptr_t)room, room, EINVAL);
	expect_null("ibv_create_comp_cntr", ctx, (intptr_t)room, NULL, EOPNOTSUPP);
	assert_int_equal((int)call("_ibv_query_comp_cntr_caps", ctx, (intptr_t)room,
				   (void *)sizeof(room), 0),
			 EOPNOTSUPP);
	assert_int_equal((int)call("ibv_qp_attach_comp_cntr", &qp, (intptr_t)room, room, 0),
			 EOPNOTSUPP);
	assert_int_equal((int)call("rdma_query_addrinfo", NULL, (intptr_t)room, NULL, 0), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal((int)call("repoll_create", NULL, 0, NULL, 0), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void port_speed_is_that_of_the_attributes(void **state)
{
	struct ibv_context *ctx = *state;
	uint64_t speed = 0;

	assert_int_equal((int)call("ibv_query_port_speed", ctx, 1, &speed, 0), 0);
	assert_int_equal(speed, 1000); /* 100 Gbit/s */
	assert_int_equal((int)call("ibv_query_port_speed", ctx, 2, &speed, 0), EINVAL);
}

/* As rdma-core 65 declares it. */
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

static void memory_is_registered_by_attributes(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(*state);
	static uint8_t bytes[64];
	struct mr_init_attr a = {
		.length = sizeof(bytes), .comp_mask = 1 << 1, .addr = bytes, .iova = 0x1000};
	struct ibv_mr *mr = (struct ibv_mr *)call("ibv_reg_mr_ex", pd, (intptr_t)&a, NULL, 0);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, bytes);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	a.comp_mask = 1 << 0;
	expect_null("ibv_reg_mr_ex", pd, (intptr_t)&a, NULL, EINVAL);
	a.comp_mask = 1 << 2 | 1 << 3 | 1 << 0;
	expect_null("ibv_reg_mr_ex", pd, (intptr_t)&a, NULL, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_behind_the_device_is_zero),
		cmocka_unit_test(the_device_pointer_is_stable),
		cmocka_unit_test(device_is_an_iwarp_rnic),
		cmocka_unit_test(context_is_an_extended_one),
		cmocka_unit_test(every_entry_of_the_old_table_has_a_function),
		cmocka_unit_test(device_has_a_completion_vector),
		cmocka_unit_test(async_events_can_be_polled_for),
		cmocka_unit_test(old_query_port_writes_48_bytes),
		cmocka_unit_test(queries_write_the_callers_size),
		cmocka_unit_test(dlsym_and_dlvsym_find_our_functions),
		cmocka_unit_test(functions_of_newer_releases_are_ours),
		cmocka_unit_test(newer_calls_say_what_is_not_supported),
		cmocka_unit_test(port_speed_is_that_of_the_attributes),
		cmocka_unit_test(memory_is_registered_by_attributes),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
