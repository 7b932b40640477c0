// SPDX-License-Identifier: BSD-2-Clause
/*
 * sq.c - the send queue: work requests in, completions out, in post order.
 *
 * qp_tx.c puts requests on the wire; requests that touch only keys (bind, invalidate, fast
 * registration) are carried out here.
 */
#include "adapter/sq.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/latency.h"
#include "adapter/misuse.h"
#include "adapter/mr.h"
#include "adapter/mw.h"
#include "adapter/qp.h"
#include "adapter/rc.h"
#include "adapter/store.h"
#include "adapter/ud.h"
#include "base/log.h"

/* ---- refusing ---- */

static int refuse_post(struct stag_qp *qp, const struct wqe *w, const char *why)
{
	misuse(why, qp->ibv.qp_num, "qp %u: post_send of wr_id 0x%llx, opcode %u: %s",
	       qp->ibv.qp_num, (unsigned long long)w->wr_id, w->opcode, why);
	return -EINVAL;
}

/* The request has more of something than the queue pair takes. */
static int refuse_excess(struct stag_qp *qp, const struct wqe *w, const char *what, uint64_t num,
			 uint32_t most)
{
	misuse(what, qp->ibv.qp_num,
	       "qp %u: post_send of wr_id 0x%llx, opcode %u: %llu %s, the queue pair was made "
	       "with %u",
	       qp->ibv.qp_num, (unsigned long long)w->wr_id, w->opcode, (unsigned long long)num,
	       what, most);
	return -EINVAL;
}

static int refuse_inline(struct stag_qp *qp, const struct wqe *w, uint64_t len)
{
	return refuse_excess(qp, w, "bytes inline", len, qp->sq.max_inline);
}

/* ---- filling ---- */

struct wqe *sq_take(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;
	struct wqe *w;

	assert(qp_tx_locked(qp));
	if (sq->put + sq->reserved - sq->get >= sq->max_wr &&
	    !(qp->storage.store && store_qp_make_room(qp)))
		return NULL;
	w = &sq->wqe[(sq->put + sq->reserved++) & sq->mask];
	w->num_sge = 0;
	w->length = 0;
	w->inline_data = NULL;
	w->done = w->sent = w->retired = false;
	w->status = IBV_WC_SUCCESS;
	w->rx_off = 0;
	return w;
}

static void add_reserved(struct stag_qp *qp)
{
	if (!qp->sq.timed && sample_is_due(&qp->sq.sample, qp->stats.counters.posts))
		latency_begin(qp);
	qp->stats.counters.posts += qp->sq.reserved;
	qp->sq.put += qp->sq.reserved;
	qp->sq.reserved = 0;
}

static bool is_over(const struct stag_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == QP_ERROR;
}

/*
 * On a queue pair in ERROR, STags that these requests advertise end at once: no end of a
 * connection will do it.
 */
void sq_publish(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	add_reserved(qp);
	if (is_over(qp)) {
		sq_flush(qp);
		shots_orphan(qp);
	} else if (qp->storage.store)
		store_qp_run(qp);
	else if (qp->rc)
		rc_posted(qp);
	else if (!qp_is_roce(qp))
		qp_tx_run(qp);
	else if (qp->ibv.state == IBV_QPS_RTS)
		ud_run(qp);
}

/* Withdraws STags that the dropped requests were to advertise. */
void sq_drop(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;
	uint32_t reference;

	assert(qp_tx_locked(qp));
	for (; sq->reserved; sq->reserved--) {
		const struct wqe *w = &sq->wqe[(sq->put + sq->reserved - 1) & sq->mask];

		if (w->opcode == STAG_WR_ADVERTISE)
			shot_end(qp, w->imm_or_inv, STAGDV_STAG_WITHDRAWN, &reference);
	}
}

static uint8_t *wqe_slab(struct stag_qp *qp, struct wqe *w)
{
	return (uint8_t *)w->sge;
}

int sq_set_inline(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_data_buf *buf)
{
	uint8_t *to = wqe_slab(qp, w);
	size_t len = 0;

	assert(qp_tx_locked(qp));
	for (size_t i = 0; i < num; i++) {
		if (buf[i].length > qp->sq.max_inline - len)
			return refuse_inline(qp, w, len + buf[i].length);
		memcpy(to + len, buf[i].addr, buf[i].length);
		len += buf[i].length;
	}
	w->inline_data = to;
	w->length = (uint32_t)len;
	w->num_sge = 0;
	return 0;
}

