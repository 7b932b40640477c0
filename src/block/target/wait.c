// SPDX-License-Identifier: BSD-2-Clause
/*
 * wait.c - a target's thread that has nothing to do: it stays awake for a moment, then it sleeps.
 *
 * To be woken takes longer than to answer. So where requests come in quick succession, the next one is waited for awake, up to
 * spin_ns. Each wait that was short earns a point, each that was not costs some: with few points it sleeps at once. Who is
 * busy stays awake in spite of a pause now and then; who is not has stopped after a few.
 */
#include "block/target/target.h"

#include <sys/epoll.h>

#include "base/clock.h"

#define POINTS_MOST   32
#define POINTS_ENOUGH 8
#define LONG_COSTS    4
#define SOCKETS_EVERY 8 /* looks at verbs, where somebody is busy there */

void target_wait_init(struct target_wait *w, uint32_t spin_us)
{
	*w = (struct target_wait){.spin_ns = spin_us * 1000ull};
}

static void learn(struct target_wait *w, bool was_short)
{
	if (!was_short)
		w->points -= w->points < LONG_COSTS ? w->points : LONG_COSTS;
	else if (w->points < POINTS_MOST)
		w->points++;
}

/* Is there something? For connections over verbs, and units, it is done already. */
static bool look(struct stag_block_target *t, struct epoll_event *events, int most, int *n,
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
		came = look(t, events, most, n, ++turn);
	while (!came && clock_ns() < until);
	learn(&t->loop.wait, came);
	return came;
}

/* What came between the last look and the arming is done, and no reason to sleep. */
static bool arm(struct stag_block_target *t)
{
	return target_rdma_arm(t) == 0 && units_arm(t->units) == 0;
}

/* It takes a while to be woken: what came in time looks later than it was. */
static int sleep_for(struct stag_block_target *t, struct epoll_event *events, int most,
		     int timeout_ms)
{
	uint64_t since = clock_ns();
	int n = epoll_wait(t->loop.epoll, events, most, arm(t) ? timeout_ms : 0);

	learn(&t->loop.wait, clock_ns() - since < 2 * t->loop.wait.spin_ns);
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
