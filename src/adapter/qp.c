// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp.c - queue pairs: creation, states, modify and query, destruction.
 *
 * Data is moved by sq.c, qp_tx.c and qp_rx.c.
 */
#include "adapter/qp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/gid.h"
#include "adapter/mcast.h"
#include "adapter/mirror.h"
#include "adapter/misuse.h"
#include "adapter/pd.h"
#include "adapter/port.h"
#include "adapter/rc.h"
#include "adapter/roce_qp.h"
#include "adapter/srq.h"
#include "adapter/store.h"
#include "adapter/ud.h"
#include "base/clock.h"
#include "base/log.h"

/* ---- states ---- */

/* The only writer of ibv_qp.state, after creation. Posting reads it without the lock, and the program may. */
void qp_show_state(struct stag_qp *qp, enum ibv_qp_state state)
{
	assert(qp_tx_locked(qp));
	__atomic_store_n(&qp->ibv.state, state, __ATOMIC_RELAXED);
}

static const char *const state_names[] = {"IDLE", "RTS", "CLOSING", "ERROR"};

void qp_set_state(struct stag_qp *qp, enum qp_state to)
{
	static const bool legal[4][4] = {
		[QP_IDLE] = {[QP_RTS] = true, [QP_ERROR] = true},
		[QP_RTS] = {[QP_IDLE] = true, [QP_CLOSING] = true, [QP_ERROR] = true},
		[QP_CLOSING] = {[QP_ERROR] = true},
		[QP_ERROR] = {[QP_IDLE] = true},
	};
	static const enum ibv_qp_state shown[] = {IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD,
						  IBV_QPS_ERR};
	int from = atomic_load(&qp->state);

	assert(qp_tx_locked(qp));
	assert(legal[from][to]);
	assert(qp_is_roce(qp) || from != QP_RTS || to != QP_IDLE); /* without its stream */
	(void)legal;
	log_debug("qp %u: %s -> %s", qp->ibv.qp_num, state_names[from], state_names[to]);
	atomic_store(&qp->state, to);
	if (!qp_is_roce(qp))
		qp_show_state(qp, shown[to]);
	else if (to == QP_ERROR)
		qp_show_state(qp, IBV_QPS_ERR);
}

const char *qp_state_word(enum ibv_qp_state state)
{
	static const char *const word[] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
		[IBV_QPS_RTS] = "RTS",	   [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	return (unsigned)state < sizeof(word) / sizeof(*word) ? word[state] : "UNKNOWN";
}

/* ---- creation ---- */

#define MIN_INLINE 64 /* given unrequested, as by every adapter: rdma_xclient relies on it */

static uint32_t pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static int sq_init(struct sq *sq, const struct ibv_qp_cap *cap)
{
	uint32_t entries = pow2(cap->max_send_wr ? cap->max_send_wr : 1);
	size_t stride = cap->max_send_sge * sizeof(struct ibv_sge);

	if (stride < cap->max_inline_data)
		stride = cap->max_inline_data;
	stride = (stride + 15) & ~(size_t)15;
	*sq = (struct sq){
		.mask = entries - 1,
		.max_wr = cap->max_send_wr,
		.max_sge = cap->max_send_sge,
		.max_inline = cap->max_inline_data,
	};
	sq->wqe = calloc(entries, sizeof(*sq->wqe));
	sq->slab = calloc(entries, stride ? stride : 16);
	if (!sq->wqe || !sq->slab) {
		free(sq->wqe);
		free(sq->slab);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < entries; i++)
		sq->wqe[i].sge = (struct ibv_sge *)(sq->slab + i * stride);
	return 0;
}

static void sq_free(struct sq *sq)
{
	free(sq->wqe);
	free(sq->slab);
}

static int check_caps(const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *c = &a->cap;

	if (c->max_send_wr > STAG_MAX_QP_WR || c->max_recv_wr > STAG_MAX_QP_WR ||
	    c->max_send_sge > STAG_MAX_SGE || c->max_recv_sge > STAG_MAX_SGE ||
	    c->max_inline_data > STAG_MAX_INLINE) {
		log_info("qp: %u sends of %u SGEs, %u receives of %u SGEs, %u bytes inline "
			 "requested; at most %u, %u and %u are possible",
			 c->max_send_wr, c->max_send_sge, c->max_recv_wr, c->max_recv_sge,
			 c->max_inline_data, STAG_MAX_QP_WR, STAG_MAX_SGE, STAG_MAX_INLINE);
		return -EINVAL;
	}
	if (!a->send_cq || (!a->recv_cq && !a->srq)) {
		log_info("qp: create needs a completion queue for each direction");
		return -EINVAL;
	}
	return 0;
}

static void join_cq(struct stag_cq *cq, struct qp_attachment *place, struct stag_qp *qp)
{
	place->qp = qp;
	lock_acquire(&cq->qps_lock);
	list_add_tail(&cq->qps, &place->link);
	cq->n_qps++;
	lock_release(&cq->qps_lock);
}

static void leave_cq(struct stag_cq *cq, struct qp_attachment *place, struct stag_qp *qp)
{
	if (!place->qp)
		return;
	lock_acquire(&cq->qps_lock);
	claim_drop(cq, qp);
	list_del(&place->link);
	cq->n_qps--;
	lock_release(&cq->qps_lock);
}

static void init_locks(struct stag_qp *qp)
{
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	lock_init(&qp->rx_lock);
	lock_init(&qp->tx_lock);
	lock_init(&qp->rq_lock);
	lock_init(&qp->progress.arm_lock);
	list_init(&qp->mirror.stall_link);
	shots_init(qp);
	rx_wait_init(qp);
}

static void set_attributes(struct stag_qp *qp, struct ibv_qp_init_attr_ex *a)
{
	qp->pd = pd_root(to_stag_pd(a->pd));
	qp->scq = to_stag_cq(a->send_cq);
	qp->rcq = a->recv_cq ? to_stag_cq(a->recv_cq) : qp->scq;
	qp->srq = a->srq ? to_stag_srq(a->srq) : NULL;
	qp->config.sig_all = a->sq_sig_all;
	qp->config.has_send_ops = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	qp->config.send_ops = qp->config.has_send_ops ? a->send_ops_flags : 0;
	qp->ibv.qp_context = a->qp_context;
	qp->ibv.pd = a->pd;
	qp->ibv.send_cq = a->send_cq;
	qp->ibv.recv_cq = a->recv_cq;
	qp->ibv.srq = a->srq;
	qp->ibv.qp_type = a->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
}

static void hold_parts(struct stag_qp *qp, int by)
{
	atomic_fetch_add(&to_stag_pd(qp->ibv.pd)->users, by);
	atomic_fetch_add(&qp->scq->users, by);
	atomic_fetch_add(&qp->rcq->users, by);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->users, by);
}

