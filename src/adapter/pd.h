/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pd.h - protection domains.
 */
#ifndef STAG_PD_H
#define STAG_PD_H

#include <stdatomic.h>
#include <infiniband/verbs.h>

struct stag_ctx;

struct stag_pd {
	struct ibv_pd ibv;
	atomic_int users;	/* regions, windows, queue pairs, SRQs, parent domains */
	struct stag_pd *parent; /* the domain that a parent domain stands for, or NULL */
};

static inline struct stag_pd *to_stag_pd(struct ibv_pd *pd)
{
	return (struct stag_pd *)pd;
}

int pd_alloc(struct stag_ctx *ctx, struct stag_pd **out);
int pd_dealloc(struct stag_pd *pd);	     /* -EBUSY while something uses it */
struct stag_pd *pd_root(struct stag_pd *pd); /* follows parent domains */

#endif