int sq_set_sges(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_sge *sge)
{
	uint64_t len = 0;

	assert(qp_tx_locked(qp));
	if (num > qp->sq.max_sge)
		return refuse_excess(qp, w, "SGEs", num, qp->sq.max_sge);
	if (num) /* a program's list may be unaligned */
		memcpy(w->sge, sge, num * sizeof(*sge));
	for (size_t i = 0; i < num; i++)
		len += w->sge[i].length;
	if (len > STAG_MAX_MSG)
		return refuse_post(qp, w, "the message is longer than 4 GiB");
	w->num_sge = (uint32_t)num;
	w->length = (uint32_t)len;
	w->inline_data = NULL;
	return 0;
}

/* ---- checking ---- */

bool wqe_is_local(const struct wqe *w)
{
	return w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW ||
	       w->opcode == STAG_WR_FAST_REG;
}

static bool is_atomic(const struct wqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool wqe_awaits_response(const struct wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == STAG_WR_BARRIER || is_atomic(w);
}

/*
 * Checks the peer's capabilities. Without a connection everything is allowed: its set-up will
 * decide.
 */
static int check_ability(struct stag_qp *qp, const struct wqe *w)
{
	bool linked = atomic_load_explicit(&qp->state, memory_order_relaxed) == QP_RTS;
	unsigned caps = linked ? qp->link.caps : ~0u;

	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return caps & MPA_EXT_IMM
			       ? 0
			       : refuse_post(qp, w, "the peer did not agree to immediate data");
	case IBV_WR_SEND_WITH_IMM:
		return caps & MPA_EXT_SEND_IMM
			       ? 0
			       : refuse_post(qp, w,
					     "the peer did not agree to sends with immediate data");
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (w->length != sizeof(uint64_t))
			return refuse_post(qp, w, "the result of an atomic needs exactly 8 bytes");
		if (!(caps & MPA_EXT_ATOMIC))
			return refuse_post(qp, w, "the peer did not agree to atomics");
		break;
	default:
		break;
	}
	if (wqe_awaits_response(w)) {
		if (linked && qp->link.ord == 0)
			return refuse_post(qp, w,
					   "the connection allows no outstanding reads (ORD is 0)");
		if (w->inline_data)
			return refuse_post(qp, w, "a read cannot have inline data");
	}
	return 0;
}

int sq_check(struct stag_qp *qp, const struct wqe *w)
{
	const char *why;

	assert(qp_tx_locked(qp));
	if (qp->ud) {
		why = ud_check(qp, w);
		return why ? refuse_post(qp, w, why) : 0;
	}
	if (qp->storage.store && store_qp_check(w, &why))
		return refuse_post(qp, w, why);
	if (qp_is_uc(qp) && (wqe_awaits_response(w) || w->opcode == IBV_WR_SEND_WITH_INV ||
			     w->opcode == STAG_WR_ADVERTISE || w->opcode == STAG_WR_CLOSE))
		return refuse_post(qp, w, "unreliable connections have no such operation");
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
	case STAG_WR_ADVERTISE:
	case STAG_WR_CLOSE:
		return 0;
	case IBV_WR_BIND_MW:
		return w->mw ? 0 : refuse_post(qp, w, "no window");
	case IBV_WR_RDMA_READ:
	case STAG_WR_BARRIER:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return check_ability(qp, w);
	case STAG_WR_FAST_REG:
		return w->mr ? 0 : refuse_post(qp, w, "no region");
	default:
		return refuse_post(qp, w, "no such operation on this adapter");
	}
}

/* ---- posting ---- */

static int copy_payload(struct stag_qp *qp, struct wqe *w, const struct ibv_send_wr *wr)
{
	size_t len = 0;

	if (wr->num_sge < 0)
		return refuse_post(qp, w, "a negative number of SGEs");
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return sq_set_sges(qp, w, (size_t)wr->num_sge, wr->sg_list);
	if ((uint32_t)wr->num_sge > qp->sq.max_sge)
		return refuse_excess(qp, w, "SGEs", (uint32_t)wr->num_sge, qp->sq.max_sge);
	for (int i = 0; i < wr->num_sge; i++) {
		struct ibv_sge s;

		memcpy(&s, &wr->sg_list[i], sizeof(s));
		if (s.length > qp->sq.max_inline - len)
			return refuse_inline(qp, w, len + s.length);
		memcpy(wqe_slab(qp, w) + len, (void *)(uintptr_t)s.addr, s.length);
		len += s.length;
	}
	w->inline_data = wqe_slab(qp, w);
	w->length = (uint32_t)len;
	return 0;
}

static bool closes(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND_WITH_INV && (wr->send_flags & STAGDV_SEND_CLOSE);
}

