/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h - how far something is that takes over a second: one line on stderr, written anew, on a terminal only.
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
	uint64_t total; /* 0: nobody knows */
	uint64_t since, shown;
	bool terminal;
};

void progress_begin(struct progress *p, const char *what, enum progress_unit unit, uint64_t total);
/* Would there be a line now? For those who would have to think of a note, where every nanosecond counts. */
bool progress_is_due(const struct progress *p, uint64_t now);
void progress_show(struct progress *p, uint64_t done, const char *note); /* note: or NULL */
void progress_spent(struct progress *p,
		    const char *note); /* PROGRESS_TIME: what has passed is done */
void progress_end(struct progress *p); /* before anything else is printed, too */

/* That line, so and so long after the beginning. */
void progress_line(const struct progress *p, uint64_t spent_ns, uint64_t done, const char *note,
		   char *text, size_t size);

#endif
