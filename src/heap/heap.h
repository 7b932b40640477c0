/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - the inside of the registered heap.
 *
 * Words. A *slot* is a place for a block in the area, a power of two apart, so that a pointer
 * gives its index by a shift. A *block* is the memory in a slot: the unit of registration,
 * owned by one process at a time. A *run* is a block of several slots with one
 * large allocation. A *slice* is a fixed part of a block; a *span* is a run of slices with
 * objects of one size, owned by one thread, or (one object, medium) by the process.
 *
 * The shared object: header page | process table | descriptor table | hint maps | area.
 * It is mapped at the same address everywhere, so pointers in it are pointers.
 *
 * Who changes what, and what death leaves behind:
 *   desc.state    CAS, by anyone who sees the phase that allows it (block.c). A phase that names a
 *                 process belongs to it; if that is dead, the reaper goes on from there.
 *   span `free`   the owning thread only; of a medium one, the thread that frees it and keeps it at
 *                 hand. Death of the process frees all that is not shared.
 *   span `freed`  others set bits, one fetch_or each; the owner moves them to `free`.
 *   span `shared` anybody sets and clears; cleared by the owner before an object is free again.
 *   pending, hint maps  anybody; hints only: a lost one costs a scan, never memory.
 * So no lock is shared between processes. Live and shared: shared & ~freed & ~free.
 *
 * Locks of this process, in the order they are taken: registry (create.c), reap_lock,
 * thread_heap.stop_lock, lock. keys.c's own come last.
 */
#ifndef HEAP_HEAP_H
#define HEAP_HEAP_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error_text.h"
#include "base/lock.h"
#include "stag/heap.h"
#include "base/list.h"

#define HEAP_MAGIC	 0x7061656867617473ull /* "stagheap" */
#define HEAP_VERSION	 2u
#define HEAP_PAGE	 4096u
#define HEAP_HAZARDS	 64u /* accesses of one process in flight at one moment */
#define HEAP_MAX_CLASSES 128u
#define HEAP_HINT_LEVELS 4u
#define HEAP_MIN_OBJECT	 16u
#define HEAP_SPAN_WORDS	 64u /* of 64 objects: one summary word is enough */
#define HEAP_FIT_LISTS	 64u
#define HEAP_KEPT	 4u /* medium allocations that a thread has freed and keeps at hand */
#define HEAP_MAX_BLOCKS	 (1u << 20)

/* ThreadSanitizer leaves a program only the low range, and ends one that maps elsewhere. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEAP_LOW_ONLY 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define HEAP_LOW_ONLY 1
#endif
#ifndef HEAP_LOW_ONLY
#define HEAP_LOW_ONLY 0
#endif
#define HEAP_LOW_END 0x8000000000ull

#define heap_load(p)	 atomic_load_explicit((p), memory_order_relaxed)
#define heap_store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define likely(x)	 __builtin_expect(!!(x), 1)
#define unlikely(x)	 __builtin_expect(!!(x), 0)

/* ---- shared memory ------------------------------------------------------ */

/* Open until the last process detaches; a process that attaches vetoes a closing (create.c). */
enum heap_gate { GATE_OPEN, GATE_CLOSING, GATE_CLOSED };

struct heap_header {
	uint64_t magic;
	uint32_t version;
	uint32_t max_procs;
	uint64_t address;      /* of this page, in every process */
	uint64_t size;	       /* of the whole mapping */
	uint64_t area_offset;  /* a multiple of the stride */
	uint64_t control_size; /* bytes before the area, committed from the beginning */
	uint64_t block_size;
	uint32_t block_shift; /* log2 of the stride */
	uint32_t slice_shift;
	uint32_t max_blocks;
	uint32_t huge_shift; /* 0: the area is part of this object; else of a hugetlbfs file */
	uint64_t procs_offset, descs_offset, pending_offset, maps_offset;
	char huge_path[256];
	_Atomic uint64_t gate;
	_Atomic uint64_t deaths; /* how many processes have been reaped */
};

enum proc_phase { PROC_FREE, PROC_LIVE };

