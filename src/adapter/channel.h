/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.h - completion channels.
 */
#ifndef STAG_CHANNEL_H
#define STAG_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <infiniband/verbs.h>

#include "base/list.h"
#include "base/lock.h"

struct stag_cq;
struct stag_ctx;

struct stag_channel {
	struct ibv_comp_channel ibv; /* fd: a semaphore eventfd that counts queued events */
	struct lock lock;
	struct list ready;    /* stag_cq.ready: completion queues with an event */
	struct lock cqs_lock; /* protects cqs; acquired before any qps_lock */
	struct list cqs;      /* stag_cq.channel_link */
	atomic_int sleepers;  /* threads in channel_get_event() */
	atomic_bool watched;  /* a sleeper watches the sockets; nobody else may claim any then */
};

static inline struct stag_channel *to_stag_channel(struct ibv_comp_channel *c)
{
	return (struct stag_channel *)c;
}

int channel_create(struct stag_ctx *ctx, struct stag_channel **out);
int channel_destroy(struct stag_channel *ch);			     /* -EBUSY while a CQ uses it */
int channel_get_event(struct stag_channel *ch, struct stag_cq **cq); /* blocks unless O_NONBLOCK */

void channel_wake(struct stag_channel *ch, struct stag_cq *cq);	  /* queues an event */
void channel_forget(struct stag_channel *ch, struct stag_cq *cq); /* drops its queued events */

#endif
