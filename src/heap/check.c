// SPDX-License-Identifier: BSD-2-Clause
/*
 * check.c - checks the whole heap, and reports inconsistencies.
 *
 * Other processes run meanwhile, so an apparent fault is checked again until it disappears, or has
 * lasted longer than any change takes.
 */
#include "heap.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/export.h"

#define PATIENCE_NS (100 * NS_PER_MS)

struct check {
	struct stag_heap *heap;
	FILE *out;
	int faults;
	bool quiet; /* count faults, do not report them */
};

static void __attribute__((format(printf, 2, 3))) fault(struct check *check, const char *fmt, ...)
{
	va_list args;

	check->faults++;
	if (check->quiet || !check->out)
		return;
	va_start(args, fmt);
	fprintf(check->out, "heap %s: ", check->heap->name);
	vfprintf(check->out, fmt, args);
	fputc('\n', check->out);
	va_end(args);
}

/* ---- inside a block ----------------------------------------------------------- */

static void check_bits(struct check *check, uint32_t index, struct heap_span *span)
{
	struct stag_heap *heap = check->heap;
	struct heap_block *block = heap_block_at(heap, index);
	uint32_t first = span_first(heap, span), count = heap_load(&span->count);
	_Atomic uint64_t *free = block_bits(heap, block, heap->geo.free_offset, first);
	_Atomic uint64_t *freed = block_bits(heap, block, heap->geo.freed_offset, first);
	_Atomic uint64_t *shared = block_bits(heap, block, heap->geo.shared_offset, first);

	for (uint32_t i = 0; i * 64 < count; i++) {
		uint64_t none = count - i * 64 >= 64 ? 0 : ~((1ull << (count % 64)) - 1);
		uint64_t f = atomic_load(&free[i]), o = atomic_load(&freed[i]);

		if ((f | o) & none)
			fault(check, "block %u, slice %u: a free bit is set after the last object",
			      index, first);
		if (f & o)
			fault(check,
			      "block %u, slice %u: objects are both in free and in freed: %#llx",
			      index, first, (unsigned long long)(f & o));
		if (atomic_load(&shared[i]) & f)
			fault(check, "block %u, slice %u: a free object is marked shared", index,
			      first);
	}
}

static void check_span(struct check *check, uint32_t index, struct heap_span *span, uint32_t end)
{
	struct stag_heap *heap = check->heap;
	struct heap_block *block = heap_block_at(heap, index);
	uint32_t first = span_first(heap, span), slices = heap_load(&span->slices);
	uint64_t size = heap_load(&span->size), count = heap_load(&span->count);
	uintptr_t base = heap_load(&span->base); /* once: another process may release the block */

	if (slices == 0 || first + slices > heap->geo.num_slices ||
	    count * size > (uint64_t)slices << heap->geo.slice_shift || count == 0 ||
	    size < HEAP_MIN_OBJECT || count > HEAP_SPAN_WORDS * 64)
		fault(check,
		      "block %u, slice %u: invalid span: %llu objects of %llu bytes in %u slices",
		      index, first, (unsigned long long)count, (unsigned long long)size, slices);
	else if (base != (uintptr_t)block + ((uint64_t)first << heap->geo.slice_shift))
		fault(check, "block %u, slice %u: the span's base address is wrong", index, first);
	else if (first < end)
		fault(check, "block %u, slice %u: overlaps the previous span", index, first);
	else if (span_of(heap, (void *)base) != span)
		fault(check, "block %u, slice %u: its objects do not lead to the span", index,
		      first);
	else
		check_bits(check, index, span);
}

static void check_spans(struct check *check, uint32_t index)
{
	struct stag_heap *heap = check->heap;
	struct heap_block *block = heap_block_at(heap, index);
	uint32_t end = heap->geo.header_slices;

	for (uint32_t i = 0; i < heap->geo.num_slices; i++) {
		struct heap_span *span = &block_spans(heap, block)[i];

		if (atomic_load_explicit(&span->owner, memory_order_acquire) == 0)
			continue;
		check_span(check, index, span, end);
		end = i + heap_load(&span->slices);
	}
}

/* ---- entries -------------------------------------------------------------------- */

static void check_memory(struct check *check, uint32_t index, uint64_t state)
{
	struct stag_heap *heap = check->heap;
	struct heap_desc *desc = &heap->descs[index];
	struct heap_block *block = heap_block_at(heap, index);

	if (heap_load(&desc->block_id) == 0)
		fault(check, "block %u: blockId is 0", index);
	if (heap_load(&desc->block_ptr) != (uintptr_t)block)
		fault(check, "block %u: blockPtr is wrong", index);
	if (block->magic != HEAP_MAGIC || block->index != index)
		fault(check, "block %u: magic or index in its header is wrong", index);
	else if (!desc_is_run(state) && desc_phase(state) == BLOCK_LIVE)
		check_spans(check, index);
}

