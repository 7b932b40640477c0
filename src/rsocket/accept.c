// SPDX-License-Identifier: BSD-2-Clause
/*
 * accept.c - listening: requests become sockets before raccept() is called.
 *
 * The service thread accepts, so that a peer's rconnect() returns even if the program is busy
 * elsewhere. At most `backlog` children are being connected or wait for raccept(); above that,
 * requests stay in the connection manager's queue.
 */
#include "rsocket/rsocket.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/nonblock.h"

#define BACKLOG_MAX 4096

/* Stops and restarts reading the listener's events with the room in its backlog. */
static void backlog_changed(struct rsocket *listener, int by)
{
	HOLD_FOR_SCOPE(&listener->lock);
	listener->backlog.unaccepted += (unsigned)by;
	listener->backlog.paused = listener->backlog.unaccepted >= listener->backlog.limit;
	if (listener->backlog.paused)
		rs_unwatch(listener);
	else if (!listener->conn.closing)
		rs_watch(listener);
}

/* Drops a child that no caller will accept: its peer is reset, as TCP does. */
static void abandon(struct rsocket *child)
{
	lock_acquire(&child->lock);
	child->opt.linger = (struct linger){.l_onoff = 1, .l_linger = 0};
	lock_release(&child->lock);
	rs_close(child);
}

/* Returns the child's listener with a reference, or NULL if it was closed. */
static struct rsocket *listener_of(const struct rsocket *child)
{
	struct rsocket *listener = rs_get(child->child.listener_fd);

	if (!listener || listener->serial == child->child.listener_serial)
		return listener;
	rs_put(listener);
	return NULL;
}

/* Offers a connected child to raccept(). Returns false if the listener is closing. */
static bool offer_child(struct rsocket *listener, struct rsocket *child)
{
	HOLD_FOR_SCOPE(&listener->lock);
	if (!rs_was_connected(child) || listener->conn.closing)
		return false;
	list_add_tail(&listener->backlog.ready, &child->child.link);
	rs_wake(listener);
	return true;
}

void rs_child_settled(struct rsocket *child)
{
	struct rsocket *listener = listener_of(child);
	bool offered = listener && offer_child(listener, child);

	if (listener && !offered)
		backlog_changed(listener, -1);
	if (listener)
		rs_put(listener);
	if (!offered)
		abandon(child);
}

/* Makes a socket for id, which has the listener's channel, and takes id over. */
static int new_child(struct rsocket *listener, struct rdma_cm_id *id, struct rsocket **out)
{
	struct rsocket *child = rs_new(listener->domain, &listener->opt.config);
	int ret;

	if (!child)
		return -ENOMEM;
	child->conn.channel = rdma_create_event_channel();
	if (!child->conn.channel) {
		ret = -errno;
		goto err_put;
	}
	child->fd = child->conn.channel->fd;
	if (set_nonblocking(child->fd) || rdma_migrate_id(id, child->conn.channel)) {
		ret = -errno;
		goto err_put;
	}
	child->conn.id = id;
	id->context = child;
	*out = child;
	return 0;

err_put:
	rs_put(child);
	return ret;
}

static int answer(struct rsocket *child, const struct rdma_conn_param *request, const void *data)
{
	struct rdma_conn_param param = *request;
	uint8_t bytes[RS_OFFER_LEN];
	struct rs_offer offer;
	int ret = rs_offer_parse(data, request->private_data_len, &offer);

	if (ret)
		return ret;
	ret = rs_endpoint_open(child);
	if (ret)
		return ret;
	if (child->ep.msg_mode && (ret = rs_hush(child)))
		return ret;
	rs_offer_take(child, &offer);
	rs_offer_make(child, &offer);
	rs_offer_pack(&offer, bytes);
	param.private_data = bytes;
	param.private_data_len = sizeof(bytes);
	rs_set_state(child, RS_ACCEPTING);
	return rdma_accept(child->conn.id, &param) ? -errno : 0;
}

