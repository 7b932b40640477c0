// SPDX-License-Identifier: BSD-2-Clause
/*
 * table.c - from a descriptor to its socket, and how long a socket lives.
 */
#include "rsocket/rsocket.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CHUNK_SIZE 1024
#define CHUNKS	   1024 /* so descriptors up to 2^20, the kernel's usual limit */
#define STRIPES	   64

/* A slot is read and written under its stripe, so that a socket found is a socket held. */
static _Atomic(struct rsocket **) chunks[CHUNKS];
static pthread_mutex_t stripes[STRIPES] = {[0 ... STRIPES - 1] = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t *stripe_of(int fd)
{
	return &stripes[fd % STRIPES];
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
	LOCK_FOR_SCOPE(stripe_of(rs->fd));
	*slot_of(rs->fd) = rs;
	return 0;
}

void rs_table_remove(struct rsocket *rs)
{
	LOCK_FOR_SCOPE(stripe_of(rs->fd));
	*slot_of(rs->fd) = NULL;
}

struct rsocket *rs_get(int fd)
{
	struct rsocket **slot = slot_of(fd);
	struct rsocket *rs;

	if (!slot)
		return NULL;
	LOCK_FOR_SCOPE(stripe_of(fd));
	rs = *slot;
	if (rs)
		atomic_fetch_add(&rs->refs, 1);
	return rs;
}

struct rsocket *rs_new(int domain, const struct rs_config *config)
{
	struct rsocket *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	rs->fd = -1;
	rs->domain = domain;
	rs->config = *config;
	rs->linger = (struct linger){.l_onoff = 1, .l_linger = 10};
	atomic_init(&rs->refs, 1);
	pthread_mutex_init(&rs->lock, NULL);
	pthread_mutex_init(&rs->send_lock, NULL);
	pthread_mutex_init(&rs->recv_lock, NULL);
	list_init(&rs->waiters);
	list_init(&rs->ready);
	list_init(&rs->ready_link);
	list_init(&rs->local_mappings);
	return rs;
}

static void rs_free(struct rsocket *rs)
{
	rs_iomaps_free(rs);
	rs_endpoint_close(rs);
	if (rs->id)
		rdma_destroy_id(rs->id);
	if (rs->channel)
		rdma_destroy_event_channel(rs->channel);
	free(rs->route);
	pthread_mutex_destroy(&rs->recv_lock);
	pthread_mutex_destroy(&rs->send_lock);
	pthread_mutex_destroy(&rs->lock);
	free(rs);
}

void rs_put(struct rsocket *rs)
{
	if (atomic_fetch_sub(&rs->refs, 1) == 1)
		rs_free(rs);
}
