// SPDX-License-Identifier: BSD-2-Clause
/*
 * accept.c - listening: requests become sockets before raccept() asks for them.
 *
 * The service thread accepts, so that a peer's rconnect() comes back although
 * the program is elsewhere. At most `backlog` children are under way or wait
 * to be fetched; above that, requests stay in the connection manager's queue.
 */
#include "rsocket/rsocket.h"

#include "base/cleanup.h"
#include "base/log.h"

#define BACKLOG_MAX 4096

/* Reading the listener's events stops and starts with the room in its backlog. */
static void backlog_changed(struct rsocket *listener, int by)
{
	LOCK_FOR_SCOPE(&listener->lock);
	listener->unaccepted += (unsigned)by;
	listener->paused = listener->unaccepted >= listener->backlog;
	if (listener->paused)
		rs_unwatch(listener);
	else if (!listener->closing)
		rs_watch(listener);
}

/* The child is not on its listener's books any more. */
static void leave_listener(struct rsocket *child, struct rsocket *listener)
{
	child->listener = NULL;
	backlog_changed(listener, -1);
	rs_put(listener);
}

/* Nobody will have it: its peer is reset, as TCP does. */
static void abandon(struct rsocket *child)
{
	pthread_mutex_lock(&child->lock);
	child->linger = (struct linger){.l_onoff = 1, .l_linger = 0};
	pthread_mutex_unlock(&child->lock);
	rs_close(child);
}

void rs_child_settled(struct rsocket *child)
{
	struct rsocket *listener = child->listener;
	bool wanted;

	pthread_mutex_lock(&listener->lock);
	wanted = rs_was_connected(child) && !listener->closing;
	if (wanted) {
		list_add_tail(&listener->ready, &child->ready_link);
		rs_wake(listener);
	}
	pthread_mutex_unlock(&listener->lock);

	if (wanted) {
		child->listener = NULL;
		rs_put(listener);
		return;
	}
	leave_listener(child, listener);
	abandon(child);
}

/* Takes over id, which has the listener's channel. */
static int new_child(struct rsocket *listener, struct rdma_cm_id *id, struct rsocket **out)
{
	struct rsocket *child = rs_new(listener->domain, &listener->config);
	int ret;

	if (!child)
		return -ENOMEM;
	child->channel = rdma_create_event_channel();
	if (!child->channel) {
		ret = -errno;
		goto err_put;
	}
	child->fd = child->channel->fd;
	if (fcntl(child->fd, F_SETFL, O_NONBLOCK) || rdma_migrate_id(id, child->channel)) {
		ret = -errno;
		goto err_put;
	}
	child->id = id;
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
	rs_offer_take(child, &offer);
	rs_offer_make(child, &offer);
	rs_offer_pack(&offer, bytes);
	param.private_data = bytes;
	param.private_data_len = sizeof(bytes);
	rs_set_state(child, RS_ACCEPTING);
	return rdma_accept(child->id, &param) ? -errno : 0;
}

static int accept_child(struct rsocket *child, const struct rdma_conn_param *param,
			const void *data)
{
	int ret;

	pthread_mutex_lock(&child->lock);
	ret = answer(child, param, data);
	if (ret) /* this side says no; the peer's rconnect() hears it */
		rdma_reject(child->id, NULL, 0);
	pthread_mutex_unlock(&child->lock);
	if (ret)
		return ret;

	ret = rs_table_insert(child);
	if (ret)
		return ret;
	pthread_mutex_lock(&child->lock);
	ret = rs_watch(child);
	pthread_mutex_unlock(&child->lock);
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
	atomic_fetch_add(&listener->refs, 1);
	child->listener = listener;
	backlog_changed(listener, 1);

	ret = accept_child(child, param, data);
	if (ret) {
		log_warn("rsocket %d: a connection was refused: errno %d", listener->fd, -ret);
		leave_listener(child, listener);
		rs_put(child);
	}
}

void rs_listener_abandon(struct rsocket *listener)
{
	for (;;) {
		struct rsocket *child;

		pthread_mutex_lock(&listener->lock);
		assert(listener->closing); /* as children under way find when they settle */
		if (list_empty(&listener->ready)) {
			pthread_mutex_unlock(&listener->lock);
			return;
		}
		child = list_entry(listener->ready.next, struct rsocket, ready_link);
		list_del(&child->ready_link);
		pthread_mutex_unlock(&listener->lock);
		abandon(child);
	}
}

static int listen_start(struct rsocket *rs, int backlog)
{
	LOCK_FOR_SCOPE(&rs->lock);
	if (rs->state == RS_LISTENING)
		return 0;
	if (rs->state != RS_INIT && rs->state != RS_BOUND)
		return -EINVAL;
	if (rdma_listen(rs->id, backlog))
		return -errno;
	rs->backlog = backlog < 1 ? 1 : backlog > BACKLOG_MAX ? BACKLOG_MAX : (unsigned)backlog;
	rs_set_state(rs, RS_LISTENING);
	return rs_watch(rs);
}

STAG_EXPORT int rlisten(int socket, int backlog)
{
	RS_GET_OR_RETURN(rs, socket);
	return (int)rs_result(listen_start(rs, backlog));
}

/* The next child, or -errno. */
static int fetch(struct rsocket *listener, struct rsocket **child)
{
	LOCK_FOR_SCOPE(&listener->lock);
	if (listener->state != RS_LISTENING)
		return -EINVAL;
	while (list_empty(&listener->ready)) {
		int ret;

		if (listener->closing)
			return -EBADF;
		if (rs_nonblocking(listener, 0))
			return -EAGAIN;
		ret = rs_sleep(listener, -1, -1);
		if (ret < 0)
			return ret;
	}
	*child = list_entry(listener->ready.next, struct rsocket, ready_link);
	list_del(&(*child)->ready_link);
	return 0;
}

STAG_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *child;
	int ret;

	RS_GET_OR_RETURN(rs, socket);
	ret = fetch(rs, &child);
	if (ret)
		return (int)rs_result(ret);
	ret = child->fd;
	backlog_changed(rs, -1);
	if (addr && addrlen)
		rgetpeername(ret, addr, addrlen);
	return ret;
}