/* A process has byte [slot] of the object locked (OFD) as long as it lives. */
struct heap_proc {
	_Atomic uint64_t state; /* generation << 8 | enum proc_phase */
	_Atomic uint64_t start_time;
	_Atomic uint32_t pid;
	/* Counters of the process, for tools. Nothing depends on them. */
	_Atomic uint64_t blocks_taken, blocks_released;
	_Atomic uint64_t registrations, registrations_made, registrations_saved, stale_found;
	_Atomic uint64_t hazards[HEAP_HAZARDS]; /* 0 or index + 1: see block_has_hazard() */
} __attribute__((aligned(64)));

/*
 *   OPEN -> TAKING -> LIVE -> IDLE -> LIVE ...       IDLE, LIVE, ORPHAN, TAKING -> RELEASING -> OPEN
 *                     LIVE -> ORPHAN                 further slots of a run: TAKING -> TAIL -> OPEN
 */
enum block_phase {
	BLOCK_OPEN,   /* no memory here; all of the entry but blockId is zero */
	BLOCK_TAKING, /* a process is getting memory for it */
	BLOCK_LIVE,   /* a process allocates in it */
	/* empty, with memory, without an owner: any process may take it, blockId unchanged */
	BLOCK_IDLE,
	BLOCK_ORPHAN,	 /* the process is gone; its shared objects are still there */
	BLOCK_RELEASING, /* a process is giving it back to the system */
	BLOCK_TAIL,	 /* belongs to the run of `head` */
};

/* An entry of the shared descriptor table (figure 2). */
struct heap_desc {
	_Atomic uint64_t block_id;   /* 0 until first used, then from 1; the word for guards */
	_Atomic uint64_t block_ptr;  /* 0: open */
	_Atomic uint64_t block_size; /* 0: open */
	_Atomic uint64_t state;	     /* sequence << 32 | run << 16 | (slot + 1) << 8 | phase */
	_Atomic uint64_t deadline;   /* of an idle block: CLOCK_MONOTONIC time of its release */
	_Atomic uint32_t head;	     /* of a tail: the run's first; stays when it is open again */
	_Atomic uint32_t tails;	     /* of a run: slots after the first */
	_Atomic uint32_t
		was_run; /* was part of a run when last used: late writers may have left traces */
} __attribute__((aligned(64)));

#define DESC_RUN (1ull << 16)

static inline enum block_phase desc_phase(uint64_t state)
{
	return (enum block_phase)(state & 0xff);
}

/* Returns the process that a state names; -1: none. */
static inline int desc_slot(uint64_t state)
{
	return (int)((state >> 8) & 0xff) - 1;
}

static inline bool desc_is_run(uint64_t state)
{
	return (state & DESC_RUN) != 0;
}

/* Objects of one size in consecutive slices. In the block's header, one for each slice. */
struct heap_span {
	/*
	 * Read by other processes that free in the span, so nothing in this cache line changes
	 * often.
	 */
	_Atomic uint64_t owner;	  /* the thread's or process's tag; 0: no span begins here */
	_Atomic uint64_t base;	  /* address of the first object */
	_Atomic uint64_t *free;	  /* bits; the owner's */
	uint64_t recip;		  /* ceil(2^40 / size): offset to number without a division */
	_Atomic uint32_t size;	  /* of an object */
	_Atomic uint32_t count;	  /* of objects */
	_Atomic uint32_t sharing; /* some object is or was shared */
	_Atomic uint32_t slices;
	uint32_t class;
	/* Written by the owner only. */
	uint64_t summary __attribute__((aligned(64))); /* words of `free` that have bits */
	uint32_t num_free;
	uint16_t first, quiet; /* only bits change with a free while num_free - first < quiet */
	struct heap_span *next, *prev; /* its spans with room */
	struct heap_span *inbox_next;  /* under the process's lock */
	bool listed, in_inbox;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct heap_span) == 128, "two lines");

