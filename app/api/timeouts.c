// SPDX-License-Identifier: BSD-2-Clause
/*
 * timeouts.c - connections and their deadlines (server.h).
 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define HEAD_S	  10	     /* from accepting the connection to the end of a request's head */
#define BODY_S	  10	     /* for a body, plus one second for each */
#define BODY_RATE (64 << 10) /* bytes of it */
#define ANSWER_S  30
#define IDLE_S	  60  /* between two requests */
#define CHECK_MS  250 /* interval at which deadlines are checked */

static uint64_t in_seconds(uint64_t s)
{
	return clock_ns() + s * NS_PER_S;
}

static void shut_down_expired(struct timeouts *p)
{
	uint64_t now = clock_ns();

	assert(lock_held(&p->lock));
	for (struct client_conn *g = p->conns; g; g = g->next)
		if (g->until && g->until < now) {
			shutdown(g->fd, SHUT_RDWR);
			g->until = 0;
		}
}

static void *timeouts_thread(void *arg)
{
	struct timeouts *p = arg;
	struct timespec until;

	lock_acquire(&p->lock);
	while (!p->stopping) {
		if (!p->conns) {
			lock_wait(&p->lock, &p->changed);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += CHECK_MS * (long)NS_PER_MS;
		until.tv_sec += until.tv_nsec / (long)NS_PER_S;
		until.tv_nsec %= (long)NS_PER_S;
		lock_wait_until(&p->lock, &p->changed, &until);
		shut_down_expired(p);
	}
	lock_release(&p->lock);
	return NULL;
}

int timeouts_start(struct timeouts *p)
{
	pthread_condattr_t attr;
	int rc;

	lock_init(&p->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&p->thread, NULL, timeouts_thread, p);
	p->has_thread = rc == 0;
	return -rc;
}

void timeouts_stop(struct timeouts *p)
{
	if (p->has_thread) {
		lock_acquire(&p->lock);
		p->stopping = true;
		pthread_cond_signal(&p->changed);
		lock_release(&p->lock);
		pthread_join(p->thread, NULL);
	}
	pthread_cond_destroy(&p->changed);
	lock_destroy(&p->lock);
}

struct client_conn *timeouts_admit(struct timeouts *p, int fd)
{
	struct client_conn *g = malloc(sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct client_conn){.fd = fd, .until = in_seconds(HEAD_S)};
	HOLD_FOR_SCOPE(&p->lock);
	g->next = p->conns;
	g->at = &p->conns;
	if (g->next)
		g->next->at = &g->next;
	p->conns = g;
	p->count++;
	pthread_cond_signal(&p->changed);
	return g;
}

void timeouts_dismiss(struct timeouts *p, struct client_conn *g)
{
	lock_acquire(&p->lock);
	*g->at = g->next;
	if (g->next)
		g->next->at = g->at;
	p->count--;
	lock_release(&p->lock);
	free(g);
}

static void set_deadline(struct timeouts *p, struct client_conn *g, uint64_t until)
{
	HOLD_FOR_SCOPE(&p->lock);
	g->until = until;
}

void timeouts_begins(struct timeouts *p, struct client_conn *g)
{
	g->began = clock_ns();
	set_deadline(p, g, in_seconds(BODY_S));
}

void timeouts_received(struct timeouts *p, struct client_conn *g, size_t bytes)
{
	set_deadline(p, g, g->began + (BODY_S + bytes / BODY_RATE) * NS_PER_S);
}

void timeouts_works(struct timeouts *p, struct client_conn *g)
{
	set_deadline(p, g, 0);
}

void timeouts_answers(struct timeouts *p, struct client_conn *g, size_t bytes)
{
	set_deadline(p, g, in_seconds(ANSWER_S + bytes / BODY_RATE));
}

void timeouts_idles(struct timeouts *p, struct client_conn *g)
{
	set_deadline(p, g, in_seconds(IDLE_S));
}
