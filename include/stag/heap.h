/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - the registered heap: shared memory that several processes allocate from, with RDMA keys
 * at hand.
 *
 * A heap has a name. Its memory is shared, and mapped at the same address by every process that
 * attaches it, so that a pointer means the same everywhere. It consists of blocks; a block is the
 * unit that is obtained from the system, returned to it, and registered with a device. Each process
 * registers a block when it first needs a key for it, keeps the registration as long as the block
 * lives, and drops a stale registration when it encounters it: no process ever requests anything of
 * another or waits for it.
 *
 * Threads: every call may be made by any thread of any process that attached the heap, except the
 * three that open and close it and those that add and remove a device, which belong to one thread
 * at a time. After fork() the child has to attach again: every call except detach refuses the
 * inherited handle with EINVAL, and stag_heap_free() aborts.
 *
 * Death of a process: a process may die at any instruction. The others never wait for it. Its
 * allocations are freed, except those that it has shared (stag_heap_share()). If it was the last
 * process, the heap keeps its name; the next process that creates or attaches it reaps and uses it,
 * or stag_heap_unlink() removes it.
 *
 * Keys of a released block: a block that is returned to the system gets another blockId. On the
 * software adapter regions are guarded by it (stagdv_reg_guarded_mr()): an access under an older
 * registration, in whatever process, is refused. A real adapter keeps the old pages pinned: an old
 * key reaches these pages, never the memory that replaced them.
 *
 * Calls return 0 or an errno value, or NULL and errno, as verbs do.
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

#define STAG_HEAP_NAME_MAX    64 /* with its terminating zero; letters, digits, ".", "_", "-" */
#define STAG_HEAP_OWNER_MAX   16 /* more characters, if its owner is named as a number */
#define STAG_HEAP_MAX_PROCS   64
#define STAG_HEAP_MAX_DEVICES 4

/* ---- open and close ---------------------------------------------------- */

enum stag_heap_flags {
	/* huge pages; fails with ENOMEM and an error text on how to get them */
	STAG_HEAP_HUGE = 1 << 0,
	STAG_HEAP_TRY_HUGE = 1 << 1,  /* huge pages if there are any */
	STAG_HEAP_EXCLUSIVE = 1 << 2, /* create only: EEXIST if a heap of that name exists */
};

/* A field that is zero has its default, given in the comment. */
struct stag_heap_attr {
	uint64_t comp_mask;  /* must be zero */
	unsigned int flags;  /* enum stag_heap_flags */
	uint32_t max_blocks; /* MAX_BLOCKS; 16384 */
	uint64_t block_size; /* BLOCK_SIZE: a multiple of the page size, 256 KiB to 1 GiB; 4 MiB */
	uint64_t address;    /* where every process maps it; default: chosen by the heap */
	/*
	 * File mode of the shared object, which decides who may attach; 0600. When a heap is
	 * attached: a heap that other users may write is refused unless this mode admits them.
	 */
	unsigned int mode;
	/* For this process only: */
	/*
	 * how long an empty block is kept before it is returned to the system; 1000. -1: until
	 * trimmed
	 */
	int retain_ms;
};

/*
 * Creates the heap of that name, or attaches the existing one (attr then applies to this process
 * only). Each user has names of its own: NAME is a heap of this user's. OWNER/NAME is one of another
 * user's, by name or number: whoever attaches it trusts this user, who can change all of it, and end
 * the processes that have attached it. Returns NULL and errno: EINVAL; EEXIST; EADDRINUSE if its
 * address range is in use in this process; EACCES, also if users may write it that attr->mode does
 * not admit; ENOMEM; EPROTO if something else has that name, or another version of the heap; EUSERS
 * if too many processes have attached it.
 */
struct stag_heap *stag_heap_create(const char *name, const struct stag_heap_attr *attr);

