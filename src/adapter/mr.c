// SPDX-License-Identifier: BSD-2-Clause
/*
 * mr.c - memory regions: memory of this process under a key.
 *
 * Nothing is pinned: the kernel copies to and from the memory that is mapped when a byte
 * passes.
 */
#include "adapter/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/guard.h"
#include "adapter/mirror.h"
#include "adapter/misuse.h"
#include "adapter/pd.h"
#include "adapter/store.h"
#include "base/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define REMOTE_CHANGE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN_ACCESS                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                   \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)

/*
 * Is this page writable? Only kernels since 5.14 can tell without a write; older ones refuse
 * the advice as unknown.
 */
static bool can_write(uintptr_t page, size_t size)
{
	if (!madvise((void *)page, size, MADV_POPULATE_WRITE))
		return true;
	if (errno == EINVAL)
		return madvise(NULL, 0, MADV_POPULATE_WRITE) != 0;
	return errno != EFAULT;
}

/*
 * Is the range mapped, and writable if that is requested? An adapter that pins pages finds out
 * by pinning, and returns EFAULT; this one checks.
 */
static int probe_memory(uintptr_t addr, size_t len, unsigned access)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = addr & ~(page - 1), last = (addr + len - 1) & ~(page - 1);

	if (msync((void *)first, last - first + page, MS_ASYNC) && errno == ENOMEM)
		return -EFAULT;
	if (!(access & (IBV_ACCESS_LOCAL_WRITE | REMOTE_CHANGE)))
		return 0;
	if (!can_write(first, page) || !can_write(last, page))
		return -EFAULT;
	return 0;
}

static int check_request(struct stag_pd *pd, void *addr, size_t len, unsigned access)
{
	int err;

	if (access & ~(KNOWN_ACCESS | IBV_ACCESS_OPTIONAL_RANGE)) {
		misuse("reg_mr access", pd->ibv.handle, "pd %u: reg_mr: unknown access flags 0x%x",
		       pd->ibv.handle, access);
		return -EINVAL;
	}
	if ((access & REMOTE_CHANGE) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		misuse("reg_mr local write", pd->ibv.handle,
		       "pd %u: reg_mr: remote write or atomic access needs local write too (0x%x)",
		       pd->ibv.handle, access);
		return -EINVAL;
	}
	if (len && (uintptr_t)addr > UINTPTR_MAX - (len - 1)) {
		misuse("reg_mr wrap", pd->ibv.handle, "pd %u: reg_mr: %zu bytes at %p wrap around",
		       pd->ibv.handle, len, addr);
		return -EINVAL;
	}
	err = len ? probe_memory((uintptr_t)addr, len, access) : 0;
	if (err)
		misuse("reg_mr not mapped", pd->ibv.handle,
		       "pd %u: reg_mr: %zu bytes at %p are not all mapped%s", pd->ibv.handle, len,
		       addr, access & IBV_ACCESS_LOCAL_WRITE ? " and writable" : "");
	return err;
}

static void fill_slot(struct key_slot *s, void *addr, size_t len, uint64_t iova, unsigned access)
{
	s->access = access & KNOWN_ACCESS;
	s->base = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	s->len = len;
	s->one = (struct iovec){addr, len};
	s->seg = &s->one;
	s->nseg = 1;
}

/* Takes over the slot, which is not valid before this. */
static void make_usable(struct stag_mr *mr, struct stag_pd *pd, void *addr, size_t len,
			uint64_t iova, unsigned access)
{
	fill_slot(mr->slot, addr, len, iova, access);
	list_init(&mr->mirrors);
	mr->ibv = (struct ibv_mr){
		.context = pd->ibv.context,
		.pd = &pd->ibv,
		.addr = addr,
		.length = len,
		.handle = mr->slot->key >> 8,
		.lkey = mr->slot->key,
		.rkey = mr->slot->key,
	};
	atomic_fetch_add(&pd->users, 1);
	key_publish(mr->slot, mr->slot->key);
}

