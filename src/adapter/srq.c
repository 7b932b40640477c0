// SPDX-License-Identifier: BSD-2-Clause
/*
 * srq.c - receive buffers that several queue pairs share.
 */
#include "adapter/srq.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device.h"
#include "adapter/misuse.h"
#include "adapter/pd.h"
#include "base/log.h"

int srq_create(struct stag_ctx *ctx, struct stag_pd *pd, struct ibv_srq_attr *attr,
	       void *srq_context, struct stag_srq **out)
{
	static atomic_uint next = 1;
	struct stag_srq *srq;
	int err;

	if (attr->max_wr == 0 || attr->max_wr > STAG_MAX_SRQ_WR || attr->max_sge > STAG_MAX_SGE) {
		log_info("srq: %u receives of %u SGEs requested; at most %u of %u are possible",
			 attr->max_wr, attr->max_sge, STAG_MAX_SRQ_WR, STAG_MAX_SGE);
		return -EINVAL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	err = rq_init(&srq->rq, attr->max_wr, attr->max_sge ? attr->max_sge : 1);
	if (err) {
		free(srq);
		return err;
	}
	srq->num = atomic_fetch_add(&next, 1);
	srq->pd = pd;
	atomic_fetch_add(&pd->users, 1);
	lock_init(&srq->lock);
	list_init(&srq->waiters);
	srq->ibv.context = &ctx->v.context;
	srq->ibv.srq_context = srq_context;
	srq->ibv.pd = &pd->ibv;
	srq->ibv.handle = srq->num;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	attr->max_sge = srq->rq.max_sge;
	*out = srq;
	return 0;
}

/* Resizes the queue to max_wr; the posted requests move over. */
static int resize(struct stag_srq *srq, uint32_t max_wr)
{
	struct rq bigger;
	int err;

	assert(lock_held(&srq->lock));
	if (max_wr == 0 || max_wr > STAG_MAX_SRQ_WR || max_wr < srq->rq.put - srq->rq.get)
		return -EINVAL;
	err = rq_init(&bigger, max_wr, srq->rq.max_sge);
	if (err)
		return err;
	for (struct rwqe *w; (w = rq_peek(&srq->rq)); srq->rq.get++)
		memcpy(bigger.mem + (bigger.put++ & bigger.mask) * bigger.stride, w, bigger.stride);
	rq_free(&srq->rq);
	srq->rq = bigger;
	return 0;
}

int srq_modify(struct stag_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	int err = 0;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return -EINVAL;
	lock_acquire(&srq->lock);
	if (mask & IBV_SRQ_MAX_WR)
		err = resize(srq, attr->max_wr);
	if (!err && (mask & IBV_SRQ_LIMIT)) {
		if (attr->srq_limit > srq->rq.max_wr)
			err = -EINVAL;
		else
			srq->limit = attr->srq_limit;
	}
	lock_release(&srq->lock);
	return err;
}

void srq_query(struct stag_srq *srq, struct ibv_srq_attr *attr)
{
	lock_acquire(&srq->lock);
	attr->max_wr = srq->rq.max_wr;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	lock_release(&srq->lock);
}

int srq_destroy(struct stag_srq *srq)
{
	char name[ACKS_NAME];

	if (atomic_load(&srq->users)) {
		misuse(__func__, srq->num, "srq %u: destroy refused, %d queue pairs use it",
		       srq->num, atomic_load(&srq->users));
		return -EBUSY;
	}
	ctx_drop_async(to_stag_ctx(srq->ibv.context), &srq->ibv);
	snprintf(name, sizeof(name), "srq %u", srq->num);
	wait_for_acks(&(struct acks){.mutex = &srq->ibv.mutex,
				     .cond = &srq->ibv.cond,
				     .acked = &srq->ibv.events_completed,
				     .handed = srq->async_sent,
				     .types = srq->async_types},
		      name);
	atomic_fetch_sub(&srq->pd->users, 1);
	rq_free(&srq->rq);
	lock_destroy(&srq->lock);
	free(srq);
	return 0;
}

static void on_waiter(struct work *work)
{
	struct srq_waiter *w = container_of(work, struct srq_waiter, work);

	w->fn(w);
}

void srq_waiter_init(struct srq_waiter *w, void (*fn)(struct srq_waiter *w))
{
	list_init(&w->link);
	w->fn = fn;
}

void srq_stop_waiting(struct stag_srq *srq, struct srq_waiter *w)
{
	lock_acquire(&srq->lock);
	list_del(&w->link);
	lock_release(&srq->lock);
}

/* Wakes as many as there are new receives. The engine's lock is a leaf like this one, and inside it. */
static void wake_waiters(struct stag_srq *srq, uint64_t n)
{
	assert(lock_held(&srq->lock));
	for (; n && !list_empty(&srq->waiters); n--) {
		struct srq_waiter *w = list_entry(srq->waiters.next, struct srq_waiter, link);

		list_del(&w->link);
		work_queue(&w->work, on_waiter);
	}
}

int srq_post(struct stag_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint64_t n = 0;
	int err = 0;

	lock_acquire(&srq->lock);
	for (; wr && !err; wr = err ? wr : wr->next) {
		err = rq_put(&srq->rq, wr);
		if (err)
			break;
		n++;
	}
	wake_waiters(srq, n);
	lock_release(&srq->lock);
	atomic_fetch_add_explicit(&stag_totals.shared_receives, n, memory_order_relaxed);
	if (err) {
		rq_log_refused(&srq->rq, wr, err, "srq", srq->num);
		*bad = wr;
	}
	return err;
}

int srq_take_fit(struct stag_srq *srq, uint32_t need, struct rwqe *out, struct srq_waiter *waiter)
{
	struct rwqe *w;
	bool hit_limit = false;
	int err;

	lock_acquire(&srq->lock);
	w = rq_peek(&srq->rq);
	err = !w ? -ENOENT : w->length < need ? -EMSGSIZE : 0;
	if (!err) {
		memcpy(out, w, sizeof(*w) + w->num_sge * sizeof(struct ibv_sge));
		srq->rq.get++;
		if (srq->limit && srq->rq.put - srq->rq.get < srq->limit) {
			srq->limit = 0; /* one event each time it is armed */
			hit_limit = true;
		}
	} else if (!w && waiter && list_empty(&waiter->link)) {
		list_add_tail(&srq->waiters, &waiter->link);
	}
	lock_release(&srq->lock);
	if (hit_limit) {
		struct ibv_async_event ev = {.element.srq = &srq->ibv,
					     .event_type = IBV_EVENT_SRQ_LIMIT_REACHED};

		ctx_async(to_stag_ctx(srq->ibv.context), &ev);
	}
	return err;
}

bool srq_take(struct stag_srq *srq, struct rwqe *out, struct srq_waiter *waiter)
{
	return !srq_take_fit(srq, 0, out, waiter);
}
