// SPDX-License-Identifier: BSD-2-Clause
/* wait.c - waiting for a request: sleeps if the CQs have channels. */
#include "xfer.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "base/clock.h"
#include "base/export.h"

#define RETRY_MS 1 /* retry interval for a send queue that others fill */

/* Returns whether a completion can arrive that makes progress. */
static bool is_completion_expected(const struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (x->rails[i].state != RAIL_DOWN && x->rails[i].records)
			return true;
	return false;
}

static bool must_retry(const struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (x->rails[i].full)
			return true;
	return false;
}

static bool can_sleep(const struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (xfer_owns_cq(x, i) && !x->rails[i].cq->channel)
			return false;
	return true;
}

static bool arm(struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (xfer_owns_cq(x, i) && ibv_req_notify_cq(x->rails[i].cq, 0))
			return false;
	return true;
}

/*
 * Reads the event that made a channel readable. It does not matter which CQ it was: all are polled.
 */
static void take_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

static unsigned int collect_channels(const struct stag_xfer *x, struct pollfd *fds,
				     struct ibv_comp_channel **channels)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < x->num_rails; i++) {
		struct ibv_comp_channel *channel;
		unsigned int k = 0;

		if (!xfer_owns_cq(x, i))
			continue;
		channel = x->rails[i].cq->channel;
		while (k < n && channels[k] != channel)
			k++;
		if (k < n)
			continue;
		channels[n] = channel;
		fds[n++] = (struct pollfd){.fd = channel->fd, .events = POLLIN};
	}
	return n;
}

static void sleep_for(const struct stag_xfer *x, int ms)
{
	struct pollfd fds[STAG_XFER_MAX_RAILS];
	struct ibv_comp_channel *channels[STAG_XFER_MAX_RAILS];
	unsigned int n = collect_channels(x, fds, channels);

	if (poll(fds, n, ms) <= 0)
		return;
	for (unsigned int i = 0; i < n; i++)
		if (fds[i].revents & POLLIN)
			take_event(channels[i]);
}

/* Returns the remaining time in milliseconds, or -1 if it is unlimited. */
static int time_left(const struct stag_xfer *x, uint64_t until)
{
	uint64_t now = clock_ns(), ms;

	if (must_retry(x))
		return RETRY_MS;
	if (until == UINT64_MAX)
		return -1;
	ms = until > now ? (until - now + NS_PER_MS - 1) / NS_PER_MS : 0;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

STAG_EXPORT int stag_xfer_wait(struct stag_xfer *x, struct stag_xfer_req **done, int max,
			       int timeout_ms)
{
	uint64_t until =
		timeout_ms < 0 ? UINT64_MAX : clock_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	bool armed = false;
	int n;

	for (;;) {
		n = stag_xfer_poll(x, done, max);
		if (n || !is_completion_expected(x) || x->flags & STAG_XFER_FED ||
		    clock_ns() >= until)
			return n;
		if (!can_sleep(x)) {
			sched_yield();
		} else if (armed) {
			sleep_for(x, time_left(x, until));
			armed = false;
		} else {
			/*
			 * A further poll finds completions from before this, later ones wake the
			 * thread.
			 */
			armed = arm(x);
		}
	}
}
