// SPDX-License-Identifier: BSD-2-Clause
/*
 * keys.c - the private registration tables (figure 4): all of figure 5, the part of figures 6 and 7
 * that registers, and the key look-up.
 *
 * This process has one table for each device, with the same indices as the shared descriptor table.
 * An entry is valid while its blockId equals the descriptor's. Other processes do not access it,
 * and are not notified when a block is released. block.c knows whether a block exists, and which
 * part of it is registered (block_extent()).
 *
 * A look-up takes no lock: see entry_read(). Everything else is done under keys->lock.
 */
#include "heap/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/lock.h"
#include "dv/dv.h"

#define REMOTE_RIGHTS	 (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define DEFAULT_RIGHTS	 (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define TALLIES		 64u
#define BIND_PATIENCE_MS 10000ull

/*
 * One registration (figure 4). lmr and rmr are its lmrHandle and rmrHandle, contexts its lmrContext
 * and rmrContext.
 */
struct reg_entry {
	_Atomic uint64_t block_id; /* 0: not registered */
	_Atomic uint64_t contexts; /* rkey << 32 | lkey */
	struct ibv_mr *lmr;
	struct ibv_mw *rmr; /* NULL: the region's own key is the remote one */
	uint64_t block_size;
} __attribute__((aligned(64)));

struct heap_device {
	struct ibv_pd *pd; /* NULL: none */
	struct ibv_qp *bind_qp;
	unsigned int access;
	bool guarded;
	uint32_t used; /* entries from here on have never been written */
};

/*
 * A counter for one thread, or for several if there are more than TALLIES; then counts may get
 * lost.
 */
struct tally {
	_Atomic uint64_t saved; /* look-ups that found a valid entry */
} __attribute__((aligned(64)));

struct heap_keys {
	/* freed when the heap is detached */
	struct reg_entry *_Atomic table[STAG_HEAP_MAX_DEVICES];
	struct tally tally[TALLIES];

	struct lock lock; /* protects the rest, and writing of entries */
	struct heap_device device[STAG_HEAP_MAX_DEVICES];
	atomic_uint num_devices;
	uint64_t live, made, stale;
	uint64_t binds; /* wr_id of the last one */
};

/* ---- counting look-ups ---- */

static atomic_uint threads_seen;
static __thread uint64_t my_tally __attribute__((
	tls_model("initial-exec"))); /* offset of the thread's tally in heap_keys; 0: none yet */

static inline void count_saved(struct heap_keys *keys)
{
	_Atomic uint64_t *n;

	if (unlikely(!my_tally))
		my_tally = offsetof(struct heap_keys, tally) +
			   atomic_fetch_add(&threads_seen, 1) % TALLIES * sizeof(struct tally);
	n = (_Atomic uint64_t *)((char *)keys + my_tally);
	heap_store(n, heap_load(n) + 1);
}

static uint64_t sum_saved(struct heap_keys *keys)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < TALLIES; i++)
		sum += heap_load(&keys->tally[i].saved);
	return sum;
}

static void publish(struct stag_heap *heap)
{
	const struct heap_keys *keys = heap->keys;

	assert(lock_held(&heap->keys->lock));
	heap_store(&heap->self->registrations, keys->live);
	heap_store(&heap->self->registrations_made, keys->made);
	heap_store(&heap->self->stale_found, keys->stale);
}

static void unlock(struct stag_heap *heap)
{
	publish(heap);
	lock_release(&heap->keys->lock);
}

void keys_publish(struct stag_heap *heap)
{
	heap_store(&heap->self->registrations_saved, sum_saved(heap->keys));
}

/* ---- guards, if the device is our software adapter ---- */

static bool can_guard(const struct ibv_pd *pd)
{
	const struct dv *dv = dv_find();

	return dv && dv->is_supported(pd->context->device);
}

/* ---- entries ---- */

/*
 * Reads the keys if the entry has this blockId. contexts is written before block_id, and only while
 * block_id is 0: so the keys are those of the block, or of a newer block that has replaced it, to
 * which the pointer belongs by now.
 */
static inline bool entry_read(const struct reg_entry *entry, uint64_t block_id,
			      struct stag_heap_keys *keys)
{
	uint64_t contexts;

