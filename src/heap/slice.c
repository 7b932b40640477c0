// SPDX-License-Identifier: BSD-2-Clause
/*
 * slice.c - free slices of this process's blocks.
 *
 * Protected by heap->local.lock, and for this process alone: the masks are in the blocks' headers,
 * but a process that takes a block over starts from an empty one. Blocks with free slices are in
 * lists by their longest run of them, so that a fitting block is found without a search.
 */
#include "heap.h"

#include <assert.h>
#include <string.h>

#define TO_TRY 8u /* blocks tried in each list */

static uint64_t *mask_of(const struct stag_heap *heap, struct heap_block *block)
{
	return (uint64_t *)((char *)block + heap->geo.mask_offset);
}

/* Returns the list for a length: one for each up to 15, then four for each doubling. */
static uint32_t list_of(uint32_t longest)
{
	uint32_t log;

	if (longest < 16)
		return longest;
	log = 31 - (uint32_t)__builtin_clz(longest);
	return 16 + (log - 4) * 4 + ((longest >> (log - 2)) & 3);
}

static void link_block(struct stag_heap *heap, struct heap_block *block)
{
	block->fit_list = list_of(block->longest);
	list_add_tail(&heap->local.fits[block->fit_list], &block->link);
	heap->local.fits_mask |= 1ull << block->fit_list;
}

static void unlink_block(struct stag_heap *heap, struct heap_block *block)
{
	list_del(&block->link);
	if (list_empty(&heap->local.fits[block->fit_list]))
		heap->local.fits_mask &= ~(1ull << block->fit_list);
	block->fit_list = HEAP_FIT_LISTS;
}

/* Returns the first bit from `from` on that is set (or clear), or `bits` if there is none. */
static uint32_t next_bit(const uint64_t *mask, uint32_t bits, uint32_t from, bool set)
{
	while (from < bits) {
		uint64_t word = (set ? mask[from / 64] : ~mask[from / 64]) >> (from % 64);

		if (word != 0) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < bits ? from : bits;
		}
		from = (from / 64 + 1) * 64;
	}
	return bits;
}

static void set_bits(uint64_t *mask, uint32_t first, uint32_t n, bool set)
{
	while (n > 0) {
		uint32_t here = 64 - first % 64 < n ? 64 - first % 64 : n;
		uint64_t bits = (here == 64 ? UINT64_MAX : (1ull << here) - 1) << (first % 64);

		if (set)
			mask[first / 64] |= bits;
		else
			mask[first / 64] &= ~bits;
		first += here;
		n -= here;
	}
}

static uint32_t longest_run(const struct stag_heap *heap, const uint64_t *mask)
{
	uint32_t longest = 0, bits = heap->geo.num_slices;

	for (uint32_t at = next_bit(mask, bits, 0, true); at < bits;) {
		uint32_t end = next_bit(mask, bits, at, false);

		if (end - at > longest)
			longest = end - at;
		at = next_bit(mask, bits, end, true);
	}
	return longest;
}

/* Returns the lowest slice where n free ones begin, or the number of slices if there are none. */
static uint32_t find_run(const struct stag_heap *heap, const uint64_t *mask, uint32_t n,
			 uint32_t step)
{
	uint32_t bits = heap->geo.num_slices;

	for (uint32_t at = next_bit(mask, bits, 0, true); at < bits;) {
		uint32_t end = next_bit(mask, bits, at, false);
		uint32_t first = (at + step - 1) / step * step;

		if (first + n <= end)
			return first;
		at = next_bit(mask, bits, end, true);
	}
	return bits;
}

/* Moves a block whose masks have changed to the right list. */
static void relink(struct stag_heap *heap, struct heap_block *block)
{
	block->longest = longest_run(heap, mask_of(heap, block));
	if (block->fit_list == list_of(block->longest))
		return;
	unlink_block(heap, block);
	link_block(heap, block);
}

