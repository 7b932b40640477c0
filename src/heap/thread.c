// SPDX-License-Identifier: BSD-2-Clause
/*
 * thread.c - per-thread state: finds a span for a thread whose current one is full, and retires
 * unused spans.
 *
 * A thread needs no lock for its own spans. Objects that others free in them are bits in the span's
 * `freed`, which the thread collects when it has no free object left (thread_collect()). The state
 * of a thread that has ended, with its spans and the objects in them, is reused by the next new
 * thread.
 *
 * A thread retires its unused spans on request (thread_wait()). Another thread, mostly the
 * maintainer, may do that for a thread that is outside the heap's code: see stop_thread().
 */
#include "heap.h"

#include <assert.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"

#define PATIENCE   1000u /* yields before giving up, or sleeping */
#define SPINS	   2000u /* before sleeping */
#define POOR_LIMIT 16u	 /* poor spans used in a row before another span is created */
#define TO_ADD_UP  32u	 /* spans examined by is_tight() */

/* An entry of the calling thread's list of its state in each heap; thread_here caches one. */
struct thread_entry {
	struct thread_here here;
	struct thread_entry *next;
};

__thread struct thread_here thread_here = {THREAD_NOWHERE, NULL};
static __thread struct thread_entry *entries;
static pthread_key_t entries_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_membarrier;

static void tidy(struct heap_thread *thread);

/*
 * The current span of a thread that has none. It is full, so the fast path needs no check for NULL.
 */
static struct heap_span no_span;

/* ---- threads start and end ------------------------------------------------ */

static void release_state(struct stag_heap *heap, void *arg)
{
	struct heap_thread *thread = arg;

	HOLD_FOR_SCOPE(&heap->local.lock);
	thread->taken = false;
}

static void thread_ends(void *arg)
{
	for (struct thread_entry *entry = arg, *next; entry; entry = next) {
		next = entry->next;
		heap_with(entry->here.serial, release_state, entry->here.thread);
		free(entry);
	}
	thread_here.serial = THREAD_NOWHERE;
	entries = NULL;
}

static void init_once(void)
{
	if (pthread_key_create(&entries_key, thread_ends) != 0)
		abort();
	have_membarrier =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	if (!have_membarrier)
		log_info("heap: no membarrier (%m): unused memory of idle threads cannot be "
			 "trimmed");
}

void thread_init(void)
{
	pthread_once(&once, init_once);
}

static struct heap_thread *new_thread(struct stag_heap *heap)
{
	struct heap_thread *thread;

	if (heap->local.num_threads == UINT16_MAX)
		return NULL;
	thread = aligned_alloc(64, (sizeof(*thread) + 63) / 64 * 64);
	if (!thread)
		return NULL;
	*thread = (struct heap_thread){.heap = heap, .taken = true};
	lock_init(&thread->stop_lock);
	for (unsigned int i = 0; i < HEAP_MAX_CLASSES; i++)
		thread->current[i] = &no_span;
	thread->tag = heap->tag + ++heap->local.num_threads;
	thread->next = heap->local.threads;
	heap->local.threads = thread;
	return thread;
}

static struct heap_thread *take_thread_state(struct stag_heap *heap)
{
	HOLD_FOR_SCOPE(&heap->local.lock);
	for (struct heap_thread *t = heap->local.threads; t; t = t->next) {
		if (t->taken)
			continue;
		t->taken = true;
		return t;
	}
	return new_thread(heap);
}

/* Removes the entries of heaps that were detached. */
static void drop_detached_entries(void)
{
	for (struct thread_entry **at = &entries; *at;) {
		struct thread_entry *entry = *at;

		if (heap_with(entry->here.serial, NULL, NULL)) {
			at = &entry->next;
			continue;
		}
		*at = entry->next;
		free(entry);
	}
	pthread_setspecific(entries_key, entries);
}

static struct heap_thread *join_heap(struct stag_heap *heap)
{
	struct thread_entry *entry;

