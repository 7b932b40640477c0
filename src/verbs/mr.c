// SPDX-License-Identifier: BSD-2-Clause
/*
 * mr.c - memory regions.
 */
#include "verbs/verbs.h"

#include <sys/mman.h>
#include <unistd.h>

/*
 * On-demand paging is how this adapter works anyway, but a program requests it only of a device
 * that offers it.
 */
static int on_demand_check(unsigned access)
{
	struct ibv_device_attr_ex attr;

	if (!(access & IBV_ACCESS_ON_DEMAND))
		return 0;
	device_query(FACE_IWARP, &attr);
	if (attr.odp_caps.general_caps & IBV_ODP_SUPPORT)
		return 0;
	log_info("mr: on-demand paging is not supported");
	return -EOPNOTSUPP;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
	struct stag_mr *mr = NULL;
	int err = on_demand_check(access);

	if (!err)
		err = mr_reg(to_stag_pd(pd), addr, len, iova, access, NULL, &mr);
	FACE_RETURN(err, &mr->ibv);
}

STAG_EXPORT struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!is_ours(pd->context))
		return real()->reg_mr(pd, addr, length, access);
	return reg(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

STAG_EXPORT struct ibv_mr *(ibv_reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t length,
					     uint64_t iova, int access)
{
	if (!is_ours(pd->context))
		return real()->reg_mr_iova(pd, addr, length, iova, access);
	return reg(pd, addr, length, iova, (unsigned)access);
}

STAG_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					    uint64_t iova, unsigned int access)
{
	if (!is_ours(pd->context))
		return real()->reg_mr_iova2(pd, addr, length, iova, access);
	return reg(pd, addr, length, iova, access);
}

STAG_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					     uint64_t iova, int fd, int access)
{
	if (is_ours(pd->context) || !real()->reg_dmabuf_mr)
		return fail_with(EOPNOTSUPP);
	return real()->reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

/* Checks that the arguments that the flags require are there; the adapter checks their values. */
static int rereg_check(int flags, const struct ibv_pd *pd, const void *addr, size_t len,
		       unsigned access)
{
	if (((flags & IBV_REREG_MR_CHANGE_PD) && !pd) ||
	    ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !len))) {
		log_info("mr: rereg with flags %#x lacks an attribute that they require",
			 (unsigned)flags);
		return -EINVAL;
	}
	return flags & IBV_REREG_MR_CHANGE_ACCESS ? on_demand_check(access) : 0;
}

/* This call returns codes of its own, with errno beside them. */
STAG_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			     size_t length, int access)
{
	if (!is_ours(mr->context))
		return real()->rereg_mr(mr, flags, pd, addr, length, access);

	int err = rereg_check(flags, pd, addr, length, (unsigned)access);

	if (!err)
		err = mr_rereg(to_stag_mr(mr), flags, pd ? to_stag_pd(pd) : NULL, addr, length,
			       (unsigned)access);
	if (!err)
		return 0;
	errno = -err;
	return IBV_REREG_MR_ERR_INPUT; /* the old region is still valid */
}

STAG_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (!is_ours(mr->context))
		return real()->dereg_mr(mr);
	return -mr_dereg(to_stag_mr(mr));
}

/* Advises on one range. Returns -ENOENT if no region of the domain has it, as mlx5 does. */
static int advise_one(struct stag_pd *pd, const struct ibv_sge *sge, unsigned access)
{
	struct key_map map;

	if (key_get(sge->lkey, pd, NULL, sge->addr, sge->length, access, &map) != KEY_OK)
		return -ENOENT;
	for (unsigned i = 0; i < map.n; i++) {
		uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
		uintptr_t start = (uintptr_t)map.iov[i].iov_base & ~(page - 1);
		uintptr_t end = (uintptr_t)map.iov[i].iov_base + map.iov[i].iov_len;

		madvise((void *)start, end - start, MADV_WILLNEED); /* only advice: it may fail */
	}
	key_put(&map);
	return 0;
}

int verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		    struct ibv_sge *sges, uint32_t n)
{
	unsigned access =
		advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH)
		return EINVAL;
	switch (advice) {
	case IBV_ADVISE_MR_ADVICE_PREFETCH:
	case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
	case IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		break;
	default:
		return EOPNOTSUPP;
	}
	for (uint32_t i = 0; i < n; i++) {
		int err = advise_one(pd_root(to_stag_pd(pd)), &sges[i], access);

		if (err) {
			log_info("mr: advise_mr for memory outside of this domain's regions");
			return -err;
		}
	}
	return 0;
}
