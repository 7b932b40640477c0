// SPDX-License-Identifier: BSD-2-Clause
/*
 * pd.c - protection domains, and the thread domains and parent domains that programs wrap them
 * in to say which threads share objects. Locking is the same for all.
 */
#include "verbs/verbs.h"

#include <stdlib.h>

STAG_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct stag_pd *pd = NULL;

	if (!is_ours(context))
		return real()->alloc_pd(context);
	FACE_RETURN(pd_alloc(to_stag_ctx(context), &pd), &pd->ibv);
}

STAG_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (!is_ours(pd->context))
		return real()->dealloc_pd(pd);
	return -pd_dealloc(to_stag_pd(pd));
}

struct ibv_td *verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	if (attr->comp_mask)
		return fail_with(EINVAL);

	struct ibv_td *td = calloc(1, sizeof(*td));

	if (td)
		td->context = context;
	return td;
}

int verbs_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr)
{
	struct stag_pd *pd = NULL;

	if (!attr->pd || to_stag_pd(attr->pd)->parent) {
		log_info("parent domain: needs a protection domain that is not a parent domain");
		return fail_with(EINVAL);
	}
	if (attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
		log_info("parent domain: custom allocators are not supported");
		return fail_with(EOPNOTSUPP);
	}

	int err = pd_alloc(to_stag_ctx(context), &pd);

	if (!err) {
		pd->parent = to_stag_pd(attr->pd);
		atomic_fetch_add(&pd->parent->users, 1);
	}
	FACE_RETURN(err, &pd->ibv);
}
