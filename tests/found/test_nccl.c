// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_nccl.c - the way in which nccl finds its devices (misc/ibvsymbols.cc, transport/net_ib). Run by stag run --device roce; not linked
 * with libibverbs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

/* All of them fatal if they are missing; with ibv_query_gid_ex, an inline function, it makes do with ibv_query_gid. */
#define SYMBOLS(X)                                                                                 \
	X(ibv_get_device_list)                                                                     \
	X(ibv_free_device_list)                                                                    \
	X(ibv_get_device_name)                                                                     \
	X(ibv_open_device)                                                                         \
	X(ibv_close_device)                                                                        \
	X(ibv_get_async_event)                                                                     \
	X(ibv_ack_async_event)                                                                     \
	X(ibv_query_device)                                                                        \
	X(ibv_query_gid)                                                                           \
	X(ibv_query_qp)                                                                            \
	X(ibv_alloc_pd)                                                                            \
	X(ibv_dealloc_pd)                                                                          \
	X(ibv_create_cq)                                                                           \
	X(ibv_destroy_cq)                                                                          \
	X(ibv_destroy_qp)                                                                          \
	X(ibv_fork_init)                                                                           \
	X(ibv_event_type_str)                                                                      \
	X(ibv_create_qp)                                                                           \
	X(ibv_modify_qp)                                                                           \
	X(ibv_dereg_mr)

static struct {
#define MEMBER(name) __typeof__(&name) name;
	SYMBOLS(MEMBER)
#undef MEMBER
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
} ib;

static void *must_find(void *lib, const char *name)
{
	void *symbol = dlvsym(lib, name, "IBVERBS_1.1");

	if (!symbol)
		fail_msg("%s: %s", name, dlerror());
	return symbol;
}

static int load(void **state)
{
	void *lib = dlopen("libibverbs.so", RTLD_NOW);

	if (!lib)
		lib = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!lib)
		return -1;
#define FIND(name) ib.name = must_find(lib, #name);
	SYMBOLS(FIND)
#undef FIND
	ib.reg_mr = must_find(lib, "ibv_reg_mr");
	ib.query_port = must_find(lib, "ibv_query_port");
	return 0;
}

static struct ibv_context *open_roce0(void)
{
	struct ibv_device **list = ib.ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (struct ibv_device **d = list; *d && !ctx; d++)
		if (strcmp(ib.ibv_get_device_name(*d), "roce0") == 0)
			ctx = ib.ibv_open_device(*d);
	ib.ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static void device_is_found_by_dlopen_and_dlvsym(void **state)
{
	struct ibv_context *ctx = open_roce0();
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	assert_int_equal(ib.ibv_query_device(ctx, &attr), 0);
	assert_int_equal(ib.query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	ib.ibv_close_device(ctx);
}

/* ncclIbGetPciPath(): without it, the device is near no processor. */
static void device_has_a_path_in_sys(void **state)
{
	struct ibv_context *ctx = open_roce0();
	char link[PATH_MAX], *path;

	snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device",
		 ib.ibv_get_device_name(ctx->device));
	path = realpath(link, NULL);
	assert_non_null(path);
	assert_int_equal(strncmp(path, "/sys/devices/", 13), 0);
	assert_int_equal(access(path, F_OK), 0);
	free(path);
	ib.ibv_close_device(ctx);
}

/* ncclIbRoceGetVersionNum() */
static bool is_version_2(const char *name, int index)
{
	char path[PATH_MAX], type[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", name,
		 index);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, type, sizeof(type) - 1);
	close(fd);
	if (n < 0) {
		assert_int_equal(
			errno,
			EINVAL); /* an empty entry: the one failure that nccl goes on after */
		return false;
	}
	return strncmp(type, "RoCE v2", 7) == 0;
}

static bool is_empty(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return memcmp(gid, &none, sizeof(none)) == 0;
}

