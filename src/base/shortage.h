/* SPDX-License-Identifier: BSD-2-Clause */
/* shortage.h - whether accept() failed because descriptors or memory are short, while a connection waits. */
#ifndef STAG_BASE_SHORTAGE_H
#define STAG_BASE_SHORTAGE_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>

#define SHORTAGE_PAUSE_MS 100 /* after which a listener that ran short tries again */

static inline bool shortage_is(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/*
 * accept() takes a descriptor before it looks for a connection, so it fails for want of one even if nobody waits. A caller that
 * makes room then would end a connection for nothing.
 */
static inline bool shortage_of(int listener, int error)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	return shortage_is(error) && poll(&p, 1, 0) == 1;
}

#endif
