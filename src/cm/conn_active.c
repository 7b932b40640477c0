// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn_active.c - the side that connects, until its Request is sent: attempts to connect, their order, TLS.
 */
#include "cm/conn.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"

#define REDIAL_MS 10

/* Opens a socket bound to the id's source address. */
static int dial_socket(struct cm_id *id)
{
	struct sockaddr_storage src = id->cm.route.addr.src_storage;
	int fd = id->fd;

	id->fd = -1;
	if (fd >= 0)
		return fd;
	if (!id->port_fixed)
		address_set_port((struct sockaddr *)&src, 0);
	return socket_bound(id, (struct sockaddr *)&src, BIND_PORT_LATE);
}

/*
 * Connections that have not sent their Request yet, in the order of rdma_connect(): one that found
 * a listener does not overtake an earlier one that was refused (conn_retry() below). perftest
 * counts its connections on both sides, and assumes that the order is the same.
 */
static struct list dial_queue = {&dial_queue, &dial_queue};

static void send_due_requests(struct work *w);
static struct work requests_due; /* a connection left the dial queue without a Request */

void conn_leave_line(struct conn *c)
{
	if (list_empty(&c->link))
		return;
	list_del(&c->link);
	work_queue(&requests_due, send_due_requests); /* others may have waited for c */
}

static void line_enter(struct conn *c)
{
	struct list *at = dial_queue.prev;

	if (!list_empty(&c->link))
		return;
	while (at != &dial_queue && list_entry(at, struct conn, link)->turn > c->turn)
		at = at->prev;
	list_add_tail(at->next, &c->link);
}

const struct sockaddr *conn_destination(const struct conn *c)
{
	return &c->id->cm.route.addr.dst_addr;
}

/* Returns whether c dials `to` and was made by this process, not by the parent that forked it. */
static bool is_bound_for(const struct conn *c, const struct sockaddr *to, unsigned age)
{
	return c->age == age && address_same(conn_destination(c), to);
}

/* Returns whether c waits for its next attempt. */
static bool waits_to_dial(const struct conn *c)
{
	return c->fd < 0 && !c->stream;
}

int conn_dial(struct conn *c)
{
	const struct sockaddr *dst = conn_destination(c);
	int err;

	c->secured = false;
	c->fd = dial_socket(c->id);
	if (c->fd < 0)
		return c->fd;
	congestion_before_connect(c->fd, dst);
	if (connect(c->fd, dst, address_len(dst)) && errno != EINPROGRESS) {
		err = -errno;
		goto err_close;
	}
	err = watch_add(&c->watch, c->fd, EPOLLOUT, conn_ready);
	if (err)
		goto err_close;
	conn_set_state(c, CONN_TCP);
	line_enter(c);
	return 0;
err_close:
	close(c->fd);
	c->fd = -1;
	return err;
}

/*
 * The program sees its source port from rdma_connect() on. Later attempts have other ports, but the
 * program may be reading the field: it is updated once more with ESTABLISHED.
 */
void conn_show_source(struct cm_id *id, int fd)
{
	socklen_t len = sizeof(id->cm.route.addr.src_storage);

	getsockname(fd, &id->cm.route.addr.src_addr, &len);
}

static uint64_t turns;

int conn_connect(struct cm_id *id, const struct conn_wish *w, struct conn **out)
{
	struct conn *c = conn_new(CONN_TCP);
	int err;

	assert(engine_locked());
	if (!c)
		return -ENOMEM;
	c->id = id;
	c->turn = ++turns;
	c->wish = *w;
	c->protocol = id->face == FACE_ROCE ? &conn_roce : &conn_mpa;
	c->plain = id->face == FACE_ROCE; /* which has no TLS */
	c->form = config()->mpa_rev >= 2 ? REQUEST_ENHANCED : REQUEST_PLAIN;
	err = conn_dial(c);
	if (err) {
		free(c);
		return err;
	}
	conn_show_source(id, c->fd);
	timer_set(&c->timer, clock_ns() + config()->connect_timeout_ms * NS_PER_MS, conn_late);
	c->refused_until = clock_ns() + config()->refused_retry_ms * NS_PER_MS;
	*out = c;
	return 0;
}

/* Closes the socket of a failed attempt, so that its source port can be used again at once. */
static void close_dialled_socket(struct conn *c)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	if (c->fd >= 0)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	conn_drop_stream(c, RESET);
}

static void dial_again(struct conn *c)
{
	int err;

	timer_cancel(&c->redial);
	close_dialled_socket(c);
	c->dialled_again = true;
	err = conn_dial(c);
	if (err)
		conn_lost(c, err, "cannot connect");
}

/*
 * Dials all connections to that destination that wait, in order; then the ones behind them, which
 * may be connected by now.
 */
static void redial(struct timer *t)
{
	const struct conn *due = container_of(t, struct conn, redial);
	struct sockaddr_storage to = due->id->cm.route.addr.dst_storage;
	unsigned age = due->age;
	bool behind = false;

	list_for_each_safe (it, &dial_queue) {
		struct conn *c = list_entry(it, struct conn, link);

		if (!is_bound_for(c, (struct sockaddr *)&to, age))
			continue;
		behind |= waits_to_dial(c);
		if (behind)
			dial_again(c);
	}
}

static void dial_later(struct conn *c)
{
	close_dialled_socket(c);
	conn_set_state(c, CONN_TCP);
	c->secured = false;
	line_enter(c);
	timer_set(&c->redial, clock_ns() + REDIAL_MS * NS_PER_MS, redial);
}

