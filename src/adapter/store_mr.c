// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_mr.c - regions on storage: a range of a medium under a key.
 *
 * The key table checks accesses to them like all others (keys.c), but gives no memory for such
 * a key: only callers of store_get() can use it.
 */
#include "adapter/store.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "adapter/mr.h"
#include "adapter/pd.h"
#include "base/log.h"

#define STORE_ACCESS                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)
#define ALL_RELAX                                                                                  \
	(STAGDV_RELAX_WRITES | STAGDV_RELAX_READS | STAGDV_RELAX_LATER | STAGDV_RELAX_ATOMICS |    \
	 STAGDV_RELAX_COMPLETIONS)
#define KNOWN_MASK                                                                                 \
	(STAGDV_STORE_ACCESS | STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL | STAGDV_STORE_CACHE |      \
	 STAGDV_STORE_LENGTH)

static int check_attr(const struct stagdv_store_attr *a, int mask)
{
	if (a->comp_mask || ((mask & STAGDV_STORE_ACCESS) && (a->access & ~STORE_ACCESS)) ||
	    ((mask & STAGDV_STORE_RELAX) && (a->relax & ~(uint32_t)ALL_RELAX)) ||
	    ((mask & STAGDV_STORE_LEVEL) && a->level > STAGDV_LEVEL_DURABLE)) {
		log_info("mr: invalid region on storage: access 0x%x, relax 0x%x, level %u",
			 a->access, a->relax, a->level);
		return -EINVAL;
	}
	return 0;
}

/*
 * An address that is aligned for the users must be aligned on the medium: blocks, and the words
 * of atomics.
 */
static int check_address(struct stag_medium *m, uint64_t iova, uint64_t length)
{
	if (iova % media_block(m->media) || iova % sizeof(uint64_t) || length > UINT64_MAX - iova) {
		log_info("mr: invalid address of %llu bytes of a medium in blocks of %u: 0x%llx",
			 (unsigned long long)length, media_block(m->media),
			 (unsigned long long)iova);
		return -EINVAL;
	}
	return 0;
}

static int check_range(struct stag_medium *m, uint64_t offset, uint64_t length)
{
	uint64_t size = media_size(m->media);

	if (offset % media_block(m->media) || offset > size || length > size - offset) {
		log_info("mr: invalid range: %llu bytes at %llu of a medium with %llu, in blocks "
			 "of %u",
			 (unsigned long long)length, (unsigned long long)offset,
			 (unsigned long long)size, media_block(m->media));
		return -EINVAL;
	}
	return 0;
}

static void apply_attr(struct stag_mr *mr, const struct stagdv_store_attr *a, int mask)
{
	struct key_slot *s = mr->slot;

	if (mask & STAGDV_STORE_RELAX)
		atomic_store(&mr->store->relax, a->relax);
	if (mask & STAGDV_STORE_LEVEL)
		atomic_store(&mr->store->level, a->level);
	if (mask & STAGDV_STORE_CACHE)
		atomic_store(&mr->store->cache_ms, a->cache_ms);
	if (mask & STAGDV_STORE_LENGTH) {
		__atomic_store_n(&s->len, a->length, __ATOMIC_RELAXED);
		mr->ibv.length = a->length;
	}
	if (mask & STAGDV_STORE_ACCESS)
		__atomic_store_n(&s->access, a->access, __ATOMIC_RELAXED);
}

int store_mr_reg(struct stag_pd *pd, struct stag_medium *m, const struct stagdv_store_attr *attr,
		 struct stag_mr **out)
{
	struct stag_mr *mr;
	int err = check_attr(attr, KNOWN_MASK);

	if (!err)
		err = check_range(m, attr->offset, attr->length);
	if (!err)
		err = check_address(m, attr->iova, attr->length);
	if (err)
		return err;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	err = -ENOMEM;
	mr->store = calloc(1, sizeof(*mr->store));
	if (!mr->store)
		goto err_free;
	err = key_alloc(KEY_STORE, pd_root(pd), &mr->slot);
	if (err)
		goto err_free;
	mr->store->medium = m;
	mr->store->offset = attr->offset;
	mr->slot->store = mr->store;
	mr->slot->base = attr->iova;
	apply_attr(mr, attr, KNOWN_MASK);
	mr->ibv = (struct ibv_mr){
		.context = pd->ibv.context,
		.pd = &pd->ibv,
		.length = attr->length,
		.handle = mr->slot->key >> 8,
		.rkey = mr->slot->key,
	};
	atomic_fetch_add(&pd->users, 1);
	atomic_fetch_add(&m->regions, 1);
	medium_get(m);
	key_publish(mr->slot, mr->slot->key);
	*out = mr;
	return 0;

err_free:
	free(mr->store);
	free(mr);
	return err;
}

int store_mr_modify(struct stag_mr *mr, const struct stagdv_store_attr *attr, int mask)
{
	int err;

	if (!mr->store || (mask & ~KNOWN_MASK))
		return -EINVAL;
	err = check_attr(attr, mask);
	if (!err && (mask & STAGDV_STORE_LENGTH)) {
		err = check_range(mr->store->medium, mr->store->offset, attr->length);
		if (!err)
			err = check_address(mr->store->medium, mr->slot->base, attr->length);
		if (!err && attr->length < mr->ibv.length) {
			log_info("mr 0x%08x: a region on storage cannot become shorter",
				 mr->slot->key);
			err = -EINVAL;
		}
	}
	if (!err)
		apply_attr(mr, attr, mask);
	return err;
}

/* An operation may take as long as the medium does, and may need this very thread to poll. */
void store_mr_end(struct stag_mr *mr)
{
	struct stag_medium *m = mr->store->medium;

	atomic_store(&mr->slot->stag, 0);
	while (atomic_load(&mr->slot->users))
		if (!medium_poll(m))
			sched_yield();
	atomic_fetch_sub(&m->regions, 1);
	medium_put(m);
}
