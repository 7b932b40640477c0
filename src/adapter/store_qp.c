// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_qp.c - a queue pair connected to the storage of its own process: no stream, no peer.
 *
 * Posted requests go into the lane at once, on the program's thread; completions come from the
 * thread that polls the media. A request whose failure would end a connection stops those
 * behind it: requests that have not begun never do, and when those in flight have ended, the
 * queue pair goes to ERROR like any other (qp_link.c).
 */
#include "adapter/store.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/qp.h"
#include "adapter/srq.h"
#include "base/clock.h"
#include "base/log.h"

#define RETRY_MS 1 /* for a hazard cell of a guarded region that another access holds */

/* ---- connecting ---- */

static int check_attr(const struct stag_qp *qp, const struct stagdv_store_qp_attr *a)
{
	const uint32_t known = STAGDV_RELAX_WRITES | STAGDV_RELAX_READS | STAGDV_RELAX_LATER |
			       STAGDV_RELAX_ATOMICS | STAGDV_RELAX_COMPLETIONS;

	if (!a->comp_mask && !(a->relax & ~known) && a->level <= STAGDV_LEVEL_DURABLE)
		return 0;
	log_info("qp %u: invalid attributes on storage: relax 0x%x, level %u", qp->ibv.qp_num,
		 a->relax, a->level);
	return -EINVAL;
}

static void free_store(struct stag_qp *qp)
{
	store_requests_free(qp);
	free(qp->storage.store->recv);
	free(qp->storage.store);
	qp->storage.store = NULL;
}

static int make_store(struct stag_qp *qp, const struct stagdv_store_qp_attr *a)
{
	uint32_t depth = a->depth && a->depth < qp->sq.max_wr ? a->depth : qp->sq.max_wr;
	struct store_qp *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->relax = a->relax;
	s->level = a->level;
	s->recv = calloc(1, sizeof(*s->recv) + STAG_MAX_SGE * sizeof(struct ibv_sge));
	lane_init(&s->lane, &qp->tx_lock, depth ? depth : 1);
	qp->storage.store = s;
	if (!s->recv || store_requests_init(qp)) {
		lane_end(&s->lane);
		free_store(qp);
		return -ENOMEM;
	}
	return 0;
}

/* Counts it in its completion queues. */
static void set_on_store(struct stag_qp *qp, bool on)
{
	unsigned by = on ? 1u : -1u;

	atomic_store(&qp->storage.on_store, on);
	atomic_fetch_add(&qp->rcq->n_on_store, by);
	if (qp->scq != qp->rcq)
		atomic_fetch_add(&qp->scq->n_on_store, by);
}

int store_qp_connect(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr)
{
	int err = check_attr(qp, attr);

	if (!err)
		err = engine_start();
	if (err)
		return err;
	lock_acquire(&qp->tx_lock);
	if (atomic_load(&qp->state) != QP_IDLE || qp->ibv.state != IBV_QPS_INIT) {
		log_info("qp %u: cannot be connected to storage in state %d", qp->ibv.qp_num,
			 qp->ibv.state);
		err = -EINVAL;
	}
	if (!err)
		err = make_store(qp, attr);
	if (!err) {
		qp->link = (struct qp_link){
			.caps = MPA_EXT_IMM | MPA_EXT_ATOMIC,
			.ird = STAG_MAX_RD_ATOM,
			.ord = STAG_MAX_RD_ATOM,
		};
		set_on_store(qp, true);
		qp_set_state(qp, QP_RTS);
	}
	lock_release(&qp->tx_lock);
	return err;
}

int store_qp_query(struct stag_qp *qp, struct stagdv_store_qp_attr *attr)
{
	int err = 0;

	lock_acquire(&qp->tx_lock);
	if (qp->storage.store)
		*attr = (struct stagdv_store_qp_attr){
			.relax = qp->storage.store->relax,
			.level = qp->storage.store->level,
			.depth = qp->storage.store->lane.depth,
		};
	else
		err = -ENOTCONN;
	lock_release(&qp->tx_lock);
	return err;
}