int mr_reg(struct stag_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access,
	   const struct stagdv_guard *guard, struct stag_mr **out)
{
	struct stag_mr *mr;
	int err = check_request(pd, addr, len, access);

	if (!err && guard)
		err = guard_check(guard);
	if (err)
		return err;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	err = key_alloc(KEY_MR, pd_root(pd), &mr->slot);
	if (err) {
		free(mr);
		return err;
	}
	if (guard) {
		mr->guard = *guard;
		mr->slot->guard = &mr->guard;
	}
	make_usable(mr, pd, addr, len, iova, access);
	*out = mr;
	return 0;
}

int mr_reg_keyed(struct stag_pd *pd, void *addr, size_t len, unsigned access, uint32_t key,
		 struct stag_mr **out)
{
	struct stag_mr *mr;
	int err = check_request(pd, addr, len, access);

	if (err)
		return err;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	err = key_alloc_as(KEY_MR, pd_root(pd), key, &mr->slot);
	if (err) {
		log_info("pd %u: reg_mr under the key 0x%08x: %s", pd->ibv.handle, key,
			 err == -EEXIST	  ? "the slot of this key is taken"
			 : err == -EINVAL ? "its index is 0"
					  : "no memory");
		free(mr);
		return err;
	}
	make_usable(mr, pd, addr, len, (uintptr_t)addr, access);
	*out = mr;
	return 0;
}

/* A plain store: an access that began before it may end after it. */
int mr_set_lease(struct stag_mr *mr, uint64_t until)
{
	if (mr->slot->kind != KEY_MR) {
		log_info("mr 0x%08x: only a region of ibv_reg_mr() and its variants can have a "
			 "lease",
			 mr->slot->key);
		return -EINVAL;
	}
	atomic_store_explicit(&mr->slot->lease, until, memory_order_relaxed);
	return 0;
}

int mr_rereg(struct stag_mr *mr, int flags, struct stag_pd *pd, void *addr, size_t len,
	     unsigned access)
{
	struct key_slot *s = mr->slot;
	struct stag_pd *old_pd = to_stag_pd(mr->ibv.pd);
	uint64_t iova = s->base;
	int err;

	if (s->kind != KEY_MR || !flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return -EINVAL;
	if (s->guard) {
		misuse("rereg guard", s->key,
		       "mr 0x%08x: rereg refused, its guard is for this memory", s->key);
		return -EINVAL;
	}
	if (atomic_load(&s->windows) || atomic_load(&s->mirrors)) {
		misuse("rereg use", s->key,
		       "mr 0x%08x: rereg refused, windows, STags or mirrors use it", s->key);
		return -EBUSY;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = s->access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		iova = (uintptr_t)addr;
	} else {
		addr = mr->ibv.addr;
		len = mr->ibv.length;
	}
	err = check_request(pd ? pd : old_pd, addr, len, access);
	if (err)
		return err;
	/*
	 * As on hardware, the old key becomes invalid; but adapters of InfiniBand's kind keep it if only the rights
	 * change, and programs rely on it.
	 */
	key_revoke(s);
	fill_slot(s, addr, len, iova, access);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&old_pd->users, 1);
		atomic_fetch_add(&pd->users, 1);
		mr->ibv.pd = &pd->ibv;
		s->pd = pd_root(pd);
	}
	mr->ibv.addr = addr;
	mr->ibv.length = len;
	if (flags == IBV_REREG_MR_CHANGE_ACCESS && face_of(mr->ibv.context) == FACE_ROCE)
		key_publish(s, s->key);
	else
		key_publish(s, (s->key & ~0xffu) | ((s->key + 1) & 0xff));
	mr->ibv.lkey = mr->ibv.rkey = s->key;
	return 0;
}

static int refuse_dereg(const struct stag_mr *mr, int windows)
{
	misuse(__func__, mr->slot->key,
	       "mr 0x%08x: dereg refused, %d windows are bound to it, or STags that sends "
	       "advertised",
	       mr->slot->key, windows);
	return -EBUSY;
}

