// SPDX-License-Identifier: BSD-2-Clause
/*
 * wait.c - sleeping on a socket, and waking.
 *
 * Several threads can wait for one socket, for different conditions, and the thread that reads the
 * completion event from the channel takes the others' wake-up with it. So a sleeping thread is on
 * the socket's list of waiters with an event descriptor of its own, and a thread that changes the
 * socket wakes the list.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"

/* Created at a thread's first sleep, closed at its end; a forked child creates its own. */
static __thread int wake_fd = -1;
static __thread pid_t wake_pid;
static pthread_key_t wake_key;
static pthread_once_t wake_once = PTHREAD_ONCE_INIT;

static void close_wake_fd(void *unused)
{
	if (wake_fd >= 0)
		close(wake_fd);
	wake_fd = -1;
}

static void make_wake_key(void)
{
	pthread_key_create(&wake_key, close_wake_fd);
}

int rs_wake_fd(void)
{
	pid_t pid = getpid();

	if (wake_fd >= 0 && wake_pid == pid)
		return wake_fd;
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0)
		return -errno;
	wake_pid = pid;
	pthread_once(&wake_once, make_wake_key);
	pthread_setspecific(wake_key, &wake_fd); /* only to have the destructor called */
	return wake_fd;
}

void rs_wake_fd_clear(int fd)
{
	eventfd_t n;

	eventfd_read(fd, &n);
}

void rs_wake(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	list_for_each (it, &rs->waiters) {
		struct rs_waiter *w = list_entry(it, struct rs_waiter, link);

		if (w->wake_fd != wake_fd)
			eventfd_write(w->wake_fd, 1);
	}
}

int rs_sleep(struct rsocket *rs, int fd, int timeout_ms)
{
	struct rs_waiter w = {.wake_fd = rs_wake_fd()};
	struct pollfd p[2] = {{.fd = w.wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int n, err;

	assert(lock_held(&rs->lock));
	if (w.wake_fd < 0)
		return w.wake_fd;
	list_add_tail(&rs->waiters, &w.link);
	lock_release(&rs->lock);
	n = poll(p, 2, timeout_ms);
	err = errno;
	lock_acquire(&rs->lock);
	list_del(&w.link);

	if (p[0].revents)
		rs_wake_fd_clear(w.wake_fd);
	if (n < 0)
		return -err;
	if (!n)
		return -ETIMEDOUT;
	return p[1].revents ? 1 : 0;
}

int rs_wait_connected(struct rsocket *rs, bool nonblock)
{
	int err;

	assert(lock_held(&rs->lock));
	while (rs_is_opening(rs)) {
		int ret = nonblock ? -EAGAIN : rs_sleep(rs, -1, -1);

		if (ret < 0)
			return ret;
	}
	if (rs_was_connected(rs))
		return 0;
	err = rs->err;
	rs->err = 0;
	return err ? -err : -ENOTCONN;
}
