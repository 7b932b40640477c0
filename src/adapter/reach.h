/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reach.h - how queue pairs of roce0 meet: from a GID and a number to a stream.
 */
#ifndef STAG_REACH_H
#define STAG_REACH_H

struct qp_port;
struct stag_qp;

void reach_accept(struct qp_port *p); /* the port's TCP socket has connections */
void reach_drop_guests(struct qp_port *p);

#endif
