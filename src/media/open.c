// SPDX-License-Identifier: BSD-2-Clause
/* open.c - opens and closes a medium, and tracks its size. */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define DEFAULT_DEPTH	256
#define MOST_DEPTH	16384
#define DEFAULT_STAGING (16ull << 20)
#define DEFAULT_CACHE	(64ull << 20)
#define LOOK_NS		(100 * NS_PER_MS)

/* ---- this process and its children ---- */

static struct {
	struct lock lock;
	struct list media;
	_Atomic uint64_t forks;
	bool watching;
} process = {.lock = LOCK_INITIALIZER, .media = {&process.media, &process.media}};

static void lock_for_fork(void)
{
	lock_acquire(&process.lock);
}

static void unlock_after_fork(void)
{
	lock_release(&process.lock);
}

/* A forked child abandons its parent's media: they must not seem to live as long as the child. */
static void forget_after_fork(void)
{
	static const struct lock fresh = LOCK_INITIALIZER;

	process.lock = fresh;
	atomic_fetch_add(&process.forks, 1);
	list_for_each (l, &process.media)
		places_abandon(list_entry(l, struct media, link));
	list_init(&process.media);
}

static void enlist(struct media *m)
{
	HOLD_FOR_SCOPE(&process.lock);
	if (!process.watching)
		process.watching =
			!pthread_atfork(lock_for_fork, unlock_after_fork, forget_after_fork);
	m->forks = atomic_load(&process.forks);
	list_add_tail(&process.media, &m->link);
}

/* Removes the medium and its places in one go: fork() and exit() see both or neither. */
static void delist(struct media *m)
{
	HOLD_FOR_SCOPE(&process.lock);
	list_del(&m->link);
	places_close(m);
}

static bool is_idle(struct media *m)
{
	return m->active == 0 && list_empty(&m->ready) && list_empty(&m->backlog);
}

/*
 * A program need not close its media, and a thread may be closing the last one. This may have
 * interrupted any code, so it waits for no lock.
 */
__attribute__((destructor)) static void leave_at_exit(void)
{
	if (!lock_try(&process.lock))
		return;
	list_for_each (l, &process.media) {
		struct media *m = list_entry(l, struct media, link);

		if (!lock_try(&m->lock))
			continue;
		if (is_idle(m))
			places_leave_for_good(m);
		lock_release(&m->lock);
	}
	lock_release(&process.lock);
}

bool media_is_ours(const struct media *m)
{
	return m->forks == atomic_load_explicit(&process.forks, memory_order_relaxed);
}

/* ---- opening ---- */

/*
 * Opens a file description of our own: its flags, such as O_DIRECT, are separate from the
 * program's.
 */
static int open_again(int fd, int extra)
{
	char path[32];
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, (flags & O_ACCMODE) | O_CLOEXEC | extra);
	return fd < 0 ? -errno : fd;
}

