// SPDX-License-Identifier: BSD-2-Clause
/*
 * ud_tx.c - the sending side of UD queue pairs.
 *
 * The thread that posts sends. The payload is copied behind the header first, so that its CRC is that of the bytes that
 * are sent. If the destination's socket is full, requests wait in the send queue: a poller tries again at each poll, and
 * the engine waits for room where nobody polls. A destination that had no room for too long is given up: it costs no
 * more time until it has room again.
 */
#include "adapter/ud.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapter/config.h"
#include "adapter/cq.h"
#include "adapter/explain.h"
#include "adapter/gid.h"
#include "adapter/mcast.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/trace.h"
#include "base/log.h"

#define OWN_QKEY  0x80000000u /* in a work request: the queue pair's own Q_Key */
#define SEND_ROOM (4 << 20)
#define UDP_TRY_NS                                                                                 \
	NS_PER_MS /* where the UDP socket is full, which lasts as long as a few packets */

/* ---- posting ---- */

static struct ud_dest *dest_of(struct stag_qp *qp, const struct wqe *w)
{
	return &qp->ud->dest[w - qp->sq.wqe];
}

static bool is_send(const struct wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM;
}

void ud_set_dest(struct stag_qp *qp, const struct wqe *w, struct ibv_ah *ah, uint32_t qpn,
		 uint32_t qkey)
{
	struct ud_dest *d = dest_of(qp, w);

	assert(qp_tx_locked(qp));
	d->set = ah && ah->context == qp->ibv.context;
	if (!d->set)
		return;
	d->path = to_stag_ah(ah)->path;
	d->qpn = qpn & 0xffffff;
	d->qkey = qkey;
}

/* Other operations are accepted, and complete with IBV_WC_LOC_QP_OP_ERR, as on hardware. */
const char *ud_check(struct stag_qp *qp, const struct wqe *w)
{
	assert(qp_tx_locked(qp));
	if (is_send(w) && !dest_of(qp, w)->set)
		return "a datagram needs an address handle of this context";
	return NULL;
}

/* ---- one datagram ---- */

/* Copies the memory of one SGE. */
static enum key_fault copy_sge(struct stag_qp *qp, const struct ibv_sge *sge, uint8_t *to)
{
	uint32_t done = 0;

	while (done < sge->length) {
		struct key_map map;
		enum key_fault f = key_get(sge->lkey, qp->pd, NULL, sge->addr + done,
					   sge->length - done, 0, &map);

		if (f != KEY_OK)
			return f;
		for (unsigned i = 0; i < map.n; i++) {
			memcpy(to + done, map.iov[i].iov_base, map.iov[i].iov_len);
			done += (uint32_t)map.iov[i].iov_len;
		}
		key_put(&map);
	}
	return KEY_OK;
}

static enum ibv_wc_status copy_payload(struct stag_qp *qp, const struct wqe *w, uint8_t *to)
{
	if (w->inline_data) {
		memcpy(to, w->inline_data, w->length);
		return IBV_WC_SUCCESS;
	}
	for (uint32_t i = 0; i < w->num_sge; i++) {
		enum key_fault f = copy_sge(qp, &w->sge[i], to);

		if (f != KEY_OK) {
			log_bad_sge(qp, w->wr_id, i, "a send", &w->sge[i], 0, f);
			return IBV_WC_LOC_PROT_ERR;
		}
		to += w->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static void encode(struct stag_qp *qp, const struct wqe *w, const struct ud_dest *to, uint8_t *out)
{
	struct datagram d = {
		.flags = w->send_flags & IBV_SEND_SOLICITED ? DATAGRAM_SOLICITED : 0,
		.traffic_class = to->path.traffic_class,
		.hop_limit = to->path.hop_limit,
		.flow_label = to->path.flow_label,
		.src_qpn = qp->ibv.qp_num,
		.dst_qpn = to->qpn,
		.qkey = to->qkey & OWN_QKEY ? qp->config.attr.qkey : to->qkey,
		.length = w->length,
	};

	if (w->opcode == IBV_WR_SEND_WITH_IMM) {
		d.flags |= DATAGRAM_IMM;
		d.imm = w->imm_or_inv;
	}
	memcpy(d.sgid, to->path.sgid.raw, DATAGRAM_GID);
	memcpy(d.dgid, to->path.dgid.raw, DATAGRAM_GID);
	datagram_encode(&d, out);
}

/* ---- the ways ---- */

int ud_socket_name(uint32_t qpn, struct sockaddr_storage *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)out;

	un->sun_family = AF_UNIX;
	un->sun_path[0] = '\0';
	return (int)offsetof(struct sockaddr_un, sun_path) + 1 +
	       snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "stag-ud-%06x", qpn);
}

