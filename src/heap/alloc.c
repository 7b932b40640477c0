// SPDX-License-Identifier: BSD-2-Clause
/*
 * alloc.c - the public calls that allocate and free.
 *
 * By size: a small object is allocated from the thread's current span of its size class; a medium
 * one gets a span of its own, some slices of a block of this process; a large one gets a run of
 * slots.
 */
#include "heap.h"

#include <errno.h>
#include <string.h>

#include "base/export.h"
#include "base/lock.h"

#define FULL "heap %s: full, or the system has no more memory"

/* ---- allocate ---------------------------------------------------------------- */

/* Slow path: the thread last used another heap, has a pending request, or its spans are full. */
static __attribute__((noinline)) void *small_slow(struct stag_heap *heap, unsigned int class)
{
	struct heap_thread *thread = thread_find(heap);
	void *ptr = NULL;

	if (!thread)
		return NULL;
	for (int i = 0; i < 2 && !ptr; i++) {
		if (i == 1)
			maintain_trim(heap);
		thread_enter(thread);
		if (thread_refill(thread, class))
			ptr = span_pop(thread->current[class]);
		thread_leave(thread);
	}
	if (!ptr)
		errno = heap_fail(ENOMEM, FULL, heap->name);
	return ptr;
}

/* Uses another span; the current one is full. Called inside; leaves. */
static __attribute__((noinline)) void *small_refill(struct heap_thread *thread, unsigned int class)
{
	void *ptr = NULL;

	if (likely(thread_use_room(thread, class)))
		ptr = span_pop(thread->current[class]);
	thread_leave(thread);
	return likely(ptr) ? ptr : small_slow(thread->heap, class);
}

static inline void *alloc_small(struct stag_heap *heap, unsigned int class)
{
	struct heap_thread *thread = thread_here.thread;
	struct heap_span *span;
	void *ptr;

	if (unlikely(thread_here.serial != heap->serial) || unlikely(!thread_try_enter(thread)))
		return small_slow(heap, class);
	span = thread->current[class];
	if (unlikely(span->summary == 0))
		return small_refill(thread, class);
	ptr = span_pop(span);
	thread_leave(thread);
	return ptr;
}

static struct heap_span *medium_span(struct stag_heap *heap, uint32_t slices, uint32_t step)
{
	struct heap_span *span;

	HOLD_FOR_SCOPE(&heap->local.lock);
	span = span_create_medium(heap, slices, step);
	if (span)
		return span;
	thread_collect(heap, NULL);
	return span_create_medium(heap, slices, step);
}

static inline uint64_t slices_for(const struct stag_heap *heap, uint64_t size)
{
	uint64_t rest = size & ((1ull << heap->geo.slice_shift) - 1);

	return (size >> heap->geo.slice_shift) + (rest != 0);
}

/* Takes a cached medium span that fits, or returns NULL. Called inside. */
static inline struct heap_span *take_kept(struct heap_thread *thread, uint64_t slices,
					  uint32_t step)
{
	struct heap_span **at = &thread->kept[slices % HEAP_KEPT], *span = *at;

	if (!span || heap_load(&span->slices) != slices ||
	    (step > 1 && span_first(thread->heap, span) % step != 0))
		return NULL;
	*at = NULL;
	heap_store(&span->free[0], 0);
	return span;
}

/* Returns a medium span that this thread has freed and cached, or NULL. */
static inline struct heap_span *kept_span(struct stag_heap *heap, uint64_t slices, uint32_t step)
{
	struct heap_thread *thread = thread_here.thread;
	struct heap_span *span = NULL;

	if (unlikely(thread_here.serial != heap->serial))
		return NULL;
	if (likely(thread_try_enter(thread)))
		span = take_kept(thread, slices, step);
	thread_leave(thread);
	return span;
}

