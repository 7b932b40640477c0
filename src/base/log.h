/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.h - one line a message, object first ("qp 7: ..."), errno preserved.
 *
 * The level comes from STAG_LOG (err, warn, info, debug, or none; default
 * warn). Lines go to stderr, or to the file named by STAG_LOG_FILE. They begin
 * with the time if STAG_LOG_TIME is "utc" (the date and time of day) or "1" (seconds of the
 * monotonic clock); or with "<N>", their priority, if stderr is systemd's journal.
 */
#ifndef STAG_BASE_LOG_H
#define STAG_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum log_level { LOG_LEVEL_NONE, LOG_LEVEL_ERR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

extern int log_level; /* read-only outside log.c */

void log_init(void); /* reads the environment; runs by itself before main() */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns whether the descriptor is the stream that systemd's JOURNAL_STREAM names (sd-daemon(3)). */
bool log_is_journal(int fd);
int log_priority(enum log_level level);					    /* as in syslog(3) */
void log_format_time(const struct timespec *time, char *text, size_t size); /* RFC 3339, ms, UTC */

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (__builtin_expect(log_level >= (int)(level), 0))                                \
			log_write(level, __VA_ARGS__);                                             \
	} while (0)

#define log_err(...)   log_at(LOG_LEVEL_ERR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