static int open_tx(struct ud *ud)
{
	int room = SEND_ROOM;

	ud->tx_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ud->tx_fd < 0)
		return -errno;
	setsockopt(ud->tx_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return 0;
}

static int send_near(struct stag_qp *qp, const struct ud_dest *to, size_t len)
{
	struct ud *ud = qp->ud;
	struct sockaddr_storage name;
	int name_len = ud_socket_name(to->qpn, &name);
	int err = ud->tx_fd < 0 ? open_tx(ud) : 0;

	if (err)
		return err;
	if (sendto(ud->tx_fd, ud->out, len, MSG_NOSIGNAL, (struct sockaddr *)&name,
		   (socklen_t)name_len) < 0)
		return -errno;
	return 0;
}

/* Says which address of ours is the source. Returns the length. */
static size_t put_source(const struct qp_port *port, const struct ud_path *p, struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (port->v6) {
		struct in6_pktinfo info = {.ipi6_ifindex = 0};

		memcpy(&info.ipi6_addr, p->sgid.raw, sizeof(info.ipi6_addr));
		if (p->way == UD_GROUP || IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr))
			info.ipi6_ifindex = p->ifindex;
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(info)),
				      .cmsg_level = IPPROTO_IPV6,
				      .cmsg_type = IPV6_PKTINFO};
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		return CMSG_SPACE(sizeof(info));
	}
	struct in_pktinfo info = {.ipi_ifindex = p->way == UD_GROUP ? (int)p->ifindex : 0};

	memcpy(&info.ipi_spec_dst, p->sgid.raw + 12, sizeof(info.ipi_spec_dst));
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(info)),
			      .cmsg_level = IPPROTO_IP,
			      .cmsg_type = IP_PKTINFO};
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	return CMSG_SPACE(sizeof(info));
}

/* An IPv4 address for a socket of AF_INET6. */
static socklen_t map_v4(struct sockaddr_storage *a)
{
	struct sockaddr_in four = *(struct sockaddr_in *)a;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = four.sin_port};

	six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
	memcpy(six.sin6_addr.s6_addr + 12, &four.sin_addr, 4);
	memcpy(a, &six, sizeof(six));
	return sizeof(six);
}