	if (atomic_load_explicit(&entry->block_id, memory_order_acquire) != block_id || !block_id)
		return false;
	contexts = heap_load(&entry->contexts);
	keys->lkey = (uint32_t)contexts;
	keys->rkey = (uint32_t)(contexts >> 32);
	return true;
}

static void entry_write(struct reg_entry *entry, uint64_t block_id)
{
	uint64_t rkey = entry->rmr ? entry->rmr->rkey : entry->lmr->rkey;

	atomic_store_explicit(&entry->contexts, rkey << 32 | entry->lmr->lkey,
			      memory_order_release);
	atomic_store_explicit(&entry->block_id, block_id, memory_order_release);
}

/* [0042], [0043]: the remote handle is released before the local one. */
static void release_handles(struct reg_entry *entry)
{
	if (entry->rmr)
		ibv_dealloc_mw(entry->rmr);
	ibv_dereg_mr(entry->lmr);
	entry->rmr = NULL;
	entry->lmr = NULL;
	entry->block_size = 0;
}

/* Deregisters, if registered: [0046], [0048]. */
static void drop_entry(struct heap_keys *keys, struct reg_entry *entry)
{
	if (!heap_load(&entry->block_id))
		return;
	atomic_store_explicit(&entry->block_id, 0, memory_order_relaxed);
	release_handles(entry);
	keys->live--;
}

/* ---- registering ---- */

static struct ibv_mr *reg_block(struct stag_heap *heap, const struct heap_device *device,
				uint32_t index, void *addr, size_t length, uint64_t block_id)
{
	unsigned int access = device->access;
	struct stagdv_guard guard = {
		.word = (const uint64_t *)&heap->descs[index].block_id,
		.expected = block_id,
		.hazards = (uint64_t *)heap->self->hazards,
		.n_hazards = HEAP_HAZARDS,
		.hazard = (uint64_t)index + 1,
	};

	if (device->bind_qp) /* the window limits what a peer may do */
		access = (access & ~(unsigned int)REMOTE_RIGHTS) | IBV_ACCESS_LOCAL_WRITE |
			 IBV_ACCESS_MW_BIND;
	if (device->guarded)
		return dv_find()->reg_guarded(device->pd, addr, length, access, &guard);
	return ibv_reg_mr(device->pd, addr, length, (int)access);
}

/*
 * Waits for the completion for a limited time: another thread that polls the queue may have taken
 * it.
 */
static int await_bind(struct ibv_qp *qp, uint64_t wr_id)
{
	uint64_t until = clock_ns() + BIND_PATIENCE_MS * NS_PER_MS;
	struct ibv_wc wc = {.status = IBV_WC_RESP_TIMEOUT_ERR};
	int n;

	do
		n = ibv_poll_cq(qp->send_cq, 1, &wc);
	while ((n == 0 || (n > 0 && wc.wr_id != wr_id)) && clock_ns() < until);
	if (n == 1 && wc.wr_id == wr_id && wc.status == IBV_WC_SUCCESS)
		return 0;
	return -heap_fail(EIO, "cannot bind a memory window: %s",
			  n < 0 ? "its completion queue failed" : ibv_wc_status_str(wc.status));
}

/* Allocates and binds a window: DAT_RMR_CREATE and DAT_RMR_BIND of [0042]. */
static int bind_window(struct heap_keys *keys, const struct heap_device *device,
		       struct reg_entry *entry)
{
	struct ibv_mw_bind bind = {
		.wr_id = ++keys->binds,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = entry->lmr,
			      .addr = (uintptr_t)entry->lmr->addr,
			      .length = entry->lmr->length,
			      .mw_access_flags = device->access & REMOTE_RIGHTS},
	};
	int err;

	errno = ENOMEM; /* not every provider sets errno */
	entry->rmr = ibv_alloc_mw(device->pd, IBV_MW_TYPE_1);
	if (!entry->rmr)
		return -heap_fail(errno, "cannot allocate a memory window: %s", strerror(errno));
	err = ibv_bind_mw(device->bind_qp, entry->rmr, &bind);
	if (err)
		return -heap_fail(err, "cannot bind a memory window: %s", strerror(err));
	return await_bind(device->bind_qp, bind.wr_id);
}

