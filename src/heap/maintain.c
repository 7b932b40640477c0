// SPDX-License-Identifier: BSD-2-Clause
/*
 * maintain.c - a thread for each attached heap that does deferred work: returns blocks that have
 * been empty for long enough, and reaps dead processes.
 */
#include "heap.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/lock.h"

#define TICK_NS	    NS_PER_S
#define MIN_TICK_NS (10 * NS_PER_MS)

uint64_t maintain_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t release_reserve(struct stag_heap *heap, uint64_t empty_before)
{
	struct heap_block *block;

	thread_lock_last(heap);
	block = slice_take_reserve(heap, empty_before);
	lock_release(&heap->local.lock);
	return block ? block_release(heap, block->index) : 0;
}

uint64_t maintain_trim(struct stag_heap *heap)
{
	thread_trim(heap);
	return release_reserve(heap, UINT64_MAX) + block_release_idle(heap, UINT64_MAX);
}

STAG_EXPORT uint64_t stag_heap_trim(struct stag_heap *heap)
{
	return heap_check_attached(heap) == 0 ? maintain_trim(heap) : 0;
}

STAG_EXPORT uint64_t stag_heap_reap(struct stag_heap *heap, unsigned int flags)
{
	return heap_check_attached(heap) == 0 ? proc_reap(heap, flags) : 0;
}

static void release_unused(struct stag_heap *heap)
{
	uint64_t now = maintain_now();

	if (heap->maintain.retain_ns >= 0 && !thread_ask_to_trim(heap))
		release_reserve(heap, now - (uint64_t)heap->maintain.retain_ns);
	block_release_idle(heap, now);
}

static uint64_t tick_interval(const struct stag_heap *heap)
{
	uint64_t half = (uint64_t)heap->maintain.retain_ns / 2;

	if (heap->maintain.retain_ns < 0 || half > TICK_NS)
		return TICK_NS;
	return half < MIN_TICK_NS ? MIN_TICK_NS : half;
}

static void wait_for_stop(struct stag_heap *heap, uint64_t ns)
{
	struct timespec until;
	uint64_t at = clock_ns() + ns;

	until.tv_sec = (time_t)(at / NS_PER_S);
	until.tv_nsec = (long)(at % NS_PER_S);
	lock_wait_until(&heap->maintain.lock, &heap->maintain.cond, &until);
}

static void *maintain(void *arg)
{
	struct stag_heap *heap = arg;
	uint64_t reap_at = 0;

	lock_acquire(&heap->maintain.lock);
	while (!heap->maintain.stop) {
		wait_for_stop(heap, tick_interval(heap));
		if (heap->maintain.stop)
			break;
		lock_release(&heap->maintain.lock);
		release_unused(heap);
		keys_publish(heap);
		if (clock_ns() >= reap_at) {
			proc_reap(heap, 0);
			reap_at = clock_ns() + TICK_NS;
		}
		lock_acquire(&heap->maintain.lock);
	}
	lock_release(&heap->maintain.lock);
	return NULL;
}

/* Blocks all signals in the new thread: they are for the program's own threads. */
int maintain_start(struct stag_heap *heap)
{
	pthread_condattr_t attr;
	sigset_t all, before;
	int rc;

	lock_init(&heap->maintain.lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&heap->maintain.cond, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&heap->maintain.thread, NULL, maintain, heap);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	heap->maintain.running = rc == 0;
	return -rc;
}

void maintain_stop(struct stag_heap *heap)
{
	if (!heap->maintain.running)
		return;
	lock_acquire(&heap->maintain.lock);
	heap->maintain.stop = true;
	pthread_cond_signal(&heap->maintain.cond);
	lock_release(&heap->maintain.lock);
	pthread_join(heap->maintain.thread, NULL);
	heap->maintain.running = false;
}
