// SPDX-License-Identifier: BSD-2-Clause
/*
 * roce.c - ids of roce0: what a connection's messages say, and what they make of its queue pair.
 *
 * The attributes are those that Linux' connection manager gives (drivers/infiniband/core/cm.c, cm_init_qp_..._attr()), and
 * the queue pair goes through INIT, RTR and RTS by the same code as with ibv_modify_qp().
 */
#include "cm/cm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/gid.h"
#include "adapter/port.h"
#include "base/random.h"

#define PSN_MASK	0xffffff
#define DEFAULT_TIMEOUT 18 /* 1.07 s, as hardware has with Linux' rdma_cm */
#define HOP_LIMIT	64
#define EXACTLY		2 /* of a path's selectors */
#define READS		(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

uint8_t roce_depth(uint8_t told)
{
	return told < STAG_MAX_RD_ATOM ? told : STAG_MAX_RD_ATOM;
}

uint8_t roce_space(const struct cm_id *id)
{
	return id->cm.ps == RDMA_PS_IB ? CM_SPACE_IB : CM_SPACE_TCP;
}

static uint8_t timeout_of(const struct cm_id *id, uint8_t otherwise)
{
	return id->has_ack_timeout ? id->ack_timeout : otherwise;
}

/* ---- addresses --------------------------------------------------------- */

/* The index of a link-local address' interface; 0: of any other address. */
static uint32_t interface_of(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_scope_id : 0;
}

/* Returns the entry of an address; or else one of the same interface, or the first. */
static unsigned gid_index_of(const struct sockaddr *a)
{
	uint32_t ifindex = interface_of(a);
	struct gid_entry e;
	union ibv_gid gid;
	int at;

	gid_from_addr(a, &gid);
	at = gid_index(&gid);
	if (at >= 0)
		return (unsigned)at;
	for (unsigned i = 0; ifindex && i < gid_table_len(); i++)
		if (gid_get(i, &e) && e.ifindex == ifindex)
			return i;
	return 0;
}

void roce_find_address(struct cm_id *id)
{
	struct rdma_addr *addr = &id->cm.route.addr;
	struct id_path *p = &id->path;
	struct gid_entry e = {.ifindex = 0};

	assert(engine_locked());
	p->sgid_index = (uint8_t)gid_index_of(&addr->src_addr);
	gid_get(p->sgid_index, &e);
	p->gid = e.gid;
	if (addr->dst_addr.sa_family)
		gid_from_addr(&addr->dst_addr, &p->peer_gid);
	addr->addr.ibaddr.sgid = p->gid;
	addr->addr.ibaddr.dgid = p->peer_gid;
	addr->addr.ibaddr.pkey = htobe16(0xffff);
}

/* Linux makes one path for RoCE, of what it knows anyway; programs may look at it. */
int roce_find_route(struct cm_id *id)
{
	struct rdma_route *route = &id->cm.route;
	struct ibv_sa_path_rec *rec = calloc(1, sizeof(*rec));

	assert(engine_locked());
	if (!rec)
		return -ENOMEM;
	rec->sgid = id->path.gid;
	rec->dgid = id->path.peer_gid;
	rec->hop_limit = HOP_LIMIT;
	rec->traffic_class = id->has_tos ? id->tos : 0;
	rec->reversible = 1;
	rec->numb_path = 1;
	rec->pkey = htobe16(0xffff);
	rec->mtu_selector = rec->rate_selector = rec->packet_life_time_selector = EXACTLY;
	rec->mtu = (uint8_t)gid_mtu();
	rec->rate = IBV_RATE_100_GBPS; /* as the port says */
	rec->packet_life_time = timeout_of(id, DEFAULT_TIMEOUT);
	if (rec->packet_life_time) /* half of the way there and back */
		rec->packet_life_time--;
	free(route->path_rec);
	route->path_rec = rec;
	route->num_paths = 1;
	return 0;
}

/* ---- messages ---------------------------------------------------------- */

/* The fields that REQ and REP have in common. */
static void describe(struct cm_id *id, const struct conn_wish *w, struct cm_message *m)
{
	struct id_path *p = &id->path;

	p->initiator_depth = (uint8_t)w->ord;
	p->responder_resources = (uint8_t)w->ird;
	m->srq = w->srq;
	m->flow_control = w->flow_control;
	m->qpn = w->qpn & PSN_MASK;
	m->psn = p->rq_psn;
	m->initiator_depth = p->initiator_depth;
	m->responder_resources = p->responder_resources;
	m->retry_count = p->retry_count;
	m->rnr_retry_count = w->rnr_retry_count;
	m->mtu = p->mtu;
	m->timeout = p->timeout;
	memcpy(m->gid, p->gid.raw, sizeof(m->gid));
	memcpy(m->private_data, w->private_data, w->private_len);
}

