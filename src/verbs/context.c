// SPDX-License-Identifier: BSD-2-Clause
/*
 * context.c - the function pointers of a context that the inline functions of
 * <infiniband/verbs.h> call: the table of the data path, and the slots of verbs_context.
 *
 * For a slot that stays NULL the header's wrapper returns EOPNOTSUPP. The slots of the old
 * table have no such check, so each has a function.
 */
#include "verbs/verbs.h"

/* Unused slots of the old table: nothing built in the last ten years calls them. */
static void *no_such_op(void)
{
	return fail_with(EOPNOTSUPP);
}

static int close_no_xrcd(struct ibv_xrcd *xrcd)
{
	return EOPNOTSUPP;
}

static int old_query_port(struct ibv_context *context, uint8_t port,
			  struct _compat_ibv_port_attr *attr)
{
	return (ibv_query_port)(context, port, attr);
}

static const struct ibv_context_ops ops = {
	._compat_query_device = ibv_query_device,
	._compat_query_port = old_query_port,
	._compat_alloc_pd = no_such_op,
	._compat_dealloc_pd = no_such_op,
	._compat_reg_mr = no_such_op,
	._compat_rereg_mr = no_such_op,
	._compat_dereg_mr = no_such_op,
	.alloc_mw = verbs_alloc_mw,
	.bind_mw = verbs_bind_mw,
	.dealloc_mw = verbs_dealloc_mw,
	._compat_create_cq = no_such_op,
	.poll_cq = verbs_poll_cq,
	.req_notify_cq = verbs_req_notify_cq,
	._compat_cq_event = no_such_op,
	._compat_resize_cq = no_such_op,
	._compat_destroy_cq = no_such_op,
	._compat_create_srq = no_such_op,
	._compat_modify_srq = no_such_op,
	._compat_query_srq = no_such_op,
	._compat_destroy_srq = no_such_op,
	.post_srq_recv = verbs_post_srq_recv,
	._compat_create_qp = no_such_op,
	._compat_query_qp = no_such_op,
	._compat_modify_qp = no_such_op,
	._compat_destroy_qp = no_such_op,
	.post_send = verbs_post_send,
	.post_recv = verbs_post_recv,
	._compat_create_ah = no_such_op,
	._compat_destroy_ah = no_such_op,
	._compat_attach_mcast = no_such_op,
	._compat_detach_mcast = no_such_op,
	._compat_async_event = no_such_op,
};

static void fill_slots(struct verbs_context *v)
{
	v->query_port = verbs_query_port;
	v->advise_mr = verbs_advise_mr;
	v->alloc_parent_domain = verbs_alloc_parent_domain;
	v->alloc_td = verbs_alloc_td;
	v->dealloc_td = verbs_dealloc_td;
	v->modify_cq = verbs_modify_cq;
	v->query_rt_values = verbs_query_rt_values;
	v->create_cq_ex = verbs_create_cq_ex;
	v->query_device_ex = verbs_query_device_ex;
	v->create_qp_ex = verbs_create_qp_ex;
	v->get_srq_num = verbs_get_srq_num;
	v->create_srq_ex = verbs_create_srq_ex;
	v->close_xrcd = close_no_xrcd; /* the header calls it without a check */
	v->sz = sizeof(*v);
	v->context.ops = ops;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

int context_open(enum face face, struct stag_ctx **out)
{
	int err = ctx_create(face, out);

	if (!err)
		fill_slots(&(*out)->v);
	return err;
}

static struct stag_ctx *shared[FACES];
static struct lock shared_lock = LOCK_INITIALIZER;

struct ibv_context *stag_shared_context(enum face face)
{
	int err = 0;

	HOLD_FOR_SCOPE(&shared_lock);
	if (!shared[face])
		err = context_open(face, &shared[face]);
	FACE_RETURN(err, &shared[face]->v.context);
}

bool is_shared_context(const struct ibv_context *context)
{
	HOLD_FOR_SCOPE(&shared_lock);

	for (int f = 0; f < FACES; f++)
		if (shared[f] && &shared[f]->v.context == context)
			return true;
	return false;
}
