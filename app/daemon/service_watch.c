// SPDX-License-Identifier: BSD-2-Clause
/*
 * service_watch.c - a pool that other daemons serve: a thread queries it once a second, and logs what happened to its nodes.
 */
#include "service.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "pool_primary.h"
#include "pool_words.h"

#define PERIOD_MS   1000
#define MOST_EVENTS 1000	    /* at a time */
#define RUNS_SEEN   128		    /* a node keeps as many events, so no more runs */
#define PATIENCE_NS (60 * NS_PER_S) /* for one query; longer, and the thread counts as hung */

struct watch {
	struct service service;
	struct client client;
	pthread_t thread;
	struct lock lock; /* protects the fields below */
	pthread_cond_t wake;
	bool ends, answers, has_looked;
	uint64_t looked, since; /* ns: the last query; when `answers` changed */
	char error[256];
	struct stag_pool_info info;
	struct stag_pool_event event; /* the last one that was fetched; used by the thread only */
	struct watch_seen {	      /* the last event of each run of a node; likewise */
		char node[64];
		uint64_t run, number;
		uint64_t used; /* when it was looked up, by `looks`; 0: unused */
	} seen[RUNS_SEEN];
	uint64_t looks;
};

static struct watch *to_watch(struct service *s)
{
	return (struct watch *)s;
}

/* ---- queries ---------------------------------------------------------------------------- */

static const char *primary_of(const struct stag_pool_info *i)
{
	const struct stag_pool_member *p = pool_primary(i);

	return p ? p->name : "nobody";
}

static void log_changes(const struct watch *w, const struct stag_pool_info *now, const char *error)
{
	assert(lock_held(&w->lock));
	if (error && (w->answers || !w->has_looked))
		event_add(EVENT_WARN, w->service.object, "the pool does not respond: %s", error);
	if (!error && (!w->answers || now->epoch != w->info.epoch ||
		       strcmp(primary_of(now), primary_of(&w->info)) != 0))
		event_add(EVENT_INFO, w->service.object, "%s is primary of epoch %llu",
			  primary_of(now), (unsigned long long)now->epoch);
}

static void watch_store_result(struct watch *w, const struct stag_pool_info *now, const char *error)
{
	HOLD_FOR_SCOPE(&w->lock);

	log_changes(w, now, error);
	if (w->answers != !error || !w->has_looked)
		w->since = clock_ns();
	w->answers = !error;
	w->has_looked = true;
	w->looked = clock_ns();
	snprintf(w->error, sizeof(w->error), "%s", error ? error : "");
	if (!error)
		w->info = *now;
}

/* ---- events of the nodes -------------------------------------------------------------------- */

/* Returns the entry of the run of an event's node; the one that was not looked up for the longest time makes room. */
static struct watch_seen *seen_of(struct watch *w, const struct stag_pool_event *e)
{
	struct watch_seen *oldest = &w->seen[0];

	for (unsigned int i = 0; i < RUNS_SEEN; i++) {
		struct watch_seen *s = &w->seen[i];

		if (s->run == e->run && strcmp(s->node, e->node) == 0)
			return s;
		if (s->used < oldest->used)
			oldest = s;
	}
	*oldest = (struct watch_seen){.run = e->run};
	snprintf(oldest->node, sizeof(oldest->node), "%s", e->node);
	return oldest;
}

/* Another primary sends what was seen already, too, of this run of a node and of earlier ones. */
static bool is_new(struct watch *w, const struct stag_pool_event *e)
{
	struct watch_seen *s = seen_of(w, e);

	s->used = ++w->looks;
	if (s->number >= e->number)
		return false;
	s->number = e->number;
	return true;
}

static void log_event(struct watch *w, const struct stag_pool_event *e)
{
	char object[OBJECT_MAX];

	if (!is_new(w, e))
		return;
	snprintf(object, sizeof(object), "pool %s/%s", w->service.conf->name, e->node);
	if (!daemon_serves_node(w->service.daemon, w->service.conf->name, e->node))
		event_add_old(event_level_of((int)e->level), e->age_us, object, e->text);
}

/* Fetches what happened to the nodes, if the user has the right to administer. */
static void fetch_events(struct watch *w)
{
	for (int i = 0; i < MOST_EVENTS && stag_pool_next_event(w->client.use.client, &w->event);
	     i++)
		log_event(w, &w->event);
}

