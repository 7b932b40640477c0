// SPDX-License-Identifier: BSD-2-Clause
/*
 * mw.c - memory windows: a part of a region, with its own rights, that can be granted and
 * revoked without changing the region.
 *
 * Type 1 windows belong to a protection domain, type 2 to the queue pair that bound them.
 */
#include "adapter/mw.h"

#include <errno.h>
#include <stdlib.h>

#include "adapter/mr.h"
#include "adapter/pd.h"
#include "adapter/qp.h"
#include "adapter/misuse.h"

#define WINDOW_ACCESS                                                                              \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |             \
	 IBV_ACCESS_ZERO_BASED)

int mw_alloc(struct stag_pd *pd, enum ibv_mw_type type, struct stag_mw **out)
{
	struct stag_mw *mw;
	int err;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return -EINVAL;
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return -ENOMEM;
	err = key_alloc(type == IBV_MW_TYPE_1 ? KEY_MW1 : KEY_MW2, pd_root(pd), &mw->slot);
	if (err) {
		free(mw);
		return err;
	}
	mw->ibv = (struct ibv_mw){
		.context = pd->ibv.context,
		.pd = &pd->ibv,
		.rkey = mw->slot->key,
		.handle = mw->slot->key >> 8,
		.type = type,
	};
	atomic_fetch_add(&pd->users, 1);
	*out = mw;
	return 0;
}

int mw_dealloc(struct stag_mw *mw)
{
	key_free(mw->slot);
	atomic_fetch_sub(&to_stag_pd(mw->ibv.pd)->users, 1);
	free(mw);
	return 0;
}

static int check_bind(const struct stag_mw *mw, const struct stag_qp *qp, const struct stag_mr *mr,
		      uint64_t addr, uint64_t len, unsigned access)
{
	const struct key_slot *r = mr->slot;

	if (!atomic_load(&r->stag) || (r->kind != KEY_MR && r->kind != KEY_FAST_MR))
		return -EINVAL;
	if (r->pd != mw->slot->pd || r->pd != pd_root(qp->pd))
		return -EACCES;
	if (!(r->access & IBV_ACCESS_MW_BIND) || (access & ~WINDOW_ACCESS))
		return -EACCES;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(r->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	if (r->access & IBV_ACCESS_ZERO_BASED)
		return -EINVAL; /* a window on a zero-based region: iWARP's verbs have none either */
	if (addr < r->base || addr - r->base > r->len || len > r->len - (addr - r->base))
		return -EINVAL;
	return 0;
}

int mw_bind(struct stag_mw *mw, struct stag_qp *qp, struct stag_mr *mr, uint32_t rkey,
	    uint64_t addr, uint64_t len, unsigned access)
{
	struct key_slot *s = mw->slot;
	int err;

	if ((rkey ^ s->key) >> 8)
		return -EINVAL;
	if (qp_is_roce(
		    qp)) /* without a meaning for a window, and accepted by adapters of InfiniBand's kind */
		access &= ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
	if (s->kind == KEY_MW2 && (atomic_load(&s->stag) || len == 0)) {
		misuse("type 2", s->key,
		       "mw 0x%08x: a type-2 window must be invalid, and its range not empty, to "
		       "be bound",
		       s->key);
		return -EINVAL;
	}
	if (len) {
		err = check_bind(mw, qp, mr, addr, len, access);
		if (err) {
			misuse("bind", s->key,
			       "mw 0x%08x: bind refused: invalid region, rights or range", s->key);
			return err;
		}
	}
	key_unbind(s);
	s->key = rkey;
	if (len == 0)
		return 0; /* type 1: this unbinds it */
	s->access = access;
	s->base = access & IBV_ACCESS_ZERO_BASED ? 0 : addr;
	s->len = len;
	s->win_off = addr - mr->slot->base;
	s->parent = mr->slot;
	atomic_fetch_add(&mr->slot->windows, 1);
	if (s->kind == KEY_MW2) {
		s->qp = qp;
		atomic_fetch_add(&qp->windows, 1);
	}
	key_publish(s, rkey);
	return 0;
}
