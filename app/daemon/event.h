/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.h - the log of stagd. Each line is also an event; the process keeps the last EVENTS_KEPT about each kind of object, and as many
 * refusals: lines that begin with "refused: ". Strangers cause refusals, so these have room of their own.
 *
 * An event as JSON:
 *
 *	{"id": 17, "time": "2026-03-01T12:00:00.123Z", "level": "info", "object": "pool shop/a", "text": "promoted"}
 *
 * Ids count from 1. Lines that repeat are limited to a rate: a source that causes one again and again, as refused logins do, fills
 * neither the log nor the memory of other events; "(and 312 more like this)" is the number of those left out. object: "daemon", "api", "pool NAME/NODE", "watch NAME", "store NAME", "target NAME".
 */
#ifndef STAG_APP_EVENT_H
#define STAG_APP_EVENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define EVENTS_MAX  1000 /* that one request may ask for */
#define EVENTS_KEPT 500	 /* of each kind of object; and as many refusals */
#define EVENTS_ALIKE                                                                               \
	50 /* lines that differ in numbers and quoted names only, at once; then five a second */

enum event_level { EVENT_ERR, EVENT_WARN, EVENT_INFO, EVENT_DEBUG };

/* Destination of the log. */
enum event_log { EVENT_STDERR, EVENT_JOURNAL, EVENT_JSON };

/* Logs a line; safe from any thread. A line below the log's severity does not become an event either. */
void event_add(enum event_level level, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Logs a line about what happened `age_us` ago, elsewhere. */
void event_add_old(enum event_level level, uint64_t age_us, const char *object, const char *text);

/*
 * Returns an array of the events with an id above `since` (0: all that are kept), oldest first. If there are none, it waits
 * up to timeout_ms for one, and returns an empty array if that time passes or events_end() was called.
 */
json_t *events_since(uint64_t since, int timeout_ms);
uint64_t events_last(void); /* the last id; 0: none */
/* Logs the number of lines that were left out and have stopped; to be called every second. */
void events_tell_left_out(void);
/* Returns the text of the last error that was logged, to be freed; NULL: none. */
char *events_last_error(void);
void events_end(void); /* wakes up all waiting threads; later calls do not wait */

/* Sets destination and level; stderr and "info" before the first call. */
void event_log_to(enum event_log where, enum event_level most);
bool event_level_parse(const char *word, enum event_level *level);
/* Replaces control characters and bytes that are not UTF-8 by '?', so that the text is valid JSON. */
void event_make_printable(char *text);
bool event_is_refusal(const char *text);
enum event_level event_level_of(int priority); /* as of syslog(3) */
const char *event_level_word(enum event_level level);

#endif