/* Takes new blocks until one serves: other threads may use up a new block first. */
static void *alloc_medium(struct stag_heap *heap, uint32_t slices, uint32_t step)
{
	struct heap_span *span = kept_span(heap, slices, step);

	if (!span && thread_here.serial == heap->serial)
		thread_pass(thread_here.thread);
	if (!span)
		span = medium_span(heap, slices, step);
	while (!span) {
		int64_t index = block_take(heap);

		if (index < 0) {
			errno = heap_fail(ENOMEM, FULL, heap->name);
			return NULL;
		}
		HOLD_FOR_SCOPE(&heap->local.lock);
		slice_adopt(heap, (uint32_t)index);
		span = span_create_medium(heap, slices, step);
		slice_adopted(heap, (uint32_t)index);
	}
	return (void *)heap_load(&span->base);
}

static void *alloc_large(struct stag_heap *heap, uint64_t size, uint64_t alignment)
{
	int64_t index = block_take_run(heap, size, alignment);
	struct heap_block *block;

	if (index < 0) {
		errno = heap_fail(ENOMEM, "heap %s: no room for %llu bytes", heap->name,
				  (unsigned long long)size);
		return NULL;
	}
	block = heap_block_at(heap, (uint32_t)index);
	return (char *)block + block->data_offset;
}

/* alignment: a power of two up to the block size. */
static void *alloc_big(struct stag_heap *heap, uint64_t size, uint64_t alignment)
{
	uint64_t slice = 1ull << heap->geo.slice_shift;
	uint64_t step = alignment > slice ? alignment >> heap->geo.slice_shift : 1;
	uint64_t slices = slices_for(heap, size);

	if (slices + step - 1 <= heap->geo.medium_slices)
		return alloc_medium(heap, slices == 0 ? 1 : (uint32_t)slices, (uint32_t)step);
	return alloc_large(heap, size, alignment);
}

static __attribute__((noinline)) void *alloc_or_trim(struct stag_heap *heap, uint64_t size,
						     uint64_t alignment)
{
	void *ptr;

	if (unlikely(heap_check_attached(heap) != 0))
		return NULL;
	ptr = alloc_big(heap, size, alignment);
	if (ptr || size > heap->area_size)
		return ptr;
	maintain_trim(heap);
	return alloc_big(heap, size, alignment);
}

/* Allocates above small_max. Not inlined, so that the fast path need not save registers. */
static __attribute__((noinline)) void *alloc_above(struct stag_heap *heap, uint64_t size)
{
	struct heap_span *span = kept_span(heap, slices_for(heap, size), 1);

	if (likely(span))
		return (void *)heap_load(&span->base);
	return alloc_or_trim(heap, size, HEAP_MIN_OBJECT);
}

STAG_EXPORT void *stag_heap_alloc(struct stag_heap *heap, size_t size)
{
	if (likely(size <= heap->geo.small_max))
		return alloc_small(heap, class_of(heap, size));
	return alloc_above(heap, size);
}

STAG_EXPORT void *stag_heap_calloc(struct stag_heap *heap, size_t n, size_t size)
{
	size_t total;
	void *ptr;

	if (__builtin_mul_overflow(n, size, &total)) {
		errno = heap_fail(ENOMEM, "heap %s: no room for %zu times %zu bytes", heap->name, n,
				  size);
		return NULL;
	}
	ptr = stag_heap_alloc(heap, total);
	if (ptr)
		memset(ptr, 0, total);
	return ptr;
}

/* Spans begin at slices, so an object of a class is aligned as far as its size is. */
static bool find_aligned_class(const struct stag_heap *heap, uint64_t alignment, uint64_t size,
			       unsigned int *class)
{
	if (alignment > 1ull << heap->geo.slice_shift || size > heap->geo.small_max)
		return false;
	for (*class = class_of(heap, size < alignment ? alignment : size);
	     *class < heap->geo.num_classes; ++*class)
		if (heap->geo.classes[*class].size % alignment == 0)
			return true;
	return false;
}

STAG_EXPORT void *stag_heap_aligned(struct stag_heap *heap, size_t alignment, size_t size)
{
	unsigned int class;

	if (alignment == 0 || (alignment & (alignment - 1)) != 0 ||
	    alignment > heap->geo.block_size) {
		errno = heap_fail(
			EINVAL, "heap %s: alignment %zu is no power of two, or larger than a block",
			heap->name, alignment);
		return NULL;
	}
	if (find_aligned_class(heap, alignment, size, &class))
		return alloc_small(heap, class);
	return alloc_or_trim(heap, size, alignment);
}

