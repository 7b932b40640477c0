// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_life.c - proof that a process has ended (src/pool/role/life.h): there when it has, and never before.
 *
 * As `test_pool_life caught` it is about a build with a fault: it has to be found.
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

/* A process that begins its life, says how, and waits to be killed; it may leave one behind that it forked. */
static struct other start(bool forks)
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

static void end(struct other o)
{
	assert_int_equal(kill(o.pid, SIGKILL), 0);
	assert_int_equal(waitpid(o.pid, NULL, 0), o.pid);
}

static void a_killed_process_is_over(void **state)
{
	struct other o = start(false);
	int fd = life_watch(path, o.token);

	assert_true(fd >= 0);
	assert_false(life_is_over(fd));
	kill(o.pid, SIGSTOP);
	assert_false(life_is_over(fd));
	end(o);
	assert_true(life_is_over(fd));
	assert_true(life_is_over(fd)); /* whoever looks takes nothing away */
	close(fd);
}

static void of_another_life_it_says_nothing(void **state)
{
	struct other first = start(false), second;
	int fd = life_watch(path, first.token), other_fd;

	second = start(false); /* of the same name */
	assert_false(life_is_over(fd));
	assert_int_equal(life_watch(path, first.token), -ESRCH);
	other_fd = life_watch(path, second.token);
	assert_true(other_fd >= 0);
	end(first);
	assert_true(life_is_over(fd));
	assert_false(life_is_over(other_fd));
	end(second);
	assert_true(life_is_over(other_fd));
	close(fd);
	close(other_fd);
}

static void what_nobody_locks_is_no_proof(void **state)
{
	struct other o = start(false);

	end(o);
	assert_int_equal(life_watch(path, o.token), -ESRCH);
	unlink(path);
	assert_int_equal(life_watch(path, o.token), -ENOENT);
}

/* A forked child inherits the lock, and may use other resources of the process. */
static void a_process_that_left_a_child_is_not_over(void **state)
{
	struct other o = start(true);
	int fd = life_watch(path, o.token);

	end(o);
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

static void leave(const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", path, suffix);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	assert_true(is_there(suffix));
}

static void forsake(const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", path, suffix);
	unlink(name);
}

/* A process that was killed before it renamed its file left it under another name. */
static void files_of_killed_processes_are_removed(void **state)
{
	char dead[16], living[16];
	struct other o = start(false);
	struct life life;

	end(o); /* its number is nobody's now */
	snprintf(dead, sizeof(dead), "%d", (int)o.pid);
	snprintf(living, sizeof(living), "%d", (int)getppid());
	leave(dead);
	leave(living);
	leave("new");
	assert_int_equal(life_begin(&life, path), 0);
	assert_false(is_there(dead));
	assert_true(is_there(living));
	assert_true(is_there("new"));
	life_end(&life);
	forsake(living);
	forsake("new");
}

static void where_locks_may_be_lost_there_is_none(void **state)
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
		cmocka_unit_test(of_another_life_it_says_nothing),
		cmocka_unit_test(what_nobody_locks_is_no_proof),
		cmocka_unit_test(a_process_that_left_a_child_is_not_over),
		cmocka_unit_test(files_of_killed_processes_are_removed),
		cmocka_unit_test(where_locks_may_be_lost_there_is_none),
	};

	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, make_dir, remove_dir) != (argc > 1);
}