/*
 * Steps 614 and 714: registers the block (DAT_LMR_CREATE), and binds a window if the device uses
 * them. Step 716: stores the blockId.
 */
static int register_block(struct stag_heap *heap, unsigned int number, uint32_t index)
{
	struct heap_keys *keys = heap->keys;
	struct heap_device *device = &keys->device[number];
	struct reg_entry *entry = &keys->table[number][index];
	void *addr;
	size_t length;
	uint64_t block_id;
	int err = block_extent(heap, index, &addr, &length, &block_id);

	assert(lock_held(&heap->keys->lock));
	if (err)
		return -heap_fail(-err, "no live block at index %u", index);
	entry->lmr = reg_block(heap, device, index, addr, length, block_id);
	if (!entry->lmr)
		return -heap_fail(errno, "block %u: cannot register %zu bytes at %p: %s", index,
				  length, addr, strerror(errno));
	keys->made++;
	err = device->bind_qp ? bind_window(keys, device, entry) : 0;
	/* The block may have been released meanwhile, and its memory reused. */
	if (!err && atomic_load(&heap->descs[index].block_id) != block_id)
		err = -heap_fail(ENOENT, "block %u: released by its owner while it was registered",
				 index);
	if (err) {
		release_handles(entry);
		return err;
	}
	if (device->used <= index)
		device->used = index + 1;
	entry->block_size = length;
	entry_write(entry, block_id);
	keys->live++;
	return 0;
}

/*
 * Figure 6 from step 610 on, and figure 7 from 708 on: compares the entry; drops a registration of
 * an older block as stale; then registers the block.
 */
static int ensure_registered(struct stag_heap *heap, unsigned int number, uint32_t index)
{
	struct heap_keys *keys = heap->keys;
	struct reg_entry *entry = &keys->table[number][index];
	uint64_t have = heap_load(&entry->block_id); /* 610, 710: greater than zero? */

	assert(lock_held(&heap->keys->lock));
	if (have && have == atomic_load(&heap->descs[index].block_id)) { /* 708 */
		count_saved(keys);
		return 0;
	}
	if (have) { /* 612, 712 */
		keys->stale++;
		drop_entry(keys, entry);
	}
	return register_block(heap, number, index);
}

/* Drops the registrations of blocks that were in the slots which now belong to a run. */
static void drop_under_run(struct stag_heap *heap, unsigned int number, uint32_t index)
{
	struct heap_keys *keys = heap->keys;
	struct reg_entry *entry = &keys->table[number][index];
	uint32_t tails = heap_load(&heap->descs[index].tails);

	assert(lock_held(&heap->keys->lock));
	for (uint32_t i = 1; i <= tails && index + i < heap->geo.max_blocks; i++) {
		if (!heap_load(&entry[i].block_id))
			continue;
		keys->stale++;
		drop_entry(keys, &entry[i]);
	}
}

/* ---- notifications from the allocator ---- */

/* Returns false also while the process detaches, after keys_close(). */
static bool has_devices(struct heap_keys *keys)
{
	return keys && atomic_load(&keys->num_devices);
}

void keys_block_taken(struct stag_heap *heap, uint32_t index)
{
	struct heap_keys *keys = heap->keys;

	assert(!lock_held(&heap->local.lock));
	if (!has_devices(keys))
		return;
	lock_acquire(&keys->lock);
	for (unsigned int i = 0; i < STAG_HEAP_MAX_DEVICES; i++) {
		if (!keys->device[i].pd)
			continue;
		ensure_registered(heap, i, index); /* if it fails, stag_heap_keys() reports why */
		drop_under_run(heap, i, index);
	}
	unlock(heap);
}

/*
 * [0046]: drops our registrations; those of other processes stay until these find them stale
 * ([0045]).
 */
void keys_block_released(struct stag_heap *heap, uint32_t index)
{
	struct heap_keys *keys = heap->keys;

	assert(!lock_held(&heap->local.lock));
	if (!has_devices(keys))
		return;
	lock_acquire(&keys->lock);
	for (unsigned int i = 0; i < STAG_HEAP_MAX_DEVICES; i++)
		if (keys->device[i].pd)
			drop_entry(keys, &keys->table[i][index]);
	unlock(heap);
}

