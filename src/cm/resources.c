// SPDX-License-Identifier: BSD-2-Clause
/*
 * resources.c - queue pairs, completion queues and shared receive queues that belong to an id.
 *
 * A plain consumer of verbs: everything is created by ibv_* calls. If the program gives no
 * completion queues, the id gets some, with channels, for the helpers of <rdma/rdma_verbs.h>.
 */
#include "cm/ud.h"

#include <string.h>

#define QP_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	*cq = NULL;
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*channel = NULL;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
	destroy_cq(&id->send_cq, &id->send_cq_channel);
}

/* Creates a completion queue of size entries, with a channel of its own. Returns -1 and errno. */
static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq,
		     struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(id->verbs, size ? (int)size : 1, id, *channel, 0);
	if (*cq)
		return 0;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return -1;
}

static uint32_t srq_size(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr = {0};

	return srq && !ibv_query_srq(srq, &attr) ? attr.max_wr : 0;
}

/* Fills in completion queues that attr leaves open: the id's, created if necessary. */
static int fill_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	uint32_t recvs = attr->srq ? srq_size(attr->srq) : attr->cap.max_recv_wr;

	if (!attr->recv_cq && !id->recv_cq &&
	    create_cq(id, recvs, &id->recv_cq, &id->recv_cq_channel))
		return -1;
	if (!attr->send_cq && !id->send_cq &&
	    create_cq(id, attr->cap.max_send_wr, &id->send_cq, &id->send_cq_channel))
		return -1;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	return 0;
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = QP_ACCESS};
	int err = ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (err)
		errno = err;
	return err ? -1 : 0;
}

/*
 * Where ids may use both devices, an id that is not connecting yet takes the domain's. One that a peer's request made keeps
 * the peer's: the domain may be the other device's (stagdv.h), so that a server needs only one.
 */
static int check_pd(struct cm_id *id, const struct ibv_pd *pd)
{
	bool fits;

	engine_lock();
	fits = id_follow_pd(id, pd);
	engine_unlock();
	if (fits)
		return 0;
	log_warn("cm %u: its device is %s, and the protection domain for its queue pair belongs to "
		 "%s; STAG_DEVICE chooses the device of rdma_cm (stag run --device)",
		 id->num, id->cm.verbs->device->name, pd->context->device->name);
	errno = EINVAL;
	return -1;
}

static int check_qp_attr(struct rdma_cm_id *id, const struct ibv_qp_init_attr_ex *attr)
{
	struct cm_id *ours = to_cm_id(id);

	if (id->qp)
		return id_error(ours, EINVAL, "the id already has a queue pair");
	if (!id->verbs)
		return id_error(ours, EINVAL,
				"the id has no device yet: resolve an address, or bind");
	if (attr->pd && check_pd(ours, attr->pd))
		return -1;
	if ((id->recv_cq && attr->recv_cq && id->recv_cq != attr->recv_cq) ||
	    (id->send_cq && attr->send_cq && id->send_cq != attr->send_cq))
		return id_error(ours, EINVAL, "the id already has other completion queues");
	return 0;
}

/* The header's ibv_create_qp_ex() takes the domain's device if no other bit is set. */
static void insist_on_device(struct ibv_qp_init_attr_ex *attr)
{
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		return;
	attr->comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr->create_flags = 0;
}

static struct ibv_qp *create_qp(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;
	int err;

	if (fill_cqs(id, attr))
		return NULL;
	if (attr->pd->context != id->verbs)
		insist_on_device(attr);
	qp = ibv_create_qp_ex(id->verbs, attr);
	if (!qp)
		return NULL;
	if (is_ud(to_cm_id(id)) ? !ud_to_rts(to_cm_id(id), qp) : !to_init(qp))
		return qp;
	err = errno;
	ibv_destroy_qp(qp);
	errno = err;
	return NULL;
}

STAG_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	PASS_TO_REAL(create_qp_ex(id, attr));
	struct ibv_qp *qp;
	int err;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		attr->pd = NULL;
	if (check_qp_attr(id, attr))
		return -1;
	attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
	if (!attr->pd)
		attr->pd = id->pd;
	if (id->srq && !attr->srq)
		attr->srq = id->srq;
	qp = create_qp(id, attr);
	if (!qp) {
		err = errno;
		destroy_cqs(id);
		return id_error(to_cm_id(id), err, "cannot create a queue pair of type %d",
				(int)attr->qp_type);
	}
	id->pd = qp->pd;
	id->qp = qp;
	engine_lock();
	id_set_qp(to_cm_id(id), qp->qp_num);
	engine_unlock();
	return 0;
}

STAG_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			       struct ibv_qp_init_attr *attr)
{
	PASS_TO_REAL(create_qp(id, pd, attr));
	struct ibv_qp_init_attr_ex ex = {0};

	/* The extended form begins with the plain one, whose padding is its comp_mask. */
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0;
	ex.pd = pd;
	if (rdma_create_qp_ex(id, &ex))
		return -1;
	memcpy(attr, &ex, sizeof(*attr));
	return 0;
}

STAG_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	PASS_TO_REAL_VOID(destroy_qp(id));

	engine_lock();
	id_qp_gone(to_cm_id(id));
	engine_unlock();
	if (id->qp)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

STAG_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	PASS_TO_REAL(create_srq_ex(id, attr));
	struct ibv_srq *srq;

	if (!id->verbs)
		return id_error(to_cm_id(id), EINVAL, "the id has no device yet");
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq)
		return id_error(to_cm_id(id), errno, "cannot create a shared receive queue");
	id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

STAG_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
				struct ibv_srq_init_attr *attr)
{
	PASS_TO_REAL(create_srq(id, pd, attr));
	struct ibv_srq_init_attr_ex ex = {.srq_context = attr->srq_context, .attr = attr->attr};

	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.srq_type = IBV_SRQT_BASIC;
	ex.pd = pd;
	if (rdma_create_srq_ex(id, &ex))
		return -1;
	attr->attr = ex.attr;
	return 0;
}

STAG_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	PASS_TO_REAL_VOID(destroy_srq(id));

	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}

/*
 * For programs that modify their own queue pair. On stag0 gives the kernel's answer for iWARP; a queue pair
 * that is already connected needs no state.
 */
STAG_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *cm, struct ibv_qp_attr *attr, int *mask)
{
	PASS_TO_REAL(init_qp_attr(cm, attr, mask));
	struct cm_id *id = to_cm_id(cm);
	bool connected;
	int err = 0;

	engine_lock();
	connected = id->state == ID_CONNECTED;
	if (id->face == FACE_ROCE && is_ud(id))
		ud_init_attr(id, attr, mask);
	else if (id->face == FACE_ROCE)
		err = roce_qp_attr(id, attr, mask);
	engine_unlock();
	if (err)
		return id_error(id, -err, "no attributes for state %d yet", (int)attr->qp_state);
	if (id->face == FACE_ROCE)
		return 0;
	switch (attr->qp_state) {
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		*mask = IBV_QP_ACCESS_FLAGS | (connected ? 0 : IBV_QP_STATE);
		attr->qp_access_flags = QP_ACCESS;
		return 0;
	case IBV_QPS_RTS:
		*mask = 0;
		return 0;
	default:
		return id_error(id, EINVAL, "no attributes for state %d", (int)attr->qp_state);
	}
}
