// SPDX-License-Identifier: BSD-2-Clause
/*
 * log.c - see log.h.
 *
 * Each line is one write(), so that lines of several threads and processes do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

int log_level = LOG_LEVEL_WARN;
static int log_fd = STDERR_FILENO;

/* What lines begin with. */
static enum log_head { HEAD_NONE, HEAD_MONOTONIC, HEAD_UTC, HEAD_PRIORITY } log_head;

static const char *const level_names[] = {"none", "err", "warn", "info", "debug"};

bool log_is_journal(int fd)
{
	const char *named = secure_getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return named && sscanf(named, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino;
}

int log_priority(enum log_level level)
{
	static const int priorities[] = {[LOG_LEVEL_NONE] = 3,
					 [LOG_LEVEL_ERR] = 3,
					 [LOG_LEVEL_WARN] = 4,
					 [LOG_LEVEL_INFO] = 6,
					 [LOG_LEVEL_DEBUG] = 7};

	return priorities[level];
}

void log_format_time(const struct timespec *time, char *text, size_t size)
{
	struct tm tm;
	char seconds[32];

	gmtime_r(&time->tv_sec, &tm);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, size, "%s.%03ldZ", seconds, time->tv_nsec / 1000000);
}

static enum log_head head_for(const char *time)
{
	if (log_is_journal(log_fd))
		return HEAD_PRIORITY;
	if (!time || !*time || strcmp(time, "0") == 0)
		return HEAD_NONE;
	return strcmp(time, "utc") == 0 ? HEAD_UTC : HEAD_MONOTONIC;
}

__attribute__((constructor)) void log_init(void)
{
	const char *want = secure_getenv("STAG_LOG");
	const char *file = secure_getenv("STAG_LOG_FILE");
	const char *time = secure_getenv("STAG_LOG_TIME");

	for (unsigned i = 0; want && i < sizeof(level_names) / sizeof(*level_names); i++)
		if (!strcmp(want, level_names[i]))
			log_level = (int)i;
	if (file && *file) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

		if (fd >= 0)
			log_fd = fd;
	}
	log_head = head_for(time);
}

/* Prints the monotonic clock, which all processes of a machine share. */
static int write_monotonic(char *line, size_t room)
{
	uint64_t us = clock_ns() / 1000;

	return snprintf(line, room, "%llu.%06u ", (unsigned long long)(us / 1000000),
			(unsigned int)(us % 1000000));
}

static int write_head(enum log_level level, char *line, size_t room)
{
	struct timespec now;
	char text[48];

	switch (log_head) {
	case HEAD_NONE:
		break;
	case HEAD_MONOTONIC:
		return write_monotonic(line, room);
	case HEAD_UTC:
		clock_gettime(CLOCK_REALTIME, &now);
		log_format_time(&now, text, sizeof(text));
		return snprintf(line, room, "%s ", text);
	case HEAD_PRIORITY:
		return snprintf(line, room, "<%d>", log_priority(level));
	}
	return 0;
}

/*
 * Returns whether a line can be written. The caller may hold locks of the adapter, and peers cause some lines: so a pipe that nobody
 * reads must not stop it, nor may one that is closed end the program (SIGPIPE). A level that was asked for loses no lines: it waits.
 */
static bool is_writable(void)
{
	struct pollfd to = {.fd = log_fd, .events = POLLOUT};
	int n;

	do
		n = poll(&to, 1, log_level > LOG_LEVEL_WARN ? -1 : 0);
	while (n < 0 && errno == EINTR);
	return n == 1 && to.revents == POLLOUT;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	va_list ap;
	int n, m;

	n = write_head(level, line, sizeof(line));
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
	if (is_writable() && write(log_fd, line, (size_t)n) < 0) {
		/* logging itself failed: there is no place left to report it */
	}
	errno = saved;
}