static void check_run(struct check *check, uint32_t index)
{
	struct stag_heap *heap = check->heap;
	struct heap_desc *desc = &heap->descs[index];
	uint32_t tails = heap_load(&desc->tails);

	if (tails >= heap->geo.max_blocks - index ||
	    heap_load(&desc->block_size) > (uint64_t)(tails + 1) << heap->geo.block_shift) {
		fault(check, "run %u: larger than its slots (%u after the first)", index, tails);
		return;
	}
	for (uint32_t i = 1; i <= tails; i++) {
		struct heap_desc *tail = &heap->descs[index + i];

		if (desc_phase(atomic_load(&tail->state)) != BLOCK_TAIL ||
		    heap_load(&tail->head) != index)
			fault(check, "run %u: slot %u does not belong to it", index, index + i);
	}
}

static void check_tail(struct check *check, uint32_t index)
{
	struct stag_heap *heap = check->heap;
	uint32_t head = heap_load(&heap->descs[index].head);
	uint64_t state;

	if (head >= index) {
		fault(check, "slot %u: part of a run that begins behind it, at slot %u", index,
		      head);
		return;
	}
	state = atomic_load(&heap->descs[head].state);
	if (desc_phase(state) == BLOCK_OPEN || desc_phase(state) == BLOCK_TAIL ||
	    heap_load(&heap->descs[head].tails) < index - head)
		fault(check, "slot %u: part of a run at slot %u, where there is none", index, head);
}

static void check_owner(struct check *check, uint32_t index, uint64_t state)
{
	struct stag_heap *heap = check->heap;
	int slot = desc_slot(state);
	bool needs_owner = desc_phase(state) == BLOCK_TAKING || desc_phase(state) == BLOCK_LIVE ||
			   desc_phase(state) == BLOCK_RELEASING;

	if (needs_owner != (slot >= 0))
		fault(check, "block %u: in phase %d, but its owner is process slot %d", index,
		      (int)desc_phase(state), slot);
	else if (slot >= STAG_HEAP_MAX_PROCS)
		fault(check, "block %u: invalid process slot %d", index, slot);
	else if (slot >= 0 && (atomic_load(&heap->procs[slot].state) & 0xff) == PROC_FREE)
		fault(check, "block %u: its owner is not attached", index);
}

static void check_open(struct check *check, uint32_t index)
{
	struct heap_desc *desc = &check->heap->descs[index];

	if (heap_load(&desc->block_ptr) != 0 || heap_load(&desc->block_size) != 0 ||
	    heap_load(&desc->tails) != 0)
		fault(check, "block %u: open, but its entry is not zero", index);
}

static void check_block(struct check *check, uint32_t index)
{
	uint64_t state;

	look_fetch(check->heap, index);
	state = atomic_load(&check->heap->descs[index].state);
	check_owner(check, index, state);
	switch (desc_phase(state)) {
	case BLOCK_OPEN:
		check_open(check, index);
		break;
	case BLOCK_TAIL:
		check_tail(check, index);
		break;
	case BLOCK_LIVE:
	case BLOCK_IDLE:
	case BLOCK_ORPHAN:
		check_memory(check, index, state);
		if (desc_is_run(state))
			check_run(check, index);
		break;
	case BLOCK_TAKING:
	case BLOCK_RELEASING:
		break;
	default:
		fault(check, "block %u: unknown phase, state %#llx", index,
		      (unsigned long long)state);
	}
	/*
	 * The block changed while it was checked, so the result is void: makes looks_right()
	 * repeat.
	 */
	if (check->quiet && atomic_load(&check->heap->descs[index].state) != state)
		check->faults++;
	look_drop(check->heap, index);
}

/* Checks until the block is consistent, or has not been for PATIENCE_NS. */
static bool looks_right(struct check *check, uint32_t index)
{
	uint64_t until = 0;

	for (;;) {
		struct check first = {.heap = check->heap, .quiet = true};

		check_block(&first, index);
		if (first.faults == 0)
			return true;
		if (until == 0)
			until = clock_ns() + PATIENCE_NS;
		else if (clock_ns() > until)
			return false;
		sched_yield();
		look_again(check->heap);
	}
}

STAG_EXPORT int stag_heap_check(struct stag_heap *heap, FILE *out)
{
	struct check check = {.heap = heap, .out = out};

	if (!heap->looking && heap_check_attached(heap) != 0) {
		fault(&check, "%s", stag_heap_error());
		return check.faults;
	}
	for (uint32_t i = 0; i < heap->geo.max_blocks; i++)
		if (!looks_right(&check, i))
			check_block(&check, i);
	return check.faults;
}
