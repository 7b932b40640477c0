/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - internal header of the registered heap.
 *
 * Terms. The area is an array of *slots*, a power of two of bytes each, so that a shift turns a
 * pointer into a slot's index. A *block* is the memory in a slot: the unit of registration, owned
 * by one process at a time. A *run* is a block of one or more slots that holds one large
 * allocation. A block that is no run is divided into *slices* of a fixed size. A *span* is a number
 * of consecutive slices: a small one holds objects of one size and is owned by one thread; a medium
 * one holds a single object and is owned by the process.
 *
 * Layout of the shared object:
 *   header page | process table | descriptor table | pending words | hint maps | area
 * Every process maps it at the same address, so it can contain pointers.
 *
 * Shared state, its writers, and the effect of a process's death:
 *   desc.state     Changed by compare-and-swap, by any process if the phase allows it (block.c).
 *                  A state that names a process is changed by that process only (but any may free
 *                  a live run); if it is dead, the reaper continues from its phase.
 *   span `free`    Written by the owning thread. In a medium span: by the thread that freed the
 *                  object and caches the span. When the process dies, its blocks are released;
 *                  those with shared objects when the last of these is freed.
 *   span `freed`   Others set bits, by fetch_or; the owner moves them to `free`.
 *   span `shared`  Any process sets and clears bits; the owner clears an object's bit before it
 *                  sets the one in `free`.
 *   pending, hint maps   Written by any process. A lost hint costs a scan, no memory.
 * So processes share no lock. An object is live and shared if shared & ~freed & ~free.
 *
 * Lock order in a process: registry_lock (create.c), stag_heap.reap_lock, heap_thread.stop_lock,
 * heap_local.lock, heap_keys.lock (keys.c).
 */
#ifndef HEAP_HEAP_H
#define HEAP_HEAP_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

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
#define HEAP_SPAN_WORDS	 64u /* of 64 objects each: one summary word has a bit for each */
#define HEAP_FIT_LISTS	 64u
#define HEAP_KEPT	 4u /* freed medium spans that a thread caches */
#define HEAP_MAX_BLOCKS	 (1u << 20)

/* ThreadSanitizer aborts a program that maps memory above its low address range. */
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

/*
 * Open until the last process detaches. A process that attaches while it is closing opens it again
 * (create.c).
 */
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
	_Atomic uint64_t deaths; /* processes that were reaped or have detached */
};

enum proc_phase { PROC_FREE, PROC_LIVE };

/* An attached process holds an OFD lock on byte [slot] of the object for as long as it lives. */
struct heap_proc {
	_Atomic uint64_t state; /* generation << 8 | enum proc_phase */
	_Atomic uint64_t start_time;
	_Atomic uint32_t pid;
	/* counters of the process, for tools only */
	_Atomic uint64_t blocks_taken, blocks_released;
	_Atomic uint64_t registrations, registrations_made, registrations_saved, stale_found;
	/* 0 or a block's index + 1: see has_hazard(), block.c */
	_Atomic uint64_t hazards[HEAP_HAZARDS];
} __attribute__((aligned(64)));

/*
 *   OPEN -> TAKING -> LIVE -> IDLE -> LIVE ...       IDLE, LIVE, ORPHAN, TAKING -> RELEASING -> OPEN
 *                     LIVE -> ORPHAN                 further slots of a run: TAKING -> TAIL -> OPEN
 */
enum block_phase {
	BLOCK_OPEN,   /* no memory here; all of the entry but blockId is zero */
	BLOCK_TAKING, /* a process is allocating its memory */
	BLOCK_LIVE,   /* a process allocates in it */
	/* has memory, but no objects and no owner: any process may take it; its blockId stays */
	BLOCK_IDLE,
	BLOCK_ORPHAN,	 /* the owner is dead or detached; shared objects are left */
	BLOCK_RELEASING, /* a process is returning its memory to the system */
	BLOCK_TAIL,	 /* belongs to the run of `head` */
};

/* An entry of the shared descriptor table (figure 2). */
struct heap_desc {
	_Atomic uint64_t block_id;   /* 0 until first used, then from 1; guards compare it */
	_Atomic uint64_t block_ptr;  /* 0: open */
	_Atomic uint64_t block_size; /* 0: open */
	_Atomic uint64_t state;	     /* sequence << 32 | run << 16 | (slot + 1) << 8 | phase */
	_Atomic uint64_t deadline;   /* idle block: CLOCK_MONOTONIC time of its release, ns */
	_Atomic uint32_t head;	     /* tail: index of the run's first slot; kept when open again */
	_Atomic uint32_t tails;	     /* run: number of slots after the first */
	/* part of a run when last used: late writes may have dirtied its memory */
	_Atomic uint32_t was_run;
} __attribute__((aligned(64)));