/* At the beginning of each block (figure 3). Spans and bitmaps follow, see span.c. */
struct heap_block {
	uint64_t magic;		  /* first: span_of() */
	uint32_t index;		  /* in both tables */
	_Atomic uint32_t sharing; /* something in it is or was shared */
	/* offset of the first object; the header before it is never registered */
	uint64_t data_offset;
	/* Of a run: its only object. */
	_Atomic uint64_t run_shared;
	/* Written by the owning process, with its lock held: */
	struct list link;
	uint32_t free_slices;
	uint32_t longest;  /* run of free slices */
	uint32_t fit_list; /* where it is linked; HEAP_FIT_LISTS: nowhere */
	uint64_t empty_since;
};

/* ---- this process ------------------------------------------------------- */

/* Bits and summaries of them in shared memory: hints that may be wrong. */
struct hint_map {
	_Atomic uint64_t *level[HEAP_HINT_LEVELS]; /* 0: the bits */
	uint32_t bits;
	unsigned int levels;
};

struct size_class {
	uint64_t recip;
	uint32_t size, count, slices;
};

struct heap_thread;
struct heap_keys; /* keys.c */

/* Sizes and shifts of the heap, the same in all its processes. The allocation path reads most of them. */
struct heap_geometry {
	uint64_t block_mask; /* of a pointer: its slot's beginning */
	unsigned int block_shift, slice_shift;
	uint32_t small_max;   /* the largest size that classes serve, in bytes */
	uint32_t header_size; /* bytes of the header of a block that is no run */
	uint32_t slice_words; /* words of a bitmap for each slice */
	uint64_t mask_offset, start_offset, spans_offset, free_offset, freed_offset,
		shared_offset; /* in a block's header */
	uint8_t class_of[65];  /* the class of each size up to 1 KiB, by 16 */
	struct size_class classes[HEAP_MAX_CLASSES];
	unsigned int num_classes;
	uint64_t block_size;
	uint32_t max_blocks, num_slices, header_slices, medium_slices;
	size_t commit_unit; /* page size of the area */
	unsigned int group_shift;
};

/* Indexes in shared memory of blocks that are worth a look. */
struct heap_hints {
	struct hint_map open, idle, idle_runs;
	_Atomic uint64_t
		*pending; /* for each block, a bit for each of 64 groups of slices: freed there */
	struct hint_map pending_blocks; /* blocks of this process with a bit set in pending */
};

/* The files that are mapped. */
struct heap_files {
	int fd, area_fd;
	uint64_t area_offset; /* of the area in area_fd */
};

/* Blocks and threads of this process. */
struct heap_local {
	struct lock lock; /* protects the rest, and the process's blocks and spans */
	struct list fits[HEAP_FIT_LISTS]; /* blocks with free slices, by the longest run of them */
	uint64_t fits_mask;		  /* the lists that are not empty */
	struct heap_block *reserve;	  /* one empty block, kept for the next allocation */
	struct heap_thread *_Atomic threads; /* every thread there ever was; freed at detach */
	_Atomic bool
		tidied; /* a thread of this process has tidied since the maintainer requested it */
	unsigned int num_threads;
	uint64_t deaths_seen;
};

/* The maintainer thread (maintain.c). */
struct heap_maintenance {
	int64_t retain_ns; /* how long an empty block is kept; -1: forever */
	pthread_t thread;
	struct lock lock; /* protects the rest */
	pthread_cond_t cond;
	bool stop;
	bool running;
};

/* A heap as one process has attached it. */
struct stag_heap {
	uint64_t serial; /* of this attachment, never used again; 0: inherited over a fork */
	char *area;
	uint64_t area_size; /* bytes; 0 if serial is 0, so that no pointer belongs to the heap */
	struct heap_desc *descs;
	struct heap_geometry geo;

	struct heap_header *header;
	struct heap_proc *procs, *self;
	unsigned int slot; /* of this process, in procs */
	uint64_t tag;	   /* generation << 32 | slot << 16; + n: thread n */
	struct heap_hints hints;
	struct heap_files files;
	char name[STAG_HEAP_NAME_MAX];

	struct heap_local local;
	struct lock reap_lock;
	struct heap_maintenance maintain;

	struct list registry; /* create.c */
	struct heap_keys *keys;
	bool looking; /* opened by stag_heap_look(): not an attached process, all above is a snapshot (look.c) */
};

/* ---- arithmetic ---------------------------------------------------------- */

