// SPDX-License-Identifier: BSD-2-Clause
/* reach.c - how queue pairs of roce0 meet: connecting, the hello and its answer, and which stream stays. */
#include "adapter/reach.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/config.h"
#include "adapter/congestion.h"
#include "adapter/device.h"
#include "adapter/gid.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/rc.h"
#include "adapter/stream.h"
#include "adapter/trace.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/shortage.h"

#define CAPS                                                                                       \
	(MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM | MPA_EXT_ONE_SHOT |   \
	 MPA_EXT_FLUSH | MPA_EXT_ESCAPE | MPA_EXT_ACK)
#define CAPS_NEEDED MPA_EXT_ACK

struct guest { /* a connection to a port that has not become a stream */
	struct list link;
	struct qp_port *port;
	int fd;
	union ibv_gid source;
	struct watch watch;
	struct timer timer;
	uint8_t buf[HELLO_LEN];
	unsigned have;
	struct hello hello; /* whole when have is HELLO_LEN */
};

/* ---- our hello ---- */

static uint64_t process_id(void)
{
	static uint64_t id;
	static unsigned age;

	assert(engine_locked());
	if (!id || age != engine_age()) { /* a forked child is another process */
		id = (uint64_t)random_u32() << 32 | random_u32();
		age = engine_age();
	}
	return id;
}

static const union ibv_gid *dgid_of(const struct stag_qp *qp)
{
	return &qp->config.attr.ah_attr.grh.dgid;
}

/* Our address, also if this machine has lost it since: the peer knows no other. */
static const union ibv_gid *sgid_of(const struct stag_qp *qp)
{
	assert(engine_locked());
	return &qp->config.sgid;
}

/* Bytes that stay on this machine are not damaged on the way. */
static bool wants_crc(const struct stag_qp *qp)
{
	return gid_is_local(dgid_of(qp)) ? config()->crc_near : config()->crc;
}

/* Says the same each time, until the epoch changes. */
static void describe(struct stag_qp *qp, enum hello_kind kind, struct hello *h)
{
	const struct ibv_qp_attr *a = &qp->config.attr;

	*h = (struct hello){
		.kind = kind,
		.type = qp_is_uc(qp) ? HELLO_UC : HELLO_RC,
		.flags = wants_crc(qp) ? HELLO_CRC : 0,
		.caps = CAPS,
		.ird = a->max_dest_rd_atomic,
		.ord = a->max_rd_atomic,
		.from_qpn = qp->ibv.qp_num,
		.to_qpn = a->dest_qp_num,
		.sq_psn = a->sq_psn,
		.rq_psn = a->rq_psn,
		.process = process_id(),
		.life = qp->rc->reach.life,
		.epoch = qp->rc->reach.epoch,
	};
	memcpy(h->from_gid, sgid_of(qp)->raw, sizeof(h->from_gid));
	memcpy(h->to_gid, dgid_of(qp)->raw, sizeof(h->to_gid));
}

/* ---- the peer's hello ---- */

/* Are these addresses of the same host: the same one, or two of this machine's? */
static bool is_same_host(const uint8_t claimed[16], const union ibv_gid *known)
{
	union ibv_gid gid;

	memcpy(gid.raw, claimed, sizeof(gid.raw));
	return gid_is_equal(&gid, known) || (gid_is_local(&gid) && gid_is_local(known));
}

/* Was this hello made after the one that the present or last stream began with? An attacker may repeat an old one. */
static bool is_newer(const struct reach *r, const struct hello *h)
{
	return (int32_t)(h->epoch - r->peer_epoch) > 0;
}