#define DESC_RUN (1ull << 16)

static inline enum block_phase desc_phase(uint64_t state)
{
	return (enum block_phase)(state & 0xff);
}

/* Returns the slot of the process that a state names, or -1 if it names none. */
static inline int desc_slot(uint64_t state)
{
	return (int)((state >> 8) & 0xff) - 1;
}

static inline bool desc_is_run(uint64_t state)
{
	return (state & DESC_RUN) != 0;
}

/* A span. The block's header has one for each slice; the one of a span's first slice is used. */
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
	uint16_t first, quiet; /* while num_free - first < quiet, a free only changes bits */
	struct heap_span *next, *prev; /* in the owning thread's list of spans with room */
	struct heap_span *inbox_next;  /* protected by heap_local.lock */
	bool listed, in_inbox;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct heap_span) == 128, "two cache lines");

/* At the beginning of each block (figure 3). Spans and bitmaps follow, see span.c. */
struct heap_block {
	uint64_t magic;		  /* first, where span_of() expects a span's owner */
	uint32_t index;		  /* in the descriptor and registration tables */
	_Atomic uint32_t sharing; /* something in it is or was shared */
	/* offset of the first object; the header before it is never registered */
	uint64_t data_offset;
	_Atomic uint64_t run_shared; /* run: 1 if its object is shared */
	/* Written by the owning process, with its lock held: */
	struct list link;
	uint32_t free_slices;
	uint32_t longest;  /* number of consecutive free slices, at most */
	uint32_t fit_list; /* index in heap_local.fits; HEAP_FIT_LISTS: in no list */
	uint64_t empty_since;
};

/* ---- this process ------------------------------------------------------- */

/* A bitmap in shared memory with levels of summary bits (hint.c). Its bits may be wrong. */
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

/*
 * Sizes and shifts of the heap, the same in all its processes. The allocation path reads most of
 * them.
 */
struct heap_geometry {
	uint64_t block_mask; /* pointer & block_mask: the beginning of its slot */
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

/* Maps in shared memory that tell which blocks to examine. */
struct heap_hints {
	struct hint_map open, idle, idle_runs;
	/* a word for each block: bit n is set if an object was freed in group n of its slices */
	_Atomic uint64_t *pending;
	struct hint_map pending_blocks; /* blocks of this process with a bit set in pending */
};

/* The files that are mapped, and the directory that has the heap's name. */
struct heap_files {
	int home;
	int fd, area_fd;
	uint64_t area_offset; /* of the area in area_fd */
};

/* Blocks and threads of this process. */
struct heap_local {
	struct lock lock; /* protects the rest, and the process's blocks and spans */
	struct list fits[HEAP_FIT_LISTS]; /* blocks with free slices, by the longest run of them */
	uint64_t fits_mask;		  /* the lists that are not empty */
	struct heap_block *reserve;	  /* one empty block, kept for the next allocation */
	struct heap_thread *_Atomic threads; /* also of ended threads; freed at detach */
	_Atomic bool
		tidied; /* a thread of this process has tidied since the maintainer requested it */
	unsigned int num_threads;
	uint64_t deaths_seen;
};

/* The maintainer thread (maintain.c). */
struct heap_maintenance {
	int64_t retain_ns; /* how long an empty block is kept; -1: forever */
	pthread_t thread;
	struct lock lock; /* protects cond and stop */
	pthread_cond_t cond;
	bool stop;
	bool running;
};

/* A heap as one process has attached it. */
struct stag_heap {
	uint64_t serial; /* unique number of this attachment; 0: inherited by fork, or a snapshot */
	char *area;
	uint64_t area_size; /* bytes; 0 if serial is 0, so that no pointer belongs to the heap */
	struct heap_desc *descs;
	struct heap_geometry geo;

	struct heap_header *header; /* shared; see plan */
	struct heap_proc *procs, *self;
	unsigned int slot; /* index of this process in procs */
	uint64_t tag;	   /* generation << 32 | slot << 16; + n: thread n */
	struct heap_hints hints;
	struct heap_files files;
	char name[STAG_HEAP_NAME_MAX];

	struct heap_local local;
	struct lock reap_lock;
	struct heap_maintenance maintain;