static void copy_operation(struct wqe *w, const struct ibv_send_wr *wr)
{
	w->wr_id = wr->wr_id;
	w->opcode = closes(wr) ? STAG_WR_CLOSE : wr->opcode;
	w->send_flags = wr->send_flags;
	w->imm_or_inv = wr->imm_data; /* a union with invalidate_rkey */
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		w->mw = wr->bind_mw.mw ? to_stag_mw(wr->bind_mw.mw) : NULL;
		w->mr = wr->bind_mw.bind_info.mr ? to_stag_mr(wr->bind_mw.bind_info.mr) : NULL;
		w->rkey = wr->bind_mw.rkey;
		w->bind_addr = wr->bind_mw.bind_info.addr;
		w->bind_len = wr->bind_mw.bind_info.length;
		w->bind_access = wr->bind_mw.bind_info.mw_access_flags;
		break;
	default:
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		break;
	}
}

/* The address is in a union with those of other operations. */
static void set_dest(struct stag_qp *qp, const struct wqe *w, const struct ibv_send_wr *wr)
{
	bool is_send = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;

	ud_set_dest(qp, w, is_send ? wr->wr.ud.ah : NULL, wr->wr.ud.remote_qpn,
		    wr->wr.ud.remote_qkey);
}

static int post_one(struct stag_qp *qp, const struct ibv_send_wr *wr)
{
	struct wqe *w = sq_take(qp);
	int err;

	assert(qp_tx_locked(qp));
	if (!w) {
		log_debug("qp %u: post_send: the send queue is full", qp->ibv.qp_num);
		return -ENOMEM;
	}
	copy_operation(w, wr);
	if (qp->ud)
		set_dest(qp, w, wr);
	err = copy_payload(qp, w, wr);
	if (!err)
		err = sq_check(qp, w);
	if (err)
		qp->sq.reserved--;
	return err;
}

bool sq_may_post(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	if (qp->ibv.state == IBV_QPS_RTS || qp->ibv.state == IBV_QPS_ERR ||
	    qp->ibv.state == IBV_QPS_SQD)
		return true;
	/* As hardware does: what is posted early waits. */
	if (qp_is_roce(qp) && qp->ibv.state != IBV_QPS_RESET)
		return true;
	misuse(__func__, qp->ibv.qp_num,
	       "qp %u: post_send in state %s: it is not connected yet, wait for "
	       "RDMA_CM_EVENT_ESTABLISHED",
	       qp->ibv.qp_num, qp_state_word(qp->ibv.state));
	return false;
}

int qp_post_send(struct stag_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = 0;

	lock_acquire(&qp->tx_lock);
	if (!sq_may_post(qp))
		err = -EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = post_one(qp, wr);
		if (err)
			break;
	}
	if (err)
		*bad = wr;
	if (qp->sq.reserved)
		sq_publish(qp);
	lock_release(&qp->tx_lock);
	return err;
}

int sq_post_prepared(struct stag_qp *qp, const struct wqe *model, size_t num,
		     const struct ibv_sge *sge)
{
	struct wqe *w;
	int err = -EINVAL;

	lock_acquire(&qp->tx_lock);
	if (!sq_may_post(qp))
		goto out;
	w = sq_take(qp);
	if (!w) {
		err = -ENOMEM;
		goto out;
	}
	w->wr_id = model->wr_id;
	w->opcode = model->opcode;
	w->send_flags = model->send_flags;
	w->mw = model->mw;
	w->mr = model->mr;
	w->rkey = model->rkey;
	w->remote_addr = 0;
	w->bind_addr = model->bind_addr;
	w->bind_len = model->bind_len;
	w->bind_access = model->bind_access;
	err = sq_set_sges(qp, w, num, sge);
	if (!err)
		err = sq_check(qp, w);
	if (err) {
		sq_drop(qp);
		goto out;
	}
	sq_publish(qp);
out:
	lock_release(&qp->tx_lock);
	return err;
}

int qp_post_fast_reg(struct stag_qp *qp, const struct stagdv_fast_reg *wr)
{
	struct wqe w = {
		.wr_id = wr->wr_id,
		.opcode = STAG_WR_FAST_REG,
		.send_flags = wr->send_flags,
		.mr = to_stag_mr(wr->mr),
		.rkey = wr->key,
		.bind_addr = wr->iova,
		.bind_access = wr->access,
	};

	if (wr->num_sge < 0)
		return -EINVAL;
	return sq_post_prepared(qp, &w, (size_t)wr->num_sge, wr->sg_list);
}

int qp_post_barrier(struct stag_qp *qp, const struct stagdv_barrier *b)
{
	struct wqe w = {
		.wr_id = b->wr_id,
		.opcode = STAG_WR_BARRIER,
		.send_flags = b->send_flags & IBV_SEND_SIGNALED,
		.rkey = b->rkey,
	};

	return sq_post_prepared(qp, &w, 0, NULL);
}

