// SPDX-License-Identifier: BSD-2-Clause
/*
 * ud.c - what the rdma_* calls do for an id of the datagram service on roce0.
 *
 * Order, status and contents of the events are those of the kernel's rdma_cm on RoCE: a peer that rejects, and a port where
 * nobody listens, are UNREACHABLE with a positive status, silence is UNREACHABLE with -ETIMEDOUT, and the passive side gets no
 * ESTABLISHED.
 */
#include "cm/ud.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "adapter/gid.h"

#define HOP_LIMIT 64

/* ---- Q_Keys and queue pairs ---------------------------------------------- */

/* An id has one Q_Key: the first that it was given, or the default. Returns false if it has another one. */
static bool set_qkey(struct cm_id *id, uint32_t qkey)
{
	if (!id->qkey)
		id->qkey = qkey ? qkey : RDMA_UDP_QKEY;
	return !qkey || qkey == id->qkey;
}

void ud_init_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	assert(engine_locked());
	set_qkey(id, 0);
	attr->pkey_index = 0;
	attr->port_num = id->cm.port_num;
	attr->qkey = id->qkey;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
}

int ud_to_rts(struct cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask, err;

	engine_lock();
	ud_init_attr(id, &attr, &mask);
	engine_unlock();
	err = ibv_modify_qp(qp, &attr, mask);
	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (err)
		errno = err;
	return err ? -1 : 0;
}

void ud_path(const struct cm_id *id, const union ibv_gid *to, struct ibv_ah_attr *out)
{
	union ibv_gid mine;
	int index;

	gid_from_addr(&id->cm.route.addr.src_addr, &mine);
	index = gid_index_from(&mine);
	*out = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = id->cm.port_num,
		.grh = {.dgid = *to,
			.sgid_index = index < 0 ? 0 : (uint8_t)index,
			.hop_limit = HOP_LIMIT,
			.traffic_class = id->has_tos ? id->tos : 0},
	};
}

/* ---- the asking side ----------------------------------------------------- */

static int check_face(struct cm_id *id)
{
	if (id->face != FACE_ROCE)
		return id_error(id, EOPNOTSUPP, "iWARP has no datagrams");
	if (id->tls.chosen && id->tls.mode == TLS_REQUIRED)
		return id_error(id, EPROTONOSUPPORT, "datagrams cannot be encrypted");
	return 0;
}

/* Takes the id's socket, or opens one. */
static int asking_socket(struct cm_id *id)
{
	struct sockaddr_storage src = id->cm.route.addr.src_storage;
	int fd = id->fd;

	id->fd = -1;
	if (fd >= 0)
		return fd;
	address_set_port((struct sockaddr *)&src, 0);
	return socket_bound(id, (struct sockaddr *)&src, BIND_PORT_LATE);
}

/* Concatenates rdma_create_ep()'s private data and the call's own. Returns the length, or -1 and errno. */
static int join_private(struct cm_id *id, const struct rdma_conn_param *param, size_t most,
			uint8_t *out)
{
	size_t own = param && param->private_data ? param->private_data_len : 0;

	if (id->ep_private_len > most || own > most - id->ep_private_len)
		return id_error(id, EINVAL, "more than %zu bytes of private data", most);
	if (id->ep_private_len)
		memcpy(out, id->ep_private, id->ep_private_len);
	if (own)
		memcpy(out + id->ep_private_len, param->private_data, own);
	return (int)(id->ep_private_len + own);
}

int ud_connect(struct cm_id *id, const struct rdma_conn_param *param)
{
	socklen_t addr_len = sizeof(id->cm.route.addr.src_storage);
	uint8_t data[LOOKUP_ASK_PRIVATE];
	int fd, len, err;

	assert(engine_locked());
	if (id->state != ID_ROUTE_RESOLVED)
		return id_error(id, EINVAL, "connecting requires a resolved route");
	if (check_face(id))
		return -1;
	len = join_private(id, param, sizeof(data), data);
	if (len < 0)
		return -1;
	fd = asking_socket(id);
	err = fd < 0 ? fd : lookup_start(id, fd, data, (uint8_t)len, &id->lookup);
	if (err)
		return id_error(id, -err, "look up");
	getsockname(fd, &id->cm.route.addr.src_addr, &addr_len);
	id_set_state(id, ID_CONNECTING);
	return 0;
}

