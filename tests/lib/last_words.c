// SPDX-License-Identifier: BSD-2-Clause
/*
 * last_words.c - makes a test program exit at its first failure, and print its threads' stacks when
 * it hangs.
 *
 * A failed assertion jumps out of a test and leaves the test's objects behind: tearing those down
 * may hang, and cmocka withholds the message until that is done. So the first failure ends the
 * program. A program that exceeds its time limit gets SIGTERM from meson, and half a second later
 * SIGKILL: in that time it prints where its threads are.
 */
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH	64
#define WAIT_US 20000 /* time for a thread to answer: the engine takes no signals */

static atomic_bool answered;

static void show_my_stack(int sig)
{
	void *frames[DEPTH];

	backtrace_symbols_fd(frames, backtrace(frames, DEPTH), STDERR_FILENO);
	atomic_store(&answered, true);
}

static void show_file(const char *tid, const char *name)
{
	char path[64], text[256];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	dprintf(STDERR_FILENO, "%s: %.*s", name, n > 0 ? (int)n : 1, n > 0 ? text : "\n");
	close(fd);
}

static void show_thread(const char *tid)
{
	dprintf(STDERR_FILENO, "thread %s\n", tid);
	show_file(tid, "comm");
	/* Number of the system call, arguments, stack and program counter. */
	show_file(tid, "syscall");
	atomic_store(&answered, false);
	syscall(SYS_tgkill, getpid(), atoi(tid), SIGUSR2);
	for (int us = 0; us < WAIT_US && !atomic_load(&answered); us += 1000)
		usleep(1000);
}

/* Not async-signal-safe; but a second hang here is no worse than the first. */
static void report_time_limit(int sig)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *e;

	dprintf(STDERR_FILENO, "time limit exceeded; threads:\n");
	while (tasks && (e = readdir(tasks)))
		if (e->d_name[0] != '.')
			show_thread(e->d_name);
	_exit(1);
}

static __attribute__((constructor)) void prepare(void)
{
	struct sigaction stack = {.sa_handler = show_my_stack},
			 term = {.sa_handler = report_time_limit};
	void *frame;

	setenv("CMOCKA_TEST_ABORT", "1", 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* so that output appears in order */
	backtrace(&frame, 1);		  /* loads the library that it needs now */
	sigaction(SIGUSR2, &stack, NULL);
	sigaction(SIGTERM, &term, NULL);
}
