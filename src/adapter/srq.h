/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * srq.h - shared receive queues.
 */
#ifndef STAG_SRQ_H
#define STAG_SRQ_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "adapter/engine.h"
#include "adapter/rq.h"
#include "base/list.h"
#include "base/lock.h"

struct stag_ctx;
struct stag_pd;

/*
 * What waits for a receive of a shared queue. fn is called on the engine thread after one was posted; it may find that
 * another took it.
 */
struct srq_waiter {
	struct list link; /* srq->lock */
	struct work work;
	void (*fn)(struct srq_waiter *w);
};

struct stag_srq {
	struct ibv_srq ibv;
	struct stag_pd *pd;
	uint32_t num;
	atomic_int users;
	struct lock lock;
	struct rq rq;
	struct list waiters;
	uint32_t limit;	      /* 0: not armed */
	uint32_t async_sent;  /* events that the program was given */
	uint32_t async_types; /* a bit for each type among them */
};

static inline struct stag_srq *to_stag_srq(struct ibv_srq *srq)
{
	return (struct stag_srq *)srq;
}

/* attr: updated to what was given */
int srq_create(struct stag_ctx *ctx, struct stag_pd *pd, struct ibv_srq_attr *attr,
	       void *srq_context, struct stag_srq **out);
int srq_modify(struct stag_srq *srq, const struct ibv_srq_attr *attr, int mask);
void srq_query(struct stag_srq *srq, struct ibv_srq_attr *attr);
int srq_destroy(struct stag_srq *srq);
int srq_post(struct stag_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/*
 * Copies the oldest request to *out (room for the srq's max_sge) and removes it. Returns false
 * if there is none; w (or NULL) waits for the next one then.
 */
bool srq_take(struct stag_srq *srq, struct rwqe *out, struct srq_waiter *w);
/* The same for a message of need bytes: -EMSGSIZE, and nothing is removed, if the oldest is shorter; -ENOENT: none. */
int srq_take_fit(struct stag_srq *srq, uint32_t need, struct rwqe *out, struct srq_waiter *w);

void srq_waiter_init(struct srq_waiter *w, void (*fn)(struct srq_waiter *w));
void srq_stop_waiting(struct stag_srq *srq, struct srq_waiter *w);

#endif
