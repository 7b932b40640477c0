/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mw.h - memory windows.
 */
#ifndef STAG_MW_H
#define STAG_MW_H

#include <stdint.h>
#include <infiniband/verbs.h>

struct key_slot;
struct stag_mr;
struct stag_pd;
struct stag_qp;

struct stag_mw {
	struct ibv_mw ibv;
	struct key_slot *slot;
};

static inline struct stag_mw *to_stag_mw(struct ibv_mw *mw)
{
	return (struct stag_mw *)mw;
}

int mw_alloc(struct stag_pd *pd, enum ibv_mw_type type, struct stag_mw **out);
int mw_dealloc(struct stag_mw *mw);
int mw_bind(struct stag_mw *mw, struct stag_qp *qp, struct stag_mr *mr, uint32_t rkey,
	    uint64_t addr, uint64_t len, unsigned access);

#endif