/* Attaches an existing heap; ENOENT if there is none. attr may be NULL. */
struct stag_heap *stag_heap_attach(const char *name, const struct stag_heap_attr *attr);

/*
 * Drops this process's registrations, frees its allocations except the shared ones, and unmaps the
 * heap. The last process to detach removes the heap, unless shared allocations are left or keep is
 * true. heap may be NULL.
 */
int stag_heap_detach(struct stag_heap *heap, bool keep);

/* Removes the name. Attached processes keep using the heap. Returns EACCES or ENOENT. */
int stag_heap_unlink(const char *name);

/* ---- memory ------------------------------------------------------------ */

/*
 * Overhead: rounding up costs at most 15 bytes, or an eighth of a size from 128 bytes on, or, from
 * half a block on (such an allocation gets a block of its own), less than two pages. The end of a
 * span of objects costs a sixteenth; the header of each block a 28th of 4 MiB (of 256 KiB, a 16th).
 * For each thread and size in use one span, of 64 to 256 KiB with blocks of 4 MiB, is kept partly
 * empty; under a steady load of allocations and frees, another eighth. Of sizes above 128 KiB and
 * up to half a block, a thread caches up to four freed allocations. Trimming returns everything
 * that is empty.
 */

/*
 * Allocates memory. Returns NULL and errno ENOMEM if the heap or the system is full. Zero bytes:
 * returns a unique pointer.
 */
void *stag_heap_alloc(struct stag_heap *heap, size_t size);
void *stag_heap_calloc(struct stag_heap *heap, size_t n, size_t size);
void *stag_heap_aligned(struct stag_heap *heap, size_t alignment,
			size_t size); /* EINVAL: not a power of 2, or larger than the block size */
void *stag_heap_realloc(struct stag_heap *heap, void *ptr, size_t size);
size_t stag_heap_usable_size(struct stag_heap *heap, const void *ptr);

/*
 * Frees an allocation, from any thread of any process. ptr may be NULL. A pointer that is no
 * allocation of this heap, or a detectable double free, is reported on stderr and aborts the
 * process.
 */
void stag_heap_free(struct stag_heap *heap, void *ptr);

/*
 * Marks an allocation as known to other processes: it outlives the process that allocated it, and
 * is freed by its last user, or by stag_heap_reap(). Returns ENOENT if ptr is no allocation.
 */
int stag_heap_share(struct stag_heap *heap, void *ptr);

/* Reverts stag_heap_share(): the allocation dies with the process that allocated it again. */
int stag_heap_unshare(struct stag_heap *heap, void *ptr);

/*
 * Returns empty blocks to the system now: this process's, and those without an owner. Returns the
 * number of bytes.
 */
uint64_t stag_heap_trim(struct stag_heap *heap);

enum stag_heap_reap {
	STAG_HEAP_REAP_SHARED = 1 << 0, /* frees shared allocations of dead processes, too */
};

/*
 * Frees the allocations of processes that have died. Runs automatically, without flags, when a
 * process attaches or detaches, when the heap runs full, and about every second while it is
 * attached. Returns the number of bytes freed.
 */
uint64_t stag_heap_reap(struct stag_heap *heap, unsigned int flags);

/* ---- keys -------------------------------------------------------------- */

struct stag_heap_device_attr {
	uint64_t comp_mask; /* must be zero */
	/* rights of its regions: enum ibv_access_flags; 0: local write, remote read and write */
	unsigned int access;
	/*
	 * A connected queue pair for binding memory windows, whose send CQ only the heap polls;
	 * remote keys are then those of windows. NULL: the keys are those of regions.
	 */
	struct ibv_qp *bind_qp;
};

/*
 * Adds a device, so that this process can get keys in pd. Sets device to its number, from 0.
 * Returns ENOSPC if there are too many.
 */
int stag_heap_add_device(struct stag_heap *heap, struct ibv_pd *pd,
			 const struct stag_heap_device_attr *attr, unsigned int *device);

