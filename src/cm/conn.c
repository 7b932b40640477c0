// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn.c - one TCP connection, from connect() or accept() through MPA's Request and Reply (RFC 5044
 * §7.1) to the queue pair.
 *
 * Driven by the engine; never blocks. A frame is read to its last byte and no further: bytes that a
 * peer sends early after a Reply stay in the socket, for the queue pair. Every behaviour of a peer
 * ends in a frame or in conn_lost(), at the latest at the deadline, which progress does not extend.
 */
#include "cm/cm.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"

static void conn_ready(struct watch *w, uint32_t revents);
static void conn_late(struct timer *t);
static void send_due_requests(struct work *w);
static struct work requests_due; /* a connection left the dial queue without a Request */

#define REDIAL_MS 10
#define FROM(s)	  (1u << (s))

/* For each state, those that it may be entered from. A new connection begins in TCP, HELLO or REQUEST. */
static const unsigned legal_from[] = {
	[CONN_TCP] = FROM(CONN_TCP) | FROM(CONN_TLS_OUT) | FROM(CONN_REPLY),
	[CONN_TLS_OUT] = FROM(CONN_TCP),
	[CONN_REPLY] = FROM(CONN_TCP) | FROM(CONN_TLS_OUT),
	[CONN_HELLO] = 0,
	[CONN_TLS_IN] = FROM(CONN_HELLO),
	[CONN_REQUEST] = FROM(CONN_HELLO) | FROM(CONN_TLS_IN),
	[CONN_ASKED] = FROM(CONN_REQUEST),
	[CONN_ANSWERING] = FROM(CONN_ASKED),
	[CONN_ENDED] = FROM(CONN_ASKED),
};

static void conn_set_state(struct conn *c, enum conn_state to)
{
	assert(engine_locked());
	assert(legal_from[to] & FROM(c->state));
	(void)legal_from; /* a release build does not check */
	c->state = to;
}

static struct conn *conn_new(enum conn_state state)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->state = state;
	c->age = engine_age();
	c->fd = -1;
	list_init(&c->link);
	list_init(&c->shake_link);
	return c;
}

/* How the socket is closed. PEACE: sent data still arrives. RESET: the peer gets a reset. */
enum parting { PEACE, RESET };

static void conn_drop_stream(struct conn *c, enum parting how)
{
	watch_del(&c->watch);
	memset(&c->watch, 0, sizeof(c->watch));
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (!c->stream)
		return;
	if (how == RESET)
		c->stream->ops->abort(c->stream);
	else
		c->stream->ops->shutdown(c->stream);
	stream_close(c->stream);
	c->stream = NULL;
}

static void conn_free(struct conn *c, enum parting how)
{
	handshake_leave(c);
	if (c->listener)
		listener_remove(c->listener, c);
	if (!list_empty(&c->link)) { /* others in the dial queue may have waited for c */
		list_del(&c->link);
		work_queue(&requests_due, send_due_requests);
	}
	if (c->id)
		c->id->conn = NULL;
	timer_cancel(&c->timer);
	timer_cancel(&c->redial);
	conn_drop_stream(c, how);
	free(c);
}

void conn_destroy(struct conn *c)
{
	if (c)
		conn_free(c, RESET);
}

static void log_peer(const struct conn *c, int err, const char *what)
{
	const struct cm_id *id = c->listener ? c->listener->id : c->id;
	const struct sockaddr *peer;
	char name[ADDRESS_STR_LEN];

	if (log_level < LOG_LEVEL_INFO || !id)
		return;
	peer = c->stream ? (const struct sockaddr *)&c->stream->peer : &id->cm.route.addr.dst_addr;
	log_info("cm %u: %s: %s: %s", id->num, address_str(peer, name, sizeof(name)), what,
		 strerror(-err));
}

/* Ends a set-up that did not become a connection. */
static void conn_lost(struct conn *c, int err, const char *what)
{
	struct cm_id *id = c->id;

	assert(engine_locked());
	log_peer(c, err, what);
	if (c->state == CONN_ASKED && id) { /* the program is notified when it answers */
		conn_set_state(c, CONN_ENDED);
		conn_drop_stream(c, RESET);
		return;
	}
	conn_free(c, RESET);
	if (id)
		id_failed(id, err, NULL);
}

