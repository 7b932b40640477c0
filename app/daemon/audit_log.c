// SPDX-License-Identifier: BSD-2-Clause
/*
 * audit_log.c - the audit log of stagd (audit_log.h).
 */
#include "audit_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/audit.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rate.h"
#include "event.h"
#include "refusal.h"

#define QUEUE 1024 /* records that wait for the disk */

struct record {
	uint64_t id;
	struct timespec time;
	enum stag_audit_outcome outcome;
	uint32_t suppressed;
	char room[16], object[128], user[80], from[80], action[48], reason[256];
};

/* The last records of one kind, at id % AUDIT_KEPT of their own count. */
struct kept {
	struct record *list;
	uint64_t count;
};

static struct lock lock = LOCK_INITIALIZER; /* protects all of these */
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct record *queue;
static unsigned int queued, first; /* number in the queue, index of the oldest */
static struct kept acts, refusals;
static uint64_t last, lost;
static char *file_path;
static int fd = -1;
static bool torn; /* the last line was cut off by a full disk */
static bool running, stopping;
static pthread_t thread;

/* ---- records ------------------------------------------------------------------------------ */

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
	event_make_printable(to);
}

static const char *outcome_word(enum stag_audit_outcome outcome)
{
	static const char *const words[] = {"allowed", "refused", "failed"};

	return words[outcome];
}

/* Adds a text if there is one. */
static void put(json_t *o, const char *name, const char *text)
{
	if (*text)
		json_object_set_new(o, name, json_string(text));
}

static json_t *record_json(const struct record *r)
{
	json_t *o;
	char time[48];

	log_format_time(&r->time, time, sizeof(time));
	o = json_pack("{s:I s:s s:s}", "id", (json_int_t)r->id, "time", time, "outcome",
		      outcome_word(r->outcome));
	put(o, "room", r->room);
	put(o, "object", r->object);
	put(o, "action", r->action);
	put(o, "user", r->user);
	put(o, "from", r->from);
	put(o, "reason", r->reason);
	if (r->suppressed)
		json_object_set_new(o, "suppressed", json_integer(r->suppressed));
	return o;
}

static struct record *slot_for(enum stag_audit_outcome outcome)
{
	struct kept *k = outcome == STAG_AUDIT_REFUSED ? &refusals : &acts;

	assert(lock_held(&lock));
	return &k->list[k->count++ % AUDIT_KEPT];
}

static void log_refusal(const struct stag_audit_record *from)
{
	char text[512];

	if (from->outcome != STAG_AUDIT_REFUSED || !refusal_is_unsaid(from))
		return;
	refusal_text(from, text, sizeof(text));
	event_add(EVENT_WARN, strcmp(from->room, "api") == 0 ? "api" : from->object, "%s", text);
}

static void take_record(const struct stag_audit_record *from, void *arg)
{
	struct record *r;

	(void)arg;
	log_refusal(from);
	HOLD_FOR_SCOPE(&lock);
	if (!running)
		return;
	r = slot_for(from->outcome);
	*r = (struct record){
		.id = ++last, .outcome = from->outcome, .suppressed = from->suppressed};
	clock_gettime(CLOCK_REALTIME, &r->time);
	copy_text(r->room, sizeof(r->room), from->room);
	copy_text(r->object, sizeof(r->object), from->object);
	copy_text(r->user, sizeof(r->user), from->user);
	copy_text(r->from, sizeof(r->from), from->from);
	copy_text(r->action, sizeof(r->action), from->action);
	copy_text(r->reason, sizeof(r->reason), from->reason);
	if (!file_path)
		return;
	if (queued == QUEUE) {
		lost++;
		return;
	}
	queue[(first + queued++) % QUEUE] = *r;
	pthread_cond_signal(&more);
}

/* ---- the file ------------------------------------------------------------------------------- */

static void complain_of_loss(const char *path, int error)
{
	static const struct rate_limit once_a_minute = {.interval_ns = 60 * NS_PER_S};
	static struct rate rate;
	uint32_t before;

	if (rate_allows(&rate, &once_a_minute, clock_ns(), &before))
		event_add(EVENT_ERR, "daemon", "audit-file %s: records are lost: %s", path,
			  strerror(error));
}

/* Writes a line. Returns 0, or the errno value of what prevents it. */
static int write_record(int to, const struct record *r, bool *cut)
{
	json_t *o = record_json(r);
	char *text = json_dumps(o, JSON_COMPACT), *line = NULL;
	int n = text ? asprintf(&line, "%s%s\n", *cut ? "\n" : "", text) : -1;
	ssize_t done = n > 0 ? write(to, line, (size_t)n) : -1;
	int error = n < 0 ? ENOMEM : done == n ? 0 : done < 0 ? errno : ENOSPC;

	if (done > 0)
		*cut = done < n;
	json_decref(o);
	free(text);
	if (n >= 0)
		free(line);
	return error;
}