static void report_found(struct cm_id *id, struct rdma_ud_param *told, const struct lookup_msg *m)
{
	union ibv_gid to;

	if (!set_qkey(id, m->qkey)) {
		id_set_state(id, ID_CLOSED);
		event_post_ud(id, RDMA_CM_EVENT_ADDR_ERROR, -EINVAL, told);
		return;
	}
	gid_from_addr(&id->cm.route.addr.dst_addr, &to);
	ud_path(id, &to, &told->ah_attr);
	told->qp_num = m->qpn;
	told->qkey = m->qkey;
	id_set_state(id, ID_CONNECTED);
	event_post_ud(id, RDMA_CM_EVENT_ESTABLISHED, 0, told);
}

void ud_looked_up(struct cm_id *id, int status, const struct lookup_msg *m)
{
	struct rdma_ud_param told = {.private_data_len = m ? LOOKUP_ANS_PRIVATE : 0};

	assert(engine_locked());
	if (m)
		told.private_data = m->private_data;
	if (m && status == LOOKUP_FOUND) {
		report_found(id, &told, m);
		return;
	}
	id_set_state(id, ID_CLOSED);
	event_post_ud(id, RDMA_CM_EVENT_UNREACHABLE, status, &told);
}

/* ---- the passive side ---------------------------------------------------- */

int ud_listen(struct cm_id *id, int backlog)
{
	int err;

	assert(engine_locked());
	if (check_face(id))
		return -1;
	if (id->state != ID_BOUND)
		return id_error(id, EINVAL, "only a bound id can listen");
	err = lookup_listen(id, id->fd, &id->lookups);
	if (err)
		return id_error(id, -err, "listen");
	id->fd = -1;
	id_set_state(id, ID_LISTENING);
	return 0;
}

int ud_accept(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct lookup_msg m = {.status = LOOKUP_FOUND};
	int len;

	assert(engine_locked());
	if (id->state != ID_REQUESTED || !id->request)
		return id_error(id, EINVAL, "there is no request to accept");
	len = join_private(id, param, LOOKUP_ANS_PRIVATE, m.private_data);
	if (len < 0)
		return -1;
	m.private_len = (uint8_t)len;
	set_qkey(id, 0);
	m.qkey = id->qkey;
	m.qpn = id->cm.qp ? id->cm.qp->qp_num : param ? param->qp_num & 0xffffff : 0;
	if (!lookup_is_number(m.qpn))
		return id_error(id, EINVAL, "there is no queue pair to answer with");
	id_set_state(id, ID_ACCEPTING);
	id_set_state(id, ID_CONNECTED);
	lookup_answer(id, &m);
	return 0;
}

int ud_reject(struct cm_id *id, const void *data, uint8_t len)
{
	struct lookup_msg m = {.status = LOOKUP_REJECTED, .private_len = data ? len : 0};

	assert(engine_locked());
	if (id->state != ID_REQUESTED || !id->request)
		return id_error(id, EINVAL, "there is no request to reject");
	if (m.private_len > LOOKUP_ANS_PRIVATE)
		return id_error(id, EINVAL, "more than %u bytes of private data",
				LOOKUP_ANS_PRIVATE);
	if (m.private_len)
		memcpy(m.private_data, data, m.private_len);
	id_set_state(id, ID_CLOSED);
	lookup_answer(id, &m);
	return 0;
}

int ud_disconnect(struct cm_id *id)
{
	assert(engine_locked());
	if (id->state < ID_CONNECTING)
		return id_error(id, EINVAL, "the id is not connected");
	return 1; /* there is no connection: no event comes, and a lookup goes on */
}

void ud_delivered(struct cm_id *listener)
{
	assert(engine_locked());
	if (listener->lookups)
		lookup_delivered(listener->lookups);
}

/* A request without an answer is rejected. */
void ud_close(struct cm_id *id)
{
	assert(engine_locked());
	lookup_destroy(id->lookup);
	lookup_listener_destroy(id->lookups);
	id->lookups = NULL;
	if (id->request)
		lookup_answer(id, &(struct lookup_msg){.status = LOOKUP_REJECTED});
	groups_leave(id);
}