/* ---- bytes ------------------------------------------------------------- */

/* Sends the bytes in tx. Returns 0 if all are sent, -EAGAIN, or -errno. */
static int conn_flush(struct conn *c)
{
	while (c->tx_off < c->tx_len) {
		struct iovec iov = {.iov_base = c->tx + c->tx_off,
				    .iov_len = c->tx_len - c->tx_off};
		ssize_t n = c->stream->ops->send(c->stream, &iov, 1);

		if (n < 0)
			return (int)n;
		c->tx_off += (size_t)n;
	}
	return 0;
}

static int conn_send(struct conn *c, const struct mpa_frame *f)
{
	int len = mpa_encode(f, c->tx, sizeof(c->tx));

	if (len < 0)
		return len;
	c->tx_len = (size_t)len;
	c->tx_off = 0;
	return conn_flush(c);
}

static size_t frame_rest(const struct conn *c)
{
	size_t whole = MPA_FRAME_LEN;

	/* mpa_decode() has checked that the length is valid */
	if (c->rx_len >= MPA_FRAME_LEN)
		whole += get_be16(c->rx + MPA_FRAME_LEN - sizeof(uint16_t));
	return whole - c->rx_len;
}

/*
 * Reads more bytes. Returns 0 if a frame is complete, -EAGAIN, -ENODATA at the end of the stream,
 * -EPROTO, or -errno.
 */
static int conn_read_frame(struct conn *c, bool want_reply)
{
	int ret;

	do {
		struct iovec iov = {.iov_base = c->rx + c->rx_len, .iov_len = frame_rest(c)};
		ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);

		if (n < 0)
			return (int)n;
		if (!n)
			return -ENODATA;
		c->rx_len += (size_t)n;
		ret = mpa_decode(c->rx, c->rx_len, want_reply, &c->peer);
	} while (ret == -EAGAIN);
	return ret < 0 ? ret : 0;
}

/* ---- the active side --------------------------------------------------- */

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
 * a listener does not overtake an earlier one that was refused (retry_dial() below). perftest
 * counts its connections on both sides, and assumes that the order is the same.
 */
static struct list dial_queue = {&dial_queue, &dial_queue};

static void line_enter(struct conn *c)
{
	struct list *at = dial_queue.prev;

	if (!list_empty(&c->link))
		return;
	while (at != &dial_queue && list_entry(at, struct conn, link)->turn > c->turn)
		at = at->prev;
	list_add_tail(at->next, &c->link);
}

static const struct sockaddr *destination_of(const struct conn *c)
{
	return &c->id->cm.route.addr.dst_addr;
}

/* Returns whether c dials `to` and was made by this process, not by the parent that forked it. */
static bool is_bound_for(const struct conn *c, const struct sockaddr *to, unsigned age)
{
	return c->age == age && address_same(destination_of(c), to);
}

/* Returns whether c waits for its next attempt. */
static bool waits_to_dial(const struct conn *c)
{
	return c->fd < 0 && !c->stream;
}