static inline bool heap_holds(const struct stag_heap *heap, const void *ptr)
{
	return (uint64_t)((const char *)ptr - heap->area) < heap->area_size;
}

/* Returns the block index of a pointer into the heap. */
static inline uint32_t heap_index(const struct stag_heap *heap, const void *ptr)
{
	return (uint32_t)((uint64_t)((const char *)ptr - heap->area) >> heap->geo.block_shift);
}

static inline struct heap_block *heap_block_at(const struct stag_heap *heap, uint32_t index)
{
	return (struct heap_block *)(heap->area + ((uint64_t)index << heap->geo.block_shift));
}

/*
 * Returns the index of the entry that represents the slot: its own, or its run's. Only for a live
 * pointer.
 */
static inline uint32_t heap_head(const struct stag_heap *heap, uint32_t index)
{
	const struct heap_desc *desc = &heap->descs[index];

	if (desc_phase(atomic_load_explicit(&desc->state, memory_order_acquire)) == BLOCK_TAIL)
		return heap_load(&desc->head);
	return index;
}

/* ---- keys.c --------------------------------------------------------------- */

/* At attach, before any block is taken; at detach, before any is released. */
int keys_open(struct stag_heap *heap);
void keys_close(struct stag_heap *heap);

/* In a forked child: discards the inherited tables, whose registrations are the parent's. */
void keys_forked(struct stag_heap *heap);

/* This process has taken a block (its entry is live): registers it if there are devices. */
void keys_block_taken(struct stag_heap *heap, uint32_t index);

/* This process releases a block; its blockId has changed, its memory is still there. */
void keys_block_released(struct stag_heap *heap, uint32_t index);

/* Publishes the process's counters in shared memory. */
void keys_publish(struct stag_heap *heap);

/* ---- hint.c --------------------------------------------------------------- */

#define HINT_NONE UINT32_MAX

size_t hint_size(uint32_t bits);
void hint_init(struct hint_map *map, void *memory, uint32_t bits);
void hint_fill(struct hint_map *map); /* sets all bits; before other processes see the map */
void hint_set(struct hint_map *map, uint32_t bit);
void hint_clear(struct hint_map *map, uint32_t bit);
bool hint_test(const struct hint_map *map, uint32_t bit);

/* Returns the first set bit from `from` on. */
uint32_t hint_next(const struct hint_map *map, uint32_t from);

/* ---- create.c --------------------------------------------------------------- */

#define HEAP_DIR       "/dev/shm"
#define HEAP_PREFIX    "stag-heap."
#define HEAP_PATH_SIZE (sizeof(HEAP_DIR "/" HEAP_PREFIX) + STAG_HEAP_NAME_MAX)

/* Checks the name of a heap. Returns EINVAL with an error text, or 0. */
int heap_check_name(const char *name);
void heap_path(const char *name, char path[HEAP_PATH_SIZE]);

/* Returns whether a heap of this name could have that path. */
bool heap_is_huge_path(const char *name, const char *path);

/*
 * Sets errno, and an error text unless the function that detected the error has set one. Returns
 * NULL.
 */
struct stag_heap *heap_refuse(const char *name, int rc);

/* Allocates a heap that is not attached, and frees it. */
struct stag_heap *heap_new(const char *name, const struct stag_heap_attr *attr);
void heap_delete(struct stag_heap *heap);

/*
 * Reads and checks the header of a file that may be untrusted; afterwards all offsets are valid.
 * Returns -EPROTO.
 */
int heap_read_header(int fd, struct heap_header *header);

/*
 * If the heap of that attachment still exists, calls fn (may be NULL) with the registry's lock
 * held. Returns whether it does.
 */
bool heap_with(uint64_t serial, void (*fn)(struct stag_heap *heap, void *arg), void *arg);

/* ---- layout.c --------------------------------------------------------------- */

/* Fills in everything that follows from max_blocks, block_size and the page size; -EINVAL. */
int layout_plan(struct heap_header *header, uint64_t page);

/* This process's view of a mapped heap. */
void layout_open(struct stag_heap *heap, struct heap_header *header);

/* Hint map n of the shared ones: open, idle, idle runs, then one a process. */
void layout_map(struct stag_heap *heap, unsigned int n, struct hint_map *map);

