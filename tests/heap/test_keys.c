// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_keys.c - the registration tables: figures 4 to 7, paragraph by paragraph, on the software
 * adapter.
 *
 * Checks which registrations are made, released and found stale, and which memory each key gives
 * access to: in this process, and for another process over the adapter. With REAL the test runs on
 * any other device, such as the kernel's siw: there, the pages that the device pinned are the only
 * protection.
 */
#include "other.h"
#include "side.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dice.h"
#include "stag/heap.h"
#include "stag/stagdv.h"

#define MIB	   (1u << 20)
#define BLOCK	   MIB
#define BLOCKS	   4 /* so few that a slot is soon reused */
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

#ifdef REAL
#define NO_GUARDS
#elif defined(NO_GUARDS)
/*
 * Overrides the symbol that the heap looks up in the program, so that the device looks like any
 * other.
 */
bool stagdv_is_supported(struct ibv_device *device)
{
	return false;
}
#endif

static char name[STAG_HEAP_NAME_MAX];

struct stage {
	struct ibv_context **contexts;
	struct ibv_pd *pd;
	struct stag_heap *heap;
	unsigned int device;
	struct other other;
};

/* ---- a heap, a protection domain, and another process ---- */

static struct ibv_pd *new_pd(struct stage *s)
{
	struct ibv_pd *pd = ibv_alloc_pd(s->contexts[0]);

	assert_non_null(pd);
	return pd;
}

static int open_stage(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));
	struct stag_heap_attr attr = {.block_size = BLOCK,
				      .max_blocks = BLOCKS,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};

	s->contexts = rdma_get_devices(NULL);
	s->pd = new_pd(s);
	snprintf(name, sizeof(name), "test-keys.%d", getpid());
	s->heap = stag_heap_create(name, &attr);
	if (!s->heap)
		fail_msg("%s", stag_heap_error());
	other_start(&s->other, name);
	*state = s;
	return 0;
}

/*
 * [0048]: after the process detaches, none of its registrations remains: the domain can be
 * deallocated.
 */
static int close_stage(void **state)
{
	struct stage *s = *state;

	if (s->heap) {
		assert_int_equal(stag_heap_check(s->heap, stderr), 0);
		assert_int_equal(stag_heap_detach(s->heap, true), 0);
	}
	assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	other_end(&s->other);
	stag_heap_unlink(name);
	rdma_free_devices(s->contexts);
	free(s);
	return 0;
}

static void add_device(struct stage *s)
{
	assert_int_equal(stag_heap_add_device(s->heap, s->pd, NULL, &s->device), 0);
}

static struct stag_heap_stats stats(struct stage *s)
{
	struct stag_heap_stats all;

	assert_int_equal(stag_heap_query(s->heap, &all, sizeof(all)), 0);
	return all;
}

static struct stag_heap_keys keys_of(struct stage *s, const void *ptr)
{
	struct stag_heap_keys k = {0};
	int err = stag_heap_keys(s->heap, s->device, ptr, &k);

	if (err)
		fail_msg("%s: %s", strerror(err), stag_heap_error());
	return k;
}

static struct stag_heap_block block_of(struct stage *s, const void *ptr)
{
	struct stag_heap_block b;
	uint32_t i = 0;

	while (stag_heap_next_block(s->heap, &i, &b))
		if ((uintptr_t)ptr - b.address < b.size)
			return b;
	fail_msg("no block holds %p", ptr);
	return b;
}

/* Makes the other process allocate blocks until one lies where ptr did, and free the rest. */
static void *other_alloc_at(struct stage *s, const void *ptr, size_t size)
{
	void *got[BLOCKS] = {0}, *found = NULL;
	int n = 0;

	while (!found) {
		assert_true(n < BLOCKS);
		got[n] = other_alloc(&s->other, size);
		if (got[n] == ptr)
			found = got[n];
		n++;
	}
	while (n--)
		if (got[n] != found)
			other_free(&s->other, got[n]);
	return found;
}

/* ---- figures 5 and 6: a block from the system ---- */

/* [0042], step 614: the new block's entry has no registration, so one is made immediately. */
static void block_from_the_system_is_registered_at_once(void **state)
{
	struct stage *s = *state;
	void *ptr;

	add_device(s);
	assert_int_equal(stats(s).registrations_made, 0);
	ptr = stag_heap_alloc(s->heap, 100);
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(stats(s).registrations, 1);
	assert_int_equal(stats(s).stale_found, 0);
	assert_int_not_equal(keys_of(s, ptr).rkey, 0);
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(stats(s).registrations_saved, 1);
	stag_heap_free(s->heap, ptr);
}

