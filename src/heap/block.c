// SPDX-License-Identifier: BSD-2-Clause
/*
 * block.c - the shared descriptor table: allocates blocks from the system, returns them, and passes
 * them from one process to another.
 *
 * Each entry has one word of state, which includes a sequence number, so that a compare-and-swap
 * notices every change. Memory is allocated (fallocate) in phase TAKING and released (a hole is
 * punched) in phase RELEASING. Both name the process that is at work; if it dies, the reaper
 * releases the block. Releasing is idempotent, except that each time increments the blockId.
 *
 * Blocks are taken from the bottom of the area and runs from the top, to keep free slots
 * contiguous.
 */
#include "heap.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define IDLE_RUNS_TO_TRY 32u

static uint64_t state_after(uint64_t old, enum block_phase phase, int slot, uint64_t run)
{
	return ((old >> 32) + 1) << 32 | run | (uint64_t)(slot + 1) << 8 | phase;
}

/* Changes a state that other processes may change, too. Returns false if one has. */
static bool move_phase(struct heap_desc *desc, uint64_t old, enum block_phase phase, int slot)
{
	uint64_t run = phase == BLOCK_OPEN ? 0 : old & DESC_RUN;

	return atomic_compare_exchange_strong(&desc->state, &old,
					      state_after(old, phase, slot, run));
}

/* Sets a state that only the process named in it may change. */
static void set_state(struct heap_desc *desc, enum block_phase phase, int slot, uint64_t run)
{
	atomic_store(&desc->state, state_after(heap_load(&desc->state), phase, slot, run));
}

static uint64_t file_offset(const struct stag_heap *heap, uint32_t index)
{
	return heap->files.area_offset + ((uint64_t)index << heap->geo.block_shift);
}

static int commit(struct stag_heap *heap, uint64_t offset, uint64_t length)
{
	uint64_t unit = heap->geo.commit_unit, end = (offset + length + unit - 1) / unit * unit;
	int rc;

	offset = offset / unit * unit;
	do
		rc = fallocate(heap->files.area_fd, 0, (off_t)offset, (off_t)(end - offset));
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : -ENOMEM;
}

static void punch(struct stag_heap *heap, uint32_t index, uint32_t slots)
{
	off_t offset = (off_t)file_offset(heap, index);
	off_t length = (off_t)((uint64_t)slots << heap->geo.block_shift);

	while (fallocate(heap->files.area_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
			 length) != 0 &&
	       errno == EINTR)
		;
}

/*
 * Returns whether an access under an old registration may still be in flight in some process: with
 * guards (stagdv.h) a process stores the index + 1 of the block in a hazard cell before it compares
 * the blockIds. If the slot was part of a run, that is the index of the run's first slot.
 */
static bool has_hazard(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t own = (uint64_t)index + 1;
	uint64_t head = heap_load(&desc->was_run) ? (uint64_t)heap_load(&desc->head) + 1 : own;

	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++) {
		struct heap_proc *proc = &heap->procs[i];

		if ((atomic_load(&proc->state) & 0xff) == PROC_FREE)
			continue;
		for (unsigned int k = 0; k < HEAP_HAZARDS; k++) {
			uint64_t cell = atomic_load(&proc->hazards[k]);

			if (cell != 0 && (cell == own || cell == head))
				return true;
		}
	}
	return false;
}

/* ---- back to the system --------------------------------------------------- */

static void open_entry(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];

	set_state(desc, BLOCK_OPEN, -1, 0);
	hint_set(&heap->hints.open, index);
}

/*
 * Returns how many tails the run still has. They are opened from the last to the first, so if a
 * process dies meanwhile, the first ones are left.
 */
static uint32_t tails_left(struct stag_heap *heap, uint32_t index)
{
	uint32_t n = heap_load(&heap->descs[index].tails);

	if (n >= heap->geo.max_blocks - index)
		n = heap->geo.max_blocks - index - 1;
	for (; n > 0; n--) {
		struct heap_desc *tail = &heap->descs[index + n];

		if (desc_phase(atomic_load(&tail->state)) == BLOCK_TAIL &&
		    heap_load(&tail->head) == index)
			break;
	}
	return n;
}

