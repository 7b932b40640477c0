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
#include <syslog.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/rate.h"
#include "log.h"

#define ALIKES	   256
#define TEXT_MAX   512
#define OBJECT_MAX 144

struct event {
	uint64_t id;
	struct timespec time;
	enum event_level level;
	char object[OBJECT_MAX];
	char text[TEXT_MAX];
};

/* The first word of an object says which ring its events are in; the last ring has all others. */
static const char *const ring_words[] = {"daemon", "api",    "pool",	"watch",
					 "store",  "target", "library", ""};

#define N_RINGS (sizeof(ring_words) / sizeof(ring_words[0]))

/* The last events about one kind of object, refusals apart, so that many about one do not push out those about another. */
struct ring {
	uint64_t count;	  /* event n of this kind is at n % EVENTS_KEPT */
	struct rate rate; /* of all lines of this kind, whatever they say */
	struct event list[EVENTS_KEPT];
};

/* Lines that differ only in numbers and in what is between quotes are alike. The last of them stands for those left out. */
struct alike {
	uint64_t key; /* 0: unused */
	struct rate rate;
	uint64_t left_out_at;
	struct event sample;
};

static struct lock lock = LOCK_INITIALIZER; /* protects all of these */
/* Refusals have rings of their own: strangers cause them, and must not push other events out. */
static struct ring rings[N_RINGS], refusals[N_RINGS];
static struct alike alikes[ALIKES];
static pthread_cond_t more;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t last; /* id of the last event */
static char last_error[OBJECT_MAX + TEXT_MAX + 2];
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