/* Drops every registration with the device. */
int stag_heap_remove_device(struct stag_heap *heap, unsigned int device);

struct stag_heap_keys {
	uint32_t lkey, rkey;
};

/*
 * Returns the keys of the block that contains ptr, which may be memory of any process. Registers
 * the block if this process has not yet, after dropping a stale registration. Steady state: a few
 * nanoseconds. Returns ENOENT if ptr is not in a live block; otherwise the error of ibv_reg_mr().
 */
int stag_heap_keys(struct stag_heap *heap, unsigned int device, const void *ptr,
		   struct stag_heap_keys *keys);

/* ---- statistics and inspection ----------------------------------------- */

struct stag_heap_stats {
	uint64_t comp_mask;
	/* of the heap */
	uint64_t address, size; /* address range that it occupies in every process */
	uint64_t block_size, max_blocks;
	uint64_t blocks, block_bytes; /* blocks that are not returned to the system */
	uint64_t allocations,
		/* usable sizes, summed over spans: approximate while other threads run */
		allocated_bytes;
	uint64_t shared; /* shared ones of these allocations */
	uint64_t processes, dead_processes;
	uint64_t reaped; /* processes that have detached or died so far */
	/* of this process */
	uint64_t registrations;	      /* live registrations */
	uint64_t registrations_made;  /* calls of ibv_reg_mr() */
	uint64_t registrations_saved; /* look-ups that found a registration */
	uint64_t stale_found;
	uint64_t blocks_taken, blocks_released;
};

/* Fills at most size bytes of the caller's struct. */
int stag_heap_query(struct stag_heap *heap, struct stag_heap_stats *stats, size_t size);

/*
 * A block of the shared descriptor table, for tools. Start with *index 0; returns false at the end.
 */
struct stag_heap_block {
	uint64_t block_id, address, size;
	uint32_t index;
	int owner;     /* number of a process; -1: none */
	int owner_pid; /* 0: none */
	uint64_t allocations, allocated_bytes, shared;
};

bool stag_heap_next_block(struct stag_heap *heap, uint32_t *index, struct stag_heap_block *block);

/*
 * A process that has attached the heap, or has died and was not reaped. Start with *number 0;
 * returns false at the end.
 */
struct stag_heap_process {
	uint32_t number; /* below STAG_HEAP_MAX_PROCS; reused after the process has gone */
	int pid;
	/* as in /proc/PID/stat: distinguishes it from a later process with the same pid */
	uint64_t start_time;
	bool dead;
	/* As in struct stag_heap_stats; registrations_saved is up to a second old. */
	uint64_t registrations, registrations_made, registrations_saved, stale_found;
	uint64_t blocks_taken, blocks_released;
};

bool stag_heap_next_process(struct stag_heap *heap, uint32_t *number,
			    struct stag_heap_process *process);

/*
 * Takes a snapshot of an existing heap, for tools that inspect without disturbing: read-only,
 * without attaching, without leaving a trace. It is valid for the calls of this section, and for
 * detach. Errors as of stag_heap_attach(); the process must not have the heap attached.
 */
struct stag_heap *stag_heap_look(const char *name);

/*
 * Calls fn with the name of each heap of this user until it returns non-zero. Returns that value, or
 * 0. For root: also of other users, as OWNER/NAME; a name has up to STAG_HEAP_OWNER_MAX more
 * characters then, and there may be very many of them.
 */
typedef int (*stag_heap_list_fn)(const char *name, void *arg);
int stag_heap_list(stag_heap_list_fn fn, void *arg);

/*
 * Checks the whole heap, and prints faults to out (may be NULL). Returns the number of faults.
 * Other processes may keep using the heap meanwhile.
 */
int stag_heap_check(struct stag_heap *heap, FILE *out);

/* Returns the text of the calling thread's last error, which names the object and the cause. */
const char *stag_heap_error(void);

#ifdef __cplusplus
}
#endif

#endif
