// SPDX-License-Identifier: BSD-2-Clause
/*
 * staging.c - a bounded amount of memory between unaligned callers and the medium.
 *
 * A quarter of the buffers serves the medium's own operations, which return them independently of
 * others; the rest is for users of the medium. Each part has a queue of its own, first come, first
 * served.
 */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"

#define LEAST_BUFFERS 8

static void push(void **stack, void *buffer)
{
	memcpy(buffer, stack, sizeof(*stack));
	*stack = buffer;
}

static void *pop(void **stack)
{
	void *buffer = *stack;

	if (buffer)
		memcpy(stack, buffer, sizeof(*stack));
	return buffer;
}

int media_staging_open(struct staging *s, uint64_t bytes)
{
	uint64_t n = bytes / MEDIA_BUFFER_SIZE;

	if (n < LEAST_BUFFERS)
		n = LEAST_BUFFERS;
	s->bytes = n * MEDIA_BUFFER_SIZE;
	s->memory =
		mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED)
		return -ENOMEM;
	/* A direct read writes to this process's page, which a forked child must not share. */
	madvise(s->memory, s->bytes, MADV_DONTFORK);
	s->outer_begin = s->memory + n / 4 * MEDIA_BUFFER_SIZE;
	for (uint64_t i = n; i-- > 0;) {
		uint8_t *buffer = s->memory + i * MEDIA_BUFFER_SIZE;

		push(buffer < s->outer_begin ? &s->inner : &s->outer, buffer);
	}
	list_init(&s->ops);
	list_init(&s->waiters);
	list_init(&s->granted);
	return 0;
}

void media_staging_close(struct staging *s)
{
	munmap(s->memory, s->bytes);
}

bool media_staging_has(const struct staging *s, const void *at, uint64_t length)
{
	const uint8_t *p = at;

	return p >= s->memory && p < s->memory + s->bytes &&
	       length <= (uint64_t)(s->memory + s->bytes - p);
}

/* ---- for the medium's own operations ---- */

/* Returns a free buffer, or NULL if there is none or others already wait for one. */
uint8_t *media_staging_get(struct media *m)
{
	assert(lock_held(&m->lock));
	return list_empty(&m->staging.ops) ? pop(&m->staging.inner) : NULL;
}

void media_staging_put(struct media *m, uint8_t *buffer)
{
	struct media_op *op;

	assert(lock_held(&m->lock));
	assert(buffer < m->staging.outer_begin);
	if (list_empty(&m->staging.ops)) {
		push(&m->staging.inner, buffer);
		return;
	}
	op = list_entry(m->staging.ops.next, struct media_op, state.link);
	list_del(&op->state.link);
	op->state.buffer = buffer;
	step_with_buffer(m, op);
}

/* ---- for users of the medium ---- */

void *media_take_buffer(struct media *m, struct media_waiter *w)
{
	void *buffer;

	if (!media_is_ours(m))
		return NULL;
	HOLD_FOR_SCOPE(&m->lock);
	buffer = list_empty(&m->staging.waiters) ? pop(&m->staging.outer) : NULL;
	if (!buffer) {
		m->counters.pauses++;
		w->waiting = true;
		w->buffer = NULL;
		list_add_tail(&m->staging.waiters, &w->link);
	}
	return buffer;
}

void *media_try_buffer(struct media *m)
{
	if (!media_is_ours(m))
		return NULL;
	HOLD_FOR_SCOPE(&m->lock);
	return list_empty(&m->staging.waiters) ? pop(&m->staging.outer) : NULL;
}

static void release_buffer(struct media *m, void *buffer)
{
	struct media_waiter *w;

	assert((uint8_t *)buffer >= m->staging.outer_begin);
	if (list_empty(&m->staging.waiters)) {
		push(&m->staging.outer, buffer);
		return;
	}
	w = list_entry(m->staging.waiters.next, struct media_waiter, link);
	list_del(&w->link);
	w->buffer = buffer;
	list_add_tail(&m->staging.granted, &w->link);
	media_op_tell(m);
}

void media_give_buffer(struct media *m, void *buffer)
{
	if (!media_is_ours(m))
		return;
	HOLD_FOR_SCOPE(&m->lock);
	release_buffer(m, buffer);
}

bool media_stop_waiting(struct media *m, struct media_waiter *w)
{
	if (!media_is_ours(m))
		return true;
	HOLD_FOR_SCOPE(&m->lock);
	if (!w->waiting)
		return false;
	w->waiting = false;
	list_del(&w->link);
	if (w->buffer) {
		atomic_fetch_sub(&m->to_tell, 1);
		release_buffer(m, w->buffer);
	}
	return true;
}