/* ---- look.c ----------------------------------------------------------------- */

/* Called before and after an entry and its block are read. Does nothing in an attached process. */
void look_fetch(struct stag_heap *heap, uint32_t index);
void look_drop(struct stag_heap *heap, uint32_t index);

/* Takes a newer snapshot of everything except the blocks. */
void look_again(struct stag_heap *heap);
void look_end(struct stag_heap *heap);

/* ---- process.c ------------------------------------------------------------- */

int proc_join(struct stag_heap *heap); /* -EUSERS */

/* Frees what this process has. The slot stays locked until the object is closed. */
void proc_leave(struct stag_heap *heap);

/* Returns whether no other process is attached, dead or alive. */
bool proc_alone(struct stag_heap *heap);

/* Counts attached processes, and dead ones among them that are not reaped. */
void proc_count(struct stag_heap *heap, uint64_t *all, uint64_t *dead);
bool proc_is_dead(struct stag_heap *heap, unsigned int slot); /* of one that is here */

/* Frees what dead processes had. Returns bytes. */
uint64_t proc_reap(struct stag_heap *heap, unsigned int flags);

/* ---- block.c -------------------------------------------------------------- */

/* Takes a block for this process, with an empty header. Returns its index, or -ENOMEM. */
int64_t block_take(struct stag_heap *heap);

/* Takes a run with data of that size and alignment. */
int64_t block_take_run(struct stag_heap *heap, uint64_t size, uint64_t alignment);

/* Makes an empty block idle: from now on it has no owner. */
void block_make_idle(struct stag_heap *heap, uint32_t index);

/* Frees the run's object, from any process. Returns false if there was none. */
bool block_free_run(struct stag_heap *heap, uint32_t index);

/* Returns a live block of this process to the system. */
uint64_t block_release(struct stag_heap *heap, uint32_t index);

/* Returns idle blocks to the system: all, or those whose deadline has passed. Returns bytes. */
uint64_t block_release_idle(struct stag_heap *heap, uint64_t now);

/* Releases or orphans an entry that names a dead process. Returns bytes released. */
uint64_t block_reap(struct stag_heap *heap, uint32_t index, int slot);

/* Releases an orphan if no shared object is left in it, or in any case. Returns bytes. */
uint64_t block_settle(struct stag_heap *heap, uint32_t index, bool in_any_case);

/* Sets hints that were lost with the process that should have set them. */
void block_restore_hints(struct stag_heap *heap);

/* Counts live shared objects, up to most. */
uint64_t block_count_shared(struct stag_heap *heap, uint32_t index, uint64_t most);

/*
 * Returns the range of a live block to register: its data without its header. blockId is read
 * before and after: returns 0 and the id, or -ENOENT if there is no live block.
 */
int block_extent(struct stag_heap *heap, uint32_t index, void **addr, size_t *length,
		 uint64_t *block_id);

/* ---- slice.c: which slices of our blocks are free --------------------------------- */

/* Makes a new block available for slices; adopted: it has been. */
void slice_adopt(struct stag_heap *heap, uint32_t index);
void slice_adopted(struct stag_heap *heap, uint32_t index);

/*
 * Takes n consecutive slices, the first at a multiple of step. Returns false if no block has them.
 */
bool slice_take(struct stag_heap *heap, uint32_t n, uint32_t step, struct heap_block **block,
		uint32_t *first);
void slice_give(struct stag_heap *heap, struct heap_block *block, uint32_t first, uint32_t n);

/* Removes the reserved empty block from all lists, for release; NULL: none. */
struct heap_block *slice_take_reserve(struct stag_heap *heap, uint64_t empty_before);

/* ---- span.c ------------------------------------------------------------------ */

/* Returns NULL if there are no free slices. */
struct heap_span *span_create(struct stag_heap *heap, uint64_t tag, unsigned int class);
struct heap_span *span_create_medium(struct stag_heap *heap, uint32_t slices, uint32_t step);
void span_retire(struct stag_heap *heap, struct heap_span *span);

/* The owner moves objects freed by others to the free ones. Returns how many. */
uint32_t span_collect(struct stag_heap *heap, struct heap_span *span);