/* ---- from a pointer to its object ------------------------------------------------ */

/* An object in a span, or (span NULL) the object of a run. */
struct object {
	uint32_t index;
	struct heap_span *span;
	uint32_t number;
};

static inline bool at_object(const struct heap_span *span, const void *ptr, uint32_t *number)
{
	uint64_t offset = (uintptr_t)ptr - heap_load(&span->base);

	*number = span_number(span, offset);
	return (uint64_t)*number * heap_load(&span->size) == offset &&
	       *number < heap_load(&span->count);
}

static bool find_in_span(struct stag_heap *heap, const void *ptr, struct object *object)
{
	struct heap_span *span = span_of(heap, ptr);

	if (span == (void *)heap_block_at(heap, object->index) || heap_load(&span->owner) == 0)
		return false;
	object->span = span;
	return at_object(span, ptr, &object->number);
}

static bool find_object(struct stag_heap *heap, const void *ptr, struct object *object)
{
	uint64_t state;

	if (!heap_holds(heap, ptr))
		return false;
	object->index = heap_head(heap, heap_index(heap, ptr));
	object->span = NULL;
	object->number = 0;
	state = atomic_load_explicit(&heap->descs[object->index].state, memory_order_acquire);
	if (desc_phase(state) != BLOCK_LIVE && desc_phase(state) != BLOCK_ORPHAN)
		return false;
	if (!desc_is_run(state))
		return find_in_span(heap, ptr, object);
	return (const char *)ptr == (const char *)heap_block_at(heap, object->index) +
					    heap_block_at(heap, object->index)->data_offset;
}

static bool is_free(struct stag_heap *heap, const struct object *object)
{
	struct heap_block *block = heap_block_at(heap, object->index);
	uint32_t first, word = object->number / 64;

	if (!object->span)
		return false;
	first = span_first(heap, object->span);
	return ((heap_load(&object->span->free[word]) |
		 heap_load(&block_bits(heap, block, heap->geo.freed_offset, first)[word])) >>
		(object->number % 64)) &
	       1;
}

static uint64_t object_size(struct stag_heap *heap, const struct object *object)
{
	if (object->span)
		return heap_load(&object->span->size);
	return heap_load(&heap->descs[object->index].block_size) -
	       heap_block_at(heap, object->index)->data_offset;
}

STAG_EXPORT size_t stag_heap_usable_size(struct stag_heap *heap, const void *ptr)
{
	struct object object;

	if (heap_check_attached(heap) != 0 || !find_object(heap, ptr, &object))
		return 0;
	return object_size(heap, &object);
}

/* ---- share ------------------------------------------------------------------------ */

static _Atomic uint64_t *shared_word(struct stag_heap *heap, const struct object *object)
{
	struct heap_block *block = heap_block_at(heap, object->index);

	if (!object->span)
		return &block->run_shared;
	return &block_bits(heap, block, heap->geo.shared_offset,
			   span_first(heap, object->span))[object->number / 64];
}

static bool is_shared(struct stag_heap *heap, const struct object *object)
{
	return (atomic_load(shared_word(heap, object)) >> (object->number % 64)) & 1;
}

static int find_to_share(struct stag_heap *heap, const void *ptr, struct object *object)
{
	if (find_object(heap, ptr, object) && !is_free(heap, object))
		return 0;
	if (heap_check_attached(heap) != 0)
		return EINVAL;
	return heap_fail(ENOENT, "heap %s: %p is not an allocated object", heap->name, ptr);
}

/* Sets the flags first: a thread that frees reads the bits only if the flags say so. */
STAG_EXPORT int stag_heap_share(struct stag_heap *heap, void *ptr)
{
	struct object object;
	int rc = find_to_share(heap, ptr, &object);

	if (rc != 0)
		return rc;
	atomic_store(&heap_block_at(heap, object.index)->sharing, 1);
	if (object.span)
		atomic_store(&object.span->sharing, 1);
	atomic_fetch_or(shared_word(heap, &object), 1ull << (object.number % 64));
	return 0;
}