/* [0025], [0043], step 708: an allocation inside a registered block needs no registration. */
static void memory_of_a_registered_block_needs_no_registration(void **state)
{
	struct stage *s = *state;
	void *ptrs[100];
	uint32_t rkey = 0;

	add_device(s);
	for (int i = 0; i < 100; i++) {
		ptrs[i] = stag_heap_alloc(s->heap, 200);
		if (i)
			assert_int_equal(keys_of(s, ptrs[i]).rkey, rkey);
		rkey = keys_of(s, ptrs[i]).rkey;
	}
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(stats(s).registrations_saved, 199);
	for (int i = 0; i < 100; i++)
		stag_heap_free(s->heap, ptrs[i]);
}

/* [0046], and step 512: the block is released, and its registration before it. */
static void registration_is_released_with_its_block(void **state)
{
	struct stage *s = *state;
	uint64_t id;
	void *ptr, *again;
	struct stag_heap_keys old, new;

	add_device(s);
	ptr = stag_heap_alloc(s->heap, BLOCK * 3 / 2);
	id = block_of(s, ptr).block_id;
	old = keys_of(s, ptr);
	assert_int_equal(stats(s).registrations, 1);
	stag_heap_free(s->heap, ptr);
	assert_true(stag_heap_trim(s->heap) >= BLOCK);
	assert_int_equal(stats(s).registrations, 0);
	assert_int_equal(stats(s).stale_found, 0);
	again = stag_heap_alloc(s->heap, BLOCK * 3 / 2);
	assert_ptr_equal(again, ptr);
	assert_int_equal(block_of(s, again).block_id, id + 1);
	new = keys_of(s, again);
	assert_int_not_equal(new.rkey, old.rkey);
	assert_int_equal(stats(s).registrations_made, 2);
	stag_heap_free(s->heap, again);
}

/* Larger than a block: one registration for all of it. */
static void large_memory_has_one_key(void **state)
{
	struct stage *s = *state;
	char *ptr;

	add_device(s);
	ptr = stag_heap_alloc(s->heap, 3 * BLOCK);
	assert_int_equal(keys_of(s, ptr).rkey, keys_of(s, ptr + 3 * BLOCK - 1).rkey);
	assert_int_equal(keys_of(s, ptr).rkey, keys_of(s, ptr + BLOCK + 17).rkey);
	assert_int_equal(stats(s).registrations_made, 1);
	stag_heap_free(s->heap, ptr);
}

/* ---- figure 7: a block of the heap ---- */

/* [0043], [0044]: registered at the first key lookup, and kept. */
static void block_of_the_heap_is_registered_at_the_first_key_lookup(void **state)
{
	struct stage *s = *state;
	void *mine = stag_heap_alloc(s->heap, 64), *its = other_alloc(&s->other, 64);
	uint32_t rkey;

	add_device(s);
	assert_int_equal(stats(s).registrations_made, 0);
	rkey = keys_of(s, its).rkey;
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(keys_of(s, its).rkey, rkey);
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_not_equal(keys_of(s, mine).rkey, rkey);
	assert_int_equal(stats(s).registrations_made, 2);
	assert_int_equal(stats(s).registrations_saved, 1);
	stag_heap_free(s->heap, its);
	stag_heap_free(s->heap, mine);
}

/*
 * [0023], [0027], [0045], steps 710 to 716: another process releases its block without notifying
 * anyone. Our registration of it stays until the next lookup finds its older blockId and drops it.
 */
static void stale_registration_is_found_and_dropped(void **state)
{
	struct stage *s = *state;
	size_t size = BLOCK * 3 / 4;
	void *ptr = other_alloc(&s->other, size);
	uint64_t id = block_of(s, ptr).block_id;
	uint32_t old;

	add_device(s);
	old = keys_of(s, ptr).rkey;
	other_free(&s->other, ptr);
	other_trim(&s->other);
	assert_int_equal(stats(s).registrations, 1);
	assert_int_equal(other_alloc_at(s, ptr, size) == ptr, 1);
	assert_true(block_of(s, ptr).block_id > id);
	assert_int_equal(stats(s).stale_found, 0);
	assert_int_not_equal(keys_of(s, ptr).rkey, old);
	assert_int_equal(stats(s).stale_found, 1);
	assert_int_equal(stats(s).registrations, 1);
	assert_int_equal(stats(s).registrations_made, 2);
	other_free(&s->other, ptr);
	other_trim(&s->other);
}

