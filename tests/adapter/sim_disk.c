// SPDX-License-Identifier: BSD-2-Clause
/*
 * sim_disk.c - see order.h.
 */
#include "order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/engine.h"

/* The disk has a generator of its own: it runs on any polling thread, under the medium's lock. */
static uint64_t random64(struct sim_disk *d)
{
	uint64_t x = d->seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void queue_io(struct media_edge *e, const struct media_io *io)
{
	struct sim_disk *d = container_of(e, struct sim_disk, edge);
	unsigned int n = atomic_load(&d->n_pending);

	if (n == MOST_PENDING)
		abort();
	d->pending[n] = (struct sim_io){.io = *io, .at = d->now++};
	atomic_store(&d->n_pending, n + 1);
}

static void note_write(struct sim_disk *d, unsigned int word, bool durable)
{
	uint64_t value;

	memcpy(&value, d->image + word_offset(word), sizeof(value));
	if (durable && d->lasting)
		d->lasting(d->arg, value);
	if (durable)
		return;
	if (d->n_writes == d->most_writes) {
		d->most_writes = d->most_writes ? 2 * d->most_writes : 1024;
		d->writes = realloc(d->writes, d->most_writes * sizeof(*d->writes));
	}
	d->writes[d->n_writes++] = (struct sim_write){word, value, d->now};
}

/*
 * Operations that were done before the flush came survive a power failure; concurrent ones may
 * or may not.
 */
static void flush(struct sim_disk *d, unsigned long at)
{
	unsigned int left = 0;

	if (d->forgets)
		return;
	for (unsigned int i = 0; i < d->n_writes; i++) {
		if (d->writes[i].at >= at)
			d->writes[left++] = d->writes[i];
		else if (d->lasting)
			d->lasting(d->arg, d->writes[i].value);
	}
	d->n_writes = left;
}

static void copy_data(struct sim_disk *d, const struct media_io *io)
{
	struct iovec one = {io->buffer, io->length};
	const struct iovec *iov = io->n_iov ? io->iov : &one;
	uint32_t n = io->n_iov ? io->n_iov : 1;
	uint64_t at = io->offset;

	for (uint32_t i = 0; i < n; at += iov[i++].iov_len) {
		if (io->kind == MEDIA_IO_READ)
			memcpy(iov[i].iov_base, d->image + at, iov[i].iov_len);
		else
			memcpy(d->image + at, iov[i].iov_base, iov[i].iov_len);
	}
	for (unsigned int w = 0; io->kind == MEDIA_IO_WRITE && w < WORDS; w++)
		if (word_offset(w) >= io->offset && word_offset(w) < io->offset + io->length)
			note_write(d, w, io->durable);
	d->now++;
}

static int carry_out(struct sim_disk *d, const struct sim_io *s)
{
	int error = atomic_load(&d->error);

	if (error)
		return error;
	switch (s->io.kind) {
	case MEDIA_IO_READ:
	case MEDIA_IO_WRITE:
		copy_data(d, &s->io);
		return (int)s->io.length;
	case MEDIA_IO_SYNC:
		flush(d, s->at);
		return 0;
	default:
		return -ETIME;
	}
}

/* Picks one of the operations that may be done now, at random. Returns -1 if there is none. */
static int choose_operation(struct sim_disk *d, unsigned int n)
{
	uint64_t held = atomic_load(&d->held);
	unsigned int from = n ? (unsigned int)(random64(d) % n) : 0;

	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = (from + i) % n;

		if (d->pending[at].io.offset >= held)
			return (int)at;
	}
	return -1;
}

static unsigned int reap(struct media_edge *e, struct media_event *events, unsigned int most)
{
	struct sim_disk *d = container_of(e, struct sim_disk, edge);
	unsigned int n = atomic_load(&d->n_pending), got = 0;
	int i;

	while (got < most && random64(d) % d->lazy == 0 && (i = choose_operation(d, n)) >= 0) {
		struct sim_io s = d->pending[i];

		d->pending[i] = d->pending[--n];
		events[got++] =
			(struct media_event){.cookie = s.io.cookie, .result = carry_out(d, &s)};
	}
	atomic_store(&d->n_pending, n);
	return got;
}

static bool ready(struct media_edge *e)
{
	struct sim_disk *d = container_of(e, struct sim_disk, edge);

	return atomic_load(&d->n_pending) > 0;
}

static bool queued(struct media_edge *e)
{
	return false;
}

static int submit(struct media_edge *e, bool wait)
{
	return 0;
}

void sim_disk_init(struct sim_disk *d, struct media *m, uint64_t size)
{
	engine_lock(); /* the engine may poll the medium at any time */
	memset(d, 0, sizeof(*d));
	d->image = calloc(1, size);
	d->size = size;
	d->lazy = 2;
	d->edge = (struct media_edge){.queue = queue_io,
				      .reap = reap,
				      .ready = ready,
				      .queued = queued,
				      .submit = submit};
	media_set_edge(m, &d->edge);
	engine_unlock();
}

void sim_disk_free(struct sim_disk *d)
{
	free(d->image);
	free(d->writes);
}
