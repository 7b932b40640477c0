// SPDX-License-Identifier: BSD-2-Clause
/*
 * asleep.c - waits until a thread sleeps: see asleep.h.
 */
#include "asleep.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define PATIENCE_NS (30 * NS_PER_S)

/* Reads the thread's line in /proc: the id, the name in brackets, the state. */
static bool is_asleep(pid_t tid)
{
	char path[64], text[128];
	const char *name_end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	name_end = strrchr(text, ')');
	return name_end && name_end[1] && name_end[2] == 'S';
}

void await_asleep(pid_t tid)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	while (!is_asleep(tid)) {
		/* Another thread than the test's own cannot fail the test. */
		if (clock_ns() > until) {
			fprintf(stderr, "timed out waiting for a thread to sleep\n");
			abort();
		}
		sched_yield();
	}
}
