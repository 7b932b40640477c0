// SPDX-License-Identifier: BSD-2-Clause
/*
 * recv.c - from our ring to the program's memory.
 *
 * Announced data can be read, even after the connection has ended. Room that has been read is
 * granted to the peer again as soon as it makes half a ring.
 */
#include "rsocket/rsocket.h"

#include "base/lock.h"

bool rs_can_receive(const struct rsocket *rs)
{
	return rs->rx.unread || !rs->readable;
}

/* Copies without consuming: unread data may wrap around the end of the ring. */
static size_t peek(struct rsocket *rs, struct rs_cursor *to, size_t len)
{
	uint32_t first = flow_rx_contiguous(&rs->rx);
	size_t n = len < rs->rx.unread ? len : rs->rx.unread;

	if (first > n)
		first = (uint32_t)n;
	rs_cursor_copy(to, rs->ep.rbuf.at + rs->rx.read_at, first, true);
	rs_cursor_copy(to, rs->ep.rbuf.at, n - first, true);
	return n;
}

/* Consumes up to len bytes. Releases the lock while it copies them. */
static size_t copy_received(struct rsocket *rs, struct rs_cursor *to, size_t len)
{
	size_t left = len;

	while (left && rs->rx.unread) {
		uint32_t n = flow_rx_contiguous(&rs->rx);

		if (n > left)
			n = (uint32_t)left;
		lock_release(&rs->lock);
		rs_cursor_copy(to, rs->ep.rbuf.at + rs->rx.read_at, n, true);
		lock_acquire(&rs->lock);
		flow_rx_consume(&rs->rx, n);
		rs_grant(rs);
		left -= n;
	}
	return len - left;
}

/* Returns 0 at the end of the stream, or the error that broke the connection. */
static int end_of_stream(struct rsocket *rs)
{
	int err = rs->state == RS_ERROR ? rs->err : 0;

	rs->err = err ? 0 : rs->err;
	return -err;
}

static ssize_t receive_vectors(struct rsocket *rs, const struct iovec *iov, int n_iov, int flags)
{
	struct rs_cursor to = {.iov = iov, .left = n_iov};
	size_t len = rs_iov_length(iov, n_iov), left = len;
	bool nonblock = rs_nonblocking(rs, flags);
	int ret = rs_wait_connected(rs, nonblock);

	if (ret || !len)
		return ret;
	do {
		if (!rs->rx.unread)
			ret = rs_wait(rs, rs_can_receive, nonblock, 0);
		if (ret)
			break;
		if (!rs->rx.unread) {
			ret = end_of_stream(rs);
			break;
		}
		if (flags & MSG_PEEK) {
			left -= peek(rs, &to, left);
			break;
		}
		left -= copy_received(rs, &to, left);
	} while (left && flags & MSG_WAITALL);
	return ret && left == len ? ret : (ssize_t)(len - left);
}

static ssize_t receive_call(int socket, const struct iovec *iov, int n_iov, int flags)
{
	int before = errno;

	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->recv_lock);
	HOLD_FOR_SCOPE(&rs->lock);
	return rs_result_or(receive_vectors(rs, iov, n_iov, flags), before);
}

STAG_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};

	return receive_call(socket, &iov, 1, flags);
}

STAG_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags,
			      struct sockaddr *src_addr, socklen_t *addrlen)
{
	ssize_t ret = rrecv(socket, buf, len, flags);

	if (ret > 0 && src_addr && addrlen)
		rgetpeername(socket, src_addr, addrlen);
	return ret;
}

STAG_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	ssize_t ret;

	if (msg->msg_control && msg->msg_controllen)
		return rs_result(-ENOTSUP);
	ret = receive_call(socket, msg->msg_iov, (int)msg->msg_iovlen, flags);
	if (ret >= 0) {
		msg->msg_namelen = 0;
		msg->msg_flags = 0;
	}
	return ret;
}

STAG_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

STAG_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return receive_call(socket, iov, iovcnt, 0);
}
