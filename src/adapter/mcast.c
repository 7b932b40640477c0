// SPDX-License-Identifier: BSD-2-Clause
/*
 * mcast.c - multicast groups of UD queue pairs.
 *
 * Each group has a socket that is bound to the group's address, so that it gets no other datagrams. The engine reads it. A
 * datagram goes to every queue pair that is attached and has its Q_Key, except to the one that sent it.
 */
#include "adapter/mcast.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "adapter/engine.h"
#include "adapter/face.h"
#include "adapter/gid.h"
#include "adapter/qp.h"
#include "adapter/trace.h"
#include "adapter/ud.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/log.h"

#define BUFFER (4 << 20)
#define ROUNDS 4

struct member {
	struct list link;
	struct stag_qp *qp;
};

struct group {
	struct list link;
	union ibv_gid mgid;
	int fd[2]; /* of IPv4 and of IPv6; -1: none */
	struct watch watch[2];
	struct list members;
};

/* All of it under the engine lock. */
static struct list groups = {&groups, &groups};
static unsigned n_groups;
static struct ud_batch *batch;

static uint32_t hash_of(const union ibv_gid *mgid)
{
	return crc32c_update(CRC32C_INIT, mgid->raw, sizeof(mgid->raw));
}

/* Datagrams from an IPv6 address go to the site-local group ff15:7374:6167::HASH. */
static struct sockaddr_in6 address6_of(const union ibv_gid *mgid)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(MCAST_PORT)};
	static const uint8_t prefix[] = {0xff, 0x15, 's', 't', 'a', 'g'};

	memcpy(a.sin6_addr.s6_addr, prefix, sizeof(prefix));
	put_be32(a.sin6_addr.s6_addr + 12, hash_of(mgid));
	return a;
}

static struct in_addr address_of(const union ibv_gid *mgid)
{
	struct in_addr a = {htonl(239u << 24 | (hash_of(mgid) & 0xffffff))};

	if (gid_is_v4(mgid))
		memcpy(&a, mgid->raw + 12, sizeof(a));
	return a;
}

socklen_t mcast_addr(const struct ud_path *p, struct sockaddr_storage *out)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_port = htons(MCAST_PORT),
		.sin_addr = address_of(&p->dgid),
	};

	if (!gid_is_v4(&p->sgid)) {
		struct sockaddr_in6 six = address6_of(&p->dgid);

		memcpy(out, &six, sizeof(six));
		return sizeof(six);
	}
	memcpy(out, &a, sizeof(a));
	return sizeof(a);
}

/* ---- the socket of a group ---- */

/* Joins on the interface of every GID. Returns how many there were. */
static unsigned join(int fd, struct in_addr group)
{
	struct gid_entry e;
	unsigned joined = 0;

	for (unsigned i = 0; i < gid_table_len(); i++) {
		struct ip_mreqn r = {.imr_multiaddr = group};

		if (!gid_get(i, &e))
			continue;
		r.imr_ifindex = (int)e.ifindex;
		if (!setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof(r)) ||
		    errno == EADDRINUSE)
			joined++;
	}
	return joined;
}

static unsigned join6(int fd, const struct in6_addr *group)
{
	struct gid_entry e;
	unsigned joined = 0;

	for (unsigned i = 0; i < gid_table_len(); i++) {
		struct ipv6_mreq r = {.ipv6mr_multiaddr = *group};

		if (!gid_get(i, &e))
			continue;
		r.ipv6mr_interface = e.ifindex;
		if (!setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &r, sizeof(r)) ||
		    errno == EADDRINUSE)
			joined++;
	}
	return joined;
}

/* For senders whose address is of IPv6. Returns -1 where there is none. */
static int open_socket6(const union ibv_gid *mgid)
{
	struct sockaddr_in6 a = address6_of(mgid);
	int one = 1, room = BUFFER;
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) || !join6(fd, &a.sin6_addr)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_socket4(const union ibv_gid *mgid)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(MCAST_PORT), .sin_addr = address_of(mgid)};
	int one = 1, zero = 0, room = BUFFER, err;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof(zero));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)))
		err = -errno;
	else
		err = join(fd, a.sin_addr) ? 0 : -ENODEV;
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* Did this queue pair send it? Another machine's may have the same number. */
static bool is_from(const struct stag_qp *qp, const struct datagram *d)
{
	union ibv_gid from;

	memcpy(from.raw, d->sgid, sizeof(from.raw));
	return d->src_qpn == qp->ibv.qp_num && gid_is_local(&from);
}

static void take(struct group *g, struct mmsghdr *m)
{
	uint8_t *buf = m->msg_hdr.msg_iov->iov_base;
	struct datagram d;
	bool sealed, recorded = false;

	if (datagram_decode(buf, m->msg_len, &d, &sealed) ||
	    memcmp(d.dgid, g->mgid.raw, sizeof(d.dgid)) || !ud_from_network(&m->msg_hdr, &d))
		return;
	list_for_each (l, &g->members) {
		struct stag_qp *qp = list_entry(l, struct member, link)->qp;

		if (is_from(qp, &d))
			continue;
		if (!recorded)
			trace_datagram(false, &d, buf + DATAGRAM_HDR);
		recorded = true;
		lock_acquire(&qp->rx_lock);
		ud_deliver(qp, &d, buf);
		lock_release(&qp->rx_lock);
	}
}

