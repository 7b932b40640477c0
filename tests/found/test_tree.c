// SPDX-License-Identifier: BSD-2-Clause
/* test_tree.c - the files of a device, and paths that lead to them, on machines that are made up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "found/found.h"

#define CARD "/sys/devices/pci0000:00/0000:03:00.0"

/* What the kernel has, besides the directories above the card. */
static const char *const *kernel_files;

static bool kernel_has(const char *path)
{
	static const char *const always[] = {"/sys",
					     "/sys/class",
					     "/sys/devices",
					     "/sys/devices/virtual",
					     "/sys/devices/pci0000:00",
					     CARD,
					     "/dev"};

	for (size_t i = 0; i < sizeof(always) / sizeof(*always); i++)
		if (strcmp(path, always[i]) == 0)
			return true;
	for (const char *const *f = kernel_files; f && *f; f++)
		if (strcmp(path, *f) == 0)
			return true;
	return false;
}

static struct shown machine;

/* A machine with one card, one address and both devices. */
static int make_machine(void **state)
{
	machine = (struct shown){
		.num_devices = 2,
		.devices =
			{{.name = "roce0", .roce = true, .dev_name = "uverbs200", .num_gids = 16},
			 {.name = "stag0", .num_gids = 1}},
		.guid = 0x0211223344556677,
		.num_cpus = 2,
		.netdev = "eth7",
		.parent = CARD,
		.parent_is_real = true,
		.kernel_has = kernel_has,
	};
	memcpy(machine.devices[0].gids[0].raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\xa8\x00\x01", 16);
	machine.devices[0].gids[0].ifindex = 1;
	kernel_files = NULL;
	return 0;
}

/* A machine whose addresses are on an interface without a card. */
static int make_machine_without_card(void **state)
{
	make_machine(state);
	strcpy(machine.parent, "/sys/devices/virtual/stag/card");
	machine.parent_is_real = false;
	return 0;
}

static enum node_kind kind_of(const char *path)
{
	struct node node;

	tree_find(&machine, path, &node);
	return node.kind;
}

static void expect_text(const char *path, const char *text)
{
	char got[FOUND_PATH];
	struct node node;

	tree_find(&machine, path, &node);
	assert_int_not_equal(node.kind, NODE_NONE);
	assert_int_equal(tree_text(&machine, &node, got), strlen(text));
	assert_string_equal(got, text);
}

static void expect_unreadable(const char *path)
{
	char got[FOUND_PATH];
	struct node node;

	tree_find(&machine, path, &node);
	assert_int_equal(node.kind, NODE_FILE);
	assert_int_equal(tree_text(&machine, &node, got), -EINVAL);
}

/* Expects a path to lead to another one. */
static void expect_walk(const char *path, const char *end, enum node_kind kind)
{
	struct spot at;

	assert_int_equal(walk(&machine, path, true, &at), 0);
	assert_string_equal(at.path, end);
	assert_int_equal(at.node.kind, kind);
}

/* ---- files ---- */

static void device_is_a_link_to_its_place_below_the_card(void **state)
{
	expect_text("/sys/class/infiniband/roce0",
		    "../../devices/pci0000:00/0000:03:00.0/infiniband/roce0");
	assert_int_equal(kind_of("/sys/class/infiniband/roce0"), NODE_LINK);
}

static void both_devices_have_files(void **state)
{
	expect_text(CARD "/infiniband/roce0/node_type", "1: CA\n");
	expect_text(CARD "/infiniband/stag0/node_type", "4: RNIC\n");
}

static void device_that_is_not_shown_has_no_files(void **state)
{
	machine.num_devices = 1;
	assert_int_equal(kind_of("/sys/class/infiniband/stag0"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/infiniband/stag0/node_type"), NODE_NONE);
}

static void guid_is_printed_in_groups(void **state)
{
	expect_text(CARD "/infiniband/roce0/node_guid", "0211:2233:4455:6677\n");
}

static void gid_is_printed_in_groups(void **state)
{
	expect_text(CARD "/infiniband/roce0/ports/1/gids/0",
		    "0000:0000:0000:0000:0000:ffff:c0a8:0001\n");
}

static void empty_gid_is_zeroes(void **state)
{
	expect_text(CARD "/infiniband/roce0/ports/1/gids/15",
		    "0000:0000:0000:0000:0000:0000:0000:0000\n");
}

static void index_behind_the_table_has_no_file(void **state)
{
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/16"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/4294967296"), NODE_NONE);
}

static void index_is_written_as_the_kernel_does(void **state)
{
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/1"), NODE_FILE);
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/01"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/+1"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/1x"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/infiniband/roce0/ports/1/gids/#"), NODE_NONE);
}

