// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_secrets.c - the file of a pool's users and their secrets (app/conf/secrets.h).
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "secrets.h"

static char path[] = "/dev/shm/stag-secrets-XXXXXX";
static int dir;

static int open_dir(void **state)
{
	strcpy(path + strlen(path) - 6, "XXXXXX");
	if (!mkdtemp(path))
		return -1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int remove_dir(void **state)
{
	char command[100];

	close(dir);
	snprintf(command, sizeof(command), "rm -rf %s", path);
	return system(command);
}

static void write_file(const char *name, const char *text, size_t len, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_int_equal(write(fd, text, len), len);
	fchmod(fd, mode);
	close(fd);
}

static void secrets_are_read_line_by_line(void **state)
{
	static const char text[] =
		"# who may come in\n\nann  read,write\t0123456789abcdef # of the office\n"
		"bob admin 0123456789abcdefg\r\npool node 0123456789abcdefgh";
	struct secrets s;

	write_file("secrets", text, strlen(text), 0600);
	assert_int_equal(secrets_load(dir, "secrets", &s), 0);
	assert_int_equal(s.count, 3);
	assert_int_equal(secrets_find(&s, "ann")->rights, RIGHT_READ | RIGHT_WRITE);
	assert_string_equal(secrets_find(&s, "bob")->text, "0123456789abcdefg");
	assert_string_equal(secrets_of_nodes(&s)->name, "pool");
	assert_null(secrets_find(&s, "eve"));

	/* And written again, they are the same. */
	assert_int_equal(secrets_save(dir, "again", &s), 0);
	secrets_free(&s);
	assert_int_equal(secrets_load(dir, "again", &s), 0);
	assert_int_equal(s.count, 3);
	assert_int_equal(secrets_find(&s, "ann")->rights, RIGHT_READ | RIGHT_WRITE);
	secrets_free(&s);
}

static void users_may_have_prefixes(void **state)
{
	struct secrets s;

	assert_int_equal(
		secrets_parse("web read,write 0123456789abcdef prefix=web/ prefix=a=b # c\n"
			      "all read 0123456789abcdef",
			      "secrets", &s),
		0);
	for (int i = 0; i < 2; i++) {
		const struct secret *web = secrets_find(&s, "web");

		assert_int_equal(web->num_prefixes, 2);
		assert_string_equal(web->prefixes[0], "web/");
		assert_string_equal(web->prefixes[1], "a=b");
		assert_int_equal(secrets_find(&s, "all")->num_prefixes, 0);
		assert_int_equal(secrets_save(dir, "again", &s), 0);
		secrets_free(&s);
		assert_int_equal(secrets_load(dir, "again", &s), 0);
	}
	secrets_free(&s);
}

static void a_second_secret_may_be_accepted(void **state)
{
	struct secrets s;

	assert_int_equal(secrets_parse("web read 0123456789abcdef also=fedcba9876543210 prefix=a\n"
				       "nodes node 0123456789abcdef",
				       "secrets", &s),
			 0);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(secrets_find(&s, "web")->also, "fedcba9876543210");
		assert_int_equal(secrets_find(&s, "web")->num_prefixes, 1);
		assert_string_equal(secrets_of_nodes(&s)->also, "");
		assert_int_equal(secrets_save(dir, "again", &s), 0);
		secrets_free(&s);
		assert_int_equal(secrets_load(dir, "again", &s), 0);
	}
	secrets_free(&s);
}

static void expect_text(const char *name, const char *text)
{
	char found[1000] = "";
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	assert_true(read(fd, found, sizeof(found) - 1) > 0);
	close(fd);
	assert_string_equal(found, text);
}