/* Requests posted before keep the order and the level that they were posted with. */
int store_qp_modify(struct stag_qp *qp, const struct stagdv_store_qp_attr *attr, int mask)
{
	struct stagdv_store_qp_attr a = {.comp_mask = attr->comp_mask};
	int err;

	if (mask & STAGDV_STORE_RELAX)
		a.relax = attr->relax;
	if (mask & STAGDV_STORE_LEVEL)
		a.level = attr->level;
	err = mask & ~(STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL) ? -EINVAL : check_attr(qp, &a);
	if (err)
		return err;
	lock_acquire(&qp->tx_lock);
	if (!qp->storage.store)
		err = -ENOTCONN;
	if (!err && (mask & STAGDV_STORE_RELAX))
		qp->storage.store->relax = a.relax;
	if (!err && (mask & STAGDV_STORE_LEVEL))
		qp->storage.store->level = a.level;
	lock_release(&qp->tx_lock);
	return err;
}

/* ---- completing ---- */

static bool take_receive(struct stag_qp *qp)
{
	struct rwqe *w;

	if (qp->srq)
		return srq_take(qp->srq, qp->storage.store->recv, NULL);
	lock_acquire(&qp->rq_lock);
	w = rq_peek(&qp->rq);
	if (w) {
		qp->storage.store->recv->wr_id = w->wr_id;
		qp->rq.get++;
	}
	lock_release(&qp->rq_lock);
	return w != NULL;
}

/* The immediate of a write completes a receive of the same queue pair. */
static bool deliver_immediate(struct stag_qp *qp, struct wqe *w)
{
	struct ibv_wc wc = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = w->length,
		.imm_data = w->imm_or_inv,
		.wc_flags = IBV_WC_WITH_IMM,
		.qp_num = qp->ibv.qp_num,
	};

	if (!take_receive(qp)) {
		log_info("qp %u: wr_id 0x%llx: immediate data and no receive is posted",
			 qp->ibv.qp_num, (unsigned long long)w->wr_id);
		w->status = IBV_WC_RNR_RETRY_EXC_ERR;
		return false;
	}
	wc.wr_id = qp->storage.store->recv->wr_id;
	qp->stats.counters.completions++;
	cq_push(qp->rcq, &wc, w->send_flags & IBV_SEND_SOLICITED);
	return true;
}

static void stop_behind(struct stag_qp *qp, struct lane_op *op)
{
	qp->storage.store->failed = true;
	lane_cut(&qp->storage.store->lane, op);
}

/*
 * A medium's error fails only its request if no order is promised; every other error ends the
 * queue pair.
 */
static bool is_fatal(const struct store_request *r)
{
	return r->w->status != IBV_WC_REM_OP_ERR || !r->op.relax;
}

/*
 * Completes a request. Returns false if it failed, and the queue pair with it: then sq_flush()
 * completes it.
 */
static bool complete_request(struct stag_qp *qp, struct wqe *w)
{
	struct store_request *r = qp->storage.store->at[w - qp->sq.wqe];

	if (w->status == IBV_WC_SUCCESS && w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
	    !deliver_immediate(qp, w))
		stop_behind(qp, &r->op);
	if (w->status != IBV_WC_SUCCESS && is_fatal(r))
		return false;
	sq_complete(qp, w);
	w->retired = true;
	return true;
}

static void retire_requests(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	for (; sq->get != sq->tx; sq->get++) {
		struct wqe *w = &sq->wqe[sq->get & sq->mask];

		if (!w->done || (!w->retired && !complete_request(qp, w)))
			break;
	}
}

/* Fails the queue pair after a failed request, once nothing is in flight. */
static void fail_if_idle(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;

	if (s->lane.count || s->cutting)
		return;
	if (atomic_load(&qp->state) == QP_ERROR)
		sq_flush(qp);
	else if (s->failed)
		qp_fail_later(qp);
}

static void on_retry(struct timer *t)
{
	struct store_qp *s = container_of(t, struct store_qp, retry);
	struct stag_qp *qp = s->request[0].qp;

	lock_acquire(&qp->tx_lock);
	lane_retry(&s->lane);
	lane_kick(&s->lane);
	store_qp_settle(qp);
	lock_release(&qp->tx_lock);
}

void store_qp_settle(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;

	assert(qp_tx_locked(qp));
	if (s->lane.starved && !s->lane.under_way)
		timer_set(&s->retry, clock_ns() + RETRY_MS * NS_PER_MS, on_retry);
	fail_if_idle(qp);
}

void store_qp_done(struct store_request *r)
{
	struct stag_qp *qp = r->qp;
	struct wqe *w = r->w;

	assert(qp_tx_locked(qp));
	if (w->done && w->status != IBV_WC_SUCCESS && is_fatal(r) && !qp->storage.store->failed)
		stop_behind(qp, &r->op);
	if (w->done && (r->op.relax & STAGDV_RELAX_COMPLETIONS))
		complete_request(qp, w);
	retire_requests(qp);
	store_qp_settle(qp);
}

