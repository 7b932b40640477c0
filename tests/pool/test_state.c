// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_state.c - what a node knows when it comes back, and the file of secrets.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dice.h"
#include "pool/admit/secrets.h"
#include "pool/role/state.h"

static char path[] = "/dev/shm/stag-state-XXXXXX";
static int dir;

static const struct pool_state some = {
	.uuid = {1, 2, 3, 255}, .node = "bee", .key = 0xdeadbeef, .epoch = 1ull << 40};

static int open_dir(void **state)
{
	strcpy(path + strlen(path) - 6, "XXXXXX");
	if (!mkdtemp(path))
		return -1;
	dir = state_open(path);
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

static void what_was_saved_is_loaded(void **state)
{
	struct pool_state found;

	assert_int_equal(state_load(dir, &found), -ENOENT);
	assert_int_equal(state_save(dir, &some), 0);
	assert_int_equal(state_load(dir, &found), 0);
	assert_memory_equal(&found, &some, sizeof(some));
}

static void a_second_process_does_not_get_the_directory(void **state)
{
	assert_int_equal(state_open(path), -EBUSY);
}

static void the_key_is_its_owners(void **state)
{
	struct pool_state found;

	assert_int_equal(state_save(dir, &some), 0);
	assert_int_equal(fchmodat(dir, "state", 0640, 0), 0);
	assert_int_equal(state_load(dir, &found), -EPERM);
}

/* Whichever bit of it is wrong, it is not taken. */
static void every_damage_is_seen(void **state)
{
	struct pool_state found;
	char text[512];
	ssize_t len;
	int fd;

	assert_int_equal(state_save(dir, &some), 0);
	fd = openat(dir, "state", O_RDONLY);
	len = read(fd, text, sizeof(text));
	close(fd);
	for (ssize_t i = 0; i < len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			text[i] ^= (char)(1 << bit);
			write_file("state", text, (size_t)len, 0600);
			assert_int_equal(state_load(dir, &found), -EBADMSG);
			text[i] ^= (char)(1 << bit);
		}
		write_file("state", text, (size_t)i, 0600);
		assert_int_equal(state_load(dir, &found), -EBADMSG);
	}
	write_file("state", text, (size_t)len, 0600);
	assert_int_equal(state_load(dir, &found), 0);
}

static void a_full_disk_leaves_the_state_as_it_was(void **state)
{
	struct rlimit none = {0, RLIM_INFINITY}, before;
	struct pool_state found, other = some;

	assert_int_equal(state_save(dir, &some), 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	setrlimit(RLIMIT_FSIZE, &none);
	other.epoch++;
	assert_int_equal(state_save(dir, &other), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(state_load(dir, &found), 0);
	assert_memory_equal(&found, &some, sizeof(some));
}

/* A process that saves on and on is killed at any moment: what is there is one of those it saved, and no older one. */
static void a_killed_process_leaves_a_state(void **state)
{
	struct pool_state found, saved = some;
	uint64_t last = 0;

	for (unsigned long i = 0; i < scaled(40); i++) {
		int said[2];
		pid_t pid;

		assert_int_equal(pipe(said), 0);
		pid = fork();
		if (pid == 0) {
			for (saved.epoch = last + 1;; saved.epoch++)
				if (state_save(dir, &saved) != 0 ||
				    write(said[1], &saved.epoch, 8) != 8)
					_exit(1);
		}
		close(said[1]);
		for (uint64_t n = 1 + dice(20); n; n--)
			assert_int_equal(read(said[0], &last, 8), 8);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		while (read(said[0], &last, 8) == 8)
			;
		close(said[0]);
		assert_int_equal(state_load(dir, &found), 0);
		assert_in_range(found.epoch, last, last + 1);
		last = found.epoch;
	}
}

/* A directory is made, or opened, and a state saved: by a process that stops at each of its system calls. */
static pid_t start_saving(const char *where, uint64_t epoch)
{
	struct pool_state saved = some;
	pid_t pid = fork();
	int at;

	if (pid != 0)
		return pid;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
		_exit(77);
	saved.epoch = epoch;
	at = state_open(where);
	_exit(at < 0 || state_save(at, &saved) != 0);
}

/* It is killed when it has stopped so many times. Or it has ended before: true. */
static bool ends_within(pid_t pid, unsigned int stops)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (; stops > 0 && WIFSTOPPED(status); stops--) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	if (!WIFSTOPPED(status)) {
		assert_int_equal(WEXITSTATUS(status), 0);
		return true;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return false;
}

/* What a process changes outside itself it changes by these: so it is killed at any instruction. */
static void a_process_killed_at_any_call_leaves_a_state(void **state)
{
	struct pool_state found;
	char where[64];
	uint64_t epoch = 0;
	bool ended = false;

	snprintf(where, sizeof(where), "%s/made", path);
	while (!ended) {
		int at, rc;

		ended = ends_within(start_saving(where, epoch + 1), (unsigned int)epoch);
		at = state_open(where);
		assert_true(at >= 0);
		rc = state_load(at, &found);
		assert_true(rc == 0 || rc == -ENOENT);
		if (rc == 0)
			assert_in_range(found.epoch, 1, epoch + 1);
		close(at);
		epoch++;
	}
	assert_int_equal(found.epoch, epoch);
}

/* ---- secrets ---------------------------------------------------------------------------- */

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

static void wrong_secrets_are_refused_as_a_whole(void **state)
{
	static const char *const wrong[] = {
		"ann read",
		"ann read 0123456789abcdef more",
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
	char one[SECRET_MAX + 1], other[SECRET_MAX + 1];

	assert_int_equal(secret_make(one), 0);
	assert_int_equal(secret_make(other), 0);
	assert_int_equal(strlen(one), 64);
	assert_string_not_equal(one, other);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, open_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		IN_DIR(what_was_saved_is_loaded),
		IN_DIR(a_second_process_does_not_get_the_directory),
		IN_DIR(the_key_is_its_owners),
		IN_DIR(every_damage_is_seen),
		IN_DIR(a_full_disk_leaves_the_state_as_it_was),
		IN_DIR(a_killed_process_leaves_a_state),
		IN_DIR(a_process_killed_at_any_call_leaves_a_state),
		IN_DIR(secrets_are_read_line_by_line),
		IN_DIR(wrong_secrets_are_refused_as_a_whole),
		IN_DIR(secrets_are_saved_by_path),
		cmocka_unit_test(new_secrets_differ),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
