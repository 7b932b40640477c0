// SPDX-License-Identifier: BSD-2-Clause
/*
 * history.c - samples of the last ten minutes (history.h).
 *
 * The thread queries other daemons without holding the lock, and a hung one takes seconds to time out. So that stopping need not
 * wait for it, the thread and its starter have a reference each, and the last one frees the history.
 */
#include "history.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "control.h"
#include "daemon.h"
#include "live.h"

struct sample {
	double time; /* seconds since 1970 */
	json_t *values;
};

struct history {
	struct lock lock;
	pthread_cond_t changed;
	struct daemon *daemon; /* used only under lock, and not after stopping is set */
	bool stopping;
	unsigned int users;		     /* references: the thread, and its starter */
	struct sample ring[HISTORY_SAMPLES]; /* at put % HISTORY_SAMPLES */
	uint64_t put;
	struct snapshot before; /* used by the thread only */
};

static void snapshot_free(struct snapshot *l)
{
	json_decref(l->daemons);
	json_decref(l->lives);
	*l = (struct snapshot){0};
}

/* Drops one of the two references, releases the lock, and frees h with the last reference. */
static void history_put(struct history *h)
{
	bool last;

	assert(lock_held(&h->lock));
	last = --h->users == 0;
	lock_release(&h->lock);
	if (!last)
		return;
	for (unsigned int i = 0; i < HISTORY_SAMPLES; i++)
		json_decref(h->ring[i].values);
	snapshot_free(&h->before);
	pthread_cond_destroy(&h->changed);
	lock_destroy(&h->lock);
	free(h);
}

/* ---- the thread ------------------------------------------------------------------------ */

static void history_append(struct history *h, struct snapshot *now)
{
	struct sample *s;

	assert(lock_held(&h->lock));
	s = &h->ring[h->put++ % HISTORY_SAMPLES];
	json_decref(s->values);
	s->time = (double)(clock_read(CLOCK_REALTIME) / NS_PER_MS) /
		  1000; /* with the precision that is printed */
	s->values = series_of(now, &h->before);
	snapshot_free(&h->before);
	h->before = *now;
}

/* Sleeps until that time, or until stopping is set. */
static void sleep_until(struct history *h, uint64_t ns)
{
	const struct timespec until = {.tv_sec = (time_t)(ns / NS_PER_S),
				       .tv_nsec = (long)(ns % NS_PER_S)};

	assert(lock_held(&h->lock));
	while (!h->stopping && clock_ns() < ns)
		lock_wait_until(&h->lock, &h->changed, &until);
}

static void *history_thread(void *arg)
{
	struct history *h = arg;
	uint64_t next = clock_ns();
	struct snapshot now;
	json_t *own;

	lock_acquire(&h->lock);
	while (!h->stopping) {
		lock_release(&h->lock);
		now = (struct snapshot){.daemons = control_query_others("stagd", "status"),
					.lives = live_ask_all("counters")};
		lock_acquire(&h->lock);
		if (h->stopping) {
			snapshot_free(&now);
			break;
		}
		own = daemon_status(h->daemon);
		json_array_append_new(now.daemons, own);
		now.own = own;
		history_append(h, &now);
		next = clock_ns() > next + NS_PER_S ? clock_ns() : next + NS_PER_S;
		sleep_until(h, next);
	}
	history_put(h);
	return NULL;
}

struct history *history_start(struct daemon *d)
{
	struct history *h = calloc(1, sizeof(*h));
	pthread_condattr_t attr;
	pthread_t thread;
	int rc;

	if (!h)
		return NULL;
	h->daemon = d;
	h->users = 2;
	lock_init(&h->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&thread, NULL, history_thread, h);
	if (rc == 0) {
		pthread_detach(thread);
		return h;
	}
	h->users = 1;
	lock_acquire(&h->lock);
	history_put(h);
	errno = rc;
	return NULL;
}

void history_stop(struct history *h)
{
	if (!h)
		return;
	lock_acquire(&h->lock);
	h->stopping = true;
	pthread_cond_signal(&h->changed);
	history_put(h);
}

/* ---- the answer ----------------------------------------------------------------------- */

/* Returns an object with an empty array for each series in these samples. */
static json_t *all_series(const struct history *h, uint64_t from)
{
	json_t *series = json_object(), *value;
	const char *name;

	assert(lock_held(&h->lock));
	for (uint64_t i = from; i < h->put; i++)
		json_object_foreach (h->ring[i % HISTORY_SAMPLES].values, name, value)
			if (!json_object_get(series, name))
				json_object_set_new(series, name, json_array());
	return series;
}

json_t *history_json(struct history *h, double since)
{
	HOLD_FOR_SCOPE(&h->lock);
	uint64_t from = h->put > HISTORY_SAMPLES ? h->put - HISTORY_SAMPLES : 0;
	json_t *times = json_array(), *series, *list, *value;
	const char *name;

	while (from < h->put && h->ring[from % HISTORY_SAMPLES].time <= since)
		from++;
	series = all_series(h, from);
	for (uint64_t i = from; i < h->put; i++) {
		const struct sample *s = &h->ring[i % HISTORY_SAMPLES];

		json_array_append_new(times, json_real(s->time));
		json_object_foreach (series, name, list) {
			value = json_object_get(s->values, name);
			json_array_append_new(list, value ? json_incref(value) : json_null());
		}
	}
	return json_pack("{s:o s:o}", "time", times, "series", series);
}
