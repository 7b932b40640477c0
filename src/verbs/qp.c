// SPDX-License-Identifier: BSD-2-Clause
/* qp.c - queue pairs: reliable connected ones; on roce0 also datagrams and unreliable connected ones. */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#define SUPPORTED_MASK                                                                             \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

/* The operations that ibv_wr_*() has for a type. */
static uint64_t supported_ops(enum ibv_qp_type type)
{
	uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	switch (type) {
	case IBV_QPT_UD:
		return sends;
	case IBV_QPT_UC:
		return sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
		       IBV_QP_EX_WITH_SEND_WITH_INV;
	default:
		return WR_SUPPORTED_OPS;
	}
}

static int mask_check(const struct ibv_qp_init_attr_ex *attr)
{
	uint64_t ops = supported_ops(attr->qp_type);

	if (attr->comp_mask & ~(uint32_t)SUPPORTED_MASK) {
		log_info("qp: attributes not supported, comp_mask %#x", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) {
		log_info("qp: create flags %#x not supported", attr->create_flags);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops)) {
		log_info("qp: send operations %#llx not supported",
			 (unsigned long long)(attr->send_ops_flags & ~ops));
		return -EOPNOTSUPP;
	}
	return 0;
}

static bool same_device(const struct ibv_context *a, const struct ibv_context *b)
{
	return a->device == b->device;
}

/* Do the parts belong to one device of ours? The adapter checks the rest. */
static int parts_check(const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !is_ours(attr->pd->context)) {
		log_info("qp: no protection domain of this device");
		return -EINVAL;
	}
	if ((attr->send_cq && !same_device(attr->send_cq->context, attr->pd->context)) ||
	    (attr->recv_cq && !same_device(attr->recv_cq->context, attr->pd->context))) {
		log_info("qp: the completion queues belong to another device");
		return -EINVAL;
	}
	if (attr->srq && !same_device(attr->srq->context, attr->pd->context)) {
		log_info("qp: the shared receive queue belongs to another device");
		return -EINVAL;
	}
	return 0;
}

static bool has_type(enum face face, enum ibv_qp_type type)
{
	if (face == FACE_ROCE && (type == IBV_QPT_UD || type == IBV_QPT_UC))
		return true;
	return type == IBV_QPT_RC;
}

static int create_check(enum face face, const struct ibv_qp_init_attr_ex *attr)
{
	if (!has_type(face, attr->qp_type)) {
		log_info("qp: type %d; %s", attr->qp_type,
			 face == FACE_ROCE ? "roce0 has RC, UC and UD" : "iWARP has only RC");
		return -EOPNOTSUPP;
	}

	int err = mask_check(attr);

	return err ? err : parts_check(attr);
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct stag_qp *qp = NULL;
	int err = create_check(face_of(context), attr);

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
	if (face_of(qp->context) == FACE_IWARP && (mask & IBV_QP_PORT) && attr->port_num != 1) {
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
	if (face_of(qp->context) == FACE_IWARP && attr->qp_state == IBV_QPS_RESET)
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