/* Undoes enroll(). */
static void strike_off(struct stag_qp *qp)
{
	assert(engine_locked());
	qp_table_remove(qp);
	if (!qp_is_roce(qp))
		return;
	if (qp->rc)
		rc_destroy(qp);
	else
		ud_destroy(qp);
	port_leave(qp);
}

#define NUMBER_TRIES 16

static int enroll_roce(struct stag_qp *qp)
{
	int err = -EADDRINUSE;

	assert(engine_locked());
	gid_watch_start();
	/* Another process may have taken the name of a number. */
	for (int i = 0; i < NUMBER_TRIES && err == -EADDRINUSE; i++) {
		err = port_take(qp);
		if (err)
			return err;
		err = qp->ibv.qp_type == IBV_QPT_UD ? ud_create(qp) : rc_create(qp);
		if (err)
			port_leave(qp);
	}
	return err;
}

/* Gives the queue pair its number, and what its face adds. */
static int enroll(struct stag_qp *qp, enum face face)
{
	int err = face == FACE_ROCE ? engine_start() : 0;

	if (err)
		return err;
	engine_lock();
	if (face == FACE_ROCE)
		err = enroll_roce(qp);
	if (!err) {
		err = qp_table_add(qp);
		if (err && qp_is_roce(qp))
			strike_off(qp);
	}
	engine_unlock();
	return err;
}

int qp_create(struct stag_ctx *ctx, struct ibv_qp_init_attr_ex *attr, struct stag_qp **out)
{
	struct stag_qp *qp;
	int err = check_caps(attr);

	if (err)
		return err;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	if (attr->cap.max_send_sge == 0)
		attr->cap.max_send_sge = 1;
	if (attr->cap.max_inline_data < MIN_INLINE)
		attr->cap.max_inline_data = MIN_INLINE;
	err = sq_init(&qp->sq, &attr->cap);
	if (err)
		goto err_free;
	if (attr->srq)
		attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
	err = rq_init(&qp->rq, attr->cap.max_recv_wr, attr->cap.max_recv_sge);
	if (err)
		goto err_free_sq;
	init_locks(qp);
	set_attributes(qp, attr);
	qp->config.cap = attr->cap;
	qp->ibv.context = &ctx->v.context;
	err = enroll(qp, face_of(&ctx->v.context));
	if (err)
		goto err_free_rq;
	qp->ibv.handle = qp->ibv.qp_num;
	hold_parts(qp, 1);
	ctx_get(ctx); /* its PD's may be the other device's */
	join_cq(qp->rcq, &qp->progress.in_rcq, qp);
	if (qp->scq != qp->rcq)
		join_cq(qp->scq, &qp->progress.in_scq, qp);
	*out = qp;
	return 0;

err_free_rq:
	rq_free(&qp->rq);
err_free_sq:
	sq_free(&qp->sq);
err_free:
	free(qp);
	return err;
}

