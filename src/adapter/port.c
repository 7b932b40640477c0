// SPDX-License-Identifier: BSD-2-Clause
/* port.c - the ports of roce0's queue pairs, and their numbers. */
#include "adapter/port.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/config.h"
#include "adapter/congestion.h"
#include "adapter/mcast.h"
#include "adapter/qp.h"
#include "adapter/reach.h"
#include "adapter/ud.h"
#include "base/log.h"
#include "base/random.h"

#define TRIES	      64 /* to find a port that is free for TCP and for UDP */
#define UDP_BUFFER    (4 << 20)
#define MULTICAST_QPN 0xffffff

static struct list ports = {&ports, &ports}; /* engine lock */

/* ---- sockets ---- */

static int bind_to(int fd, bool v6, uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int off = 0;

	if (!v6)
		return bind(fd, (struct sockaddr *)&four, sizeof(four)) ? -errno : 0;
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
	    bind(fd, (struct sockaddr *)&six, sizeof(six)))
		return -errno;
	return 0;
}

static int open_socket(int type, bool v6, uint16_t port)
{
	int fd = socket(v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, err;

	if (fd < 0)
		return -errno;
	/* A chosen port may have connections of an earlier process that are in TIME_WAIT. */
	if (port && type == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	err = bind_to(fd, v6, port);
	if (type == SOCK_STREAM)
		congestion_before_listen(fd);
	if (!err && type == SOCK_STREAM && listen(fd, PORT_BACKLOG))
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &len))
		return 0;
	return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
					     : ((struct sockaddr_in *)&a)->sin_port);
}

