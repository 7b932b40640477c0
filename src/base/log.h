/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.h - one line a message, object first ("qp 7: ..."), errno preserved.
 *
 * The level comes from STAG_LOG (err, warn, info, debug, or none; default
 * warn). Lines go to stderr, or to the file named by STAG_LOG_FILE; with
 * STAG_LOG_TIME they begin with the time, in seconds of the monotonic clock.
 */
#ifndef STAG_BASE_LOG_H
#define STAG_BASE_LOG_H

enum log_level { LOG_LEVEL_NONE, LOG_LEVEL_ERR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

extern int log_level; /* read-only outside log.c */

void log_init(void); /* reads the environment; runs by itself before main() */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

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
