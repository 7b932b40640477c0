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
#include "adapter/ud.h"
#include "base/cleanup.h"
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
	int fd;
	struct watch watch;
	struct list members;
};

/* All of it under the engine lock. */
static struct list groups = {&groups, &groups};
static unsigned n_groups;
static struct ud_batch *batch;

static struct in_addr address_of(const union ibv_gid *mgid)
{
	uint32_t hash = crc32c_update(CRC32C_INIT, mgid->raw, sizeof(mgid->raw));
	struct in_addr a = {htonl(239u << 24 | (hash & 0xffffff))};

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

	if (!gid_is_v4(&p->sgid))
		return 0;
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

static int open_socket(const union ibv_gid *mgid)
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
	bool sealed;

	if (datagram_decode(buf, m->msg_len, &d, &sealed) ||
	    memcmp(d.dgid, g->mgid.raw, sizeof(d.dgid)) || !ud_from_network(&m->msg_hdr, &d))
		return;
	list_for_each (l, &g->members) {
		struct stag_qp *qp = list_entry(l, struct member, link)->qp;

		if (is_from(qp, &d))
			continue;
		lock_acquire(&qp->rx_lock);
		ud_deliver(qp, &d, buf);
		lock_release(&qp->rx_lock);
	}
}

static void on_group(struct watch *w, uint32_t revents)
{
	struct group *g = container_of(w, struct group, watch);
	int n = UD_BATCH;

	assert(engine_locked());
	for (int i = 0; i < ROUNDS && n == UD_BATCH; i++) {
		n = recvmmsg(g->fd, batch->msg, UD_BATCH, MSG_DONTWAIT, NULL);
		for (int k = 0; k < n; k++)
			take(g, &batch->msg[k]);
		if (n > 0)
			ud_rewind_batch(batch, n);
	}
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

static void close_group(struct group *g)
{
	watch_del(&g->watch);
	if (g->fd >= 0)
		close(g->fd);
	list_del(&g->link);
	n_groups--;
	free(g);
}

static int open_group(const union ibv_gid *mgid, struct group **out)
{
	struct group *g;
	int err;

	if (n_groups == ROCE_MAX_GROUPS)
		return -ENOMEM;
	if (!batch)
		batch = ud_new_batch(true);
	g = calloc(1, sizeof(*g));
	if (!g || !batch) {
		free(g);
		return -ENOMEM;
	}
	g->mgid = *mgid;
	list_init(&g->members);
	list_add_tail(&groups, &g->link);
	n_groups++;
	err = g->fd = open_socket(mgid);
	if (err >= 0)
		err = watch_add(&g->watch, g->fd, EPOLLIN, on_group);
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

/* The parent has the sockets. */
void mcast_after_fork(void)
{
	list_for_each (l, &groups) {
		struct group *g = list_entry(l, struct group, link);

		if (g->fd >= 0)
			close(g->fd);
		g->fd = -1;
	}
}
