// SPDX-License-Identifier: BSD-2-Clause
/*
 * ud_port.c - the UDP socket of a port, which the UD queue pairs of that port share.
 *
 * The engine reads it, until datagrams come while a program polls: then pollers read it, and the engine is not woken, as
 * claim.c has it for streams.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/gid.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/trace.h"
#include "adapter/ud.h"

#define COLD 8192 /* reads in a row without a datagram, after which the engine watches again */

int ud_port_open(struct qp_port *port)
{
	struct ud_port *u = calloc(1, sizeof(*u));
	int one = 1, err;

	if (!u)
		return -ENOMEM;
	err = port->v6 ? setsockopt(port->udp, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one))
		       : setsockopt(port->udp, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	if (err) {
		free(u);
		return -errno;
	}
	lock_init(&u->lock);
	port->ud = u;
	return 0;
}

void ud_port_close(struct qp_port *port)
{
	if (!port->ud)
		return;
	lock_destroy(&port->ud->lock);
	free(port->ud->batch);
	free(port->ud);
	port->ud = NULL;
}

void ud_port_arm(struct qp_port *port)
{
	struct ud_port *u = port->ud;
	bool polled = atomic_load(&u->hot) && atomic_load(&u->pollers) > 0;

	lock_acquire(&port->lock); /* pollers of several queues may be here */
	watch_mod(&port->udp_watch, polled ? 0 : EPOLLIN);
	lock_release(&port->lock);
}

static void set_hot(struct qp_port *port, bool hot)
{
	assert(lock_held(&port->ud->lock));
	port->ud->idle = 0;
	if (atomic_exchange(&port->ud->hot, hot) != hot)
		ud_port_arm(port);
}

/* Returns false if the kernel does not say to which address it came. */
static bool find_destination(struct msghdr *m, union ibv_gid *out)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct sockaddr_in four = {.sin_family = AF_INET};
		struct in6_pktinfo six;
		struct in_pktinfo info;

		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&six, CMSG_DATA(c), sizeof(six));
			memcpy(out->raw, &six.ipi6_addr, sizeof(out->raw));
			return true;
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&info, CMSG_DATA(c), sizeof(info));
			four.sin_addr = info.ipi_addr;
			gid_from_addr((struct sockaddr *)&four, out);
			return true;
		}
	}
	return false;
}

static uint16_t source_port(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
					      : ((const struct sockaddr_in *)a)->sin_port);
}

bool ud_from_network(const struct msghdr *m, struct datagram *d)
{
	union ibv_gid from;

	if (source_port(m->msg_name) != qpn_port(d->src_qpn))
		return false;
	gid_from_addr(m->msg_name, &from);
	memcpy(d->sgid, from.raw, sizeof(d->sgid));
	return true;
}

/* Is it what a queue pair sent to this address and port? */
static bool is_for_us(const struct qp_port *port, struct msghdr *m, struct datagram *d)
{
	union ibv_gid to;

	return qpn_port(d->dst_qpn) == port->number && ud_from_network(m, d) &&
	       find_destination(m, &to) && !memcmp(to.raw, d->dgid, sizeof(to.raw));
}

static void take(struct qp_port *port, struct mmsghdr *m)
{
	uint8_t *buf = m->msg_hdr.msg_iov->iov_base;
	struct datagram d;
	struct stag_qp *qp;
	bool sealed;

	assert(lock_held(&port->ud->lock)); /* it cannot be destroyed meanwhile */
	if (datagram_decode(buf, m->msg_len, &d, &sealed) || !is_for_us(port, &m->msg_hdr, &d))
		return;
	lock_acquire(&port->lock);
	qp = port->qp[d.dst_qpn & (PORT_QPS - 1)];
	lock_release(&port->lock);
	if (!qp || qp->ibv.qp_type != IBV_QPT_UD)
		return;
	trace_datagram(false, &d, buf + DATAGRAM_HDR);
	lock_acquire(&qp->rx_lock);
	if (qp->ud)
		ud_deliver(qp, &d, buf);
	lock_release(&qp->rx_lock);
}

static int read_batch(struct qp_port *port)
{
	struct ud_batch *b = port->ud->batch;
	int n = recvmmsg(port->udp, b->msg, UD_BATCH, MSG_DONTWAIT, NULL);

	for (int i = 0; i < n; i++)
		take(port, &b->msg[i]);
	if (n > 0)
		ud_rewind_batch(b, n);
	return n;
}

bool ud_port_read(struct qp_port *port)
{
	struct ud_port *u = port->ud;
	int n;

	if (!lock_try(&u->lock))
		return false; /* another thread reads */
	if (!u->batch)
		u->batch = ud_new_batch();
	n = u->batch ? read_batch(port) : 0;
	if (n > 0)
		set_hot(port, true);
	else if (++u->idle > COLD)
		set_hot(port, false);
	lock_release(&u->lock);
	return n > 0;
}

void ud_arrived(struct qp_port *port)
{
	ud_port_read(port);
}