/* ---- open and close ---- */

static size_t table_size(const struct stag_heap *heap)
{
	return (size_t)heap->geo.max_blocks * sizeof(struct reg_entry);
}

int keys_open(struct stag_heap *heap)
{
	heap->keys = aligned_alloc(64, sizeof(struct heap_keys));
	if (!heap->keys)
		return -ENOMEM;
	memset(heap->keys, 0, sizeof(*heap->keys));
	lock_init(&heap->keys->lock);
	return 0;
}

static void free_tables(struct stag_heap *heap)
{
	for (unsigned int i = 0; i < STAG_HEAP_MAX_DEVICES; i++) {
		if (heap->keys->table[i])
			munmap(heap->keys->table[i], table_size(heap));
		heap->keys->table[i] = NULL;
	}
}

/* [0048]: drops every entry with a blockId greater than zero. */
static void drop_device(struct stag_heap *heap, unsigned int number)
{
	struct heap_keys *keys = heap->keys;

	for (uint32_t i = 0; i < keys->device[number].used; i++)
		drop_entry(keys, &keys->table[number][i]);
	keys->device[number] = (struct heap_device){0};
	atomic_fetch_sub(&keys->num_devices, 1);
}

void keys_close(struct stag_heap *heap)
{
	if (!heap->keys)
		return;
	lock_acquire(&heap->keys->lock);
	for (unsigned int i = 0; i < STAG_HEAP_MAX_DEVICES; i++)
		if (heap->keys->device[i].pd)
			drop_device(heap, i);
	if (heap->self)
		publish(heap);
	lock_release(&heap->keys->lock);
	free_tables(heap);
	lock_destroy(&heap->keys->lock);
	free(heap->keys);
	heap->keys = NULL;
}

/* Initializes the lock again: a thread that does not exist in the child may hold it. */
void keys_forked(struct stag_heap *heap)
{
	if (!heap->keys)
		return;
	free_tables(heap);
	memset(heap->keys, 0, sizeof(*heap->keys));
	lock_init(&heap->keys->lock);
}

/* ---- public calls ---- */

static struct reg_entry *new_table(const struct stag_heap *heap)
{
	void *table = mmap(NULL, table_size(heap), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return table == MAP_FAILED ? NULL : table;
}

static int check_device(const struct stag_heap *heap, const struct ibv_pd *pd,
			const struct stag_heap_device_attr *attr)
{
	if (heap_check_attached(heap) != 0)
		return EINVAL;
	if (!pd)
		return heap_fail(EINVAL, "heap %s: the protection domain is NULL", heap->name);
	if (attr && attr->comp_mask)
		return heap_fail(EINVAL, "heap %s: unknown attributes (comp_mask %#llx)",
				 heap->name, (unsigned long long)attr->comp_mask);
	if (attr && attr->bind_qp && attr->bind_qp->pd != pd)
		return heap_fail(EINVAL, "heap %s: bind_qp belongs to another protection domain",
				 heap->name);
	return 0;
}

static bool has_windows(struct ibv_pd *pd)
{
	struct ibv_device_attr attr;

	return !ibv_query_device(pd->context, &attr) && attr.max_mw > 0;
}

static int add_device(struct stag_heap *heap, struct ibv_pd *pd,
		      const struct stag_heap_device_attr *attr, unsigned int *number)
{
	struct heap_keys *keys = heap->keys;
	unsigned int i = 0;

	while (i < STAG_HEAP_MAX_DEVICES && keys->device[i].pd)
		i++;
	if (i == STAG_HEAP_MAX_DEVICES)
		return heap_fail(ENOSPC, "heap %s: it has %u devices already, the maximum",
				 heap->name, i);
	if (!keys->table[i])
		keys->table[i] = new_table(heap);
	if (!keys->table[i])
		return heap_fail(ENOMEM, "heap %s: no memory for a registration table", heap->name);
	keys->device[i] = (struct heap_device){
		.pd = pd,
		.bind_qp = attr && attr->bind_qp && has_windows(pd) ? attr->bind_qp : NULL,
		.access = attr && attr->access ? attr->access : DEFAULT_RIGHTS,
		.guarded = can_guard(pd),
	};
	atomic_fetch_add(&keys->num_devices, 1);
	*number = i;
	return 0;
}

STAG_EXPORT int stag_heap_add_device(struct stag_heap *heap, struct ibv_pd *pd,
				     const struct stag_heap_device_attr *attr, unsigned int *device)
{
	int err = check_device(heap, pd, attr);

	if (err)
		return err;
	lock_acquire(&heap->keys->lock);
	err = add_device(heap, pd, attr, device);
	unlock(heap);
	return err;
}

STAG_EXPORT int stag_heap_remove_device(struct stag_heap *heap, unsigned int device)
{
	struct heap_keys *keys = heap->keys;
	int err = 0;

	if (heap_check_attached(heap) != 0)
		return EINVAL;
	if (device >= STAG_HEAP_MAX_DEVICES)
		return heap_fail(EINVAL, "heap %s: no device %u", heap->name, device);
	lock_acquire(&keys->lock);
	if (keys->device[device].pd)
		drop_device(heap, device);
	else
		err = heap_fail(EINVAL, "heap %s: no device %u", heap->name, device);
	unlock(heap);
	return err;
}

/* Figure 7, after the look-up without a lock found no valid entry. */
static int find_keys(struct stag_heap *heap, unsigned int device, const void *ptr,
		     struct stag_heap_keys *out)
{
	struct heap_keys *keys = heap->keys;
	struct reg_entry *entry;
	uint32_t index;
	int err;

