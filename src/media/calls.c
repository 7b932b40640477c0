// SPDX-License-Identifier: BSD-2-Clause
/*
 * calls.c - memory as a medium: transfers by plain system calls.
 *
 * io_uring passes every transfer of a tmpfs file to a worker thread, which costs more than the
 * copy. No transfer there waits for a device, so the submitting thread does it at once; long ones
 * in several steps (plan.c). Long scattered ones go to the ring. Files are not mapped, because the
 * truncation of a mapped file would kill the program.
 */
#include "media/medium.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

#define BATCH	   16
#define MOST_CALLS 64 /* in one go; the next thread does the others */

struct calls {
	struct media_edge edge, *ring;
	struct media *m;
	struct lock lock; /* a leaf lock; protects the rest */
	uint32_t size;	  /* of both arrays: a power of two */
	uint32_t put, get;
	struct media_io *queue;
	uint32_t event_put, event_get;
	struct media_event *events;
	_Atomic uint32_t queued, ready; /* readable without the lock */
	_Atomic uint64_t submits;
};

static struct calls *to_calls(struct media_edge *e)
{
	return container_of(e, struct calls, edge);
}

static void calls_queue(struct media_edge *e, const struct media_io *io)
{
	struct calls *c = to_calls(e);

	if (io->kind > MEDIA_IO_WRITE || io->length > MOST_IN_CALL) {
		c->ring->queue(c->ring, io);
		return;
	}
	HOLD_FOR_SCOPE(&c->lock);
	c->queue[c->put++ % c->size] = *io;
	atomic_fetch_add(&c->queued, 1);
}

static bool calls_queued(struct media_edge *e)
{
	struct calls *c = to_calls(e);

	return atomic_load_explicit(&c->queued, memory_order_relaxed) || c->ring->queued(c->ring);
}

_Static_assert(sizeof(long) == 8, "an offset is one argument of a system call");

/*
 * Uses system calls directly: those of the C library are cancellation points, and a cancelled
 * thread would end with operations that others wait for.
 */
static int call(int fd, const struct media_io *io)
{
	bool reads = io->kind == MEDIA_IO_READ;
	long moved;

	if (io->n_iov)
		moved = syscall(reads ? SYS_preadv : SYS_pwritev, fd, io->iov, io->n_iov,
				io->offset, 0);
	else
		moved = syscall(reads ? SYS_pread64 : SYS_pwrite64, fd, io->buffer,
				(size_t)io->length, io->offset);
	return moved < 0 ? -errno : (int)moved;
}

static uint32_t dequeue_calls(struct calls *c, struct media_io *batch)
{
	uint32_t n;

	HOLD_FOR_SCOPE(&c->lock);
	n = (uint32_t)least(c->put - c->get, BATCH);
	for (uint32_t i = 0; i < n; i++)
		batch[i] = c->queue[c->get++ % c->size];
	atomic_fetch_sub(&c->queued, n);
	return n;
}

static void post(struct calls *c, const struct media_event *events, uint32_t n)
{
	HOLD_FOR_SCOPE(&c->lock);
	for (uint32_t i = 0; i < n; i++)
		c->events[c->event_put++ % c->size] = events[i];
	atomic_fetch_add(&c->ready, n);
}

static int calls_submit(struct media_edge *e, bool wait)
{
	struct calls *c = to_calls(e);
	struct media_io batch[BATCH];
	struct media_event events[BATCH];
	int err = c->ring->queued(c->ring) ? c->ring->submit(c->ring, false) : 0;
	uint32_t n, sum = 0;

	while (sum < MOST_CALLS && (n = dequeue_calls(c, batch)) > 0) {
		for (uint32_t i = 0; i < n; i++)
			events[i] = (struct media_event){.cookie = batch[i].cookie,
							 .result = call(c->m->fd, &batch[i])};
		post(c, events, n);
		sum += n;
	}
	atomic_fetch_add_explicit(&c->submits, sum, memory_order_relaxed);
	if (sum)
		poll_wake(c->m);
	if (wait && atomic_load(&c->ready) == 0)
		err = c->ring->submit(c->ring, true);
	return err;
}

static bool calls_ready(struct media_edge *e)
{
	struct calls *c = to_calls(e);

	return atomic_load(&c->ready) || c->ring->ready(c->ring);
}

static unsigned int calls_reap(struct media_edge *e, struct media_event *events, unsigned int n)
{
	struct calls *c = to_calls(e);
	unsigned int got = 0;

	if (atomic_load(&c->ready)) {
		HOLD_FOR_SCOPE(&c->lock);
		while (got < n && c->event_get != c->event_put)
			events[got++] = c->events[c->event_get++ % c->size];
		atomic_fetch_sub(&c->ready, got);
	}
	if (got < n && c->ring->ready(c->ring))
		got += c->ring->reap(c->ring, events + got, n - got);
	return got;
}

int calls_open(struct calls **out, struct media *m, struct media_edge *ring)
{
	struct calls *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->m = m;
	c->ring = ring;
	c->edge = (struct media_edge){.queue = calls_queue,
				      .reap = calls_reap,
				      .ready = calls_ready,
				      .queued = calls_queued,
				      .submit = calls_submit};
	for (c->size = 1; c->size < m->depth;)
		c->size *= 2;
	c->queue = calloc(c->size, sizeof(*c->queue));
	c->events = calloc(c->size, sizeof(*c->events));
	lock_init(&c->lock);
	if (!c->queue || !c->events) {
		calls_close(c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

void calls_close(struct calls *c)
{
	if (!c)
		return;
	lock_destroy(&c->lock);
	free(c->queue);
	free(c->events);
	free(c);
}

struct media_edge *calls_edge(struct calls *c)
{
	return &c->edge;
}

uint64_t calls_submits(const struct calls *c)
{
	return c ? atomic_load_explicit(&c->submits, memory_order_relaxed) : 0;
}
