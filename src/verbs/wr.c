// SPDX-License-Identifier: BSD-2-Clause
/*
 * wr.c - work requests built in place: the ibv_wr_* calls of struct ibv_qp_ex.
 *
 * From ibv_wr_start() to ibv_wr_complete() the send side is locked. Each request is an entry of
 * the send queue, filled in place; completing checks them all and publishes them at once. The
 * first error drops them all.
 */
#include "verbs/verbs.h"

#include "adapter/misuse.h"

static struct stag_qp *to_qp(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct stag_qp, ibv_ex);
}

/* Keeps the first error; the rest of the list has no effect then. */
static void note_error(struct stag_qp *qp, int err)
{
	if (!qp->builder.err)
		qp->builder.err = err;
}

/* Returns the entry that the setters fill: the last one taken. */
static struct wqe *current_wqe(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	if (qp->builder.err)
		return NULL;
	if (!sq->reserved) {
		note_error(qp, EINVAL); /* a setter before any request */
		return NULL;
	}
	return &sq->wqe[(sq->put + sq->reserved - 1) & sq->mask];
}

static void refuse_opcode(struct stag_qp *qp, uint32_t opcode)
{
	misuse(__func__, qp->ibv.qp_num, "qp %u: opcode %u is not in its send_ops_flags",
	       qp->ibv.qp_num, opcode);
	note_error(qp, EINVAL);
}

/* Takes the next entry, and sets what all requests have. Returns NULL after an error. */
static struct wqe *begin_request(struct ibv_qp_ex *ex, uint32_t opcode, uint64_t op_flag)
{
	struct stag_qp *qp = to_qp(ex);

	if (__builtin_expect(qp->builder.err, 0))
		return NULL;
	if (__builtin_expect(!(qp->config.send_ops & op_flag), 0)) {
		refuse_opcode(qp, opcode);
		return NULL;
	}

	struct wqe *w = sq_take(qp);

	if (__builtin_expect(!w, 0)) {
		note_error(qp, ENOMEM);
		return NULL;
	}
	w->wr_id = ex->wr_id;
	w->opcode = opcode;
	w->send_flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE; /* the setters choose */
	if (qp->ud)
		ud_set_dest(qp, w, NULL, 0, 0);
	return w;
}

/* ---- the requests ------------------------------------------------------ */

static void wr_send(struct ibv_qp_ex *ex)
{
	begin_request(ex, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct wqe *w = begin_request(ex, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM);

	if (w)
		w->imm_or_inv = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct wqe *w = begin_request(ex, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV);

	if (w)
		w->imm_or_inv = rkey;
}

static struct wqe *begin_remote(struct ibv_qp_ex *ex, uint32_t opcode, uint64_t op_flag,
				uint32_t rkey, uint64_t remote_addr)
{
	struct wqe *w = begin_request(ex, opcode, op_flag);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = remote_addr;
	}
	return w;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	struct wqe *w = begin_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM,
				     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (w)
		w->imm_or_inv = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	struct wqe *w = begin_remote(ex, IBV_WR_ATOMIC_CMP_AND_SWP,
				     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	if (w) {
		w->compare_add = compare;
		w->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	struct wqe *w = begin_remote(ex, IBV_WR_ATOMIC_FETCH_AND_ADD,
				     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, remote_addr);

	if (w)
		w->compare_add = add;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct wqe *w = begin_request(ex, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV);

	if (w)
		w->imm_or_inv = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct wqe *w = begin_request(ex, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW);

	if (!w)
		return;
	w->mw = to_stag_mw(mw);
	w->rkey = rkey;
	w->mr = info->mr ? to_stag_mr(info->mr) : NULL;
	w->bind_addr = info->addr;
	w->bind_len = info->length;
	w->bind_access = info->mw_access_flags;
}

int wr_send_advertise(struct ibv_qp_ex *ex, const struct stagdv_advertise *a, uint32_t *stag)
{
	struct stag_qp *qp = to_qp(ex);
	struct stagdv_advertise ours = *a;

	ours.wr_id = ex->wr_id;
	ours.send_flags = ex->wr_flags;
	if (a->comp_mask || !(qp->config.send_ops & IBV_QP_EX_WITH_SEND))
		refuse_opcode(qp, STAG_WR_ADVERTISE);
	if (!qp->builder.err)
		note_error(qp, -sq_add_advertise(qp, &ours, stag));
	return qp->builder.err;
}

int wr_send_close(struct ibv_qp_ex *ex, uint32_t stag)
{
	struct wqe *w = begin_request(ex, STAG_WR_CLOSE, IBV_QP_EX_WITH_SEND_WITH_INV);

	if (w)
		w->imm_or_inv = stag;
	return to_qp(ex)->builder.err;
}

/* Requests of other transports */
static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	refuse_opcode(to_qp(ex), IBV_WR_TSO);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			    const void *value)
{
	refuse_opcode(to_qp(ex), IBV_WR_ATOMIC_WRITE);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct stag_qp *qp = to_qp(ex);
	struct wqe *w = current_wqe(qp);

	if (!qp->ud)
		note_error(qp, EINVAL);
	else if (w)
		ud_set_dest(qp, w, ah, qpn, qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	note_error(to_qp(ex), EINVAL);
}

/* ---- their data -------------------------------------------------------- */

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct stag_qp *qp = to_qp(ex);
	struct wqe *w = current_wqe(qp);

	if (!w)
		return;
	if (!qp->sq.max_sge) {
		note_error(qp, EINVAL);
		return;
	}
	w->sge[0] = (struct ibv_sge){.addr = addr, .length = length, .lkey = lkey};
	w->num_sge = 1;
	w->length = length;
	w->inline_data = NULL;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sges)
{
	struct stag_qp *qp = to_qp(ex);
	struct wqe *w = current_wqe(qp);
	int err = w ? sq_set_sges(qp, w, n, sges) : 0;

	if (err)
		note_error(qp, -err);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *bufs)
{
	struct stag_qp *qp = to_qp(ex);
	struct wqe *w = current_wqe(qp);
	int err = w ? sq_set_inline(qp, w, n, bufs) : 0;

	if (err)
		note_error(qp, -err);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buf);
}

/* ---- the bracket ------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct stag_qp *qp = to_qp(ex);

	lock_acquire(&qp->tx_lock);
	qp->builder.err = 0;
}

/* Checks each as ibv_post_send() would. Returns 0 or an errno value. */
static int check_all(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;

	if (!sq_may_post(qp))
		note_error(qp, EINVAL);
	for (uint32_t i = 0; i < sq->reserved && !qp->builder.err; i++)
		note_error(qp, -sq_check(qp, &sq->wqe[(sq->put + i) & sq->mask]));
	return qp->builder.err;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct stag_qp *qp = to_qp(ex);
	int err = check_all(qp);

	if (err)
		sq_drop(qp);
	else
		sq_publish(qp);
	lock_release(&qp->tx_lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct stag_qp *qp = to_qp(ex);

	sq_drop(qp);
	lock_release(&qp->tx_lock);
}

void wr_init(struct stag_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ibv_ex;

	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}