	if (device >= STAG_HEAP_MAX_DEVICES || !keys->device[device].pd)
		return heap_fail(EINVAL, "heap %s: no device %u", heap->name, device);
	if (!heap_holds(heap, ptr))
		return heap_fail(ENOENT, "%p is not in heap %s", ptr, heap->name);
	index = heap_head(heap, heap_index(heap, ptr)); /* 704, 706 */
	err = ensure_registered(heap, device, index);
	if (err)
		return -err;
	entry = &keys->table[device][index];
	entry_read(entry, heap_load(&entry->block_id), out);
	return 0;
}

/* Not inlined, so that the fast path of the look-up need not save registers. */
static __attribute__((noinline)) int find_keys_locked(struct stag_heap *heap, unsigned int device,
						      const void *ptr, struct stag_heap_keys *out)
{
	int err;

	if (heap_check_attached(heap) != 0)
		return EINVAL;
	lock_acquire(&heap->keys->lock);
	err = find_keys(heap, device, ptr, out);
	unlock(heap);
	return err;
}

/* Looks up the entry of the run's first slot, which stands for the whole run. */
static __attribute__((noinline)) int find_keys_of_run(struct stag_heap *heap, unsigned int device,
						      const void *ptr, struct stag_heap_keys *keys)
{
	struct reg_entry *table =
		atomic_load_explicit(&heap->keys->table[device], memory_order_acquire);
	uint32_t index = heap_head(heap, heap_index(heap, ptr));
	uint64_t block_id =
		atomic_load_explicit(&heap->descs[index].block_id, memory_order_acquire);

	if (!table || !entry_read(&table[index], block_id, keys))
		return find_keys_locked(heap, device, ptr, keys);
	count_saved(heap->keys);
	return 0;
}

/*
 * [0047]: turns the pointer into an index, and compares the entries of both tables there. For a
 * slot after the first of a run these never match: the slot's blockId was incremented when the last
 * block in it was released.
 */
STAG_EXPORT int stag_heap_keys(struct stag_heap *heap, unsigned int device, const void *ptr,
			       struct stag_heap_keys *keys)
{
	uint64_t within = (uint64_t)((const char *)ptr - heap->area), index, block_id;
	struct heap_keys *own = heap->keys;
	struct reg_entry *table;

	if (unlikely(device >= STAG_HEAP_MAX_DEVICES || within >= heap->area_size))
		return find_keys_locked(heap, device, ptr, keys);
	table = atomic_load_explicit(&own->table[device], memory_order_acquire);
	index = within >> heap->geo.block_shift;
	block_id = atomic_load_explicit(&heap->descs[index].block_id, memory_order_acquire);
	if (unlikely(!table || !entry_read(&table[index], block_id, keys)))
		return find_keys_of_run(heap, device, ptr, keys);
	count_saved(own);
	return 0;
}