/*
 * [0028], [0034], [0042], steps 610 and 612: a stale registration is found also when this process
 * takes the slot.
 */
static void stale_registration_is_dropped_when_the_slot_is_reused(void **state)
{
	struct stage *s = *state;
	size_t size = BLOCK * 3 / 4;
	void *ptrs[BLOCKS];

	add_device(s);
	for (int i = 0; i < BLOCKS; i++)
		ptrs[i] = other_alloc(&s->other, size);
	for (int i = 0; i < BLOCKS; i++)
		keys_of(s, ptrs[i]);
	for (int i = 0; i < BLOCKS; i++)
		other_free(&s->other, ptrs[i]);
	other_trim(&s->other);
	assert_int_equal(stats(s).registrations, BLOCKS);
	for (int i = 0; i < BLOCKS; i++)
		ptrs[i] = stag_heap_alloc(s->heap, size);
	assert_int_equal(stats(s).stale_found, BLOCKS);
	assert_int_equal(stats(s).registrations, BLOCKS);
	for (int i = 0; i < BLOCKS; i++)
		stag_heap_free(s->heap, ptrs[i]);
}

/* A run of slots covers former blocks: their stale registrations are dropped, too. */
static void stale_registrations_under_a_large_one_are_dropped(void **state)
{
	struct stage *s = *state;
	void *ptrs[BLOCKS], *large;

	add_device(s);
	for (int i = 0; i < BLOCKS; i++)
		ptrs[i] = other_alloc(&s->other, BLOCK * 3 / 4);
	for (int i = 0; i < BLOCKS; i++)
		keys_of(s, ptrs[i]);
	for (int i = 0; i < BLOCKS; i++)
		other_free(&s->other, ptrs[i]);
	other_trim(&s->other);
	large = stag_heap_alloc(s->heap, (BLOCKS - 1) * (size_t)BLOCK);
	assert_non_null(large);
	assert_int_equal(stats(s).stale_found, BLOCKS);
	assert_int_equal(stats(s).registrations, 1);
	stag_heap_free(s->heap, large);
}

/*
 * An empty block that is retained keeps its blockId, and this process keeps its registration of it.
 */
static void retained_block_keeps_its_registration_across_owners(void **state)
{
	struct stage *s = *state;
	size_t size = BLOCK * 3 / 4;
	void *ptr = other_alloc(&s->other, size);
	uint64_t id = block_of(s, ptr).block_id;

	add_device(s);
	keys_of(s, ptr);
	other_free(&s->other, ptr); /* the other process does not trim */
	assert_int_equal(stag_heap_alloc(s->heap, size) == ptr, 1);
	assert_int_equal(block_of(s, ptr).block_id, id);
	keys_of(s, ptr);
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(stats(s).stale_found, 0);
	stag_heap_free(s->heap, ptr);
}

/* ---- invalid arguments ---- */

static void no_keys_for_memory_outside_the_heap(void **state)
{
	struct stage *s = *state;
	struct stag_heap_keys k;
	void *ptr = stag_heap_alloc(s->heap, BLOCK * 3 / 2);
	int local;

	add_device(s);
	assert_int_equal(stag_heap_keys(s->heap, s->device, &local, &k), ENOENT);
	assert_int_equal(stag_heap_keys(s->heap, s->device, NULL, &k), ENOENT);
	assert_int_equal(stag_heap_keys(s->heap, s->device + 1, ptr, &k), EINVAL);
	assert_int_equal(stag_heap_keys(s->heap, 1000, ptr, &k), EINVAL);
	keys_of(s, ptr);
	stag_heap_free(s->heap, ptr);
	stag_heap_trim(s->heap);
	assert_int_equal(stag_heap_keys(s->heap, s->device, ptr, &k), ENOENT);
}