static int dial(struct conn *c)
{
	const struct sockaddr *dst = destination_of(c);
	int err;

	c->secured = false;
	c->fd = dial_socket(c->id);
	if (c->fd < 0)
		return c->fd;
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
static void show_source(struct cm_id *id, int fd)
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
	c->form = config()->mpa_rev >= 2 ? REQUEST_ENHANCED : REQUEST_PLAIN;
	err = dial(c);
	if (err) {
		free(c);
		return err;
	}
	show_source(id, c->fd);
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
	err = dial(c);
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
static bool retry_dial(struct conn *c, int err)
{
	if (clock_ns() >= c->refused_until || (err != -ECONNREFUSED && err != -ECONNRESET))
		return false;
	if (err == -ECONNRESET && (c->was_reset || c->rx_len))
		return false;
	c->was_reset |= err == -ECONNRESET;
	dial_later(c);
	return true;
}

/*
 * The peer closed the connection on our Request. RFC 6581 §4.3: it may support revision 1 only; or
 * it rejects the reserved bit of our offer. Retries once, with neither.
 */
static bool retry_plain_request(struct conn *c)
{
	if (c->form != REQUEST_ENHANCED || c->rx_len || c->stream->tls)
		return false;
	log_peer(c, -ECONNRESET, "closed the connection on our Request: retrying with a plain one");
	conn_drop_stream(c, RESET);
	c->form = REQUEST_PLAIN;
	c->dialled_again = true;
	c->was_reset = true; /* this is the last attempt */
	return dial(c) == 0;
}

static void conn_hung_up(struct conn *c, int err)
{
	if (!retry_dial(c, err) && !retry_plain_request(c))
		conn_lost(c, -ECONNRESET, "closed the connection");
}

/*
 * Called after an attempt to send the Request: waits for the Reply, and for room in the socket if
 * necessary.
 */
static bool request_sent(struct conn *c, int err)
{
	if (err && err != -EAGAIN) {
		conn_hung_up(c, -ECONNRESET);
		return false;
	}
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

		if (!is_bound_for(other, destination_of(c), c->age))
			continue;
		if (waits_to_dial(other) || (c->secured && other->state == CONN_TLS_OUT))
			return true;
	}
	return false;
}

static void send_request(struct conn *c)
{
	conn_set_state(c, CONN_REPLY);
	list_del(&c->link);
	c->wish.encrypted = c->stream->tls != NULL;
	negotiate_request(&c->wish, c->form, &c->ours);
	request_sent(c, conn_send(c, &c->ours));
}

static void log_tls(const struct conn *c, const char *why)
{
	const struct cm_id *id = c->listener ? c->listener->id : c->id;
	static uint64_t warned;
	uint64_t now = clock_ns();
	bool loud = !warned || now - warned > 10 * NS_PER_S; /* some programs retry for ever */
	char name[ADDRESS_STR_LEN];

	log_at(loud ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "cm %u: %s: no TLS: %s", id->num,
	       address_str((const struct sockaddr *)&c->stream->peer, name, sizeof(name)), why);
	if (loud)
		warned = now;
}

/*
 * The peer closed the connection on our hello. Where TLS is not required, it may not speak TLS: retries once without.
 */
static bool retry_without_tls(struct conn *c, int err)
{
	if (c->id->tls.mode != TLS_ALLOWED || (err != -ECONNRESET && err != -EPIPE))
		return false;
	log_peer(c, err, "does not speak TLS: retrying without");
	c->plain = true;
	c->was_reset = false;
	work_queue(&requests_due, send_due_requests);
	dial_again(c);
	return true;
}

static void tls_out_failed(struct conn *c, int err)
{
	if (retry_dial(c, err) || retry_without_tls(c, err))
		return;
	log_tls(c, stream_tls_why(c->stream));
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
			send_request(at);
	}
}

/* A connection failed that others waited for: finds the first of each destination. */
static void send_due_requests(struct work *w)
{
	list_for_each_safe (it, &dial_queue) {
		struct conn *c = list_entry(it, struct conn, link);

		if (c->age !=
		    engine_age()) /* a parent's, whose streams a forked child must not use */
			continue;
		if (!waits_to_dial(c) && c->state == CONN_TLS_OUT && c->secured && !must_wait(c))
			send_request(c);
	}
}