/* All else in the file is the operator's. */
static void the_secret_of_the_nodes_is_replaced_and_nothing_else(void **state)
{
	static const char text[] = "# node\nann read 0123456789abcdef\n"
				   "  all\tnode 0123456789abcdef # ours\nbob read 0123456789abcdef";
	static const char two[] = "# node\nann read 0123456789abcdef\n"
				  "  all\tnode fedcba9876543210 also=0123456789abcdef # ours\nbob "
				  "read 0123456789abcdef";
	static const char one[] = "# node\nann read 0123456789abcdef\n"
				  "  all\tnode fedcba9876543210 # ours\nbob read 0123456789abcdef";

	write_file("secrets", text, strlen(text), 0600);
	assert_int_equal(
		secrets_replace_node(dir, "secrets", "fedcba9876543210", "0123456789abcdef"), 0);
	expect_text("secrets", two);
	assert_int_equal(secrets_replace_node(dir, "secrets", "fedcba9876543210", ""), 0);
	expect_text("secrets", one);
	write_file("other", text, 20, 0600);
	assert_int_equal(secrets_replace_node(dir, "other", "fedcba9876543210", ""), -ENOENT);
	expect_text("other", "# node\nann read 0123");
	assert_int_equal(symlinkat("secrets", dir, "link"), 0);
	assert_int_equal(secrets_replace_node(dir, "link", "0123456789abcdef", ""), -ELOOP);
	expect_text("secrets", one);
}

static void wrong_secrets_are_refused_as_a_whole(void **state)
{
	static const char *const wrong[] = {
		"ann read",
		"ann read 0123456789abcdef more",
		"ann read 0123456789abcdef prefix=",
		"ann read 0123456789abcdef prefix=a more",
		"ann node 0123456789abcdef prefix=a",
		"ann read 0123456789abcdef prefix=1 prefix=2 prefix=3 prefix=4 prefix=5 prefix=6 "
		"prefix=7 prefix=8 prefix=9 "
		"prefix=a prefix=b prefix=c prefix=d prefix=e prefix=f prefix=g prefix=h",
		"ann read 0123456789abcdef prefix=a\nann read 0123456789abcdef prefix=b",
		"ann read 0123456789abcdef also=0123456789abcde",
		"ann read 0123456789abcdef also=0123456789abcdef",
		"ann read 0123456789abcdef also=0123456789abcde1 also=0123456789abcde2",
		"ann read 0123456789abcde",
		"ann reed 0123456789abcdef",
		"ann read, 0123456789abcdef",
		"ann ,read 0123456789abcdef",
		"a/n read 0123456789abcdef",
		"ann read 0123456789abcdef\nann read 0123456789abcdef",
		"p node 0123456789abcdef\nq node 0123456789abcdef",
	};
	struct secrets s;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (secrets_parse(wrong[i], "secrets", &s) != -EBADMSG)
			fail_msg("%s", wrong[i]);
	write_file("secrets", "ann read 0123456789abcdef\n", 26, 0644);
	assert_int_equal(secrets_load(dir, "secrets", &s), -EPERM);
	write_file("secrets", "ann\0read 0123456789abcdef\n", 26, 0600);
	assert_int_equal(secrets_load(dir, "secrets", &s), -EBADMSG);
	assert_int_equal(secrets_load(dir, "nothing", &s), -ENOENT);
}

/* By a whole path: there is no descriptor of the directory to sync. */
static void secrets_are_saved_by_path(void **state)
{
	struct secret one = {.name = "ann", .rights = RIGHT_READ, .text = "0123456789abcdef"};
	struct secrets some_secrets = {.list = &one, .count = 1}, found;
	char file[100];

	snprintf(file, sizeof(file), "%s/secrets", path);
	assert_int_equal(secrets_save(AT_FDCWD, file, &some_secrets), 0);
	assert_int_equal(secrets_load(AT_FDCWD, file, &found), 0);
	assert_int_equal(found.count, 1);
	assert_string_equal(found.list[0].text, one.text);
	secrets_free(&found);
}

static void new_secrets_differ(void **state)
{
	char one[STAG_POOL_SECRET_MAX + 1], other[STAG_POOL_SECRET_MAX + 1];

	assert_int_equal(secret_make(one), 0);
	assert_int_equal(secret_make(other), 0);
	assert_int_equal(strlen(one), 64);
	assert_string_not_equal(one, other);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, open_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		IN_DIR(secrets_are_read_line_by_line),
		IN_DIR(users_may_have_prefixes),
		IN_DIR(wrong_secrets_are_refused_as_a_whole),
		IN_DIR(secrets_are_saved_by_path),
		IN_DIR(a_second_secret_may_be_accepted),
		IN_DIR(the_secret_of_the_nodes_is_replaced_and_nothing_else),
		cmocka_unit_test(new_secrets_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
