// SPDX-License-Identifier: BSD-2-Clause
/*
 * srq.c - shared receive queues of the basic type.
 */
#include "verbs/verbs.h"

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_attr *attr, void *srq_context)
{
	struct stag_srq *srq = NULL;

	FACE_RETURN(srq_create(to_stag_ctx(pd->context), to_stag_pd(pd), attr, srq_context, &srq),
		    &srq->ibv);
}

STAG_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (!is_ours(pd->context))
		return real()->create_srq(pd, attr);
	return create_srq(pd, &attr->attr, attr->srq_context);
}

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC) {
		log_info("srq: type %d not supported by iWARP", attr->srq_type);
		return fail_with(EOPNOTSUPP);
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		log_info("srq: no protection domain");
		return fail_with(EINVAL);
	}
	return create_srq(attr->pd, &attr->attr, attr->srq_context);
}

STAG_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	if (!is_ours(srq->context))
		return real()->modify_srq(srq, attr, mask);
	return -srq_modify(to_stag_srq(srq), attr, mask);
}

STAG_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	if (!is_ours(srq->context))
		return real()->query_srq(srq, attr);
	srq_query(to_stag_srq(srq), attr);
	return 0;
}

STAG_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (!is_ours(srq->context))
		return real()->destroy_srq(srq);
	return -srq_destroy(to_stag_srq(srq));
}

int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	*num = to_stag_srq(srq)->num;
	return 0;
}

int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return -srq_post(to_stag_srq(srq), wr, bad);
}