static void watch_query(struct watch *w)
{
	struct stag_pool_info now = {0};
	char error[256] = "";
	int rc = ENOTCONN;

	client_lock(&w->client);
	if (w->client.use.client) {
		rc = stag_pool_query(w->client.use.client, &now, sizeof(now));
		snprintf(error, sizeof(error), "%s", rc ? stag_pool_error() : "");
		if (rc == ENOTCONN || rc == ETIMEDOUT)
			daemon_pool_lost(&w->client.use);
		else if (rc == 0)
			fetch_events(w);
	} else {
		snprintf(error, sizeof(error), "%s", w->client.use.why);
	}
	client_unlock(&w->client);
	watch_store_result(w, &now, rc ? error : NULL);
}

static bool wait_for_next_query(struct watch *w)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PERIOD_MS / 1000;
	HOLD_FOR_SCOPE(&w->lock);
	while (!w->ends)
		if (lock_wait_until(&w->lock, &w->wake, &until) == ETIMEDOUT)
			break;
	return !w->ends;
}

static void *watch_thread(void *arg)
{
	struct watch *w = arg;

	do {
		watch_query(w);
	} while (wait_for_next_query(w));
	return NULL;
}

/* ---- a service ---------------------------------------------------------------------------- */

static int watch_start(struct service *s, char *why, size_t size)
{
	const struct conf_watch *c = (const struct conf_watch *)s->conf;
	struct watch *w = to_watch(s);
	pthread_condattr_t attr;
	int rc;

	snprintf(s->object, sizeof(s->object), "watch %s", s->conf->name);
	client_init(&w->client, s);
	client_name(&w->client, c->nodes, c->user, c->secret);
	client_secure(&w->client, c->tls, c->tls_cert, c->tls_key, c->tls_ca);
	lock_init(&w->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	w->looked = w->since = clock_ns();
	rc = pthread_create(&w->thread, NULL, watch_thread, w);
	if (rc == 0)
		return 0;
	client_end(&w->client);
	return service_fails(s->conf, s->conf->line, why, size, rc, "cannot start a thread: %s",
			     strerror(rc));
}

static void watch_stop(struct service *s)
{
	struct watch *w = to_watch(s);

	lock_acquire(&w->lock);
	w->ends = true;
	pthread_cond_broadcast(&w->wake);
	lock_release(&w->lock);
	pthread_join(w->thread, NULL);
	client_end(&w->client);
	lock_destroy(&w->lock);
	pthread_cond_destroy(&w->wake);
}

/* Reconnects with the new settings: the connection is this service's alone. */
static int watch_change(struct service *s, struct conf_section *to, char *why, size_t size)
{
	const struct conf_watch *c = (const struct conf_watch *)to;
	struct watch *w = to_watch(s);

	if (!conf_differs(s->now, to))
		return 0;
	lock_acquire(&w->client.lock);
	daemon_pool_lost(&w->client.use);
	client_name(&w->client, c->nodes, c->user, c->secret);
	client_secure(&w->client, c->tls, c->tls_cert, c->tls_key, c->tls_ca);
	lock_release(&w->client.lock);
	return 0;
}

static bool watch_answers(struct service *s)
{
	struct watch *w = to_watch(s);

	HOLD_FOR_SCOPE(&w->lock);
	return clock_ns() - w->looked < PATIENCE_NS;
}

static json_t *watch_status(struct service *s, const struct conf_section *now)
{
	const struct conf_watch *c = (const struct conf_watch *)now;
	struct watch *w = to_watch(s);
	json_t *o;

	HOLD_FOR_SCOPE(&w->lock);
	o = json_pack("{s:s, s:s, s:s, s:b, s:I, s:I}", "name", s->conf->name, "kind", "watched",
		      "where", c->nodes, "answers", w->answers, "since_s",
		      (json_int_t)((clock_ns() - w->since) / NS_PER_S), "now_ns",
		      (json_int_t)w->looked);
	json_object_set_new(o, "tls", json_string(conf_tls_words[c->tls]));
	json_object_set_new(o, "error", w->answers ? json_null() : json_string(w->error));
	if (w->answers)
		json_object_update_new(o, pool_info_json(&w->info));
	return o;
}

static void watch_announce(struct service *s, json_t *list)
{
	if (list)
		json_array_append_new(list, json_pack("{s:s}", "watch", s->conf->name));
	else
		printf("watching pool %s\n", s->conf->name);
}

struct client *watch_client(struct service *s)
{
	return &to_watch(s)->client;
}

const struct service_kind watch_service = {
	.conf = &conf_watch_kind,
	.list = "watches",
	.size = sizeof(struct watch),
	.start = watch_start,
	.stop = watch_stop,
	.change = watch_change,
	.answers = watch_answers,
	.status = watch_status,
	.announce = watch_announce,
};
