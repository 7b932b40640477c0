// SPDX-License-Identifier: BSD-2-Clause
/*
 * newer.c - calls of rdma-core 59 and later that the adapter's devices do not support.
 *
 * They have to be here: the real library would take a context of ours for one of its own. The objects that some of
 * them create are never ours. Only the first member of these is known here, which is the context.
 */
#include "verbs/verbs.h"

enum { MR_IOVA = 1 << 0, MR_ADDR = 1 << 1 }; /* enum ibv_mr_init_attr_mask */

/* The beginning of struct ibv_mr_init_attr; a member is set if comp_mask says so. */
struct mr_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
};

/* Passes a call on, or returns what it fails with if the real library is older than the function. */
#define PASS_ON(name, failure, ...) (real()->name ? real()->name(__VA_ARGS__) : (failure))

static int fail_fd(int err)
{
	errno = err;
	return -1;
}

/* ---- memory ---- */

STAG_EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context,
					    struct ibv_dmah_init_attr *attr)
{
	if (is_ours(context))
		return fail_with(EOPNOTSUPP);
	return PASS_ON(alloc_dmah, fail_with(EOPNOTSUPP), context, attr);
}

STAG_EXPORT int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	return PASS_ON(dealloc_dmah, EOPNOTSUPP, dmah);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, const struct mr_attr *a)
{
	if (a->comp_mask & ~(uint64_t)(MR_IOVA | MR_ADDR))
		return fail_with(EOPNOTSUPP);
	if (!(a->comp_mask & MR_ADDR))
		return fail_with(EINVAL);
	return ibv_reg_mr_iova2(pd, a->addr, a->length,
				a->comp_mask & MR_IOVA ? a->iova : (uintptr_t)a->addr,
				(unsigned)a->access);
}

STAG_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	if (is_ours(pd->context))
		return reg_mr(pd, (const struct mr_attr *)attr);
	return PASS_ON(reg_mr_ex, fail_with(EOPNOTSUPP), pd, attr);
}

STAG_EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	return PASS_ON(dm_export_dmabuf_fd, fail_fd(EOPNOTSUPP), dm);
}

STAG_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	if (is_ours(pd->context))
		return fail_with(EOPNOTSUPP);
	return PASS_ON(alloc_buf, fail_with(EOPNOTSUPP), pd, size, buf);
}

STAG_EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	if (real()->free_buf)
		real()->free_buf(buf);
}

/* A buffer of another device does not belong to a domain of ours. */
STAG_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
					  size_t length, int access)
{
	if (is_ours(pd->context))
		return fail_with(EINVAL);
	return PASS_ON(reg_buf_mr, fail_with(EOPNOTSUPP), pd, buf, addr, length, access);
}

STAG_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	return PASS_ON(export_buf_dmabuf_fd, fail_fd(EOPNOTSUPP), buf);
}

/* ---- completion counters ---- */

STAG_EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context,
					  struct ibv_comp_cntr_caps *caps, size_t size)
{
	if (is_ours(context))
		return EOPNOTSUPP;
	return PASS_ON(query_comp_cntr_caps, EOPNOTSUPP, context, caps, size);
}

STAG_EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
						       struct ibv_comp_cntr_init_attr *attr)
{
	if (is_ours(context))
		return fail_with(EOPNOTSUPP);
	return PASS_ON(create_comp_cntr, fail_with(EOPNOTSUPP), context, attr);
}

STAG_EXPORT int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter)
{
	return PASS_ON(destroy_comp_cntr, EOPNOTSUPP, counter);
}

STAG_EXPORT int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return PASS_ON(set_comp_cntr, EOPNOTSUPP, counter, value);
}

STAG_EXPORT int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return PASS_ON(set_err_comp_cntr, EOPNOTSUPP, counter, value);
}

STAG_EXPORT int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return PASS_ON(inc_comp_cntr, EOPNOTSUPP, counter, amount);
}

STAG_EXPORT int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return PASS_ON(inc_err_comp_cntr, EOPNOTSUPP, counter, amount);
}

STAG_EXPORT int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return PASS_ON(read_comp_cntr, EOPNOTSUPP, counter, value);
}

STAG_EXPORT int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return PASS_ON(read_err_comp_cntr, EOPNOTSUPP, counter, value);
}

STAG_EXPORT int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
					struct ibv_qp_attach_comp_cntr_attr *attr)
{
	if (is_ours(qp->context))
		return EOPNOTSUPP;
	return PASS_ON(qp_attach_comp_cntr, EOPNOTSUPP, qp, counter, attr);
}
