// SPDX-License-Identifier: BSD-2-Clause
/*
 * last_words.c - a test program that fails says so at once, and one that hangs
 * says where.
 *
 * A failed assertion jumps out of a test and leaves behind what the test held:
 * to take that apart may wait for ever, and cmocka keeps the message until it
 * is done. So the first failure ends the program. One that is out of time gets
 * SIGTERM from meson, and then half a second: it shows where its threads are.
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
#define WAIT_US 20000 /* for a thread to answer: the engine takes no signals */

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
	show_file(tid, "syscall"); /* its number, arguments, stack and program counter */
	atomic_store(&answered, false);
	syscall(SYS_tgkill, getpid(), atoi(tid), SIGUSR2);
	for (int us = 0; us < WAIT_US && !atomic_load(&answered); us += 1000)
		usleep(1000);
}

/* Not a safe thing to do in a handler; but a second hang here is no worse than the first. */
static void out_of_time(int sig)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *e;

	dprintf(STDERR_FILENO, "out of time; its threads:\n");
	while (tasks && (e = readdir(tasks)))
		if (e->d_name[0] != '.')
			show_thread(e->d_name);
	_exit(1);
}

static __attribute__((constructor)) void prepare(void)
{
	struct sigaction stack = {.sa_handler = show_my_stack}, term = {.sa_handler = out_of_time};
	void *frame;

	setenv("CMOCKA_TEST_ABORT", "1", 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* so that its words come in order */
	backtrace(&frame, 1);		  /* loads what it needs */
	sigaction(SIGUSR2, &stack, NULL);
	sigaction(SIGTERM, &term, NULL);
}
