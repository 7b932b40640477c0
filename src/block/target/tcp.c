// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp.c - a connection over TCP: setup and end, and its events.
 */
#include "block/target/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void target_tcp_watch(struct target_tcp *t)
{
	uint32_t events = (target_tcp_rx_waits(t) ? 0 : EPOLLIN) | (t->tx.blocked ? EPOLLOUT : 0);

	if (t->stage == TCP_SHAKES)
		events = t->shake.events;
	if (events == t->events || t->conn.state == CONN_DEAD)
		return;
	t->events = events;
	if (target_rewatch(t->conn.target, &t->watch, events) != 0)
		t->broken = true;
}

/* Shuts this side down after the last PDU of a closing connection; the peer closes the other side. */
static void shut_down(struct target_tcp *t)
{
	if (t->shut || t->conn.state != CONN_CLOSING || !list_empty(&t->tx.queue))
		return;
	if (t->tls && tls_shutdown(t->tls) == -EAGAIN) {
		t->tx.blocked = true;
		return;
	}
	t->shut = true;
	shutdown(t->watch.fd, SHUT_WR);
}

static void tcp_flush(struct target_conn *c)
{
	struct target_tcp *t = to_tcp(c);
	bool was_full = target_tcp_tx_is_full(t);

	if (c->state == CONN_CLOSING)
		target_tcp_rx_drop(t);
	if (t->broken || target_tcp_write(t) != 0) {
		target_conn_end(c);
		return;
	}
	shut_down(t);
	target_tcp_watch(t);
	if ((was_full && !target_tcp_tx_is_full(t)) || target_tcp_rx_has_more(t))
		target_tcp_resume(c);
}

/* Parses even if the socket has no data: a complete PDU may be in the buffer. */
void target_tcp_resume(struct target_conn *c)
{
	struct target_tcp *t = to_tcp(c);

	if (t->reading)
		return;
	t->reading = true;
	target_tcp_read(t);
	t->reading = false;
	target_tcp_watch(t);
}

static void on_events(struct target_watch *w, uint32_t events)
{
	struct target_tcp *t = container_of(w, struct target_tcp, watch);

	if (t->conn.state == CONN_DEAD || (t->stage != TCP_PDUS && !target_tcp_begin(t, events)))
		return;
	if (events & EPOLLOUT) {
		t->tx.blocked = false;
		t->conn.moved = t->conn.target->loop.now;
		target_conn_dirty(&t->conn);
	}
	if ((events & (EPOLLHUP | EPOLLERR)) && !(t->events & EPOLLIN)) {
		target_conn_end(&t->conn); /* the peer is gone */
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		target_tcp_resume(&t->conn);
}

static void tcp_forget(struct target_task *k)
{
	target_tcp_rx_forget(to_tcp(k->session->conn), k);
}

static bool tcp_owes(const struct target_conn *c)
{
	const struct target_tcp *t = to_tcp((struct target_conn *)c);

	return t->tx.blocked || (c->session && c->session->awaiting) ||
	       (t->rx.task && t->rx.state != RX_WAIT);
}

static bool tcp_is_silent(const struct target_conn *c)
{
	const struct target_tcp *t = to_tcp((struct target_conn *)c);
	char first;

	return !t->heard && recv(t->watch.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1;
}

static void tcp_close(struct target_conn *c)
{
	struct target_tcp *t = to_tcp(c);

	list_del(&t->shake.link);
	tls_close(t->tls);
	t->tls = NULL;
	if (t->watch.fd >= 0) {
		target_unwatch(c->target, &t->watch);
		close(t->watch.fd);
	}
	target_tcp_rx_drop(t);
	target_tcp_tx_drop(t);
}

static void free_tcp(struct target_tcp *t)
{
	if (t)
		free(t->rx.buffer);
	free(t);
}

static void tcp_free(struct target_conn *c)
{
	free_tcp(to_tcp(c));
}

/* With data digests memory of the unit cannot be sent in place: it may change after the digest was computed. */
static bool tcp_borrows(const struct target_conn *c)
{
	return c->session->keys.data_digest == DIGEST_NONE;
}

static const struct target_transport transport = {
	.kind = STAG_BLOCK_TCP,
	.collapses = true,
	.borrows = tcp_borrows,
	.send = target_tcp_send,
	.respond = target_tcp_respond,
	.data_in = target_tcp_data_in,
	.data_out = target_tcp_data_out,
	.forget = tcp_forget,
	.flush = tcp_flush,
	.resume = target_tcp_resume,
	.owes = tcp_owes,
	.is_silent = tcp_is_silent,
	.close = tcp_close,
	.free = tcp_free,
};

/* ---- beginning ------------------------------------------------------------------------------ */

static void name_end(int fd, int (*which)(int, struct sockaddr *, socklen_t *), char out[64])
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);

	if (which(fd, (struct sockaddr *)&a, &len) != 0)
		len = 0; /* no address */
	target_portal_name((struct sockaddr *)&a, len, out);
}

int target_tcp_adopt(struct stag_block_target *target, int fd)
{
	struct target_tcp *t = calloc(1, sizeof(*t));
	int on = 1, rc;

	if (t)
		t->rx.buffer = malloc(RX_BYTES);
	if (!t || !t->rx.buffer) {
		close(fd);
		free_tcp(t);
		return -ENOMEM;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
		   sizeof(on)); /* fails on other sockets, which have no delay */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	t->watch = (struct target_watch){.ready = on_events, .fd = fd, .target = target};
	t->events = EPOLLIN;
	t->rx.wait.go = target_tcp_rx_wake;
	list_init(&t->rx.wait.link);
	list_init(&t->tx.queue);
	list_init(&t->shake.link);
	rc = target_watch(target, &t->watch, t->events);
	if (rc != 0) {
		close(fd);
		free_tcp(t);
		return rc;
	}
	name_end(fd, getpeername, t->conn.peer);
	name_end(fd, getsockname, t->conn.local);
	target_conn_open(target, &t->conn, &transport);
	return 0;
}