	drop_detached_entries();
	entry = malloc(sizeof(*entry));
	if (!entry)
		return NULL;
	entry->here = (struct thread_here){heap->serial, take_thread_state(heap)};
	if (!entry->here.thread) {
		free(entry);
		return NULL;
	}
	entry->next = entries;
	entries = entry;
	pthread_setspecific(entries_key, entries);
	thread_here = entry->here;
	return entry->here.thread;
}

struct heap_thread *thread_find(struct stag_heap *heap)
{
	struct heap_thread *thread;

	if (heap_check_attached(heap) != 0)
		return NULL;
	for (struct thread_entry *entry = entries; entry; entry = entry->next) {
		if (entry->here.serial != heap->serial)
			continue;
		thread_here = entry->here;
		return entry->here.thread;
	}
	thread = join_heap(heap);
	if (!thread)
		errno = heap_fail(ENOMEM, "heap %s: no memory for another thread", heap->name);
	return thread;
}

void thread_forget_all(struct stag_heap *heap)
{
	for (struct heap_thread *t = heap->local.threads, *next; t; t = next) {
		next = t->next;
		lock_destroy(&t->stop_lock);
		free(t);
	}
	heap->local.threads = NULL;
}

/* ---- entering, and stopping other threads ----------------------------------- */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Waits outside until start_thread(). Spins first: the wait takes some microseconds, and sleeping
 * costs a system call here and another one in the thread that wakes this one.
 */
static void wait_outside(struct heap_thread *thread)
{
	thread_leave(thread);
	for (unsigned int i = 0; i < SPINS; i++) {
		if (!atomic_load_explicit(&thread->stop, memory_order_acquire))
			return;
		relax();
	}
	lock_acquire(&thread->stop_lock);
	lock_release(&thread->stop_lock);
}

/*
 * Called by the thread inside (busy is set): a thread that has set STOP_WAIT waits for it to leave.
 */
void thread_wait(struct heap_thread *thread)
{
	uint32_t request = STOP_TIDY;

	if (atomic_compare_exchange_strong(&thread->stop, &request, STOP_NOT))
		tidy(thread);
	else if (request == STOP_WAIT)
		wait_outside(thread);
}

static void start_thread(struct heap_thread *thread)
{
	atomic_store_explicit(&thread->stop, STOP_NOT, memory_order_release);
	lock_release(&thread->stop_lock);
}

/*
 * Keeps the thread out until start_thread(). The caller must not hold heap->local.lock, which the
 * thread may need before it leaves. Returns false if the thread does not leave in time, or if the
 * system has no membarrier.
 */
static bool stop_thread(struct heap_thread *thread)
{
	if (!have_membarrier && thread != thread_here.thread)
		return false;
	lock_acquire(&thread->stop_lock);
	atomic_store(&thread->stop, STOP_WAIT);
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (!atomic_load_explicit(&thread->busy, memory_order_acquire))
			return true;
		sched_yield();
	}
	start_thread(thread);
	return false;
}

/* ---- spans with room --------------------------------------------------------- */

/*
 * Appends the span to the list of those with room, so that more objects are freed before it is
 * used.
 */
static void list_room(struct heap_thread *thread, struct heap_span *span)
{
	struct heap_span **head = &thread->room[span->class];

	span->next = NULL;
	if (*head) {
		span->prev = (*head)->prev;
		span->prev->next = span;
		(*head)->prev = span;
	} else {
		span->prev = span;
		*head = span;
	}
	span->listed = true;
}

static void unlist_room(struct heap_thread *thread, struct heap_span *span)
{
	struct heap_span **head = &thread->room[span->class];

	if (span->next)
		span->next->prev = span->prev;
	else
		(*head)->prev = span->prev;
	if (*head == span)
		*head = span->next;
	else
		span->prev->next = span->next;
	span->listed = false;
}

static bool is_unused(const struct heap_span *span)
{
	return span->num_free == heap_load(&span->count);
}