void roce_request(struct cm_id *id, const struct conn_wish *w, struct cm_message *m)
{
	struct id_path *p = &id->path;

	assert(engine_locked());
	p->begun = true;
	p->rq_psn = random_u32() & PSN_MASK;
	p->retry_count = w->retry_count;
	p->mtu = (uint8_t)gid_mtu();
	p->timeout = timeout_of(id, DEFAULT_TIMEOUT);
	*m = (struct cm_message){.kind = CM_REQ, .space = roce_space(id)};
	describe(id, w, m);
}

void roce_reply(struct cm_id *id, const struct conn_wish *w, struct cm_message *m)
{
	*m = (struct cm_message){.kind = CM_REP};
	describe(id, w, m);
}

/* Keeps the fields that REQ and REP have in common. */
static void take_peer(struct id_path *p, const struct cm_message *m)
{
	p->begun = p->known = true;
	p->peer_qpn = m->qpn;
	p->sq_psn = m->psn;
	p->initiator_depth = roce_depth(m->responder_resources);
	p->responder_resources = roce_depth(m->initiator_depth);
	p->rnr_retry_count = m->rnr_retry_count;
	memcpy(p->peer_gid.raw, m->gid, sizeof(m->gid));
}

void roce_requested(struct cm_id *child, const struct cm_message *req)
{
	struct id_path *p = &child->path;

	assert(engine_locked());
	roce_find_address(child);
	take_peer(p, req);
	p->rq_psn = random_u32() & PSN_MASK;
	p->retry_count = req->retry_count;
	p->mtu = req->mtu;
	p->timeout = req->timeout;
}

void roce_replied(struct cm_id *id, const struct cm_message *rep)
{
	assert(engine_locked());
	take_peer(&id->path, rep);
}

void roce_accepting(struct cm_id *id, const struct conn_wish *w)
{
	id->path.initiator_depth = (uint8_t)w->ord;
	id->path.responder_resources = (uint8_t)w->ird;
	id->path.timeout = timeout_of(id, id->path.timeout);
}

/* ---- the queue pair ---------------------------------------------------- */

static void init_attr(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	const struct id_path *p = &id->path;

	*mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->pkey_index = 0;
	a->port_num = 1;
	a->qp_access_flags = !p->begun		      ? 0
			     : p->responder_resources ? IBV_ACCESS_REMOTE_WRITE | READS
						      : IBV_ACCESS_REMOTE_WRITE;
}

static void rtr_attr(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	const struct id_path *p = &id->path;

	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	a->ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = p->peer_gid,
			.sgid_index = p->sgid_index,
			.hop_limit = HOP_LIMIT,
			.traffic_class = id->has_tos ? id->tos : 0},
	};
	a->path_mtu = (enum ibv_mtu)p->mtu;
	a->dest_qp_num = p->peer_qpn;
	a->rq_psn = p->rq_psn;
	a->max_dest_rd_atomic = p->responder_resources;
	a->min_rnr_timer = 0;
}

static void rts_attr(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	const struct id_path *p = &id->path;

	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT;
	a->sq_psn = p->sq_psn;
	a->retry_cnt = p->retry_count;
	a->rnr_retry = p->rnr_retry_count;
	a->max_rd_atomic = p->initiator_depth;
	a->timeout = timeout_of(id, p->timeout);
}

int roce_qp_attr(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	assert(engine_locked());
	if (attr->qp_state != IBV_QPS_INIT && !id->path.known)
		return -EINVAL;
	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		init_attr(id, attr, mask);
		return 0;
	case IBV_QPS_RTR:
		rtr_attr(id, attr, mask);
		return 0;
	case IBV_QPS_RTS:
		rts_attr(id, attr, mask);
		return 0;
	default:
		return -EINVAL;
	}
}

int roce_to_rts(struct cm_id *id)
{
	static const enum ibv_qp_state way[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	struct stag_qp *qp = id_find_qp(id);
	int err = qp ? 0 : -EINVAL;

	for (size_t i = 0; i < sizeof(way) / sizeof(*way) && !err; i++) {
		struct ibv_qp_attr attr = {.qp_state = way[i]};
		int mask;

		err = roce_qp_attr(id, &attr, &mask);
		if (!err)
			err = qp_modify(qp, &attr, mask);
	}
	if (err)
		log_info("cm %u: queue pair %u cannot be connected: %s", id->num, id->qpn,
			 strerror(-err));
	return err;
}

void roce_to_err(struct cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct stag_qp *qp = id_find_qp(id);

	if (qp && __atomic_load_n(&qp->ibv.state, __ATOMIC_RELAXED) != IBV_QPS_RESET)
		qp_modify(qp, &attr, IBV_QP_STATE);
}