/* Returns whether the peer is gone, which is reported also where nothing is watched. */
static bool is_cut(uint32_t revents)
{
	return revents & (EPOLLHUP | EPOLLERR);
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

static void step_tls_out(struct conn *c, uint32_t revents)
{
	if (!c->secured)
		shake_out(c);
	else if (is_cut(revents)) /* other events are from before the handshake was done */
		tls_out_failed(c, -ECONNRESET);
}

static void start_tls_out(struct conn *c)
{
	char why[TLS_WHY_LEN];
	int err = stream_start_tls(c->stream, c->id->tls.context, TLS_CLIENT, why);

	conn_set_state(c, CONN_TLS_OUT);
	if (err) {
		log_tls(c, why);
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
	if (retry_dial(c, -err))
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
		send_request(c);
	else
		start_tls_out(c);
}

/* Handles earlier connections' results first: two threads may report them in any order. */
static void step_tcp(struct conn *c)
{
	list_for_each_safe (it, &dial_queue) {
		struct conn *other = list_entry(it, struct conn, link);
		struct pollfd p = {.fd = other->fd, .events = POLLOUT};

		if (other == c)
			break;
		if (other->fd >= 0 && is_bound_for(other, destination_of(c), c->age) &&
		    poll(&p, 1, 0) == 1)
			connect_finished(other);
	}
	connect_finished(c);
}

/* Sends a Terminate message as the only FPDU of a stream that is not established (RFC 6581 §8). */
static void send_terminate(struct conn *c, struct wire_fault fault)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1};
	uint8_t fpdu[MPA_LEN_FIELD + DDP_UNTAGGED_LEN + TERMINATE_MAX + 3 + MPA_CRC_LEN] = {0};
	uint8_t raw[sizeof(fpdu) + MARKER_LEN];
	struct iovec iov = {.iov_base = raw};
	struct terminate t;
	size_t len = MPA_LEN_FIELD, total;

	terminate_init(&t, fault, NULL, 0, 0);
	len += ddp_encode(&h, fpdu + len);
	len += terminate_encode(&t, fpdu + len);
	put_be16(fpdu, (uint16_t)(len - MPA_LEN_FIELD));
	total = fpdu_len(len - MPA_LEN_FIELD);
	if (c->peer.flags & MPA_MARKERS)
		iov.iov_len = markers_insert(0, fpdu, total, raw);
	else
		iov.iov_len = (memcpy(raw, fpdu, total), total);
	if ((c->ours.flags | c->peer.flags) & MPA_CRC)
		crc32c_put(raw + iov.iov_len - MPA_CRC_LEN,
			   crc32c_update(CRC32C_INIT, raw, iov.iov_len - MPA_CRC_LEN));
	c->stream->ops->send(c->stream, &iov, 1);
}

static void conn_rejected(struct conn *c)
{
	struct rdma_conn_param told;

	negotiate_param(&c->peer, &told);
	id_failed(c->id, -ECONNREFUSED, &told);
	conn_free(c, PEACE);
}

static void conn_refuse(struct conn *c, struct wire_fault fault)
{
	log_info("cm %u: the Reply is not acceptable: %s", c->id->num, wire_fault_str(fault));
	send_terminate(c, fault);
	id_failed(c->id, -EINVAL, NULL);
	conn_free(c, PEACE);
}

/* Passes the stream to the queue pair. */
static struct stream *conn_take_stream(struct conn *c)
{
	struct stream *s = c->stream;

	watch_del(&c->watch);
	memset(&c->watch, 0, sizeof(c->watch));
	c->stream = NULL;
	return s;
}

static void conn_replied(struct conn *c)
{
	struct rdma_conn_param told;
	struct cm_id *id = c->id;
	struct wire_fault fault;
	struct qp_link link;
	int err;

	if (c->peer.flags & MPA_REJECT) {
		conn_rejected(c);
		return;
	}
	fault = negotiate_link(&c->ours, &c->peer, &c->wish, &link);
	if (fault.set) {
		conn_refuse(c, fault);
		return;
	}
	if (c->dialled_again)
		show_source(id, c->stream->fd);
	err = id_attach(id, conn_take_stream(c), &link);
	negotiate_param(&c->peer, &told);
	if (err)
		id_failed(id, err, NULL);
	else
		id_connected(id, &told);
	conn_free(c, PEACE);
}

/* A server that refuses our certificate says so now, after our part of the handshake. */
static void tls_reply_failed(struct conn *c, int err)
{
	if (*stream_tls_why(c->stream))
		log_tls(c, stream_tls_why(c->stream));
	if (err == -ENODATA)
		err = -ECONNRESET;
	if (!retry_dial(c, err))
		conn_lost(c, err, "sent no valid Reply");
}