/* Is it the peer that the program named, and does it want us? */
static bool is_our_peer(const struct stag_qp *qp, const struct hello *h)
{
	const struct ibv_qp_attr *a = &qp->config.attr;
	const struct reach *r = &qp->rc->reach;

	if (h->from_qpn != a->dest_qp_num || h->to_qpn != qp->ibv.qp_num ||
	    h->type != (qp_is_uc(qp) ? HELLO_UC : HELLO_RC))
		return false;
	if (!is_same_host(h->from_gid, dgid_of(qp)) || !is_same_host(h->to_gid, sgid_of(qp)))
		return false;
	if (r->met && (h->process != r->peer_process || h->life != r->peer_life || !is_newer(r, h)))
		return false;
	return (h->caps & CAPS_NEEDED) == CAPS_NEEDED;
}

/* A requester whose first PSN is not the one that the responder expects is not heard. */
static bool is_expected(const struct stag_qp *qp, const struct hello *h)
{
	return h->kind == HELLO_ASK ? h->sq_psn == qp->config.attr.rq_psn
				    : h->rq_psn == qp->config.attr.sq_psn;
}

/* ---- the stream ---- */

static void meet(struct reach *r, const struct hello *h)
{
	r->met = true;
	atomic_store(&r->asked, false);
	r->peer_process = h->process;
	r->peer_life = h->life;
	r->peer_epoch = h->epoch;
	r->pause_ms = 0;
}

static void record_hellos(struct stag_qp *qp, struct stream *s, const struct hello *peer,
			  bool initiator)
{
	struct hello mine;

	describe(qp, initiator ? HELLO_ASK : HELLO_READY, &mine);
	trace_hellos(s->trace, initiator ? &mine : peer, initiator ? peer : &mine);
}

/*
 * Takes the socket over, or closes it.
 *
 * Headers have no sums of their own (MPA_EXT_SUM): with CRC, whole frames are staged and checked before a byte is placed, and copied
 * before they are summed. Programs written for InfiniBand may let several queue pairs write to the same bytes, or change
 * what they are sending (perftest does both): the sum of bytes in their place would not be that of the frame.
 */
static bool attach(struct stag_qp *qp, int fd, const struct hello *peer, bool initiator)
{
	bool crc = wants_crc(qp) || (peer->flags & HELLO_CRC);
	struct qp_link link = {
		.initiator = initiator,
		.crc = crc,
		.mpa_rev = 2,
		.stag_peer = true,
		.caps = CAPS & peer->caps,
		.one_shot = CAPS & peer->caps & MPA_EXT_ONE_SHOT ? SHOT_OPCODES : SHOT_NONE,
		.ird = qp->config.attr.max_dest_rd_atomic,
		.ord = 1,
	};
	struct stream *s;
	int err = stream_open_tcp(&s, fd, initiator);

	assert(engine_locked());
	if (err) {
		close(fd);
		return false;
	}
	record_hellos(qp, s, peer, initiator);
	qp->rc->peer_ird = peer->ird;
	err = qp_attach(qp, s, &link);
	if (err) {
		stream_close(s);
		return false;
	}
	meet(&qp->rc->reach, peer);
	atomic_fetch_add(initiator ? &stag_totals.connects : &stag_totals.accepts, 1);
	log_debug("qp %u: has a stream to queue pair %u", qp->ibv.qp_num, peer->from_qpn);
	return true;
}

/* ---- connecting ---- */

static void end_attempt(struct stag_qp *qp)
{
	struct reach *r = &qp->rc->reach;

	assert(engine_locked());
	timer_cancel(&r->timer);
	if (r->state == REACH_CONNECTING || r->state == REACH_ASKED) {
		watch_del(&r->watch);
		if (r->fd >= 0)
			close(r->fd);
	}
	r->fd = -1;
	r->state = REACH_IDLE;
}

static void dial(struct stag_qp *qp);

static void on_timer(struct timer *t)
{
	struct rc *rc = container_of(t, struct rc, reach.timer);
	bool paused = rc->reach.state == REACH_PAUSED;

	end_attempt(rc->qp);
	if (!paused)
		log_debug("qp %u: queue pair %u did not answer in time", rc->qp->ibv.qp_num,
			  rc->qp->config.attr.dest_qp_num);
	dial(rc->qp);
}