STAG_EXPORT int stag_heap_unshare(struct stag_heap *heap, void *ptr)
{
	struct object object = {0};
	int rc = find_to_share(heap, ptr, &object);

	if (rc != 0)
		return rc;
	atomic_fetch_and(shared_word(heap, &object), ~(1ull << (object.number % 64)));
	block_settle(heap, object.index, false);
	return 0;
}

/* ---- free --------------------------------------------------------------------------- */

static void unshare_own(struct stag_heap *heap, struct heap_span *span, uint32_t number)
{
	struct heap_block *block = span_block(heap, span);
	_Atomic uint64_t *word = &block_bits(heap, block, heap->geo.shared_offset,
					     span_first(heap, span))[number / 64];

	if (heap_load(word) & (1ull << (number % 64)))
		atomic_fetch_and(word, ~(1ull << (number % 64)));
}

/* Frees an object in a span of this thread. */
static void free_own(struct heap_thread *thread, struct heap_span *span, uint32_t number)
{
	uint32_t word = number / 64;
	uint64_t bit = 1ull << (number % 64), bits = heap_load(&span->free[word]);

	if (bits & bit)
		heap_abort("%p was freed twice",
			   (void *)(heap_load(&span->base) +
				    (uint64_t)number * heap_load(&span->size)));
	if (heap_load(&span->sharing))
		unshare_own(thread->heap, span, number);
	heap_store(&span->free[word], bits | bit);
	span->summary |= 1ull << word;
	span->num_free++;
	if (span->num_free == 1 || span->num_free == heap_load(&span->count))
		thread_free_edge(thread, span);
}

/*
 * Frees a medium object of this process, from any of its threads. If the lock is held, sets only
 * its `freed` bit, for the next thread that collects.
 */
static void free_medium(struct stag_heap *heap, struct heap_span *span)
{
	struct heap_block *block = span_block(heap, span);
	_Atomic uint64_t *freed =
		block_bits(heap, block, heap->geo.freed_offset, span_first(heap, span));

	if (!lock_try(&heap->local.lock)) {
		span_free_remote(heap, span, 0);
		return;
	}
	if (atomic_fetch_or(freed, 1) & 1)
		heap_abort("%p was freed twice", (void *)heap_load(&span->base));
	span_collect(heap, span);
	span_retire(heap, span);
	lock_release(&heap->local.lock);
}

/*
 * Caches a freed medium span for the next request of its size. Called inside. Returns false if the
 * place is occupied.
 */
static bool keep_medium(struct heap_thread *thread, struct heap_span *span)
{
	struct heap_span **at = &thread->kept[heap_load(&span->slices) % HEAP_KEPT];

	if (heap_load(&span->free[0]) != 0)
		heap_abort("%p was freed twice", (void *)heap_load(&span->base));
	if (*at)
		return false;
	if (heap_load(&span->sharing))
		unshare_own(thread->heap, span, 0);
	heap_store(&span->free[0], 1);
	*at = span;
	return true;
}

/*
 * Frees an own object where not only bits change: the span has shared objects, or this is its first
 * free object or its last one in use. Called inside; leaves.
 */
static __attribute__((noinline)) void free_own_inside(struct heap_thread *thread,
						      struct heap_span *span, uint32_t number)
{
	free_own(thread, span, number);
	thread_leave(thread);
}

static void free_object(struct stag_heap *heap, struct heap_thread *thread, void *ptr,
			const struct object *object)
{
	uint64_t owner = object->span ? heap_load(&object->span->owner) : 0;

	if (!object->span) {
		if (!block_free_run(heap, object->index))
			heap_abort("%p was freed twice", ptr);
	} else if (owner == thread->tag) {
		thread_enter(thread);
		free_own_inside(thread, object->span, object->number);
	} else if (owner == heap->tag) {
		free_medium(heap, object->span);
	} else {
		span_free_remote(heap, object->span, object->number);
	}
}