/* Releases a block that this process has moved to RELEASING. Returns its size in bytes. */
static uint64_t finish_release(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t bytes = heap_load(&desc->block_size);
	uint32_t tails = tails_left(heap, index);
	bool run = desc_is_run(heap_load(&desc->state));

	atomic_fetch_add(&desc->block_id, 1);
	keys_block_released(heap, index);
	atomic_store(&desc->block_ptr, 0);
	atomic_store(&desc->block_size, 0);
	punch(heap, index, tails + 1);
	for (uint32_t i = tails; i > 0; i--) {
		heap_store(&heap->descs[index + i].was_run, 1);
		open_entry(heap, index + i);
	}
	if (run) /* else unchanged: a process that died in TAKING has not acted on it yet */
		heap_store(&desc->was_run, 1);
	heap_store(&desc->tails, 0);
	heap_store(&desc->deadline, 0);
	open_entry(heap, index);
	atomic_fetch_add_explicit(&heap->self->blocks_released, 1, memory_order_relaxed);
	return bytes;
}

uint64_t block_release(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);

	assert(!lock_held(&heap->local.lock));
	if (!move_phase(desc, state, BLOCK_RELEASING, (int)heap->slot))
		return 0;
	return finish_release(heap, index);
}

static uint64_t release_idle_in(struct stag_heap *heap, struct hint_map *map, uint64_t now)
{
	uint64_t bytes = 0;

	for (uint32_t i = hint_next(map, 0); i != HINT_NONE; i = hint_next(map, i + 1)) {
		struct heap_desc *desc = &heap->descs[i];
		uint64_t state = atomic_load(&desc->state);

		if (desc_phase(state) != BLOCK_IDLE || heap_load(&desc->deadline) > now)
			continue;
		if (!move_phase(desc, state, BLOCK_RELEASING, (int)heap->slot))
			continue;
		hint_clear(map, i);
		bytes += finish_release(heap, i);
	}
	return bytes;
}

uint64_t block_release_idle(struct stag_heap *heap, uint64_t now)
{
	return release_idle_in(heap, &heap->hints.idle, now) +
	       release_idle_in(heap, &heap->hints.idle_runs, now);
}

/* ---- one block ------------------------------------------------------------ */

/* Clears a hint that is wrongly set, unless it has become true meanwhile. */
static void correct_hint(struct stag_heap *heap, struct hint_map *map, uint32_t index,
			 enum block_phase phase)
{
	hint_clear(map, index);
	if (desc_phase(atomic_load(&heap->descs[index].state)) == phase)
		hint_set(map, index);
}

static bool claim_open(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);

	if (desc_phase(state) != BLOCK_OPEN) {
		correct_hint(heap, &heap->hints.open, index, BLOCK_OPEN);
		return false;
	}
	if (!move_phase(desc, state, BLOCK_TAKING, (int)heap->slot))
		return false;
	if (has_hazard(heap, index)) {
		open_entry(heap, index);
		return false;
	}
	hint_clear(&heap->hints.open, index);
	return true;
}

/* Fills the entry of a block that becomes live, except its state. */
static void describe(struct stag_heap *heap, uint32_t index, uint64_t size)
{
	struct heap_desc *desc = &heap->descs[index];

	if (heap_load(&desc->block_id) == 0)
		atomic_store(&desc->block_id, 1);
	atomic_store(&desc->block_ptr, (uintptr_t)heap_block_at(heap, index));
	atomic_store(&desc->block_size, size);
}

static void write_header(struct stag_heap *heap, uint32_t index, uint64_t data_offset)
{
	struct heap_block *block = heap_block_at(heap, index);

	block->magic = HEAP_MAGIC;
	block->index = index;
	block->data_offset = data_offset;
	heap_store(&block->sharing, 0);
	heap_store(&block->run_shared, 0);
}

/* Figure 6: allocates the memory of a block in phase TAKING, and makes it live. */
static int bring_up(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];

	heap_store(&desc->head, index);
	if (heap_load(&desc->was_run) != 0)
		punch(heap, index, 1);
	if (commit(heap, file_offset(heap, index), heap->geo.block_size) != 0) {
		set_state(desc, BLOCK_RELEASING, (int)heap->slot, 0);
		finish_release(heap, index);
		return -ENOMEM;
	}
	heap_store(&desc->was_run, 0);
	write_header(heap, index, heap->geo.header_size);
	describe(heap, index, heap->geo.block_size);
	set_state(desc, BLOCK_LIVE, (int)heap->slot, 0);
	return 0;
}