/* Frees object `number` from another thread or process. */
void span_free_remote(struct stag_heap *heap, struct heap_span *span, uint32_t number);
/* Notifies the owner that something was freed in these groups of the block's slices. */
void span_tell_owner(struct stag_heap *heap, uint32_t index, uint64_t groups);

/* Counts objects in use; approximate while others run. */
uint32_t span_count_used(struct stag_heap *heap, struct heap_span *span);

static inline struct heap_block *span_block(const struct stag_heap *heap,
					    const struct heap_span *span)
{
	return heap_block_at(heap, heap_index(heap, span));
}

static inline struct heap_span *block_spans(const struct stag_heap *heap, struct heap_block *block)
{
	return (struct heap_span *)((char *)block + heap->geo.spans_offset);
}

static inline uint32_t span_first(const struct stag_heap *heap, const struct heap_span *span)
{
	return (uint32_t)(span - block_spans(heap, span_block(heap, span)));
}

/* For each slice, where the header of its span is: bytes from the block's beginning; 0: none yet. */
static inline _Atomic uint32_t *block_start(const struct stag_heap *heap, const void *block)
{
	return (_Atomic uint32_t *)((char *)block + heap->geo.start_offset);
}

/*
 * For any pointer into a block that is no run; a pointer without a span leads to the block's
 * header.
 */
static inline struct heap_span *span_of(const struct stag_heap *heap, const void *ptr)
{
	char *block = (char *)((uintptr_t)ptr & heap->geo.block_mask);
	uint64_t slice = ((uintptr_t)ptr & ~heap->geo.block_mask) >> heap->geo.slice_shift;

	return (struct heap_span *)(block + heap_load(&block_start(heap, block)[slice]));
}

/* Returns one of the three bitmaps of the slices from first on. */
static inline _Atomic uint64_t *block_bits(const struct stag_heap *heap, struct heap_block *block,
					   uint64_t offset, uint32_t first)
{
	return (_Atomic uint64_t *)((char *)block + offset) +
	       (uint64_t)first * heap->geo.slice_words;
}

static inline uint32_t span_number(const struct heap_span *span, uint64_t offset)
{
	return (uint32_t)((offset * span->recip) >> 40);
}

/*
 * Takes an object from a span that has one; owner only. Without a branch: whether it was a word's
 * last is unpredictable.
 */
static inline void *span_pop(struct heap_span *span)
{
	uint32_t word = (uint32_t)__builtin_ctzll(span->summary);
	uint64_t bits = heap_load(&span->free[word]);
	uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(bits);

	bits &= bits - 1;
	heap_store(&span->free[word], bits);
	span->summary &= ~((uint64_t)(bits == 0) << word);
	span->num_free--;
	return (void *)(heap_load(&span->base) + (uint64_t)number * heap_load(&span->size));
}

/*
 * The current span may become full and empty without consequences; in other spans the first and the
 * last free object have.
 */
static inline void span_set_at_hand(struct heap_span *span, bool at_hand)
{
	uint32_t count = heap_load(&span->count);

	span->first = at_hand ? 0 : 1;
	span->quiet = (uint16_t)(at_hand ? UINT16_MAX : count < 2 ? 0 : count - 2);
}

/* ---- thread.c ------------------------------------------------------------------ */

/* A request to a thread, handled when it enters. */
enum thread_stop {
	STOP_NOT,
	STOP_TIDY, /* return what it does not use; no other thread waits for that */
	STOP_WAIT, /* stay out, wait for stop_lock */
};

/* State of one thread: for each class a current span, and others with room. */
struct heap_thread {
	_Atomic uint32_t busy; /* the thread is inside */
	_Atomic uint32_t stop; /* enum thread_stop */
	uint64_t tag;
	struct stag_heap *heap;
	struct heap_span *current[HEAP_MAX_CLASSES];
	struct heap_span
		*room[HEAP_MAX_CLASSES];   /* the longest one listed first; its prev is the last */
	uint8_t poor[HEAP_MAX_CLASSES];	   /* how often in a row a span with little room was used */
	struct heap_span *kept[HEAP_KEPT]; /* medium ones, free, the process's; by slices */
	struct heap_span *inbox;	   /* heap->local.lock: our spans in which others freed */
	struct heap_thread *next;
	bool taken; /* heap->local.lock: in use by a live thread */
	struct lock stop_lock;
};

