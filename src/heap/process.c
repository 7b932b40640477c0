// SPDX-License-Identifier: BSD-2-Clause
/*
 * process.c - the process table: attaching, detaching, and reaping of dead processes.
 *
 * A process holds a lock on one byte of the shared object, through an open file description of its
 * own. The kernel releases the lock when the last thread of the process has ended, and nothing of
 * it runs after that: so a process that gets the lock of a slot in use knows that the slot's
 * process is dead, is the only one to know, and if it dies too, another gets the lock.
 */
#include "heap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define JOIN_NS NS_PER_S /* for a slot, while all are locked */

static bool lock_slot(struct stag_heap *heap, unsigned int slot, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

	return fcntl(heap->files.fd, F_OFD_SETLK, &lock) == 0;
}

static enum proc_phase phase_of(struct heap_proc *proc)
{
	return (enum proc_phase)(atomic_load(&proc->state) & 0xff);
}

static void set_phase(struct heap_proc *proc, enum proc_phase phase)
{
	uint64_t generation = atomic_load(&proc->state) >> 8;

	if (phase == PROC_LIVE)
		generation = (generation + 1) & UINT32_MAX;
	if (generation == 0)
		generation = 1;
	atomic_store(&proc->state, generation << 8 | phase);
}

/* Returns clock ticks since boot: distinguishes a process from a later one with the same pid. */
static uint64_t start_time(void)
{
	CLEANUP_CLOSE int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	unsigned long long value = 0;
	char text[1024], *at;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1,
			  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			  "%*d %*d %llu",
			  &value) != 1)
		return 0;
	return value;
}

static void forget_hints(struct stag_heap *heap, unsigned int slot)
{
	struct hint_map map;

	layout_map(heap, 3 + slot, &map);
	for (uint32_t i = hint_next(&map, 0); i != HINT_NONE; i = hint_next(&map, i + 1))
		hint_clear(&map, i);
}

/*
 * Clears a slot whose lock this process has. Idempotent: it can be repeated after an interruption
 * at any point.
 */
static uint64_t clear_slot(struct stag_heap *heap, unsigned int slot)
{
	struct heap_proc *proc = &heap->procs[slot];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < heap->geo.max_blocks; i++)
		bytes += block_reap(heap, i, (int)slot);
	for (unsigned int i = 0; i < HEAP_HAZARDS; i++)
		atomic_store(&proc->hazards[i], 0);
	forget_hints(heap, slot);
	block_restore_hints(heap);
	atomic_fetch_add(&heap->header->deaths, 1);
	set_phase(proc, PROC_FREE);
	return bytes;
}

static uint64_t reap_slot(struct stag_heap *heap, unsigned int slot)
{
	struct heap_proc *proc = &heap->procs[slot];
	uint64_t bytes = 0;

	if (slot == heap->slot || phase_of(proc) == PROC_FREE || !lock_slot(heap, slot, F_WRLCK))
		return 0;
	if (phase_of(proc) != PROC_FREE) {
		log_info("heap %s: process %u has died", heap->name, heap_load(&proc->pid));
		bytes = clear_slot(heap, slot);
	}
	lock_slot(heap, slot, F_UNLCK);
	return bytes;
}

uint64_t proc_reap(struct stag_heap *heap, unsigned int flags)
{
	uint64_t bytes = 0;

	HOLD_FOR_SCOPE(&heap->reap_lock);
	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++)
		bytes += reap_slot(heap, i);
	if (flags & STAG_HEAP_REAP_SHARED)
		for (uint32_t i = 0; i < heap->geo.max_blocks; i++)
			bytes += block_settle(heap, i, true);
	return bytes;
}

static void forget_counts(struct heap_proc *proc)
{
	heap_store(&proc->blocks_taken, 0);
	heap_store(&proc->blocks_released, 0);
	heap_store(&proc->registrations, 0);
	heap_store(&proc->registrations_made, 0);
	heap_store(&proc->registrations_saved, 0);
	heap_store(&proc->stale_found, 0);
}

/* Clears the blocks of the previous process in this slot first. */
static void take_slot(struct stag_heap *heap, unsigned int slot)
{
	struct heap_proc *proc = &heap->procs[slot];

	heap->slot = slot;
	heap->self = proc;
	if (phase_of(proc) != PROC_FREE)
		clear_slot(heap, slot);
	layout_map(heap, 3 + slot, &heap->hints.pending_blocks);
	heap_store(&proc->pid, (uint32_t)getpid());
	heap_store(&proc->start_time, start_time());
	forget_counts(proc);
	set_phase(proc, PROC_LIVE);
	heap->tag = (atomic_load(&proc->state) >> 8) << 32 | (uint64_t)slot << 16;
	heap->local.deaths_seen = atomic_load(&heap->header->deaths);
}

static bool take_any_slot(struct stag_heap *heap)
{
	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++) {
		if (!lock_slot(heap, i, F_WRLCK))
			continue;
		take_slot(heap, i);
		return true;
	}
	return false;
}

/* A slot whose process has died is locked, for a moment, by another process that clears it: such a slot is waited for. */
int proc_join(struct stag_heap *heap)
{
	uint64_t until = clock_ns() + JOIN_NS;

	while (!take_any_slot(heap)) {
		if (clock_ns() > until)
			return -EUSERS;
		poll(NULL, 0, 1);
	}
	return 0;
}

void proc_leave(struct stag_heap *heap)
{
	HOLD_FOR_SCOPE(&heap->reap_lock);
	clear_slot(heap, heap->slot);
}

bool proc_alone(struct stag_heap *heap)
{
	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++)
		if (i != heap->slot && phase_of(&heap->procs[i]) != PROC_FREE)
			return false;
	return true;
}

bool proc_is_dead(struct stag_heap *heap, unsigned int slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

	return slot != heap->slot && fcntl(heap->files.fd, F_OFD_GETLK, &lock) == 0 &&
	       lock.l_type == F_UNLCK;
}

void proc_count(struct stag_heap *heap, uint64_t *all, uint64_t *dead)
{
	*all = *dead = 0;
	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++) {
		if (phase_of(&heap->procs[i]) == PROC_FREE)
			continue;
		++*all;
		*dead += proc_is_dead(heap, i);
	}
}