static bool claim_idle(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);

	if (desc_phase(state) != BLOCK_IDLE || desc_is_run(state)) {
		correct_hint(heap, &heap->hints.idle, index, BLOCK_IDLE);
		return false;
	}
	if (!move_phase(desc, state, BLOCK_LIVE, (int)heap->slot))
		return false;
	hint_clear(&heap->hints.idle, index);
	return true;
}

static int64_t take_idle(struct stag_heap *heap)
{
	for (uint32_t i = hint_next(&heap->hints.idle, 0); i != HINT_NONE;
	     i = hint_next(&heap->hints.idle, i + 1))
		if (claim_idle(heap, i))
			return i;
	return -ENOENT;
}

static int64_t take_open(struct stag_heap *heap)
{
	for (uint32_t i = hint_next(&heap->hints.open, 0); i != HINT_NONE;
	     i = hint_next(&heap->hints.open, i + 1)) {
		if (!claim_open(heap, i))
			continue;
		return bring_up(heap, i) != 0 ? -ENOMEM : (int64_t)i;
	}
	return -ENOENT;
}

void block_restore_hints(struct stag_heap *heap)
{
	for (uint32_t i = 0; i < heap->geo.max_blocks; i++) {
		uint64_t state = atomic_load(&heap->descs[i].state);

		if (desc_phase(state) == BLOCK_OPEN)
			hint_set(&heap->hints.open, i);
		else if (desc_phase(state) == BLOCK_IDLE)
			hint_set(desc_is_run(state) ? &heap->hints.idle_runs : &heap->hints.idle,
				 i);
	}
}

static int64_t count_taken(struct stag_heap *heap, int64_t index)
{
	if (index < 0)
		return -ENOMEM;
	atomic_fetch_add_explicit(&heap->self->blocks_taken, 1, memory_order_relaxed);
	keys_block_taken(heap, (uint32_t)index);
	return index;
}

/* Reaps dead processes and releases idle blocks, when the heap or the system is full. */
static void make_room(struct stag_heap *heap)
{
	proc_reap(heap, 0);
	block_release_idle(heap, UINT64_MAX);
}

int64_t block_take(struct stag_heap *heap)
{
	int64_t index = take_idle(heap);

	assert(!lock_held(&heap->local.lock));
	if (index < 0)
		index = take_open(heap);
	if (index < 0) {
		make_room(heap);
		index = take_open(heap);
	}
	return count_taken(heap, index);
}

void block_make_idle(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t run = heap_load(&desc->state) & DESC_RUN;

	heap_store(&desc->deadline, heap->maintain.retain_ns < 0
					    ? UINT64_MAX
					    : maintain_now() + (uint64_t)heap->maintain.retain_ns);
	set_state(desc, BLOCK_IDLE, -1, run);
	hint_set(run ? &heap->hints.idle_runs : &heap->hints.idle, index);
}

/* ---- runs ------------------------------------------------------------------ */

struct run_plan {
	uint64_t data_offset, size; /* of the data, in bytes; the size in whole pages */
	uint64_t alignment;
	uint32_t slots;
};

static int plan_run(struct stag_heap *heap, uint64_t size, uint64_t alignment,
		    struct run_plan *plan)
{
	if (size > heap->area_size)
		return -ENOMEM;
	plan->alignment = alignment < HEAP_PAGE ? HEAP_PAGE : alignment;
	plan->data_offset = plan->alignment;
	plan->size =
		(size + heap->geo.commit_unit - 1) / heap->geo.commit_unit * heap->geo.commit_unit;
	plan->slots =
		(uint32_t)((plan->data_offset + plan->size + (1ull << heap->geo.block_shift) - 1) >>
			   heap->geo.block_shift);
	return plan->slots > heap->geo.max_blocks ? -ENOMEM : 0;
}

/* Returns whether a run suits the plan: aligned, large enough, at most an eighth wasted. */
static bool run_fits(const struct run_plan *plan, uint64_t block_size, uint64_t data_offset)
{
	uint64_t have = block_size - data_offset;

	return data_offset % plan->alignment == 0 && have >= plan->size &&
	       have - plan->size <= plan->size / 8;
}

