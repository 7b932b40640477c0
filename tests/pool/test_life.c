// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_life.c - proof that a process has ended (src/pool/role/life.h): given once it has, and never before.
 *
 * `test_pool_life caught` is for a build with a deliberate fault: it succeeds if a test fails.
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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pool/role/life.h"

static char dir[] = "/tmp/stag-life-XXXXXX", path[64];

struct other {
	pid_t pid;
	uint8_t token[LIFE_TOKEN_LEN];
};

/*
 * Starts a process that begins its life, reports its token, and waits to be killed; forks: with a child of its
 * own.
 */
static struct other start_process(bool forks)
{
	struct other o;
	int to[2];

	assert_int_equal(pipe(to), 0);
	o.pid = fork();
	if (o.pid == 0) {
		struct life life;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		if (life_begin(&life, path) != 0 || (forks && fork() < 0) ||
		    write(to[1], life.token, sizeof(life.token)) != sizeof(life.token))
			_exit(1);
		for (;;)
			pause();
	}
	close(to[1]);
	assert_int_equal(read(to[0], o.token, sizeof(o.token)), sizeof(o.token));
	close(to[0]);
	return o;
}

static void kill_process(struct other o)
{
	assert_int_equal(kill(o.pid, SIGKILL), 0);
	assert_int_equal(waitpid(o.pid, NULL, 0), o.pid);
}

static void a_killed_process_is_over(void **state)
{
	struct other o = start_process(false);
	int fd = life_watch(path, o.token);

	assert_true(fd >= 0);
	assert_false(life_is_over(fd));
	kill(o.pid, SIGSTOP);
	assert_false(life_is_over(fd));
	kill_process(o);
	assert_true(life_is_over(fd));
	assert_true(life_is_over(fd)); /* looking does not consume the proof */
	close(fd);
}

static void proof_is_for_one_life_only(void **state)
{
	struct other first = start_process(false), second;
	int fd = life_watch(path, first.token), other_fd;

	second = start_process(false); /* with the same path */
	assert_false(life_is_over(fd));
	assert_int_equal(life_watch(path, first.token), -ESRCH);
	other_fd = life_watch(path, second.token);
	assert_true(other_fd >= 0);
	kill_process(first);
	assert_true(life_is_over(fd));
	assert_false(life_is_over(other_fd));
	kill_process(second);
	assert_true(life_is_over(other_fd));
	close(fd);
	close(other_fd);
}

static void unlocked_file_is_no_proof(void **state)
{
	struct other o = start_process(false);

	kill_process(o);
	assert_int_equal(life_watch(path, o.token), -ESRCH);
	unlink(path);
	assert_int_equal(life_watch(path, o.token), -ENOENT);
}

/* A forked child inherits the lock, and may use other resources of the process. */
static void a_process_that_left_a_child_is_not_over(void **state)
{
	struct other o = start_process(true);
	int fd = life_watch(path, o.token);

	kill_process(o);
	assert_false(life_is_over(fd));
	kill(-o.pid, SIGKILL);
	while (!life_is_over(fd))
		usleep(1000);
	close(fd);
}

static bool is_there(const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", path, suffix);
	return access(name, F_OK) == 0;
}

static void create_file(const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", path, suffix);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	assert_true(is_there(suffix));
}

static void delete_file(const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", path, suffix);
	unlink(name);
}

/* A process that was killed before it renamed its file left it under a temporary name, with its pid. */
static void files_of_killed_processes_are_removed(void **state)
{
	char dead[16], living[16];
	struct other o = start_process(false);
	struct life life;

	kill_process(o); /* no process has its pid now */
	snprintf(dead, sizeof(dead), "%d", (int)o.pid);
	snprintf(living, sizeof(living), "%d", (int)getppid());
	create_file(dead);
	create_file(living);
	create_file("new");
	assert_int_equal(life_begin(&life, path), 0);
	assert_false(is_there(dead));
	assert_true(is_there(living));
	assert_true(is_there("new"));
	life_end(&life);
	delete_file(living);
	delete_file("new");
}

static void no_life_where_locks_are_unreliable(void **state)
{
	struct life life;

	assert_true(life_begin(&life, "/proc/self/life") < 0);
	assert_int_equal(life.fd, -1);
	assert_true(life_begin(&life, "/nowhere/life") < 0);
	life_end(&life);
}

static int make_dir(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/node.life", dir);
	return 0;
}

static int remove_dir(void **state)
{
	unlink(path);
	return rmdir(dir);
}

/* A failed assertion: the fault was found. */
static void on_abort(int signal)
{
	remove_dir(NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_process_is_over),
		cmocka_unit_test(proof_is_for_one_life_only),
		cmocka_unit_test(unlocked_file_is_no_proof),
		cmocka_unit_test(a_process_that_left_a_child_is_not_over),
		cmocka_unit_test(files_of_killed_processes_are_removed),
		cmocka_unit_test(no_life_where_locks_are_unreliable),
	};

	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, make_dir, remove_dir) != (argc > 1);
}