static void step_reply(struct conn *c)
{
	int err;

	if (c->tx_off < c->tx_len && !request_sent(c, conn_flush(c)))
		return;
	err = conn_read_frame(c, true);
	if (err == -EAGAIN)
		return;
	if (err == -EPROTO && !c->stream->tls)
		conn_lost(c, err, "sent no valid Reply");
	else if (err && c->stream->tls)
		tls_reply_failed(c, err);
	else if (err)
		conn_hung_up(c, err);
	else
		conn_replied(c);
}

/* ---- the passive side -------------------------------------------------- */

int conn_accepted(struct listener *l, int fd)
{
	struct conn *c = conn_new(l->id->tls.mode == TLS_OFF ? CONN_REQUEST : CONN_HELLO);
	int err = c ? stream_open_tcp(&c->stream, fd, false) : -ENOMEM;

	assert(engine_locked());
	if (err) {
		free(c);
		close(fd);
		return err;
	}
	err = watch_add(&c->watch, fd, EPOLLIN, conn_ready);
	if (err) {
		conn_free(c, RESET);
		return err;
	}
	/* like siw, allows a Request half the time of a Reply */
	timer_set(&c->timer, clock_ns() + config()->connect_timeout_ms * NS_PER_MS / 2, conn_late);
	err = listener_add(l, c);
	if (err)
		conn_free(c, RESET);
	return err;
}

int conn_present(struct conn *c, struct cm_id *listener, struct cm_id **child)
{
	int err = id_create_child(listener, c, child);
	struct rdma_conn_param told;

	assert(engine_locked());
	if (err) {
		conn_destroy(c);
		return err;
	}
	negotiate_param(&c->peer, &told);
	(*child)->peer_ird = told.initiator_depth;
	(*child)->peer_ord = told.responder_resources;
	c->id = *child;
	c->id->conn = c;
	err = event_post_request(listener, *child, &told);
	if (err)
		id_drop_request(*child);
	return err;
}

static void step_request(struct conn *c)
{
	int err = conn_read_frame(c, false);

	if (err == -EAGAIN)
		return;
	if (err) {
		conn_lost(c, err == -ENODATA ? -ECONNRESET : err,
			  c->rx_len && c->rx[0] == TLS_HELLO && !c->stream->tls
				  ? "speaks TLS, which is off here"
				  : "sent no valid Request");
		return;
	}
	if (c->stream->buffered) { /* of which no event would tell */
		conn_lost(c, -EPROTO, "sent data before the Reply");
		return;
	}
	timer_cancel(&c->timer);
	conn_set_state(c, CONN_ASKED);
	listener_asked(c->listener, c);
}

static void shake_in(struct conn *c)
{
	uint64_t begin = clock_ns();
	int err;

	if (!handshake_may_run(c, shake_in)) {
		watch_mod(&c->watch, 0);
		return;
	}
	err = stream_tls_handshake(c->stream);
	handshake_ran(clock_ns() - begin);
	if (err == -EAGAIN) {
		watch_mod(&c->watch, (uint32_t)stream_tls_events(c->stream));
		return;
	}
	if (err) {
		log_tls(c, stream_tls_why(c->stream));
		conn_lost(c, err, "the TLS handshake failed");
		return;
	}
	watch_mod(&c->watch, EPOLLIN);
	conn_set_state(c, CONN_REQUEST);
	step_request(c); /* which may have come with the handshake */
}

static void step_tls_in(struct conn *c, uint32_t revents)
{
	if (handshake_waits(c) && is_cut(revents))
		conn_lost(c, -ECONNRESET, "closed the connection in the TLS handshake");
	else
		shake_in(c);
}

static void start_tls_in(struct conn *c)
{
	char why[TLS_WHY_LEN];
	int err = stream_start_tls(c->stream, c->listener->id->tls.context, TLS_SERVER, why);

	if (err) {
		log_tls(c, why);
		conn_lost(c, err, "no TLS");
		return;
	}
	conn_set_state(c, CONN_TLS_IN);
	shake_in(c);
}

