// SPDX-License-Identifier: BSD-2-Clause
/*
 * address.c - socket addresses, and TCP sockets that are bound to them.
 *
 * An RDMA port of the port space RDMA_PS_TCP is a TCP port here. Every address
 * of this machine, loopback included, belongs to the adapter.
 */
#include "cm/cm.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <netinet/tcp.h>

#include "base/cleanup.h"
#include "base/clock.h"

static const struct sockaddr_in *in4(const struct sockaddr *a)
{
	return (const struct sockaddr_in *)a;
}

static const struct sockaddr_in6 *in6(const struct sockaddr *a)
{
	return (const struct sockaddr_in6 *)a;
}

socklen_t address_len(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

bool address_is_any(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return in4(a)->sin_addr.s_addr == htonl(INADDR_ANY);
	return a->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6(a)->sin6_addr);
}

uint16_t address_port(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return in4(a)->sin_port;
	return a->sa_family == AF_INET6 ? in6(a)->sin6_port : 0;
}

bool address_same(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family || address_port(a) != address_port(b))
		return false;
	if (a->sa_family == AF_INET)
		return in4(a)->sin_addr.s_addr == in4(b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && in6(a)->sin6_scope_id == in6(b)->sin6_scope_id &&
	       IN6_ARE_ADDR_EQUAL(&in6(a)->sin6_addr, &in6(b)->sin6_addr);
}

void address_set_port(struct sockaddr *a, uint16_t port)
{
	if (a->sa_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = port;
	else if (a->sa_family == AF_INET6)
		((struct sockaddr_in6 *)a)->sin6_port = port;
}

void address_any(int family, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	out->ss_family = (sa_family_t)family;
}

void address_loopback(int family, struct sockaddr_storage *out)
{
	address_any(family, out);
	if (family == AF_INET)
		((struct sockaddr_in *)out)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)out)->sin6_addr = in6addr_loopback;
}

void address_unmap(struct sockaddr_storage *a)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)a;
	struct sockaddr_in four = {.sin_family = AF_INET};

	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return;
	four.sin_port = six->sin6_port;
	memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, sizeof(four.sin_addr));
	memset(a, 0, sizeof(*a));
	memcpy(a, &four, sizeof(four));
}

const char *address_str(const struct sockaddr *a, char *buf, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa_family == AF_INET)
		inet_ntop(AF_INET, &in4(a)->sin_addr, host, sizeof(host));
	else if (a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &in6(a)->sin6_addr, host, sizeof(host));
	snprintf(buf, size, "%s port %u", host, ntohs(address_port(a)));
	return buf;
}

int address_source(const struct sockaddr *src, const struct sockaddr *dst,
		   struct sockaddr_storage *out)
{
	CLEANUP_CLOSE int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);

	if (fd < 0)
		return -errno;
	if (src && !address_is_any(src)) {
		memcpy(&from, src, address_len(src));
		address_set_port((struct sockaddr *)&from, 0);
		if (bind(fd, (struct sockaddr *)&from, address_len(src)))
			return -errno;
	}
	if (connect(fd, dst, address_len(dst)))
		return -errno;
	if (getsockname(fd, (struct sockaddr *)&from, &len))
		return -errno;
	address_set_port((struct sockaddr *)&from, src ? address_port(src) : 0);
	*out = from;
	return 0;
}

static void set_flag(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		log_debug("cm: cannot set socket option %d of level %d: errno %d", name, level,
			  errno);
}

static void set_tos(const struct cm_id *id, int fd, int family)
{
	if (!id->has_tos)
		return;
	if (family == AF_INET6)
		set_flag(fd, IPPROTO_IPV6, IPV6_TCLASS, id->tos);
	set_flag(fd, IPPROTO_IP, IP_TOS, id->tos);
}

void socket_limit_silence(const struct cm_id *id, int fd)
{
	uint64_t ms = (4096ull << id->ack_timeout) / NS_PER_MS;

	if (id->ack_timeout)
		set_flag(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms < INT_MAX ? (int)ms + 1 : INT_MAX);
}

int socket_open(const struct cm_id *id, int family)
{
	bool datagrams = id->cm.qp_type == IBV_QPT_UD;
	int fd = socket(family,
			(datagrams ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	set_tos(id, fd, family);
	if (family == AF_INET6 && id->has_afonly)
		set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, id->afonly);
	if (datagrams)
		return fd;
	set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	socket_limit_silence(id, fd);
	return fd;
}

int socket_bound(const struct cm_id *id, const struct sockaddr *addr, enum bind_port when)
{
	int fd = socket_open(id, addr->sa_family);
	int err;

	if (fd < 0)
		return fd;
	if (id->reuse)
		set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (when == BIND_PORT_LATE && !address_port(addr))
		set_flag(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	if (!bind(fd, addr, address_len(addr)))
		return fd;
	err = errno;
	if (err == EADDRINUSE && !id->reuse && id->cm.qp_type != IBV_QPT_UD) {
		/*
		 * RDMA's port space has no TIME_WAIT. Sockets that are only bound still exclude
		 * each other, since none keeps the option set.
		 */
		set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
		if (!bind(fd, addr, address_len(addr))) {
			set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 0);
			return fd;
		}
		err = errno;
	}
	close(fd);
	return -err;
}
