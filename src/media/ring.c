// SPDX-License-Identifier: BSD-2-Clause
/*
 * ring.c - the interface to the kernel: an io_uring with one registered file, and the staging
 * memory registered if the limit on locked memory allows it.
 *
 * Requests are put into the submission ring with the medium's lock held, and are visible to the
 * kernel from then on. A thread that enters the kernel submits as many as it claims, without the
 * lock: a long submission (which may copy memory) does not keep other threads from reaping.
 */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define LEAST_DEPTH 8
#define PATIENCE_MS 10000      /* how long to wait for a kernel that still holds resources */
#define MOST_FIXED  (1u << 30) /* maximum bytes of a registered buffer */
#define SPARE	    2	       /* a flush and a timeout, besides the operations */

struct ring {
	struct media_edge edge;
	struct media *m;
	struct io_uring uring;
	_Atomic uint32_t unsubmitted;
	_Atomic uint64_t submits;
	struct __kernel_timespec timeout;
	bool fixed_file, fixed_buffers;
};

static struct ring *to_ring(struct media_edge *e)
{
	return container_of(e, struct ring, edge);
}

/* ---- submission ---- */

static void prepare_fixed(struct io_uring_sqe *sqe, const struct media_io *io, int fd)
{
	if (io->kind == MEDIA_IO_READ)
		io_uring_prep_read_fixed(sqe, fd, io->buffer, io->length, io->offset, 0);
	else
		io_uring_prep_write_fixed(sqe, fd, io->buffer, io->length, io->offset, 0);
}

static void prepare_vector(struct io_uring_sqe *sqe, const struct media_io *io, int fd)
{
	if (io->kind == MEDIA_IO_READ)
		io_uring_prep_readv(sqe, fd, io->iov, io->n_iov, io->offset);
	else
		io_uring_prep_writev(sqe, fd, io->iov, io->n_iov, io->offset);
}

static void prepare_plain(struct io_uring_sqe *sqe, const struct media_io *io, int fd)
{
	if (io->kind == MEDIA_IO_READ)
		io_uring_prep_read(sqe, fd, io->buffer, io->length, io->offset);
	else
		io_uring_prep_write(sqe, fd, io->buffer, io->length, io->offset);
}

static void prepare_move(struct ring *r, struct io_uring_sqe *sqe, const struct media_io *io,
			 int fd)
{
	if (io->n_iov)
		prepare_vector(sqe, io, fd);
	else if (r->fixed_buffers && media_staging_has(&r->m->staging, io->buffer, io->length))
		prepare_fixed(sqe, io, fd);
	else
		prepare_plain(sqe, io, fd);
	if (io->durable)
		sqe->rw_flags = RWF_DSYNC;
}

static void prepare_timeout(struct ring *r, struct io_uring_sqe *sqe, const struct media_io *io)
{
	r->timeout = (struct __kernel_timespec){.tv_nsec = (long long)io->length * 1000};
	io_uring_prep_timeout(sqe, &r->timeout, 0, 0);
}

static void ring_queue(struct media_edge *e, const struct media_io *io)
{
	struct ring *r = to_ring(e);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
	int fd = r->fixed_file ? 0 : r->m->fd;

	assert(sqe);
	if (io->kind == MEDIA_IO_TIMEOUT)
		prepare_timeout(r, sqe, io);
	else if (io->kind == MEDIA_IO_SYNC)
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
	else
		prepare_move(r, sqe, io, fd);
	if (r->fixed_file && io->kind != MEDIA_IO_TIMEOUT)
		sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = io->cookie;
	io_uring_smp_store_release(r->uring.sq.ktail, r->uring.sq.sqe_tail);
	atomic_fetch_add_explicit(&r->unsubmitted, 1, memory_order_release);
}

static bool ring_queued(struct media_edge *e)
{
	return atomic_load_explicit(&to_ring(e)->unsubmitted, memory_order_relaxed) > 0;
}

static int ring_submit(struct media_edge *e, bool wait)
{
	struct ring *r = to_ring(e);
	uint32_t n = atomic_exchange(&r->unsubmitted, 0);
	int taken;

	if (n == 0 && !wait)
		return 0;
	atomic_fetch_add_explicit(&r->submits, 1, memory_order_relaxed);
	taken = io_uring_enter((unsigned int)r->uring.ring_fd, n, wait,
			       wait ? IORING_ENTER_GETEVENTS : 0, NULL);
	if (taken >= (int)n)
		return 0;
	atomic_fetch_add(&r->unsubmitted, taken < 0 ? n : n - (uint32_t)taken);
	return taken < 0 ? taken : -EAGAIN;
}

/* ---- completion ---- */

/*
 * Returns whether there is a completion. Called without the lock that reaping holds, so it does not
 * use liburing's check, which requires that lock.
 */