static void pause_attempts(struct stag_qp *qp)
{
	struct reach *r = &qp->rc->reach;

	end_attempt(qp);
	atomic_store(&r->asked, false);
	r->pause_ms = r->pause_ms ? 2 * r->pause_ms : REACH_MIN_PAUSE_MS;
	if (r->pause_ms > REACH_MAX_PAUSE_MS)
		r->pause_ms = REACH_MAX_PAUSE_MS;
	r->state = REACH_PAUSED;
	timer_set(&r->timer, clock_ns() + r->pause_ms * NS_PER_MS, on_timer);
}

static void take_answer(struct stag_qp *qp)
{
	struct reach *r = &qp->rc->reach;
	struct hello h;
	int fd = r->fd;

	if (hello_decode(r->buf, HELLO_LEN, &h) != HELLO_LEN || h.kind != HELLO_READY ||
	    !is_our_peer(qp, &h) || !is_expected(qp, &h)) {
		pause_attempts(qp);
		return;
	}
	watch_del(&r->watch);
	r->state = REACH_IDLE;
	r->fd = -1;
	timer_cancel(&r->timer);
	if (!attach(qp, fd, &h, true))
		pause_attempts(qp);
}

static void on_answer(struct watch *w, uint32_t revents)
{
	struct rc *rc = container_of(w, struct rc, reach.watch);
	struct reach *r = &rc->reach;
	ssize_t n = recv(r->fd, r->buf + r->have, HELLO_LEN - r->have, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		pause_attempts(rc->qp);
		return;
	}
	r->have += (unsigned)n;
	if (r->have == HELLO_LEN)
		take_answer(rc->qp);
}

