// SPDX-License-Identifier: BSD-2-Clause
/* roce_pair.c - queue pairs of roce0, connected by GID and number. */
#include "roce_pair.h"

#include <fcntl.h>
#include <stdlib.h>

#include "adapter/device.h"

#define DEPTH 64

void end_open(struct end *e, const struct ways *w)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 2}};
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2},
		.qp_type = w && w->uc ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	*e = (struct end){.size = w && w->size ? w->size : ROCE_BUF};
	e->ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv);
	assert_non_null(e->ctx);
	fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK);
	e->pd = ibv_alloc_pd(e->ctx);
	init.send_cq = e->scq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0);
	init.recv_cq = e->rcq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0);
	if (w && w->with_srq)
		init.srq = e->srq = ibv_create_srq(e->pd, &srq);
	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->qp);
	e->buf = calloc(1, e->size);
	assert_non_null(e->buf);
	e->mr = ibv_reg_mr(e->pd, e->buf, e->size, ROCE_ACCESS);
	assert_non_null(e->mr);
}

void end_close(struct end *e)
{
	struct ibv_async_event ev;

	while (ibv_get_async_event(e->ctx, &ev) == 0)
		ibv_ack_async_event(&ev);
	if (e->qp)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->scq), 0);
	assert_int_equal(ibv_destroy_cq(e->rcq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

void to_init(struct end *e, const struct ways *w)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	a.qp_access_flags = w && w->access ? w->access : ROCE_ACCESS;
	if (w && w->no_rights)
		a.qp_access_flags = 0;
	assert_int_equal(
		ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

void to_rtr_by(struct end *e, uint32_t qpn, struct ibv_global_route path, const struct ways *w)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = w && w->rd_atomic ? w->rd_atomic : 4,
		.min_rnr_timer = w && w->min_rnr_timer ? w->min_rnr_timer : 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = path},
	};

	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (!w || !w->uc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (w && w->no_reads)
		a.max_dest_rd_atomic = 0;

	assert_int_equal(ibv_modify_qp(e->qp, &a, mask), 0);
}

void to_rtr(struct end *e, uint32_t qpn, const struct ways *w)
{
	struct ibv_global_route path = {.sgid_index = 0};

	assert_int_equal(ibv_query_gid(e->ctx, 1, 0, &path.dgid), 0);
	to_rtr_by(e, qpn, path, w);
}

void to_rts(struct end *e, const struct ways *w)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = w && w->timeout ? w->timeout : 22, /* 17 s */
		.retry_cnt = w && w->retry_cnt ? w->retry_cnt : 7,
		.rnr_retry = w && w->rnr_retry ? w->rnr_retry : 7,
		.max_rd_atomic = w && w->rd_atomic ? w->rd_atomic : 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (w && w->no_retries)
		a.retry_cnt = 0;
	if (w && w->no_rnr_retries)
		a.rnr_retry = 0;
	if (!w || !w->uc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	assert_int_equal(ibv_modify_qp(e->qp, &a, mask), 0);
}

void end_connect(struct end *e, uint32_t qpn, const struct ways *w)
{
	to_init(e, w);
	to_rtr(e, qpn, w);
	to_rts(e, w);
}

void end_move(struct end *e, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {.qp_state = to};

	assert_int_equal(ibv_modify_qp(e->qp, &a, IBV_QP_STATE), 0);
}

void end_drain(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

	assert_int_equal(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(e, IBV_EVENT_SQ_DRAINED);
}

void roce_open(struct roce_pair *p, const struct ways *w)
{
	end_open(&p->a, w);
	end_open(&p->b, w);
	end_connect(&p->a, p->b.qp->qp_num, w);
	end_connect(&p->b, p->a.qp->qp_num, w);
}

void roce_close(struct roce_pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

int try_post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(e->qp, wr, &bad);
}

void post_op(struct end *e, enum ibv_wr_opcode op, uint64_t id, size_t off, uint32_t len,
	     const struct end *to)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + off, len, e->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .imm_data = htobe32(7)};

	if (to) {
		wr.wr.rdma.remote_addr = (uintptr_t)to->buf + off;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	assert_int_equal(try_post(e, &wr), 0);
}

void post_send_(struct end *e, uint64_t id, size_t off, uint32_t len)
{
	post_op(e, IBV_WR_SEND, id, off, len, NULL);
}

void post_recv_(struct end *e, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + off, len, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(
		e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), 0);
}

void post_add(struct end *e, uint64_t id, size_t off, const struct end *to, size_t at, uint64_t by)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + off, 8, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.atomic = {.remote_addr = (uintptr_t)to->buf + at,
					       .compare_add = by,
					       .rkey = to->mr->rkey}};

	assert_int_equal(try_post(e, &wr), 0);
}

struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	await(ibv_poll_cq(cq, 1, &wc) == 1);
	return wc;
}

struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(cq);

	if (wc.status != status || wc.wr_id != id)
		fail_msg("request %llu: %s; expected were request %llu: %s",
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			 (unsigned long long)id, ibv_wc_status_str(status));
	return wc;
}

void expect_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
}

void expect_event(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event ev;

	await(ibv_get_async_event(e->ctx, &ev) == 0);
	assert_int_equal(ev.event_type, type);
	ibv_ack_async_event(&ev);
}

void expect_no_event(struct end *e)
{
	struct ibv_async_event ev;

	if (ibv_get_async_event(e->ctx, &ev) == 0)
		fail_msg("an event: %s", ibv_event_type_str(ev.event_type));
}

static enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

void expect_qp_state(struct end *e, enum ibv_qp_state state)
{
	assert_int_equal(state_of(e), state);
}

void await_qp_state(struct end *e, enum ibv_qp_state state)
{
	await(state_of(e) == state);
}

void exchange(struct roce_pair *p)
{
	post_recv_(&p->a, 901, 0, 8);
	post_recv_(&p->b, 902, 0, 8);
	post_send_(&p->a, 903, 0, 8);
	expect_wc(p->b.rcq, 902, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 903, IBV_WC_SUCCESS);
	post_send_(&p->b, 904, 0, 8);
	expect_wc(p->a.rcq, 901, IBV_WC_SUCCESS);
	expect_wc(p->b.scq, 904, IBV_WC_SUCCESS);
}
