// SPDX-License-Identifier: BSD-2-Clause
/*
 * gid_watch.c - the kernel tells when addresses of this machine change, so that programs learn of it soon.
 *
 * Only while roce0 is in use: the first queue pair opens a netlink socket, which stays until the last context is closed.
 * Without one, a change is found when the table is next read.
 */
#include "adapter/gid.h"

#include <assert.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/engine.h"
#include "base/log.h"

static struct { /* engine lock */
	int fd;
	unsigned age; /* engine_age() when it was opened: later the number may be another file's */
	struct watch watch;
} notices = {.fd = -1};

/* The table is read again: it does not matter which address has changed, nor that some notices were lost. */
static void on_notice(struct watch *w, uint32_t revents)
{
	char junk[8192];
	ssize_t n;

	do
		n = recv(w->fd, junk, sizeof(junk), MSG_DONTWAIT);
	while (n > 0 || (n < 0 && errno == ENOBUFS));
	gid_refresh();
}

static int open_notices(void)
{
	struct sockaddr_nl from = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	int err;

	if (fd < 0)
		return -errno;
	err = bind(fd, (struct sockaddr *)&from, sizeof(from)) ? -errno : 0;
	if (!err)
		err = watch_add(&notices.watch, fd, EPOLLIN, on_notice);
	if (!err)
		return fd;
	close(fd);
	return err;
}

static bool is_open(void)
{
	return notices.fd >= 0 && notices.age == engine_age();
}

void gid_watch_start(void)
{
	assert(engine_locked());
	if (is_open())
		return;
	notices.fd = open_notices();
	notices.age = engine_age();
	if (notices.fd < 0)
		log_debug("gid: changes of addresses will be noticed late: %s",
			  strerror(-notices.fd));
}

void gid_watch_stop(void)
{
	engine_lock();
	if (is_open()) {
		watch_del(&notices.watch);
		close(notices.fd);
	}
	notices.fd = -1;
	engine_unlock();
}

void gid_watch_after_fork(void)
{
	if (is_open())
		close(notices.fd);
	notices.fd = -1;
}
