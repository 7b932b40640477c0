// SPDX-License-Identifier: BSD-2-Clause
/*
 * span.c - spans: objects of one size in consecutive slices, and the bitmaps of freed ones.
 *
 * An object's bit in `free` is set only after its bits in `freed` and `shared` are clear. So both
 * bitmaps are zero when a span is retired, and when the next one is created there; memory from the
 * system is zero, too. Therefore a block's live shared objects can be counted from the bitmaps
 * alone, whatever its owner was doing when it died.
 */
#include "heap.h"

#include <assert.h>
#include <string.h>

static void init_bits(struct heap_span *span)
{
	uint32_t count = heap_load(&span->count), words = (count + 63) / 64;

	for (uint32_t i = 0; i < words; i++)
		heap_store(&span->free[i], UINT64_MAX);
	if (count % 64 != 0)
		heap_store(&span->free[words - 1], (1ull << (count % 64)) - 1);
	span->summary = words == 64 ? UINT64_MAX : (1ull << words) - 1;
	span->num_free = count;
}

static struct heap_span *place_span(struct stag_heap *heap, struct heap_block *block,
				    uint32_t first, uint32_t slices)
{
	struct heap_span *span = &block_spans(heap, block)[first];

	heap_store(&span->base, (uintptr_t)block + ((uint64_t)first << heap->geo.slice_shift));
	span->free = block_bits(heap, block, heap->geo.free_offset, first);
	heap_store(&span->slices, slices);
	heap_store(&span->sharing, 0);
	span->listed = span->in_inbox = false;
	span->next = span->prev = span->inbox_next = NULL;
	return span;
}

static uint32_t start_of(const struct heap_block *block, const struct heap_span *span)
{
	return (uint32_t)((const char *)span - (const char *)block);
}

struct heap_span *span_create(struct stag_heap *heap, uint64_t tag, unsigned int class)
{
	const struct size_class *c = &heap->geo.classes[class];
	struct heap_block *block;
	struct heap_span *span;
	uint32_t first;

	assert(lock_held(&heap->local.lock));
	if (!slice_take(heap, c->slices, 1, &block, &first))
		return NULL;
	span = place_span(heap, block, first, c->slices);
	heap_store(&span->size, c->size);
	heap_store(&span->count, c->count);
	span->recip = c->recip;
	span->class = class;
	init_bits(span);
	span_set_at_hand(span, false);
	for (uint32_t i = 0; i < c->slices; i++)
		heap_store(&block_start(heap, block)[first + i], start_of(block, span));
	atomic_store_explicit(&span->owner, tag, memory_order_release);
	return span;
}

/*
 * Creates a span with one object, in use. Only its first slice has a start: no object begins later.
 */
struct heap_span *span_create_medium(struct stag_heap *heap, uint32_t slices, uint32_t step)
{
	struct heap_block *block;
	struct heap_span *span;
	uint32_t first;

	assert(lock_held(&heap->local.lock));
	if (!slice_take(heap, slices, step, &block, &first))
		return NULL;
	span = place_span(heap, block, first, slices);
	heap_store(&span->size, slices << heap->geo.slice_shift);
	heap_store(&span->count, 1);
	span->recip = 0;
	span->class = HEAP_MAX_CLASSES;
	span_set_at_hand(span, false);
	heap_store(&span->free[0], 0);
	span->summary = 0;
	span->num_free = 0;
	heap_store(&block_start(heap, block)[first], start_of(block, span));
	atomic_store_explicit(&span->owner, heap->tag, memory_order_release);
	return span;
}

void span_retire(struct stag_heap *heap, struct heap_span *span)
{
	assert(lock_held(&heap->local.lock));
	atomic_store_explicit(&span->owner, 0, memory_order_release);
	slice_give(heap, span_block(heap, span), span_first(heap, span), heap_load(&span->slices));
}

/*
 * Clears `freed` before it sets `free`: if the process dies in between, no object is in both.
 */