static void invalid_devices_are_refused(void **state)
{
	struct stage *s = *state;
	struct stag_heap_device_attr strange = {.comp_mask = 1};
	unsigned int n;

	assert_int_equal(stag_heap_add_device(s->heap, NULL, NULL, &n), EINVAL);
	assert_int_equal(stag_heap_add_device(s->heap, s->pd, &strange, &n), EINVAL);
	assert_int_equal(stag_heap_remove_device(s->heap, 0), EINVAL);
	assert_int_equal(stag_heap_remove_device(s->heap, 1000), EINVAL);
	for (unsigned int i = 0; i < STAG_HEAP_MAX_DEVICES; i++) {
		assert_int_equal(stag_heap_add_device(s->heap, s->pd, NULL, &n), 0);
		assert_int_equal(n, i);
	}
	assert_int_equal(stag_heap_add_device(s->heap, s->pd, NULL, &n), ENOSPC);
	assert_int_equal(stag_heap_remove_device(s->heap, 1), 0);
	assert_int_equal(stag_heap_add_device(s->heap, s->pd, NULL, &n), 0);
	assert_int_equal(n, 1);
}

/* ---- keys in use ---- */

struct guest {
	struct side side;
};

/* Listens for a connection in the domain `pd`, and returns the port. */
static uint16_t listen_for_guest(struct guest *g, struct ibv_pd *pd)
{
	side_listen(&g->side, &(struct side_wish){.pd = pd, .inline_data = OTHER_INLINE});
	return side_port(&g->side);
}

static void accept_guest(struct guest *g)
{
	side_take_request(&g->side);
	assert_int_equal(side_accept(&g->side), 0);
	expect_cm(&g->side, RDMA_CM_EVENT_ESTABLISHED);
}

/* Makes the other process access [ptr, len) of this one, and returns whether it was permitted. */
static bool other_process_accesses(struct stage *s, struct ibv_pd *pd, enum access access,
				   uint32_t rkey, void *ptr, size_t len, uint8_t byte)
{
	struct guest g;
	bool let;

	other_access(&s->other, listen_for_guest(&g, pd), access, rkey, (uintptr_t)ptr, len, byte);
	accept_guest(&g);
	let = other_answer(&s->other);
#ifndef REAL
	if (!let) {
		expect_disconnected(&g.side);
		expect_async(&g.side, IBV_EVENT_QP_ACCESS_ERR);
	}
#endif
	side_close(&g.side);
	return let;
}

static bool holds_only(const uint8_t *at, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

/* [0047]: the key of a pointer gives another process access to its memory over the adapter. */
static void another_process_writes_and_reads_with_our_key(void **state)
{
	struct stage *s = *state;
	size_t sizes[] = {1, 64, 5000, 300000, 2 * BLOCK};

	add_device(s);
	for (unsigned i = 0; i < 5; i++) {
		uint8_t *ptr = stag_heap_alloc(s->heap, sizes[i]);
		uint32_t rkey = keys_of(s, ptr).rkey;

		assert_true(
			other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, sizes[i], 0x30));
		assert_true(holds_only(ptr, sizes[i], 0x30));
		memset(ptr, 0x40, sizes[i]);
		assert_true(
			other_process_accesses(s, s->pd, ACCESS_READ, rkey, ptr, sizes[i], 0x40));
		stag_heap_free(s->heap, ptr);
	}
}

/*
 * The memory belongs to another process; the key to this one, and so does the adapter that serves
 * it.
 */
static void memory_of_another_process_is_served_under_our_key(void **state)
{
	struct stage *s = *state;
	void *ptr = other_alloc(&s->other, 5000);

	add_device(s);
	other_fill(&s->other, ptr, 5000, 0x51);
	assert_true(other_process_accesses(s, s->pd, ACCESS_READ, keys_of(s, ptr).rkey, ptr, 5000,
					   0x51));
	assert_true(other_process_accesses(s, s->pd, ACCESS_WRITE, keys_of(s, ptr).rkey, ptr, 5000,
					   0x52));
	assert_true(other_finds(&s->other, ptr, 5000, 0x52));
	other_free(&s->other, ptr);
}

#ifndef NO_GUARDS
/*
 * This process was not notified that the block was released. Its key is refused all the same,
 * whichever process owns the memory now.
 */
