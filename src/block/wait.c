// SPDX-License-Identifier: BSD-2-Clause
/*
 * wait.c - a target's thread that has nothing to do: it stays awake for a moment, then it sleeps.
 *
 * To be woken takes longer than to answer. So where requests have come in quick succession for a while, the next one is waited for
 * awake, up to spin_ns; if it does not come, they have to prove it for twice as long. What this costs is bounded: of the
 * times that it was in vain at most one in `wanted` sleeps, and `wanted` is soon large.
 */
#include "block/target.h"

#include <sys/epoll.h>

#include "base/clock.h"

#define SPIN_AFTER	16 /* short waits in a row */
#define SPIN_AFTER_MOST 65536

void wait_init(struct wait *w, uint32_t spin_us)
{
	*w = (struct wait){.spin_ns = spin_us * 1000ull, .wanted = SPIN_AFTER};
}

/* What was due came in time, or not. */
static void learn(struct wait *w, bool came)
{
	if (came) {
		w->wanted -= w->wanted > SPIN_AFTER;
		return;
	}
	w->brisk = 0;
	if (w->wanted < SPIN_AFTER_MOST)
		w->wanted *= 2;
}

/* Is there something? For connections over verbs, and units, it is done already. */
static bool look(struct stag_block_target *t, struct epoll_event *events, int most, int *n)
{
	if (rdma_poll(t) > 0 || units_poll(t->units) > 0)
		return true;
	*n = epoll_wait(t->epoll, events, most, 0);
	return *n != 0;
}

static bool spin(struct stag_block_target *t, struct epoll_event *events, int most, int *n)
{
	uint64_t until = clock_ns() + t->wait.spin_ns;
	bool came;

	do
		came = look(t, events, most, n);
	while (!came && clock_ns() < until);
	learn(&t->wait, came);
	return came;
}

/* What came between the last look and the arming is done, and no reason to sleep. */
static bool arm(struct stag_block_target *t)
{
	return rdma_arm(t) == 0 && units_arm(t->units) == 0;
}

static int sleep_for(struct stag_block_target *t, struct epoll_event *events, int most,
		     int timeout_ms)
{
	uint64_t since = clock_ns();
	int n = epoll_wait(t->epoll, events, most, arm(t) ? timeout_ms : 0);

	t->wait.brisk = clock_ns() - since < t->wait.spin_ns ? t->wait.brisk + 1 : 0;
	return n;
}

int wait_events(struct stag_block_target *t, struct epoll_event *events, int most, int timeout_ms)
{
	int n = 0;

	if (timeout_ms == 0)
		return epoll_wait(t->epoll, events, most, 0);
	if (t->wait.brisk >= t->wait.wanted && spin(t, events, most, &n))
		return n;
	return sleep_for(t, events, most, timeout_ms);
}