	/*
	 * The header as it was checked when the heap was attached. Other processes may change the
	 * one in shared memory, of which only gate and deaths are used.
	 */
	struct heap_header plan;
	uid_t owner;
	struct list registry; /* create.c */
	struct heap_keys *keys;
	bool looking; /* opened by stag_heap_look(): a snapshot, not attached (look.c) */
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
 * Returns the index of the block that a slot belongs to: the slot itself, or the first slot of its
 * run, which is before it. The slot must contain a live allocation.
 */
static inline uint32_t heap_head(const struct stag_heap *heap, uint32_t index)
{
	const struct heap_desc *desc = &heap->descs[index];

	if (desc_phase(atomic_load_explicit(&desc->state, memory_order_acquire)) == BLOCK_TAIL) {
		uint32_t head = heap_load(&desc->head);

		return head < index ? head : index;
	}
	return index;
}

/* ---- keys.c --------------------------------------------------------------- */

/*
 * keys_open() is called at attach, before a block is taken; keys_close() at detach, before one is
 * released.
 */
int keys_open(struct stag_heap *heap);
void keys_close(struct stag_heap *heap);

/* Discards the inherited tables in a forked child: their registrations belong to the parent. */
void keys_forked(struct stag_heap *heap);

/* Registers a block that this process has taken (its entry is live) with every device. */
void keys_block_taken(struct stag_heap *heap, uint32_t index);

/*
 * Drops the registrations of a block that this process is releasing. Its blockId has changed, its
 * memory is not released yet.
 */
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

/* Returns the first set bit from `from` on, or HINT_NONE. */
uint32_t hint_next(const struct hint_map *map, uint32_t from);

/* ---- name.c ----------------------------------------------------------------- */

#define HEAP_PREFIX    "heap." /* of an object's name in its owner's directory */
#define HEAP_HUGE      "stag-heap."
#define HEAP_FILE_SIZE (sizeof(HEAP_HUGE) + STAG_HEAP_NAME_MAX)

/* Checks a heap's name, without its owner. Returns EINVAL with an error text, or 0. */
int heap_check_name(const char *name);

/* Splits NAME or OWNER/NAME, and checks it. Returns EINVAL with an error text, or 0. */
int heap_parse_name(const char *text, uid_t *owner, const char **name);
void heap_file(const char *name, char file[HEAP_FILE_SIZE]);

/* Returns whether path is one that the hugetlbfs file of a heap of this name can have. */
bool heap_is_huge_path(const char *name, const char *path);

/*
 * Opens the heap's object in its owner's directory. Sets files.home and files.fd. Returns 0 or
 * -errno: -ENOENT if there is none, -EPROTO if it is no file.
 */
int heap_open_object(struct stag_heap *heap, int flags);

/*
 * Checks that the object belongs to the heap's owner, and that no users may write it whom mode does
 * not admit. Returns 0; -EACCES with an error text; or -EPROTO if it is no file.
 */
int heap_check_object(const struct stag_heap *heap, int fd, unsigned int mode);

/* ---- create.c --------------------------------------------------------------- */

/* Sets errno, and an error text unless the function that failed has set one. Returns NULL. */
struct stag_heap *heap_refuse(const char *name, int rc);

/*
 * Allocate and free the handle of a heap, without attaching or detaching. The name has been parsed.
 */
struct stag_heap *heap_new(const char *name, uid_t owner, const struct stag_heap_attr *attr);
void heap_delete(struct stag_heap *heap);

/*
 * Reads the header of a file that may be untrusted, and checks it. Returns 0 if all its offsets are
 * valid, else -EPROTO.
 */
int heap_read_header(int fd, struct heap_header *header);

/*
 * Returns whether the attachment with this serial number still exists. If so, calls fn first (if
 * not NULL), with registry_lock held.
 */
bool heap_with(uint64_t serial, void (*fn)(struct stag_heap *heap, void *arg), void *arg);

/* ---- layout.c --------------------------------------------------------------- */

/*
 * Computes sizes and offsets from max_blocks, block_size and the page size. Returns 0 or -EINVAL.
 */
int layout_plan(struct heap_header *header, uint64_t page);

/* Initializes pointers and geometry of a heap that is mapped at plan->address. */
void layout_open(struct stag_heap *heap, const struct heap_header *plan);

/* Opens shared hint map n: 0 open, 1 idle, 2 idle runs, 3 + slot: pending blocks of a process. */
void layout_map(struct stag_heap *heap, unsigned int n, struct hint_map *map);

/* ---- look.c ----------------------------------------------------------------- */

/*
 * Read an entry and its block's header into a snapshot, and discard the header again. Both do
 * nothing if the heap is attached.
 */
void look_fetch(struct stag_heap *heap, uint32_t index);
void look_drop(struct stag_heap *heap, uint32_t index);

/* Reads the tables into the snapshot again. */
void look_again(struct stag_heap *heap);
void look_end(struct stag_heap *heap);

/* ---- process.c ------------------------------------------------------------- */

/* Occupies a slot of the process table. Returns 0, or -EUSERS if all are in use. */
int proc_join(struct stag_heap *heap);

/* Frees the blocks of this process, and its slot, which stays locked until the object is closed. */
void proc_leave(struct stag_heap *heap);

/* Returns whether all other slots are free: no process is attached, or dead and not reaped. */
bool proc_alone(struct stag_heap *heap);

/* Counts attached processes, and dead ones among them that are not reaped. */
void proc_count(struct stag_heap *heap, uint64_t *all, uint64_t *dead);
/* Returns whether the process in an occupied slot is dead. */
bool proc_is_dead(struct stag_heap *heap, unsigned int slot);

/* Frees the blocks of dead processes. Returns the bytes released to the system. */
uint64_t proc_reap(struct stag_heap *heap, unsigned int flags);

/* ---- block.c -------------------------------------------------------------- */

/* Takes a block for this process, with an empty header. Returns its index, or -ENOMEM. */
int64_t block_take(struct stag_heap *heap);

/* Takes a run for an object of that size and alignment. Returns its first index, or -ENOMEM. */
int64_t block_take_run(struct stag_heap *heap, uint64_t size, uint64_t alignment);

/* Makes an empty block idle: from now on it has no owner. */
void block_make_idle(struct stag_heap *heap, uint32_t index);

/* Frees the run's object, from any process. Returns false if there was none. */
bool block_free_run(struct stag_heap *heap, uint32_t index);

/* Returns a live block of this process to the system. Returns its size, or 0 if it has changed. */
uint64_t block_release(struct stag_heap *heap, uint32_t index);

/*
 * Returns idle blocks with a deadline up to `now` (UINT64_MAX: all) to the system. Returns bytes.
 */
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

/*
 * slice_adopt() makes the slices of a new block available; slice_adopted() is called after the
 * first attempt to take some, and makes the block reserve or idle if it is still empty.
 */
void slice_adopt(struct stag_heap *heap, uint32_t index);
void slice_adopted(struct stag_heap *heap, uint32_t index);

/*
 * Takes n consecutive slices, the first at a multiple of step. Returns false if no block has them.
 */
bool slice_take(struct stag_heap *heap, uint32_t n, uint32_t step, struct heap_block **block,
		uint32_t *first);
void slice_give(struct stag_heap *heap, struct heap_block *block, uint32_t first, uint32_t n);

/*
 * Removes the reserve, if it was empty before that time, from all lists, and returns it; else NULL.
 */
struct heap_block *slice_take_reserve(struct stag_heap *heap, uint64_t empty_before);

/* ---- span.c ------------------------------------------------------------------ */

/* Returns NULL if there are no free slices. */
struct heap_span *span_create(struct stag_heap *heap, uint64_t tag, unsigned int class);
struct heap_span *span_create_medium(struct stag_heap *heap, uint32_t slices, uint32_t step);
void span_retire(struct stag_heap *heap, struct heap_span *span);

/* Moves objects that others have freed to `free`. Called by the owner. Returns how many. */
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

/* Returns an array with, for each slice, the offset of its span in the block; 0: no span yet. */
static inline _Atomic uint32_t *block_start(const struct stag_heap *heap, const void *block)
{
	return (_Atomic uint32_t *)((char *)block + heap->geo.start_offset);
}

/*
 * Returns the span of a pointer into a block that is no run. If the slice never had a span, that is
 * the block's header, whose magic is in the place of the owner.
 */
static inline struct heap_span *span_of(const struct stag_heap *heap, const void *ptr)
{
	char *block = (char *)((uintptr_t)ptr & heap->geo.block_mask);
	uint64_t slice = ((uintptr_t)ptr & ~heap->geo.block_mask) >> heap->geo.slice_shift;

	return (struct heap_span *)(block + heap_load(&block_start(heap, block)[slice]));
}

/* Returns the part of a bitmap (free, freed or shared, by offset) that begins at slice `first`. */
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
 * Takes a free object from a span that has one. Called by the owner. Has no branch for the last
 * object of a word, which would be unpredictable.
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
 * Sets when freeing needs more than bits. Never in a thread's current span (at hand); in others
 * when the first object of a full span is freed, or the last one in use (thread_free_edge()).
 */
static inline void span_set_at_hand(struct heap_span *span, bool at_hand)
{
	uint32_t count = heap_load(&span->count);

	span->first = at_hand ? 0 : 1;
	span->quiet = (uint16_t)(at_hand ? UINT16_MAX : count < 2 ? 0 : count - 2);
}

/* ---- thread.c ------------------------------------------------------------------ */

/* A request to a thread, handled when it next enters the heap (thread_enter()). */
enum thread_stop {
	STOP_NOT,
	STOP_TIDY, /* retire unused spans; no other thread waits for that */
	STOP_WAIT, /* stay out until the holder of stop_lock is done */
};

/* State of one thread: for each class a current span, and others with room. */
struct heap_thread {
	_Atomic uint32_t busy; /* the thread is inside: between thread_enter() and thread_leave() */
	_Atomic uint32_t stop; /* enum thread_stop */
	uint64_t tag;
	struct stag_heap *heap;
	struct heap_span *current[HEAP_MAX_CLASSES];
	/* spans with room, oldest first; the prev of the first is the last */
	struct heap_span *room[HEAP_MAX_CLASSES];
	uint8_t poor[HEAP_MAX_CLASSES];	   /* how often in a row a span with little room was used */
	struct heap_span *kept[HEAP_KEPT]; /* cached free medium spans, by slices % HEAP_KEPT */
	struct heap_span *inbox; /* its spans with freed objects; under heap->local.lock */
	struct heap_thread *next;
	bool taken; /* in use by a running thread; under heap->local.lock */
	struct lock stop_lock;
};

#define THREAD_NOWHERE UINT64_MAX

/* The heap that the calling thread used last, and its state there. */
struct thread_here {
	uint64_t serial; /* THREAD_NOWHERE: none (0 is the serial of an inherited heap) */
	struct heap_thread *thread;
};

extern __thread struct thread_here thread_here;

/*
 * Initializes thread.c, once in a process. Called before the first maintainer thread starts, since
 * membarrier registration is slow in a process with several threads.
 */
void thread_init(void);

/* Returns the calling thread's state in the heap, created if needed; or NULL with errno. */
struct heap_thread *thread_find(struct stag_heap *heap);

/* Handles a request in `stop`. Called by the thread itself when thread_try_enter() fails. */
void thread_wait(struct heap_thread *thread);

/*
 * Replaces an empty current[class] by another span known to have room. Returns false if there is
 * none, or none with much room lately (thread_refill() may find some).
 */
bool thread_use_room(struct heap_thread *thread, unsigned int class);

/* Makes sure that current[class] has an object. */
bool thread_refill(struct heap_thread *thread, unsigned int class);

/* Lists or retires a span that got its first free object, or in which all are free now. */
void thread_free_edge(struct heap_thread *thread, struct heap_span *span);

/*
 * Collects freed objects of all pending blocks of this process: in medium spans and in those of
 * `me` (may be NULL) and of ended threads; spans of other threads go to their inbox.
 */
void thread_collect(struct stag_heap *heap, struct heap_thread *me);

/* Acquires heap->local.lock without delaying other threads. */
void thread_lock_last(struct stag_heap *heap);

/* Returns the empty spans of all threads, current and cached ones included. */
void thread_trim(struct stag_heap *heap);

/*
 * Like thread_trim(), but requests each thread to do it when it next enters; trims only those that
 * have not entered since the last request. Returns true if a thread has handled a request since the
 * last call: it has then done the process-wide part, too.
 */
bool thread_ask_to_trim(struct stag_heap *heap);
void thread_forget_all(struct stag_heap *heap); /* frees the state of all threads, at detach */

/*
 * Returns false if a request is pending (thread_wait()). Needs no fence: a thread that sets stop to
 * STOP_WAIT makes every processor execute one (membarrier) before it reads busy.
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
uint64_t maintain_trim(struct stag_heap *heap); /* returns the bytes released */
uint64_t maintain_now(void);			/* CLOCK_MONOTONIC_COARSE, ns */

/* ---- error.c ---------------------------------------------------------------- */

extern __thread char heap_error_text[256];

/* Sets the text that stag_heap_error() returns in this thread. Returns error. */
#define heap_fail(error, ...)                                                                      \
	error_text_set(heap_error_text, sizeof(heap_error_text), error, __VA_ARGS__)

/*
 * Returns 0 if the heap is attached; else EINVAL, also in errno: it was inherited by fork, or is a
 * snapshot.
 */
int heap_check_attached(const struct stag_heap *heap);

/* Prints a misuse by the program to stderr, and aborts. */
void heap_abort(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
