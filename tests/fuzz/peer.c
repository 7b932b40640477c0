// SPDX-License-Identifier: BSD-2-Clause
/*
 * peer.c - the peer of a stream, in memory. Checks that a stream is not used
 * after its end.
 */
#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

struct peer peer = {.closed = true};

static struct peer *to_peer(struct stream *s)
{
	return (struct peer *)s;
}

static ssize_t peer_send(struct stream *s, const struct iovec *iov, int n)
{
	struct peer *p = to_peer(s);
	size_t moved = 0, room;

	CHECK(!p->closed && !p->shut);
	if (p->aborted)
		return -EPIPE;
	room = sizeof(p->out) - p->out_len;
	if (room > p->piece)
		room = p->piece;
	if (p->full || room == 0)
		return -EAGAIN;
	for (int i = 0; i < n && moved < room; i++) {
		size_t len = iov[i].iov_len < room - moved ? iov[i].iov_len : room - moved;

		memcpy(p->out + p->out_len, iov[i].iov_base, len);
		p->out_len += len;
		moved += len;
	}
	return (ssize_t)moved;
}

static ssize_t peer_recv(struct stream *s, const struct iovec *iov, int n)
{
	struct peer *p = to_peer(s);
	size_t left = p->in_len - p->in_off, moved = 0;

	CHECK(!p->closed);
	if (p->aborted)
		return -ECONNRESET;
	if (left == 0)
		return p->end;
	if (left > p->piece)
		left = p->piece;
	for (int i = 0; i < n && moved < left; i++) {
		size_t len = iov[i].iov_len < left - moved ? iov[i].iov_len : left - moved;

		memcpy(iov[i].iov_base, p->in + p->in_off, len);
		p->in_off += len;
		moved += len;
	}
	return (ssize_t)moved;
}

static void peer_shutdown(struct stream *s)
{
	to_peer(s)->shut = true;
}

static void peer_abort(struct stream *s)
{
	to_peer(s)->aborted = true;
}

static void peer_close(struct stream *s)
{
	CHECK(!to_peer(s)->closed);
	to_peer(s)->closed = true;
	if (s->fd >= 0)
		close(s->fd);
}

static int peer_ready(struct stream *s)
{
	const struct peer *p = to_peer(s);

	CHECK(!p->closed);
	return (p->in_off < p->in_len || p->end != -EAGAIN ? POLLIN : 0) | (p->full ? 0 : POLLOUT);
}

static unsigned peer_emss(struct stream *s)
{
	return to_peer(s)->emss;
}

static unsigned peer_unsent(struct stream *s)
{
	return 0;
}

static const struct stream_ops peer_ops = {
	.send = peer_send,
	.recv = peer_recv,
	.shutdown = peer_shutdown,
	.abort = peer_abort,
	.close = peer_close,
	.ready = peer_ready,
	.emss = peer_emss,
	.unsent = peer_unsent,
};

void peer_open(int fd)
{
	struct sockaddr_in *local = (struct sockaddr_in *)&peer.stream.local;
	struct sockaddr_in *remote = (struct sockaddr_in *)&peer.stream.peer;

	CHECK(peer.closed);
	peer.stream = (struct stream){.ops = &peer_ops, .fd = fd};
	local->sin_family = remote->sin_family = AF_INET;
	local->sin_addr.s_addr = remote->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	peer.in_len = peer.in_off = peer.out_len = 0;
	peer.piece = PEER_ROOM;
	peer.emss = 1460;
	peer.end = -EAGAIN;
	peer.full = peer.shut = peer.aborted = peer.closed = false;
}

void peer_sends(const void *p, size_t len)
{
	if (len > sizeof(peer.in) - peer.in_len)
		return;
	memcpy(peer.in + peer.in_len, p, len);
	peer.in_len += len;
}
