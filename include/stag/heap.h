/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - the registered heap: memory that several processes allocate from, with the
 * keys for RDMA at hand.
 *
 * A heap has a name. Its memory is shared, and mapped at the same address by every
 * process that attaches it, so that a pointer means the same everywhere. It consists of
 * blocks; a block is the unit that comes from the system, goes back to it, and is
 * registered with a device. Each process registers a block when it first needs a key of it,
 * keeps the registration as long as the block lives, and drops a stale one when it
 * comes across it: no process ever asks or waits for another.
 *
 * Threads: every call may be made by any thread of any process that attached the heap, but
 * for the three that open and close it and for adding and removing a device, which belong
 * to one thread at a time. After fork() the child has to attach by itself: every call but detach refuses
 * what it inherited, with EINVAL, and stag_heap_free() aborts.
 *
 * Death. A process may die at any instruction. The others never wait for it. What it had
 * allocated goes with it, but for what it has shared (stag_heap_share()). If it was the last one, the
 * heap keeps its name; who creates or attaches it next reaps and uses it, or stag_heap_unlink() removes it.
 *
 * What a key of a released block can reach. A block that goes back to the system gets another
 * blockId. On the software adapter regions are guarded by it (stagdv_reg_guarded_mr()):
 * an access under an older registration, in whatever process, is refused. A real adapter goes on
 * pinning the old pages: an old key reaches these, never the memory that took their place.
 *
 * Calls return 0 or an errno value, or NULL and errno, as verbs does.
 */
#ifndef STAG_HEAP_H
#define STAG_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stag_heap;

#define STAG_HEAP_NAME_MAX    64 /* with its final zero; letters, digits, ".", "_", "-" */
#define STAG_HEAP_MAX_PROCS   64
#define STAG_HEAP_MAX_DEVICES 4

/* ---- open and close ---------------------------------------------------- */

enum stag_heap_flags {
	STAG_HEAP_HUGE = 1 << 0,      /* huge pages, or ENOMEM with a word on how to get them */
	STAG_HEAP_TRY_HUGE = 1 << 1,  /* huge pages if there are any */
	STAG_HEAP_EXCLUSIVE = 1 << 2, /* create only: EEXIST if there is one of that name */
};

/* Zero in any field: the default. */
struct stag_heap_attr {
	uint64_t comp_mask;  /* zero */
	unsigned int flags;  /* enum stag_heap_flags */
	uint32_t max_blocks; /* MAX_BLOCKS; 16384 */
	uint64_t block_size; /* BLOCK_SIZE: a multiple of the page size, 256 KiB to 1 GiB; 4 MiB */
	uint64_t address;    /* where it is mapped, in every process; chosen by the heap */
	unsigned int mode;   /* of the shared object: who may attach; 0600 */
	/* This process only: */
	int retain_ms; /* how long an empty block is kept before it goes back by itself; 1000. -1: until trimmed */
};

/*
 * Makes the heap of that name, or attaches the one that exists (attr then speaks for this process
 * only). EINVAL; EEXIST; EADDRINUSE: its address is taken in this process; EACCES; ENOMEM;
 * EPROTO: something else has that name, or another version of the heap; EUSERS: too many processes.
 */
struct stag_heap *stag_heap_create(const char *name, const struct stag_heap_attr *attr);

/* Attaches an existing heap: ENOENT if there is none. attr may be NULL. */
struct stag_heap *stag_heap_attach(const char *name, const struct stag_heap_attr *attr);

/*
 * Drops this process's registrations, gives its memory back but for what it has shared, and
 * unmaps the heap. The last process to leave removes the heap, unless something shared is left or
 * keep is true. NULL is allowed.
 */
int stag_heap_detach(struct stag_heap *heap, bool keep);

/* Removes the name. Processes that are attached go on; EACCES, ENOENT. */
int stag_heap_unlink(const char *name);

/* ---- memory ------------------------------------------------------------ */

/*
 * What is lost: by rounding up at most 15 bytes, or an eighth of a size from 128 bytes on, or from half
 * a block on (which gets a block of its own) less than two pages; at the end of a span of
 * objects a sixteenth; for each block its header, a 28th of 4 MiB (of 256 KiB, a 16th).
 * For each thread and size in use one span, of 64 to 256 KiB with blocks of 4 MiB, is kept
 * partly empty; where as much is allocated as is freed, another eighth. Of more than 128 KiB, and up to half
 * a block, a thread keeps up to four allocations that it has freed. Trimming gives all of that back that is
 * empty.
 */

/* NULL and errno ENOMEM (the heap is full, or the system is). Zero bytes: a pointer of its own. */
void *stag_heap_alloc(struct stag_heap *heap, size_t size);
void *stag_heap_calloc(struct stag_heap *heap, size_t n, size_t size);
void *stag_heap_aligned(struct stag_heap *heap, size_t alignment,
			size_t size); /* EINVAL: no power of 2, or over the block size */
void *stag_heap_realloc(struct stag_heap *heap, void *ptr, size_t size);
size_t stag_heap_usable_size(struct stag_heap *heap, const void *ptr);

/* By any thread of any process. NULL is allowed. What is no allocation of this heap, or is freed twice where
 * that can be seen, is told to stderr and aborts. */