static bool ring_ready(struct media_edge *e)
{
	struct io_uring_cq *cq = &to_ring(e)->uring.cq;

	return __atomic_load_n(cq->ktail, __ATOMIC_ACQUIRE) !=
	       __atomic_load_n(cq->khead, __ATOMIC_RELAXED);
}

static unsigned int ring_reap(struct media_edge *e, struct media_event *events, unsigned int n)
{
	struct io_uring *uring = &to_ring(e)->uring;
	unsigned int there = io_uring_cq_ready(uring), head = *uring->cq.khead;

	if (n > there)
		n = there;
	for (unsigned int i = 0; i < n; i++) {
		const struct io_uring_cqe *cqe = &uring->cq.cqes[(head + i) & uring->cq.ring_mask];

		events[i] = (struct media_event){.cookie = cqe->user_data, .result = cqe->res};
	}
	io_uring_cq_advance(uring, n);
	return n;
}

/* ---- create and destroy ---- */

static int try_set_up(struct ring *r, unsigned int entries)
{
	struct io_uring_params params = {.flags = IORING_SETUP_SUBMIT_ALL};
	int err = io_uring_queue_init_params(entries, &r->uring, &params);

	if (err == -EINVAL) { /* before 5.18 */
		log_info("medium %d: the kernel does not support IORING_SETUP_SUBMIT_ALL",
			 r->m->fd);
		err = io_uring_queue_init(entries, &r->uring, 0);
	}
	return err;
}

/*
 * Retries for PATIENCE_MS: the kernel tears rings down asynchronously, so the memory of rings that
 * were closed just now is freed a moment later.
 */
static int retry_set_up(struct ring *r)
{
	const struct timespec nap = {.tv_nsec = 10 * NS_PER_MS};
	uint64_t until = clock_ns() + PATIENCE_MS * NS_PER_MS;
	int err;

	do
		err = try_set_up(r, r->m->depth + SPARE);
	while (err == -ENOMEM && clock_ns() < until && nanosleep(&nap, NULL) == 0);
	return err;
}

/* Some kernels count the ring as locked memory: if little is left, a smaller ring is used. */
static int set_up(struct ring *r)
{
	int err = try_set_up(r, r->m->depth + SPARE);

	while (err == -ENOMEM && r->m->depth > LEAST_DEPTH) {
		r->m->depth /= 2;
		log_info("medium %d: reduced to %u operations in flight; raise ulimit -l", r->m->fd,
			 r->m->depth);
		err = try_set_up(r, r->m->depth + SPARE);
	}
	if (err == -ENOMEM)
		err = retry_set_up(r);
	if (err)
		log_err("media: cannot create an io_uring: %s; see kernel.io_uring_disabled, "
			"ulimit -l",
			strerror(-err));
	return err;
}

/* Leaves some locked memory to other processes of the same user. */
static bool may_lock(uint64_t bytes)
{
	struct rlimit limit;

	return geteuid() == 0 ||
	       (!getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur / 4 >= bytes);
}

static void register_file_and_staging(struct ring *r)
{
	struct iovec memory = {r->m->staging.memory, r->m->staging.bytes};

	r->fixed_file = io_uring_register_files(&r->uring, &r->m->fd, 1) == 0;
	r->fixed_buffers = memory.iov_len <= MOST_FIXED && may_lock(memory.iov_len) &&
			   io_uring_register_buffers(&r->uring, &memory, 1) == 0;
	if (!r->fixed_file)
		log_info("medium %d: its file is not registered with io_uring", r->m->fd);
	if (!r->fixed_buffers)
		log_info("medium %d: its staging memory is not registered; raise ulimit -l",
			 r->m->fd);
}

int ring_open(struct ring **out, struct media *m)
{
	struct ring *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->m = m;
	r->edge = (struct media_edge){.queue = ring_queue,
				      .reap = ring_reap,
				      .ready = ring_ready,
				      .queued = ring_queued,
				      .submit = ring_submit};
	err = set_up(r);
	if (err)
		goto err_free;
	for (unsigned int i = 0; i < r->uring.sq.ring_entries; i++)
		r->uring.sq.array[i] = i;
	register_file_and_staging(r);
	err = io_uring_register_eventfd(&r->uring, m->event_fd);
	if (err)
		goto err_exit;
	ring_arm(r, false);
	*out = r;
	return 0;

err_exit:
	io_uring_queue_exit(&r->uring);
err_free:
	free(r);
	return err;
}

void ring_close(struct ring *r)
{
	io_uring_queue_exit(&r->uring);
	free(r);
}

/* Keeps the mappings: they are the parent's rings. */
void ring_abandon(struct ring *r)
{
	close(r->uring.ring_fd);
	free(r);
}

struct media_edge *ring_edge(struct ring *r)
{
	return &r->edge;
}

uint64_t ring_submits(const struct ring *r)
{
	return atomic_load_explicit(&r->submits, memory_order_relaxed);
}

void ring_arm(struct ring *r, bool on)
{
	io_uring_cq_eventfd_toggle(&r->uring, on);
}
