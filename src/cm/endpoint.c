// SPDX-License-Identifier: BSD-2-Clause
/* endpoint.c - rdma_create_ep() and rdma_get_request(): complete ids, for synchronous programs. */
#include "cm/cm.h"

#include <stdlib.h>
#include <string.h>

#define RESOLVE_TIMEOUT_MS 2000

static int keep_private(struct cm_id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_connect_len)
		return 0;
	id->ep_private = malloc(res->ai_connect_len);
	if (!id->ep_private)
		return id_error(id, ENOMEM, "no memory for the private data of an endpoint");
	memcpy(id->ep_private, res->ai_connect, res->ai_connect_len);
	id->ep_private_len = res->ai_connect_len;
	return 0;
}

/* Stores a listener's queue pair attributes for its children. */
static int make_passive(struct cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->cm, res->ai_src_addr))
		return -1;
	if (!attr)
		return 0;
	id->ep_attr = malloc(sizeof(*attr));
	if (!id->ep_attr)
		return id_error(id, ENOMEM, "no memory for the attributes of an endpoint");
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	id->ep_pd = pd;
	if (pd)
		id->cm.pd = pd;
	return 0;
}

static int make_active(struct cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		       struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->cm, res->ai_src_addr, res->ai_dst_addr, RESOLVE_TIMEOUT_MS) ||
	    rdma_resolve_route(&id->cm, RESOLVE_TIMEOUT_MS))
		return -1;
	if (attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(&id->cm, pd, attr))
			return -1;
	}
	return keep_private(id, res);
}

STAG_EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res,
			       struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	PASS_TO_REAL(create_ep(out, res, pd, attr));
	struct rdma_cm_id *cm;
	int ret, err;

	if (rdma_create_id(NULL, &cm, NULL, (enum rdma_port_space)res->ai_port_space))
		return -1;
	cm->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	if (res->ai_flags & RAI_PASSIVE)
		ret = make_passive(to_cm_id(cm), res, pd, attr);
	else
		ret = make_active(to_cm_id(cm), res, pd, attr);
	if (ret) {
		err = errno;
		rdma_destroy_ep(cm);
		errno = err;
		return -1;
	}
	*out = cm;
	return 0;
}

STAG_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	PASS_TO_REAL_VOID(destroy_ep(id));

	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* Turns a request's event into an id; on failure the event still belongs to the listener. */
static int request_to_id(struct cm_id *listener, struct rdma_cm_event *ev)
{
	struct ibv_qp_init_attr attr;

	if (ev->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return id_error(listener, EINVAL, "event %s instead of a connection request",
				rdma_event_str(ev->event));
	if (!listener->ep_attr)
		return 0;
	attr = *listener->ep_attr;
	return rdma_create_qp(ev->id, listener->ep_pd, &attr);
}

STAG_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	PASS_TO_REAL(get_request(listen, out));
	struct cm_id *listener = to_cm_id(listen);
	struct rdma_cm_event *ev;

	if (!listener->sync)
		return id_error(listener, EINVAL, "an asynchronous id gets its requests as events");
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &ev))
		return -1;
	if (request_to_id(listener, ev)) {
		listen->event = ev;
		return -1;
	}
	ev->id->event = ev;
	*out = ev->id;
	return 0;
}