static void key_of_a_block_that_another_process_released_is_refused(void **state)
{
	struct stage *s = *state;
	size_t size = BLOCK * 3 / 4;
	void *ptr = other_alloc(&s->other, size);
	uint32_t rkey;

	add_device(s);
	rkey = keys_of(s, ptr).rkey;
	assert_true(other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, size, 0x61));
	other_free(&s->other, ptr);
	other_trim(&s->other);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, 64, 0x62));
	assert_false(other_process_accesses(s, s->pd, ACCESS_READ, rkey, ptr, 64, 0));
	assert_ptr_equal(other_alloc_at(s, ptr, size), ptr);
	other_fill(&s->other, ptr, size, 0x63);
	/* The registration still exists, and is invalid. */
	assert_int_equal(stats(s).registrations, 1);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, size, 0x64));
	assert_false(other_process_accesses(s, s->pd, ACCESS_READ, rkey, ptr, 64, 0x63));
	assert_true(other_finds(&s->other, ptr, size, 0x63));
	assert_true(other_process_accesses(s, s->pd, ACCESS_READ, keys_of(s, ptr).rkey, ptr, size,
					   0x63));
	assert_false(other_process_accesses(s, s->pd, ACCESS_READ, rkey, ptr, 64, 0x63));
	other_free(&s->other, ptr);
	other_trim(&s->other);
}

#endif

#ifdef REAL
#define OLD 4

/*
 * The adapter has pinned the old pages: an old key gives access to those alone, whichever process
 * owns the memory now.
 */
static void old_keys_give_access_to_old_pages_only(void **state)
{
	struct stage *s = *state;
	size_t size = BLOCK * 3 / 4;
	void *ptr = other_alloc(&s->other, size);
	uint32_t old, new;

	add_device(s);
	old = keys_of(s, ptr).rkey;
	assert_true(other_process_accesses(s, s->pd, ACCESS_WRITE, old, ptr, size, 0x61));
	assert_true(other_finds(&s->other, ptr, size, 0x61));
	other_free(&s->other, ptr);
	other_trim(&s->other);
	for (uint8_t i = 0; i < OLD; i++) {
		assert_ptr_equal(other_alloc_at(s, ptr, size), ptr);
		other_fill(&s->other, ptr, size, i);
		assert_true(
			other_process_accesses(s, s->pd, ACCESS_WRITE, old, ptr, size, 0x62 + i));
		assert_true(other_finds(&s->other, ptr, size, i));
		assert_true(
			other_process_accesses(s, s->pd, ACCESS_READ, old, ptr, size, 0x62 + i));
		other_free(&s->other, ptr);
		other_trim(&s->other);
	}
	assert_int_equal(stats(s).registrations, 1);
	assert_ptr_equal(other_alloc_at(s, ptr, size), ptr);
	other_fill(&s->other, ptr, size, 0x71);
	new = keys_of(s, ptr).rkey;
	assert_int_equal(stats(s).stale_found, 1);
	assert_true(other_process_accesses(s, s->pd, ACCESS_READ, new, ptr, size, 0x71));
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, old, ptr, 64, 0x72));
	assert_true(other_finds(&s->other, ptr, size, 0x71));
	other_free(&s->other, ptr);
	other_trim(&s->other);
}

#endif

static void key_of_a_block_that_we_released_is_refused(void **state)
{
	struct stage *s = *state;
	void *ptr, *again;
	uint32_t rkey;

	add_device(s);
	ptr = stag_heap_alloc(s->heap, 2 * BLOCK);
	rkey = keys_of(s, ptr).rkey;
	stag_heap_free(s->heap, ptr);
	stag_heap_trim(s->heap);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, 64, 0x62));
	again = stag_heap_alloc(s->heap, 2 * BLOCK);
	assert_ptr_equal(again, ptr);
	memset(again, 0x71, 2 * BLOCK);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, rkey, ptr, 64, 0x62));
	assert_true(holds_only(again, 2 * BLOCK, 0x71));
	stag_heap_free(s->heap, again);
}

/* The header of a block belongs to the heap: no key gives access to it. */
static void no_key_gives_access_to_a_block_header(void **state)
{
	struct stage *s = *state;
	uint8_t *ptr = stag_heap_alloc(s->heap, 100);
	void *header;

	add_device(s);
	header = (void *)(uintptr_t)block_of(s, ptr).address;
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, keys_of(s, ptr).rkey, header,
					    64, 0x62));
	stag_heap_free(s->heap, ptr);
}

/* ---- several devices ---- */

