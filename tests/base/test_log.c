// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_log.c - the log goes to the standard error of programs that do not know of it: it neither stops nor ends them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

#define PATIENCE_S 60

/* Logs in a child whose standard error is this descriptor. Returns the child's status, as of waitpid(). */
static int log_to(int fd)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		alarm(PATIENCE_S);
		dup2(fd, STDERR_FILENO);
		log_warn("a line");
		_exit(7);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void expect_unharmed(int status)
{
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void a_line_is_written_to_standard_error(void **state)
{
	char text[256] = "";
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	expect_unharmed(log_to(ends[1]));
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "warn: a line\n"));
	close(ends[0]);
	close(ends[1]);
}

static void a_pipe_that_nobody_reads_does_not_stop_the_program(void **state)
{
	static const char bytes[4096];
	int ends[2];

	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	while (write(ends[1], bytes, sizeof(bytes)) > 0) {
		/* fills the pipe */
	}
	assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
	expect_unharmed(log_to(ends[1]));
	close(ends[0]);
	close(ends[1]);
}

static void a_closed_pipe_does_not_end_the_program(void **state)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	expect_unharmed(log_to(ends[1]));
	close(ends[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_written_to_standard_error),
		cmocka_unit_test(a_pipe_that_nobody_reads_does_not_stop_the_program),
		cmocka_unit_test(a_closed_pipe_does_not_end_the_program),
	};

	if (getenv("STAG_LOG") || getenv("STAG_LOG_FILE")) { /* read at load time: start again */
		unsetenv("STAG_LOG");
		unsetenv("STAG_LOG_FILE");
		execv("/proc/self/exe", argv);
		return 1;
	}
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
