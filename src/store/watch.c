// SPDX-License-Identifier: BSD-2-Clause
/*
 * watch.c - one thread that watches the tables of all stores in which this process has endpoints.
 */
#include "store/endpoint.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"

static struct lock lock = LOCK_INITIALIZER; /* held during a callback */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct list watches = {&watches, &watches};
static bool running; /* the thread runs; it ends when there are no watches */

static void lock_for_fork(void)
{
	lock_acquire(&lock);
}

static void unlock_after_fork(void)
{
	lock_release(&lock);
}

/* A child has no thread, and does not watch its parent's endpoints. */
static void forget_after_fork(void)
{
	static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;

	list_for_each_safe (it, &watches)
		list_del(it);
	running = false;
	wake = fresh;
	lock_release(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(lock_for_fork, unlock_after_fork, forget_after_fork);
}

static void wait_a_while(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += WATCH_MS * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000l;
	until.tv_nsec %= 1000000000l;
	lock_wait_until(&lock, &wake, &until);
}

static void *watch_loop(void *arg)
{
	HOLD_FOR_SCOPE(&lock);
	while (!list_empty(&watches)) {
		wait_a_while();
		list_for_each_safe (it, &watches) {
			struct store_watch *w = list_entry(it, struct store_watch, link);

			w->look(w);
		}
	}
	running = false;
	return arg;
}

/* Blocks all signals: they are for the program's threads. */
static int start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, NULL, watch_loop, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0)
		return store_fail(rc, "cannot start a thread to watch the table: %s", strerror(rc));
	pthread_detach(thread);
	running = true;
	return 0;
}

int watch_start(struct store_watch *w, void (*look)(struct store_watch *w))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rc;

	pthread_once(&once, watch_forks);
	HOLD_FOR_SCOPE(&lock);
	rc = running ? 0 : start_thread();
	if (rc != 0)
		return rc;
	w->look = look;
	list_add_tail(&watches, &w->link);
	return 0;
}

void watch_stop(struct store_watch *w)
{
	HOLD_FOR_SCOPE(&lock);
	list_del(&w->link);
	if (list_empty(&watches))
		pthread_cond_signal(&wake);
}
