/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port.h - the ports of roce0's queue pairs, and their numbers.
 *
 * The number of a queue pair says where it is reached: port << 8 | index, with a TCP and a UDP socket at that port on
 * every address of the machine. A peer needs nothing else than the number and a GID. A process has one port for each 255
 * queue pairs. Indices are handed out in turn, oldest first, so that the number of a queue pair that is gone stays unused
 * for as long as possible.
 *
 * All of it is protected by the engine lock. qp[] changes under the port's own lock, too: a thread that reads datagrams from
 * the port needs only that one.
 */
#ifndef STAG_PORT_H
#define STAG_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/engine.h"
#include "base/list.h"
#include "base/lock.h"

#define PORT_QPS     256
#define PORT_BACKLOG 4096

struct stag_qp;
struct ud_port;

struct qp_port {
	struct list link;
	uint16_t number;
	int tcp, udp; /* -1 in a forked child, whose parent has them */
	bool v6;      /* the sockets are of AF_INET6, and take IPv4, too */
	struct watch tcp_watch, udp_watch;
	struct timer accept_timer; /* reach.c: while descriptors or memory are short */
	struct lock lock;	   /* a leaf: qp[] */
	struct stag_qp *qp[PORT_QPS];
	uint8_t free[PORT_QPS]; /* a ring of indices, in the order in which they became free */
	unsigned free_at, n_free, n_qps;
	struct ud_port *ud; /* ud_port.c */
	struct list guests; /* reach.c: connections that have not found their queue pair */
	unsigned n_guests;
};

/* Gives a queue pair a number, and a port. Opens a port if all numbers are in use. */
int port_take(struct stag_qp *qp);
void port_leave(
	struct stag_qp *qp); /* closes the port if it was the last one, and not on the only port */
struct qp_port *port_find(uint16_t number);   /* or NULL; under the engine lock */
struct stag_qp *port_qp_by_num(uint32_t qpn); /* of roce0; or NULL; under the engine lock */
unsigned port_max_qps(void);		      /* how many queue pairs STAG_PORTS has numbers for */
void port_after_fork(void);

static inline uint16_t qpn_port(uint32_t qpn)
{
	return (uint16_t)(qpn >> 8);
}

#endif
