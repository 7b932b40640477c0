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
	if (was_full && !target_tcp_tx_is_full(t))
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

/* Passes the socket to the adapter if its first byte is that of an RDMA connection request. */
static bool is_for_rdma(struct target_tcp *t)
{
	struct target_conn *c = &t->conn;
	bool first = !t->heard;

	t->heard = true;
	if (!first || !target_rdma_recognizes(c->target, t->watch.fd))
		return false;
	target_unwatch(c->target, &t->watch);
	target_rdma_adopt(c->target, t->watch.fd);
	t->watch.fd = -1;
	target_conn_end(c);
	return true;
}

static void on_events(struct target_watch *w, uint32_t events)
{
	struct target_tcp *t = container_of(w, struct target_tcp, watch);

	if (t->conn.state == CONN_DEAD || ((events & EPOLLIN) && is_for_rdma(t)))
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
	return to_tcp((struct target_conn *)c)->tx.blocked || (c->session && c->session->awaiting);
}

static void tcp_close(struct target_conn *c)
{
	struct target_tcp *t = to_tcp(c);

	if (t->watch.fd >= 0) {
		target_unwatch(c->target, &t->watch);
		close(t->watch.fd);
	}
	target_tcp_rx_drop(t);
	target_tcp_tx_drop(t);
}

static void tcp_free(struct target_conn *c)
{
	free(to_tcp(c));
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

	if (!t) {
		close(fd);
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
	rc = target_watch(target, &t->watch, t->events);
	if (rc != 0) {
		close(fd);
		free(t);
		return rc;
	}
	name_end(fd, getpeername, t->conn.peer);
	name_end(fd, getsockname, t->conn.local);
	target_conn_open(target, &t->conn, &transport);
	return 0;
}
