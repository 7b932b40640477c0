// SPDX-License-Identifier: BSD-2-Clause
/*
 * send.c - from the program's memory to the peer's ring.
 *
 * A call copies into the send ring, so that the program can reuse its buffer at once, and posts a
 * write and its message for each piece. A piece ends where the peer's buffer does.
 */
#include "rsocket/rsocket.h"

#include <string.h>

#include "base/lock.h"

size_t rs_iov_length(const struct iovec *iov, int n)
{
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* Returns the length and address of the vector at the cursor, after skipping empty ones. */
static size_t cursor_piece(struct rs_cursor *c, uint8_t **at)
{
	while (c->left && c->offset == c->iov->iov_len) {
		c->iov++;
		c->left--;
		c->offset = 0;
	}
	if (!c->left)
		return 0;
	*at = (uint8_t *)c->iov->iov_base + c->offset;
	return c->iov->iov_len - c->offset;
}

void rs_cursor_copy(struct rs_cursor *c, void *buf, size_t n, bool to_iov)
{
	while (n) {
		uint8_t *at = NULL;
		size_t now = cursor_piece(c, &at);

		if (now > n)
			now = n;
		assert(now);
		if (to_iov)
			memcpy(at, buf, now);
		else
			memcpy(buf, at, now);
		buf = (uint8_t *)buf + now;
		c->offset += now;
		n -= now;
	}
}

bool rs_can_send(const struct rsocket *rs)
{
	uint32_t low =
		rs->opt.config.sbuf_size < RS_SEND_LOW ? rs->opt.config.sbuf_size : RS_SEND_LOW;

	return rs->writable && rs->sq.left >= rs_message_wrs(rs) && flow_tx_space(&rs->tx) >= low &&
	       flow_tx_window(&rs->tx);
}

static bool send_ready(const struct rsocket *rs)
{
	return rs_can_send(rs) || !rs->writable;
}

uint32_t rs_transfer_size(const struct rsocket *rs, size_t left, uint32_t limit)
{
	uint32_t n = left < RS_TRANSFER_MAX ? (uint32_t)left : RS_TRANSFER_MAX;

	if (n > limit)
		n = limit;
	if (n > flow_tx_space(&rs->tx))
		n = flow_tx_space(&rs->tx);
	return n;
}

int rs_stage(struct rsocket *rs, struct rs_cursor *from, const struct flow_span *span,
	     struct ibv_sge sge[2])
{
	rs_cursor_copy(from, rs->ep.sbuf.at + span->at, span->first, false);
	rs_cursor_copy(from, rs->ep.sbuf.at, span->rest, false);
	sge[0] = (struct ibv_sge){.addr = (uintptr_t)rs->ep.sbuf.at + span->at,
				  .length = span->first,
				  .lkey = rs->ep.sbuf.mr->lkey};
	sge[1] = (struct ibv_sge){.addr = (uintptr_t)rs->ep.sbuf.at,
				  .length = span->rest,
				  .lkey = rs->ep.sbuf.mr->lkey};
	return span->rest ? 2 : 1;
}

/*
 * Returns whether the data is small and contiguous: it is sent inline, without a copy to the send
 * ring.
 */
static bool goes_inline(const struct rsocket *rs, struct rs_cursor *from, uint32_t n,
			struct ibv_sge *sge)
{
	uint8_t *at = NULL;

	if (n > rs->opt.config.inline_size || cursor_piece(from, &at) < n)
		return false;
	from->offset += n;
	*sge = (struct ibv_sge){.addr = (uintptr_t)at, .length = n};
	return true;
}

/* Sends one piece of n bytes. Releases the lock while it copies and posts. */
static int send_piece(struct rsocket *rs, struct rs_cursor *from, uint32_t n)
{
	struct rs_region to = flow_tx_aim(&rs->tx, n);
	uint32_t msg = rs_msg(RS_OP_DATA, n);
	struct flow_span span = {0};
	struct ibv_sge sge[2];
	bool in_line = goes_inline(rs, from, n, sge);
	int n_sge = 1, ret;

	rs_unhush(rs);
	rs->sq.left -= rs_message_wrs(rs);
	if (!in_line)
		span = flow_tx_reserve(&rs->tx, n);
	lock_release(&rs->lock);
	if (!in_line)
		n_sge = rs_stage(rs, from, &span, sge);
	ret = rs_post_write_message(rs, sge, n_sge, in_line, RS_WR_DATA, in_line ? 0 : n, &to, msg);
	lock_acquire(&rs->lock);
	if (ret)
		rs_fail(rs, -ret);
	return ret;
}

/* Returns the bytes sent, or -errno if there were none. */
static ssize_t send_vectors(struct rsocket *rs, const struct iovec *iov, int n_iov, int flags)
{
	struct rs_cursor from = {.iov = iov, .left = n_iov};
	size_t len = rs_iov_length(iov, n_iov), left = len;
	bool nonblock = rs_nonblocking(rs, flags);
	int ret = rs_wait_connected(rs, nonblock);

	if (!ret && rs->iomap.unsent)
		ret = rs_iomaps_send(rs, flags);
	while (!ret && left) {
		uint32_t n;

		if (!rs_can_send(rs))
			ret = rs_wait(rs, send_ready, nonblock, 0);
		if (!ret && !rs->writable)
			ret = -ECONNRESET;
		if (ret)
			break;
		n = rs_transfer_size(rs, left, flow_tx_window(&rs->tx));
		ret = send_piece(rs, &from, n);
		if (!ret)
			left -= n;
	}
	return ret && left == len ? ret : (ssize_t)(len - left);
}

static ssize_t send_call(int socket, const struct iovec *iov, int n_iov, int flags)
{
	int before = errno;

	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->send_lock);
	HOLD_FOR_SCOPE(&rs->lock);
	return rs_result_or(send_vectors(rs, iov, n_iov, flags), before);
}

STAG_EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return send_call(socket, &iov, 1, flags);
}

STAG_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
			    const struct sockaddr *dest_addr, socklen_t addrlen)
{
	RS_GET_OR_RETURN(rs, socket);
	if (dest_addr || addrlen)
		return rs_result(-EISCONN);
	return rsend(socket, buf, len, flags);
}

STAG_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return rs_result(-ENOTSUP);
	return send_call(socket, msg->msg_iov, (int)msg->msg_iovlen, flags);
}

STAG_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

STAG_EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return send_call(socket, iov, iovcnt, 0);
}
