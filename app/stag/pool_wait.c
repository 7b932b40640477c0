// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_wait.c - stag pool: waits for what is about to come, such as a pool that another command is just making (--wait).
 *
 * A thread says for whom the command waits, because the call that the command is in may take seconds.
 */
#include "pool_use.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cleanup.h"

#define MOMENT_NS (NS_PER_S / 2)   /* a wait that is shorter is not mentioned */
#define NAP_NS	  (20 * NS_PER_MS) /* the first; each is longer, as an attempt costs both sides */
#define NAP_MAX	  (200 * NS_PER_MS)

/* Prints for whom the command waits. The caller holds the lock. */
static void tell(struct pool_wait *w)
{
	w->told = true;
	if (!w->quiet && w->whom[0])
		fprintf(stderr, "stag: waiting up to %g s for %s\n", w->seconds, w->whom);
}

static void *tell_after_a_moment(void *arg)
{
	struct pool_wait *w = arg;
	const uint64_t at = w->since + MOMENT_NS;
	const struct timespec moment = {.tv_sec = (time_t)(at / NS_PER_S),
					.tv_nsec = (long)(at % NS_PER_S)};

	LOCK_FOR_SCOPE(&w->lock);
	while (!w->ended && clock_ns() < at)
		pthread_cond_timedwait(&w->end, &w->lock, &moment);
	if (!w->ended)
		tell(w);
	return NULL;
}

void pool_wait_begin(struct pool_wait *w, const struct pool_use *u)
{
	pthread_condattr_t monotonic;

	*w = (struct pool_wait){
		.since = clock_ns(), .nap_ns = NAP_NS, .seconds = u->wait, .quiet = u->json};
	w->until = w->since + (uint64_t)(u->wait * NS_PER_S);
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->end, &monotonic);
	pthread_condattr_destroy(&monotonic);
	w->has_thread =
		w->seconds > 0 && pthread_create(&w->thread, NULL, tell_after_a_moment, w) == 0;
}

void pool_wait_end(struct pool_wait *w)
{
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_signal(&w->end);
	pthread_mutex_unlock(&w->lock);
	if (w->has_thread)
		pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->end);
	pthread_mutex_destroy(&w->lock);
}

void pool_wait_for(struct pool_wait *w, const char *fmt, ...)
{
	char whom[sizeof(w->whom)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(whom, sizeof(whom), fmt, ap);
	va_end(ap);
	LOCK_FOR_SCOPE(&w->lock);
	if (strcmp(whom, w->whom) == 0)
		return;
	strcpy(w->whom, whom);
	if (w->told)
		tell(w);
}

int pool_wait_left_ms(const struct pool_wait *w)
{
	uint64_t now = clock_ns();

	return now < w->until ? (int)((w->until - now) / NS_PER_MS) : 0;
}

bool pool_wait_more(struct pool_wait *w)
{
	const struct timespec nap = {.tv_nsec = (long)w->nap_ns};

	if (pool_wait_left_ms(w) == 0)
		return false;
	w->nap_ns = w->nap_ns * 2 < NAP_MAX ? w->nap_ns * 2 : NAP_MAX;
	nanosleep(&nap, NULL);
	return true;
}
