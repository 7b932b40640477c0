// SPDX-License-Identifier: BSD-2-Clause
/*
 * mw.c - memory windows; binding one of type 2 is a work request (wr.c, sq.c).
 */
#include "verbs/verbs.h"

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct stag_mw *mw = NULL;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		log_info("mw: unknown type %d", type);
		return fail_with(EINVAL);
	}
	FACE_RETURN(mw_alloc(to_stag_pd(pd), type, &mw), &mw->ibv);
}

int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return -qp_bind_mw1(to_stag_qp(qp), to_stag_mw(mw), bind);
}

int verbs_dealloc_mw(struct ibv_mw *mw)
{
	return -mw_dealloc(to_stag_mw(mw));
}
