/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mcast.h - multicast groups of UD queue pairs.
 *
 * An MGID stands for a group of IPv4: ::ffff:239.1.2.3 for 239.1.2.3, and any other for one of 239.0.0.0/8, by a hash;
 * and for one of IPv6, to which those send whose source is an address of IPv6. Members join both.
 * Datagrams carry the whole MGID, so that groups that share an address are apart. All go to one UDP port.
 */
#ifndef STAG_MCAST_H
#define STAG_MCAST_H

#include <stdbool.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#include "adapter/ah.h"

#define MCAST_PORT 4793

struct stag_qp;

/* -EINVAL: not a UD queue pair, or not a multicast address; to detach: not attached. Attaching twice is once. */
int mcast_attach(struct stag_qp *qp, const union ibv_gid *mgid);
int mcast_detach(struct stag_qp *qp, const union ibv_gid *mgid);
bool mcast_is_attached(struct stag_qp *qp);
void mcast_after_fork(void);

/* Returns the length of the address, or 0 if there is none. */
socklen_t mcast_addr(const struct ud_path *p, struct sockaddr_storage *out);

#endif
