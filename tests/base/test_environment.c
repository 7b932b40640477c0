// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_environment.c - a program that runs with more rights than its user has ignores the user's environment.
 *
 * The test copies itself, makes the copy set-user-ID (as root) or set-group-ID (as another user who has a second group), and
 * lets it log a line with STAG_LOG_FILE set.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

#define NOBODY	 65534
#define ORDINARY 3 /* exit status: the program runs with its user's rights */

struct place {
	char dir[64], program[96], log[96];
};

static void make_place(struct place *p)
{
	struct stat st;
	int in, out;

	snprintf(p->dir, sizeof(p->dir), "/tmp/test-environment.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_int_equal(chmod(p->dir, 0777), 0);
	snprintf(p->program, sizeof(p->program), "%s/program", p->dir);
	snprintf(p->log, sizeof(p->log), "%s/log", p->dir);
	in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	out = open(p->program, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	assert_int_equal(fstat(in, &st), 0);
	while (sendfile(out, in, NULL, (size_t)st.st_size) > 0)
		;
	close(in);
	assert_int_equal(fchmod(out, 0755), 0);
	assert_int_equal(close(out), 0);
}

static void remove_place(const struct place *p)
{
	unlink(p->log);
	unlink(p->program);
	rmdir(p->dir);
}

/* Gives the program rights that its user does not have. Returns false if this user cannot. */
static bool raise_rights(const struct place *p)
{
	gid_t groups[64];
	int n = getgroups(64, groups);

	if (geteuid() == 0)
		return chown(p->program, NOBODY, (gid_t)-1) == 0 && chmod(p->program, 04755) == 0;
	for (int i = 0; i < n; i++)
		if (groups[i] != getegid())
			return chown(p->program, (uid_t)-1, groups[i]) == 0 &&
			       chmod(p->program, 02755) == 0;
	return false;
}

/* Returns the exit status of the program. */
static int run(const struct place *p)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		setenv("STAG_LOG_FILE", p->log, 1);
		setenv("STAG_LOG", "none", 1);
		execl(p->program, p->program, "--log", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void an_ordinary_program_obeys_the_environment(void **state)
{
	struct place p;

	make_place(&p);
	assert_int_equal(run(&p), ORDINARY);
	assert_int_equal(access(p.log, F_OK), 0);
	remove_place(&p);
}

static void a_program_with_more_rights_ignores_the_environment(void **state)
{
	struct place p;
	int rc = ORDINARY;

	make_place(&p);
	if (raise_rights(&p))
		rc = run(&p);
	if (rc == ORDINARY) {
		remove_place(&p);
		print_message(
			"needs root or a second group, and a /tmp that is not mounted nosuid\n");
		skip();
	}
	assert_int_equal(rc, 0);
	assert_int_equal(access(p.log, F_OK), -1);
	remove_place(&p);
}

/* The library has opened its log when it was loaded. With raised rights it still reports errors: the level was not set to none. */
static int log_line(void)
{
	if (!getauxval(AT_SECURE))
		return ORDINARY;
	return log_level == LOG_LEVEL_WARN ? 0 : 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ordinary_program_obeys_the_environment),
		cmocka_unit_test(a_program_with_more_rights_ignores_the_environment),
	};

	if (argc == 2 && strcmp(argv[1], "--log") == 0)
		_exit(log_line()); /* not with the leak checker, which needs more rights */
	return cmocka_run_group_tests_name("environment", tests, NULL, NULL);
}
