// SPDX-License-Identifier: BSD-2-Clause
/*
 * units.c - what all units of a target share: verbs objects, memory, polling for completions.
 */
#include "block/unit/lun.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/nonblock.h"

#define MIN_BUFFERS 4
#define CQ_DEPTH    (STAG_BLOCK_MAX_LUNS * LUN_DEPTH)

/* ---- memory ---------------------------------------------------------------------- */

/* Allocates two buffers more than units_buffer() hands out: zeroes, and the scratch memory. */
static int make_memory(struct units *u, uint64_t bytes)
{
	size_t n = bytes / UNITS_BUFFER < MIN_BUFFERS ? MIN_BUFFERS : bytes / UNITS_BUFFER;

	u->slab_bytes = (n + 2) * UNITS_BUFFER;
	u->slab = mmap(NULL, u->slab_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (u->slab == MAP_FAILED) {
		u->slab = NULL;
		return block_fail(ENOMEM, "out of memory for %zu buffers", n);
	}
	u->buffers = calloc(n, sizeof(*u->buffers));
	u->mr = ibv_reg_mr(
		u->pd, u->slab, u->slab_bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!u->buffers || !u->mr)
		return block_fail(ENOMEM, "cannot register %zu buffers", n);
	u->num_buffers = (unsigned int)n;
	for (size_t i = 0; i < n; i++) {
		u->buffers[i].bytes = u->slab + i * UNITS_BUFFER;
		u->buffers[i].lkey = u->mr->lkey;
		list_add_tail(&u->free_buffers, &u->buffers[i].link);
	}
	u->zeroes = u->slab + n * UNITS_BUFFER;
	u->scratch = u->slab + (n + 1) * UNITS_BUFFER;
	return 0;
}

struct units_buffer *units_buffer(struct units *u)
{
	struct list *first = u->free_buffers.next;

	if (list_empty(&u->free_buffers))
		return NULL;
	list_del(first);
	return list_entry(first, struct units_buffer, link);
}

/* Puts the buffer first: the one used last is likely in a cache. */
void units_put_buffer(struct units *u, struct units_buffer *b)
{
	list_add_tail(u->free_buffers.next, &b->link);
}

unsigned int units_num_buffers(const struct units *u)
{
	return u->num_buffers;
}

struct ibv_pd *units_pd(struct units *u)
{
	return u->pd;
}

/* ---- verbs ------------------------------------------------------------------------- */

static int make_objects(struct units *u)
{
	u->dv = dv_find();
	if (!u->dv)
		return block_fail(EOPNOTSUPP, "logical units need the software adapter: run the "
					      "program with 'stag run --'");
	u->context = dv_open_first(u->dv);
	if (!u->context)
		return block_fail(ENODEV, "the software adapter has no device");
	u->pd = ibv_alloc_pd(u->context);
	u->channel = ibv_create_comp_channel(u->context);
	if (!u->pd || !u->channel)
		return block_fail(errno, "software adapter: cannot create verbs objects: %s",
				  strerror(errno));
	u->cq = ibv_create_cq(u->context, CQ_DEPTH, NULL, u->channel, 0);
	if (!u->cq)
		return block_fail(errno, "cannot create a completion queue: %s", strerror(errno));
	return set_nonblocking(u->channel->fd);
}

static int add_to_epoll(struct units *u, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};

	return epoll_ctl(u->fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

static int make_events(struct units *u)
{
	int rc = units_helper_create(&u->helper);

	if (rc != 0)
		return block_fail(-rc, "cannot start a thread: %s", strerror(-rc));
	u->fd = epoll_create1(EPOLL_CLOEXEC);
	rc = u->fd < 0 ? -errno : add_to_epoll(u, u->channel->fd);
	if (rc == 0)
		rc = add_to_epoll(u, units_helper_fd(u->helper));
	return rc == 0 ? 0 : block_fail(-rc, "cannot set up epoll: %s", strerror(-rc));
}

int units_create(struct units **out, uint64_t staging_bytes)
{
	struct units *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return block_fail(ENOMEM, "out of memory");
	u->fd = -1;
	list_init(&u->free_buffers);
	list_init(&u->scratch_queue);
	list_init(&u->dirty);
	rc = make_objects(u);
	if (rc == 0)
		rc = make_memory(u, staging_bytes);
	if (rc == 0)
		rc = make_events(u);
	if (rc != 0) {
		units_destroy(u);
		return rc;
	}
	*out = u;
	return 0;
}

void units_destroy(struct units *u)
{
	if (!u)
		return;
	units_helper_destroy(u->helper);
	if (u->fd >= 0)
		close(u->fd);
	if (u->mr)
		ibv_dereg_mr(u->mr);
	if (u->cq)
		ibv_destroy_cq(u->cq);
	if (u->channel)
		ibv_destroy_comp_channel(u->channel);
	if (u->pd)
		ibv_dealloc_pd(u->pd);
	if (u->context)
		ibv_close_device(u->context);
	if (u->slab)
		munmap(u->slab, u->slab_bytes);
	free(u->buffers);
	free(u);
}

/* ---- polling -------------------------------------------------------------------------- */

static void post_dirty(struct units *u)
{
	while (!list_empty(&u->dirty)) {
		struct lun *l = list_entry(u->dirty.next, struct lun, dirty);

		list_del(&l->dirty);
		lun_post(l);
	}
}

static void poll_completions(struct units *u)
{
	struct ibv_wc wc[UNITS_BATCH];
	int n;

	do {
		n = ibv_poll_cq(u->cq, UNITS_BATCH, wc);
		u->due |= n > 0 && u->armed;
		for (int i = 0; i < n; i++) {
			struct lun_io *io = (struct lun_io *)(uintptr_t)wc[i].wr_id;

			lun_completed(io->lun, io, &wc[i]);
		}
	} while (n == UNITS_BATCH);
}

static void poll_helper(struct units *u)
{
	struct lun_io *io;

	while ((io = units_helper_poll(u->helper)))
		lun_helper_done(io);
}

/* Consumes the completion event. Call it only when one is due: finding none costs system calls. */
static void consume_event(struct units *u)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(u->channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		u->armed = u->due = false;
	}
}

int units_poll(struct units *u)
{
	u->n_done = 0;
	if (u->due)
		consume_event(u);
	post_dirty(u);
	poll_completions(u);
	poll_helper(u);
	post_dirty(u);
	return u->n_done;
}

int units_arm(struct units *u)
{
	if (!u->armed && ibv_req_notify_cq(u->cq, 0) != 0)
		return 1;
	u->armed = true;
	u->n_done = 0;
	post_dirty(u);
	poll_completions(u);
	poll_helper(u);
	post_dirty(u);
	return u->n_done > 0;
}

int units_fd(struct units *u)
{
	return u->fd;
}
