// SPDX-License-Identifier: BSD-2-Clause
/*
 * resolve.c - bind, and resolution of addresses and routes.
 *
 * The system's routing table is queried synchronously, so that the event is in the channel when a
 * call returns. There is one device, which has every address of this machine; a wildcard address
 * has no device yet.
 */
#include "cm/cm.h"

#include <string.h>
#include <unistd.h>

static int check_address(struct cm_id *id, const struct sockaddr *addr)
{
	if (addr && address_len(addr))
		return 0;
	if (addr && addr->sa_family == AF_IB)
		return id_error(id, ENODEV, "no device has an InfiniBand address");
	return id_error(id, EINVAL, "the address is neither IPv4 nor IPv6");
}

/* Binds a socket now, so that a port in use is reported by this call. */
static int bind_socket(struct cm_id *id, const struct sockaddr *addr)
{
	socklen_t len = sizeof(id->cm.route.addr.src_storage);
	char name[ADDRESS_STR_LEN];
	int fd = socket_bound(id, addr, BIND_PORT_NOW);

	if (fd < 0)
		return id_error(id, -fd, "bind to %s", address_str(addr, name, sizeof(name)));
	if (id->fd >= 0) /* left by an attempt to resolve that failed */
		close(id->fd);
	id->fd = fd;
	id->port_fixed = true;
	getsockname(fd, &id->cm.route.addr.src_addr, &len);
	return 0;
}

static int bind_id(struct cm_id *id, const struct sockaddr *addr)
{
	int err;

	if (check_address(id, addr))
		return -1;
	if (id->state != ID_IDLE)
		return id_error(id, EINVAL, "only a new id can be bound");
	if (bind_socket(id, addr))
		return -1;
	id_set_state(id, ID_BOUND);
	if (address_is_any(addr))
		return 0;
	err = id_bind_device(id);
	return err ? id_error(id, -err, "no device") : 0;
}

STAG_EXPORT int rdma_bind_addr(struct rdma_cm_id *cm, struct sockaddr *addr)
{
	PASS_TO_REAL(bind_addr(cm, addr));
	int ret;

	engine_lock();
	ret = bind_id(to_cm_id(cm), addr);
	engine_unlock();
	return ret;
}

/* Sets the source address that resolution starts from, and binds a port that the program chose. */
static int set_source(struct cm_id *id, const struct sockaddr *src, int family)
{
	struct rdma_addr *addr = &id->cm.route.addr;

	if (id->state == ID_BOUND)
		return 0;
	if (!src) {
		address_any(family, &addr->src_storage);
		return 0;
	}
	if (check_address(id, src))
		return -1;
	if (address_port(src))
		return bind_socket(id, src);
	memcpy(&addr->src_storage, src, address_len(src));
	return 0;
}

static int resolve_id(struct cm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct rdma_addr *addr = &id->cm.route.addr;
	struct sockaddr_storage to = {0};
	char name[ADDRESS_STR_LEN];
	int err;

	if (check_address(id, dst))
		return -1;
	if (id->state != ID_IDLE && id->state != ID_BOUND)
		return id_error(id, EINVAL,
				"an id can be resolved only once, and before it connects");
	if (set_source(id, src, dst->sa_family))
		return -1;
	if (addr->src_addr.sa_family != dst->sa_family)
		return id_error(id, EINVAL,
				"source and destination have different address families");
	memcpy(&to, dst, address_len(dst));
	if (address_is_any(dst)) {
		address_loopback(dst->sa_family, &to);
		address_set_port((struct sockaddr *)&to, address_port(dst));
	}
	err = address_source(&addr->src_addr, (struct sockaddr *)&to, &addr->src_storage);
	if (!err)
		err = id_bind_device(id);
	if (err)
		return id_error(id, -err, "resolve %s", address_str(dst, name, sizeof(name)));
	addr->dst_storage = to;
	if (id->face == FACE_ROCE)
		roce_find_address(id);
	id_set_state(id, ID_ADDR_RESOLVED);
	event_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

STAG_EXPORT int rdma_resolve_addr(struct rdma_cm_id *cm, struct sockaddr *src_addr,
				  struct sockaddr *dst_addr, int timeout_ms)
{
	PASS_TO_REAL(resolve_addr(cm, src_addr, dst_addr, timeout_ms));
	int ret;

	engine_lock();
	ret = resolve_id(to_cm_id(cm), src_addr, dst_addr);
	return id_complete(to_cm_id(cm), ret);
}

static int resolve_route(struct cm_id *id)
{
	int err = 0;

	if (id->state != ID_ADDR_RESOLVED)
		return id_error(id, EINVAL, "resolving a route requires a resolved address");
	if (id->face == FACE_ROCE)
		err = roce_find_route(id);
	if (err)
		return id_error(id, -err, "a route");
	id_set_state(id, ID_ROUTE_RESOLVED);
	event_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

STAG_EXPORT int rdma_resolve_route(struct rdma_cm_id *cm, int timeout_ms)
{
	PASS_TO_REAL(resolve_route(cm, timeout_ms));
	int ret;

	engine_lock();
	ret = resolve_route(to_cm_id(cm));
	return id_complete(to_cm_id(cm), ret);
}
