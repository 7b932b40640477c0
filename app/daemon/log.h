/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.h - writes a line of the log to stderr, as text or JSON, or to the journal. One write(2) each, so that lines do not mix.
 */
#ifndef STAG_APP_LOG_H
#define STAG_APP_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "event.h"

struct log_line {
	struct timespec time;
	enum event_level level;
	uint64_t id;
	const char *object, *text; /* UTF-8 without control characters */
};

void log_plain(const struct log_line *line);
void log_json(const struct log_line *line);
void log_journal(const struct log_line *line);

#endif