void store_qp_accepted(struct stag_qp *qp, struct wqe *w, uint32_t relax)
{
	assert(qp_tx_locked(qp));
	if (relax & STAGDV_RELAX_COMPLETIONS)
		complete_request(qp, w);
	retire_requests(qp);
}

/*
 * The request had completed with success: the program learns of the loss by the end of the
 * queue pair, in every mode.
 */
void store_qp_lost(struct store_request *r)
{
	assert(qp_tx_locked(r->qp));
	log_err("qp %u: %llu bytes at %llu of a medium were accepted and then lost: %s",
		r->qp->ibv.qp_num, (unsigned long long)r->op.io.length,
		(unsigned long long)r->op.io.offset, strerror(-r->op.io.result));
	if (!r->qp->storage.store->failed)
		stop_behind(r->qp, &r->op);
}

/* ---- posting ---- */

/* Swaps two entries, with their memory for SGEs and inline data. */
static void swap_entries(struct stag_qp *qp, uint32_t i, uint32_t k)
{
	struct store_request **a = &qp->storage.store->at[i & qp->sq.mask];
	struct store_request **b = &qp->storage.store->at[k & qp->sq.mask];
	struct store_request *r = *a;
	struct wqe w = *(*a)->w;

	if (qp->sq.timed == (*a)->w)
		qp->sq.timed = (*b)->w;
	else if (qp->sq.timed == (*b)->w)
		qp->sq.timed = (*a)->w;
	*(*a)->w = *(*b)->w;
	*(*b)->w = w;
	*a = *b;
	*b = r;
	(*a)->w = &qp->sq.wqe[i & qp->sq.mask];
	(*b)->w = &qp->sq.wqe[k & qp->sq.mask];
}

/*
 * A request that completes out of order leaves a gap behind a slower one. A program that counts
 * completions does not expect gaps: moves the requests in flight up, in their order.
 */
bool store_qp_make_room(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;
	uint32_t to = sq->tx, before = sq->get;

	assert(qp_tx_locked(qp));
	for (uint32_t i = sq->tx; i != before; i--) {
		if (sq->wqe[(i - 1) & sq->mask].retired)
			continue;
		to--;
		if (to != i - 1)
			swap_entries(qp, i - 1, to);
	}
	sq->get = to;
	return to != before;
}

void store_qp_run(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;

	assert(qp_tx_locked(qp));
	while (qp->sq.tx != qp->sq.put && !s->failed) {
		uint32_t index = qp->sq.tx++;

		if (!store_request_enter(qp, index))
			s->failed = true; /* requests before it go on */
	}
	lane_kick(&s->lane);
	retire_requests(qp);
	store_qp_settle(qp);
}

int store_qp_check(const struct wqe *w, const char **why)
{
	switch (w->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case STAG_WR_ADVERTISE:
	case STAG_WR_CLOSE:
		*why = "storage takes no sends";
		return -EINVAL;
	default:
		return 0;
	}
}

/* ---- its end ---- */

bool store_qp_stop(struct stag_qp *qp)
{
	struct store_qp *s = qp->storage.store;

	assert(qp_tx_locked(qp));
	s->failed = s->cutting = true;
	lane_cut(&s->lane, NULL);
	s->cutting = false;
	return s->lane.count == 0;
}

/* Polls until nothing is in flight: the kernel writes into the program's memory until then. */
static void drain_operations(struct stag_qp *qp)
{
	struct lane *l = &qp->storage.store->lane;

	while (l->count) {
		lock_release(&qp->tx_lock);
		for (uint32_t i = 0; i < l->n_media; i++)
			medium_poll(l->media[i].medium);
		sched_yield();
		lock_acquire(&qp->tx_lock);
	}
}

void store_qp_end(struct stag_qp *qp)
{
	if (!qp->storage.store)
		return;
	lock_acquire(&qp->tx_lock);
	store_qp_stop(qp);
	lane_forget(&qp->storage.store->lane);
	drain_operations(qp);
	lock_release(&qp->tx_lock);
	engine_lock();
	timer_cancel(&qp->storage.store->retry);
	engine_unlock();
	lane_end(&qp->storage.store->lane);
	lock_acquire(&qp->tx_lock);
	set_on_store(qp, false);
	free_store(qp);
	lock_release(&qp->tx_lock);
}