static bool is_empty(const struct stag_heap *heap, const struct heap_block *block)
{
	return block->free_slices == heap->geo.num_slices - heap->geo.header_slices;
}

void slice_adopt(struct stag_heap *heap, uint32_t index)
{
	struct heap_block *block = heap_block_at(heap, index);
	uint32_t n = heap->geo.num_slices - heap->geo.header_slices;

	assert(lock_held(&heap->local.lock));
	heap_store(&block->sharing, 0);
	atomic_store(&heap->hints.pending[index], 0); /* left by a late free under another owner */
	memset(mask_of(heap, block), 0, (heap->geo.num_slices + 63) / 64 * sizeof(uint64_t));
	set_bits(mask_of(heap, block), heap->geo.header_slices, n, true);
	block->free_slices = block->longest = n;
	list_init(&block->link);
	link_block(heap, block);
}

static bool take_from(struct stag_heap *heap, struct heap_block *block, uint32_t n, uint32_t step,
		      uint32_t *first)
{
	*first = find_run(heap, mask_of(heap, block), n, step);
	if (*first >= heap->geo.num_slices)
		return false;
	set_bits(mask_of(heap, block), *first, n, false);
	block->free_slices -= n;
	if (heap->local.reserve == block)
		heap->local.reserve = NULL;
	relink(heap, block);
	return true;
}

/*
 * In the list for n not every block fits; in lists for longer runs the first does, except if step >
 * 1.
 */
static bool take_from_list(struct stag_heap *heap, uint32_t which, uint32_t n, uint32_t step,
			   struct heap_block **block, uint32_t *first)
{
	unsigned int tried = 0;

	list_for_each (it, &heap->local.fits[which]) {
		*block = list_entry(it, struct heap_block, link);
		if (take_from(heap, *block, n, step, first))
			return true;
		if (++tried == TO_TRY)
			break;
	}
	return false;
}

bool slice_take(struct stag_heap *heap, uint32_t n, uint32_t step, struct heap_block **block,
		uint32_t *first)
{
	uint64_t lists = heap->local.fits_mask & (UINT64_MAX << list_of(n));

	assert(lock_held(&heap->local.lock));
	for (; lists != 0; lists &= lists - 1)
		if (take_from_list(heap, (uint32_t)__builtin_ctzll(lists), n, step, block, first))
			return true;
	return false;
}

static void leave_lists(struct stag_heap *heap, struct heap_block *block)
{
	unlink_block(heap, block);
	if (heap->local.reserve == block)
		heap->local.reserve = NULL;
}

/* Keeps one empty block in reserve; others become idle, for all processes. */
static void keep_or_make_idle(struct stag_heap *heap, struct heap_block *block)
{
	if (!heap->local.reserve) {
		block->empty_since = maintain_now();
		heap->local.reserve = block;
		return;
	}
	leave_lists(heap, block);
	block_make_idle(heap, block->index);
}

void slice_give(struct stag_heap *heap, struct heap_block *block, uint32_t first, uint32_t n)
{
	assert(lock_held(&heap->local.lock));
	set_bits(mask_of(heap, block), first, n, true);
	block->free_slices += n;
	assert(block->free_slices <= heap->geo.num_slices - heap->geo.header_slices);
	relink(heap, block);
	if (is_empty(heap, block))
		keep_or_make_idle(heap, block);
}

/*
 * The block may be empty still: slices that another thread freed meanwhile may have been taken
 * instead.
 */
void slice_adopted(struct stag_heap *heap, uint32_t index)
{
	struct heap_block *block = heap_block_at(heap, index);

	assert(lock_held(&heap->local.lock));
	if (is_empty(heap, block) && heap->local.reserve != block)
		keep_or_make_idle(heap, block);
}

struct heap_block *slice_take_reserve(struct stag_heap *heap, uint64_t empty_before)
{
	struct heap_block *block = heap->local.reserve;

	assert(lock_held(&heap->local.lock));
	if (!block || block->empty_since > empty_before)
		return NULL;
	leave_lists(heap, block);
	return block;
}