/* nccl and UCX tell RoCE v2 from v1 by this file. */
static void type_of_a_gid_is_roce_v2(void **state)
{
	expect_text(CARD "/infiniband/roce0/ports/1/gid_attrs/types/0", "RoCE v2\n");
}

static void interface_of_a_gid_has_a_file(void **state)
{
	expect_text(CARD "/infiniband/roce0/ports/1/gid_attrs/ndevs/0", "lo\n");
}

static void attributes_of_an_empty_gid_cannot_be_read(void **state)
{
	expect_unreadable(CARD "/infiniband/roce0/ports/1/gid_attrs/types/1");
	expect_unreadable(CARD "/infiniband/roce0/ports/1/gid_attrs/ndevs/1");
}

static void port_is_up(void **state)
{
	expect_text(CARD "/infiniband/roce0/ports/1/state", "4: ACTIVE\n");
	expect_text(CARD "/infiniband/roce0/ports/1/phys_state", "5: LinkUp\n");
	expect_text(CARD "/infiniband/roce0/ports/1/link_layer", "Ethernet\n");
	expect_text(CARD "/infiniband/roce0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
}

static void card_of_the_kernel_keeps_its_files(void **state)
{
	assert_int_equal(kind_of(CARD "/numa_node"), NODE_NONE);
	assert_int_equal(kind_of(CARD "/vendor"), NODE_NONE);
}

static void made_up_card_has_no_numa_node_and_all_processors(void **state)
{
	expect_text("/sys/devices/virtual/stag/card/numa_node", "-1\n");
	expect_text("/sys/devices/virtual/stag/card/local_cpus", "3\n");
	machine.num_cpus = 37;
	expect_text("/sys/devices/virtual/stag/card/local_cpus", "1f,ffffffff\n");
	machine.num_cpus = 64;
	expect_text("/sys/devices/virtual/stag/card/local_cpus", "ffffffff,ffffffff\n");
}

/* rdma-core would take it for a device of the kernel. */
static void nothing_is_in_the_class_of_verbs_devices(void **state)
{
	assert_int_equal(kind_of("/sys/class/infiniband_verbs"), NODE_NONE);
	assert_int_equal(kind_of("/sys/class/infiniband_verbs/uverbs200"), NODE_NONE);
	assert_int_equal(kind_of("/dev/infiniband/rdma_cm"), NODE_NONE);
	assert_int_equal(kind_of("/dev/infiniband/umad0"), NODE_NONE);
}

/* ---- beside the kernel's ---- */

static void directory_without_real_files_is_ours(void **state)
{
	assert_int_equal(kind_of("/sys/class/infiniband"), NODE_DIRECTORY);
	assert_int_equal(kind_of(CARD "/infiniband"), NODE_DIRECTORY);
}

static void directory_with_real_files_is_shared(void **state)
{
	static const char *const files[] = {"/sys/class/infiniband", "/sys/class/infiniband/mlx5_0",
					    NULL};

	kernel_files = files;
	assert_int_equal(kind_of("/sys/class/infiniband"), NODE_SHARED);
	assert_int_equal(kind_of("/sys/class/infiniband/mlx5_0"), NODE_NONE);
	assert_int_equal(kind_of("/sys/class/infiniband/roce0"), NODE_LINK);
}

static void real_device_of_the_same_name_wins(void **state)
{
	static const char *const files[] = {"/sys/class/infiniband", "/sys/class/infiniband/roce0",
					    NULL};

	kernel_files = files;
	assert_int_equal(kind_of("/sys/class/infiniband/roce0"), NODE_NONE);
}

static bool join(void *arg, const char *name, enum node_kind kind)
{
	char *to = arg;

	strcat(strcat(to, name), kind == NODE_DIRECTORY ? "/ " : kind == NODE_LINK ? "@ " : " ");
	return true;
}

static void expect_list(const char *dir, const char *names)
{
	char list[2048] = "";

	tree_each(&machine, dir, join, list);
	assert_string_equal(list, names);
}

static void list_has_each_name_in_it(void **state)
{
	expect_list("/sys/class/infiniband", "roce0@ stag0@ ");
	machine.num_devices = 1;
	expect_list(CARD "/infiniband/roce0/ports/1/gids",
		    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ");
	expect_list("/dev/infiniband", "uverbs200 ");
	expect_list("/dev", "infiniband/ ");
	expect_list("/sys/class/infiniband_verbs", "");
}

/* ---- paths ---- */

static void path_is_followed_through_links(void **state)
{
	expect_walk("/sys/class/infiniband/roce0/ports/1/state",
		    CARD "/infiniband/roce0/ports/1/state", NODE_FILE);
}

/* Mooncake. */
static void two_up_from_a_device_is_its_card(void **state)
{
	expect_walk("/sys/class/infiniband/roce0/../..", CARD, NODE_SHARED);
}

/* nccl */
static void device_of_a_device_is_its_card(void **state)
{
	expect_walk("/sys/class/infiniband/roce0/device", CARD, NODE_SHARED);
}

static void file_of_the_card_is_the_kernels(void **state)
{
	expect_walk("/sys/class/infiniband/roce0/device/numa_node", CARD "/numa_node", NODE_NONE);
	expect_walk("/sys/class/infiniband/roce0/device/virtio2/../class", CARD "/virtio2/../class",
		    NODE_NONE);
}

static void interface_is_below_the_card(void **state)
{
	expect_walk("/sys/class/infiniband/roce0/device/net", CARD "/net", NODE_DIRECTORY);
	expect_walk("/sys/class/infiniband/roce0/device/net/eth7/mtu", "/sys/class/net/eth7/mtu",
		    NODE_NONE);
}

static void interface_that_is_really_there_wins(void **state)
{
	static const char *const files[] = {CARD "/net", CARD "/net/eth7", NULL};

	kernel_files = files;
	expect_walk("/sys/class/infiniband/roce0/device/net", CARD "/net", NODE_SHARED);
	expect_walk("/sys/class/infiniband/roce0/device/net/eth7/mtu", CARD "/net/eth7/mtu",
		    NODE_NONE);
}

static void slashes_and_dots_are_skipped(void **state)
{
	expect_walk("/sys/class//infiniband/./roce0/", CARD "/infiniband/roce0", NODE_DIRECTORY);
	expect_walk("/sys/class/infiniband/..", "/sys/class", NODE_SHARED);
	expect_walk("/sys/class/infiniband/../../..", "/", NODE_NONE);
	expect_walk("/../sys/class/infiniband", "/sys/class/infiniband", NODE_DIRECTORY);
}

static void link_at_the_end_is_followed_if_asked_for(void **state)
{
	struct spot at;

	assert_int_equal(walk(&machine, "/sys/class/infiniband/roce0", false, &at), 0);
	assert_int_equal(at.node.kind, NODE_LINK);
	assert_int_equal(walk(&machine, "/sys/class/infiniband/roce0/", false, &at), 0);
	assert_int_equal(at.node.kind, NODE_DIRECTORY);
}

static void nothing_is_below_a_file(void **state)
{
	struct spot at;

	assert_int_equal(walk(&machine, "/sys/class/infiniband/roce0/node_type/x", true, &at),
			 -ENOTDIR);
}

static void device_file_stands_for_dev_null(void **state)
{
	expect_walk("/dev/infiniband/uverbs200", "/dev/null", NODE_NONE);
}

static void path_of_a_real_device_is_left_alone(void **state)
{
	expect_walk("/sys/class/infiniband/mlx5_0/ports/1/state",
		    "/sys/class/infiniband/mlx5_0/ports/1/state", NODE_NONE);
}

static void long_path_is_refused(void **state)
{
	char path[8192];
	struct spot at;

	memset(path, 'x', sizeof(path));
	memcpy(path, "/sys/class/infiniband/", 22);
	for (size_t len = 400; len < sizeof(path); len++) {
		int rc;

		path[len] = '\0';
		rc = walk(&machine, path, true, &at);
		assert_true(rc == -ENAMETOOLONG ||
			    (rc == 0 && at.node.kind == NODE_NONE && strlen(at.path) == len));
		path[len] = 'x';
	}
}

/* ---- the card of an interface ---- */

static void expect_card(const char *link, const char *card)
{
	char got[FOUND_PATH];

	assert_int_equal(shown_card(link, got), card != NULL);
	if (card)
		assert_string_equal(got, card);
}

static void card_is_the_last_pci_device_on_the_way(void **state)
{
	expect_card("../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0",
		    "/sys/devices/pci0000:00/0000:00:03.0");
	expect_card("../../devices/pci0000:00/0000:00:01.1/0000:03:00.1/net/eth0",
		    "/sys/devices/pci0000:00/0000:00:01.1/0000:03:00.1");
	expect_card("../../devices/pci10000:e0/10000:e1:00.0/net/eth0",
		    "/sys/devices/pci10000:e0/10000:e1:00.0");
}

static void interface_that_is_not_on_pci_has_no_card(void **state)
{
	expect_card("../../devices/virtual/net/lo", NULL);
	expect_card("../../devices/platform/soc/fd580000.ethernet/net/eth0", NULL);
	expect_card("../../devices/", NULL);
	expect_card("", NULL);
	expect_card("../../devices/0000:00:03/net/0000:00:03.", NULL);
}

#define with_card(test)	   cmocka_unit_test_setup(test, make_machine)
#define without_card(test) cmocka_unit_test_setup(test, make_machine_without_card)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_card(device_is_a_link_to_its_place_below_the_card),
		with_card(both_devices_have_files),
		with_card(device_that_is_not_shown_has_no_files),
		with_card(guid_is_printed_in_groups),
		with_card(gid_is_printed_in_groups),
		with_card(empty_gid_is_zeroes),
		with_card(index_behind_the_table_has_no_file),
		with_card(index_is_written_as_the_kernel_does),
		with_card(type_of_a_gid_is_roce_v2),
		with_card(interface_of_a_gid_has_a_file),
		with_card(attributes_of_an_empty_gid_cannot_be_read),
		with_card(port_is_up),
		with_card(card_of_the_kernel_keeps_its_files),
		without_card(made_up_card_has_no_numa_node_and_all_processors),
		with_card(nothing_is_in_the_class_of_verbs_devices),
		with_card(directory_without_real_files_is_ours),
		with_card(directory_with_real_files_is_shared),
		with_card(real_device_of_the_same_name_wins),
		with_card(list_has_each_name_in_it),
		with_card(path_is_followed_through_links),
		with_card(two_up_from_a_device_is_its_card),
		with_card(device_of_a_device_is_its_card),
		with_card(file_of_the_card_is_the_kernels),
		with_card(interface_is_below_the_card),
		with_card(interface_that_is_really_there_wins),
		with_card(slashes_and_dots_are_skipped),
		with_card(link_at_the_end_is_followed_if_asked_for),
		with_card(nothing_is_below_a_file),
		with_card(device_file_stands_for_dev_null),
		with_card(path_of_a_real_device_is_left_alone),
		with_card(long_path_is_refused),
		with_card(card_is_the_last_pci_device_on_the_way),
		with_card(interface_that_is_not_on_pci_has_no_card),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
