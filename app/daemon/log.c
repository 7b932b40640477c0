// SPDX-License-Identifier: BSD-2-Clause
/*
 * log.c - writes lines of the log (log.h).
 *
 * The journal gets one datagram of NAME=VALUE lines, as systemd's JOURNAL_NATIVE_PROTOCOL describes. If its socket does not exist
 * but stderr is connected to it (JOURNAL_STREAM), a line begins with its priority (sd-daemon(3)); else it is plain text.
 */
#include "log.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

#define JOURNAL	 "/run/systemd/journal/socket"
#define LINE_MAX 1024

static const int priorities[] = {
	[EVENT_ERR] = 3, [EVENT_WARN] = 4, [EVENT_INFO] = 6, [EVENT_DEBUG] = 7};

void log_time(const struct timespec *time, char *text, size_t size)
{
	struct tm tm;
	char seconds[32];

	gmtime_r(&time->tv_sec, &tm);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, size, "%s.%03ldZ", seconds, time->tv_nsec / 1000000);
}

/* Ignores errors: there is nowhere else to report them. */
static void write_line(const char *text, int len)
{
	if (len > 0)
		(void)!write(STDERR_FILENO, text, (size_t)len < LINE_MAX ? (size_t)len : LINE_MAX);
}

static void put_line(const char *head, const struct log_line *l)
{
	char text[LINE_MAX];

	write_line(text, snprintf(text, sizeof(text), "%sstagd: %s%s%s\n", head,
				  strcmp(l->object, "daemon") == 0 ? "" : l->object,
				  strcmp(l->object, "daemon") == 0 ? "" : ": ", l->text));
}

void log_plain(const struct log_line *l)
{
	put_line("", l);
}

void log_json(const struct log_line *l)
{
	char time[48], text[4 * LINE_MAX];
	json_t *o;
	size_t len;

	log_time(&l->time, time, sizeof(time));
	o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "time", time, "level",
		      event_level_word(l->level), "object", l->object, "text", l->text, "pid",
		      (int)getpid(), "id", (json_int_t)l->id);
	len = o ? json_dumpb(o, text, sizeof(text) - 1, JSON_COMPACT) : 0;
	json_decref(o);
	if (len == 0 || len >= sizeof(text) - 1)
		return;
	text[len++] = '\n';
	(void)!write(STDERR_FILENO, text, len);
}

/* Returns whether stderr is the stream that JOURNAL_STREAM names. */
static bool is_stderr_the_journal(void)
{
	const char *named = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return named && sscanf(named, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static bool send_to_journal(const char *text, size_t len)
{
	const char *named = getenv("STAG_JOURNAL"); /* tests set it to a socket of their own */
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", named && *named ? named : JOURNAL);
	return fd >= 0 && sendto(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
				 sizeof(to)) >= 0;
}

void log_journal(const struct log_line *l)
{
	char text[LINE_MAX + 256], head[8];
	int len = snprintf(text, sizeof(text),
			   "PRIORITY=%d\nSYSLOG_IDENTIFIER=stagd\nSTAG_OBJECT=%s\nSTAG_EVENT=%llu\n"
			   "MESSAGE=%s%s%s\n",
			   priorities[l->level], l->object, (unsigned long long)l->id,
			   strcmp(l->object, "daemon") == 0 ? "" : l->object,
			   strcmp(l->object, "daemon") == 0 ? "" : ": ", l->text);

	if (len > 0 && (size_t)len < sizeof(text) && send_to_journal(text, (size_t)len))
		return;
	snprintf(head, sizeof(head), "<%d>", priorities[l->level]);
	put_line(is_stderr_the_journal() ? head : "", l);
}
