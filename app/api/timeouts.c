// SPDX-License-Identifier: BSD-2-Clause
/*
 * timeouts.c - connections and their deadlines (server.h).
 */
#include "server.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define HEAD_S	  10	     /* from the first bytes to the end of a request's head */
#define BODY_S	  10	     /* for a body, plus one second for each */
#define BODY_RATE (64 << 10) /* bytes of it */
#define ANSWER_S  30
#define IDLE_S	  60  /* between two requests */
#define CHECK_MS  250 /* interval at which deadlines are checked */
#define SOURCES	  256
#define COME_NS	  (10 * NS_PER_S) /* a connection that was given to libmicrohttpd begins by then */
#define SETTLE_NS                                                                                  \
	(100 * NS_PER_MS) /* a head may take so long before it may be closed to make room */

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

static unsigned int source_of(int fd)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	uint64_t hash = 0;

	if (getpeername(fd, (struct sockaddr *)&a, &len) != 0)
		return 0;
	if (a.ss_family == AF_INET)
		hash = ((struct sockaddr_in *)&a)->sin_addr.s_addr;
	else if (a.ss_family == AF_INET6) /* a host has a /64 of its own */
		memcpy(&hash, &((struct sockaddr_in6 *)&a)->sin6_addr, sizeof(hash));
	return (unsigned int)(hash * 0x9e3779b97f4a7c15ull >> 56) % SOURCES;
}

/* libmicrohttpd begins a connection in a thread of its own, a while after it was given to it. */
static void has_come(struct timeouts *p, bool is_local)
{
	assert(lock_held(&p->lock));
	if (p->coming[is_local])
		p->coming[is_local]--;
}

static bool counts(const struct client_conn *g)
{
	return g->phase != PHASE_STREAM && !g->leaves;
}

struct client_conn *timeouts_admit(struct timeouts *p, int fd, bool is_local)
{
	struct client_conn *g = malloc(sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct client_conn){.fd = fd,
				  .is_local = is_local,
				  .source = source_of(fd),
				  .since = clock_ns(),
				  .until = in_seconds(HEAD_S)};
	HOLD_FOR_SCOPE(&p->lock);
	g->next = p->conns;
	g->at = &p->conns;
	if (g->next)
		g->next->at = &g->next;
	p->conns = g;
	has_come(p, is_local);
	p->count[is_local]++;
	p->open++;
	pthread_cond_signal(&p->changed);
	return g;
}

void timeouts_dismiss(struct timeouts *p, struct client_conn *g)
{
	lock_acquire(&p->lock);
	*g->at = g->next;
	if (g->next)
		g->next->at = g->at;
	p->count[g->is_local] -= counts(g);
	p->open--;
	lock_release(&p->lock);
	free(g);
}

static void enter_phase(struct timeouts *p, struct client_conn *g, enum phase phase, uint64_t until)
{
	HOLD_FOR_SCOPE(&p->lock);
	p->count[g->is_local] -= counts(g);
	if (g->phase != phase)
		g->since = clock_ns();
	g->phase = phase;
	g->until = until;
	p->count[g->is_local] += counts(g);
}

void timeouts_begins(struct timeouts *p, struct client_conn *g)
{
	g->began = clock_ns();
	enter_phase(p, g, PHASE_BUSY, in_seconds(BODY_S));
}

void timeouts_received(struct timeouts *p, struct client_conn *g, size_t bytes)
{
	enter_phase(p, g, PHASE_BUSY, g->began + (BODY_S + bytes / BODY_RATE) * NS_PER_S);
}

void timeouts_works(struct timeouts *p, struct client_conn *g)
{
	enter_phase(p, g, PHASE_BUSY, 0);
}

void timeouts_streams(struct timeouts *p, struct client_conn *g)
{
	enter_phase(p, g, PHASE_STREAM, 0);
}

void timeouts_answers(struct timeouts *p, struct client_conn *g, size_t bytes)
{
	enter_phase(p, g, PHASE_BUSY, in_seconds(ANSWER_S + bytes / BODY_RATE));
}

void timeouts_idles(struct timeouts *p, struct client_conn *g)
{
	enter_phase(p, g, PHASE_IDLE, in_seconds(IDLE_S));
}

/* ---- room ---------------------------------------------------------------------------------- */

/* Returns whether a should leave rather than b: idle ones first, then of the source that has most, then the oldest. */
static bool goes_before(const struct client_conn *a, const struct client_conn *b,
			const unsigned int *of_source)
{
	if (!b || a->phase != b->phase)
		return !b || a->phase == PHASE_IDLE;
	if (of_source[a->source] != of_source[b->source])
		return of_source[a->source] > of_source[b->source];
	return a->since < b->since;
}

static struct client_conn *who_leaves(const struct timeouts *p, bool is_local)
{
	unsigned int of_source[SOURCES] = {0};
	struct client_conn *found = NULL;
	uint64_t now = clock_ns();

	assert(lock_held(&p->lock));
	for (const struct client_conn *g = p->conns; g; g = g->next)
		of_source[g->source]++;
	for (struct client_conn *g = p->conns; g; g = g->next)
		if (g->is_local == is_local && !g->leaves &&
		    (g->phase == PHASE_IDLE ||
		     (g->phase == PHASE_HEAD && now - g->since > SETTLE_NS)) &&
		    goes_before(g, found, of_source))
			found = g;
	return found;
}

/* Returns the number that is promised room and has not come. One that libmicrohttpd had no memory for never comes. */
static unsigned int still_to_come(struct timeouts *p, bool is_local)
{
	assert(lock_held(&p->lock));
	if (clock_ns() - p->promised[is_local] > COME_NS)
		p->coming[is_local] = 0;
	return p->coming[is_local];
}

static bool turn_one_out(struct timeouts *p, bool is_local)
{
	struct client_conn *g = who_leaves(p, is_local);

	if (!g)
		return false;
	shutdown(g->fd, SHUT_RDWR);
	g->until = 0;
	g->leaves = true;
	p->count[is_local]--;
	return true;
}

bool timeouts_make_room(struct timeouts *p, bool is_local, unsigned int most)
{
	HOLD_FOR_SCOPE(&p->lock);
	if (p->count[is_local] + still_to_come(p, is_local) >= most && !turn_one_out(p, is_local))
		return false;
	p->coming[is_local]++;
	p->promised[is_local] = clock_ns();
	return true;
}

void timeouts_cancel(struct timeouts *p, bool is_local)
{
	HOLD_FOR_SCOPE(&p->lock);
	has_come(p, is_local);
}