static uint32_t collect_word(struct heap_span *span, _Atomic uint64_t *freed,
			     _Atomic uint64_t *shared, uint32_t i)
{
	uint64_t bits = atomic_load(&freed[i]), free = heap_load(&span->free[i]);

	if (free & bits)
		heap_abort("%p was freed twice",
			   (void *)(heap_load(&span->base) +
				    (i * 64 + (uint64_t)__builtin_ctzll(free & bits)) *
					    heap_load(&span->size)));
	if (heap_load(&span->sharing))
		atomic_fetch_and(&shared[i], ~bits);
	atomic_fetch_and(&freed[i], ~bits);
	heap_store(&span->free[i], free | bits);
	if (bits != 0)
		span->summary |= 1ull << i;
	return (uint32_t)__builtin_popcountll(bits);
}

uint32_t span_collect(struct stag_heap *heap, struct heap_span *span)
{
	struct heap_block *block = span_block(heap, span);
	uint32_t first = span_first(heap, span), count = heap_load(&span->count), n = 0;
	_Atomic uint64_t *freed = block_bits(heap, block, heap->geo.freed_offset, first);
	_Atomic uint64_t *shared = block_bits(heap, block, heap->geo.shared_offset, first);

	for (uint32_t i = 0; i * 64 < count; i++)
		if (atomic_load(&freed[i]) != 0)
			n += collect_word(span, freed, shared, i);
	span->num_free += n;
	return n;
}

/*
 * Sets hints only. They are outside the block, which may have been released by now, or have another
 * owner. Callers skip this if the bit in `pending` is set already: the owner has been notified
 * then. A later owner clears `pending` (slice_adopt()).
 */
__attribute__((noinline)) void span_tell_owner(struct stag_heap *heap, uint32_t index,
					       uint64_t groups)
{
	struct hint_map map;
	int slot;

	atomic_fetch_or(&heap->hints.pending[index], groups);
	slot = desc_slot(atomic_load(&heap->descs[index].state));
	if (slot < 0 || slot >= STAG_HEAP_MAX_PROCS)
		return;
	layout_map(heap, 3 + (unsigned int)slot, &map);
	hint_set(&map, index);
}

/* Does not access the block after the `freed` bit is set: the owner may release it from then on. */
void span_free_remote(struct stag_heap *heap, struct heap_span *span, uint32_t number)
{
	uint32_t index = heap_index(heap, span);
	uint64_t group = 1ull << (span_first(heap, span) >> heap->geo.group_shift);
	_Atomic uint64_t *freed = span->free + (heap->geo.freed_offset - heap->geo.free_offset) / 8;
	uint64_t bit = 1ull << (number % 64), state;
	uint64_t address = heap_load(&span->base) + (uint64_t)number * heap_load(&span->size);

	if (unlikely(atomic_fetch_or(&freed[number / 64], bit) & bit))
		heap_abort("%p was freed twice", (void *)address);
	state = atomic_load(&heap->descs[index].state);
	if (unlikely(!(atomic_load(&heap->hints.pending[index]) & group)))
		span_tell_owner(heap, index, group);
	if (unlikely(desc_phase(state) == BLOCK_ORPHAN))
		block_settle(heap, index, false);
}

uint32_t span_count_used(struct stag_heap *heap, struct heap_span *span)
{
	struct heap_block *block = span_block(heap, span);
	uint32_t count = heap_load(&span->count), first = span_first(heap, span), used = 0;
	_Atomic uint64_t *free = block_bits(heap, block, heap->geo.free_offset, first);
	_Atomic uint64_t *freed = block_bits(heap, block, heap->geo.freed_offset, first);

	if (count > HEAP_SPAN_WORDS * 64)
		return 0;
	for (uint32_t i = 0; i * 64 < count; i++) {
		uint64_t all = count - i * 64 >= 64 ? UINT64_MAX : (1ull << (count % 64)) - 1;

		used += (uint32_t)__builtin_popcountll(
			all & ~(atomic_load(&free[i]) | atomic_load(&freed[i])));
	}
	return used;
}