static int send_udp(struct stag_qp *qp, const struct ud_path *p, struct sockaddr_storage *to,
		    socklen_t to_len, size_t len)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
	struct iovec iov = {qp->ud->out, len};
	struct msghdr m = {
		.msg_name = to,
		.msg_namelen = to_len,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	if (qp->port->v6 && to->ss_family == AF_INET)
		m.msg_namelen = map_v4(to);
	m.msg_controllen = put_source(qp->port, p, &m);
	return sendmsg(qp->port->udp, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int send_far(struct stag_qp *qp, const struct ud_dest *to, size_t len)
{
	struct sockaddr_storage addr;
	socklen_t addr_len =
		gid_to_addr(&to->path.dgid, to->path.ifindex, qpn_port(to->qpn), &addr);

	if (config()->crc)
		datagram_seal(qp->ud->out, len - DATAGRAM_HDR);
	return send_udp(qp, &to->path, &addr, addr_len, len);
}

static int send_to_group(struct stag_qp *qp, const struct ud_dest *to, size_t len)
{
	struct sockaddr_storage addr;
	socklen_t addr_len = mcast_addr(&to->path, &addr);

	if (to->qpn != DATAGRAM_MULTICAST || !addr_len)
		return -EHOSTUNREACH;
	if (config()->crc)
		datagram_seal(qp->ud->out, len - DATAGRAM_HDR);
	return send_udp(qp, &to->path, &addr, addr_len, len);
}

/* Records what is packed, and was sent. */
static void record_sent(struct ud *ud, size_t len)
{
	uint8_t *buf = ud->out;
	struct datagram d;
	bool sealed;

	for (size_t n; (n = datagram_first(buf, len)); buf += n, len -= n)
		if (!datagram_decode(buf, n, &d, &sealed))
			trace_datagram(true, &d, buf + DATAGRAM_HDR);
}

/* Returns -EAGAIN if there is no room. Other failures are losses on the way, of which a sender does not hear. */
static int transmit(struct stag_qp *qp, const struct ud_dest *to, size_t len)
{
	int err = 0;

	qp->stats.counters.tx_calls++;
	switch (to->path.way) {
	case UD_NEAR:
		err = send_near(qp, to, len);
		break;
	case UD_FAR:
		err = send_far(qp, to, len);
		break;
	case UD_GROUP:
		err = send_to_group(qp, to, len);
		break;
	}
	if (err == -EAGAIN || err == -ENOBUFS || err == -ENOMEM) {
		qp->stats.counters.tx_again++;
		return -EAGAIN;
	}
	if (err)
		log_debug("qp %u: a datagram to qp %u is lost: %s", qp->ibv.qp_num, to->qpn,
			  strerror(-err));
	else if (config()->trace)
		record_sent(qp->ud, len);
	return 0;
}

/* ---- the queue ---- */

/* Appends the datagram of a request to what is packed. Returns why the request fails. */
static enum ibv_wc_status pack_one(struct stag_qp *qp, const struct wqe *w)
{
	struct ud *ud = qp->ud;
	uint8_t *out = ud->out + ud->packed.len;
	enum ibv_wc_status status;

	if (!is_send(w))
		return IBV_WC_LOC_QP_OP_ERR;
	if (w->length > ud->mtu)
		return IBV_WC_LOC_LEN_ERR;
	status = copy_payload(qp, w, out + DATAGRAM_HDR);
	if (status != IBV_WC_SUCCESS)
		return status;
	encode(qp, w, dest_of(qp, w), out);
	ud->packed.len += DATAGRAM_HDR + w->length;
	ud->packed.n++;
	return IBV_WC_SUCCESS;
}

/* May it travel with the first one, in a train? */
static bool goes_along(struct stag_qp *qp, const struct ud_dest *first, const struct wqe *w)
{
	const struct ud_dest *to = dest_of(qp, w);

	return is_send(w) && to->path.way == UD_NEAR && to->qpn == first->qpn &&
	       w->length <= qp->ud->mtu &&
	       w->length + DATAGRAM_HDR <= UD_TRAIN - qp->ud->packed.len;
}

static enum ibv_wc_status pack(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	struct sq *sq = &qp->sq;
	const struct wqe *w = &sq->wqe[sq->tx & sq->mask];
	const struct ud_dest *first = dest_of(qp, w);
	enum ibv_wc_status status;

	if (ud->packed.n && ud->packed.tx == sq->tx && ud->packed.put == sq->put)
		return IBV_WC_SUCCESS;
	ud->packed.tx = sq->tx;
	ud->packed.put = sq->put;
	ud->packed.n = 0;
	ud->packed.len = 0;
	status = pack_one(qp, w);
	if (status != IBV_WC_SUCCESS || first->path.way != UD_NEAR)
		return status;
	for (uint32_t i = sq->tx + 1; i != sq->put; i++) {
		w = &sq->wqe[i & sq->mask];
		if (!goes_along(qp, first, w) || pack_one(qp, w) != IBV_WC_SUCCESS)
			break; /* one that fails does so when it is the first */
	}
	return IBV_WC_SUCCESS;
}

/* ---- destinations that are full ---- */

static uint32_t key_of(const struct ud_dest *to)
{
	return to->path.way == UD_NEAR ? to->qpn : 0;
}

static struct ud_full *find_full(struct ud *ud, uint32_t qpn)
{
	for (unsigned i = 0; i < ud->n_full; i++)
		if (ud->full[i].qpn == qpn)
			return &ud->full[i];
	return NULL;
}

/* Enters a destination that has no room. If there are too many, the oldest entry is forgotten. */
static struct ud_full *note_full(struct ud *ud, uint32_t qpn)
{
	struct ud_full *f = find_full(ud, qpn);

	if (f)
		return f;
	if (ud->n_full < UD_MAX_FULL) {
		f = &ud->full[ud->n_full++];
	} else {
		f = &ud->full[0];
		for (unsigned i = 1; i < UD_MAX_FULL; i++)
			if (ud->full[i].since < f->since)
				f = &ud->full[i];
	}
	*f = (struct ud_full){.qpn = qpn, .since = clock_ns()};
	return f;
}

static void note_room(struct ud *ud, uint32_t qpn)
{
	struct ud_full *f = find_full(ud, qpn);

	if (f)
		*f = ud->full[--ud->n_full];
}

/* Do requests to other destinations wait behind the next one? Looks at each request once. */
static bool others_wait(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	struct sq *sq = &qp->sq;
	uint32_t first = key_of(dest_of(qp, &sq->wqe[sq->tx & sq->mask]));

	if (ud->behind.tx != sq->tx) {
		ud->behind.tx = ud->behind.upto = sq->tx;
		ud->behind.others = false;
	}
	for (; ud->behind.upto != sq->put && !ud->behind.others; ud->behind.upto++) {
		const struct wqe *w = &sq->wqe[ud->behind.upto & sq->mask];

		ud->behind.others = is_send(w) && key_of(dest_of(qp, w)) != first;
	}
	return ud->behind.others;
}

static bool is_patient(struct stag_qp *qp, const struct ud_full *f)
{
	uint64_t waited = clock_ns() - f->since;

	return !f->given_up && waited < UD_PATIENCE_NS &&
	       (waited < UD_PATIENCE_SHARED_NS || !others_wait(qp));
}

/*
 * Replaces the sending socket, whose buffer may be full of what receivers have not read: that is no reason to lose a
 * datagram to another one. The engine, which may be watching it, closes it.
 */
static bool replace_socket(struct ud *ud)
{
	if (ud->tx_fd < 0 || ud->spent_fd >= 0)
		return false;
	ud->spent_fd = ud->tx_fd;
	ud->tx_fd = -1;
	work_queue(&ud->tx_work, ud_watch_room);
	return true;
}

/* Gives up a destination that has had no room for too long. Returns whether the datagram is lost. */
static bool give_up(struct stag_qp *qp, struct ud_full *f)
{
	struct ud *ud = qp->ud;
	const struct ud_dest *to = dest_of(qp, &qp->sq.wqe[qp->sq.tx & qp->sq.mask]);

	if (f->given_up)
		return true;
	f->given_up = true;
	if (f->qpn && replace_socket(ud) && transmit(qp, to, ud->packed.len) != -EAGAIN)
		return false;
	log_info("qp %u: datagrams to qp %u are dropped, as there was no room for %u ms",
		 qp->ibv.qp_num, to->qpn, (unsigned)((clock_ns() - f->since) / NS_PER_MS));
	return true;
}

static void fail(struct work *w)
{
	struct ud *ud = container_of(w, struct ud, fail_work);

	qp_to_error(ud->qp);
}

void ud_fail_soon(struct stag_qp *qp)
{
	work_queue(&qp->ud->fail_work, fail);
}

/* The failed request stays the next one to send: flushing completes it with its status. */
static void fail_request(struct stag_qp *qp, struct wqe *w, enum ibv_wc_status status)
{
	w->done = true;
	w->status = (uint8_t)status;
	qp->ud->failed = true;
	ud_fail_soon(qp);
}

static void note_sent(struct stag_qp *qp, struct wqe *w)
{
	w->done = w->sent = true;
	qp->sq.tx++;
	qp->stats.counters.tx_msgs++;
	qp->stats.counters.tx_payload += w->length;
	qp->stats.counters.tx_bytes += DATAGRAM_HDR + w->length;
}

/* Returns false if it waits for room. */
static bool send_packed(struct stag_qp *qp, const struct ud_dest *to)
{
	struct ud *ud = qp->ud;
	struct ud_full *f;

	if (transmit(qp, to, ud->packed.len) == -EAGAIN) {
		f = note_full(ud, key_of(to));
		if (is_patient(qp, f))
			return false;
		if (give_up(qp, f))
			return true;
	}
	note_room(ud, key_of(to));
	return true;
}

/* Returns false if no more can be sent now. */
static bool send_next(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];
	enum ibv_wc_status status = pack(qp);

	if (status != IBV_WC_SUCCESS) {
		fail_request(qp, w, status);
		return false;
	}
	if (!send_packed(qp, dest_of(qp, w)))
		return false;
	for (; ud->packed.n; ud->packed.n--)
		note_sent(qp, &qp->sq.wqe[qp->sq.tx & qp->sq.mask]);
	return true;
}

static void set_blocked(struct stag_qp *qp, bool blocked)
{
	if (atomic_exchange(&qp->progress.tx_blocked, blocked) == blocked || !blocked)
		return;
	lock_acquire(&qp->progress.arm_lock);
	ud_arm(qp);
	lock_release(&qp->progress.arm_lock);
}

void ud_run(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	assert(qp_tx_locked(qp));
	if (qp->ibv.state != IBV_QPS_RTS || qp->ud->failed)
		return;
	while (sq->tx != sq->put && send_next(qp))
		;
	sq_retire(qp);
	set_blocked(qp, sq->tx != sq->put && !qp->ud->failed);
}

/* ---- waiting for room ---- */

static void try_again(struct stag_qp *qp)
{
	lock_acquire(&qp->tx_lock);
	if (atomic_load(&qp->progress.tx_blocked))
		ud_run(qp);
	lock_release(&qp->tx_lock);
}

static void wait_for_room(struct stag_qp *qp);

static void on_room(struct watch *w, uint32_t revents)
{
	struct ud *ud = container_of(w, struct ud, tx_watch);

	try_again(ud->qp);
	wait_for_room(ud->qp);
}

static void on_tx_timer(struct timer *t)
{
	struct ud *ud = container_of(t, struct ud, tx_timer);

	try_again(ud->qp);
	wait_for_room(ud->qp);
}

/* A socket that is connected to a full one is writable when that has room. */
static bool watch_near(struct stag_qp *qp, const struct ud_dest *to)
{
	struct ud *ud = qp->ud;
	struct sockaddr_storage name;
	int len = ud_socket_name(to->qpn, &name);

	if (to->path.way != UD_NEAR || ud->tx_fd < 0 ||
	    connect(ud->tx_fd, (struct sockaddr *)&name, (socklen_t)len))
		return false;
	if (ud->tx_watch.slot)
		return !watch_mod(&ud->tx_watch, EPOLLOUT);
	return !watch_add(&ud->tx_watch, ud->tx_fd, EPOLLOUT, on_room);
}

static void close_spent(struct ud *ud)
{
	assert(engine_locked() && qp_tx_locked(ud->qp));
	if (ud->spent_fd < 0)
		return;
	if (ud->tx_watch.fd == ud->spent_fd)
		watch_del(&ud->tx_watch);
	close(ud->spent_fd);
	ud->spent_fd = -1;
}

/* Returns when the next request is tried again, if there is no room before. */
static uint64_t next_try(struct stag_qp *qp, const struct ud_dest *to)
{
	const struct ud_full *f = find_full(qp->ud, key_of(to));
	uint64_t now = clock_ns(), soon = now + UDP_TRY_NS;

	if (!f || !watch_near(qp, to))
		return soon;
	if (now - f->since < UD_PATIENCE_SHARED_NS)
		return f->since + UD_PATIENCE_SHARED_NS;
	return f->since + UD_PATIENCE_NS;
}

/* On the engine thread: watches for room if requests wait, and stops watching if none do. */
static void wait_for_room(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;

	assert(engine_locked());
	lock_acquire(&qp->tx_lock);
	close_spent(ud);
	if (atomic_load(&qp->progress.tx_blocked) && qp->ibv.state == IBV_QPS_RTS) {
		const struct wqe *w = &qp->sq.wqe[qp->sq.tx & qp->sq.mask];

		timer_set(&ud->tx_timer, next_try(qp, dest_of(qp, w)), on_tx_timer);
	} else {
		watch_mod(&ud->tx_watch, 0);
		timer_cancel(&ud->tx_timer);
	}
	lock_release(&qp->tx_lock);
}

void ud_watch_room(struct work *w)
{
	struct ud *ud = container_of(w, struct ud, tx_work);

	try_again(ud->qp);
	wait_for_room(ud->qp);
}
