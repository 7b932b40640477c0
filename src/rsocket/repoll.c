// SPDX-License-Identifier: BSD-2-Clause
/*
 * repoll.c - the calls of rdma-core 65 that are to rpoll() what epoll is to poll(). They are not supported; rdma-core's own
 * do not know our rsockets.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "base/export.h"
#include "base/log.h"

int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

static int refuse(const char *call)
{
	log_info("rsocket: %s() is not supported; use rpoll()", call);
	errno = EOPNOTSUPP;
	return -1;
}

STAG_EXPORT int repoll_create(int flags)
{
	return refuse(__func__);
}

STAG_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	return refuse(__func__);
}

STAG_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	return refuse(__func__);
}
