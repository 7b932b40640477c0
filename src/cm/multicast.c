// SPDX-License-Identifier: BSD-2-Clause
/*
 * multicast.c - multicast groups of ids of the datagram service, on roce0.
 *
 * A group is an address: of IPv4, which stands for the MGID ::ffff:a.b.c.d as on RoCE v2, or of IPv6 or InfiniBand, which is the
 * MGID itself. The id's queue pair is attached, if it has one. iWARP has no datagrams: there the calls fail as the kernel's do.
 */
#include "cm/ud.h"

#include <assert.h>
#include <infiniband/ib.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/gid.h"
#include "adapter/mcast.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "wire/datagram.h"

struct cm_group {
	struct list link; /* in the id's groups */
	struct sockaddr_storage address;
	union ibv_gid mgid;
	uint32_t qpn; /* attached; 0: none is */
};

static size_t length_of(const struct sockaddr *a)
{
	return a->sa_family == AF_IB ? sizeof(struct sockaddr_ib) : address_len(a);
}

/* Returns false if the address is not that of a group. */
static bool mgid_of(const struct sockaddr *a, union ibv_gid *out)
{
	if (a->sa_family == AF_IB)
		memcpy(out, &((const struct sockaddr_ib *)a)->sib_addr, sizeof(*out));
	else
		gid_from_addr(a, out);
	return datagram_is_mgid(out->raw);
}

static void detach(struct cm_group *g)
{
	struct stag_qp *qp = g->qpn ? port_qp_by_num(g->qpn) : NULL;

	assert(engine_locked());
	if (qp && qp->ud)
		mcast_detach(qp, &g->mgid);
	g->qpn = 0;
}

static void leave(struct cm_group *g)
{
	detach(g);
	list_del(&g->link);
	free(g);
}

void groups_detach(struct cm_id *id)
{
	assert(engine_locked());
	list_for_each (it, &id->groups)
		detach(list_entry(it, struct cm_group, link));
}

void groups_leave(struct cm_id *id)
{
	assert(engine_locked());
	list_for_each_safe (it, &id->groups)
		leave(list_entry(it, struct cm_group, link));
}

static int attach(struct cm_id *id, struct cm_group *g)
{
	struct stag_qp *qp = id->has_qp ? port_qp_by_num(id->qpn) : NULL;
	int err;

	if (!qp || !qp->ud)
		return 0; /* the program attaches a queue pair of its own */
	err = mcast_attach(qp, &g->mgid);
	if (!err)
		g->qpn = id->qpn;
	return err;
}

/* As the kernel has it, an error of joining is an event, too. */
static void report(struct cm_id *id, const struct cm_group *g, int err, void *context)
{
	struct rdma_ud_param told = {.private_data = context};

	if (!err) {
		ud_path(id, &g->mgid, &told.ah_attr);
		told.qp_num = DATAGRAM_MULTICAST;
		told.qkey = id->qkey;
	}
	event_post_ud(id, err ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, err,
		      &told);
}

static int join(struct cm_id *id, const struct sockaddr *address, bool receives, void *context)
{
	struct cm_group *g;
	union ibv_gid mgid;
	int err = 0;

	assert(engine_locked());
	if (!id->cm.verbs)
		return id_error(id, EINVAL, "multicast on an id without a device");
	if (id->face != FACE_ROCE)
		return id_error(id, ENOSYS, "iWARP has no multicast");
	if (!is_ud(id) || (id->state != ID_BOUND && id->state != ID_ADDR_RESOLVED))
		return id_error(id, EINVAL,
				"joining requires an id of datagrams that is bound, or "
				"has resolved an address and nothing more");
	if (!address || !mgid_of(address, &mgid))
		return id_error(id, EINVAL, "the address is not that of a multicast group");
	g = calloc(1, sizeof(*g));
	if (!g)
		return id_error(id, ENOMEM, "join");
	memcpy(&g->address, address, length_of(address));
	g->mgid = mgid;
	list_add_tail(&id->groups, &g->link);
	if (!id->qkey)
		id->qkey = RDMA_UDP_QKEY;
	if (receives)
		err = attach(id, g);
	report(id, g, err, context);
	if (err)
		leave(g);
	return 0;
}

static int join_and_wait(struct rdma_cm_id *cm, const struct sockaddr *address, bool receives,
			 void *context)
{
	int ret;

	engine_lock();
	ret = join(to_cm_id(cm), address, receives, context);
	return id_complete(to_cm_id(cm), ret);
}

STAG_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	PASS_TO_REAL(join_multicast(id, addr, context));
	return join_and_wait(id, addr, true, context);
}

STAG_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
				       void *context)
{
	PASS_TO_REAL(join_multicast_ex(id, attr, context));
	bool flags = attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
	    !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS))
		return id_error(to_cm_id(id), ENOTSUP, "multicast attributes %#x are not supported",
				attr->comp_mask);
	if (flags && attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return id_error(to_cm_id(id), EINVAL, "multicast flag %u is not supported",
				attr->join_flags);
	return join_and_wait(id, attr->addr,
			     !flags || attr->join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
			     context);
}

static struct cm_group *find(struct cm_id *id, const struct sockaddr *address)
{
	size_t len = length_of(address);

	list_for_each (it, &id->groups) {
		struct cm_group *g = list_entry(it, struct cm_group, link);

		if (len && !memcmp(&g->address, address, len))
			return g;
	}
	return NULL;
}

STAG_EXPORT int rdma_leave_multicast(struct rdma_cm_id *cm, struct sockaddr *addr)
{
	PASS_TO_REAL(leave_multicast(cm, addr));
	struct cm_group *g;

	engine_lock();
	g = find(to_cm_id(cm), addr);
	if (g)
		leave(g);
	engine_unlock();
	return g ? 0 : id_error(to_cm_id(cm), EADDRNOTAVAIL, "not a member of that group");
}
