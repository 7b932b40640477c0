// SPDX-License-Identifier: BSD-2-Clause
/*
 * poll.c - rpoll() and rselect(): rsockets and ordinary files together.
 *
 * The kernel does not know the state of an rsocket, so the state is checked here, and the thread
 * then sleeps on the socket's completion channel, and on a descriptor by which other threads wake
 * it (wait.c). Ordinary files are left to the kernel's poll().
 */
#include "rsocket/rsocket.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"

#define SMALL_SET 16

#define WANT_IN	 (POLLIN | POLLRDNORM)
#define WANT_OUT (POLLOUT | POLLWRNORM)

/* An entry of the caller's array. */
struct entry {
	struct rsocket *rs; /* NULL for an ordinary file */
	struct rs_waiter waiter;
};

struct poll_set {
	struct pollfd *fds;    /* the caller's array */
	struct pollfd *kernel; /* entries for the kernel's poll(), and one for being woken */
	struct entry *entries;
	nfds_t n;
	bool has_files;
};

static short connected_events(struct rsocket *rs, short events)
{
	short now = 0;

	rs_progress(rs);
	if (rs_can_receive(rs))
		now |= events & WANT_IN;
	if (rs_can_send(rs))
		now |= events & WANT_OUT;
	if (!rs->readable)
		now |= events & POLLRDHUP;
	/*
	 * A caller that polls for data gets that first: a program may take a hangup for the end of
	 * the data.
	 */
	if (rs->state == RS_DISCONNECTED && !(rs->rx.unread && now))
		now |= POLLHUP;
	if (rs->state == RS_ERROR)
		now |= POLLERR;
	return now;
}

/* Returns which of the requested events have happened. */
static short events_now(struct rsocket *rs, short events)
{
	if (rs->conn.closing)
		return POLLNVAL;
	if (rs_was_connected(rs))
		return connected_events(rs, events);
	if (rs->state == RS_CONNECT_ERROR)
		return (short)((events & (WANT_IN | WANT_OUT)) | POLLERR);
	if (rs->state == RS_LISTENING && !list_empty(&rs->backlog.ready))
		return events & WANT_IN;
	return 0;
}

static int look_at_sockets(struct poll_set *set)
{
	int n = 0;

	for (nfds_t i = 0; i < set->n; i++) {
		struct rsocket *rs = set->entries[i].rs;

		if (!rs)
			continue;
		HOLD_FOR_SCOPE(&rs->lock);
		set->fds[i].revents = events_now(rs, set->fds[i].events);
		n += set->fds[i].revents != 0;
	}
	return n;
}

/* Copies the kernel's results for ordinary files. */
static int collect_files(struct poll_set *set)
{
	int n = 0;

	for (nfds_t i = 0; i < set->n; i++) {
		if (set->entries[i].rs)
			continue;
		set->fds[i].revents = set->kernel[i].revents;
		n += set->fds[i].revents != 0;
	}
	return n;
}

/* Checks all entries without sleeping. Returns the number with events, or -errno. */
static int poll_once(struct poll_set *set)
{
	int n = look_at_sockets(set);

	for (nfds_t i = 0; i < set->n; i++) {
		set->kernel[i] = set->fds[i];
		if (set->entries[i].rs)
			set->kernel[i].fd = -1;
	}
	if (set->has_files && poll(set->kernel, set->n, 0) < 0)
		return -errno;
	return n + collect_files(set);
}

/* Adds a waiter to the socket; returns true if an event has already happened. */
static bool join(struct rsocket *rs, struct rs_waiter *w, short events, struct pollfd *kernel)
{
	HOLD_FOR_SCOPE(&rs->lock);
	list_add_tail(&rs->waiters, &w->link);
	*kernel = (struct pollfd){.fd = -1, .events = POLLIN};
	if (rs_was_connected(rs)) {
		kernel->fd = rs->ep.comp->fd;
		rs_arm(rs);
	}
	return events_now(rs, events) != 0;
}

static void leave(struct rsocket *rs, struct rs_waiter *w, const struct pollfd *kernel)
{
	HOLD_FOR_SCOPE(&rs->lock);
	list_del(&w->link);
	if (kernel->fd >= 0 && kernel->revents)
		rs_take_cq_event(rs);
}

static bool join_all(struct poll_set *set, int wake_fd)
{
	bool awake = false;

	for (nfds_t i = 0; i < set->n; i++) {
		struct entry *e = &set->entries[i];

		set->kernel[i] = set->fds[i];
		e->waiter.wake_fd = wake_fd;
		if (e->rs)
			awake |= join(e->rs, &e->waiter, set->fds[i].events, &set->kernel[i]);
	}
	set->kernel[set->n] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
	return awake;
}

static void leave_all(struct poll_set *set)
{
	for (nfds_t i = 0; i < set->n; i++) {
		struct entry *e = &set->entries[i];

		if (e->rs)
			leave(e->rs, &e->waiter, &set->kernel[i]);
	}
}

