// SPDX-License-Identifier: BSD-2-Clause
/*
 * stats.c - counts blocks, objects and processes; approximate while other processes allocate.
 */
#include "heap.h"

#include <errno.h>
#include <string.h>

#include "base/export.h"

static void count_spans(struct stag_heap *heap, struct heap_block *header,
			struct stag_heap_block *block)
{
	for (uint32_t i = heap->geo.header_slices; i < heap->geo.num_slices; i++) {
		struct heap_span *span = &block_spans(heap, header)[i];
		uint64_t used;

		if (atomic_load_explicit(&span->owner, memory_order_acquire) == 0)
			continue;
		used = span_count_used(heap, span);
		block->allocations += used;
		block->allocated_bytes += used * heap_load(&span->size);
	}
}

/* Counts the objects of a live or orphaned block. */
static void count_objects(struct stag_heap *heap, uint64_t state, struct stag_heap_block *block)
{
	struct heap_block *header = heap_block_at(heap, block->index);

	if (desc_phase(state) != BLOCK_LIVE && desc_phase(state) != BLOCK_ORPHAN)
		return;
	block->shared = block_count_shared(heap, block->index, UINT64_MAX);
	if (desc_is_run(state)) {
		block->allocations = 1;
		block->allocated_bytes = block->size - header->data_offset;
		return;
	}
	count_spans(heap, header, block);
}

static int pid_of(struct stag_heap *heap, int slot)
{
	return slot < 0 ? 0 : (int)heap_load(&heap->procs[slot].pid);
}

/* Returns false if the slot has no block. */
static bool describe(struct stag_heap *heap, uint32_t index, struct stag_heap_block *block)
{
	struct heap_desc *desc = &heap->descs[index];
	uint64_t state = atomic_load(&desc->state);
	uint64_t size = atomic_load(&desc->block_size);
	int slot = desc_slot(state) < STAG_HEAP_MAX_PROCS ? desc_slot(state) : -1;

	if (size == 0)
		return false;
	*block = (struct stag_heap_block){
		.block_id = atomic_load(&desc->block_id),
		.address = (uintptr_t)heap_block_at(heap, index),
		.size = size,
		.index = index,
		.owner = slot,
		.owner_pid = pid_of(heap, slot),
	};
	count_objects(heap, state, block);
	return true;
}

STAG_EXPORT bool stag_heap_next_block(struct stag_heap *heap, uint32_t *index,
				      struct stag_heap_block *block)
{
	bool found = false;

	if (!heap->looking && heap_check_attached(heap) != 0)
		return false;
	for (; !found && *index < heap->geo.max_blocks; ++*index) {
		if (atomic_load(&heap->descs[*index].block_size) == 0)
			continue;
		look_fetch(heap, *index);
		found = describe(heap, *index, block);
		look_drop(heap, *index);
	}
	return found;
}

STAG_EXPORT bool stag_heap_next_process(struct stag_heap *heap, uint32_t *number,
					struct stag_heap_process *process)
{
	struct heap_proc *proc;

	if (!heap->looking && heap_check_attached(heap) != 0)
		return false;
	while (*number < STAG_HEAP_MAX_PROCS &&
	       (atomic_load(&heap->procs[*number].state) & 0xff) == PROC_FREE)
		++*number;
	if (*number >= STAG_HEAP_MAX_PROCS)
		return false;
	proc = &heap->procs[*number];
	*process = (struct stag_heap_process){
		.number = *number,
		.pid = (int)heap_load(&proc->pid),
		.start_time = heap_load(&proc->start_time),
		.dead = proc_is_dead(heap, *number),
		.registrations = heap_load(&proc->registrations),
		.registrations_made = heap_load(&proc->registrations_made),
		.registrations_saved = heap_load(&proc->registrations_saved),
		.stale_found = heap_load(&proc->stale_found),
		.blocks_taken = heap_load(&proc->blocks_taken),
		.blocks_released = heap_load(&proc->blocks_released),
	};
	++*number;
	return true;
}

static void count_blocks(struct stag_heap *heap, struct stag_heap_stats *stats)
{
	struct stag_heap_block block;
	uint32_t index = 0;

	while (stag_heap_next_block(heap, &index, &block)) {
		stats->blocks++;
		stats->block_bytes += block.size;
		stats->allocations += block.allocations;
		stats->allocated_bytes += block.allocated_bytes;
		stats->shared += block.shared;
	}
}

static void count_own(struct stag_heap *heap, struct stag_heap_stats *stats)
{
	keys_publish(heap);
	stats->registrations = heap_load(&heap->self->registrations);
	stats->registrations_made = heap_load(&heap->self->registrations_made);
	stats->registrations_saved = heap_load(&heap->self->registrations_saved);
	stats->stale_found = heap_load(&heap->self->stale_found);
	stats->blocks_taken = heap_load(&heap->self->blocks_taken);
	stats->blocks_released = heap_load(&heap->self->blocks_released);
}

STAG_EXPORT int stag_heap_query(struct stag_heap *heap, struct stag_heap_stats *stats, size_t size)
{
	struct stag_heap_stats all = {0};

	if (!heap->looking && heap_check_attached(heap) != 0)
		return EINVAL;
	all.address = heap->plan.address;
	all.size = heap->plan.size;
	all.block_size = heap->geo.block_size;
	all.max_blocks = heap->geo.max_blocks;
	all.reaped = atomic_load(&heap->header->deaths);
	count_blocks(heap, &all);
	proc_count(heap, &all.processes, &all.dead_processes);
	if (!heap->looking)
		count_own(heap, &all);
	memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}