/* ---- destruction ---- */

int qp_destroy(struct stag_qp *qp)
{
	char name[ACKS_NAME];

	if (mcast_is_attached(qp)) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: destroy refused, it is attached to a multicast group",
		       qp->ibv.qp_num);
		return -EBUSY;
	}
	store_qp_end(qp);
	mirror_end_qp(qp);
	engine_lock();
	qp->notify.events = NULL;
	if (qp->rc)
		rc_stop(qp);
	qp_close_stream(qp);
	work_cancel(&qp->notify.work);
	work_cancel(&qp->progress.read_on);
	leave_cq(qp->rcq, &qp->progress.in_rcq, qp);
	leave_cq(qp->scq, &qp->progress.in_scq, qp);
	key_unbind_qp(qp);
	shots_orphan(qp);
	strike_off(qp);
	engine_unlock();
	qp_drop_media(qp);
	cq_forget_qp(qp->scq, qp->ibv.qp_num);
	if (qp->rcq != qp->scq)
		cq_forget_qp(qp->rcq, qp->ibv.qp_num);
	ctx_drop_async(to_stag_ctx(qp->ibv.context), &qp->ibv);
	snprintf(name, sizeof(name), "qp %u", qp->ibv.qp_num);
	wait_for_acks(&(struct acks){.mutex = &qp->ibv.mutex,
				     .cond = &qp->ibv.cond,
				     .acked = &qp->ibv.events_completed,
				     .handed = qp->async_sent,
				     .types = qp->async_types},
		      name);
	shots_free(qp);
	hold_parts(qp, -1);
	ctx_put(to_stag_ctx(qp->ibv.context));
	sq_free(&qp->sq);
	rq_free(&qp->rq);
	free(qp);
	return 0;
}

/* ---- modify and query ---- */

static bool legal_move(enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
	case IBV_QPS_ERR:
		return true;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT || from == IBV_QPS_RTR || from == IBV_QPS_RTS;
	case IBV_QPS_RTS:
		return from == IBV_QPS_INIT || from == IBV_QPS_RTR || from == IBV_QPS_RTS ||
		       from == IBV_QPS_SQD;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_ERR;
	default:
		return false;
	}
}

void qp_to_error(struct stag_qp *qp)
{
	qp_lock_both(qp);
	if (atomic_load(&qp->state) == QP_IDLE) {
		qp_flush(qp);
	} else if (atomic_load(&qp->state) != QP_ERROR) {
		qp_end_by_us(qp, NULL);
		qp_flush(qp);
		atomic_store(&qp->notify.disconnected, true);
		qp_tell(qp);
	}
	qp_unlock_both(qp);
}

/*
 * Drops pending reports about the last connection. Returns whether its end has yet to be
 * reported.
 */
static bool drop_reports(struct stag_qp *qp)
{
	bool live = atomic_load(&qp->state) == QP_RTS || atomic_load(&qp->state) == QP_CLOSING;

	work_cancel(&qp->notify.work);
	work_cancel(&qp->progress.read_on);
	atomic_store(&qp->notify.fail, false);
	atomic_store(&qp->notify.established, false);
	qp->rtr_read_pending = false;
	return atomic_exchange(&qp->notify.disconnected, false) || live;
}

/* Drops all completions and the connection. The code that made the connection is notified. */
void qp_to_reset(struct stag_qp *qp)
{
	bool ended;

	store_qp_end(qp);
	engine_lock();
	qp_drop_claims(qp);
	if (qp->rc)
		rc_stop(qp);
	qp_close_stream(qp);
	qp_lock_both(qp);
	ended = drop_reports(qp);
	qp->sq.get = qp->sq.tx = qp->sq.put;
	qp->sq.timed = NULL;
	lock_acquire(&qp->rq_lock);
	qp->rq.get = qp->rq.put;
	lock_release(&qp->rq_lock);
	if (atomic_load(&qp->state) != QP_IDLE) {
		if (atomic_load(&qp->state) != QP_ERROR)
			qp_set_state(qp, QP_ERROR);
		qp_set_state(qp, QP_IDLE);
	}
	qp_show_state(qp, IBV_QPS_RESET);
	if (qp->rc)
		rc_reset(qp);
	else if (qp_is_roce(qp))
		ud_moved(qp, IBV_QPS_RESET);
	shots_orphan(qp);
	qp_unlock_both(qp);
	if (ended && qp->notify.events && qp->notify.events->disconnected)
		qp->notify.events->disconnected(qp->notify.arg);
	qp->notify.events = NULL; /* the next connection may be made by other code */
	engine_unlock();
	cq_forget_qp(qp->scq, qp->ibv.qp_num);
	if (qp->rcq != qp->scq)
		cq_forget_qp(qp->rcq, qp->ibv.qp_num);
}