static __attribute__((noinline)) void free_slow(struct stag_heap *heap, void *ptr)
{
	struct heap_thread *thread;
	struct object object;

	if (!ptr) {
		if (thread_here.serial == heap->serial)
			thread_pass(thread_here.thread); /* stag_heap_free() has entered */
		return;
	}
	thread = thread_find(heap);
	if (!thread)
		heap_abort("%s", stag_heap_error());
	thread_pass(thread);
	if (!find_object(heap, ptr, &object))
		heap_abort("%p is no allocation of heap %s", ptr, heap->name);
	free_object(heap, thread, ptr, &object);
}

/* Returns whether ptr is in a live block that is no run, so that span_of() may be called. */
static inline bool in_live_block(const struct stag_heap *heap, const void *ptr)
{
	uint64_t within = (uint64_t)((const char *)ptr - heap->area), state;

	if (unlikely(within >= heap->area_size))
		return false;
	state = atomic_load_explicit(&heap->descs[within >> heap->geo.block_shift].state,
				     memory_order_acquire);
	return likely((state & (DESC_RUN | 0xff)) == BLOCK_LIVE);
}

/*
 * Frees an object in a live block that is not this thread's: another thread's, or a medium one of
 * the process, or another process's. Called inside; leaves.
 */
static __attribute__((noinline)) void free_others(struct stag_heap *heap, struct heap_span *span,
						  void *ptr)
{
	struct heap_thread *thread = thread_here.thread;
	uint64_t owner = heap_load(&span->owner);
	uint32_t number;
	bool kept;

	if (unlikely(owner == 0 || owner == HEAP_MAGIC || !at_object(span, ptr, &number)))
		return free_slow(heap, ptr);
	kept = owner == heap->tag && keep_medium(thread, span);
	thread_leave(thread);
	if (kept)
		return;
	if (owner == heap->tag)
		free_medium(heap, span);
	else
		span_free_remote(heap, span, number);
}

/* Fast path: frees an object of this thread where only bits change. */
STAG_EXPORT void stag_heap_free(struct stag_heap *heap, void *ptr)
{
	struct heap_thread *thread = thread_here.thread;
	struct heap_span *span;
	uint64_t bit, bits;
	uint32_t number;

	if (unlikely(thread_here.serial != heap->serial) || unlikely(!thread_try_enter(thread)) ||
	    unlikely(!in_live_block(heap, ptr)))
		return free_slow(heap, ptr);
	span = span_of(heap, ptr);
	if (heap_load(&span->owner) != thread->tag)
		return free_others(heap, span, ptr);
	if (unlikely(!at_object(span, ptr, &number)))
		return free_slow(heap, ptr);
	bit = 1ull << (number % 64);
	bits = heap_load(&span->free[number / 64]);
	if (unlikely((bits & bit) || span->num_free - span->first >= span->quiet ||
		     heap_load(&span->sharing)))
		return free_own_inside(thread, span, number);
	heap_store(&span->free[number / 64], bits | bit);
	span->summary |= 1ull << (number / 64);
	span->num_free++;
	thread_leave(thread);
}

/* ---- realloc --------------------------------------------------------------------------- */

/* Does not move the object if the new size fits and at least half would be used. */
STAG_EXPORT void *stag_heap_realloc(struct stag_heap *heap, void *ptr, size_t size)
{
	struct object object;
	uint64_t had;
	void *other;

	if (!ptr)
		return stag_heap_alloc(heap, size);
	if (heap_check_attached(heap) != 0)
		return NULL;
	if (!find_object(heap, ptr, &object))
		heap_abort("%p is no allocation of heap %s", ptr, heap->name);
	had = object_size(heap, &object);
	if (size <= had && (size >= had / 2 || had == HEAP_MIN_OBJECT))
		return ptr;
	other = stag_heap_alloc(heap, size);
	if (!other)
		return NULL;
	memcpy(other, ptr, size < had ? size : had);
	if (is_shared(heap, &object))
		stag_heap_share(heap, other);
	stag_heap_free(heap, ptr);
	return other;
}