static void ask(struct stag_qp *qp)
{
	struct reach *r = &qp->rc->reach;
	uint8_t buf[HELLO_LEN];
	struct hello h;
	int fd = r->fd;

	r->epoch++;
	describe(qp, HELLO_ASK, &h);
	hello_encode(&h, buf);
	if (send(fd, buf, sizeof(buf), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(buf)) {
		pause_attempts(qp);
		return;
	}
	watch_del(&r->watch);
	r->state = REACH_ASKED;
	r->have = 0;
	timer_set(&r->timer, clock_ns() + (REACH_KEEP_MS + REACH_HELLO_MS) * NS_PER_MS, on_timer);
	if (watch_add(&r->watch, fd, EPOLLIN, on_answer))
		pause_attempts(qp);
}

static void on_connected(struct watch *w, uint32_t revents)
{
	struct rc *rc = container_of(w, struct rc, reach.watch);
	int err = 0, one = 1;
	socklen_t len = sizeof(err);

	if (getsockopt(rc->reach.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (err) {
		log_debug("qp %u: cannot connect: %s", rc->qp->ibv.qp_num, strerror(err));
		pause_attempts(rc->qp);
		return;
	}
	setsockopt(rc->reach.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	ask(rc->qp);
}

/* From the source address that the program chose, so that the peer sees it, if the peer is on another host. */
static int open_socket(const struct stag_qp *qp, struct sockaddr_storage *to, socklen_t *len)
{
	const struct ibv_qp_attr *a = &qp->config.attr;
	struct sockaddr_storage from;
	uint32_t ifindex = qp->config.sgid_ifindex;
	socklen_t from_len = gid_to_addr(sgid_of(qp), ifindex, 0, &from);
	int fd, one = 1;

	*len = gid_to_addr(dgid_of(qp), ifindex, qpn_port(a->dest_qp_num), to);
	fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (gid_is_local(dgid_of(qp)) || from.ss_family != to->ss_family)
		return fd;
	/* The port is chosen by connect(), which has more to choose from than bind(). */
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&from, from_len))
		log_debug("qp %u: cannot use its source address: %s", qp->ibv.qp_num,
			  strerror(errno));
	return fd;
}

static void connect_to_peer(struct stag_qp *qp)
{
	struct reach *r = &qp->rc->reach;
	struct sockaddr_storage to;
	socklen_t len;

	r->fd = open_socket(qp, &to, &len);
	if (r->fd < 0) {
		pause_attempts(qp);
		return;
	}
	r->state = REACH_CONNECTING;
	congestion_before_connect(r->fd, (struct sockaddr *)&to);
	if (connect(r->fd, (struct sockaddr *)&to, len) && errno != EINPROGRESS) {
		log_debug("qp %u: cannot connect: %s", qp->ibv.qp_num, strerror(errno));
		pause_attempts(qp);
		return;
	}
	timer_set(&r->timer, clock_ns() + REACH_TRY_MS * NS_PER_MS, on_timer);
	if (watch_add(&r->watch, r->fd, EPOLLOUT, on_connected))
		pause_attempts(qp);
}

static bool is_itself(const struct stag_qp *qp)
{
	return qp->config.attr.dest_qp_num == qp->ibv.qp_num && gid_is_local(dgid_of(qp));
}

/* What a socket that is connected to itself sends, it receives. Connecting it takes no time. */
static int open_loop(void)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err;
	struct timeval most = {.tv_usec = 100000};
	socklen_t len = sizeof(lo);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) ||
	    bind(fd, (struct sockaddr *)&lo, sizeof(lo)) ||
	    getsockname(fd, (struct sockaddr *)&lo, &len) ||
	    connect(fd, (struct sockaddr *)&lo, sizeof(lo)) || fcntl(fd, F_SETFL, O_NONBLOCK)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static void connect_to_itself(struct stag_qp *qp)
{
	int fd = open_loop();
	struct hello h;

	if (fd < 0) {
		log_info("qp %u: cannot connect to itself: %s", qp->ibv.qp_num, strerror(-fd));
		pause_attempts(qp);
		return;
	}
	qp->rc->reach.epoch++;
	describe(qp, HELLO_READY, &h);
	if (!is_expected(qp, &h)) { /* sq_psn and rq_psn differ */
		close(fd);
		pause_attempts(qp);
	} else if (!attach(qp, fd, &h, true)) {
		pause_attempts(qp);
	}
}

/* Is there something to send, and no stream to send it on? */
static bool wants_stream(struct stag_qp *qp)
{
	bool wants;

	lock_acquire(&qp->tx_lock);
	wants = atomic_load(&qp->state) == QP_IDLE && !qp->rc->hold &&
		(qp->sq.tx != qp->sq.put || atomic_load(&qp->rc->reach.asked));
	lock_release(&qp->tx_lock);
	return wants;
}

static void dial(struct stag_qp *qp)
{
	assert(engine_locked());
	if (qp->rc->reach.state != REACH_IDLE || !wants_stream(qp))
		return;
	if (is_itself(qp))
		connect_to_itself(qp);
	else if (qpn_port(qp->config.attr.dest_qp_num) == 0)
		pause_attempts(qp); /* nobody has such a number */
	else
		connect_to_peer(qp);
}

static void on_want(struct work *w)
{
	dial(container_of(w, struct rc, reach.work)->qp);
}

void reach_want(struct stag_qp *qp)
{
	work_queue(&qp->rc->reach.work, on_want);
}

void reach_ask(struct stag_qp *qp)
{
	atomic_store(&qp->rc->reach.asked, true);
	reach_want(qp);
}

void reach_init(struct reach *r)
{
	r->fd = -1;
}

void reach_reset(struct reach *r)
{
	r->life++;
	atomic_store(&r->asked, false);
	r->met = false;
	r->pause_ms = 0;
}

/* ---- guests ---- */

static void drop_guest(struct guest *g)
{
	assert(engine_locked());
	watch_del(&g->watch);
	timer_cancel(&g->timer);
	list_del(&g->link);
	g->port->n_guests--;
	if (g->fd >= 0)
		close(g->fd);
	free(g);
}

void reach_drop_guests(struct qp_port *p)
{
	list_for_each_safe (l, &p->guests)
		drop_guest(list_entry(l, struct guest, link));
}

static void say_no(struct guest *g)
{
	uint8_t buf[HELLO_LEN];

	hello_encode(&(struct hello){.kind = HELLO_NO}, buf);
	if (send(g->fd, buf, sizeof(buf), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("port %u: an answer was not sent: %s", g->port->number, strerror(errno));
	drop_guest(g);
}

/*
 * Does our own attempt to connect go before the guest's? Only one that has got through: the peer has our hello, or will
 * have. While we are connecting, our packets may be lost on the way, and the guest's direction may be the only one.
 */
static bool we_go_first(const struct stag_qp *qp, const struct hello *h)
{
	const struct reach *r = &qp->rc->reach;
	int order = memcmp(sgid_of(qp)->raw, h->from_gid, sizeof(h->from_gid));

	if (r->state != REACH_ASKED)
		return false;
	return order ? order < 0 : qp->ibv.qp_num < h->from_qpn;
}

enum verdict { REACH_YES, REACH_LATER, REACH_NO };

static enum verdict judge(struct stag_qp *qp, const struct hello *h)
{
	if (!qp || !qp->rc || h->kind != HELLO_ASK)
		return REACH_NO;
	switch (__atomic_load_n(&qp->ibv.state, __ATOMIC_RELAXED)) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
		return REACH_LATER;
	case IBV_QPS_RTR:
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
		break;
	default:
		return REACH_NO;
	}
	if (!is_our_peer(qp, h) || !is_expected(qp, h) || is_itself(qp))
		return REACH_NO;
	return we_go_first(qp, h) ? REACH_NO : REACH_YES;
}

static void lose_old_stream(struct stag_qp *qp)
{
	qp_lock_both(qp);
	rc_lose(qp);
	qp_unlock_both(qp);
	rc_detach(qp);
}

static void welcome(struct stag_qp *qp, struct guest *g)
{
	struct hello mine, theirs = g->hello;
	uint8_t buf[HELLO_LEN];
	int fd = g->fd, one = 1;

	end_attempt(qp);
	if (atomic_load(&qp->state) == QP_RTS)
		lose_old_stream(qp);
	qp->rc->reach.epoch++;
	describe(qp, HELLO_READY, &mine);
	hello_encode(&mine, buf);
	if (send(fd, buf, sizeof(buf), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(buf)) {
		drop_guest(g);
		return;
	}
	watch_del(&g->watch);
	g->fd = -1;
	drop_guest(g);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	attach(qp, fd, &theirs, false);
}

static void on_kept_guest(struct watch *w, uint32_t revents)
{
	/* Whatever it sends, or that it is gone: it was to wait. */
	drop_guest(container_of(w, struct guest, watch));
}

static void on_guest_timeout(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, timer);

	if (g->have == HELLO_LEN)
		say_no(g);
	else
		drop_guest(g);
}

static void keep_guest(struct guest *g)
{
	int fd = g->fd;

	timer_set(&g->timer, clock_ns() + REACH_KEEP_MS * NS_PER_MS, on_guest_timeout);
	watch_del(&g->watch);
	if (watch_add(&g->watch, fd, EPOLLIN, on_kept_guest))
		drop_guest(g);
}

/* first: has its hello just come? */
static void answer(struct guest *g, bool first)
{
	struct stag_qp *qp = port_qp_by_num(g->hello.to_qpn);

	if (qp && qp->port != g->port)
		qp = NULL;
	switch (judge(qp, &g->hello)) {
	case REACH_YES:
		welcome(qp, g);
		break;
	case REACH_LATER:
		if (first)
			keep_guest(g);
		break;
	case REACH_NO:
		log_debug("port %u: no for queue pair %u, which wants queue pair %u",
			  g->port->number, g->hello.from_qpn, g->hello.to_qpn);
		say_no(g);
		break;
	}
}

static void on_hello(struct watch *w, uint32_t revents)
{
	struct guest *g = container_of(w, struct guest, watch);
	ssize_t n = recv(g->fd, g->buf + g->have, HELLO_LEN - g->have, MSG_DONTWAIT);
	int r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		g->have += (unsigned)n;
	r = n > 0 ? hello_decode(g->buf, g->have, &g->hello) : -EPROTO;
	if (r == HELLO_LEN)
		answer(g, true);
	else if (r != -EAGAIN)
		drop_guest(g);
}

struct crowd { /* the guests of a port, or those of one source */
	unsigned n;
	struct guest *silent; /* the oldest whose hello is not whole; or NULL */
};

/* The list has the oldest first. */
static void count_guest(struct crowd *c, struct guest *g)
{
	c->n++;
	if (!c->silent && g->have < HELLO_LEN)
		c->silent = g;
}

/*
 * A source that has too many loses its oldest silent guest. Guests that have said hello are not dropped: they wait for a
 * queue pair, and for at most a minute.
 */
static bool make_room(struct qp_port *p, const union ibv_gid *source)
{
	struct crowd all = {.n = 0}, of_source = {.n = 0}, *full;

	list_for_each (l, &p->guests) {
		struct guest *g = list_entry(l, struct guest, link);

		count_guest(&all, g);
		if (gid_is_equal(&g->source, source))
			count_guest(&of_source, g);
	}
	if (all.n < REACH_MAX_GUESTS && of_source.n < REACH_MAX_OF_SOURCE)
		return true;
	full = of_source.n < REACH_MAX_OF_SOURCE ? &all : &of_source;
	if (full->silent)
		drop_guest(full->silent);
	return full->silent;
}

static void admit(struct qp_port *p, int fd, const struct sockaddr *from)
{
	struct guest *g;
	union ibv_gid source;

	gid_from_addr(from, &source);
	g = make_room(p, &source) ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		close(fd);
		return;
	}
	g->port = p;
	g->fd = fd;
	g->source = source;
	list_add_tail(&p->guests, &g->link);
	p->n_guests++;
	timer_set(&g->timer, clock_ns() + REACH_HELLO_MS * NS_PER_MS, on_guest_timeout);
	if (watch_add(&g->watch, fd, EPOLLIN, on_hello))
		drop_guest(g);
}

static void on_accept_timer(struct timer *t)
{
	watch_mod(&container_of(t, struct qp_port, accept_timer)->tcp_watch, EPOLLIN);
}

/* While descriptors or memory are short, peers wait in TCP's queue: the engine would be woken again at once. */
static void pause_accepting(struct qp_port *p, int err)
{
	log_warn("port %u: cannot accept a connection: %s; trying again in %d ms", p->number,
		 strerror(err), SHORTAGE_PAUSE_MS);
	watch_mod(&p->tcp_watch, 0);
	timer_set(&p->accept_timer, clock_ns() + SHORTAGE_PAUSE_MS * NS_PER_MS, on_accept_timer);
}

#define ACCEPT_RUN 64 /* connections, before other events get their turn */

void reach_accept(struct qp_port *p)
{
	assert(engine_locked());
	for (int i = 0; i < ACCEPT_RUN; i++) {
		struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
		socklen_t len = sizeof(from);
		int fd = accept4(p->tcp, (struct sockaddr *)&from, &len,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			admit(p, fd, (struct sockaddr *)&from);
		else if (shortage_is(errno))
			pause_accepting(p, errno);
		if (fd < 0)
			break;
	}
}

void reach_answer_guests(struct stag_qp *qp)
{
	assert(engine_locked());
	list_for_each_safe (l, &qp->port->guests) {
		struct guest *g = list_entry(l, struct guest, link);

		if (g->have == HELLO_LEN && g->hello.to_qpn == qp->ibv.qp_num)
			answer(g, false);
	}
}

void reach_stop(struct stag_qp *qp)
{
	assert(engine_locked());
	work_cancel(&qp->rc->reach.work);
	end_attempt(qp);
	list_for_each_safe (l, &qp->port->guests) {
		struct guest *g = list_entry(l, struct guest, link);

		if (g->have == HELLO_LEN && g->hello.to_qpn == qp->ibv.qp_num)
			say_no(g);
	}
}
