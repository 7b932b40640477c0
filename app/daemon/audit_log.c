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

#include "audit_kept.h"
#include "base/audit.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rate.h"
#include "event.h"
#include "refusal.h"

#define QUEUE 1024 /* records that wait for the disk */

static struct lock lock = LOCK_INITIALIZER; /* protects all of these */
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct audit_record *queue;
static unsigned int queued, first; /* number in the queue, index of the oldest */
static struct audit_kept *kept;
static uint64_t last, lost, left_out; /* left_out: refusals, when too many came at once */
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

static json_t *record_json(const struct audit_record *r)
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
	if (r->flags & STAG_AUDIT_ADMINISTRATION)
		json_object_set_new(o, "administration", json_true());
	if (r->suppressed)
		json_object_set_new(o, "suppressed", json_integer(r->suppressed));
	return o;
}

/* The object of the event is what a service is called: "store disk" of "store disk, partition goods". */
static void log_refusal(const struct stag_audit_record *from)
{
	char text[512], object[160];

	if (from->outcome != STAG_AUDIT_REFUSED || !refusal_is_unsaid(from))
		return;
	refusal_text(from, text, sizeof(text));
	snprintf(object, sizeof(object), "%.*s", (int)strcspn(from->object, ","), from->object);
	event_add(EVENT_WARN, strcmp(from->room, "api") == 0 ? "api" : object, "%s", text);
}

static bool may_take(const struct stag_audit_record *from)
{
	HOLD_FOR_SCOPE(&lock);

	if (running && audit_kept_allows(kept, from, clock_ns()))
		return true;
	left_out += running;
	return false;
}

/* Keeps a record, and queues it for the file. */
static void keep_record(const struct audit_record *r)
{
	assert(lock_held(&lock));
	audit_kept_add(kept, r);
	if (!file_path)
		return;
	if (queued == QUEUE) {
		lost++;
		return;
	}
	queue[(first + queued++) % QUEUE] = *r;
	pthread_cond_signal(&more);
}

static void take_record(const struct stag_audit_record *from, void *arg)
{
	struct audit_record r = {
		.outcome = from->outcome, .suppressed = from->suppressed, .flags = from->flags};

	(void)arg;
	if (!may_take(from))
		return;
	log_refusal(from);
	clock_gettime(CLOCK_REALTIME, &r.time);
	copy_text(r.room, sizeof(r.room), from->room);
	copy_text(r.object, sizeof(r.object), from->object);
	copy_text(r.user, sizeof(r.user), from->user);
	copy_text(r.from, sizeof(r.from), from->from);
	copy_text(r.action, sizeof(r.action), from->action);
	copy_text(r.reason, sizeof(r.reason), from->reason);
	HOLD_FOR_SCOPE(&lock);
	if (!running)
		return;
	r.id = ++last;
	keep_record(&r);
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
static int write_record(int to, const struct audit_record *r, bool *cut)
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
	struct audit_record r = queue[first];
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
	kept = audit_kept_create();
	good = queue && kept && pthread_create(&thread, NULL, audit_thread, NULL) == 0;
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
	audit_kept_destroy(kept);
	queue = NULL;
	kept = NULL;
}

/* ---- readers ----------------------------------------------------------------------------------- */

json_t *audit_log_since(uint64_t since, uint64_t limit)
{
	const struct audit_record *list[AUDIT_MOST];
	json_t *all = json_array();
	size_t n;

	HOLD_FOR_SCOPE(&lock);
	if (!running)
		return all;
	n = audit_kept_list(kept, since, list, limit < AUDIT_MOST ? limit : AUDIT_MOST);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(all, record_json(list[i]));
	return all;
}

json_t *audit_log_status(void)
{
	HOLD_FOR_SCOPE(&lock);

	return json_pack("{s:s? s:I s:I s:I}", "file", file_path, "records", (json_int_t)last,
			 "lost", (json_int_t)lost, "left_out", (json_int_t)left_out);
}
