// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn.c - one TCP connection, from connect() or accept() to the queue pair: its states, its bytes, its end.
 *
 * Driven by the engine; never blocks. Every behaviour of a peer ends in a message of the connection's protocol or in
 * conn_lost(), at the latest at the deadline, which progress does not extend.
 */
#include "cm/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"

#define FROM(s) (1u << (s))

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
	[CONN_REPLIED] = FROM(CONN_REPLY),
	[CONN_AWAIT_RTU] = FROM(CONN_ASKED) | FROM(CONN_ANSWERING),
	[CONN_LIVE] = FROM(CONN_REPLY) | FROM(CONN_REPLIED) | FROM(CONN_AWAIT_RTU),
	[CONN_LEAVING] = FROM(CONN_AWAIT_RTU) | FROM(CONN_LIVE),
	[CONN_ENDED] = FROM(CONN_ASKED),
};

void conn_set_state(struct conn *c, enum conn_state to)
{
	assert(engine_locked());
	assert(legal_from[to] & FROM(c->state));
	(void)legal_from; /* a release build does not check */
	c->state = to;
}

struct conn *conn_new(enum conn_state state)
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

void conn_drop_stream(struct conn *c, enum parting how)
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

void conn_free(struct conn *c, enum parting how)
{
	handshake_leave(c);
	if (c->listener)
		listener_remove(c->listener, c);
	conn_leave_line(c);
	if (c->id)
		c->id->conn = NULL;
	timer_cancel(&c->timer);
	timer_cancel(&c->redial);
	conn_drop_stream(c, how);
	free(c);
}

void conn_destroy(struct conn *c)
{
	if (c && c->protocol && c->protocol->hang_up)
		c->protocol->hang_up(c);
	else if (c)
		conn_free(c, RESET);
}

void conn_log_peer(const struct conn *c, int err, const char *what)
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

void conn_log_other_face(const struct conn *c, enum face theirs)
{
	static const char *const names[] = {
		[FACE_IWARP] = "stag0, with iWARP", [FACE_ROCE] = "roce0, with RoCE"};
	static const char *const words[] = {[FACE_IWARP] = "iwarp", [FACE_ROCE] = "roce"};
	const struct cm_id *id = c->listener ? c->listener->id : c->id;
	static uint64_t warned;
	char name[ADDRESS_STR_LEN];
	uint64_t now = clock_ns();
	bool loud = !warned || now - warned > NS_PER_S; /* strangers can do this at will */

	log_at(loud ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
	       "cm %u: %s is on %s, and this side is not: choose the same device on both sides "
	       "(stag run --device %s, STAG_DEVICE=%s)",
	       id->num, address_str((const struct sockaddr *)&c->stream->peer, name, sizeof(name)),
	       names[theirs], words[theirs], words[theirs]);
	if (loud)
		warned = now;
}

void conn_log_tls(const struct conn *c, const char *why)
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

/* Ends a set-up that did not become a connection. */
void conn_lost(struct conn *c, int err, const char *what)
{
	struct cm_id *id = c->id;

	assert(engine_locked());
	conn_log_peer(c, err, what);
	if (c->state == CONN_ASKED && id) { /* the program is notified when it answers */
		conn_set_state(c, CONN_ENDED);
		conn_drop_stream(c, RESET);
		return;
	}
	conn_free(c, RESET);
	if (id)
		id_failed(id, err, NULL);
}

/* Returns whether the peer is gone, which is reported also where nothing is watched. */
bool conn_is_cut(uint32_t revents)
{
	return revents & (EPOLLHUP | EPOLLERR);
}

/* Passes the stream to the queue pair. */
struct stream *conn_take_stream(struct conn *c)
{
	struct stream *s = c->stream;

	watch_del(&c->watch);
	memset(&c->watch, 0, sizeof(c->watch));
	c->stream = NULL;
	return s;
}

/* Sends the bytes in tx. Returns 0 if all are sent, -EAGAIN, or -errno. */
int conn_flush(struct conn *c)
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

/* ---- the engine's calls ------------------------------------------------ */

void conn_ready(struct watch *w, uint32_t revents)
{
	struct conn *c = container_of(w, struct conn, watch);

	switch (c->state) {
	case CONN_TCP:
		conn_step_tcp(c);
		break;
	case CONN_TLS_OUT:
		conn_step_tls_out(c, revents);
		break;
	case CONN_REPLY:
		c->protocol->step_reply(c);
		break;
	case CONN_HELLO:
		conn_step_hello(c);
		break;
	case CONN_TLS_IN:
		conn_step_tls_in(c, revents);
		break;
	case CONN_REQUEST:
		conn_step_request(c);
		break;
	case CONN_ASKED:
		conn_step_asked(c);
		break;
	case CONN_ANSWERING:
		conn_step_answering(c);
		break;
	case CONN_REPLIED:
	case CONN_AWAIT_RTU:
	case CONN_LIVE:
	case CONN_LEAVING:
		c->protocol->step(c);
		break;
	case CONN_ENDED:
		break;
	}
}

void conn_late(struct timer *t)
{
	struct conn *c = container_of(t, struct conn, timer);

	if (c->state > CONN_ANSWERING && c->state < CONN_ENDED) {
		c->protocol->late(c);
		return;
	}
	conn_lost(c, -ETIMEDOUT, "timed out");
}