/* Sleeps once. Returns the number of entries with events, 0 if there are none yet, or -errno. */
static int sleep_once(struct poll_set *set, int timeout_ms)
{
	int wake_fd = rs_wake_fd();
	int n, err;
	bool awake;

	if (wake_fd < 0)
		return wake_fd;
	awake = join_all(set, wake_fd);
	n = poll(set->kernel, set->n + 1, awake ? 0 : timeout_ms);
	err = errno;
	leave_all(set);
	if (n < 0)
		return -err;
	if (set->kernel[set->n].revents)
		rs_wake_fd_clear(wake_fd);
	return collect_files(set) + look_at_sockets(set);
}

static int timeout_left(uint64_t start, int timeout)
{
	uint64_t past = (clock_ns() - start) / NS_PER_MS;

	if (timeout < 0)
		return -1;
	return past >= (uint64_t)timeout ? 0 : timeout - (int)past;
}

static int poll_set(struct poll_set *set, int timeout)
{
	uint64_t start = clock_ns();
	uint64_t spin = rs_polling_us() * 1000ull;
	int n, left;

	for (;;) {
		n = poll_once(set);
		if (n || !timeout)
			return n;
		if (clock_ns() - start >= spin)
			break;
		sched_yield();
	}

	do {
		left = timeout_left(start, timeout);
		n = sleep_once(set, left);
	} while (!n && left);
	return n;
}

/* Looks up the rsockets. Returns their number. */
static nfds_t find_sockets(struct poll_set *set)
{
	nfds_t n = 0;

	for (nfds_t i = 0; i < set->n; i++) {
		set->entries[i].rs = rs_get(set->fds[i].fd);
		if (set->entries[i].rs)
			n++;
		else if (set->fds[i].fd >= 0)
			set->has_files = true;
	}
	return n;
}

static void put_sockets(struct poll_set *set)
{
	for (nfds_t i = 0; i < set->n; i++)
		if (set->entries[i].rs)
			rs_put(set->entries[i].rs);
}

STAG_EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct entry few_entries[SMALL_SET];
	struct pollfd few_kernel[SMALL_SET + 1];
	CLEANUP_FREE void *many = NULL;
	struct poll_set set = {.fds = fds, .n = nfds, .entries = few_entries, .kernel = few_kernel};
	int before = errno, ret;

	if (nfds > SMALL_SET) {
		many = calloc(nfds + 1, sizeof(*set.entries) + sizeof(*set.kernel));
		if (!many)
			return (int)rs_result(-ENOMEM);
		set.entries = many;
		set.kernel = (struct pollfd *)(set.entries + nfds + 1);
	}
	if (!find_sockets(&set))
		return poll(fds, nfds, timeout);
	ret = poll_set(&set, timeout);
	put_sockets(&set);
	return (int)rs_result_or(ret, before);
}

static bool is_in(int fd, fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

static nfds_t select_to_poll(int nfds, fd_set *in, fd_set *out, fd_set *except, struct pollfd *fds)
{
	nfds_t n = 0;

	for (int fd = 0; fd < nfds; fd++) {
		if (!is_in(fd, in) && !is_in(fd, out) && !is_in(fd, except))
			continue;
		fds[n++] = (struct pollfd){.fd = fd,
					   .events = (short)((is_in(fd, in) ? POLLIN : 0) |
							     (is_in(fd, out) ? POLLOUT : 0) |
							     (is_in(fd, except) ? POLLPRI : 0))};
	}
	return n;
}

/* Keeps fd in the set if it was there and one of the events happened. Returns 1 if so. */
static int update_fd_set(int fd, fd_set *set, short revents, short events)
{
	if (!is_in(fd, set))
		return 0;
	if (revents & events)
		return 1;
	FD_CLR(fd, set);
	return 0;
}

static int poll_to_select(const struct pollfd *fds, nfds_t n, fd_set *in, fd_set *out,
			  fd_set *except)
{
	int count = 0;

	for (nfds_t i = 0; i < n; i++) {
		int fd = fds[i].fd;
		short got = fds[i].revents;

		count += update_fd_set(fd, in, got, POLLIN | POLLHUP | POLLERR);
		count += update_fd_set(fd, out, got, POLLOUT | POLLERR);
		count += update_fd_set(fd, except, got, ~(POLLIN | POLLOUT));
	}
	return count;
}

static int bad_descriptor(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			return 1;
	return 0;
}

STAG_EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
			struct timeval *timeout)
{
	int ms = timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000) : -1;
	CLEANUP_FREE struct pollfd *fds = NULL;
	nfds_t n;

	if (nfds < 0 || nfds > FD_SETSIZE)
		return (int)rs_result(-EINVAL);
	fds = calloc((size_t)nfds + 1, sizeof(*fds));
	if (!fds)
		return (int)rs_result(-ENOMEM);
	n = select_to_poll(nfds, readfds, writefds, exceptfds, fds);
	if (rpoll(fds, n, ms) < 0)
		return -1;
	if (bad_descriptor(fds, n))
		return (int)rs_result(-EBADF);
	return poll_to_select(fds, n, readfds, writefds, exceptfds);
}
