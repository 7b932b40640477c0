// SPDX-License-Identifier: BSD-2-Clause
/*
 * patience.c - connections, and how long each may take (server.h).
 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define HEAD_S	  10	     /* from the connection to the end of a request's head */
#define BODY_S	  10	     /* for a body, and a second more for each */
#define BODY_RATE (64 << 10) /* of so many bytes */
#define ANSWER_S  30
#define IDLE_S	  60 /* between two requests */
#define LOOK_MS	  250

static uint64_t in_seconds(uint64_t s)
{
	return clock_ns() + s * NS_PER_S;
}

static void cut_off_the_late(struct patience *p)
{
	uint64_t now = clock_ns();

	assert(lock_held(&p->lock));
	for (struct guest *g = p->guests; g; g = g->next)
		if (g->until && g->until < now) {
			shutdown(g->fd, SHUT_RDWR);
			g->until = 0;
		}
}

static void *patience_thread(void *arg)
{
	struct patience *p = arg;
	struct timespec until;

	lock_acquire(&p->lock);
	while (!p->stopping) {
		if (!p->guests) {
			lock_wait(&p->lock, &p->changed);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_MS * (long)NS_PER_MS;
		until.tv_sec += until.tv_nsec / (long)NS_PER_S;
		until.tv_nsec %= (long)NS_PER_S;
		lock_wait_until(&p->lock, &p->changed, &until);
		cut_off_the_late(p);
	}
	lock_release(&p->lock);
	return NULL;
}

int patience_start(struct patience *p)
{
	pthread_condattr_t attr;
	int rc;

	lock_init(&p->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&p->thread, NULL, patience_thread, p);
	p->has_thread = rc == 0;
	return -rc;
}

void patience_stop(struct patience *p)
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

struct guest *patience_admit(struct patience *p, int fd)
{
	struct guest *g = malloc(sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct guest){.fd = fd, .until = in_seconds(HEAD_S)};
	HOLD_FOR_SCOPE(&p->lock);
	g->next = p->guests;
	g->at = &p->guests;
	if (g->next)
		g->next->at = &g->next;
	p->guests = g;
	p->count++;
	pthread_cond_signal(&p->changed);
	return g;
}

void patience_dismiss(struct patience *p, struct guest *g)
{
	lock_acquire(&p->lock);
	*g->at = g->next;
	if (g->next)
		g->next->at = g->at;
	p->count--;
	lock_release(&p->lock);
	free(g);
}

static void set(struct patience *p, struct guest *g, uint64_t until)
{
	HOLD_FOR_SCOPE(&p->lock);
	g->until = until;
}

void patience_begins(struct patience *p, struct guest *g)
{
	g->began = clock_ns();
	set(p, g, in_seconds(BODY_S));
}

void patience_received(struct patience *p, struct guest *g, size_t bytes)
{
	set(p, g, g->began + (BODY_S + bytes / BODY_RATE) * NS_PER_S);
}

void patience_works(struct patience *p, struct guest *g)
{
	set(p, g, 0);
}

void patience_answers(struct patience *p, struct guest *g, size_t bytes)
{
	set(p, g, in_seconds(ANSWER_S + bytes / BODY_RATE));
}

void patience_idles(struct patience *p, struct guest *g)
{
	set(p, g, in_seconds(IDLE_S));
}
