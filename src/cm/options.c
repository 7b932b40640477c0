// SPDX-License-Identifier: BSD-2-Clause
/*
 * options.c - rdma_set_option(), and the connection options (ECE), which an adapter without any
 * accepts and never sends.
 */
#include "cm/cm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int get_int(const void *val, size_t len, int *out)
{
	if (len != sizeof(*out))
		return -EINVAL;
	memcpy(out, val, len);
	return 0;
}

static int set_tos(struct cm_id *id, const void *val, size_t len)
{
	if (len != sizeof(id->tos))
		return -EINVAL;
	memcpy(&id->tos, val, len);
	id->has_tos = true;
	return 0;
}

static int set_reuse(struct cm_id *id, const void *val, size_t len)
{
	int on, err = get_int(val, len, &on);

	if (err)
		return err;
	if (id->state == ID_LISTENING || (!on && id->state != ID_IDLE))
		return -EINVAL;
	id->reuse = on;
	if (id->fd >= 0 && setsockopt(id->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		return -errno;
	return 0;
}

/* Binds another socket to the same port: IPV6_V6ONLY cannot change on a bound one. */
static int rebind(struct cm_id *id)
{
	const struct sockaddr *src = &id->cm.route.addr.src_addr;
	int fd;

	if (id->fd < 0 || src->sa_family != AF_INET6)
		return 0;
	close(id->fd);
	id->fd = -1;
	fd = socket_bound(id, src, BIND_PORT_NOW);
	if (fd < 0)
		return fd;
	id->fd = fd;
	return 0;
}

static int set_afonly(struct cm_id *id, const void *val, size_t len)
{
	int on, err = get_int(val, len, &on);

	if (err)
		return err;
	if (id->state != ID_IDLE && id->state != ID_BOUND)
		return -EINVAL;
	id->afonly = on;
	id->has_afonly = true;
	return rebind(id);
}

/*
 * How long a peer may leave bytes unacknowledged, or take none, before the connection ends: 4.096 us
 * times two to the power of the value; 0: TCP's own limits. As on InfiniBand it is for connections
 * that are set up later; and here for a request that is being answered, too. On roce0 it is the timeout of the queue
 * pair, where 0 is no limit.
 */
static int set_ack_timeout(struct cm_id *id, const void *val, size_t len)
{
	if (len != sizeof(id->ack_timeout) || id->cm.qp_type != IBV_QPT_RC)
		return -EINVAL;
	memcpy(&id->ack_timeout, val, len);
	id->ack_timeout &= ACK_TIMEOUT_MAX;
	id->has_ack_timeout = true;
	if (id->conn && id->conn->stream)
		socket_limit_silence(id, id->conn->stream->fd);
	return 0;
}

static int set_option(struct cm_id *id, int level, int name, const void *val, size_t len)
{
	if (level == RDMA_OPTION_IB)
		return name == RDMA_OPTION_IB_PATH ? -EINVAL : -ENOSYS;
	if (level != RDMA_OPTION_ID)
		return -ENOSYS;
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		return set_tos(id, val, len);
	case RDMA_OPTION_ID_REUSEADDR:
		return set_reuse(id, val, len);
	case RDMA_OPTION_ID_AFONLY:
		return set_afonly(id, val, len);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return set_ack_timeout(id, val, len);
	default:
		return -ENOSYS;
	}
}

STAG_EXPORT int rdma_set_option(struct rdma_cm_id *cm, int level, int optname, void *optval,
				size_t optlen)
{
	PASS_TO_REAL(set_option(cm, level, optname, optval, optlen));
	struct cm_id *id = to_cm_id(cm);
	int err;

	engine_lock();
	err = set_option(id, level, optname, optval, optlen);
	engine_unlock();
	if (err)
		return id_error(id, -err, "cannot set option %d of level %d with %zu bytes",
				optname, level, optlen);
	return 0;
}

STAG_EXPORT int rdma_set_local_ece(struct rdma_cm_id *cm, struct ibv_ece *ece)
{
	PASS_TO_REAL(set_local_ece(cm, ece));

	if (!cm || cm->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return id_error(
			cm ? to_cm_id(cm) : NULL, EINVAL,
			"connection options require a vendor, and an id without a queue pair");
	return 0;
}

STAG_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *cm, struct ibv_ece *ece)
{
	PASS_TO_REAL(get_remote_ece(cm, ece));

	if (!cm || cm->qp || !ece)
		return id_error(cm ? to_cm_id(cm) : NULL, EINVAL,
				"connection options require an id without a queue pair");
	*ece = (struct ibv_ece){0}; /* MPA carries no such options */
	return 0;
}