static int accept_child(struct rsocket *child, const struct rdma_conn_param *param,
			const void *data)
{
	int ret;

	lock_acquire(&child->lock);
	ret = answer(child, param, data);
	if (ret) /* refuses the connection; the peer's rconnect() fails */
		rdma_reject(child->conn.id, NULL, 0);
	lock_release(&child->lock);
	if (ret)
		return ret;

	ret = rs_table_insert(child);
	if (ret)
		return ret;
	HOLD_FOR_SCOPE(&child->lock);
	ret = rs_watch(child);
	if (ret)
		rs_table_remove(child);
	return ret;
}

void rs_accept_request(struct rsocket *listener, struct rdma_cm_id *id,
		       const struct rdma_conn_param *param, const void *data)
{
	struct rsocket *child = NULL;
	int ret = new_child(listener, id, &child);

	if (ret) {
		log_warn("rsocket %d: a connection was refused: errno %d", listener->fd, -ret);
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	child->child.pending = true;
	child->child.listener_fd = listener->fd;
	child->child.listener_serial = listener->serial;
	backlog_changed(listener, 1);

	ret = accept_child(child, param, data);
	if (ret) {
		log_warn("rsocket %d: a connection was refused: errno %d", listener->fd, -ret);
		backlog_changed(listener, -1);
	}
	rs_put(child); /* the table holds a reference, if it was inserted */
}

/* Returns the next child that waits for raccept(), with a reference; NULL if there is none. */
static struct rsocket *take_ready(struct rsocket *listener)
{
	struct rsocket *child;

	if (list_empty(&listener->backlog.ready))
		return NULL;
	child = list_entry(listener->backlog.ready.next, struct rsocket, child.link);
	list_del(&child->child.link);
	return rs_get(child->fd);
}

void rs_listener_abandon(struct rsocket *listener)
{
	for (;;) {
		struct rsocket *child;

		lock_acquire(&listener->lock);
		assert(listener->conn.closing); /* so that no more children are added */
		child = take_ready(listener);
		lock_release(&listener->lock);
		if (!child)
			return;
		abandon(child);
		rs_put(child);
	}
}

static int listen_start(struct rsocket *rs, int backlog)
{
	HOLD_FOR_SCOPE(&rs->lock);
	if (rs->state == RS_LISTENING)
		return 0;
	if (rs->state != RS_INIT && rs->state != RS_BOUND)
		return -EINVAL;
	if (rdma_listen(rs->conn.id, backlog))
		return -errno;
	rs->backlog.limit = backlog < 1		    ? 1
			    : backlog > BACKLOG_MAX ? BACKLOG_MAX
						    : (unsigned)backlog;
	rs_set_state(rs, RS_LISTENING);
	return rs_watch(rs);
}

STAG_EXPORT int rlisten(int socket, int backlog)
{
	RS_GET_OR_RETURN(rs, socket);
	return (int)rs_result(listen_start(rs, backlog));
}

/* Returns the next child with a reference in *child, or -errno. */
static int fetch(struct rsocket *listener, struct rsocket **child)
{
	HOLD_FOR_SCOPE(&listener->lock);
	if (listener->state != RS_LISTENING)
		return -EINVAL;
	while (!(*child = take_ready(listener))) {
		int ret;

		if (listener->conn.closing)
			return -EBADF;
		if (rs_nonblocking(listener, 0))
			return -EAGAIN;
		ret = rs_sleep(listener, -1, -1);
		if (ret < 0)
			return ret;
	}
	return 0;
}

STAG_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *child;
	int fd, ret;

	RS_GET_OR_RETURN(rs, socket);
	ret = fetch(rs, &child);
	if (ret)
		return (int)rs_result(ret);
	fd = child->fd;
	rs_put(child);
	backlog_changed(rs, -1);
	if (addr && addrlen)
		rgetpeername(fd, addr, addrlen);
	return fd;
}
