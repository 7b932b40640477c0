// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_file.c - a file is replaced as a whole, and nothing else is written.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char directory[] = "/tmp/test-file-XXXXXX";
static int dir;

static void put(const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void expect(const char *name, const char *text)
{
	char have[64];

	assert_int_equal(file_read(dir, name, have, sizeof(have)), strlen(text));
	assert_string_equal(have, text);
}

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	dir = mkdtemp(directory) ? open(directory, O_RDONLY | O_DIRECTORY) : -1;
	return dir < 0;
}

static int remove_directory(void **state)
{
	static const char *const names[] = {"a", "a.new", "other"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlinkat(dir, names[i], 0);
	close(dir);
	return rmdir(directory);
}

static void a_file_is_replaced(void **state)
{
	struct stat st;

	(void)state;
	put("a", "before");
	assert_int_equal(file_replace(dir, "a", "after", 5, 0640), 0);
	expect("a", "after");
	assert_int_equal(fstatat(dir, "a", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_not_equal(faccessat(dir, "a.new", F_OK, 0), 0);
}

/* A name that somebody has prepared, in a directory that he may write or could write before. */
static void what_is_in_the_way_is_not_written(void **state)
{
	(void)state;
	put("other", "mine");
	assert_int_equal(linkat(dir, "other", dir, "a.new", 0), 0);
	assert_int_equal(file_replace(dir, "a", "secret", 6, 0600), 0);
	expect("other", "mine");
	expect("a", "secret");
	assert_int_equal(symlinkat("other", dir, "a.new"), 0);
	assert_int_equal(file_replace(dir, "a", "new secret", 10, 0600), 0);
	expect("other", "mine");
	expect("a", "new secret");
}

static void who_has_opened_it_before_does_not_read_it(void **state)
{
	char have[8];
	int fd;

	(void)state;
	put("a.new", "");
	fd = openat(dir, "a.new", O_RDONLY);
	assert_int_equal(file_replace(dir, "a", "secret", 6, 0600), 0);
	assert_int_equal(read(fd, have, sizeof(have)), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_file_is_replaced, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(what_is_in_the_way_is_not_written, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(who_has_opened_it_before_does_not_read_it,
						make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
