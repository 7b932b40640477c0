// SPDX-License-Identifier: BSD-2-Clause
/*
 * mr.c - memory regions: the checks that the kernel makes before it pins pages.
 */
#include "verbs/verbs.h"

#include <sys/mman.h>
#include <unistd.h>

#define PLAIN_ACCESS	  ((IBV_ACCESS_HUGETLB << 1) - 1) /* all below are known to us */
#define NEEDS_LOCAL_WRITE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static int access_check(unsigned access)
{
	if (access & ~(PLAIN_ACCESS | IBV_ACCESS_OPTIONAL_RANGE)) {
		log_info("mr: unknown access flags %#x", access & ~PLAIN_ACCESS);
		return -EINVAL;
	}
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		log_info("mr: access %#x: remote write and atomic need local write too", access);
		return -EINVAL;
	}
	if (access & IBV_ACCESS_ON_DEMAND) {
		struct ibv_device_attr_ex attr;

		device_query(&attr);
		if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT)) {
			log_info("mr: on-demand paging is not offered");
			return -EOPNOTSUPP;
		}
	}
	return 0;
}

/* Is every page of [addr, addr+len) mapped? What the kernel's pinning would find out. */
static int mapped_check(const void *addr, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = (uintptr_t)addr + len;
	unsigned char resident[4096];

	if (end < (uintptr_t)addr) {
		log_info("mr: %p + %zu wraps", addr, len);
		return -EINVAL;
	}
	while (at < end) {
		size_t n = end - at;

		if (n > sizeof(resident) * page)
			n = sizeof(resident) * page;
		if (mincore((void *)at, n, resident) < 0 && errno == ENOMEM) {
			log_info("mr: %p + %zu is not mapped", addr, len);
			return -EFAULT;
		}
		at += n;
	}
	return 0;
}

/* Everything that can be wrong with a registration, in the kernel's order. */
static int region_check(const void *addr, size_t len, unsigned access)
{
	int err = access_check(access);

	if (err || (access & IBV_ACCESS_ON_DEMAND))
		return err;
	return mapped_check(addr, len);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
	struct stag_mr *mr = NULL;
	int err = region_check(addr, len, access);

	if (!err)
		err = mr_reg(to_stag_pd(pd), addr, len, iova, access, &mr);
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

/* Says what the kernel would refuse; the region stays as it is then. */
static int rereg_check(int flags, const struct ibv_pd *pd, const void *addr, size_t len,
		       unsigned access)
{
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)) {
		log_info("mr: re-registration with flags %#x", (unsigned)flags);
		return -EINVAL;
	}
	if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		return -EINVAL;
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !len))
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
		int err = access_check(access);

		if (err)
			return err;
	}
	return flags & IBV_REREG_MR_CHANGE_TRANSLATION ? mapped_check(addr, len) : 0;
}

/* Its errors are codes of its own, with errno beside them. */
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

/* One piece of an advice: -ENOENT where no region of the domain has it, as mlx5 answers. */
static int advise_one(struct stag_pd *pd, const struct ibv_sge *sge, unsigned access)
{
	struct key_map map;

	if (key_get(sge->lkey, pd, NULL, sge->addr, sge->length, access, &map) != KEY_OK)
		return -ENOENT;
	for (unsigned i = 0; i < map.n; i++) {
		uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
		uintptr_t start = (uintptr_t)map.iov[i].iov_base & ~(page - 1);
		uintptr_t end = (uintptr_t)map.iov[i].iov_base + map.iov[i].iov_len;

		madvise((void *)start, end - start, MADV_WILLNEED); /* advice, so it may fail */
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
		int err = advise_one(to_stag_pd(pd), &sges[i], access);

		if (err) {
			log_info("mr: advice for memory that is in no region of this domain");
			return -err;
		}
	}
	return 0;
}