#define THREAD_NOWHERE UINT64_MAX

struct thread_here {
	uint64_t serial; /* THREAD_NOWHERE: of no heap; 0 is one that was inherited */
	struct heap_thread *thread;
};

extern __thread struct thread_here thread_here;

void thread_init(void); /* before the first heap has threads of its own */
struct heap_thread *thread_find(struct stag_heap *heap); /* returns NULL and errno */
/* handles requests in stop, until the thread may enter */
void thread_wait(struct heap_thread *thread);

/*
 * Replaces an empty current[class] by another span known to have room. Returns false if there is
 * none, or none with much room lately (thread_refill() may find some).
 */
bool thread_use_room(struct heap_thread *thread, unsigned int class);

/* Makes sure that current[class] has an object. */
bool thread_refill(struct heap_thread *thread, unsigned int class);

/* The span has got its first free object, or is completely free. */
void thread_free_edge(struct heap_thread *thread, struct heap_span *span);

/* Moves objects freed by others to their spans; `me` may be NULL. */
void thread_collect(struct stag_heap *heap, struct heap_thread *me);

/* Acquires heap->local.lock without delaying other threads. */
void thread_lock_last(struct stag_heap *heap);

/* Returns the empty spans of all threads, current and cached ones included. */
void thread_trim(struct stag_heap *heap);

/*
 * Like thread_trim(), but active threads are requested to do it themselves when they enter. Returns
 * true if one has done so since the last call, for the whole process.
 */
bool thread_ask_to_trim(struct stag_heap *heap);
void thread_forget_all(struct stag_heap *heap); /* at detach */

/*
 * No fence: the thread that sets stop makes every processor execute one (membarrier) before it
 * reads busy. Returns false if the thread must not enter now.
 */
static inline bool thread_try_enter(struct heap_thread *thread)
{
	heap_store(&thread->busy, 1);
	atomic_signal_fence(memory_order_seq_cst);
	return likely(!atomic_load_explicit(&thread->stop, memory_order_acquire));
}

static inline void thread_leave(struct heap_thread *thread)
{
	atomic_store_explicit(&thread->busy, 0, memory_order_release);
}

static inline void thread_enter(struct heap_thread *thread)
{
	while (!thread_try_enter(thread))
		thread_wait(thread);
}

/* Handles a pending request without entering. */
static inline void thread_pass(struct heap_thread *thread)
{
	thread_enter(thread);
	thread_leave(thread);
}

/* ---- class.c ------------------------------------------------------------------- */

void class_init(struct stag_heap *heap);

/* Returns the class of a size from 1025 to small_max. */
static inline unsigned int class_of_big(uint64_t size)
{
	unsigned int log = 63 - (unsigned int)__builtin_clzll(size - 1);

	return 8 + (log - 7) * 8 + (unsigned int)(((size - 1) >> (log - 3)) & 7);
}

static inline unsigned int class_of(const struct stag_heap *heap, uint64_t size)
{
	if (likely(size <= 1024))
		return heap->geo.class_of[(size + 15) >> 4];
	return class_of_big(size);
}

/* ---- maintain.c ---------------------------------------------------------------- */

int maintain_start(struct stag_heap *heap);
void maintain_stop(struct stag_heap *heap);
uint64_t maintain_trim(struct stag_heap *heap);
uint64_t maintain_now(void); /* coarse */

/* ---- error.c ---------------------------------------------------------------- */

extern __thread char heap_error_text[256];

/* Sets the text that stag_heap_error() returns in this thread. Returns error. */
#define heap_fail(error, ...)                                                                      \
	error_text_set(heap_error_text, sizeof(heap_error_text), error, __VA_ARGS__)

/*
 * Returns 0; or EINVAL, also in errno, if this process has not attached the heap, but inherited it
 * or has a snapshot.
 */
int heap_check_attached(const struct stag_heap *heap);

/* Prints a caller's error to stderr, and aborts. */
void heap_abort(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
