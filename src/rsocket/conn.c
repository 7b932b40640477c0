// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn.c - making a connection: the calls, and the events that follow.
 *
 * Each socket has an event channel of its own, which never blocks. Its events are read by the
 * thread that waits for them in rconnect(), or else by the service thread; there is one handler per
 * kind of event.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/nonblock.h"

#define RETRIES 6

/* The parts of an event that are needed after it has been acknowledged. */
struct event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	uint8_t data[256]; /* copy of param's private data */
};

/* Converts the result of rdma_cm's int functions, -1 and errno, to -errno. */
static int cm_result(int ret)
{
	return ret ? -errno : 0;
}

static int resolve_timeout(const struct rsocket *rs)
{
	return 1000 << rs->conn.retries;
}

static void connect_failed(struct rsocket *rs, int err)
{
	log_info("rsocket %d: cannot connect: errno %d", rs->fd, err);
	rs->err = err;
	rs_set_state(rs, RS_CONNECT_ERROR);
}

static void connect_failed_if(struct rsocket *rs, int ret)
{
	if (ret)
		connect_failed(rs, -ret);
}

static int resolve_route(struct rsocket *rs)
{
	int ret;

	if (!rs->opt.route)
		return cm_result(rdma_resolve_route(rs->conn.id, resolve_timeout(rs)));
	ret = cm_result(rdma_set_option(rs->conn.id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH,
					rs->opt.route, rs->opt.route_len));
	free(rs->opt.route);
	rs->opt.route = NULL;
	return ret;
}

static int send_request(struct rsocket *rs)
{
	struct rdma_conn_param param = {.flow_control = 1, .retry_count = 7, .rnr_retry_count = 7};
	uint8_t bytes[RS_OFFER_LEN];
	struct rs_offer offer;
	int ret = rs_endpoint_open(rs);

	if (ret)
		return ret;
	rs_offer_make(rs, &offer);
	rs_offer_pack(&offer, bytes);
	param.private_data = bytes;
	param.private_data_len = sizeof(bytes);
	/* An iWARP peer may begin with a zero-length read as its ready-to-receive message. */
	if (rs->ep.msg_mode)
		param.initiator_depth = 1;
	return cm_result(rdma_connect(rs->conn.id, &param));
}

static void on_addr_resolved(struct rsocket *rs)
{
	rs->conn.retries = 0;
	rs_set_state(rs, RS_RESOLVING_ROUTE);
	connect_failed_if(rs, resolve_route(rs));
}

static void on_route_resolved(struct rsocket *rs)
{
	rs->conn.retries = 0;
	rs_set_state(rs, RS_CONNECTING);
	connect_failed_if(rs, send_request(rs));
}

/* Handles a failed address or route resolution; a timeout is retried with a longer one. */
static void on_unresolved(struct rsocket *rs, const struct event *e)
{
	int err = e->status < 0 ? -e->status : e->status;
	int ret;

	if (err != ETIMEDOUT || ++rs->conn.retries > RETRIES) {
		connect_failed(rs, err ? err : EHOSTUNREACH);
		return;
	}
	if (rs->state == RS_RESOLVING_ADDR)
		ret = cm_result(rdma_resolve_addr(
			rs->conn.id, NULL, rdma_get_peer_addr(rs->conn.id), resolve_timeout(rs)));
	else
		ret = resolve_route(rs);
	connect_failed_if(rs, ret);
}

static void on_established(struct rsocket *rs, const struct event *e)
{
	struct rs_offer offer;
	int ret;

	if (rs->state == RS_CONNECTING) {
		ret = rs_offer_parse(e->data, e->param.private_data_len, &offer);
		if (ret) {
			connect_failed(rs, -ret);
			rs_hang_up(rs);
			return;
		}
		rs_offer_take(rs, &offer);
	}
	rs_set_state(rs, RS_CONNECTED);
	rs_progress(rs); /* grants the peer its second buffer */
}

static void on_refused(struct rsocket *rs, const struct event *e)
{
	if (e->type == RDMA_CM_EVENT_REJECTED)
		connect_failed(rs, ECONNREFUSED);
	else
		connect_failed(rs, e->status ? abs(e->status) : ECONNABORTED);
}

static void on_disconnected(struct rsocket *rs)
{
	rs->conn.gone = true;
	if (rs->state == RS_CONNECTED) {
		rs_progress(rs); /* processes data received before the end */
		rs_lost(rs);
	} else if (rs_is_opening(rs)) {
		connect_failed(rs, ECONNRESET);
	}
	rs_hang_up(rs);
	rs_wake(rs);
}

/* Handles an event of a socket that is being connected, or is connected. */
static void on_event(struct rsocket *rs, const struct event *e)
{
	switch (e->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rs->state == RS_RESOLVING_ADDR)
			on_addr_resolved(rs);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (rs->state == RS_RESOLVING_ROUTE)
			on_route_resolved(rs);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		if (rs_is_opening(rs))
			on_unresolved(rs, e);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (rs->state == RS_CONNECTING || rs->state == RS_ACCEPTING)
			on_established(rs, e);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		if (rs_is_opening(rs))
			on_refused(rs, e);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		on_disconnected(rs);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		rs_fail(rs, ENODEV);
		break;
	default: /* events that do not concern a stream */
		break;
	}
}

