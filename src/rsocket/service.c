// SPDX-License-Identifier: BSD-2-Clause
/*
 * service.c - a thread for events that no caller waits for.
 *
 * It accepts connections for listening sockets, as TCP does without accept(), completes
 * non-blocking connects, answers a peer's first message, and notices when an idle connection ends.
 * It is started by the first socket that needs it.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"

#define EVENTS_A_TURN 16

static struct lock start_lock = LOCK_INITIALIZER;
static int epoll_fd = -1; /* -1 until the thread runs */

/* An event's socket: its number, with this bit if it was a completion. */
#define COMPLETION (1ull << 32)

static void serve_completion(struct rsocket *rs)
{
	HOLD_FOR_SCOPE(&rs->lock);
	if (!rs->ep.hushed)
		return;
	rs_take_cq_event(rs);
	rs_arm(rs);
	rs_progress(rs);
}

static void serve(uint64_t what)
{
	struct rsocket *rs = rs_get((int)(uint32_t)what);

	if (!rs)
		return;	    /* closed meanwhile; its descriptor is closed, too, or about to be */
	rs_read_events(rs); /* first: a connection is established before it carries data */
	if (what & COMPLETION)
		serve_completion(rs);
	rs_put(rs);
}

static void *service_main(void *arg)
{
	struct epoll_event events[EVENTS_A_TURN];
	int fd = *(int *)arg;

	for (;;) {
		int n = epoll_wait(fd, events, EVENTS_A_TURN, -1);

		for (int i = 0; i < n; i++)
			serve(events[i].data.u64);
	}
	return NULL;
}

/* Signals are blocked: they are for the program's threads. */
static int start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, NULL, service_main, &epoll_fd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return -ret;
	pthread_setname_np(thread, "stag-rsocket");
	pthread_detach(thread);
	return 0;
}

static int start(void)
{
	int ret;

	HOLD_FOR_SCOPE(&start_lock);
	if (epoll_fd >= 0)
		return 0;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	ret = start_thread();
	if (ret) {
		log_err("rsocket: cannot start the service thread: errno %d", -ret);
		close(epoll_fd);
		epoll_fd = -1;
	}
	return ret;
}

int rs_watch(struct rsocket *rs)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint32_t)rs->fd};
	int ret;

	assert(lock_held(&rs->lock));
	if (rs->conn.watched)
		return 0;
	ret = start();
	if (ret)
		return ret;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, rs->fd, &e))
		return -errno;
	rs->conn.watched = true;
	return 0;
}

void rs_unwatch(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	if (!rs->conn.watched)
		return;
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, rs->fd, NULL);
	rs->conn.watched = false;
}

int rs_hush(struct rsocket *rs)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = COMPLETION | (uint32_t)rs->fd};
	int ret = start();

	assert(lock_held(&rs->lock));
	if (ret)
		return ret;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, rs->ep.comp->fd, &e))
		return -errno;
	rs->ep.hushed = true;
	rs_arm(rs);
	return 0;
}

void rs_unhush(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	if (!rs->ep.hushed)
		return;
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, rs->ep.comp->fd, NULL);
	rs->ep.hushed = false;
}