static void two_devices_have_keys_of_their_own(void **state)
{
	struct stage *s = *state;
	struct ibv_pd *second = new_pd(s);
	unsigned int n;
	void *ptr;
	struct stag_heap_keys k;
	uint32_t first;

	add_device(s);
	assert_int_equal(stag_heap_add_device(s->heap, second, NULL, &n), 0);
	ptr = stag_heap_alloc(s->heap, 5000);
	assert_int_equal(stats(s).registrations, 2);
	first = keys_of(s, ptr).rkey;
	assert_int_equal(stag_heap_keys(s->heap, n, ptr, &k), 0);
	assert_int_not_equal(k.rkey, first);
	assert_true(other_process_accesses(s, s->pd, ACCESS_WRITE, first, ptr, 5000, 0x11));
	assert_true(other_process_accesses(s, second, ACCESS_WRITE, k.rkey, ptr, 5000, 0x12));
	assert_true(holds_only(ptr, 5000, 0x12));
	assert_false(other_process_accesses(s, second, ACCESS_WRITE, first, ptr, 5000, 0x13));
	assert_int_equal(stag_heap_remove_device(s->heap, n), 0);
	assert_int_equal(stag_heap_keys(s->heap, n, ptr, &k), EINVAL);
	assert_int_equal(stats(s).registrations, 1);
	assert_int_equal(keys_of(s, ptr).rkey, first);
	assert_int_equal(ibv_dealloc_pd(second), 0);
	stag_heap_free(s->heap, ptr);
}

/*
 * Two contexts, as of two adapters; a stale registration is found when the entry of its own device
 * is read.
 */
static void each_device_finds_its_own_stale_registrations(void **state)
{
	struct stage *s = *state;
	struct ibv_context *context = ibv_open_device(s->contexts[0]->device);
	struct ibv_pd *second = ibv_alloc_pd(context);
	size_t size = BLOCK * 3 / 4;
	void *ptr = other_alloc(&s->other, size), *mine;
	struct stag_heap_keys k, old;
	unsigned int n;

	add_device(s);
	assert_int_equal(stag_heap_add_device(s->heap, second, NULL, &n), 0);
	keys_of(s, ptr);
	/* With the device whose key was looked up. */
	assert_int_equal(stats(s).registrations_made, 1);
	assert_int_equal(stag_heap_keys(s->heap, n, ptr, &old), 0);
	assert_int_equal(stats(s).registrations, 2);
	other_free(&s->other, ptr);
	other_trim(&s->other);
	assert_ptr_equal(other_alloc_at(s, ptr, size), ptr);
	assert_int_equal(stag_heap_keys(s->heap, n, ptr, &k), 0);
	assert_int_not_equal(k.rkey, old.rkey);
	assert_int_equal(stats(s).stale_found, 1);
	keys_of(s, ptr);
	assert_int_equal(stats(s).stale_found, 2);
	assert_int_equal(stats(s).registrations, 2);
	/* A block of ours: registered with both immediately. */
	mine = stag_heap_alloc(s->heap, 100);
	assert_int_equal(stats(s).registrations, 4);
	assert_int_equal(stats(s).registrations_made, 6);
	assert_int_equal(stag_heap_remove_device(s->heap, n), 0);
	assert_int_equal(ibv_dealloc_pd(second), 0);
	assert_int_equal(ibv_close_device(context), 0);
	keys_of(s, mine);
	assert_int_equal(stats(s).registrations, 2);
	stag_heap_free(s->heap, mine);
	other_free(&s->other, ptr);
	other_trim(&s->other);
}

/* ---- windows ---- */

#ifndef NO_GUARDS
/*
 * [0038], [0042]: the remote key belongs to a memory window, bound to the region, and deallocated
 * before it.
 */
