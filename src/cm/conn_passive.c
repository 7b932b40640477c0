// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn_passive.c - the side that listens: from accept() to the answer to a Request, TLS included.
 */
#include "cm/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"

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
	int err = id_create_child(listener, c->protocol->face, &c->stream->local, &c->stream->peer,
				  child);
	struct rdma_conn_param told;

	assert(engine_locked());
	if (err) {
		conn_destroy(c);
		return err;
	}
	socket_limit_silence(*child, c->stream->fd);
	c->protocol->present(c, *child, &told);
	(*child)->peer_ird = told.initiator_depth;
	(*child)->peer_ord = told.responder_resources;
	c->id = *child;
	c->id->conn = c;
	err = event_post_request(listener, *child, &told);
	if (err)
		id_drop_request(*child);
	return err;
}

static bool serves(const struct conn *c, enum face face)
{
	const struct cm_id *id = c->listener->id;
	const struct ibv_pd *pd = id->ep_pd; /* of the queue pairs of all connections */

	if (face == FACE_ROCE && c->stream->tls)
		return false;
	return pd ? pd->context->device == &stag_device(face)->ibv : cm_may_use(id, face);
}

/* Chooses the protocol by the first byte. A peer of a face that is not served is told, and gone. */
static int choose_protocol(struct conn *c)
{
	struct iovec iov = {.iov_base = c->rx, .iov_len = 1};
	ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);
	enum face face;

	if (n <= 0)
		return n ? (int)n : -ENODATA;
	c->rx_len = 1;
	face = c->rx[0] == CM_MESSAGE_FIRST ? FACE_ROCE : FACE_IWARP;
	if (serves(c, face)) {
		c->protocol = face == FACE_ROCE ? &conn_roce : &conn_mpa;
		return 0;
	}
	if (face == FACE_IWARP && c->rx[0] != MPA_FIRST)
		return -EPROTO;
	conn_log_other_face(c, face);
	conn_refuse_transport(c);
	return -EPROTONOSUPPORT;
}

void conn_step_request(struct conn *c)
{
	int err = c->protocol ? 0 : choose_protocol(c);

	if (!err)
		err = c->protocol->read_request(c);

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
		conn_log_tls(c, stream_tls_why(c->stream));
		conn_lost(c, err, "the TLS handshake failed");
		return;
	}
	watch_mod(&c->watch, EPOLLIN);
	conn_set_state(c, CONN_REQUEST);
	conn_step_request(c); /* which may have come with the handshake */
}

void conn_step_tls_in(struct conn *c, uint32_t revents)
{
	if (handshake_waits(c) && conn_is_cut(revents))
		conn_lost(c, -ECONNRESET, "closed the connection in the TLS handshake");
	else
		shake_in(c);
}

static void start_tls_in(struct conn *c)
{
	char why[TLS_WHY_LEN];
	int err = stream_start_tls(c->stream, c->listener->id->tls.context, TLS_SERVER, why);

	if (err) {
		conn_log_tls(c, why);
		conn_lost(c, err, "no TLS");
		return;
	}
	conn_set_state(c, CONN_TLS_IN);
	shake_in(c);
}

void conn_step_hello(struct conn *c)
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
	conn_step_request(c);
}

/*
 * A peer that waits for the Reply must not send: it has closed the connection, or violates the
 * protocol.
 */
void conn_step_asked(struct conn *c)
{
	uint8_t byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);

	if (n == -EAGAIN)
		return;
	conn_lost(c, n > 0 ? -EPROTO : -ECONNRESET, "sent data or closed before the Reply");
}

/* Called when the answer is sent. */
static int conn_answered(struct conn *c)
{
	if (!c->rejecting)
		return c->protocol->accepted(c);
	conn_free(c, PEACE);
	return 0;
}

static int conn_answer(struct conn *c, int err)
{
	if (!err)
		err = conn_flush(c);
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
	assert(engine_locked());
	if (c->state != CONN_ASKED)
		return -ECONNRESET;
	return conn_answer(c, c->protocol->accept(c, w));
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
	err = conn_answer(c, c->protocol->reject(c, w));
	if (err)
		conn_free(c, RESET);
	return err;
}

void conn_step_answering(struct conn *c)
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
