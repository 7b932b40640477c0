// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_state.c - the state that a node keeps across restarts.
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

static void saved_state_is_loaded(void **state)
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

static void key_file_is_private(void **state)
{
	struct pool_state found;

	assert_int_equal(state_save(dir, &some), 0);
	assert_int_equal(fchmodat(dir, "state", 0640, 0), 0);
	assert_int_equal(state_load(dir, &found), -EPERM);
}

/* A state with any bit flipped is refused. */
static void every_damage_is_noticed(void **state)
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

/*
 * A process that keeps saving is killed at a random moment: the file has the last state that it reported, or a
 * newer one.
 */
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

/* Starts a traced process that opens or makes a directory and saves a state; it stops at each system call. */
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

/* Kills the process at its n-th stop. Returns true if it ended before that. */
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

/* A process changes files only by system calls, so killing it at each of them covers a kill at any instruction. */
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

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, open_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		IN_DIR(saved_state_is_loaded),
		IN_DIR(a_second_process_does_not_get_the_directory),
		IN_DIR(key_file_is_private),
		IN_DIR(every_damage_is_noticed),
		IN_DIR(a_full_disk_leaves_the_state_as_it_was),
		IN_DIR(a_killed_process_leaves_a_state),
		IN_DIR(a_process_killed_at_any_call_leaves_a_state),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