/*
 * Advertising its memory holds the key meanwhile. Now that the key is invalid, check again.
 * Returns false if an STag or a window is over it.
 */
static bool revoke_alone(struct key_slot *s)
{
	uint32_t stag = atomic_load(&s->stag);

	key_revoke(s);
	if (!atomic_load(&s->windows))
		return true;
	atomic_store(&s->stag, stag);
	return false;
}

int mr_dereg(struct stag_mr *mr)
{
	struct key_slot *s = mr->slot;

	if (atomic_load(&s->windows))
		return refuse_dereg(mr, atomic_load(&s->windows));
	if (mirror_end_mr(mr)) {
		misuse(__func__, s->key, "mr 0x%08x: dereg refused, it is mirrored", s->key);
		return -EBUSY;
	}
	if (mr->store) {
		store_mr_end(mr);
	} else if (!revoke_alone(s)) {
		return refuse_dereg(mr, atomic_load(&s->windows));
	}
	key_free(s);
	free(mr->store);
	atomic_fetch_sub(&to_stag_pd(mr->ibv.pd)->users, 1);
	free(mr);
	return 0;
}

/* ---- fast registration ---- */

int mr_alloc_fast(struct stag_pd *pd, unsigned max_sge, struct stag_mr **out)
{
	struct stag_mr *mr;
	int err;

	if (max_sge == 0 || max_sge > STAG_FAST_MR_SGE)
		return -EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	err = key_alloc(KEY_FAST_MR, pd_root(pd), &mr->slot);
	if (err)
		goto err_free;
	mr->slot->seg = calloc(max_sge, sizeof(struct iovec));
	if (!mr->slot->seg) {
		mr->slot->seg = &mr->slot->one;
		err = -ENOMEM;
		goto err_free_key;
	}
	mr->max_sge = max_sge;
	mr->ibv = (struct ibv_mr){
		.context = pd->ibv.context,
		.pd = &pd->ibv,
		.handle = mr->slot->key >> 8,
		.lkey = mr->slot->key,
		.rkey = mr->slot->key,
	};
	atomic_fetch_add(&pd->users, 1);
	*out = mr;
	return 0;

err_free_key:
	key_free(mr->slot);
err_free:
	free(mr);
	return err;
}

/* Appends the memory of one local SGE to the region's list. */
static int append_sge(struct stag_mr *mr, struct stag_pd *pd, const struct ibv_sge *sge,
		      unsigned access, unsigned *nseg)
{
	struct key_map map;
	bool guarded;

	if (key_get(sge->lkey, pd, NULL, sge->addr, sge->length, access & IBV_ACCESS_LOCAL_WRITE,
		    &map) != KEY_OK)
		return -EACCES;
	guarded = map.slot[0]->guard;
	key_put(&map);
	if (guarded)
		return -EACCES; /* an access through the new key would bypass the guard */
	if (map.len < sge->length || map.n > mr->max_sge - *nseg)
		return -EINVAL;
	for (unsigned i = 0; i < map.n; i++)
		mr->slot->seg[(*nseg)++] = map.iov[i];
	return 0;
}

int mr_fast_reg(struct stag_mr *mr, struct stag_pd *pd, const struct ibv_sge *sge, unsigned n,
		uint64_t iova, uint32_t key, unsigned access)
{
	struct key_slot *s = mr->slot;
	unsigned nseg = 0;
	uint64_t len = 0;

	if (s->kind != KEY_FAST_MR || s->pd != pd || atomic_load(&s->stag))
		return -EINVAL;
	if ((key ^ s->key) >> 8)
		return -EINVAL;
	if ((access & REMOTE_CHANGE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		int err = append_sge(mr, pd, &sge[i], access, &nseg);

		if (err)
			return err;
		len += sge[i].length;
	}
	s->nseg = nseg;
	s->len = len;
	s->base = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	s->access = access & KNOWN_ACCESS;
	mr->ibv.length = len;
	mr->ibv.lkey = mr->ibv.rkey = key;
	key_publish(s, key);
	return 0;
}