/* Returns false if there is no event. */
static bool next_event(struct rsocket *rs, struct event *e)
{
	struct rdma_cm_event *got;
	size_t len;

	if (rdma_get_cm_event(rs->conn.channel, &got)) {
		if (errno != EAGAIN && errno != EINTR)
			rs_unwatch(rs); /* otherwise the descriptor would stay readable forever */
		return false;
	}
	*e = (struct event){.type = got->event, .status = got->status, .id = got->id};
	if (got->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
	    got->event == RDMA_CM_EVENT_ESTABLISHED) {
		e->param = got->param.conn;
		len = e->param.private_data ? e->param.private_data_len : 0;
		if (len)
			memcpy(e->data, e->param.private_data, len);
		e->param.private_data_len = (uint8_t)len;
		e->param.private_data = NULL;
	}
	rdma_ack_cm_event(got);
	return true;
}

/* Handles one event. Returns false if there was none. */
static bool handle_next_event(struct rsocket *rs)
{
	bool settled;
	struct event e;

	lock_acquire(&rs->lock);
	if (rs->backlog.paused || !next_event(rs, &e)) {
		lock_release(&rs->lock);
		return false;
	}
	if (e.type != RDMA_CM_EVENT_CONNECT_REQUEST)
		on_event(rs, &e);
	settled = rs->child.pending && !rs_is_opening(rs);
	if (settled)
		rs->child.pending = false; /* only once, whichever thread reads the events */
	lock_release(&rs->lock);

	/* These acquire the locks of other sockets. */
	if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST)
		rs_accept_request(rs, e.id, &e.param, e.data);
	if (settled)
		rs_child_settled(rs);
	return true;
}

void rs_read_events(struct rsocket *rs)
{
	assert(!lock_held(&rs->lock));
	while (handle_next_event(rs))
		;
}

void rs_hang_up(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	if (rs->conn.hung_up || !rs->ep.open)
		return;
	rs->conn.hung_up = true;
	rdma_disconnect(rs->conn.id); /* fails if it is already disconnected */
}

static int new_socket(int domain, int *out)
{
	struct rsocket *rs = rs_new(domain, rs_defaults());
	int ret;

	if (!rs)
		return -ENOMEM;
	rs->conn.channel = rdma_create_event_channel();
	if (!rs->conn.channel) {
		ret = -errno;
		goto err_put;
	}
	rs->fd = rs->conn.channel->fd;
	if (set_nonblocking(rs->fd) ||
	    rdma_create_id(rs->conn.channel, &rs->conn.id, rs, RDMA_PS_TCP)) {
		ret = -errno;
		goto err_put;
	}
	ret = rs_table_insert(rs);
	if (ret)
		goto err_put;
	*out = rs->fd;
	rs_put(rs); /* the table holds a reference now */
	return 0;

err_put:
	rs_put(rs);
	return ret;
}

STAG_EXPORT int rsocket(int domain, int type, int protocol)
{
	int fd = -1, ret;

	/* iWARP has no datagrams: librdmacm would fail at their first use, this fails now. */
	if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM ||
	    (protocol && protocol != IPPROTO_TCP))
		return (int)rs_result(-ENOTSUP);
	ret = new_socket(domain, &fd);
	return (int)rs_result(ret ? ret : fd);
}

STAG_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	if (rs->state != RS_INIT)
		return (int)rs_result(-EINVAL);
	if (rdma_bind_addr(rs->conn.id, (struct sockaddr *)addr))
		return -1;
	rs_set_state(rs, RS_BOUND);
	return 0;
}

static int connect_start(struct rsocket *rs, const struct sockaddr *addr)
{
	int ret;

	if (rs_is_opening(rs))
		return -EALREADY;
	if (rs->state == RS_CONNECTED)
		return -EISCONN;
	if (rs->state != RS_INIT && rs->state != RS_BOUND)
		return -EINVAL;
	ret = cm_result(
		rdma_resolve_addr(rs->conn.id, NULL, (struct sockaddr *)addr, resolve_timeout(rs)));
	if (ret)
		return ret;
	rs_set_state(rs, RS_RESOLVING_ADDR);
	return 0;
}

/* Reads the socket's events until it is connected or has failed. */
static int connect_wait(struct rsocket *rs)
{
	int ret = 0;

	for (;;) {
		rs_read_events(rs);
		HOLD_FOR_SCOPE(&rs->lock);
		if (!rs_is_opening(rs))
			return 0;
		ret = rs_sleep(rs, rs->fd, -1);
		if (ret < 0)
			return ret;
	}
}

/* Hands the events over to the service thread. */
static int connect_result(struct rsocket *rs, int ret)
{
	HOLD_FOR_SCOPE(&rs->lock);
	if (rs->state == RS_CONNECT_ERROR && !ret) {
		ret = -rs->err;
		rs->err = 0;
		return ret;
	}
	if (!rs->conn.closing && rs_watch(rs) && !ret)
		ret = -ENOMEM;
	return ret;
}

STAG_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	bool nonblock;
	int ret;

	RS_GET_OR_RETURN(rs, socket);
	lock_acquire(&rs->lock);
	ret = connect_start(rs, addr);
	nonblock = rs_nonblocking(rs, 0);
	lock_release(&rs->lock);
	if (ret)
		return (int)rs_result(ret);

	return (int)rs_result(connect_result(rs, nonblock ? -EINPROGRESS : connect_wait(rs)));
}