/* ---- one-shot sends ---- */

/* Writes the STag into the body, for a peer that does not get it in the header. */
static int put_stag(struct stag_qp *qp, struct wqe *w, uint32_t at, uint32_t stag)
{
	uint8_t bytes[sizeof(stag)];
	const uint8_t *from = bytes;
	struct key_map map;
	enum key_fault f;

	put_be32(bytes, stag);
	if (w->inline_data) {
		memcpy(w->inline_data + at, bytes, sizeof(bytes));
		return 0;
	}
	f = key_get(w->sge[0].lkey, qp->pd, NULL, w->sge[0].addr + at, sizeof(bytes),
		    IBV_ACCESS_LOCAL_WRITE, &map);
	if (f != KEY_OK) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: wr_id 0x%llx: the STag cannot be put into the body: %s",
		       qp->ibv.qp_num, (unsigned long long)w->wr_id, key_fault_str(f));
		return -EPERM;
	}
	for (unsigned i = 0; i < map.n; from += map.iov[i++].iov_len)
		memcpy(map.iov[i].iov_base, from, map.iov[i].iov_len);
	key_put(&map);
	return 0;
}

static int check_advertise(struct stag_qp *qp, const struct stagdv_advertise *a)
{
	const char *why = NULL;

	if (a->num_memory < 1 || a->num_memory > STAGDV_ADVERTISE_SGE)
		why = "no memory, or too many pieces";
	else if (!a->access ||
		 (a->access & ~(unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)))
		why = "rights other than to read and to write";
	else if (a->stag_at >= 0 &&
		 (a->num_sge < 1 || a->sg_list[0].length < sizeof(uint32_t) ||
		  (uint32_t)a->stag_at > a->sg_list[0].length - sizeof(uint32_t)))
		why = "no place for the STag in the body";
	if (why)
		misuse(why, qp->ibv.qp_num, "qp %u: invalid send that advertises, wr_id 0x%llx: %s",
		       qp->ibv.qp_num, (unsigned long long)a->wr_id, why);
	return why ? -EINVAL : 0;
}

/* The STag is valid before the peer learns of it. */
static int advertise_memory(struct stag_qp *qp, struct wqe *w, const struct stagdv_advertise *a)
{
	uint32_t reference;
	int err = shot_open(qp, a, &w->imm_or_inv);

	assert(qp_tx_locked(qp));
	if (!err && a->stag_at >= 0) {
		err = put_stag(qp, w, (uint32_t)a->stag_at, w->imm_or_inv);
		if (err)
			shot_end(qp, w->imm_or_inv, STAGDV_STAG_WITHDRAWN, &reference);
	}
	return err;
}

int sq_add_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag)
{
	struct ibv_send_wr wr = {
		.wr_id = a->wr_id,
		.sg_list = a->sg_list,
		.num_sge = a->num_sge,
		.opcode = (enum ibv_wr_opcode)STAG_WR_ADVERTISE,
		.send_flags = a->send_flags,
	};
	struct wqe *w = &qp->sq.wqe[(qp->sq.put + qp->sq.reserved) & qp->sq.mask];
	int err = check_advertise(qp, a);

	assert(qp_tx_locked(qp));
	if (!err)
		err = post_one(qp, &wr);
	if (err)
		return err;
	err = advertise_memory(qp, w, a);
	if (err) {
		qp->sq.reserved--;
		return err;
	}
	*stag = w->imm_or_inv; /* set before the peer can close it */
	return 0;
}

int qp_post_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag)
{
	int err;

	lock_acquire(&qp->tx_lock);
	err = sq_may_post(qp) ? sq_add_advertise(qp, a, stag) : -EINVAL;
	if (!err && (a->send_flags & STAGDV_SEND_MORE) && !is_over(qp))
		add_reserved(qp);
	else if (!err)
		sq_publish(qp);
	lock_release(&qp->tx_lock);
	return err;
}

int qp_post_close(struct stag_qp *qp, const struct stagdv_close *c)
{
	struct ibv_send_wr *bad, wr = {
					 .wr_id = c->wr_id,
					 .sg_list = c->sg_list,
					 .num_sge = c->num_sge,
					 .opcode = IBV_WR_SEND_WITH_INV,
					 .send_flags = c->send_flags | STAGDV_SEND_CLOSE,
					 .invalidate_rkey = c->stag,
				 };

	return qp_post_send(qp, &wr, &bad);
}

/* ---- windows of type 1 ---- */

