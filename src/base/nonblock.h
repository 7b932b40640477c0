/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nonblock.h - O_NONBLOCK on a descriptor, with its other flags kept.
 */
#ifndef STAG_BASE_NONBLOCK_H
#define STAG_BASE_NONBLOCK_H

#include <errno.h>
#include <fcntl.h>

/* Returns 0, or -errno with errno set. */
static inline int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -errno : 0;
}

#endif
