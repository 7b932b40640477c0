// SPDX-License-Identifier: BSD-2-Clause
/*
 * cq.c - completion queues.
 *
 * The ring grows on demand: a completion is never lost. A program that lets more completions
 * accumulate than it requested entries gets IBV_EVENT_CQ_ERR, once.
 */
#include "adapter/cq.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/channel.h"
#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/misuse.h"
#include "adapter/engine.h"
#include "base/clock.h"
#include "base/log.h"

#define FIRST_ENTRIES 256 /* a program may ask for half a million and use ten */

int cq_create(struct stag_ctx *ctx, int cqe, struct stag_channel *ch, void *cq_context,
	      bool timestamps, struct stag_cq **out)
{
	static atomic_uint next = 1;
	struct stag_cq *cq;

	if (cqe <= 0 || cqe > STAG_MAX_CQE) {
		log_info("cq: %d entries requested; 1 to %d are possible", cqe, STAG_MAX_CQE);
		return -EINVAL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->ring = calloc(FIRST_ENTRIES, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->mask = FIRST_ENTRIES - 1;
	cq->wants_ts = timestamps;
	cq->ibv.context = &ctx->v.context;
	cq->ibv.channel = ch ? &ch->ibv : NULL;
	cq->ibv.cq_context = cq_context;
	cq->ibv.handle = atomic_fetch_add(&next, 1);
	cq->ibv.cqe = cqe;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	lock_init(&cq->lock);
	lock_init(&cq->qps_lock);
	lock_init(&cq->ex_lock);
	list_init(&cq->ready);
	list_init(&cq->qps);
	list_init(&cq->polled_link);
	list_init(&cq->channel_link);
	cq->channel = ch;
	if (ch) {
		lock_acquire(&ch->cqs_lock);
		list_add_tail(&ch->cqs, &cq->channel_link);
		ch->ibv.refcnt++;
		lock_release(&ch->cqs_lock);
	}
	ctx_get(ctx);
	*out = cq;
	return 0;
}

/* Leaves the channel's lists, and drops events that nobody fetched. */
static void leave_channel(struct stag_cq *cq)
{
	struct stag_channel *ch = cq->channel;

	lock_acquire(&ch->cqs_lock);
	list_del(&cq->channel_link);
	ch->ibv.refcnt--;
	lock_release(&ch->cqs_lock);
	channel_forget(ch, cq);
}

static void wait_for_all_acks(struct stag_cq *cq)
{
	struct acks acks = {.mutex = &cq->ibv.mutex,
			    .cond = &cq->ibv.cond,
			    .acked = &cq->ibv.comp_events_completed,
			    .handed = cq->events_sent};
	char name[ACKS_NAME];

	snprintf(name, sizeof(name), "cq %u", cq->ibv.handle);
	wait_for_acks(&acks, name);
	acks.acked = &cq->ibv.async_events_completed;
	acks.handed = cq->async_sent;
	acks.types = cq->async_types;
	wait_for_acks(&acks, name);
}

int cq_destroy(struct stag_cq *cq)
{
	if (atomic_load(&cq->users)) {
		misuse(__func__, cq->ibv.handle, "cq %u: destroy refused, %d queue pairs use it",
		       cq->ibv.handle, atomic_load(&cq->users));
		return -EBUSY;
	}
	engine_lock();
	engine_forget_polled(cq);
	engine_unlock();
	if (cq->channel)
		leave_channel(cq);
	ctx_drop_async(to_stag_ctx(cq->ibv.context), &cq->ibv);
	wait_for_all_acks(cq);
	lock_destroy(&cq->lock);
	lock_destroy(&cq->qps_lock);
	lock_destroy(&cq->ex_lock);
	ctx_put(to_stag_ctx(cq->ibv.context));
	free(cq->ring);
	free(cq);
	return 0;
}

/* Resizes the ring to entries (a power of two); its contents stay. */
static int set_ring(struct stag_cq *cq, uint32_t entries)
{
	struct cqe *ring = calloc(entries, sizeof(*ring));
	uint32_t get = cq->get, put = cq->put;

	assert(lock_held(&cq->lock));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = get; i != put; i++)
		ring[i & (entries - 1)] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = entries - 1;
	return 0;
}

int cq_resize(struct stag_cq *cq, int cqe)
{
	int err = 0;

	if (cqe <= 0 || cqe > STAG_MAX_CQE)
		return -EINVAL;
	lock_acquire(&cq->lock);
	if ((uint32_t)cqe < cq->put - cq->get) {
		log_info("cq %u: resize to %d refused, %u completions wait in it", cq->ibv.handle,
			 cqe, cq->put - cq->get);
		err = -EINVAL;
	} else {
		cq->ibv.cqe = cqe;
		cq->overflowed = false;
	}
	lock_release(&cq->lock);
	return err;
}

/* ---- adding ---- */

static void tell_overflow(struct stag_cq *cq)
{
	struct ibv_async_event ev = {.element.cq = &cq->ibv, .event_type = IBV_EVENT_CQ_ERR};

	misuse(__func__, cq->ibv.handle,
	       "cq %u: more than its %d completions wait; none is lost here, but other adapters "
	       "would stop the queue",
	       cq->ibv.handle, cq->ibv.cqe);
	ctx_async(to_stag_ctx(cq->ibv.context), &ev);
}

static void stamp(struct cqe *e)
{
	struct timespec ts;

	e->ts = clock_ns();
	clock_gettime(CLOCK_REALTIME, &ts);
	e->wall_ts = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Disarms the queue if the completion raises an event; else notes which arming would have raised one. */
static bool take_event_for(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	int least = solicited || wc->status != IBV_WC_SUCCESS ? CQ_ARMED_SOLICITED : CQ_ARMED;

	assert(lock_held(&cq->lock));
	if ((int)cq->armed >= least) {
		cq->armed = CQ_IDLE;
		cq->missed = CQ_IDLE;
		return true;
	}
	if (!cq->missed || least < cq->missed)
		cq->missed = (uint8_t)least;
	return false;
}

void cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	bool overflow = false, event;
	uint32_t put, used;

	lock_acquire(&cq->lock);
	put = atomic_load_explicit(&cq->put, memory_order_relaxed);
	used = put - atomic_load_explicit(&cq->get, memory_order_relaxed);
	if (used > cq->mask && set_ring(cq, (cq->mask + 1) * 2)) {
		lock_release(&cq->lock);
		log_err("cq %u: no memory for a completion of qp %u", cq->ibv.handle, wc->qp_num);
		tell_overflow(cq);
		return;
	}
	cq->ring[put & cq->mask].wc = *wc;
	if (cq->wants_ts)
		stamp(&cq->ring[put & cq->mask]);
	atomic_store_explicit(&cq->put, put + 1, memory_order_release);
	if (used >= (uint32_t)cq->ibv.cqe && !cq->overflowed)
		overflow = cq->overflowed = true;
	event = take_event_for(cq, wc, solicited);
	lock_release(&cq->lock);
	if (event && cq->channel)
		channel_wake(cq->channel, cq);
	if (overflow)
		tell_overflow(cq);
}

void cq_forget_qp(struct stag_cq *cq, uint32_t qpn)
{
	uint32_t keep;

	lock_acquire(&cq->lock);
	keep = cq->get;
	for (uint32_t i = cq->get; i != cq->put; i++)
		if (cq->ring[i & cq->mask].wc.qp_num != qpn)
			cq->ring[keep++ & cq->mask] = cq->ring[i & cq->mask];
	cq->put = keep;
	if (keep == cq->get)
		cq->missed = CQ_IDLE;
	lock_release(&cq->lock);
}

/* ---- taking ---- */

static bool is_empty(struct stag_cq *cq)
{
	return atomic_load_explicit(&cq->put, memory_order_acquire) ==
	       atomic_load_explicit(&cq->get, memory_order_relaxed);
}

static bool fill_if_empty(struct stag_cq *cq)
{
	if (is_empty(cq)) {
		cq_progress(cq);
		return !is_empty(cq);
	}
	return true;
}

static void note_taken(struct stag_cq *cq, uint32_t get)
{
	assert(lock_held(&cq->lock));
	atomic_store_explicit(&cq->get, get, memory_order_release);
	if (get == cq->put)
		cq->missed = CQ_IDLE;
}

int cq_poll(struct stag_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;
	uint32_t get;

	if (n == 0)
		cq_look(cq);
	if (n <= 0 || !fill_if_empty(cq))
		return 0;
	lock_acquire(&cq->lock);
	get = cq->get;
	while (got < n && get != cq->put)
		wc[got++] = cq->ring[get++ & cq->mask].wc;
	note_taken(cq, get);
	lock_release(&cq->lock);
	return got;
}

int cq_poll_one(struct stag_cq *cq, struct cqe *out)
{
	int got = 0;

	if (!fill_if_empty(cq))
		return 0;
	lock_acquire(&cq->lock);
	if (cq->get != cq->put) {
		*out = cq->ring[cq->get & cq->mask];
		note_taken(cq, cq->get + 1);
		got = 1;
	}
	lock_release(&cq->lock);
	return got;
}

static bool has_missed_event(const struct stag_cq *cq)
{
	assert(lock_held(&cq->lock));
	return cq->missed && (int)cq->armed >= cq->missed && cq->channel &&
	       face_of(cq->ibv.context) == FACE_ROCE;
}

int cq_arm(struct stag_cq *cq, bool solicited_only)
{
	bool event;

	lock_acquire(&cq->lock);
	/* Arming for all completions is not undone by arming for solicited ones. */
	if (cq->armed != CQ_ARMED)
		cq->armed = solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED;
	event = has_missed_event(cq);
	if (event)
		cq->armed = CQ_IDLE, cq->missed = CQ_IDLE;
	lock_release(&cq->lock);
	if (event)
		channel_wake(cq->channel, cq);
	/* A thread that arms is about to sleep, possibly on a descriptor other than the sockets. */
	atomic_store_explicit(&cq->empty_polls, 0, memory_order_relaxed);
	/* Claiming for a poller checks under this lock whether the queue is armed. */
	lock_acquire(&cq->qps_lock);
	if (cq->claim == CLAIM_POLLER)
		claim_release(cq);
	lock_release(&cq->qps_lock);
	return 0;
}

bool cq_is_armed(struct stag_cq *cq)
{
	bool armed;

	lock_acquire(&cq->lock);
	armed = cq->armed != CQ_IDLE;
	lock_release(&cq->lock);
	return armed;
}