static void retire(struct heap_thread *thread, struct heap_span *span)
{
	assert(lock_held(&thread->heap->local.lock));
	if (span->listed)
		unlist_room(thread, span);
	if (thread->current[span->class] == span)
		thread->current[span->class] = &no_span;
	span_retire(thread->heap, span);
}

/*
 * Collects objects that others have freed in a span. Called under heap->local.lock, by the thread
 * itself, with it stopped, or after it has ended.
 */
static void collect_span(struct heap_thread *thread, struct heap_span *span)
{
	if (span_collect(thread->heap, span) == 0 || span == thread->current[span->class])
		return;
	if (is_unused(span) && !span->in_inbox && (thread->room[span->class] || !thread->taken))
		retire(thread, span);
	else if (!span->listed)
		list_room(thread, span);
}

static void collect_medium(struct stag_heap *heap, struct heap_span *span)
{
	if (span_collect(heap, span) != 0)
		span_retire(heap, span);
}

static struct heap_thread *owner_of(struct stag_heap *heap, uint64_t tag)
{
	for (struct heap_thread *t = heap->local.threads; t; t = t->next)
		if (t->tag == tag)
			return t;
	return NULL;
}

static void put_in_inbox(struct heap_thread *thread, struct heap_span *span)
{
	if (span->in_inbox)
		return;
	span->in_inbox = true;
	span->inbox_next = thread->inbox;
	thread->inbox = span;
}

static void dispatch(struct stag_heap *heap, struct heap_thread *me, struct heap_span *span)
{
	uint64_t tag = heap_load(&span->owner);
	struct heap_thread *owner;

	if (tag == 0)
		return;
	if (tag == heap->tag) {
		collect_medium(heap, span);
		return;
	}
	owner = me && me->tag == tag ? me : owner_of(heap, tag);
	if (!owner)
		return;
	if (owner == me || !owner->taken)
		collect_span(owner, span);
	else
		put_in_inbox(owner, span);
}

static void collect_block(struct stag_heap *heap, struct heap_thread *me, uint32_t index)
{
	uint64_t state = atomic_load(&heap->descs[index].state), groups;
	struct heap_block *block = heap_block_at(heap, index);

	if (desc_phase(state) != BLOCK_LIVE || desc_slot(state) != (int)heap->slot ||
	    desc_is_run(state))
		return; /* the hint is stale: the block has another owner */
	groups = atomic_exchange(&heap->hints.pending[index], 0);
	for (; groups != 0; groups &= groups - 1) {
		uint32_t first = (uint32_t)__builtin_ctzll(groups) << heap->geo.group_shift;

		for (uint32_t i = 0; i < 1u << heap->geo.group_shift; i++)
			if (first + i < heap->geo.num_slices)
				dispatch(heap, me, &block_spans(heap, block)[first + i]);
	}
}

static void empty_inbox(struct heap_thread *thread)
{
	while (thread->inbox) {
		struct heap_span *span = thread->inbox;

		thread->inbox = span->inbox_next;
		span->in_inbox = false;
		collect_span(thread, span);
	}
}

/*
 * Marks all our blocks as pending after a death: the process may have freed objects and set no
 * hint.
 */
static void mark_all_after_death(struct stag_heap *heap)
{
	uint64_t deaths = atomic_load(&heap->header->deaths);

	if (deaths == heap->local.deaths_seen)
		return;
	heap->local.deaths_seen = deaths;
	for (uint32_t i = 0; i < heap->geo.max_blocks; i++) {
		if (desc_slot(atomic_load(&heap->descs[i].state)) != (int)heap->slot)
			continue;
		span_tell_owner(heap, i, UINT64_MAX);
	}
}

void thread_collect(struct stag_heap *heap, struct heap_thread *me)
{
	struct hint_map *map = &heap->hints.pending_blocks;

	assert(lock_held(&heap->local.lock));
	mark_all_after_death(heap);
	for (uint32_t i = hint_next(map, 0); i != HINT_NONE; i = hint_next(map, i + 1)) {
		hint_clear(map, i);
		collect_block(heap, me, i);
	}
	if (me)
		empty_inbox(me);
}

