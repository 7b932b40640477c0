// SPDX-License-Identifier: BSD-2-Clause
/*
 * wait.c - waiting for work: the target's thread spins for a moment, then it sleeps.
 *
 * Waking up takes longer than answering a request. So if requests come in quick succession, the thread spins for the
 * next one, up to spin_ns. Each short wait earns a point, each long one costs some; with few points the thread sleeps at
 * once. So a busy target goes on spinning in spite of a pause now and then, and an idle one stops after a few long
 * waits.
 */
#include "block/target/target.h"

#include <sys/epoll.h>

#include "base/clock.h"

#define POINTS_MOST   32
#define POINTS_ENOUGH 8
#define LONG_COSTS    4
#define SOCKETS_EVERY                                                                              \
	8 /* polls of verbs between two of sockets, while a connection over verbs is busy */

void target_wait_init(struct target_wait *w, uint32_t spin_us)
{
	*w = (struct target_wait){.spin_ns = spin_us * 1000ull};
}

static void count_wait(struct target_wait *w, bool was_short)
{
	if (!was_short)
		w->points -= w->points < LONG_COSTS ? w->points : LONG_COSTS;
	else if (w->points < POINTS_MOST)
		w->points++;
}

/* Polls once. Returns whether there was work: that of verbs and units is done, that of sockets is in events. */
static bool poll_once(struct stag_block_target *t, struct epoll_event *events, int most, int *n,
		      unsigned int turn)
{
	if (target_rdma_poll(t) > 0 || units_poll(t->units) > 0)
		return true;
	if (t->rdma.n_busy && turn % SOCKETS_EVERY != 0)
		return false;
	*n = epoll_wait(t->loop.epoll, events, most, 0);
	return *n != 0;
}

static bool spin(struct stag_block_target *t, struct epoll_event *events, int most, int *n)
{
	uint64_t until = clock_ns() + t->loop.wait.spin_ns;
	unsigned int turn = 0;
	bool came;

	do
		came = poll_once(t, events, most, n, ++turn);
	while (!came && clock_ns() < until);
	count_wait(&t->loop.wait, came);
	return came;
}

/* Arms verbs and units. Returns false if one of them had work, which has been done. */
static bool arm_all(struct stag_block_target *t)
{
	return target_rdma_arm(t) == 0 && units_arm(t->units) == 0;
}

/* A wait counts as short up to twice spin_ns, because waking up takes a while. */
static int sleep_for(struct stag_block_target *t, struct epoll_event *events, int most,
		     int timeout_ms)
{
	uint64_t since = clock_ns();
	int n = epoll_wait(t->loop.epoll, events, most, arm_all(t) ? timeout_ms : 0);

	count_wait(&t->loop.wait, clock_ns() - since < 2 * t->loop.wait.spin_ns);
	return n;
}

int target_wait_events(struct stag_block_target *t, struct epoll_event *events, int most,
		       int timeout_ms)
{
	int n = 0;

	if (timeout_ms == 0)
		return epoll_wait(t->loop.epoll, events, most, 0);
	if (t->loop.wait.points >= POINTS_ENOUGH && spin(t, events, most, &n))
		return n;
	return sleep_for(t, events, most, timeout_ms);
}