static bool claim_idle_run(struct stag_heap *heap, const struct run_plan *plan, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	struct heap_block *block = heap_block_at(heap, index);
	uint64_t state = atomic_load(&desc->state), size = heap_load(&desc->block_size);

	if (desc_phase(state) != BLOCK_IDLE || !desc_is_run(state)) {
		correct_hint(heap, &heap->hints.idle_runs, index, BLOCK_IDLE);
		return false;
	}
	if (size < plan->size || size > plan->size + plan->size / 8 + heap->geo.block_size)
		return false;
	if (!move_phase(desc, state, BLOCK_LIVE, (int)heap->slot))
		return false;
	if (!run_fits(plan, size, block->data_offset)) {
		set_state(desc, BLOCK_IDLE, -1, DESC_RUN);
		/* another process may have seen it live, and cleared the hint */
		hint_set(&heap->hints.idle_runs, index);
		return false;
	}
	hint_clear(&heap->hints.idle_runs, index);
	return true;
}

static int64_t take_idle_run(struct stag_heap *heap, const struct run_plan *plan)
{
	uint32_t i = hint_next(&heap->hints.idle_runs, 0);

	for (unsigned int n = 0; n < IDLE_RUNS_TO_TRY && i != HINT_NONE; n++) {
		if (claim_idle_run(heap, plan, i))
			return i;
		i = hint_next(&heap->hints.idle_runs, i + 1);
	}
	return -ENOENT;
}

/* Returns the first of the highest consecutive slots below `end` that are open by their hints. */
static uint32_t find_open_run(struct stag_heap *heap, uint32_t slots, uint32_t end)
{
	uint32_t found = 0;

	for (uint32_t i = end; i-- > 0;) {
		found = hint_test(&heap->hints.open, i) ? found + 1 : 0;
		if (found == slots)
			return i;
	}
	return HINT_NONE;
}

/* Claims consecutive slots: all, or none and returns false. */
static bool claim_run(struct stag_heap *heap, uint32_t first, uint32_t slots)
{
	for (uint32_t i = 0; i < slots; i++) {
		if (claim_open(heap, first + i))
			continue;
		while (i-- > 0)
			open_entry(heap, first + i);
		return false;
	}
	return true;
}

/* Makes the first entry stand for all: the others become its tails. */
static void join_run(struct stag_heap *heap, uint32_t first, uint32_t slots)
{
	for (uint32_t i = 0; i < slots; i++)
		heap_store(&heap->descs[first + i].head, first);
	heap_store(&heap->descs[first].tails, slots - 1);
	for (uint32_t i = 1; i < slots; i++)
		set_state(&heap->descs[first + i], BLOCK_TAIL, -1, 0);
}

static int bring_up_run(struct stag_heap *heap, const struct run_plan *plan, uint32_t first)
{
	struct heap_desc *desc = &heap->descs[first];
	uint64_t offset = file_offset(heap, first);

	join_run(heap, first, plan->slots);
	set_state(desc, BLOCK_TAKING, (int)heap->slot, DESC_RUN);
	if (commit(heap, offset, HEAP_PAGE) != 0 ||
	    commit(heap, offset + plan->data_offset, plan->size) != 0) {
		set_state(desc, BLOCK_RELEASING, (int)heap->slot, DESC_RUN);
		finish_release(heap, first);
		return -ENOMEM;
	}
	write_header(heap, first, plan->data_offset);
	describe(heap, first, plan->data_offset + plan->size);
	set_state(desc, BLOCK_LIVE, (int)heap->slot, DESC_RUN);
	return 0;
}

static int64_t take_open_run(struct stag_heap *heap, const struct run_plan *plan)
{
	uint32_t end = heap->geo.max_blocks, first;

	while ((first = find_open_run(heap, plan->slots, end)) != HINT_NONE) {
		if (claim_run(heap, first, plan->slots))
			return bring_up_run(heap, plan, first) != 0 ? -ENOMEM : (int64_t)first;
		end = first + plan->slots - 1;
	}
	return -ENOENT;
}

int64_t block_take_run(struct stag_heap *heap, uint64_t size, uint64_t alignment)
{
	struct run_plan plan;
	int64_t index;

	assert(!lock_held(&heap->local.lock));
	if (plan_run(heap, size, alignment, &plan) != 0)
		return -ENOMEM;
	index = take_idle_run(heap, &plan);
	if (index < 0)
		index = take_open_run(heap, &plan);
	if (index < 0) {
		make_room(heap);
		index = take_open_run(heap, &plan);
	}
	return count_taken(heap, index);
}