/* ---- the current span is full ---------------------------------------------------- */

/* Replaces the current span, which is full. It goes into no list until an object is freed in it. */
static void set_current(struct heap_thread *thread, unsigned int class, struct heap_span *span)
{
	struct heap_span *before = thread->current[class];

	if (before != &no_span)
		span_set_at_hand(before, false);
	thread->current[class] = span;
	if (span != &no_span)
		span_set_at_hand(span, true);
}

/*
 * Returns whether less than a quarter is free: the span, the oldest in the list, will be full soon.
 */
static bool is_poor(const struct heap_span *span)
{
	return span->num_free < heap_load(&span->count) / 4;
}

static bool use_first(struct heap_thread *thread, unsigned int class)
{
	struct heap_span *span = thread->room[class];

	if (!span)
		return false;
	unlist_room(thread, span);
	set_current(thread, class, span);
	return true;
}

bool thread_use_room(struct heap_thread *thread, unsigned int class)
{
	struct heap_span *span = thread->room[class];

	if (!span || !is_poor(span))
		thread->poor[class] = 0;
	else if (++thread->poor[class] > POOR_LIMIT)
		return false;
	return use_first(thread, class);
}

/* Collects objects that others have freed in the current span, without a lock. */
static bool refill_current(struct heap_thread *thread, unsigned int class)
{
	struct heap_span *span = thread->current[class];
	struct stag_heap *heap = thread->heap;
	uint64_t pending;

	if (span == &no_span)
		return false;
	pending = heap_load(&heap->hints.pending[heap_index(heap, span)]);
	if (!((pending >> (span_first(heap, span) >> heap->geo.group_shift)) & 1))
		return false;
	return span_collect(heap, span) != 0;
}

static bool use_collected(struct heap_thread *thread, unsigned int class)
{
	struct stag_heap *heap = thread->heap;
	struct heap_span *span;

	HOLD_FOR_SCOPE(&heap->local.lock);
	set_current(thread, class, &no_span);
	thread_collect(heap, thread);
	if (use_first(thread, class))
		return true;
	span = span_create(heap, thread->tag, class);
	if (span)
		set_current(thread, class, span);
	return span != NULL;
}

static bool use_new_block(struct heap_thread *thread, unsigned int class)
{
	struct stag_heap *heap = thread->heap;
	int64_t index = block_take(heap);
	struct heap_span *span;

	if (index < 0)
		return false;
	HOLD_FOR_SCOPE(&heap->local.lock);
	slice_adopt(heap, (uint32_t)index);
	span = span_create(heap, thread->tag, class);
	slice_adopted(heap, (uint32_t)index);
	if (span)
		set_current(thread, class, span);
	return span != NULL;
}

/*
 * Returns whether less than an eighth of the objects in the first TO_ADD_UP spans with room is
 * free.
 */
static bool is_tight(const struct heap_thread *thread, unsigned int class)
{
	uint64_t num_free = 0, all = 0;
	unsigned int n = 0;

	for (struct heap_span *it = thread->room[class]; it && n < TO_ADD_UP; it = it->next, n++) {
		num_free += it->num_free;
		all += heap_load(&it->count);
	}
	return num_free < all / 8;
}

/*
 * Adds a span if all with room are nearly full: under a steady load each would be current for an
 * object or two only. Does not take a new block for it.
 */
static bool use_extra_span(struct heap_thread *thread, unsigned int class)
{
	struct stag_heap *heap = thread->heap;
	struct heap_span *span;

	if (thread->poor[class] <= POOR_LIMIT)
		return false;
	thread->poor[class] = 0;
	if (!is_tight(thread, class))
		return false;
	HOLD_FOR_SCOPE(&heap->local.lock);
	span = span_create(heap, thread->tag, class);
	if (span)
		set_current(thread, class, span);
	return span != NULL;
}

bool thread_refill(struct heap_thread *thread, unsigned int class)
{
	return thread->current[class]->summary != 0 || refill_current(thread, class) ||
	       use_extra_span(thread, class) || use_first(thread, class) ||
	       use_collected(thread, class) || use_new_block(thread, class);
}

