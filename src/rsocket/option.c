// SPDX-License-Identifier: BSD-2-Clause
/*
 * option.c - socket options, file flags and names.
 *
 * Options that TCP has and that have no effect here are stored and returned: SO_KEEPALIVE, for
 * example, since the connection below keeps itself alive.
 */
#include "rsocket/rsocket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

#define KEEP_IDLE_DEFAULT 7200

static int get_int(const void *value, socklen_t len, int *out)
{
	if (!value || len < sizeof(*out))
		return -EINVAL;
	memcpy(out, value, sizeof(*out));
	return 0;
}

static int copy_out(void *value, socklen_t *len, const void *what, socklen_t size)
{
	if (!value || !len || *len < size)
		return -EINVAL;
	memcpy(value, what, size);
	*len = size;
	return 0;
}

static int put_int(void *value, socklen_t *len, int what)
{
	return copy_out(value, len, &what, sizeof(what));
}

static int set_flag(bool *flag, const void *value, socklen_t len)
{
	int on, ret = get_int(value, len, &on);

	if (!ret)
		*flag = on != 0;
	return ret;
}

/* Sets a flag that the connection manager must know, too. */
static int set_id_flag(struct rsocket *rs, bool *flag, int option, const void *value, socklen_t len)
{
	int on, ret = get_int(value, len, &on);

	if (ret)
		return ret;
	if (rdma_set_option(rs->conn.id, RDMA_OPTION_ID, option, &on, sizeof(on)) &&
	    errno != ENOSYS)
		return -errno;
	*flag = on != 0;
	return 0;
}

/* Like TCP, doubles the requested size. It cannot change once connected. */
static int set_buffer(struct rsocket *rs, uint32_t *size, const void *value, socklen_t len)
{
	int n, ret = get_int(value, len, &n);

	if (ret || rs->ep.open)
		return ret;
	if (n < RS_BUFFER_MIN / 2)
		n = RS_BUFFER_MIN / 2;
	if ((uint32_t)n > RS_BUFFER_MAX / 2)
		n = RS_BUFFER_MAX / 2;
	*size = (uint32_t)n * 2;
	return 0;
}

static int set_linger(struct rsocket *rs, const void *value, socklen_t len)
{
	if (!value || len < sizeof(rs->opt.linger))
		return -EINVAL;
	memcpy(&rs->opt.linger, value, sizeof(rs->opt.linger));
	if (rs->opt.linger.l_linger < 0)
		rs->opt.linger.l_linger = INT32_MAX;
	return 0;
}

static int set_socket_option(struct rsocket *rs, int name, const void *value, socklen_t len)
{
	switch (name) {
	case SO_REUSEADDR:
		return set_id_flag(rs, &rs->opt.reuse_addr, RDMA_OPTION_ID_REUSEADDR, value, len);
	case SO_RCVBUF:
		return set_buffer(rs, &rs->opt.config.rbuf_size, value, len);
	case SO_SNDBUF:
		return set_buffer(rs, &rs->opt.config.sbuf_size, value, len);
	case SO_LINGER:
		return set_linger(rs, value, len);
	case SO_KEEPALIVE:
		return set_flag(&rs->opt.keep_alive, value, len);
	case SO_OOBINLINE:
		return set_flag(&rs->opt.oob_inline, value, len);
	default:
		return -ENOTSUP;
	}
}

static int set_keep_idle(struct rsocket *rs, const void *value, socklen_t len)
{
	int seconds, ret = get_int(value, len, &seconds);

	if (ret || seconds <= 0)
		return -EINVAL;
	rs->opt.keep_idle = seconds;
	return 0;
}

