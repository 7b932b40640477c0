// SPDX-License-Identifier: BSD-2-Clause
/*
 * steps.c - the engine's functions (engine.h) for a single thread that
 * takes each step itself, and random numbers (base/random.h) that are the same in each run.
 */
#include "steps.h"

#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/engine.h"
#include "base/log.h"
#include "base/random.h"
#include "fuzz.h"

#define MAX_WATCHES 64

static int held; /* how often the engine lock is held */
static struct watch *watches[MAX_WATCHES], *kept[MAX_WATCHES];
static struct list timers = {&timers, &timers}, works = {&works, &works};

struct stag_totals stag_totals;

int engine_start(void)
{
	return 0;
}

void engine_lock(void)
{
	held++;
}

void engine_unlock(void)
{
	CHECK(held > 0);
	held--;
}

bool engine_locked(void)
{
	return held > 0;
}

unsigned engine_age(void)
{
	return 0;
}

int watch_add(struct watch *w, int fd, uint32_t events, void (*fn)(struct watch *, uint32_t))
{
	CHECK(held);
	for (uint32_t i = 0; i < MAX_WATCHES; i++) {
		if (watches[i])
			continue;
		watches[i] = w;
		w->fd = fd;
		w->events = events;
		w->fn = fn;
		w->slot = i;
		return 0;
	}
	CHECK(!"room for a watch");
	return 0;
}

static bool is_added(const struct watch *w)
{
	return w->fn && watches[w->slot] == w;
}

int watch_mod(struct watch *w, uint32_t events)
{
	if (is_added(w))
		w->events = events;
	return 0;
}

void watch_del(struct watch *w)
{
	CHECK(held);
	if (is_added(w))
		watches[w->slot] = NULL;
}

void timer_set(struct timer *t, uint64_t deadline, void (*fn)(struct timer *))
{
	t->deadline = deadline;
	t->fn = fn;
	if (!t->armed)
		list_add_tail(&timers, &t->link);
	t->armed = true;
}

void timer_cancel(struct timer *t)
{
	CHECK(held);
	if (t->armed)
		list_del(&t->link);
	t->armed = false;
}

void work_queue(struct work *w, void (*fn)(struct work *))
{
	w->fn = fn;
	if (!w->queued)
		list_add_tail(&works, &w->link);
	w->queued = true;
}

void work_cancel(struct work *w)
{
	CHECK(held);
	if (w->queued)
		list_del(&w->link);
	w->queued = false;
}

/* Few values, the same in every run, so that tags repeat and their table does not grow. */
static uint32_t dice;

uint32_t random_u32(void)
{
	dice = dice * 1664525 + 1013904223;
	return dice >> 21;
}

/* Formats log lines, too, and prints them only on request. */
static void log_to_nowhere(void)
{
	static bool done;

	if (done)
		return;
	setenv("STAG_LOG", "debug", 0);
	setenv("STAG_LOG_FILE", "/dev/null", 0);
	log_init();
	done = true;
}

void steps_begin(void)
{
	log_to_nowhere();
	dice = 1;
}

/* There is only one poller, so it keeps what it claims. */
void engine_note_polled(struct stag_cq *cq)
{
	atomic_store(&cq->in_polled, true);
}

void engine_help(void)
{
}

void engine_note_asked(void)
{
}

void engine_forget_polled(struct stag_cq *cq)
{
	atomic_store(&cq->in_polled, false);
}

void steps_run(void)
{
	engine_lock();
	while (!list_empty(&works)) {
		struct work *w = list_entry(works.next, struct work, link);

		list_del(&w->link);
		w->queued = false;
		w->fn(w);
	}
	engine_unlock();
	CHECK(!held);
}

void steps_ready(void)
{
	engine_lock();
	for (uint32_t i = 0; i < MAX_WATCHES; i++)
		if (watches[i] && watches[i]->events)
			watches[i]->fn(watches[i], watches[i]->events);
	engine_unlock();
	CHECK(!held);
}

/* Timers that are armed meanwhile wait for the next call. */
void steps_pass_time(void)
{
	struct list due = {&due, &due};

	engine_lock();
	while (!list_empty(&timers)) {
		struct list *it = timers.next;

		list_del(it);
		list_add_tail(&due, it);
	}
	while (!list_empty(&due)) {
		struct timer *t = list_entry(due.next, struct timer, link);

		list_del(&t->link);
		t->armed = false;
		t->fn(t);
	}
	engine_unlock();
	CHECK(!held);
}

void steps_keep_watches(void)
{
	memcpy(kept, watches, sizeof(kept));
}

void steps_check_idle(void)
{
	CHECK(!held);
	CHECK(list_empty(&timers));
	CHECK(list_empty(&works));
	for (uint32_t i = 0; i < MAX_WATCHES; i++)
		CHECK(watches[i] == kept[i]);
}