void thread_free_edge(struct heap_thread *thread, struct heap_span *span)
{
	if (span == thread->current[span->class])
		return;
	if (!is_unused(span)) {
		if (!span->listed)
			list_room(thread, span);
		return;
	}
	HOLD_FOR_SCOPE(&thread->heap->local.lock);
	if (!span->in_inbox)
		retire(thread, span);
	else if (!span->listed)
		list_room(thread, span);
}

/* ---- trimming -------------------------------------------------------------------- */

static void retire_kept(struct heap_thread *thread)
{
	for (unsigned int i = 0; i < HEAP_KEPT; i++) {
		if (thread->kept[i])
			span_retire(thread->heap, thread->kept[i]);
		thread->kept[i] = NULL;
	}
}

static void retire_unused(struct heap_thread *thread)
{
	for (unsigned int i = 0; i < thread->heap->geo.num_classes; i++) {
		struct heap_span *span = thread->current[i];

		if (span != &no_span)
			span_collect(thread->heap, span);
		if (span != &no_span && is_unused(span))
			retire(thread, span);
		for (struct heap_span *it = thread->room[i], *next; it; it = next) {
			next = it->next;
			if (is_unused(it))
				retire(thread, it);
		}
	}
}

/*
 * Yields before it sleeps: a sleeping thread must be woken by the holder of the lock, which would
 * delay a thread that allocates.
 */
void thread_lock_last(struct stag_heap *heap)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (lock_try(&heap->local.lock))
			return;
		sched_yield();
	}
	lock_acquire(&heap->local.lock);
}

static void retire_all(struct heap_thread *thread)
{
	assert(lock_held(&thread->heap->local.lock));
	empty_inbox(thread);
	retire_unused(thread);
	retire_kept(thread);
}

/*
 * Handles STOP_TIDY; called by the thread, inside. Does the maintainer's process-wide work, too, so
 * that the maintainer need not take the lock.
 */
static void tidy(struct heap_thread *thread)
{
	struct stag_heap *heap = thread->heap;
	struct heap_block *reserve;

	HOLD_FOR_SCOPE(&heap->local.lock);
	thread_collect(heap, thread);
	retire_all(thread);
	if (heap->maintain.retain_ns >= 0) {
		reserve = slice_take_reserve(heap,
					     maintain_now() - (uint64_t)heap->maintain.retain_ns);
		if (reserve)
			block_make_idle(heap, reserve->index);
	}
	atomic_store(&heap->local.tidied, true);
}

static void trim_thread(struct heap_thread *thread)
{
	if (!stop_thread(thread))
		return;
	thread_lock_last(thread->heap);
	retire_all(thread);
	lock_release(&thread->heap->local.lock);
	start_thread(thread);
}

/*
 * Collects for ended threads and medium spans. Returns the list of threads, which can be walked
 * without the lock: threads are only added, at its head.
 */
static struct heap_thread *collect_all(struct stag_heap *heap)
{
	struct heap_thread *first;

	thread_lock_last(heap);
	thread_collect(heap, NULL);
	first = atomic_load(&heap->local.threads);
	lock_release(&heap->local.lock);
	return first;
}

void thread_trim(struct stag_heap *heap)
{
	for (struct heap_thread *t = collect_all(heap); t; t = t->next)
		trim_thread(t);
}

/* If the last request is still pending, the thread is idle, and is trimmed by the caller. */
bool thread_ask_to_trim(struct stag_heap *heap)
{
	bool at_work = atomic_exchange(&heap->local.tidied, false);
	struct heap_thread *first = at_work ? atomic_load(&heap->local.threads) : collect_all(heap);

	for (struct heap_thread *t = first; t; t = t->next) {
		uint32_t request = STOP_NOT;

		if (!atomic_compare_exchange_strong(&t->stop, &request, STOP_TIDY))
			trim_thread(t);
	}
	return at_work;
}
