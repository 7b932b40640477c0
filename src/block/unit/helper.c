// SPDX-License-Identifier: BSD-2-Clause
/*
 * helper.c - a thread for system calls that block: punching holes, finding extents, syncing, and reconnecting a unit.
 *
 * io_uring has fallocate(2), but verbs have no such operation, and writing zeroes instead would fill a disk that is to be
 * emptied. The thread does one job at a time: a disk that is slow to free space should slow down the others as little as
 * possible.
 */
#include "block/unit/lun.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"

struct job {
	struct list link;
	struct lun_io *io;
	int fd;
};

struct units_helper {
	pthread_t thread;
	struct lock lock;
	pthread_cond_t wake;
	struct list jobs, done;
	atomic_uint n_done;
	bool ends;
	int fd;
};

/* ---- the calls -------------------------------------------------------------------- */

static int punch(const struct lun_io *io, int fd)
{
	bool durable = io->fua || !lun_facts(io->lun)->write_back;

	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(io->offset + io->at),
		      (off_t)io->step) != 0)
		return -errno;
	return durable && fdatasync(fd) != 0 ? -errno : 0;
}

/* Reports a block as unmapped only if all of it is a hole. */
static int find_extent(struct lun_io *io, int fd)
{
	uint64_t end = io->offset + io->length, block = lun_facts(io->lun)->block;
	off_t data = lseek(fd, (off_t)io->offset, SEEK_DATA), hole;

	io->mapped = true;
	io->where = end;
	if (data < 0 && errno != ENXIO)
		return 0; /* the file system cannot tell */
	if (data < 0 || (uint64_t)data >= io->offset + block) {
		io->mapped = false;
		if (data >= 0 && (uint64_t)data < end)
			io->where = (uint64_t)data / block * block;
		return 0;
	}
	hole = lseek(fd, (off_t)io->offset, SEEK_HOLE);
	if (hole >= 0 && (uint64_t)hole < end)
		io->where = ((uint64_t)hole + block - 1) / block * block;
	return 0;
}

static int reconnect(struct lun *l)
{
	int rc = lun_reconnect(l);

	if (rc != 0)
		log_warn("block: %s", stag_block_error());
	return rc;
}

static int do_job(const struct job *j)
{
	switch ((enum lun_phase)j->io->phase) {
	case PHASE_PUNCH:
		return punch(j->io, j->fd);
	case PHASE_SYNC:
		return fdatasync(j->fd) == 0 ? 0 : -errno;
	case PHASE_RECONNECT:
		return reconnect(j->io->lun);
	case PHASE_CALL:
		return j->io->call(j->io->arg);
	default:
		return find_extent(j->io, j->fd);
	}
}

/* ---- the thread ---------------------------------------------------------------------- */

static struct job *next_job(struct units_helper *h)
{
	struct job *j = NULL;

	HOLD_FOR_SCOPE(&h->lock);
	while (list_empty(&h->jobs) && !h->ends)
		lock_wait(&h->lock, &h->wake);
	if (!list_empty(&h->jobs)) {
		j = list_entry(h->jobs.next, struct job, link);
		list_del(&j->link);
	}
	return j;
}

static void *run_helper(void *arg)
{
	struct units_helper *h = arg;
	uint64_t one = 1;
	struct job *j;

	while ((j = next_job(h))) {
		j->io->result = do_job(j);
		lock_acquire(&h->lock);
		list_add_tail(&h->done, &j->link);
		if (atomic_fetch_add(&h->n_done, 1) == 0 && write(h->fd, &one, sizeof(one)) < 0)
			log_err("block: helper: cannot signal the event descriptor: %s",
				strerror(errno));
		lock_release(&h->lock);
	}
	return NULL;
}

int units_helper_create(struct units_helper **out)
{
	struct units_helper *h = calloc(1, sizeof(*h));
	int rc = ENOMEM;

	if (!h)
		return -ENOMEM;
	lock_init(&h->lock);
	pthread_cond_init(&h->wake, NULL);
	list_init(&h->jobs);
	list_init(&h->done);
	h->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->fd >= 0)
		rc = pthread_create(&h->thread, NULL, run_helper, h);
	if (rc == 0) {
		*out = h;
		return 0;
	}
	if (h->fd >= 0)
		close(h->fd);
	free(h);
	return -rc;
}

void units_helper_destroy(struct units_helper *h)
{
	if (!h)
		return;
	lock_acquire(&h->lock);
	h->ends = true;
	pthread_cond_signal(&h->wake);
	lock_release(&h->lock);
	pthread_join(h->thread, NULL);
	lock_destroy(&h->lock);
	pthread_cond_destroy(&h->wake);
	close(h->fd);
	free(h);
}

int units_helper_fd(struct units_helper *h)
{
	return h->fd;
}

int units_helper_submit(struct units_helper *h, struct lun_io *io, int fd)
{
	struct job *j = malloc(sizeof(*j));

	if (!j)
		return -ENOMEM;
	*j = (struct job){.io = io, .fd = fd};
	lock_acquire(&h->lock);
	list_add_tail(&h->jobs, &j->link);
	pthread_cond_signal(&h->wake);
	lock_release(&h->lock);
	return 0;
}

/* The descriptor stays readable as long as a job is done and not polled. */
struct lun_io *units_helper_poll(struct units_helper *h)
{
	struct lun_io *io;
	struct job *j;
	uint64_t n;

	if (atomic_load(&h->n_done) == 0)
		return NULL;
	lock_acquire(&h->lock);
	j = list_entry(h->done.next, struct job, link);
	list_del(&j->link);
	if (atomic_fetch_sub(&h->n_done, 1) == 1 && read(h->fd, &n, sizeof(n)) < 0)
		log_err("block: helper: cannot reset the event descriptor: %s", strerror(errno));
	lock_release(&h->lock);
	io = j->io;
	free(j);
	return io;
}