/* The connection may end at any time: callers check the state again under a lock. */
static enum ibv_qp_state shown_state(const struct stag_qp *qp)
{
	return __atomic_load_n(&qp->ibv.state, __ATOMIC_RELAXED);
}

static int move_to(struct stag_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = shown_state(qp);
	int err = 0;

	if (!legal_move(from, to)) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: modify from state %s to %s is not possible", qp->ibv.qp_num,
		       qp_state_word(from), qp_state_word(to));
		return -EINVAL;
	}
	switch (to) {
	case IBV_QPS_ERR:
		qp_to_error(qp);
		break;
	case IBV_QPS_RESET:
		qp_to_reset(qp);
		break;
	case IBV_QPS_SQD:
		if (from == IBV_QPS_RTS && atomic_load(&qp->state) == QP_RTS)
			err = qp_disconnect(qp); /* on iWARP this disconnects */
		break;
	default:
		/* The program moves the states itself; the connection will make them true. */
		lock_acquire(&qp->tx_lock);
		if (atomic_load(&qp->state) == QP_IDLE)
			qp_show_state(qp, to);
		lock_release(&qp->tx_lock);
		break;
	}
	return err;
}

int qp_modify(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (qp_is_roce(qp))
		return roce_qp_modify(qp, attr, mask);
	if (mask &
	    (IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_ALT_PATH)) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: modify with a path or packet numbers: an iWARP queue pair is "
		       "connected by rdma_connect() and rdma_accept()",
		       qp->ibv.qp_num);
		return -EINVAL;
	}
	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != shown_state(qp))
		return -EINVAL;
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > STAG_MAX_RD_ATOM) ||
	    ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > STAG_MAX_RD_ATOM))
		return -EINVAL;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->config.attr.qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->config.attr.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->config.attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	return mask & IBV_QP_STATE ? move_to(qp, attr->qp_state) : 0;
}

static void query_iwarp(struct stag_qp *qp, struct ibv_qp_attr *attr)
{
	*attr = qp->config.attr;
	lock_acquire(&qp->tx_lock);
	attr->qp_state = attr->cur_qp_state = qp->ibv.state;
	if (atomic_load(&qp->state) != QP_IDLE) {
		attr->max_rd_atomic = (uint8_t)qp->link.ord;
		attr->max_dest_rd_atomic = (uint8_t)qp->link.ird;
	}
	lock_release(&qp->tx_lock);
	attr->path_mtu = IBV_MTU_4096;
	attr->cap = qp->config.cap;
	attr->port_num = 1;
}

void qp_query(struct stag_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	if (qp_is_roce(qp))
		roce_qp_query(qp, attr);
	else
		query_iwarp(qp, attr);
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->ibv.qp_context,
		.send_cq = qp->ibv.send_cq,
		.recv_cq = qp->ibv.recv_cq,
		.srq = qp->ibv.srq,
		.cap = qp->config.cap,
		.qp_type = qp->ibv.qp_type,
		.sq_sig_all = qp->config.sig_all,
	};
}

/* ---- receives ---- */

/* Flushes a receive that was posted to a queue pair in ERROR. */
static void flush_posted(struct stag_qp *qp)
{
	lock_acquire(&qp->rx_lock);
	if (atomic_load(&qp->state) == QP_ERROR)
		rx_flush(qp);
	lock_release(&qp->rx_lock);
}

int qp_post_recv(struct stag_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	bool more = false, missed = false;
	int err = 0;

	if (qp->srq || __atomic_load_n(&qp->ibv.state, __ATOMIC_RELAXED) == IBV_QPS_RESET) {
		misuse(__func__, qp->ibv.qp_num, "qp %u: post_recv %s", qp->ibv.qp_num,
		       qp->srq ? "on a queue pair that receives from an SRQ" : "in state RESET");
		*bad = wr;
		return -EINVAL;
	}
	lock_acquire(&qp->rq_lock);
	for (; wr; wr = wr->next) {
		err = rq_put(&qp->rq, wr);
		if (err)
			break;
		qp->stats.recv_posts++;
		more = true;
	}
	if (more) {
		missed = qp->starving;
		qp->starving = false;
	}
	lock_release(&qp->rq_lock);
	if (missed && qp->rc)
		rc_go(qp);
	else if (missed)
		rx_receive_posted(qp);
	if (err) {
		rq_log_refused(&qp->rq, wr, err, "qp", qp->ibv.qp_num);
		*bad = wr;
	}
	if (atomic_load_explicit(&qp->state, memory_order_acquire) == QP_ERROR)
		flush_posted(qp);
	else if (qp->ud)
		ud_receive_posted(qp);
	return err;
}
