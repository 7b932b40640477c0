// SPDX-License-Identifier: BSD-2-Clause
/*
 * multicast.c - multicast, which iWARP lacks, having no datagrams: returns the errors of the
 * kernel's rdma_cm on an iWARP device.
 */
#include "cm/cm.h"

static int join(struct cm_id *id)
{
	if (!id->cm.verbs)
		return id_error(id, EINVAL, "multicast on an id without a device");
	return id_error(id, ENOSYS, "iWARP has no multicast");
}

STAG_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	PASS_TO_REAL(join_multicast(id, addr, context));
	return join(to_cm_id(id));
}

STAG_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
				       void *context)
{
	PASS_TO_REAL(join_multicast_ex(id, attr, context));

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
	    !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS))
		return id_error(to_cm_id(id), ENOTSUP, "multicast attributes %#x are not supported",
				attr->comp_mask);
	if ((attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) &&
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return id_error(to_cm_id(id), EINVAL, "multicast flag %u is not supported",
				attr->join_flags);
	return join(to_cm_id(id));
}

STAG_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	PASS_TO_REAL(leave_multicast(id, addr));
	return id_error(to_cm_id(id), EADDRNOTAVAIL, "not a member of that group");
}