/* Takes the oldest record from the queue and writes it, without the lock. */
static void write_oldest(void)
{
	struct record r = queue[first];
	int to = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1, error = EBADF;
	char *path = strdup(file_path ? file_path : "");
	bool cut = torn;

	assert(lock_held(&lock));
	first = (first + 1) % QUEUE;
	queued--;
	lock_release(&lock);
	if (to >= 0)
		error = write_record(to, &r, &cut);
	if (to >= 0)
		close(to);
	if (error)
		complain_of_loss(path ? path : "", error);
	lock_acquire(&lock);
	torn = cut;
	lost += error != 0;
	free(path);
}

static void *audit_thread(void *arg)
{
	(void)arg;
	lock_acquire(&lock);
	for (;;) {
		if (queued > 0)
			write_oldest();
		else if (stopping)
			break;
		else
			lock_wait(&lock, &more);
	}
	lock_release(&lock);
	return NULL;
}

static int open_log(const char *path)
{
	int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
		      0600);
	struct stat st;

	if (to >= 0 && fstat(to, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) &&
	    fchmod(to, 0600) != 0)
		event_add(EVENT_WARN, "daemon", "audit-file %s: others may read it: %s", path,
			  strerror(errno));
	return to;
}

void audit_log_to(const char *path)
{
	char *copy = path ? strdup(path) : NULL, *before;
	int to = path ? open_log(path) : -1, error = errno, old;

	if (path && to < 0)
		event_add(EVENT_ERR, "daemon", "audit-file %s: %s; records are kept in memory only",
			  path, strerror(error));
	lock_acquire(&lock);
	before = file_path;
	old = fd;
	file_path = copy;
	fd = to;
	torn = false;
	lock_release(&lock);
	free(before);
	if (old >= 0)
		close(old);
}

/* ---- start and stop --------------------------------------------------------------------------- */

void audit_log_start(void)
{
	static const struct audit_sink sink = {take_record, NULL};
	bool good;

	queue = calloc(QUEUE, sizeof(*queue));
	acts.list = calloc(AUDIT_KEPT, sizeof(*acts.list));
	refusals.list = calloc(AUDIT_KEPT, sizeof(*refusals.list));
	good = queue && acts.list && refusals.list &&
	       pthread_create(&thread, NULL, audit_thread, NULL) == 0;
	lock_acquire(&lock);
	running = good;
	stopping = false;
	lock_release(&lock);
	if (!good) {
		event_add(EVENT_ERR, "daemon", "out of memory: nothing is audited");
		return;
	}
	audit_set_sink(&sink);
	stag_audit_set_sink(take_record, NULL);
}

void audit_log_stop(void)
{
	bool ran;

	audit_set_sink(NULL);
	stag_audit_set_sink(NULL, NULL);
	lock_acquire(&lock);
	ran = running;
	running = false;
	stopping = true;
	pthread_cond_signal(&more);
	lock_release(&lock);
	if (ran)
		pthread_join(thread, NULL);
	audit_log_to(NULL);
	free(queue);
	free(acts.list);
	free(refusals.list);
	queue = NULL;
	acts = refusals = (struct kept){.list = NULL};
}

/* ---- readers ----------------------------------------------------------------------------------- */

static const struct record *record_at(const struct kept *k, uint64_t at)
{
	return at < k->count ? &k->list[at % AUDIT_KEPT] : NULL;
}

/* Returns the place of the oldest record that is kept with an id above `since`. */
static uint64_t oldest_of(const struct kept *k, uint64_t since)
{
	uint64_t at = k->count > AUDIT_KEPT ? k->count - AUDIT_KEPT : 0;

	while (at < k->count && k->list[at % AUDIT_KEPT].id <= since)
		at++;
	return at;
}

json_t *audit_log_since(uint64_t since, uint64_t limit)
{
	json_t *list = json_array();
	uint64_t a, b;

	HOLD_FOR_SCOPE(&lock);
	if (!running)
		return list;
	a = oldest_of(&acts, since);
	b = oldest_of(&refusals, since);
	while (a < acts.count || b < refusals.count) {
		const struct record *x = record_at(&acts, a), *y = record_at(&refusals, b);
		bool is_act = x && (!y || x->id < y->id);

		if (acts.count - a + refusals.count - b <= limit)
			json_array_append_new(list, record_json(is_act ? x : y));
		a += is_act;
		b += !is_act;
	}
	return list;
}

json_t *audit_log_status(void)
{
	HOLD_FOR_SCOPE(&lock);

	return json_pack("{s:s? s:I s:I}", "file", file_path, "records", (json_int_t)last, "lost",
			 (json_int_t)lost);
}
