// SPDX-License-Identifier: BSD-2-Clause
/*
 * log.c - writes lines of the log (log.h).
 *
 * The journal gets one datagram of NAME=VALUE lines, as systemd's JOURNAL_NATIVE_PROTOCOL describes. If its socket does not exist,
 * the line goes to stderr.
 */
#include "log.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define JOURNAL	 "/run/systemd/journal/socket"
#define LINE_MAX 1024

static const enum log_level levels[] = {[EVENT_ERR] = LOG_LEVEL_ERR,
					[EVENT_WARN] = LOG_LEVEL_WARN,
					[EVENT_INFO] = LOG_LEVEL_INFO,
					[EVENT_DEBUG] = LOG_LEVEL_DEBUG};

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

/* Writes the time and the level; or, if the journal reads stderr and adds these itself, the priority. */
void log_plain(const struct log_line *l)
{
	char head[72], time[48];

	log_format_time(&l->time, time, sizeof(time));
	if (log_is_journal(STDERR_FILENO))
		snprintf(head, sizeof(head), "<%d>", log_priority(levels[l->level]));
	else
		snprintf(head, sizeof(head), "%s %-4s ", time, event_level_word(l->level));
	put_line(head, l);
}

void log_json(const struct log_line *l)
{
	char time[48], text[4 * LINE_MAX];
	json_t *o;
	size_t len;

	log_format_time(&l->time, time, sizeof(time));
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
	char text[LINE_MAX + 256];
	int len = snprintf(text, sizeof(text),
			   "PRIORITY=%d\nSYSLOG_IDENTIFIER=stagd\nSTAG_OBJECT=%s\nSTAG_EVENT=%llu\n"
			   "MESSAGE=%s%s%s\n",
			   log_priority(levels[l->level]), l->object, (unsigned long long)l->id,
			   strcmp(l->object, "daemon") == 0 ? "" : l->object,
			   strcmp(l->object, "daemon") == 0 ? "" : ": ", l->text);

	if (len <= 0 || (size_t)len >= sizeof(text) || !send_to_journal(text, (size_t)len))
		log_plain(l);
}
