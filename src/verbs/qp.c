// SPDX-License-Identifier: BSD-2-Clause
/* qp.c - queue pairs: reliable connected ones; iWARP has no others. */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#define SUPPORTED_MASK                                                                             \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

static int mask_check(const struct ibv_qp_init_attr_ex *attr)
{
	if (attr->comp_mask & ~(uint32_t)SUPPORTED_MASK) {
		log_info("qp: attributes not supported by iWARP, comp_mask %#x", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) {
		log_info("qp: create flags %#x not supported by iWARP", attr->create_flags);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    (attr->send_ops_flags & ~(uint64_t)WR_SUPPORTED_OPS)) {
		log_info("qp: send operations %#llx not supported by iWARP",
			 (unsigned long long)(attr->send_ops_flags & ~(uint64_t)WR_SUPPORTED_OPS));
		return -EOPNOTSUPP;
	}
	return 0;
}

/* Do the parts belong to our device? The adapter checks the rest. */
static int parts_check(const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !is_ours(attr->pd->context)) {
		log_info("qp: no protection domain of this device");
		return -EINVAL;
	}
	if ((attr->send_cq && !is_ours(attr->send_cq->context)) ||
	    (attr->recv_cq && !is_ours(attr->recv_cq->context))) {
		log_info("qp: the completion queues belong to another device");
		return -EINVAL;
	}
	if (attr->srq && !is_ours(attr->srq->context)) {
		log_info("qp: the shared receive queue belongs to another device");
		return -EINVAL;
	}
	return 0;
}

static int create_check(const struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type != IBV_QPT_RC) {
		log_info("qp: type %d; iWARP has only RC", attr->qp_type);
		return -EOPNOTSUPP;
	}

	int err = mask_check(attr);

	return err ? err : parts_check(attr);
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct stag_qp *qp = NULL;
	int err = create_check(attr);

	if (!err)
		err = qp_create(to_stag_ctx(context), attr, &qp);
	if (!err && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		wr_init(qp);
	FACE_RETURN(err, &qp->ibv);
}

STAG_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {0};

	if (!is_ours(pd->context))
		return real()->create_qp(pd, attr);
	/*
	 * The older structure is the head of the newer one; comp_mask is in place of its
	 * padding.
	 */
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;

	struct ibv_qp *qp = verbs_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

STAG_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	if (!is_ours(qp->context))
		return real()->qp_to_qp_ex(qp);
	return to_stag_qp(qp)->config.has_send_ops ? &to_stag_qp(qp)->ibv_ex : NULL;
}

STAG_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (!is_ours(qp->context))
		return foreign_modify_qp(qp, attr, mask);
	if ((mask & IBV_QP_PORT) && attr->port_num != 1) {
		log_info("qp %u: no port %u", qp->qp_num, attr->port_num);
		return EINVAL;
	}
	return -qp_modify(to_stag_qp(qp), attr, mask);
}

STAG_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			     struct ibv_qp_init_attr *init)
{
	if (!is_ours(qp->context))
		return real()->query_qp(qp, attr, mask, init);
	qp_query(to_stag_qp(qp), attr, init);
	/* RFC 5040 has one idle state, and an RNIC reports it as INIT. */
	if (attr->qp_state == IBV_QPS_RESET)
		attr->qp_state = attr->cur_qp_state = IBV_QPS_INIT;
	return 0;
}

STAG_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (!is_ours(qp->context))
		return foreign_destroy_qp(qp);
	return -qp_destroy(to_stag_qp(qp));
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return -qp_post_send(to_stag_qp(qp), wr, bad);
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return -qp_post_recv(to_stag_qp(qp), wr, bad);
}

/*
 * Bytes are placed as the stream delivers them, so always in order. With flags (rdma-core 46
 * and later) the result is a mask of what is in order: everything.
 */
STAG_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	enum { RETURN_CAPS = 1, WHOLE_MSG = 1, ALIGNED_128_BYTES = 2 };

	if (!is_ours(qp->context))
		return real()->query_qp_data_in_order
			       ? real()->query_qp_data_in_order(qp, op, flags)
			       : 0;
	return flags & RETURN_CAPS ? WHOLE_MSG | ALIGNED_128_BYTES : 1;
}

/* Enhanced connection establishment is an InfiniBand option. */
STAG_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_ours(qp->context) || !real()->set_ece)
		return EOPNOTSUPP;
	return real()->set_ece(qp, ece);
}

STAG_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_ours(qp->context) || !real()->query_ece)
		return EOPNOTSUPP;
	return real()->query_ece(qp, ece);
}
