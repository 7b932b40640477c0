/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h - shows the progress of something that takes more than a second: one line on stderr, updated in place, on a
 * terminal only.
 */
#ifndef STAG_APP_PROGRESS_H
#define STAG_APP_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum progress_unit { PROGRESS_BYTES, PROGRESS_TIME /* nanoseconds */ };

struct progress {
	const char *what;
	enum progress_unit unit;
	uint64_t total; /* 0: unknown */
	uint64_t since, shown;
	bool terminal;
};

void progress_begin(struct progress *p, const char *what, enum progress_unit unit, uint64_t total);
/* Is an update due? For callers to which composing a note is too expensive to do in vain. */
bool progress_is_due(const struct progress *p, uint64_t now);
void progress_show(struct progress *p, uint64_t done, const char *note); /* note may be NULL */
void progress_spent(struct progress *p,
		    const char *note); /* for PROGRESS_TIME: the time since the beginning is done */
void progress_end(
	struct progress *p); /* removes the line; call before anything else is printed, too */

/* Writes the line as it is `spent` nanoseconds after the beginning. For tests. */
void progress_line(const struct progress *p, uint64_t spent_ns, uint64_t done, const char *note,
		   char *text, size_t size);

#endif
