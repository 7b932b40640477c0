/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.h - the log of stagd: each line is an event, too. One ring of the last EVENTS_MAX, of the whole process.
 *
 * An event as JSON:
 *
 *	{"id": 17, "time": "2026-03-01T12:00:00.123Z", "level": "info", "object": "pool shop/a", "text": "it is primary"}
 *
 * Ids count from 1 and have no gaps. object: "daemon", "api", "pool NAME/NODE", "watch NAME", "store NAME", "target NAME".
 */
#ifndef STAG_APP_EVENT_H
#define STAG_APP_EVENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define EVENTS_MAX 1000

enum event_level { EVENT_ERR, EVENT_WARN, EVENT_INFO, EVENT_DEBUG };

/* Where lines go. */
enum event_log { EVENT_STDERR, EVENT_JOURNAL, EVENT_JSON };

/* From any thread, at any time. Lines above the log's level are no events either. */
void event_add(enum event_level level, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Those with an id above `since`, oldest first, as an array; 0: all that are kept. Where there is none yet the next one is
 * waited for, timeout_ms at most (0: not at all); then the array is empty. Wakes up, and is empty, when the daemon ends.
 */
json_t *events_since(uint64_t since, int timeout_ms);
uint64_t events_last(void); /* the last id; 0: none */
void events_end(void);	    /* who waits is let go, and nobody waits any more */

/* stderr and "info" until told otherwise. */
void event_log_to(enum event_log where, enum event_level most);
bool event_level_parse(const char *word, enum event_level *level);
const char *event_level_word(enum event_level level);

#endif
