// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_check.c - calls for programs that run no node: attributes, the state directory, the roll.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pool/role/roll.h"
#include "pool/role/state.h"
#include "stag/pool.h"

#define SECRET "0123456789abcdef"

static char folder[64], roll_file[96], where[112];

static int make_folder(void **state)
{
	strcpy(folder, "/tmp/stag-check-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(roll_file, sizeof(roll_file), "%s/roll", folder);
	snprintf(where, sizeof(where), "file:%s", roll_file);
	return 0;
}

static int remove_folder(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static void write_file(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	assert_true(fd >= 0 && write(fd, text, len) == (ssize_t)len);
	close(fd);
}

#define CHECK(...) stag_pool_node_check(&(struct stag_pool_node_attr){__VA_ARGS__})

static void attributes_are_checked_if_they_are_set(void **state)
{
	struct stag_pool_user good = {.name = "ann",
				      .secret = SECRET,
				      .rights = STAG_POOL_RIGHT_READ},
			      bad = good;

	bad.secret = "short";
	assert_int_equal(CHECK(0), 0);
	assert_int_equal(CHECK(.pool = "shop", .node = "a", .roll = "file:/x"), 0);
	assert_int_equal(CHECK(.pool = "a shop"), EINVAL);
	assert_int_equal(CHECK(.node = ""), EINVAL);
	assert_int_equal(CHECK(.roll = "/x"), EINVAL);
	assert_int_equal(CHECK(.roll = "etcd://"), EINVAL);
	assert_int_equal(CHECK(.lease_ms = 100, .promote_ms = 50), EINVAL);
	assert_non_null(strstr(stag_pool_error(), "promote 50ms"));
	assert_int_equal(CHECK(.users = &bad, .num_users = 1), 0);
	assert_int_equal(CHECK(.secret = SECRET, .users = &good, .num_users = 1), 0);
	assert_int_equal(CHECK(.secret = SECRET, .users = &bad, .num_users = 1), EINVAL);
}

static void the_state_directory_is_read(void **state)
{
	struct pool_state s = {.node = "bee", .epoch = 7};
	struct stag_pool_node_state found;
	int dir = open(folder, O_RDONLY | O_DIRECTORY);

	assert_true(dir >= 0);
	assert_int_equal(stag_pool_node_query_state("/nowhere", &found, sizeof(found)), ENOENT);
	assert_int_equal(stag_pool_node_query_state(folder, &found, sizeof(found)), ENOENT);
	memset(s.uuid, 0xa5, sizeof(s.uuid));
	assert_int_equal(state_save(dir, &s), 0);
	close(dir);
	assert_int_equal(stag_pool_node_query_state(folder, &found, sizeof(found)), 0);
	assert_string_equal(found.node, "bee");
	assert_int_equal(found.epoch, 7);
	assert_memory_equal(found.uuid, s.uuid, sizeof(found.uuid));
	found.epoch = 1;
	assert_int_equal(stag_pool_node_query_state(folder, &found,
						    offsetof(struct stag_pool_node_state, epoch)),
			 0);
	assert_int_equal(found.epoch, 1);
}

static void the_roll_is_read(void **state)
{
	struct roll r = {.epoch = 7, .base = 41, .primary = 2, .in_sync = 1 << 2 | 1 << 0};
	struct stag_pool_roll found;
	char text[ROLL_MAX_TEXT];
	int len;

	r.members[0] = (struct roll_member){.name = "ant", .address = "[::1]:4791"};
	r.members[2] = (struct roll_member){.name = "bee", .address = "bee.example:1"};
	r.members[5] = (struct roll_member){.name = "cat", .address = "cat.example:1"};
	len = roll_to_text(&r, 12, text, sizeof(text));
	assert_true(len > 0);
	assert_int_equal(stag_pool_query_roll(where, &found, sizeof(found)), ENOENT);
	write_file(roll_file, text, (size_t)len);
	assert_int_equal(stag_pool_query_roll(where, &found, sizeof(found)), 0);
	assert_int_equal(found.epoch, 7);
	assert_int_equal(found.revision, 12);
	assert_int_equal(found.num_members, 3);
	assert_string_equal(found.members[1].name, "bee");
	assert_string_equal(found.members[1].address, "bee.example:1");
	assert_int_equal(found.members[0].role, STAG_POOL_ROLE_STANDBY);
	assert_int_equal(found.members[1].role, STAG_POOL_ROLE_PRIMARY);
	assert_int_equal(found.members[2].role, STAG_POOL_ROLE_UNKNOWN);
	write_file(roll_file, text, (size_t)len / 2);
	assert_int_equal(stag_pool_query_roll(where, &found, sizeof(found)), EBADMSG);
}

static void a_place_that_is_none_is_refused(void **state)
{
	struct stag_pool_roll found;

	assert_int_equal(stag_pool_query_roll(NULL, &found, sizeof(found)), EINVAL);
	assert_int_equal(stag_pool_query_roll("", &found, sizeof(found)), EINVAL);
	assert_int_equal(stag_pool_query_roll("file:x", &found, sizeof(found)), EINVAL);
	assert_int_equal(stag_pool_query_roll("etcd://", &found, sizeof(found)), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes_are_checked_if_they_are_set),
		cmocka_unit_test_setup_teardown(the_state_directory_is_read, make_folder,
						remove_folder),
		cmocka_unit_test_setup_teardown(the_roll_is_read, make_folder, remove_folder),
		cmocka_unit_test(a_place_that_is_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
