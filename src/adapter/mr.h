/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.h - memory regions.
 */
#ifndef STAG_MR_H
#define STAG_MR_H

#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/list.h"
#include "stag/stagdv.h"

struct key_slot;
struct stag_pd;
struct store_region;

struct stag_mr {
	struct ibv_mr ibv; /* lkey == rkey == STag */
	struct key_slot *slot;
	unsigned max_sge;	    /* fast regions */
	struct stagdv_guard guard;  /* copied; used if slot->guard is set */
	struct store_region *store; /* region on storage: owned, the same as slot->store */
	struct list mirrors;	    /* mirror.c */
};

static inline struct stag_mr *to_stag_mr(struct ibv_mr *mr)
{
	return (struct stag_mr *)mr;
}

/* guard: NULL, or copied */
int mr_reg(struct stag_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access,
	   const struct stagdv_guard *guard, struct stag_mr **out);
/* also -EEXIST: the key's slot is taken */
int mr_reg_keyed(struct stag_pd *pd, void *addr, size_t len, unsigned access, uint32_t key,
		 struct stag_mr **out);
int mr_set_lease(struct stag_mr *mr, uint64_t until);
/* flags: enum ibv_rereg_mr_flags. On failure the region is unchanged. */
int mr_rereg(struct stag_mr *mr, int flags, struct stag_pd *pd, void *addr, size_t len,
	     unsigned access);
int mr_dereg(struct stag_mr *mr); /* -EBUSY while windows are bound to it, or it is mirrored */
int mr_alloc_fast(struct stag_pd *pd, unsigned max_sge, struct stag_mr **out);

int mr_fast_reg(struct stag_mr *mr, struct stag_pd *pd, const struct ibv_sge *sge, unsigned n,
		uint64_t iova, uint32_t key, unsigned access);

#endif
