// SPDX-License-Identifier: BSD-2-Clause
/*
 * stats.c - what is in the heap, found by walking over it while others go on.
 */
#include "heap.h"

#include <errno.h>
#include <string.h>

#include "base/export.h"

static void count_spans(struct stag_heap *heap, struct heap_block *header,
			struct stag_heap_block *block)
{
	for (uint32_t i = heap->header_slices; i < heap->num_slices; i++) {
		struct heap_span *span = &block_spans(heap, header)[i];
		uint64_t used;

		if (atomic_load_explicit(&span->owner, memory_order_acquire) == 0)
			continue;
		used = span_count_used(heap, span);
		block->allocations += used;
		block->allocated_bytes += used * heap_load(&span->size);
	}
}

/* In an orphan only what was shared is left. */
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

static int pid_of(struct stag_heap *heap, uint64_t state)
{
	int slot = desc_slot(state);

	return slot < 0 ? 0 : (int)heap_load(&heap->procs[slot].pid);
}

STAG_EXPORT bool stag_heap_next_block(struct stag_heap *heap, uint32_t *index,
				      struct stag_heap_block *block)
{
	for (; *index < heap->max_blocks; ++*index) {
		struct heap_desc *desc = &heap->descs[*index];
		uint64_t state = atomic_load(&desc->state);
		uint64_t size = atomic_load(&desc->block_size);

		if (size == 0)
			continue;
		*block = (struct stag_heap_block){
			.block_id = atomic_load(&desc->block_id),
			.address = (uintptr_t)heap_block_at(heap, *index),
			.size = size,
			.index = *index,
			.owner_pid = pid_of(heap, state),
		};
		count_objects(heap, state, block);
		++*index;
		return true;
	}
	return false;
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
	}
}

STAG_EXPORT int stag_heap_query(struct stag_heap *heap, struct stag_heap_stats *stats, size_t size)
{
	struct stag_heap_stats all = {
		.block_size = heap->block_size,
		.max_blocks = heap->max_blocks,
		.blocks_taken = heap_load(&heap->blocks_taken),
		.blocks_released = heap_load(&heap->blocks_released),
	};

	if (heap->serial == 0)
		return heap_fail(EINVAL, "heap %s: inherited over a fork: attach it again",
				 heap->name);
	count_blocks(heap, &all);
	proc_count(heap, &all.processes, &all.dead_processes);
	keys_query(heap, &all);
	memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}
