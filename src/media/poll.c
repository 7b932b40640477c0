// SPDX-License-Identifier: BSD-2-Clause
/* poll.c - handles the kernel's completions, calls back, and wakes threads that do not poll. */
#include "media/medium.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define EVENTS	  4 /* handled before the operations that follow from them are submitted */
#define MOMENT_NS 2000

static void handle(struct media *m, const struct media_event *e)
{
	if (e->cookie == COOKIE_SYNC)
		flush_event(m, e->result);
	else if (e->cookie == COOKIE_TIMEOUT)
		places_retry(m);
	else
		step_event(m, (struct media_op *)(uintptr_t)e->cookie, e->result);
}

static unsigned int reap(struct media *m)
{
	struct media_event events[EVENTS];
	unsigned int n = m->edge->reap(m->edge, events, EVENTS);

	for (unsigned int i = 0; i < n; i++)
		handle(m, &events[i]);
	return n;
}

static void take_all(struct list *from, struct list *to)
{
	list_init(to);
	if (list_empty(from))
		return;
	to->next = from->next;
	to->prev = from->prev;
	to->next->prev = to->prev->next = to;
	list_init(from);
}

static unsigned int call_done(struct list *ready)
{
	unsigned int n = 0;

	for (struct list *l = ready->next, *next; l != ready; l = next, n++) {
		struct media_op *op = list_entry(l, struct media_op, state.link);

		next = l->next; /* done() returns the operation to the caller */
		op->done(op);
	}
	return n;
}

/* One at a time: until it is called, a waiter may withdraw (media_stop_waiting()). */
static struct media_waiter *next_granted(struct media *m)
{
	struct media_waiter *w = NULL;

	lock_acquire(&m->lock);
	if (!list_empty(&m->staging.granted)) {
		w = list_entry(m->staging.granted.next, struct media_waiter, link);
		list_del(&w->link);
		w->waiting = false;
		atomic_fetch_sub(&m->to_tell, 1);
	}
	lock_release(&m->lock);
	return w;
}

static unsigned int call_granted(struct media *m)
{
	struct media_waiter *w;
	unsigned int n = 0;

	for (; (w = next_granted(m)); n++)
		w->granted(w, w->buffer);
	return n;
}

/* the medium that this thread will poll again before it sleeps */
static __thread struct media *polled_here;

/* Wakes the sleeping thread, if there is one, unless this thread polls the medium itself. */
void poll_wake(struct media *m)
{
	uint64_t one = 1;

	if (m != polled_here && atomic_load(&m->armed) && write(m->event_fd, &one, sizeof(one)) < 0)
		log_err("medium %d: cannot write its eventfd: %m", m->fd);
}

static bool has_something(struct media *m)
{
	return atomic_load_explicit(&m->to_tell, memory_order_acquire) || m->edge->ready(m->edge);
}

/*
 * Handles a few events, their callbacks, and submits what those queued: the medium does not idle
 * meanwhile.
 */
static unsigned int poll_some(struct media *m, unsigned int *reaped)
{
	struct list ready;
	unsigned int n;
	bool granted;

	lock_acquire(&m->lock);
	*reaped += reap(m);
	media_op_start_backlog(m);
	take_all(&m->ready, &ready);
	atomic_fetch_sub(&m->to_tell, m->n_ready);
	m->n_ready = 0;
	granted = !list_empty(&m->staging.granted);
	lock_release(&m->lock);
	n = call_done(&ready);
	if (granted)
		n += call_granted(m);
	media_kick(m);
	return n;
}

struct media *media_poller_enter(struct media *m)
{
	struct media *before = polled_here;

	polled_here = m;
	return before;
}

void media_poller_leave(struct media *m, struct media *before)
{
	polled_here = before;
	if (!m || m == before || !media_is_ours(m))
		return;
	if (has_something(m) || m->edge->queued(m->edge))
		poll_wake(m);
}

unsigned int media_poll(struct media *m)
{
	unsigned int n = 0, reaped = 0, rounds = 0;
	struct media *before;

	if (!media_is_ours(m))
		return 0;
	before = media_poller_enter(m);
	media_kick(m);
	/* Callbacks may submit forever, and their operations may complete at once. */
	while (has_something(m) && reaped < m->depth && rounds++ < m->depth)
		n += poll_some(m, &reaped);
	media_poller_leave(m, before);
	return n;
}

/* ---- sleeping threads ---- */

int media_event_fd(const struct media *m)
{
	return m->event_fd;
}

/*
 * The kernel stores its event and then checks whether the eventfd is armed, without a barrier in
 * between: its store may become visible shortly after our check. So there is a second check, after
 * that moment.
 */
static bool has_something_soon(struct media *m)
{
	uint64_t until = clock_ns() + MOMENT_NS;

	do {
		if (has_something(m))
			return true;
	} while (clock_ns() < until);
	return false;
}

void media_arm(struct media *m)
{
	if (!media_is_ours(m) || atomic_exchange(&m->armed, true))
		return;
	ring_arm(m->ring, true);
	atomic_thread_fence(memory_order_seq_cst);
	/* Entries that the kernel did not accept during a poll still have to be submitted. */
	if (has_something_soon(m) || m->edge->queued(m->edge))
		poll_wake(m);
}

void media_disarm(struct media *m)
{
	if (media_is_ours(m) && atomic_exchange(&m->armed, false))
		ring_arm(m->ring, false);
}

void media_clear_event(struct media *m)
{
	uint64_t n;

	if (media_is_ours(m) && read(m->event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_err("medium %d: cannot read its eventfd: %m", m->fd);
}