static int set_tcp_option(struct rsocket *rs, int name, const void *value, socklen_t len)
{
	switch (name) {
	case TCP_NODELAY:
		return set_flag(&rs->opt.no_delay, value, len);
	case TCP_KEEPIDLE:
		return set_keep_idle(rs, value, len);
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
	case TCP_MAXSEG:
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int set_route(struct rsocket *rs, const void *value, socklen_t len)
{
	void *copy;

	if (!value || !len)
		return -EINVAL;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value, len);
	free(rs->opt.route);
	rs->opt.route = copy;
	rs->opt.route_len = len;
	return 0;
}

static uint16_t to_u16(int n)
{
	return (uint16_t)(n < 0 ? 0 : n > RS_QUEUE_MAX ? RS_QUEUE_MAX : n);
}

static int set_rdma_option(struct rsocket *rs, int name, const void *value, socklen_t len)
{
	int n, ret;

	if (rs->state > RS_LISTENING)
		return -EINVAL;
	if (name == RDMA_ROUTE)
		return set_route(rs, value, len);
	ret = get_int(value, len, &n);
	if (ret)
		return ret;
	switch (name) {
	case RDMA_SQSIZE:
		rs->opt.config.sq_size = to_u16(n);
		return 0;
	case RDMA_RQSIZE:
		rs->opt.config.rq_size = to_u16(n);
		return 0;
	case RDMA_INLINE:
		rs->opt.config.inline_size = to_u16(n);
		return 0;
	case RDMA_IOMAPSIZE:
		rs->opt.config.iomaps = rs_iomaps_round(n);
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int set_option(struct rsocket *rs, int level, int name, const void *value, socklen_t len)
{
	switch (level) {
	case SOL_SOCKET:
		return set_socket_option(rs, name, value, len);
	case IPPROTO_TCP:
		return set_tcp_option(rs, name, value, len);
	case IPPROTO_IPV6:
		if (name != IPV6_V6ONLY)
			return -ENOTSUP;
		return set_id_flag(rs, &rs->opt.v6_only, RDMA_OPTION_ID_AFONLY, value, len);
	case SOL_RDMA:
		return set_rdma_option(rs, name, value, len);
	default:
		return -ENOTSUP;
	}
}

STAG_EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval,
			    socklen_t optlen)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	return (int)rs_result(set_option(rs, level, optname, optval, optlen));
}

static int get_socket_option(struct rsocket *rs, int name, void *value, socklen_t *len)
{
	int err;

	switch (name) {
	case SO_REUSEADDR:
		return put_int(value, len, rs->opt.reuse_addr);
	case SO_KEEPALIVE:
		return put_int(value, len, rs->opt.keep_alive);
	case SO_OOBINLINE:
		return put_int(value, len, rs->opt.oob_inline);
	case SO_RCVBUF:
		return put_int(value, len, (int)rs->opt.config.rbuf_size);
	case SO_SNDBUF:
		return put_int(value, len, (int)rs->opt.config.sbuf_size);
	case SO_LINGER:
		return copy_out(value, len, &rs->opt.linger, sizeof(rs->opt.linger));
	case SO_ERROR:
		err = rs->err;
		rs->err = 0;
		return put_int(value, len, err);
	default:
		return -ENOTSUP;
	}
}

static int get_tcp_option(struct rsocket *rs, int name, void *value, socklen_t *len)
{
	switch (name) {
	case TCP_NODELAY:
		return put_int(value, len, rs->opt.no_delay);
	case TCP_KEEPIDLE:
		return put_int(value, len,
			       rs->opt.keep_idle ? rs->opt.keep_idle : KEEP_IDLE_DEFAULT);
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
		return put_int(value, len, 1);
	case TCP_MAXSEG:
		return put_int(value, len, RS_SEND_LOW);
	default:
		return -ENOTSUP;
	}
}

static int get_route(struct rsocket *rs, void *value, socklen_t *len)
{
	if (rs->opt.route)
		return copy_out(value, len, rs->opt.route, rs->opt.route_len);
	if (!len)
		return -EINVAL;
	*len = 0; /* iWARP has no routes */
	return 0;
}

static int get_rdma_option(struct rsocket *rs, int name, void *value, socklen_t *len)
{
	switch (name) {
	case RDMA_SQSIZE:
		return put_int(value, len, rs->opt.config.sq_size);
	case RDMA_RQSIZE:
		return put_int(value, len, rs->opt.config.rq_size);
	case RDMA_INLINE:
		return put_int(value, len, rs->opt.config.inline_size);
	case RDMA_IOMAPSIZE:
		return put_int(value, len, rs->opt.config.iomaps);
	case RDMA_ROUTE:
		return get_route(rs, value, len);
	default:
		return -ENOTSUP;
	}
}

static int get_option(struct rsocket *rs, int level, int name, void *value, socklen_t *len)
{
	switch (level) {
	case SOL_SOCKET:
		return get_socket_option(rs, name, value, len);
	case IPPROTO_TCP:
		return get_tcp_option(rs, name, value, len);
	case IPPROTO_IPV6:
		if (name != IPV6_V6ONLY)
			return -ENOTSUP;
		return put_int(value, len, rs->opt.v6_only);
	case SOL_RDMA:
		return get_rdma_option(rs, name, value, len);
	default:
		return -ENOTSUP;
	}
}

STAG_EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	return (int)rs_result(get_option(rs, level, optname, optval, optlen));
}

static int file_control(struct rsocket *rs, int cmd, int arg)
{
	switch (cmd) {
	case F_GETFL:
		return rs->opt.file_flags;
	case F_SETFL:
		/* Stored only: the descriptors below never block. */
		rs->opt.file_flags = arg;
		return 0;
	default:
		return -ENOTSUP;
	}
}

STAG_EXPORT int rfcntl(int socket, int cmd, ...)
{
	va_list args;
	int arg;

	RS_GET_OR_RETURN(rs, socket);
	va_start(args, cmd);
	arg = cmd == F_SETFL ? va_arg(args, int) : 0;
	va_end(args);
	HOLD_FOR_SCOPE(&rs->lock);
	return (int)rs_result(file_control(rs, cmd, arg));
}

/* Like getsockname(), copies as much as fits, and returns the full length. */
static int copy_name(struct rsocket *rs, const struct sockaddr *name, struct sockaddr *addr,
		     socklen_t *len)
{
	struct sockaddr_storage none = {.ss_family = (sa_family_t)rs->domain};
	socklen_t size;

	if (!addr || !len)
		return -EFAULT;
	if (!name->sa_family)
		name = (struct sockaddr *)&none;
	size = name->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
	memcpy(addr, name, *len < size ? *len : size);
	*len = size;
	return 0;
}

STAG_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	return (int)rs_result(copy_name(rs, rdma_get_peer_addr(rs->conn.id), addr, addrlen));
}

STAG_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	return (int)rs_result(copy_name(rs, rdma_get_local_addr(rs->conn.id), addr, addrlen));
}
