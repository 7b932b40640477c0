// SPDX-License-Identifier: BSD-2-Clause
/*
 * layout.c - offsets in the shared object and in a block.
 *
 * Pure arithmetic on the numbers a heap was created with; each process computes the same result.
 */
#include "heap.h"

#include <errno.h>
#include <string.h>

#define MIN_BLOCK   (256ull << 10)
#define MAX_BLOCK   (1ull << 30)
#define MAX_AREA    (1ull << 45) /* a quarter of a process's 47 bits of addresses */
#define MIN_SLICE   12u
#define MAX_SLICE   16u
#define SHARED_MAPS 3u

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static unsigned int log2_up(uint64_t value)
{
	return value <= 1 ? 0 : 64 - (unsigned int)__builtin_clzll(value - 1);
}

/* Chooses 256 slices in a block, if that makes a slice of 4 to 64 KiB. */
static unsigned int slice_shift(unsigned int block_shift)
{
	unsigned int shift = block_shift - 8;

	return shift < MIN_SLICE ? MIN_SLICE : shift > MAX_SLICE ? MAX_SLICE : shift;
}

int layout_plan(struct heap_header *header, uint64_t page)
{
	uint64_t at;

	if (header->block_size < MIN_BLOCK || header->block_size > MAX_BLOCK ||
	    header->block_size % page != 0)
		return -EINVAL;
	if (header->max_blocks == 0 || header->max_blocks > HEAP_MAX_BLOCKS)
		return -EINVAL;
	header->block_shift = log2_up(header->block_size);
	header->slice_shift = slice_shift(header->block_shift);
	if (((uint64_t)header->max_blocks << header->block_shift) > MAX_AREA)
		return -EINVAL;
	header->procs_offset = HEAP_PAGE;
	at = header->procs_offset + STAG_HEAP_MAX_PROCS * sizeof(struct heap_proc);
	header->descs_offset = round_up(at, HEAP_PAGE);
	at = header->descs_offset + (uint64_t)header->max_blocks * sizeof(struct heap_desc);
	header->pending_offset = round_up(at, HEAP_PAGE);
	at = header->pending_offset + (uint64_t)header->max_blocks * sizeof(uint64_t);
	header->maps_offset = round_up(at, HEAP_PAGE);
	at = header->maps_offset +
	     (SHARED_MAPS + STAG_HEAP_MAX_PROCS) * round_up(hint_size(header->max_blocks), 64);
	header->control_size = round_up(at, HEAP_PAGE);
	header->area_offset = round_up(at, 1ull << header->block_shift);
	header->size = header->area_offset + ((uint64_t)header->max_blocks << header->block_shift);
	return 0;
}

void layout_map(struct stag_heap *heap, unsigned int n, struct hint_map *map)
{
	char *maps = (char *)heap->header + heap->plan.maps_offset;

	hint_init(map, maps + n * round_up(hint_size(heap->geo.max_blocks), 64),
		  heap->geo.max_blocks);
}

/*
 * Computes offsets in a block's header: struct heap_block, mask of free slices, starts, spans,
 * bitmaps.
 */
static void lay_out_block(struct stag_heap *heap)
{
	uint64_t mask_bytes = (heap->geo.num_slices + 63) / 64 * sizeof(uint64_t);
	uint64_t bitmap = (uint64_t)heap->geo.num_slices * heap->geo.slice_words * sizeof(uint64_t);

	heap->geo.mask_offset = round_up(sizeof(struct heap_block), 64);
	heap->geo.start_offset = round_up(heap->geo.mask_offset + mask_bytes, 64);
	/* A start for each slice of the slot, so that span_of() works for every pointer. */
	heap->geo.spans_offset =
		heap->geo.start_offset +
		(sizeof(uint32_t) << (heap->geo.block_shift - heap->geo.slice_shift));
	heap->geo.free_offset =
		heap->geo.spans_offset + heap->geo.num_slices * sizeof(struct heap_span);
	heap->geo.freed_offset = heap->geo.free_offset + bitmap;
	heap->geo.shared_offset = heap->geo.freed_offset + bitmap;
	heap->geo.header_slices = (uint32_t)(round_up(heap->geo.shared_offset + bitmap,
						      1ull << heap->geo.slice_shift) >>
					     heap->geo.slice_shift);
	heap->geo.header_size = heap->geo.header_slices << heap->geo.slice_shift;
}

void layout_open(struct stag_heap *heap, const struct heap_header *plan)
{
	char *base = (char *)plan->address;

	heap->plan = *plan;
	heap->header = (struct heap_header *)base;
	heap->procs = (struct heap_proc *)(base + plan->procs_offset);
	heap->descs = (struct heap_desc *)(base + plan->descs_offset);
	heap->hints.pending = (_Atomic uint64_t *)(base + plan->pending_offset);
	heap->area = base + plan->area_offset;
	heap->area_size = plan->size - plan->area_offset;
	heap->geo.block_mask = ~((1ull << plan->block_shift) - 1);
	heap->geo.block_size = plan->block_size;
	heap->geo.block_shift = plan->block_shift;
	heap->geo.slice_shift = plan->slice_shift;
	heap->geo.group_shift = plan->block_shift - plan->slice_shift - 6;
	heap->geo.max_blocks = plan->max_blocks;
	heap->geo.num_slices = (uint32_t)(plan->block_size >> plan->slice_shift);
	heap->geo.slice_words = (1u << plan->slice_shift) / HEAP_MIN_OBJECT / 64;
	heap->geo.commit_unit = plan->huge_shift != 0 ? 1ull << plan->huge_shift : HEAP_PAGE;
	lay_out_block(heap);
	heap->geo.medium_slices = (heap->geo.num_slices - heap->geo.header_slices) / 2;
	heap->geo.small_max = 8u << heap->geo.slice_shift;
	class_init(heap);
	layout_map(heap, 0, &heap->hints.open);
	layout_map(heap, 1, &heap->hints.idle);
	layout_map(heap, 2, &heap->hints.idle_runs);
}
