// SPDX-License-Identifier: BSD-2-Clause
/*
 * close.c - ending a connection, one half or both, without losing sent data.
 *
 * On a software adapter both ends may report a send as complete while its bytes are still in a
 * socket's buffer, so a close is not done when the sends are: it waits, for a bounded time, until
 * the peer's adapter has seen the end as well.
 */
#include "rsocket/rsocket.h"

#include "base/clock.h"
#include "base/lock.h"

#define LINGER_S 10 /* default of a socket without SO_LINGER */

static bool ctrl_ready(const struct rsocket *rs)
{
	return rs_ctrl_room(rs) || rs->state != RS_CONNECTED;
}

static bool all_sent(const struct rsocket *rs)
{
	return (rs->sq.left == rs->opt.config.sq_size - RS_CTRL_WRS &&
		rs->sq.ctrl_put == rs->sq.ctrl_get) ||
	       rs->state != RS_CONNECTED;
}

/* Waits for ready(), ignoring signals: they do not cut a shutdown short. */
static int wait_uninterrupted(struct rsocket *rs, bool (*ready)(const struct rsocket *),
			      uint64_t deadline)
{
	int ret;

	do {
		ret = rs_wait(rs, ready, false, deadline);
	} while (ret == -EINTR);
	return ret;
}

/* Closes one or both halves. Returns the control message for the peer, or -1 if it needs none. */
static int close_halves(struct rsocket *rs, int how)
{
	bool read_only = how == SHUT_RD;

	if (rs->state != RS_CONNECTED || (how == SHUT_WR && !rs->writable))
		return -1;
	if (how != SHUT_WR)
		rs->readable = false;
	if (how != SHUT_RD)
		rs->writable = false;
	rs_wake(rs);
	if (read_only && rs->writable)
		return -1;
	return rs->readable ? RS_CTRL_SHUTDOWN : RS_CTRL_DISCONNECT;
}

/* Both halves are closed, and the peer knows: disconnects. */
static void finish(struct rsocket *rs)
{
	if (rs->state == RS_CONNECTED)
		rs_set_state(rs, RS_DISCONNECTED);
	rs_hang_up(rs);
}

static int send_control(struct rsocket *rs, int ctrl, uint64_t deadline)
{
	int ret = wait_uninterrupted(rs, ctrl_ready, deadline);

	if (!ret && rs->state == RS_CONNECTED) {
		ret = rs_post_message(rs, RS_WR_CTRL, 0, rs_msg(RS_OP_CTRL, (uint32_t)ctrl));
		rs->sq.ctrl_put++;
	}
	if (!ret)
		ret = wait_uninterrupted(rs, all_sent, deadline);
	if (ctrl == RS_CTRL_DISCONNECT)
		finish(rs);
	return ret;
}

static int shut(struct rsocket *rs, int how, uint64_t deadline)
{
	int ctrl;

	lock_acquire(&rs->lock);
	ctrl = close_halves(rs, how);
	lock_release(&rs->lock);
	if (ctrl < 0)
		return 0;

	/* A writer that waits sees that the half is closed, and releases its lock. */
	HOLD_FOR_SCOPE(&rs->send_lock);
	HOLD_FOR_SCOPE(&rs->lock);
	return send_control(rs, ctrl, deadline);
}

STAG_EXPORT int rshutdown(int socket, int how)
{
	RS_GET_OR_RETURN(rs, socket);
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return (int)rs_result(-EINVAL);
	return (int)rs_result(shut(rs, how, 0));
}

/* Waits until the connection manager reports the end of the connection on both sides. */
static void wait_gone(struct rsocket *rs, uint64_t deadline)
{
	for (;;) {
		uint64_t now = clock_ns();

		rs_read_events(rs);
		HOLD_FOR_SCOPE(&rs->lock);
		if (rs->conn.gone || !rs->conn.hung_up || now >= deadline)
			return;
		rs_sleep(rs, rs->fd, (int)((deadline - now) / NS_PER_MS) + 1);
	}
}

/* Ends the connection at once; calls in progress return. */
static void reset(struct rsocket *rs)
{
	HOLD_FOR_SCOPE(&rs->lock);
	if (rs->state == RS_CONNECTED)
		rs_set_state(rs, RS_DISCONNECTED);
}

static void close_connection(struct rsocket *rs, const struct linger *linger)
{
	uint64_t seconds = linger->l_onoff ? (uint64_t)linger->l_linger : LINGER_S;
	uint64_t deadline = clock_ns() + seconds * NS_PER_S;

	if (!seconds) { /* SO_LINGER with zero seconds requests a reset */
		reset(rs);
		return;
	}
	shut(rs, SHUT_RDWR, deadline);
	lock_acquire(&rs->lock);
	rs_hang_up(rs);
	lock_release(&rs->lock);
	wait_gone(rs, deadline);
}

/* Returns true for the first of several threads that close a socket: it does the work. */
static bool close_begin(struct rsocket *rs, enum rs_state *was, struct linger *linger)
{
	HOLD_FOR_SCOPE(&rs->lock);
	if (rs->conn.closing)
		return false;
	*was = rs->state;
	*linger = rs->opt.linger;
	rs->conn.closing = true;
	rs_unwatch(rs);
	rs_unhush(rs);
	if (rs_is_opening(rs)) {
		rs->err = ECONNABORTED;
		rs_set_state(rs, RS_CONNECT_ERROR);
	}
	rs_wake(rs);
	return true;
}

void rs_close(struct rsocket *rs)
{
	enum rs_state was;
	struct linger linger;

	if (!close_begin(rs, &was, &linger))
		return;
	rs_table_remove(rs);
	if (was == RS_LISTENING)
		rs_listener_abandon(rs);
	else if (was == RS_CONNECTED || was == RS_DISCONNECTED)
		close_connection(rs, &linger);
	rs_wait_alone(rs); /* the descriptor is free when rclose() returns */
}

STAG_EXPORT int rclose(int socket)
{
	RS_GET_OR_RETURN(rs, socket);
	rs_close(rs);
	return 0;
}