enum event_level event_level_of(int priority)
{
	return priority <= LOG_ERR	 ? EVENT_ERR
	       : priority <= LOG_WARNING ? EVENT_WARN
	       : priority <= LOG_INFO	 ? EVENT_INFO
					 : EVENT_DEBUG;
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

void event_make_printable(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p;) {
		int more_bytes = *p < 0x80   ? 0
				 : *p < 0xc2 ? -1
				 : *p < 0xe0 ? 1
				 : *p < 0xf0 ? 2
				 : *p < 0xf5 ? 3
					     : -1;
		bool good = more_bytes >= 0 && !is_control((const char *)p);

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

static json_t *event_json(const struct event *e)
{
	char time[48];

	log_format_time(&e->time, time, sizeof(time));
	return json_pack("{s:I, s:s, s:s, s:s, s:s}", "id", (json_int_t)e->id, "time", time,
			 "level", event_level_word(e->level), "object", e->object, "text", e->text);
}

static void write_out(const struct event *e)
{
	struct log_line line = {.time = e->time,
				.level = e->level,
				.id = e->id,
				.object = e->object,
				.text = e->text};

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

bool event_is_refusal(const char *text)
{
	return strncmp(text, "refused: ", 9) == 0;
}

static struct ring *ring_of(const struct event *e)
{
	size_t i = 0, len = strcspn(e->object, " ");

	while (i < N_RINGS - 1 &&
	       (strlen(ring_words[i]) != len || strncmp(ring_words[i], e->object, len) != 0))
		i++;
	return event_is_refusal(e->text) ? &refusals[i] : &rings[i];
}

/* Gives the event its id, keeps it and logs it. */
static void publish(struct event *e)
{
	struct ring *r = ring_of(e);

	assert(lock_held(&lock));
	e->id = ++last;
	r->list[r->count++ % EVENTS_KEPT] = *e;
	if (e->level == EVENT_ERR)
		snprintf(last_error, sizeof(last_error), "%s%s%s",
			 strcmp(e->object, "daemon") ? e->object : "",
			 strcmp(e->object, "daemon") ? ": " : "", e->text);
	write_out(e);
	pthread_cond_broadcast(&more);
}

/* ---- lines that repeat ------------------------------------------------------------------- */

/* Hashes what lines of one kind have in common: no digits, nothing between quotes. */
static uint64_t key_of(const struct event *e)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	bool quoted = false;

	for (const char *p = e->object; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3ull;
	for (const char *p = e->text; *p; p++) {
		quoted ^= *p == '\'' || *p == '"';
		if (!quoted && (*p < '0' || *p > '9'))
			hash = (hash ^ (unsigned char)*p) * 0x100000001b3ull;
	}
	return hash ? hash : 1;
}

static void add_number(struct event *e, uint32_t left_out)
{
	size_t len = strlen(e->text);
	char tail[48];
	int n = snprintf(tail, sizeof(tail), " (and %u more like this)", left_out);

	if (left_out == 0)
		return;
	if (len > sizeof(e->text) - 1 - (size_t)n)
		len = sizeof(e->text) - 1 - (size_t)n;
	strcpy(e->text + len, tail);
	event_make_printable(e->text); /* the cut may be inside a character */
}

/* Publishes a line for those that were left out. */
static void tell_of_left_out(struct alike *a)
{
	uint32_t n = atomic_exchange(&a->rate.suppressed, 0);

	if (n == 0)
		return;
	add_number(&a->sample, n - 1);
	publish(&a->sample);
}

/* Returns whether the line may be logged; then e->text has the number of those that were left out before it. */
static bool is_allowed(struct event *e)
{
	static const struct rate_limit of_alike = RATE_LIMIT(5, EVENTS_ALIKE),
				       of_ring = RATE_LIMIT(50, EVENTS_KEPT);
	uint64_t key = key_of(e), now = clock_ns();
	struct alike *a = &alikes[key % ALIKES];
	uint32_t left_out = 0, others = 0;

	if (a->key != key) {
		tell_of_left_out(a);
		*a = (struct alike){.key = key};
	}
	if (rate_allows(&a->rate, &of_alike, now, &left_out)) {
		if (rate_allows(&ring_of(e)->rate, &of_ring, now, &others)) {
			add_number(e, left_out + others);
			return true;
		}
		return false;
	}
	a->sample = *e;
	a->left_out_at = now;
	return false;
}

void events_tell_left_out(void)
{
	uint64_t now = clock_ns();

	HOLD_FOR_SCOPE(&lock);
	for (unsigned int i = 0; i < ALIKES; i++)
		if (alikes[i].rate.suppressed && now - alikes[i].left_out_at > NS_PER_S)
			tell_of_left_out(&alikes[i]);
}

static void add(struct event *e, const char *object)
{
	pthread_once(&once, make_cond);
	snprintf(e->object, sizeof(e->object), "%s", object);
	event_make_printable(e->object);
	event_make_printable(e->text);
	HOLD_FOR_SCOPE(&lock);
	if (e->level <= log_most && is_allowed(e))
		publish(e);
}

void event_add(enum event_level level, const char *object, const char *fmt, ...)
{
	int error = errno;
	struct event e = {.level = level};
	va_list ap;

	clock_gettime(CLOCK_REALTIME, &e.time);
	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	add(&e, object);
	errno = error;
}

void event_add_old(enum event_level level, uint64_t age_us, const char *object, const char *text)
{
	struct event e = {.level = level};
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &e.time);
	ns = (int64_t)e.time.tv_sec * (int64_t)NS_PER_S + e.time.tv_nsec - (int64_t)(age_us * 1000);
	e.time.tv_sec = ns / (int64_t)NS_PER_S;
	e.time.tv_nsec = ns % (int64_t)NS_PER_S;
	snprintf(e.text, sizeof(e.text), "%s", text);
	add(&e, object);
}

char *events_last_error(void)
{
	HOLD_FOR_SCOPE(&lock);

	return *last_error ? strdup(last_error) : NULL;
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

/* Returns the event with the lowest id above `since` of all rings; at: the place in each of them. */
static const struct event *next_event(uint64_t *at, uint64_t since)
{
	const struct event *found = NULL;
	size_t of = 0;

	for (size_t i = 0; i < 2 * N_RINGS; i++) {
		const struct ring *r = i < N_RINGS ? &rings[i] : &refusals[i - N_RINGS];

		if (r->count > EVENTS_KEPT && at[i] < r->count - EVENTS_KEPT)
			at[i] = r->count - EVENTS_KEPT;
		while (at[i] < r->count && r->list[at[i] % EVENTS_KEPT].id <= since)
			at[i]++;
		if (at[i] < r->count && (!found || r->list[at[i] % EVENTS_KEPT].id < found->id)) {
			found = &r->list[at[i] % EVENTS_KEPT];
			of = i;
		}
	}
	at[of] += found != NULL;
	return found;
}

json_t *events_since(uint64_t since, int timeout_ms)
{
	json_t *list = json_array();
	uint64_t at[2 * N_RINGS] = {0};
	const struct event *e;

	pthread_once(&once, make_cond);
	lock_acquire(&lock);
	if (timeout_ms > 0)
		wait_for_more(since, timeout_ms);
	while ((e = next_event(at, since)))
		json_array_append_new(list, event_json(e));
	lock_release(&lock);
	return list;
}
