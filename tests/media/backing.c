// SPDX-License-Identifier: BSD-2-Clause
/*
 * backing.c - helpers for tests of media: see backing.h.
 */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dice.h"

/* ---- files and media ---- */

const char *backing_name(enum backing b)
{
	static const char *const names[] = {"disk", "pages", "tmpfs", "memory", "loop"};

	return names[b];
}

static int make_named(const char *dir, uint64_t size)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/stag-media-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -1;
	unlink(path);
	if (ftruncate(fd, (off_t)size) == 0)
		return fd;
	close(fd);
	return -1;
}

static int attach_loop(int file, char *loop)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), number, fd;

	if (control < 0)
		return -1;
	number = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	if (number < 0)
		return -1;
	snprintf(loop, 32, "/dev/loop%d", number);
	fd = open(loop, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, LOOP_SET_FD, file) == 0)
		return fd;
	close(fd);
	return -1;
}

static int make_loop(uint64_t size, char *loop)
{
	int file = make_named("/dev/shm", size), fd;

	if (file < 0)
		return -1;
	fd = attach_loop(file, loop);
	close(file);
	return fd;
}

int make_file(enum backing b, uint64_t size, char *loop)
{
	int fd;

	switch (b) {
	case ON_DISK:
	case ON_PAGES:
		return make_named(".", size);
	case ON_TMPFS:
		return make_named("/dev/shm", size);
	case IN_MEMORY:
		fd = memfd_create("medium", MFD_CLOEXEC);
		return fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? fd : -1;
	case ON_LOOP:
		return make_loop(size, loop);
	case NUM_BACKINGS:
		break;
	}
	return -1;
}

bool open_medium(struct medium *t, enum backing b, uint64_t size, const struct media_attr *attr)
{
	struct media_attr a = attr ? *attr : (struct media_attr){0};
	int err;

	memset(t, 0, sizeof(*t));
	t->fd = make_file(b, size, t->loop);
	if (t->fd < 0) {
		printf("no %s here\n", backing_name(b));
		return false;
	}
	a.fd = t->fd;
	if (b == ON_PAGES)
		a.flags |= MEDIA_BUFFERED;
	err = media_open(&t->m, &a);
	if (err)
		fail_msg("media_open() on %s: %s", backing_name(b), strerror(-err));
	return true;
}

void close_medium(struct medium *t)
{
	media_close(t->m);
	if (t->loop[0])
		ioctl(t->fd, LOOP_CLR_FD, 0);
	close(t->fd);
}

void peek(struct medium *t, void *to, size_t n, uint64_t offset)
{
	assert_int_equal(pread(t->fd, to, n, (off_t)offset), n);
}

void poke(struct medium *t, const void *from, size_t n, uint64_t offset)
{
	assert_int_equal(pwrite(t->fd, from, n, (off_t)offset), n);
	if (media_is_direct(t->m))
		assert_int_equal(fdatasync(t->fd), 0);
}

void expect_on_medium(struct medium *t, const void *bytes, uint64_t n, uint64_t offset)
{
	char *there = malloc(n);

	peek(t, there, n, offset);
	for (uint64_t i = 0; i < n; i++)
		if (there[i] != ((const char *)bytes)[i])
			fail_msg("byte %llu of %llu at %llu is %#x, not %#x", (unsigned long long)i,
				 (unsigned long long)n, (unsigned long long)offset,
				 (uint8_t)there[i], ((const uint8_t *)bytes)[i]);
	free(there);
}

struct media_counters counters(struct medium *t)
{
	struct media_counters c;

	media_query(t->m, &c);
	return c;
}

/* ---- operations ---- */

static atomic_ulong turns;

static void note_done(struct media_op *op)
{
	struct deed *d = container_of(op, struct deed, op);

	d->turn = atomic_fetch_add(&turns, 1);
	atomic_store(&d->done, true);
}

static struct deed deed_of(enum media_kind kind, void *at, uint64_t n, uint64_t offset)
{
	return (struct deed){
		.op = {.kind = (uint8_t)kind, .offset = offset, .length = n, .n_iov = 1},
		.iov = {at, n}};
}

struct deed read_of(void *to, uint64_t n, uint64_t offset)
{
	return deed_of(MEDIA_READ, to, n, offset);
}