static void read_group(struct group *g, int fd)
{
	int n = UD_BATCH;

	assert(engine_locked());
	for (int i = 0; i < ROUNDS && n == UD_BATCH; i++) {
		n = recvmmsg(fd, batch->msg, UD_BATCH, MSG_DONTWAIT, NULL);
		for (int k = 0; k < n; k++)
			take(g, &batch->msg[k]);
		if (n > 0)
			ud_rewind_batch(batch, n);
	}
}

static void on_group4(struct watch *w, uint32_t revents)
{
	read_group(container_of(w, struct group, watch[0]), w->fd);
}

static void on_group6(struct watch *w, uint32_t revents)
{
	read_group(container_of(w, struct group, watch[1]), w->fd);
}

/* ---- groups and members ---- */

static struct group *find(const union ibv_gid *mgid)
{
	assert(engine_locked());
	list_for_each (l, &groups) {
		struct group *g = list_entry(l, struct group, link);

		if (gid_is_equal(&g->mgid, mgid))
			return g;
	}
	return NULL;
}

static struct member *find_member(struct group *g, const struct stag_qp *qp)
{
	list_for_each (l, &g->members) {
		struct member *m = list_entry(l, struct member, link);

		if (m->qp == qp)
			return m;
	}
	return NULL;
}

static void close_sockets(struct group *g)
{
	for (int i = 0; i < 2; i++) {
		if (g->fd[i] >= 0)
			close(g->fd[i]);
		g->fd[i] = -1;
	}
}

/* A process that is forked meanwhile does not find sockets in the list that are closed already. */
static void close_group(struct group *g)
{
	list_del(&g->link);
	n_groups--;
	watch_del(&g->watch[0]);
	watch_del(&g->watch[1]);
	close_sockets(g);
	free(g);
}

/* Joining in one address family is enough. */
static int open_sockets(struct group *g)
{
	int err = 0;

	g->fd[0] = open_socket4(&g->mgid);
	g->fd[1] = open_socket6(&g->mgid);
	if (g->fd[0] < 0 && g->fd[1] < 0)
		return g->fd[0];
	if (g->fd[0] >= 0)
		err = watch_add(&g->watch[0], g->fd[0], EPOLLIN, on_group4);
	if (!err && g->fd[1] >= 0)
		err = watch_add(&g->watch[1], g->fd[1], EPOLLIN, on_group6);
	return err;
}

static int open_group(const union ibv_gid *mgid, struct group **out)
{
	struct group *g;
	int err;

	if (n_groups == ROCE_MAX_GROUPS)
		return -ENOMEM;
	if (!batch)
		batch = ud_new_batch();
	g = calloc(1, sizeof(*g));
	if (!g || !batch) {
		free(g);
		return -ENOMEM;
	}
	g->mgid = *mgid;
	g->fd[0] = g->fd[1] = -1;
	list_init(&g->members);
	list_add_tail(&groups, &g->link);
	n_groups++;
	err = open_sockets(g);
	if (err) {
		char text[GID_TEXT];

		log_err("mcast: cannot join %s: %s", gid_text(mgid, text), strerror(-err));
		close_group(g);
		return err;
	}
	*out = g;
	return 0;
}

static int attach(struct stag_qp *qp, const union ibv_gid *mgid)
{
	struct group *g = find(mgid);
	struct member *m;
	int err = 0;

	assert(engine_locked());
	if (g && find_member(g, qp))
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	if (!g)
		err = open_group(mgid, &g);
	if (err) {
		free(m);
		return err;
	}
	m->qp = qp;
	list_add_tail(&g->members, &m->link);
	qp->ud->groups++;
	return 0;
}

int mcast_attach(struct stag_qp *qp, const union ibv_gid *mgid)
{
	int err;

	if (!qp->ud || !datagram_is_mgid(mgid->raw))
		return -EINVAL;
	engine_lock();
	err = attach(qp, mgid);
	engine_unlock();
	return err;
}

int mcast_detach(struct stag_qp *qp, const union ibv_gid *mgid)
{
	struct member *m;
	struct group *g;

	engine_lock();
	g = find(mgid);
	m = g ? find_member(g, qp) : NULL;
	if (m) {
		list_del(&m->link);
		free(m);
		qp->ud->groups--;
		if (list_empty(&g->members))
			close_group(g);
	}
	engine_unlock();
	return m ? 0 : -EINVAL;
}

bool mcast_is_attached(struct stag_qp *qp)
{
	return qp->ud && atomic_load(&qp->ud->groups);
}

/*
 * The parent has the sockets and the members: the child joins groups of its own. No memory is freed, as the parent may have been
 * changing it.
 */
void mcast_after_fork(void)
{
	list_for_each (l, &groups) {
		struct group *g = list_entry(l, struct group, link);

		close_sockets(g);
		list_for_each (k, &g->members)
			list_entry(k, struct member, link)->qp->ud->groups = 0;
	}
	list_init(&groups);
	n_groups = 0;
	if (batch)
		ud_rewind_batch(batch, UD_BATCH); /* the parent's engine may have been reading */
}