static void step_hello(struct conn *c)
{
	int first = tls_first_byte(c->stream->fd);

	if (first == -EAGAIN)
		return;
	if (first < 0) {
		conn_lost(c, first == -ENODATA ? -ECONNRESET : first, "sent no Request");
		return;
	}
	if (first == TLS_HELLO) {
		start_tls_in(c);
		return;
	}
	if (c->listener->id->tls.mode == TLS_REQUIRED) {
		conn_lost(c, -EPROTONOSUPPORT, "does not speak TLS, which is required here");
		return;
	}
	conn_set_state(c, CONN_REQUEST);
	step_request(c);
}

/*
 * A peer that waits for the Reply must not send: it has closed the connection, or violates the
 * protocol.
 */
static void step_asked(struct conn *c)
{
	uint8_t byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);

	if (n == -EAGAIN)
		return;
	conn_lost(c, n > 0 ? -EPROTO : -ECONNRESET, "sent data or closed before the Reply");
}

/* Called when the Reply is sent. */
static int conn_answered(struct conn *c)
{
	struct cm_id *id = c->id;
	struct qp_link link = c->agreed;
	struct stream *s;
	int err;

	if (c->rejecting) {
		conn_free(c, PEACE);
		return 0;
	}
	s = conn_take_stream(c);
	conn_free(c, PEACE);
	err = id_attach(id, s, &link);
	if (!err)
		id_accepted(id, &link);
	return err;
}

static int conn_answer(struct conn *c)
{
	int err = conn_send(c, &c->ours);

	if (!err)
		return conn_answered(c);
	if (err != -EAGAIN) {
		conn_drop_stream(c, RESET);
		conn_set_state(c, CONN_ENDED);
		return -ECONNRESET;
	}
	conn_set_state(c, CONN_ANSWERING);
	timer_set(&c->timer, clock_ns() + config()->connect_timeout_ms * NS_PER_MS, conn_late);
	watch_mod(&c->watch, EPOLLOUT);
	return 0;
}

int conn_accept(struct conn *c, const struct conn_wish *w)
{
	struct conn_wish wish = *w;

	assert(engine_locked());
	if (c->state != CONN_ASKED)
		return -ECONNRESET;
	wish.encrypted = c->stream->tls != NULL;
	negotiate_reply(&c->peer, &wish, &c->ours, &c->agreed);
	return conn_answer(c);
}

int conn_send_reject(struct conn *c, const struct conn_wish *w)
{
	int err;

	assert(engine_locked());
	if (c->state != CONN_ASKED)
		return -ECONNRESET;
	c->id->conn = NULL; /* the id no longer needs the connection */
	c->id = NULL;
	c->rejecting = true;
	negotiate_reject(&c->peer, w, &c->ours);
	err = conn_answer(c);
	if (err)
		conn_free(c, RESET);
	return err;
}

static void step_answering(struct conn *c)
{
	struct cm_id *id = c->id;
	int err = conn_flush(c);

	if (err == -EAGAIN)
		return;
	if (err) {
		conn_lost(c, err, "cannot send the Reply");
		return;
	}
	err = conn_answered(c);
	if (err)
		id_failed(id, err, NULL);
}

/* ---- the engine's calls ------------------------------------------------ */

static void conn_ready(struct watch *w, uint32_t revents)
{
	struct conn *c = container_of(w, struct conn, watch);

	switch (c->state) {
	case CONN_TCP:
		step_tcp(c);
		break;
	case CONN_TLS_OUT:
		step_tls_out(c, revents);
		break;
	case CONN_REPLY:
		step_reply(c);
		break;
	case CONN_HELLO:
		step_hello(c);
		break;
	case CONN_TLS_IN:
		step_tls_in(c, revents);
		break;
	case CONN_REQUEST:
		step_request(c);
		break;
	case CONN_ASKED:
		step_asked(c);
		break;
	case CONN_ANSWERING:
		step_answering(c);
		break;
	case CONN_ENDED:
		break;
	}
}

static void conn_late(struct timer *t)
{
	struct conn *c = container_of(t, struct conn, timer);

	conn_lost(c, -ETIMEDOUT, "timed out");
}
