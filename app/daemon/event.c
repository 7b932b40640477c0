// SPDX-License-Identifier: BSD-2-Clause
/*
 * event.c - the log and the ring of events (event.h).
 */
#include "event.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "log.h"

#define TEXT_MAX   512
#define OBJECT_MAX 144

struct event {
	struct timespec time;
	enum event_level level;
	char object[OBJECT_MAX];
	char text[TEXT_MAX];
};

static struct lock lock = LOCK_INITIALIZER;
static pthread_cond_t more;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct event ring[EVENTS_MAX];
static uint64_t last; /* event n is at n % EVENTS_MAX */
static bool ended;
static enum event_log log_where = EVENT_STDERR;
static enum event_level log_most = EVENT_INFO;

static const char *const level_words[] = {"err", "warn", "info", "debug"};

static void make_cond(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&more, &attr);
	pthread_condattr_destroy(&attr);
}

const char *event_level_word(enum event_level level)
{
	return level_words[level];
}

bool event_level_parse(const char *word, enum event_level *level)
{
	for (unsigned int i = 0; i < sizeof(level_words) / sizeof(level_words[0]); i++)
		if (strcmp(level_words[i], word) == 0) {
			*level = (enum event_level)i;
			return true;
		}
	return false;
}

void event_log_to(enum event_log where, enum event_level most)
{
	HOLD_FOR_SCOPE(&lock);

	log_where = where;
	log_most = most;
}

/* ---- events ------------------------------------------------------------------------- */

/* Replaces control characters and bytes that are not UTF-8 by '?', so that the text is valid JSON. */
static void make_printable(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p;) {
		int more_bytes = *p < 0x80   ? 0
				 : *p < 0xc2 ? -1
				 : *p < 0xe0 ? 1
				 : *p < 0xf0 ? 2
				 : *p < 0xf5 ? 3
					     : -1;
		bool good = more_bytes >= 0 && (more_bytes > 0 || (*p >= 0x20 && *p != 0x7f));

		for (int i = 1; good && i <= more_bytes; i++)
			good = (p[i] & 0xc0) == 0x80;
		/* overlong forms, surrogates, beyond U+10FFFF */
		if (good && ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
			     (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f)))
			good = false;
		if (!good)
			*p = '?';
		p += good ? more_bytes + 1 : 1;
	}
}

static json_t *event_json(uint64_t id, const struct event *e)
{
	char time[48];

	log_time(&e->time, time, sizeof(time));
	return json_pack("{s:I, s:s, s:s, s:s, s:s}", "id", (json_int_t)id, "time", time, "level",
			 event_level_word(e->level), "object", e->object, "text", e->text);
}

static void write_out(uint64_t id, const struct event *e)
{
	struct log_line line = {
		.time = e->time, .level = e->level, .id = id, .object = e->object, .text = e->text};

	assert(lock_held(&lock));
	switch (log_where) {
	case EVENT_STDERR:
		log_plain(&line);
		break;
	case EVENT_JOURNAL:
		log_journal(&line);
		break;
	case EVENT_JSON:
		log_json(&line);
		break;
	}
}

void event_add(enum event_level level, const char *object, const char *fmt, ...)
{
	int error = errno;
	struct event *e;
	va_list ap;

	pthread_once(&once, make_cond);
	lock_acquire(&lock);
	if (level <= log_most) {
		e = &ring[++last % EVENTS_MAX];
		clock_gettime(CLOCK_REALTIME, &e->time);
		e->level = level;
		snprintf(e->object, sizeof(e->object), "%s", object);
		va_start(ap, fmt);
		vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
		make_printable(e->object);
		make_printable(e->text);
		write_out(last, e);
		pthread_cond_broadcast(&more);
	}
	lock_release(&lock);
	errno = error;
}

/* ---- readers --------------------------------------------------------------------------- */

uint64_t events_last(void)
{
	HOLD_FOR_SCOPE(&lock);

	return last;
}

void events_end(void)
{
	pthread_once(&once, make_cond);
	lock_acquire(&lock);
	ended = true;
	pthread_cond_broadcast(&more);
	lock_release(&lock);
}

static void wait_for_more(uint64_t since, int timeout_ms)
{
	struct timespec until;

	assert(lock_held(&lock));
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	while (last <= since && !ended)
		if (lock_wait_until(&lock, &more, &until) == ETIMEDOUT)
			return;
}

json_t *events_since(uint64_t since, int timeout_ms)
{
	json_t *list = json_array();
	uint64_t first;

	pthread_once(&once, make_cond);
	lock_acquire(&lock);
	if (timeout_ms > 0)
		wait_for_more(since, timeout_ms);
	first = last > EVENTS_MAX ? last - EVENTS_MAX + 1 : 1;
	for (uint64_t id = since + 1 > first ? since + 1 : first; id <= last; id++)
		json_array_append_new(list, event_json(id, &ring[id % EVENTS_MAX]));
	lock_release(&lock);
	return list;
}