static int duplicate(int fd)
{
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* Opens with O_DIRECT if possible. */
static int open_file(struct media *m, int fd, struct geometry *g)
{
	int err;

	m->fd = m->flags & MEDIA_BUFFERED ? -EINVAL : open_again(fd, O_DIRECT);
	if (m->fd >= 0) {
		err = geometry_of(m->fd, g);
		if (err || g->direct)
			return err;
		close(m->fd);
	}
	m->fd = open_again(fd, 0);
	if (m->fd < 0)
		m->fd = duplicate(fd);
	if (m->fd < 0)
		return m->fd;
	return geometry_of(m->fd, g);
}

static int set_geometry(struct media *m, const struct geometry *g, uint32_t block)
{
	m->direct = g->direct;
	m->block = g->block;
	m->memory_align = g->memory_align;
	if (g->is_memory)
		m->flags |= MEDIA_VOLATILE;
	if (m->direct && block) {
		if (block % g->block || block > MEDIA_BUFFER_SIZE / 4 || (block & (block - 1)))
			return -EINVAL;
		m->block = block;
	}
	atomic_store(&m->size, round_down(g->size, m->block));
	return 0;
}

static void init_lists(struct media *m)
{
	struct list *lists[] = {&m->backlog,   &m->ready,    &m->range_waiters, &m->place_waiters,
				&m->sync_next, &m->sync_now, &m->held};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		list_init(lists[i]);
}

static void set_limits(struct media *m, const struct media_attr *attr)
{
	m->flags = attr->flags;
	m->depth = attr->depth ? (uint32_t)least(attr->depth, MOST_DEPTH) : DEFAULT_DEPTH;
	m->cache_limit = attr->cache_bytes ? attr->cache_bytes : DEFAULT_CACHE;
}

/* Opens the file and the eventfd; an error leaves them to the caller to close. */
static int open_descriptors(struct media *m, const struct media_attr *attr, struct geometry *g)
{
	int err = open_file(m, attr->fd, g);

	if (!err)
		err = set_geometry(m, g, attr->block);
	if (!err && !m->direct && !g->is_memory)
		log_info("medium %d: uses the page cache: %s", m->fd,
			 attr->flags & MEDIA_BUFFERED
				 ? "as requested"
				 : "its file system does not support O_DIRECT");
	if (err)
		return err;
	m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return m->event_fd < 0 ? -errno : 0;
}

static void close_descriptors(struct media *m)
{
	if (m->event_fd >= 0)
		close(m->event_fd);
	if (m->fd >= 0)
		close(m->fd);
}

static int open_edge(struct media *m, bool is_memory)
{
	int err = ring_open(&m->ring, m);

	if (err)
		return err;
	m->edge = ring_edge(m->ring);
	if (!is_memory)
		return 0;
	err = calls_open(&m->calls, m, m->edge);
	if (err)
		ring_close(m->ring);
	else
		m->edge = calls_edge(m->calls);
	return err;
}

int media_open(struct media **out, const struct media_attr *attr)
{
	struct media *m = calloc(1, sizeof(*m));
	struct geometry g;
	int err;

	if (!m)
		return -ENOMEM;
	init_lists(m);
	set_limits(m, attr);
	m->event_fd = -1;
	err = open_descriptors(m, attr, &g);
	if (err)
		goto err_close;
	err = media_staging_open(&m->staging,
				 attr->staging_bytes ? attr->staging_bytes : DEFAULT_STAGING);
	if (err)
		goto err_close;
	err = open_edge(m, g.is_memory);
	if (err)
		goto err_unstage;
	err = m->flags & MEDIA_SHARED ? places_open(m) : 0;
	if (err)
		goto err_edge;
	lock_init(&m->lock);
	enlist(m);
	*out = m;
	return 0;

err_edge:
	calls_close(m->calls);
	ring_close(m->ring);
err_unstage:
	media_staging_close(&m->staging);
err_close:
	close_descriptors(m);
	free(m);
	return err;
}

/* ---- closing ---- */

static void cancel_all(struct media *m, struct list *queue)
{
	while (!list_empty(queue)) {
		struct media_op *op = list_entry(queue->next, struct media_op, state.link);

		list_del(&op->state.link);
		media_op_finish(m, op, -ECANCELED);
	}
}

/* Cancels all operations that wait for something other than the kernel. */
static void cancel_waiting(struct media *m)
{
	HOLD_FOR_SCOPE(&m->lock);
	m->closing = true;
	list_for_each (l, &m->backlog)
		m->active++; /* counted like an operation that has started */
	cancel_all(m, &m->backlog);
	cancel_all(m, &m->staging.ops);
	cancel_all(m, &m->range_waiters);
	cancel_all(m, &m->sync_next);
	list_for_each (l, &m->place_waiters) {
		struct media_op *op = list_entry(l, struct media_op, state.link);

		places_leave(m, op);
		list_del(&op->state.held);
	}
	cancel_all(m, &m->place_waiters);
}

static bool is_busy(struct media *m)
{
	HOLD_FOR_SCOPE(&m->lock);
	return m->active > 0 || m->syncing || m->timing || !list_empty(&m->ready) ||
	       !list_empty(&m->backlog);
}

static void drain(struct media *m)
{
	while (is_busy(m)) {
		cancel_waiting(m);
		if (media_poll(m) == 0 && is_busy(m))
			m->edge->submit(m->edge, true);
	}
}

/* In a forked child: leaves the parent's resources untouched. */
static void abandon(struct media *m)
{
	ring_abandon(m->ring);
	places_abandon(m);
}

void media_close(struct media *m)
{
	if (!m)
		return;
	if (media_is_ours(m)) {
		drain(m);
		delist(m);
		ring_close(m->ring);
		media_staging_close(&m->staging);
		lock_destroy(&m->lock);
	} else {
		abandon(m);
	}
	calls_close(m->calls);
	cache_close(m->cache);
	close_descriptors(m);
	free(m);
}

/* ---- properties ---- */

static void look_at_size(struct media *m)
{
	uint64_t size, known = atomic_load(&m->size);

	if (geometry_size(m->fd, &size))
		return;
	size = round_down(size, m->block);
	if (size < known)
		media_complain(m, COMPLAINT_SIZE, size, -ENXIO);
	else if (size > known)
		m->complained[COMPLAINT_SIZE] = 0;
	atomic_store(&m->size, size);
}

bool media_covers(struct media *m, uint64_t offset, uint64_t length)
{
	uint64_t size = atomic_load_explicit(&m->size, memory_order_relaxed);

	assert(lock_held(&m->lock));
	if (offset <= size && length <= size - offset)
		return true;
	look_at_size(m);
	size = atomic_load_explicit(&m->size, memory_order_relaxed);
	return offset <= size && length <= size - offset;
}

void media_notice_size(struct media *m)
{
	struct timespec ts;
	uint64_t now;

	assert(lock_held(&m->lock));
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
	if (now - m->looked_ns < LOOK_NS)
		return;
	m->looked_ns = now;
	look_at_size(m);
}

uint64_t media_size(struct media *m)
{
	if (media_is_ours(m)) {
		HOLD_FOR_SCOPE(&m->lock);
		look_at_size(m);
	}
	return atomic_load(&m->size);
}

uint32_t media_block(const struct media *m)
{
	return m->block;
}

bool media_is_direct(const struct media *m)
{
	return m->direct;
}

struct media_edge *media_edge(struct media *m)
{
	return m->edge;
}

void media_set_edge(struct media *m, struct media_edge *e)
{
	m->edge = e;
}
