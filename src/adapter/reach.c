// SPDX-License-Identifier: BSD-2-Clause
/* reach.c - how queue pairs of roce0 meet. */
#include "adapter/reach.h"

#include <sys/socket.h>
#include <unistd.h>

#include "adapter/port.h"

void reach_accept(struct qp_port *p)
{
	int fd;

	while ((fd = accept4(p->tcp, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		close(fd);
}

void reach_drop_guests(struct qp_port *p)
{
}