int qp_bind_mw1(struct stag_qp *qp, struct stag_mw *mw, struct ibv_mw_bind *bind)
{
	uint32_t rkey = (mw->ibv.rkey & ~0xffu) | ((mw->ibv.rkey + 1) & 0xff);
	struct wqe w = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.mw = mw,
		.mr = bind->bind_info.mr ? to_stag_mr(bind->bind_info.mr) : NULL,
		.rkey = rkey,
		.bind_addr = bind->bind_info.addr,
		.bind_len = bind->bind_info.length,
		.bind_access = bind->bind_info.mw_access_flags,
	};
	int err;

	if (!w.mr && w.bind_len)
		return -EINVAL;
	err = sq_post_prepared(qp, &w, 0, NULL);
	if (!err)
		mw->ibv.rkey = rkey;
	return err;
}

/* ---- carrying out what needs no wire ---- */

static int execute_local(struct stag_qp *qp, struct wqe *w)
{
	switch (w->opcode) {
	case IBV_WR_LOCAL_INV:
		return key_invalidate(w->imm_or_inv, qp->pd, qp);
	case IBV_WR_BIND_MW:
		if (!w->mr && w->bind_len)
			return -EINVAL;
		return mw_bind(w->mw, qp, w->mr, w->rkey, w->bind_addr, w->bind_len,
			       w->bind_access);
	default:
		return mr_fast_reg(w->mr, qp->pd, w->sge, w->num_sge, w->bind_addr, w->rkey,
				   w->bind_access);
	}
}

void sq_complete_local(struct stag_qp *qp, struct wqe *w)
{
	int err = execute_local(qp, w);

	assert(qp_tx_locked(qp));
	w->done = true;
	if (!err)
		return;
	misuse(__func__, qp->ibv.qp_num, "qp %u: wr_id 0x%llx: %s", qp->ibv.qp_num,
	       (unsigned long long)w->wr_id,
	       w->opcode == IBV_WR_LOCAL_INV ? "this key cannot be invalidated by this queue pair"
	       : w->opcode == IBV_WR_BIND_MW ? "the window could not be bound"
					     : "the region could not be registered");
	w->status = w->opcode == IBV_WR_BIND_MW ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR;
}

/* ---- completing ---- */

static enum ibv_wc_opcode wc_opcode(const struct stag_qp *qp, const struct wqe *w)
{
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case STAG_WR_BARRIER:
		return qp->storage.store ? IBV_WC_DRIVER1 : IBV_WC_RDMA_READ;
	case STAG_WR_FAST_REG:
		return IBV_WC_DRIVER1;
	default:
		return IBV_WC_SEND;
	}
}

static void complete(struct stag_qp *qp, const struct wqe *w, enum ibv_wc_status status)
{
	struct ibv_wc wc = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(qp, w),
		.vendor_err = qp->storage.store && status == IBV_WC_REM_OP_ERR ? w->error : 0,
		.byte_len = w->length,
		.qp_num = qp->ibv.qp_num,
	};

	if (w == qp->sq.timed)
		latency_end(qp, status);
	if (status == IBV_WC_SUCCESS && !qp->config.sig_all && !(w->send_flags & IBV_SEND_SIGNALED))
		return;
	qp->stats.counters.completions++;
	cq_push(qp->scq, &wc, false);
}

void sq_complete(struct stag_qp *qp, const struct wqe *w)
{
	assert(qp_tx_locked(qp));
	complete(qp, w, w->status);
}

void sq_retire(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	assert(qp_tx_locked(qp));
	while (sq->get != sq->tx) {
		const struct wqe *w = &sq->wqe[sq->get & sq->mask];

		if (!w->done)
			break;
		complete(qp, w, w->status);
		sq->get++;
	}
	if (qp->rc && qp->rc->draining)
		rc_check_drained(qp);
}

void sq_flush(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;
	bool well = true;    /* after a failed request none succeeds, even if its bytes are out, */
	bool failed = false; /* and none fails for a reason of its own */

	assert(qp_tx_locked(qp));
	if (qp->storage.store && !store_qp_stop(qp))
		return;
	for (; sq->get != sq->put; sq->get++) {
		const struct wqe *w = &sq->wqe[sq->get & sq->mask];

		if (w->retired)
			continue;
		well = well && sq->get != sq->tx && w->done && w->status == IBV_WC_SUCCESS;
		complete(qp, w,
			 well || (w->status != IBV_WC_SUCCESS && !failed) ? w->status
									  : IBV_WC_WR_FLUSH_ERR);
		failed |= w->status != IBV_WC_SUCCESS;
	}
	sq->tx = sq->put;
}