static void remote_keys_are_bound_memory_windows(void **state)
{
	struct stage *s = *state;
	struct pair p;
	struct stag_heap_device_attr attr = {.access = ALL_RIGHTS};
	size_t size = BLOCK * 3 / 4;
	void *ptr, *its;
	struct stag_heap_keys k, old;

	pair_open(&p, NULL, &(struct side_wish){.pd = s->pd});
	attr.bind_qp = p.b.qp;
	assert_int_equal(stag_heap_add_device(s->heap, s->pd, &attr, &s->device), 0);
	ptr = stag_heap_alloc(s->heap, 5000);
	k = keys_of(s, ptr);
	assert_int_not_equal(k.lkey, k.rkey);
	assert_true(other_process_accesses(s, s->pd, ACCESS_WRITE, k.rkey, ptr, 5000, 0x21));
	assert_true(holds_only(ptr, 5000, 0x21));
	/* The region's key is refused. */
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, k.lkey, ptr, 64, 0x22));
	its = other_alloc(&s->other, size);
	old = keys_of(s, its);
	other_free(&s->other, its);
	other_trim(&s->other);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, old.rkey, its, 64, 0x23));
	assert_ptr_equal(other_alloc_at(s, its, size), its);
	assert_false(other_process_accesses(s, s->pd, ACCESS_WRITE, old.rkey, its, 64, 0x23));
	assert_int_not_equal(keys_of(s, its).rkey, old.rkey);
	assert_int_equal(stats(s).stale_found, 1);
	assert_int_equal(stag_heap_remove_device(s->heap, s->device), 0);
	assert_int_equal(stats(s).registrations, 0);
	other_free(&s->other, its);
	stag_heap_free(s->heap, ptr);
	pair_close(&p);
}

#endif

/* ---- threads ---- */

#define THREADS 3
#define ROUNDS	300

struct crowd {
	struct stage *s;
	void *_Atomic ptr; /* in a block that is released and reallocated; may be invalid */
	atomic_bool over;
	atomic_ullong found, missed, wrong;
};

static void *look_up_keys(void *arg)
{
	struct crowd *c = arg;

	while (!atomic_load(&c->over)) {
		void *ptr = atomic_load(&c->ptr);
		struct stag_heap_keys k = {0};
		int err = ptr ? stag_heap_keys(c->s->heap, c->s->device, ptr, &k) : ENOENT;

		if (err && err != ENOENT)
			atomic_fetch_add(&c->wrong, 1);
		atomic_fetch_add(err ? &c->missed : &c->found, 1);
	}
	return NULL;
}

/* Looks keys up without a lock while blocks are released, reallocated and registered again. */
static void threads_look_up_keys_while_blocks_are_released(void **state)
{
	struct crowd c = {.s = *state};
	struct stage *s = *state;
	pthread_t threads[THREADS];
	size_t size = BLOCK * 3 / 4;
	unsigned long rounds = is_slow_build() ? ROUNDS : lessened(ROUNDS);

	add_device(s);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_up_keys, &c), 0);
	for (unsigned long i = 0; i < rounds || !c.found; i++) {
		void *ptr = other_alloc(&s->other, size);

		atomic_store(&c.ptr, ptr);
		keys_of(s, ptr);
		other_free(&s->other, ptr);
		other_trim(&s->other);
	}
	atomic_store(&c.over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(c.wrong, 0);
	assert_true(c.found > 0);
	assert_in_range(stats(s).registrations, 0, BLOCKS);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, open_stage, close_stage)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(block_from_the_system_is_registered_at_once),
		TEST(memory_of_a_registered_block_needs_no_registration),
		TEST(registration_is_released_with_its_block),
		TEST(large_memory_has_one_key),
		TEST(block_of_the_heap_is_registered_at_the_first_key_lookup),
		TEST(stale_registration_is_found_and_dropped),
		TEST(stale_registration_is_dropped_when_the_slot_is_reused),
		TEST(stale_registrations_under_a_large_one_are_dropped),
		TEST(retained_block_keeps_its_registration_across_owners),
		TEST(no_keys_for_memory_outside_the_heap),
		TEST(invalid_devices_are_refused),
		TEST(another_process_writes_and_reads_with_our_key),
		TEST(memory_of_another_process_is_served_under_our_key),
#ifndef NO_GUARDS
		TEST(key_of_a_block_that_another_process_released_is_refused),
		TEST(remote_keys_are_bound_memory_windows),
#endif
#ifdef REAL
		TEST(old_keys_give_access_to_old_pages_only),
#endif
		TEST(key_of_a_block_that_we_released_is_refused),
		TEST(no_key_gives_access_to_a_block_header),
		TEST(two_devices_have_keys_of_their_own),
		TEST(each_device_finds_its_own_stale_registrations),
		TEST(threads_look_up_keys_while_blocks_are_released),
	};
	int status;

	if (other_main(argc, argv, &status))
		return status;
	return cmocka_run_group_tests_name("keys of the heap", tests, NULL, NULL);
}
