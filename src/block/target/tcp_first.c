// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp_first.c - the first bytes of a TCP connection, before its PDUs: they tell whether it is one of RDMA, which the
 * adapter takes over, or one of TLS, and what is inside; and the handshake of TLS.
 */
#include "block/target/tcp.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"

static void pass_to_adapter(struct target_tcp *t)
{
	struct target_conn *c = &t->conn;

	target_unwatch(c->target, &t->watch);
	target_rdma_adopt(c->target, t->watch.fd);
	t->watch.fd = -1;
	target_conn_end(c);
}

static void refuse(struct target_tcp *t, const char *why)
{
	target_refused(&t->conn, "%s", why);
	target_conn_end(&t->conn);
}

/* ---- the handshake ----------------------------------------------------------------------- */

static void note_tls(struct target_tcp *t)
{
	struct stagdv_tls_info *to = &t->conn.tls;
	struct tls_info info;

	tls_describe(t->tls, &info);
	to->encrypted = true;
	to->by_key = info.psk;
	to->kernel = tls_kernel_bits(&info);
	memcpy(to->version, info.version, sizeof(to->version));
	memcpy(to->cipher, info.cipher, sizeof(to->cipher));
	memcpy(to->peer, info.peer, sizeof(to->peer));
}

static uint32_t epoll_events(short events)
{
	return (events & POLLIN ? EPOLLIN : 0) | (events & POLLOUT ? EPOLLOUT : 0);
}

static void handshake_failed(struct target_tcp *t)
{
	target_refused(&t->conn, "no TLS: %s", tls_why(t->tls));
	target_conn_end(&t->conn);
}

void target_tcp_shake(struct target_tcp *t)
{
	uint64_t begun;
	int err;

	if (!target_tls_may_shake(t)) {
		t->shake.events = 0;
		target_tcp_watch(t);
		return;
	}
	begun = clock_ns();
	err = tls_handshake(t->tls);
	target_tls_shook(t->conn.target, clock_ns() - begun);
	if (err && err != -EAGAIN) {
		handshake_failed(t);
		return;
	}
	if (err)
		t->shake.events = epoll_events(tls_events(t->tls));
	else
		t->stage = TCP_PDUS;
	target_tcp_watch(t);
	if (err)
		return;
	note_tls(t);
	target_tcp_resume(&t->conn); /* what has arrived with the end of the handshake */
}

static void start_tls(struct target_tcp *t)
{
	char why[TLS_WHY_LEN];

	if (tls_open(&t->tls, t->conn.target->tls.context, t->watch.fd, TLS_SERVER, why) != 0) {
		refuse(t, why);
		return;
	}
	t->stage = TCP_SHAKES;
	target_tcp_shake(t);
}

/* ---- the first bytes ------------------------------------------------------------------------ */

/* Wakes the thread when so many bytes have arrived, or at the end of the stream. */
static void wait_for_bytes(struct target_tcp *t, size_t n)
{
	int low = (int)n;

	t->shake.wanted = n;
	setsockopt(t->watch.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
}

static void look_into_hello(struct target_tcp *t)
{
	uint8_t bytes[ISCSI_TLS_HELLO_MAX];
	ssize_t n = recv(t->watch.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
	size_t wanted;
	enum iscsi_tls_hello what = iscsi_tls_hello(bytes, n > 0 ? (size_t)n : 0, &wanted);

	if (what == TLS_HELLO_SHORT && wanted <= t->shake.wanted) {
		refuse(t, "the first message of TLS is cut off");
		return;
	}
	if (what == TLS_HELLO_SHORT) {
		wait_for_bytes(t, wanted);
		return;
	}
	if (t->shake.wanted)
		wait_for_bytes(t, 1);
	if (what == TLS_HELLO_OTHER && target_rdma_adopts(t->conn.target))
		pass_to_adapter(t);
	else
		start_tls(t);
}

static void look_at_first_byte(struct target_tcp *t)
{
	struct stag_block_target *target = t->conn.target;
	bool plain = target->tls.mode == TLS_OFF && !target_rdma_adopts(target);
	int first = plain ? 0 : tls_first_byte(t->watch.fd);

	if (first == -EAGAIN || first == -EINTR)
		return;
	t->heard = true;
	if (first == TLS_HELLO && target->tls.mode != TLS_OFF) {
		look_into_hello(t);
		return;
	}
	t->stage = TCP_PDUS;
	if (!is_rdma_first(first) || !target_rdma_adopts(target))
		return;
	if (target->tls.mode == TLS_REQUIRED)
		refuse(t, "TLS is required");
	else
		pass_to_adapter(t);
}

bool target_tcp_begin(struct target_tcp *t, uint32_t events)
{
	if (!(events & (EPOLLIN | EPOLLOUT))) {
		target_conn_end(&t->conn); /* the peer is gone */
		return false;
	}
	if (t->stage == TCP_SHAKES) {
		target_tcp_shake(t);
		return false;
	}
	look_at_first_byte(t);
	return t->stage == TCP_PDUS && t->conn.state != CONN_DEAD;
}
