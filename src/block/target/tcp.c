// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp.c - a connection over TCP: its life, and what it waits for.
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

#include "base/cleanup.h"

void tcp_watch(struct tcp *t)
{
	uint32_t events = (tcp_rx_waits(t) ? 0 : EPOLLIN) | (t->tx.blocked ? EPOLLOUT : 0);

	if (events == t->events || t->conn.state == CONN_DEAD)
		return;
	t->events = events;
	if (target_rewatch(t->conn.target, &t->watch, events) != 0)
		t->broken = true;
}

/* What was logged out, or refused, has all been said: our half is closed, the peer closes the other. */
static void shut(struct tcp *t)
{
	if (t->shut || t->conn.state != CONN_CLOSING || !list_empty(&t->tx.queue))
		return;
	t->shut = true;
	shutdown(t->watch.fd, SHUT_WR);
}

static void tcp_flush(struct conn *c)
{
	struct tcp *t = to_tcp(c);
	bool was_full = tcp_tx_is_full(t);

	if (c->state == CONN_CLOSING)
		tcp_rx_drop(t);
	if (t->broken || tcp_write(t) != 0) {
		conn_end(c);
		return;
	}
	shut(t);
	tcp_watch(t);
	if (was_full && !tcp_tx_is_full(t))
		tcp_resume(c);
}

/* What is in the buffer may be all there is: so it is looked at, whatever the socket has. */
void tcp_resume(struct conn *c)
{
	struct tcp *t = to_tcp(c);

	if (t->reading)
		return;
	t->reading = true;
	tcp_read(t);
	t->reading = false;
	tcp_watch(t);
}

/* Its first byte tells: it wants RDMA, and is somebody else's. */
static bool is_for_rdma(struct tcp *t)
{
	struct conn *c = &t->conn;
	bool first = !t->heard;

	t->heard = true;
	if (!first || !rdma_is_meant(c->target, t->watch.fd))
		return false;
	target_unwatch(c->target, &t->watch);
	rdma_take(c->target, t->watch.fd);
	t->watch.fd = -1;
	conn_end(c);
	return true;
}

static void on_events(struct watch *w, uint32_t events)
{
	struct tcp *t = container_of(w, struct tcp, watch);

	if (t->conn.state == CONN_DEAD || ((events & EPOLLIN) && is_for_rdma(t)))
		return;
	if (events & EPOLLOUT) {
		t->tx.blocked = false;
		t->conn.moved = t->conn.target->now;
		conn_dirty(&t->conn);
	}
	if ((events & (EPOLLHUP | EPOLLERR)) && !(t->events & EPOLLIN)) {
		conn_end(&t->conn); /* nobody is there to wait for */
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		tcp_resume(&t->conn);
}

static void tcp_forget(struct task *k)
{
	tcp_rx_forget(to_tcp(k->session->conn), k);
}

static bool tcp_owes(const struct conn *c)
{
	return to_tcp((struct conn *)c)->tx.blocked || (c->session && c->session->awaiting);
}

static void tcp_close(struct conn *c)
{
	struct tcp *t = to_tcp(c);

	if (t->watch.fd >= 0) {
		target_unwatch(c->target, &t->watch);
		close(t->watch.fd);
	}
	tcp_rx_drop(t);
	tcp_tx_drop(t);
}

static void tcp_free(struct conn *c)
{
	free(to_tcp(c));
}

/* A digest is of what was there when it was made. */
static bool tcp_borrows(const struct conn *c)
{
	return c->session->keys.data_digest == DIGEST_NONE;
}

static const struct transport transport = {
	.kind = STAG_BLOCK_TCP,
	.collapses = true,
	.borrows = tcp_borrows,
	.send = tcp_send,
	.respond = tcp_respond,
	.data_in = tcp_data_in,
	.data_out = tcp_data_out,
	.forget = tcp_forget,
	.flush = tcp_flush,
	.resume = tcp_resume,
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
		len = 0; /* no name */
	portal_name((struct sockaddr *)&a, len, out);
}

int tcp_adopt(struct stag_block_target *target, int fd)
{
	struct tcp *t = calloc(1, sizeof(*t));
	int on = 1, rc;

	if (!t) {
		close(fd);
		return -ENOMEM;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* no TCP: no delay either */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	t->watch = (struct watch){.ready = on_events, .fd = fd, .target = target};
	t->events = EPOLLIN;
	t->rx.wait.go = tcp_rx_wake;
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
	conn_open(target, &t->conn, &transport);
	return 0;
}