struct deed write_of(const void *from, uint64_t n, uint64_t offset)
{
	return deed_of(MEDIA_WRITE, (void *)from, n, offset);
}

static uint64_t add_one(const struct media_op *op, uint64_t found)
{
	return found + 1;
}

struct deed add_of(uint64_t offset)
{
	struct deed d = deed_of(MEDIA_ATOMIC, NULL, 0, offset);

	d.op.apply = add_one;
	return d;
}

struct deed flush_of(void)
{
	return deed_of(MEDIA_FLUSH, NULL, 0, 0);
}

void begin(struct medium *t, struct deed *d)
{
	if (!d->op.iov || d->op.n_iov == 1)
		d->op.iov = &d->iov;
	d->op.done = note_done;
	atomic_store(&d->done, false);
	assert_int_equal(media_submit(t->m, &d->op), 0);
}

int end(struct medium *t, struct deed *d)
{
	media_kick(t->m);
	await((media_poll(t->m), atomic_load(&d->done)));
	return d->op.result;
}

int perform(struct medium *t, struct deed d)
{
	begin(t, &d);
	return end(t, &d);
}

/* ---- fault injection ---- */

static void add_event(struct faulty *f, uint64_t cookie, int result)
{
	unsigned int n = atomic_load(&f->n_events);

	assert_true(n < MOST_EVENTS);
	f->events[n] = (struct media_event){.cookie = cookie, .result = result};
	atomic_store(&f->n_events, n + 1);
}

static void faulty_queue(struct media_edge *e, const struct media_io *io)
{
	struct faulty *f = container_of(e, struct faulty, edge);
	struct media_io mine = *io;
	int result;

	atomic_fetch_add(&f->seen[io->kind], 1);
	if (io->durable)
		atomic_fetch_add(&f->durable, 1);
	result = f->verdict(f, &mine);
	if (result)
		add_event(f, io->cookie, result);
	else
		f->real->queue(f->real, &mine);
}

/* Removes a random one of the events that wait. */
static struct media_event pick_event(struct faulty *f)
{
	unsigned int n = atomic_load(&f->n_events), i = f->shuffles ? (unsigned int)dice(n) : 0;
	struct media_event e = f->events[i];

	f->events[i] = f->events[n - 1];
	atomic_store(&f->n_events, n - 1);
	return e;
}

static unsigned int faulty_reap(struct media_edge *e, struct media_event *events, unsigned int n)
{
	struct faulty *f = container_of(e, struct faulty, edge);
	unsigned int got = 0, want = n;

	if (f->shuffles || atomic_load(&f->holds)) {
		unsigned int real = f->real->reap(f->real, events, n);

		for (unsigned int i = 0; i < real; i++)
			add_event(f, events[i].cookie, events[i].result);
		want = f->shuffles ? (unsigned int)dice(4) : 0;
	}
	while (got < want && atomic_load(&f->n_events) > 0)
		events[got++] = pick_event(f);
	if (!f->shuffles && !atomic_load(&f->holds) && got < n)
		got += f->real->reap(f->real, events + got, n - got);
	return got;
}

static bool faulty_ready(struct media_edge *e)
{
	struct faulty *f = container_of(e, struct faulty, edge);

	return (atomic_load(&f->n_events) > 0 && !atomic_load(&f->holds)) ||
	       f->real->ready(f->real);
}

static bool faulty_queued(struct media_edge *e)
{
	struct faulty *f = container_of(e, struct faulty, edge);

	return f->real->queued(f->real);
}

static int faulty_submit(struct media_edge *e, bool wait)
{
	struct faulty *f = container_of(e, struct faulty, edge);

	return f->real->submit(f->real, wait && atomic_load(&f->n_events) == 0);
}

int let_pass(struct faulty *f, struct media_io *io)
{
	return 0;
}

void inject_between(struct medium *t, struct faulty *f,
		    int (*verdict)(struct faulty *f, struct media_io *io))
{
	memset(f, 0, sizeof(*f));
	f->edge = (struct media_edge){.queue = faulty_queue,
				      .reap = faulty_reap,
				      .ready = faulty_ready,
				      .queued = faulty_queued,
				      .submit = faulty_submit};
	f->real = media_edge(t->m);
	f->verdict = verdict;
	media_set_edge(t->m, &f->edge);
}