/*
 * The process whose compare-and-swap to RELEASING succeeds has freed the run; the owner may die and
 * be reaped meanwhile.
 */
bool block_free_run(struct stag_heap *heap, uint32_t index)
{
	struct heap_desc *desc = &heap->descs[index];
	struct heap_block *block = heap_block_at(heap, index);

	for (;;) {
		uint64_t state = atomic_load(&desc->state);
		enum block_phase phase = desc_phase(state);

		if ((phase != BLOCK_LIVE && phase != BLOCK_ORPHAN) || !desc_is_run(state))
			return false;
		if (move_phase(desc, state, BLOCK_RELEASING, (int)heap->slot))
			break;
	}
	heap_store(&block->run_shared, 0);
	block_make_idle(heap, index);
	return true;
}

/* ---- after a death ----------------------------------------------------------- */

static uint64_t live_shared(struct stag_heap *heap, struct heap_block *block, uint64_t most)
{
	uint64_t words = (uint64_t)heap->geo.num_slices * heap->geo.slice_words, n = 0;
	_Atomic uint64_t *shared = block_bits(heap, block, heap->geo.shared_offset, 0);
	_Atomic uint64_t *freed = block_bits(heap, block, heap->geo.freed_offset, 0);
	_Atomic uint64_t *free = block_bits(heap, block, heap->geo.free_offset, 0);

	for (uint64_t i = 0; i < words && n < most; i++) {
		uint64_t bits = atomic_load(&shared[i]);

		if (bits != 0)
			bits &= ~atomic_load(&freed[i]) & ~atomic_load(&free[i]);
		n += (uint64_t)__builtin_popcountll(bits);
	}
	return n;
}

uint64_t block_count_shared(struct stag_heap *heap, uint32_t index, uint64_t most)
{
	struct heap_block *block = heap_block_at(heap, index);

	if (desc_is_run(atomic_load(&heap->descs[index].state)))
		return atomic_load(&block->run_shared) != 0;
	if (atomic_load(&block->sharing) == 0)
		return 0;
	return live_shared(heap, block, most);
}

uint64_t block_settle(struct stag_heap *heap, uint32_t index, bool in_any_case)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);

	if (desc_phase(state) != BLOCK_ORPHAN)
		return 0;
	if (!in_any_case && block_count_shared(heap, index, 1) != 0)
		return 0;
	if (!move_phase(desc, state, BLOCK_RELEASING, (int)heap->slot))
		return 0;
	return finish_release(heap, index);
}

/*
 * Sets ORPHAN before it counts shared objects: a process that frees the last one either sees ORPHAN
 * and releases the block, or its free is counted here.
 */
uint64_t block_reap(struct stag_heap *heap, uint32_t index, int slot)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);

	while (desc_slot(state) == slot) {
		if (desc_phase(state) == BLOCK_LIVE) {
			if (move_phase(desc, state, BLOCK_ORPHAN, -1))
				return block_settle(heap, index, false);
		} else if (move_phase(desc, state, BLOCK_RELEASING, (int)heap->slot)) {
			return finish_release(heap, index);
		}
		state = atomic_load(&desc->state);
	}
	return 0;
}

/* ---- for keys.c ----------------------------------------------------------------- */

static bool has_memory(enum block_phase phase)
{
	return phase == BLOCK_LIVE || phase == BLOCK_IDLE || phase == BLOCK_ORPHAN;
}

int block_extent(struct stag_heap *heap, uint32_t index, void **addr, size_t *length,
		 uint64_t *block_id)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t id = atomic_load(&desc->block_id);
	uint64_t size, data;

	if (!has_memory(desc_phase(atomic_load(&desc->state))))
		return -ENOENT;
	size = atomic_load(&desc->block_size);
	data = *(volatile uint64_t *)&heap_block_at(heap, index)->data_offset;
	if (size == 0 || data >= size || atomic_load(&desc->block_id) != id)
		return -ENOENT;
	if (size > heap->area_size - ((uint64_t)index << heap->geo.block_shift))
		return -ENOENT;
	*addr = (char *)heap_block_at(heap, index) + data;
	*length = size - data;
	*block_id = id;
	return 0;
}
