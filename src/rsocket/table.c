// SPDX-License-Identifier: BSD-2-Clause
/* table.c - maps a descriptor to its socket, and counts references. */
#include "rsocket/rsocket.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"

#define CHUNK_SIZE 1024
#define CHUNKS	   1024 /* descriptors up to 2^20, the kernel's usual limit */
#define STRIPES	   64

/*
 * A slot, and the reference count of the socket in it, are accessed with its stripe locked, so that
 * a lookup always gets a reference.
 */
static struct stripe {
	struct lock lock;
	pthread_cond_t put; /* signalled when a reference to a closing socket is dropped */
} stripes[STRIPES] = {[0 ... STRIPES - 1] = {LOCK_INITIALIZER, PTHREAD_COND_INITIALIZER}};

static _Atomic(struct rsocket **) chunks[CHUNKS];

static atomic_ullong serials;

static struct stripe *stripe_of(int fd)
{
	return &stripes[(unsigned)fd % STRIPES];
}

static struct rsocket **slot_of(int fd)
{
	struct rsocket **chunk;

	if (fd < 0 || fd >= CHUNKS * CHUNK_SIZE)
		return NULL;
	chunk = atomic_load_explicit(&chunks[fd / CHUNK_SIZE], memory_order_acquire);
	return chunk ? &chunk[fd % CHUNK_SIZE] : NULL;
}

static int chunk_make(int fd)
{
	struct rsocket **none = NULL, **chunk;

	if (slot_of(fd))
		return 0;
	if (fd < 0 || fd >= CHUNKS * CHUNK_SIZE)
		return -EMFILE;
	chunk = calloc(CHUNK_SIZE, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	if (!atomic_compare_exchange_strong(&chunks[fd / CHUNK_SIZE], &none, chunk))
		free(chunk);
	return 0;
}

int rs_table_insert(struct rsocket *rs)
{
	int ret = chunk_make(rs->fd);

	if (ret)
		return ret;
	HOLD_FOR_SCOPE(&stripe_of(rs->fd)->lock);
	*slot_of(rs->fd) = rs;
	rs->refs++;
	return 0;
}

void rs_table_remove(struct rsocket *rs)
{
	struct stripe *stripe = stripe_of(rs->fd);

	HOLD_FOR_SCOPE(&stripe->lock);
	*slot_of(rs->fd) = NULL;
	rs->refs--;
}

void rs_wait_alone(struct rsocket *rs)
{
	struct stripe *stripe = stripe_of(rs->fd);

	HOLD_FOR_SCOPE(&stripe->lock);
	while (rs->refs > 1)
		lock_wait(&stripe->lock, &stripe->put);
}

struct rsocket *rs_get(int fd)
{
	struct rsocket **slot = slot_of(fd);
	struct rsocket *rs;

	if (!slot)
		return NULL;
	HOLD_FOR_SCOPE(&stripe_of(fd)->lock);
	rs = *slot;
	if (rs)
		rs->refs++;
	return rs;
}

struct rsocket *rs_new(int domain, const struct rs_config *config)
{
	struct rsocket *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	rs->fd = -1;
	rs->domain = domain;
	rs->opt.config = *config;
	rs->opt.linger = (struct linger){.l_onoff = 1, .l_linger = 10};
	rs->refs = 1;
	rs->serial = atomic_fetch_add(&serials, 1);
	lock_init(&rs->lock);
	lock_init(&rs->send_lock);
	lock_init(&rs->recv_lock);
	list_init(&rs->waiters);
	list_init(&rs->backlog.ready);
	list_init(&rs->child.link);
	list_init(&rs->iomap.local);
	return rs;
}

static void rs_free(struct rsocket *rs)
{
	rs_iomaps_free(rs);
	rs_endpoint_close(rs);
	if (rs->conn.id)
		rdma_destroy_id(rs->conn.id);
	if (rs->conn.channel)
		rdma_destroy_event_channel(rs->conn.channel);
	free(rs->opt.route);
	lock_destroy(&rs->recv_lock);
	lock_destroy(&rs->send_lock);
	lock_destroy(&rs->lock);
	free(rs);
}

void rs_put(struct rsocket *rs)
{
	struct stripe *stripe = stripe_of(rs->fd);
	int left;

	lock_acquire(&stripe->lock);
	left = --rs->refs;
	if (left == 1)
		pthread_cond_broadcast(&stripe->put);
	lock_release(&stripe->lock);
	if (!left)
		rs_free(rs);
}