static void each_gid_of_the_table_has_a_type_in_sys(void **state)
{
	struct ibv_context *ctx = open_roce0();
	struct ibv_port_attr port;
	int filled = 0;

	assert_int_equal(ib.query_port(ctx, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;

		assert_int_equal(ib.ibv_query_gid(ctx, 1, i, &gid), 0);
		assert_int_equal(is_version_2("roce0", i), !is_empty(&gid));
		filled += !is_empty(&gid);
	}
	assert_true(filled > 0);
	ib.ibv_close_device(ctx);
}

/* The table in /sys is that of the adapter, index by index. */
static void each_gid_in_sys_is_the_adapters(void **state)
{
	struct ibv_context *ctx = open_roce0();
	struct ibv_port_attr port;

	assert_int_equal(ib.query_port(ctx, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		char path[PATH_MAX], text[64] = "", want[64];
		union ibv_gid gid;
		FILE *file;

		snprintf(path, sizeof(path), "/sys/class/infiniband/roce0/ports/1/gids/%d", i);
		file = fopen(path, "r");
		assert_non_null(file);
		assert_non_null(fgets(text, sizeof(text), file));
		fclose(file);
		assert_int_equal(ib.ibv_query_gid(ctx, 1, i, &gid), 0);
		for (int k = 0; k < 8; k++)
			sprintf(want + 5 * k, "%02x%02x%c", gid.raw[2 * k], gid.raw[2 * k + 1],
				k < 7 ? ':' : '\n');
		assert_string_equal(text, want);
	}
	ib.ibv_close_device(ctx);
}

static void expect_file(const char *name, const char *want)
{
	char path[PATH_MAX], text[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/roce0/%s", name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	assert_string_equal(text, want);
}

static void attributes_in_sys_are_those_of_the_adapter(void **state)
{
	struct ibv_context *ctx = open_roce0();
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint16_t guid[4];
	char want[128];

	assert_int_equal(ib.ibv_query_device(ctx, &attr), 0);
	assert_int_equal(ib.query_port(ctx, 1, &port), 0);
	memcpy(guid, &attr.node_guid, sizeof(guid));
	snprintf(want, sizeof(want), "%04x:%04x:%04x:%04x\n", be16toh(guid[0]), be16toh(guid[1]),
		 be16toh(guid[2]), be16toh(guid[3]));
	expect_file("node_guid", want);
	assert_int_equal(attr.sys_image_guid, attr.node_guid);
	expect_file("sys_image_guid", want);
	snprintf(want, sizeof(want), "%s\n", attr.fw_ver);
	expect_file("fw_ver", want);
	snprintf(want, sizeof(want), "%u\n", attr.hw_ver);
	expect_file("hw_rev", want);
	snprintf(want, sizeof(want), "%d: CA\n", ctx->device->node_type);
	expect_file("node_type", want);
	assert_int_equal(port.active_speed, 32);
	assert_int_equal(port.active_width, 2);
	expect_file("ports/1/rate", "100 Gb/sec (4X EDR)\n");
	snprintf(want, sizeof(want), "0x%x\n", port.lid);
	expect_file("ports/1/lid", want);
	snprintf(want, sizeof(want), "0x%08x\n", port.port_cap_flags);
	expect_file("ports/1/cap_mask", want);
	ib.ibv_close_device(ctx);
}

/* UCX, Mooncake */
static void file_of_the_device_has_its_name(void **state)
{
	struct ibv_context *ctx = open_roce0();
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/dev/infiniband/%.60s", ctx->device->dev_name);
	assert_int_equal(access(path, R_OK | W_OK), 0);
	assert_string_equal(ctx->device->ibdev_path, "/sys/class/infiniband/roce0");
	assert_int_equal(access(ctx->device->ibdev_path, F_OK), 0);
	ib.ibv_close_device(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_is_found_by_dlopen_and_dlvsym),
		cmocka_unit_test(device_has_a_path_in_sys),
		cmocka_unit_test(each_gid_of_the_table_has_a_type_in_sys),
		cmocka_unit_test(each_gid_in_sys_is_the_adapters),
		cmocka_unit_test(attributes_in_sys_are_those_of_the_adapter),
		cmocka_unit_test(file_of_the_device_has_its_name),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
