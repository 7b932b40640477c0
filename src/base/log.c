// SPDX-License-Identifier: BSD-2-Clause
/*
 * log.c - see log.h.
 *
 * Each line is one write(), so that lines of several threads and processes do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

int log_level = LOG_LEVEL_WARN;
static int log_fd = STDERR_FILENO;
static int log_time; /* lines begin with the time */

static const char *const level_names[] = {"none", "err", "warn", "info", "debug"};

__attribute__((constructor)) void log_init(void)
{
	const char *want = getenv("STAG_LOG");
	const char *file = getenv("STAG_LOG_FILE");
	const char *time = getenv("STAG_LOG_TIME");

	for (unsigned i = 0; want && i < sizeof(level_names) / sizeof(*level_names); i++)
		if (!strcmp(want, level_names[i]))
			log_level = (int)i;
	log_time = time && *time && strcmp(time, "0") != 0;
	if (file && *file) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

		if (fd >= 0)
			log_fd = fd;
	}
}

/* Prints the monotonic clock, which all processes of a machine share. */
static int write_time(char *line, size_t room)
{
	uint64_t us = clock_ns() / 1000;

	return snprintf(line, room, "%llu.%06u ", (unsigned long long)(us / 1000000),
			(unsigned int)(us % 1000000));
}

void log_write(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	va_list ap;
	int n, m;

	n = log_time ? write_time(line, sizeof(line)) : 0;
	n += snprintf(line + n, sizeof(line) - (size_t)n, "stag[%d] %s: ", (int)getpid(),
		      level_names[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m > 0)
		n += m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(log_fd, line, (size_t)n) < 0) {
		/* logging itself failed: there is no place left to report it */
	}
	errno = saved;
}