/* Opens both sockets at one port; number 0: any. */
static int open_pair(struct qp_port *p, uint16_t number)
{
	int buffer = UDP_BUFFER;

	p->tcp = open_socket(SOCK_STREAM, p->v6, number);
	if (p->tcp < 0)
		return p->tcp;
	p->number = port_of(p->tcp);
	p->udp = p->number ? open_socket(SOCK_DGRAM, p->v6, p->number) : -EADDRINUSE;
	if (p->udp < 0) {
		close(p->tcp);
		return p->udp;
	}
	setsockopt(p->udp, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	return 0;
}

static int open_any(struct qp_port *p)
{
	int err = -EADDRINUSE;

	for (int i = 0; i < TRIES && err; i++) {
		err = open_pair(p, 0);
		if (err == -EAFNOSUPPORT && p->v6)
			p->v6 = false;
		else if (err && err != -EADDRINUSE)
			break;
	}
	return err;
}

/* Tries the ports of STAG_PORTS in turn, from a random one on. */
static int open_in_range(struct qp_port *p, uint16_t first, uint16_t last)
{
	unsigned n = last - first + 1u;
	uint32_t start;
	int err = -EADDRINUSE;

	start = random_u32() % n;
	for (unsigned i = 0; i < n && err; i++) {
		uint16_t number = (uint16_t)(first + (start + i) % n);

		err = port_find(number) ? -EADDRINUSE : open_pair(p, number);
		if (err == -EAFNOSUPPORT && p->v6) {
			p->v6 = false;
			err = open_pair(p, number);
		}
	}
	return err;
}

/* ---- opening and closing ---- */

static void on_tcp(struct watch *w, uint32_t revents)
{
	reach_accept(container_of(w, struct qp_port, tcp_watch));
}

static void on_udp(struct watch *w, uint32_t revents)
{
	ud_arrived(container_of(w, struct qp_port, udp_watch));
}

static void fill_free(struct qp_port *p)
{
	for (unsigned i = 1; i < PORT_QPS; i++)
		if (((uint32_t)p->number << 8 | i) != MULTICAST_QPN)
			p->free[p->n_free++] = (uint8_t)i;
}

static void close_port(struct qp_port *p)
{
	watch_del(&p->tcp_watch);
	watch_del(&p->udp_watch);
	timer_cancel(&p->accept_timer);
	reach_drop_guests(p);
	ud_port_close(p);
	if (p->tcp >= 0)
		close(p->tcp);
	if (p->udp >= 0)
		close(p->udp);
	list_del(&p->link);
	lock_destroy(&p->lock);
	free(p);
}

static int open_port(struct qp_port **out)
{
	const struct stag_config *c = config();
	struct qp_port *p = calloc(1, sizeof(*p));
	int err;

	assert(engine_locked());
	if (!p)
		return -ENOMEM;
	p->v6 = true;
	err = c->first_port ? open_in_range(p, c->first_port, c->last_port) : open_any(p);
	if (err) {
		log_err("port: cannot open a port for queue pairs%s: %s",
			c->first_port ? " in STAG_PORTS" : "", strerror(-err));
		free(p);
		return err;
	}
	lock_init(&p->lock);
	list_init(&p->guests);
	fill_free(p);
	list_add_tail(&ports, &p->link);
	err = ud_port_open(p);
	if (!err)
		err = watch_add(&p->tcp_watch, p->tcp, EPOLLIN, on_tcp);
	if (!err)
		err = watch_add(&p->udp_watch, p->udp, EPOLLIN, on_udp);
	if (err) {
		close_port(p);
		return err;
	}
	log_debug("port: %u is open for queue pairs", p->number);
	*out = p;
	return 0;
}

static struct qp_port *with_room(void)
{
	list_for_each (l, &ports) {
		struct qp_port *p = list_entry(l, struct qp_port, link);

		if (p->n_free && p->tcp >= 0)
			return p;
	}
	return NULL;
}

int port_take(struct stag_qp *qp)
{
	struct qp_port *p = with_room();
	uint8_t index;
	int err;

	assert(engine_locked());
	if (!p) {
		err = open_port(&p);
		if (err)
			return err;
	}
	index = p->free[p->free_at];
	p->free_at = (p->free_at + 1) % PORT_QPS;
	p->n_free--;
	p->n_qps++;
	lock_acquire(&p->lock);
	p->qp[index] = qp;
	lock_release(&p->lock);
	qp->port = p;
	qp->ibv.qp_num = (uint32_t)p->number << 8 | index;
	return 0;
}

void port_leave(struct stag_qp *qp)
{
	struct qp_port *p = qp->port;
	uint8_t index = (uint8_t)qp->ibv.qp_num;

	assert(engine_locked());
	lock_acquire(&p->lock);
	p->qp[index] = NULL;
	lock_release(&p->lock);
	p->free[(p->free_at + p->n_free++) % PORT_QPS] = index;
	p->n_qps--;
	if (!p->n_qps && (p->tcp < 0 || ports.next->next != &ports))
		close_port(p);
}

struct qp_port *port_find(uint16_t number)
{
	assert(engine_locked());
	list_for_each (l, &ports) {
		struct qp_port *p = list_entry(l, struct qp_port, link);

		if (p->number == number && p->tcp >= 0)
			return p;
	}
	return NULL;
}

struct stag_qp *port_qp_by_num(uint32_t qpn)
{
	struct qp_port *p = port_find(qpn_port(qpn));

	return p ? p->qp[qpn & (PORT_QPS - 1)] : NULL;
}

/* Index 0 is never used, nor is the number that means multicast. */
unsigned port_max_qps(void)
{
	const struct stag_config *c = config();
	unsigned first = c->first_port ? c->first_port : 1;
	unsigned last = c->first_port ? c->last_port : UINT16_MAX;

	return (last - first + 1) * (PORT_QPS - 1) - (last == qpn_port(MULTICAST_QPN));
}

/* The parent has the sockets, and the numbers. The child opens ports of its own. */
void port_after_fork(void)
{
	mcast_after_fork();
	list_for_each (l, &ports) {
		struct qp_port *p = list_entry(l, struct qp_port, link);

		lock_init(&p->lock);
		if (p->tcp >= 0)
			close(p->tcp);
		if (p->udp >= 0)
			close(p->udp);
		p->tcp = p->udp = -1;
		for (unsigned i = 0; i < PORT_QPS; i++)
			if (p->qp[i] && p->qp[i]->ud)
				ud_after_fork(p->qp[i]);
	}
}