void stag_heap_free(struct stag_heap *heap, void *ptr);

/*
 * Declares that ptr is known to others: it outlives the process that allocated it, and is freed by
 * whoever has it last, or by stag_heap_reap(). ENOENT: no allocation.
 */
int stag_heap_share(struct stag_heap *heap, void *ptr);

/* Takes that back: it dies with the process that allocated it again. */
int stag_heap_unshare(struct stag_heap *heap, void *ptr);

/*
 * Gives empty blocks back to the system now: this process's, and those that are nobody's. Returns the
 * bytes.
 */
uint64_t stag_heap_trim(struct stag_heap *heap);

enum stag_heap_reap {
	STAG_HEAP_REAP_SHARED = 1 << 0, /* also what the dead had shared */
};

/*
 * Gives back what processes that have died had allocated. Happens by itself, without flags, when a
 * process attaches or detaches, when the heap runs full, and every second or so while it is
 * attached. Returns the bytes given back.
 */
uint64_t stag_heap_reap(struct stag_heap *heap, unsigned int flags);

/* ---- keys -------------------------------------------------------------- */

struct stag_heap_device_attr {
	uint64_t comp_mask; /* zero */
	unsigned int
		access; /* of regions: enum ibv_access_flags; local write, remote read and write */
	struct ibv_qp *
		bind_qp; /* may be NULL: a connected queue pair, with a send CQ that nobody else polls, for
				   binding memory windows; its remote keys are the windows' then */
};

/* From now on this process can have keys in pd. device becomes its number, from 0. ENOSPC. */
int stag_heap_add_device(struct stag_heap *heap, struct ibv_pd *pd,
			 const struct stag_heap_device_attr *attr, unsigned int *device);

/* Drops every registration there. */
int stag_heap_remove_device(struct stag_heap *heap, unsigned int device);

struct stag_heap_keys {
	uint32_t lkey, rkey;
};

/*
 * The keys of the block that holds ptr, which may be memory of any process. Registers the block if this
 * process has not yet, and drops a stale registration first. Steady state: a few nanoseconds.
 * ENOENT: not in a live block; else what ibv_reg_mr() said.
 */
int stag_heap_keys(struct stag_heap *heap, unsigned int device, const void *ptr,
		   struct stag_heap_keys *keys);

/* ---- seeing it --------------------------------------------------------- */

struct stag_heap_stats {
	uint64_t comp_mask;
	/* the heap */
	uint64_t address, size; /* what it takes of the address space, in every process */
	uint64_t block_size, max_blocks;
	uint64_t blocks, block_bytes; /* that are not with the system */
	uint64_t allocations,
		allocated_bytes; /* usable sizes; sums over spans, so not exact while others run */
	uint64_t shared;	 /* allocations of these that were shared */
	uint64_t processes, dead_processes;
	uint64_t reaped; /* processes that have left or died, so far */
	/* this process */
	uint64_t registrations;	      /* live */
	uint64_t registrations_made;  /* calls of ibv_reg_mr() */
	uint64_t registrations_saved; /* look-ups that found one */
	uint64_t stale_found;
	uint64_t blocks_taken, blocks_released;
};

/* Fills at most size bytes. */
int stag_heap_query(struct stag_heap *heap, struct stag_heap_stats *stats, size_t size);

/* One block of the shared descriptor table, for tools: false: no more. Start with *index 0. */
struct stag_heap_block {
	uint64_t block_id, address, size;
	uint32_t index;
	int owner;     /* number of a process; -1: nobody */
	int owner_pid; /* 0: nobody */
	uint64_t allocations, allocated_bytes, shared;
};

bool stag_heap_next_block(struct stag_heap *heap, uint32_t *index, struct stag_heap_block *block);

/* One process that has it attached, or has died and was not reaped; false: no more. Start with *number 0. */
struct stag_heap_process {
	uint32_t number; /* below STAG_HEAP_MAX_PROCS; used again when it has gone */
	int pid;
	uint64_t start_time; /* as in /proc/PID/stat: tells it from another one with that pid */
	bool dead;
	/* As in struct stag_heap_stats; registrations_saved as of the last second. */
	uint64_t registrations, registrations_made, registrations_saved, stale_found;
	uint64_t blocks_taken, blocks_released;
};

bool stag_heap_next_process(struct stag_heap *heap, uint32_t *number,
			    struct stag_heap_process *process);

/*
 * Takes a picture of an existing heap, for tools that look and do not disturb: read-only, without being one
 * of its processes, without leaving a trace. For the calls of this section, and detach. Errors as of
 * stag_heap_attach(); the process must not have it attached.
 */
struct stag_heap *stag_heap_look(const char *name);

/* The names of the heaps on this machine, one after the other, until fn returns something. Returns that, or
 * 0. */
typedef int (*stag_heap_list_fn)(const char *name, void *arg);
int stag_heap_list(stag_heap_list_fn fn, void *arg);

/* Looks at everything, and prints what is wrong to out (may be NULL). The number of faults. Others may go on. */
int stag_heap_check(struct stag_heap *heap, FILE *out);

/* The calling thread's last complaint, naming the object and the cause. */
const char *stag_heap_error(void);

#ifdef __cplusplus
}
#endif

#endif