/*
 * Programs that close a listener and open it again for each connection (perftest) leave a moment in
 * which TCP refuses connections, and resets those that the old listener had not accepted. Peers of
 * a slower adapter never see it; ours retry: after a refusal for the configured time, after a reset
 * once.
 */
bool conn_retry(struct conn *c, int err)
{
	if (clock_ns() >= c->refused_until || (err != -ECONNREFUSED && err != -ECONNRESET))
		return false;
	if (err == -ECONNRESET && (c->was_reset || c->rx_len))
		return false;
	c->was_reset |= err == -ECONNRESET;
	dial_later(c);
	return true;
}

bool conn_request_sent(struct conn *c, int err)
{
	if (err && err != -EAGAIN)
		return false;
	watch_mod(&c->watch, err ? EPOLLIN | EPOLLOUT : EPOLLIN);
	return true;
}

/*
 * Returns whether an earlier connection waits to dial again; or, if this one is secured, has yet to finish its
 * handshake.
 */
static bool must_wait(struct conn *c)
{
	for (struct list *it = c->link.prev; it != &dial_queue; it = it->prev) {
		struct conn *other = list_entry(it, struct conn, link);

		if (!is_bound_for(other, conn_destination(c), c->age))
			continue;
		if (waits_to_dial(other) || (c->secured && other->state == CONN_TLS_OUT))
			return true;
	}
	return false;
}

/*
 * The peer closed the connection on our hello. Where TLS is not required, it may not speak TLS: retries once without.
 */
static bool retry_without_tls(struct conn *c, int err)
{
	if (c->id->tls.mode != TLS_ALLOWED || (err != -ECONNRESET && err != -EPIPE))
		return false;
	conn_log_peer(c, err, "does not speak TLS: retrying without");
	c->plain = true;
	c->was_reset = false;
	work_queue(&requests_due, send_due_requests);
	dial_again(c);
	return true;
}

static void tls_out_failed(struct conn *c, int err)
{
	if (conn_retry(c, err) || retry_without_tls(c, err))
		return;
	conn_log_tls(c, stream_tls_why(c->stream));
	conn_lost(c, err == -ECONNRESET ? -EPROTONOSUPPORT : err, "no TLS");
}

/*
 * Sends the Requests whose turn it is, of c and of those behind it. The end of the handshake goes with the Request
 * (tls_hold_finish()): a server that heard of it earlier might handle the Requests in another order.
 */
static void send_requests_from(struct conn *c)
{
	struct sockaddr_storage to = c->id->cm.route.addr.dst_storage;
	struct list *it = &c->link, *next;
	unsigned age = c->age;

	for (; it != &dial_queue; it = next) {
		struct conn *at = list_entry(it, struct conn, link);

		next = it->next;
		if (!is_bound_for(at, (struct sockaddr *)&to, age))
			continue;
		if (waits_to_dial(at) || (at->state == CONN_TLS_OUT && !at->secured))
			return;
		if (at->state == CONN_TLS_OUT)
			at->protocol->send_request(at);
	}
}

/* A connection failed that others waited for: finds the first of each destination. */
static void send_due_requests(struct work *w)
{
	list_for_each_safe (it, &dial_queue) {
		struct conn *c = list_entry(it, struct conn, link);

		if (c->age !=
		    engine_age()) /* the parent's: a forked child must not use its streams */
			continue;
		if (!waits_to_dial(c) && c->state == CONN_TLS_OUT && c->secured && !must_wait(c))
			c->protocol->send_request(c);
	}
}

static void shake_out(struct conn *c)
{
	int err = stream_tls_handshake(c->stream);

	if (err == -EAGAIN) {
		watch_mod(&c->watch, (uint32_t)stream_tls_events(c->stream));
		return;
	}
	if (err) {
		tls_out_failed(c, err);
		return;
	}
	c->secured = true;
	watch_mod(&c->watch, 0);
	if (!must_wait(c))
		send_requests_from(c);
}

void conn_step_tls_out(struct conn *c, uint32_t revents)
{
	if (!c->secured)
		shake_out(c);
	else if (conn_is_cut(revents)) /* other events are from before the handshake was done */
		tls_out_failed(c, -ECONNRESET);
}

static void start_tls_out(struct conn *c)
{
	char why[TLS_WHY_LEN];
	int err = stream_start_tls(c->stream, c->id->tls.context, TLS_CLIENT, why);

	conn_set_state(c, CONN_TLS_OUT);
	if (err) {
		conn_log_tls(c, why);
		conn_lost(c, err, "no TLS");
		return;
	}
	shake_out(c);
}

/* Called when connect() succeeded or failed. */
static void connect_finished(struct conn *c)
{
	socklen_t len = sizeof(int);
	int err = 0;

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (conn_retry(c, -err))
		return;
	if (!err && must_wait(c)) {
		dial_later(c);
		return;
	}
	if (!err)
		err = -stream_open_tcp(&c->stream, c->fd, true);
	if (err) {
		conn_lost(c, -err, "cannot connect");
		return;
	}
	c->fd = -1;
	if (c->id->tls.mode == TLS_OFF || c->plain)
		c->protocol->send_request(c);
	else
		start_tls_out(c);
}

/* Handles earlier connections' results first: two threads may report them in any order. */
void conn_step_tcp(struct conn *c)
{
	list_for_each_safe (it, &dial_queue) {
		struct conn *other = list_entry(it, struct conn, link);
		struct pollfd p = {.fd = other->fd, .events = POLLOUT};

		if (other == c)
			break;
		if (other->fd >= 0 && is_bound_for(other, conn_destination(c), c->age) &&
		    poll(&p, 1, 0) == 1)
			connect_finished(other);
	}
	connect_finished(c);
}
