// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ud.c - datagrams of UD queue pairs on roce0: what arrives, with what, what is dropped without a word, and which
 * requests fail.
 *
 * White-box: a handle to an address of this machine is turned into one to another machine (FAR), so that both ways are
 * tested. The argument `far` does so for all tests.
 */
#include "roce_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/gid.h"
#include "adapter/mcast.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/ud.h"

#define QKEY  0x11111111
#define GRH   40
#define DEPTH 64
#define BUF   (DEPTH * 4608)

static bool far;

struct uend {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
};

struct upair {
	struct uend a, b;
	struct ibv_ah *ah; /* of a: to b's and any other queue pair of this machine */
};

static void move_to(struct uend *e, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr a = {.qp_state = to, .port_num = 1, .qkey = QKEY};

	assert_int_equal(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | mask), 0);
}

static void to_rts_(struct uend *e)
{
	move_to(e, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	move_to(e, IBV_QPS_RTR, 0);
	move_to(e, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static void uend_open(struct uend *e, bool with_srq)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 2}};
	struct ibv_qp_init_attr_ex init = {
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};

	*e = (struct uend){.ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv)};
	fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK);
	init.pd = e->pd = ibv_alloc_pd(e->ctx);
	e->channel = ibv_create_comp_channel(e->ctx);
	init.send_cq = e->scq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0);
	init.recv_cq = e->rcq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, e->channel, 0);
	if (with_srq)
		init.srq = e->srq = ibv_create_srq(e->pd, &srq);
	e->qp = ibv_create_qp_ex(e->ctx, &init);
	assert_non_null(e->qp);
	e->buf = calloc(1, BUF);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
}

static void uend_close(struct uend *e)
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
	assert_int_equal(ibv_destroy_comp_channel(e->channel), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

static struct ibv_ah_attr here(struct uend *e)
{
	struct ibv_ah_attr a = {
		.is_global = 1, .port_num = 1, .grh = {.traffic_class = 0x20, .hop_limit = 9}};

	assert_int_equal(ibv_query_gid(e->ctx, 1, 0, &a.grh.dgid), 0);
	return a;
}

static struct ibv_ah *new_ah(struct uend *e)
{
	struct ibv_ah_attr a = here(e);
	struct ibv_ah *ah = ibv_create_ah(e->pd, &a);

	assert_non_null(ah);
	if (far)
		to_stag_ah(ah)->path.way = UD_FAR;
	return ah;
}

static int open_with(void **state, bool with_srq)
{
	struct upair *p = calloc(1, sizeof(*p));

	uend_open(&p->a, false);
	uend_open(&p->b, with_srq);
	to_rts_(&p->a);
	to_rts_(&p->b);
	p->ah = new_ah(&p->a);
	*state = p;
	return 0;
}

static int open_pair(void **state)
{
	return open_with(state, false);
}

static int open_pair_srq(void **state)
{
	return open_with(state, true);
}

static int close_pair(void **state)
{
	struct upair *p = *state;

	assert_int_equal(ibv_destroy_ah(p->ah), 0);
	uend_close(&p->a);
	uend_close(&p->b);
	free(p);
	return 0;
}

/* ---- requests ---- */

static void receive(struct uend *e, uint64_t id, size_t at, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + at, len, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(
		e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), 0);
}

static struct ibv_send_wr request(struct upair *p, uint64_t id, struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = {.ah = p->ah, .remote_qpn = p->b.qp->qp_num, .remote_qkey = QKEY},
	};
}

static struct ibv_sge piece(struct uend *e, size_t at, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)e->buf + at, len, e->mr->lkey};
}

static void send_wr(struct upair *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(p->a.qp, wr, &bad), 0);
}

static void send_to_b(struct upair *p, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = piece(&p->a, 0, len);
	struct ibv_send_wr wr = request(p, id, &sge);

	send_wr(p, &wr);
}

static void expect_sent(struct upair *p, uint64_t id)
{
	expect_wc(p->a.scq, id, IBV_WC_SUCCESS);
}

/* What was sent before was dropped, and has taken no receive: the next one gets receive `id`. */
static void expect_only_next(struct upair *p, uint64_t id)
{
	struct ibv_wc wc;

	p->a.buf[0] = 0x77;
	send_to_b(p, 99, 1);
	expect_sent(p, 99);
	wc = expect_wc(p->b.rcq, id, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, GRH + 1);
	expect_nothing(p->b.rcq);
}

/* ---- what arrives ---- */

static void datagram_arrives_with_its_source_and_a_grh(void **state)
{
	struct upair *p = *state;
	struct ibv_wc wc;

	memcpy(p->a.buf, "hello", 5);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 5);
	wc = expect_wc(p->a.scq, 2, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH);
	assert_int_equal(wc.byte_len, GRH + 5);
	assert_int_equal(wc.src_qp, p->a.qp->qp_num);
	assert_int_equal(wc.qp_num, p->b.qp->qp_num);
	assert_int_equal(wc.pkey_index, 0);
	assert_int_equal(wc.slid, 0);
	assert_memory_equal(p->b.buf + GRH, "hello", 5);
}

static void grh_says_addresses_class_and_hop_limit(void **state)
{
	struct upair *p = *state;
	struct ibv_ah_attr a = here(&p->a);
	struct ibv_wc wc;
	struct grh g;

	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 5);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(grh_get(p->b.buf, &g), 0);
	assert_int_equal(wc.sl, g.version == 4 ? 0xa : 0x9);
	assert_int_equal(g.traffic_class, 0x20);
	assert_int_equal(g.hop_limit, 9);
	assert_memory_equal(g.sgid, a.grh.dgid.raw, 16);
	assert_memory_equal(g.dgid, a.grh.dgid.raw, 16);
}

static void every_length_up_to_the_mtu_arrives(void **state)
{
	struct upair *p = *state;
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_port(p->a.ctx, 1, &port), 0);

	const uint32_t mtu = 128u << port.active_mtu, lengths[] = {0, 1, 255, 256, mtu - 1, mtu};

	for (unsigned i = 0; i < 6; i++) {
		uint32_t len = lengths[i];

		for (uint32_t k = 0; k < len; k++)
			p->a.buf[k] = (uint8_t)(k * 7 + i);
		receive(&p->b, i, 0, GRH + len);
		send_to_b(p, i, len);
		expect_sent(p, i);
		assert_int_equal(expect_wc(p->b.rcq, i, IBV_WC_SUCCESS).byte_len, GRH + len);
		assert_memory_equal(p->b.buf + GRH, p->a.buf, len);
	}
}

static void pieces_are_gathered_and_scattered(void **state)
{
	struct upair *p = *state;
	struct ibv_sge out[2] = {piece(&p->a, 0, 10), piece(&p->a, 100, 20)};
	struct ibv_sge in[2] = {piece(&p->b, 0, GRH + 15), piece(&p->b, 1000, 64)};
	struct ibv_recv_wr r = {.wr_id = 1, .sg_list = in, .num_sge = 2}, *bad;
	struct ibv_send_wr wr = request(p, 2, out);

	memset(p->a.buf, 1, 10);
	memset(p->a.buf + 100, 2, 20);
	wr.num_sge = 2;
	assert_int_equal(ibv_post_recv(p->b.qp, &r, &bad), 0);
	send_wr(p, &wr);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p->b.buf + GRH, "\1\1\1\1\1\1\1\1\1\1\2\2\2\2\2", 15);
	assert_memory_equal(p->b.buf + 1000, "\2\2\2\2\2\2\2\2\2\2\2\2\2\2\2\0", 16);
}

static void inline_data_is_taken_at_the_post(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = {(uintptr_t) "inline", 6, 0};
	struct ibv_send_wr wr = request(p, 2, &sge);

	wr.send_flags = IBV_SEND_INLINE;
	receive(&p->b, 1, 0, 200);
	send_wr(p, &wr);
	expect_sent(p, 2);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p->b.buf + GRH, "inline", 6);
}

static void immediate_arrives(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);
	struct ibv_wc wc;

	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htobe32(0x12345678);
	receive(&p->b, 1, 0, 200);
	send_wr(p, &wr);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0x12345678);
}

static void requests_built_in_place_are_sent(void **state)
{
	struct upair *p = *state;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a.qp);
	struct ibv_wc wc;

	receive(&p->b, 1, 0, 200);
	ibv_wr_start(ex);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(ex, htobe32(5));
	ibv_wr_set_ud_addr(ex, p->ah, p->b.qp->qp_num, QKEY);
	ibv_wr_set_sge(ex, p->a.mr->lkey, (uintptr_t)p->a.buf, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect_sent(p, 2);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(be32toh(wc.imm_data), 5);
	assert_int_equal(wc.byte_len, GRH + 8);
}

static void a_built_request_without_an_address_is_refused(void **state)
{
	struct upair *p = *state;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a.qp);

	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, p->a.mr->lkey, (uintptr_t)p->a.buf, 8);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
}

static void a_post_without_an_address_is_refused(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge), *bad;

	wr.wr.ud.ah = NULL;
	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
}

static void a_queue_pair_sends_to_itself(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 4096, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);

	wr.wr.ud.remote_qpn = p->a.qp->qp_num;
	memcpy(p->a.buf + 4096, "self", 4);
	receive(&p->a, 1, 0, 200);
	send_wr(p, &wr);
	expect_sent(p, 2);
	expect_wc(p->a.rcq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p->a.buf + GRH, "self", 4);
}

/* No thread polls: the engine reads. */
static void sleeper_is_woken(void **state)
{
	struct upair *p = *state;
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 0), 0);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 5);
	assert_int_equal(ibv_get_cq_event(p->b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

/* As on mlx5: a program that polls before it arms does not sleep beside a completion that came between the two. */
static void arming_beside_a_completion_raises_its_event(void **state)
{
	struct upair *p = *state;
	struct pollfd fd = {.fd = p->b.channel->fd, .events = POLLIN};
	struct stag_cq *queue = to_stag_cq(p->b.rcq);
	struct ibv_cq *cq;
	void *context;

	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 5);
	await(queue->put != queue->get);
	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 1), 0);
	assert_int_equal(poll(&fd, 1, 0), 0); /* it was not solicited */
	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 0), 0);
	assert_int_equal(ibv_get_cq_event(p->b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 0), 0);
	assert_int_equal(poll(&fd, 1, 0), 0); /* once */
}

static void only_a_solicited_datagram_wakes_who_waits_for_those(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 3, &sge);
	struct pollfd fd = {.fd = p->b.channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 1), 0);
	receive(&p->b, 1, 0, 200);
	receive(&p->b, 2, 0, 200);
	send_to_b(p, 2, 4);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(poll(&fd, 1, 0), 0);
	wr.send_flags = IBV_SEND_SOLICITED;
	send_wr(p, &wr);
	assert_int_equal(ibv_get_cq_event(p->b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
}

static void shared_receive_queue_is_used(void **state)
{
	struct upair *p = *state;

	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

static void late_receive_of_a_shared_queue_gets_the_datagram(void **state)
{
	struct upair *p = *state;

	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	await(atomic_load(&to_stag_qp(p->b.qp)->ud->n_held) == 1);
	receive(&p->b, 1, 0, 200);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

static void answer_by_the_completion_reaches_the_sender(void **state)
{
	struct upair *p = *state;
	struct ibv_wc wc;
	struct ibv_ah *ah;
	struct ibv_sge sge = piece(&p->b, 1000, 6);
	struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1}, *bad;

	receive(&p->a, 3, 1000, 200);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	ah = ibv_create_ah_from_wc(p->b.pd, &wc, (struct ibv_grh *)p->b.buf, 1);
	assert_non_null(ah);
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.wr.ud.remote_qkey = QKEY;
	memcpy(p->b.buf + 1000, "answer", 6);
	assert_int_equal(ibv_post_send(p->b.qp, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	expect_wc(p->a.rcq, 3, IBV_WC_SUCCESS);
	assert_memory_equal(p->a.buf + 1000 + GRH, "answer", 6);
}

/* 127.0.0.1 is no GID where there are others. */
static void datagram_to_an_address_that_is_no_gid_can_be_answered(void **state)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct upair *p = *state;
	struct ibv_ah_attr from = here(&p->a), to = from, back;
	struct ibv_wc wc;

	gid_from_addr((struct sockaddr *)&lo, &to.grh.dgid);
	assert_int_equal(ibv_destroy_ah(p->ah), 0);
	p->ah = ibv_create_ah(p->a.pd, &to);
	assert_non_null(p->ah);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_init_ah_from_wc(p->b.ctx, 1, &wc, (struct ibv_grh *)p->b.buf, &back),
			 0);
	assert_memory_equal(&back.grh.dgid, &from.grh.dgid, 16);
}

static void attributes_from_a_completion_are_those_of_its_sender(void **state)
{
	struct upair *p = *state;
	struct ibv_ah_attr a = here(&p->a), seen;
	struct ibv_wc wc;

	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	wc = expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_init_ah_from_wc(p->b.ctx, 1, &wc, (struct ibv_grh *)p->b.buf, &seen),
			 0);
	assert_int_equal(seen.is_global, 1);
	assert_int_equal(seen.port_num, 1);
	assert_int_equal(seen.grh.sgid_index, 0);
	assert_int_equal(seen.grh.traffic_class, 0x20);
	assert_int_equal(seen.grh.hop_limit, 9);
	assert_int_equal(seen.sl, wc.sl);
	assert_memory_equal(&seen.grh.dgid, &a.grh.dgid, 16);
}

static void request_posted_before_rts_is_sent_then(void **state)
{
	struct upair *p = *state;

	move_to(&p->a, IBV_QPS_RESET, 0);
	move_to(&p->a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	expect_nothing(p->a.scq);
	move_to(&p->a, IBV_QPS_RTR, 0);
	move_to(&p->a, IBV_QPS_RTS, IBV_QP_SQ_PSN);
	expect_sent(p, 2);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

static void queue_pair_is_used_again_after_reset(void **state)
{
	struct upair *p = *state;

	receive(&p->b, 1, 0, 200);
	move_to(&p->b, IBV_QPS_RESET, 0);
	to_rts_(&p->b);
	receive(&p->b, 2, 0, 200);
	expect_only_next(p, 2);
}

static void await_held(struct upair *p)
{
	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	await(atomic_load(&to_stag_qp(p->b.qp)->ud->n_held) == 1);
}

/* Also with an SRQ: the datagram that waits for a receive is not for the next life of the queue pair. */
static void reset_drops_what_waits_for_a_receive(void **state)
{
	struct upair *p = *state;

	await_held(p);
	move_to(&p->b, IBV_QPS_RESET, 0);
	assert_int_equal(atomic_load(&to_stag_qp(p->b.qp)->ud->n_held), 0);
	to_rts_(&p->b);
	receive(&p->b, 1, 0, 200);
	expect_only_next(p, 1);
}

static void reset_ends_the_wait_for_a_shared_receive(void **state)
{
	struct upair *p = *state;
	struct stag_qp *qp = to_stag_qp(p->b.qp);

	await_held(p);
	move_to(&p->b, IBV_QPS_RESET, 0);
	lock_acquire(&qp->srq->lock);
	assert_true(list_empty(&qp->srq->waiters));
	lock_release(&qp->srq->lock);
}

static void sleeper_is_woken_after_a_reset_of_a_paused_queue_pair(void **state)
{
	struct upair *p = *state;
	struct pollfd fd = {.fd = p->b.channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	await_held(p);
	move_to(&p->b, IBV_QPS_RESET, 0);
	to_rts_(&p->b);
	assert_int_equal(ibv_req_notify_cq(p->b.rcq, 0), 0);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 3, 5);
	await(poll(&fd, 1, 0) == 1);
	assert_int_equal(ibv_get_cq_event(p->b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

/* Each time that the queue pair goes there. */
static void a_drained_queue_is_reported_if_the_program_asked(void **state)
{
	struct upair *p = *state;
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_async_event ev;

	assert_int_equal(ibv_modify_qp(p->a.qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	assert_int_equal(ibv_get_async_event(p->a.ctx, &ev), 0);
	assert_int_equal(ev.event_type, IBV_EVENT_SQ_DRAINED);
	ibv_ack_async_event(&ev);
	move_to(&p->a, IBV_QPS_RTS, 0);
	move_to(&p->a, IBV_QPS_SQD, 0);
	assert_int_equal(ibv_get_async_event(p->a.ctx, &ev), -1);
}

static void error_flushes_both_queues(void **state)
{
	struct upair *p = *state;

	receive(&p->a, 1, 0, 200);
	move_to(&p->a, IBV_QPS_ERR, 0);
	expect_wc(p->a.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	send_to_b(p, 2, 4);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
}

/* ---- what is dropped ---- */

static void wrong_qkey_is_dropped(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);

	receive(&p->b, 1, 0, 200);
	wr.wr.ud.remote_qkey = QKEY + 1;
	send_wr(p, &wr);
	expect_sent(p, 2);
	expect_only_next(p, 1);
}

static void highest_bit_selects_the_queue_pairs_own_qkey(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);

	receive(&p->b, 1, 0, 200);
	wr.wr.ud.remote_qkey = 0x80000000u;
	send_wr(p, &wr);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

static void receive_without_room_is_not_taken(void **state)
{
	struct upair *p = *state;

	receive(&p->b, 1, 0, GRH + 3);
	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	expect_only_next(p, 1);
}

static void number_of_nobody_is_a_success_for_the_sender(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);

	receive(&p->b, 1, 0, 200);
	wr.wr.ud.remote_qpn = p->b.qp->qp_num + 1;
	send_wr(p, &wr);
	expect_sent(p, 2);
	expect_only_next(p, 1);
}

static void connected_queue_pair_takes_no_datagram(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, 2, &sge);
	struct end rc;

	end_open(&rc, NULL);
	to_init(&rc, NULL);
	post_recv_(&rc, 7, 0, 200);
	receive(&p->b, 1, 0, 200);
	wr.wr.ud.remote_qpn = rc.qp->qp_num;
	send_wr(p, &wr);
	expect_sent(p, 2);
	expect_only_next(p, 1);
	expect_nothing(rc.rcq);
	end_close(&rc);
}

static bool has_unread(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Waits until all that was sent to a queue pair has been handled. */
static void await_read(struct uend *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);

	await(!has_unread(qp->ud->rx_fd) && !has_unread(qp->port->udp));
	lock_acquire(&qp->port->ud->lock); /* a reader may hold it in its hands */
	lock_acquire(&qp->rx_lock);
	lock_release(&qp->rx_lock);
	lock_release(&qp->port->ud->lock);
}

static void queue_pair_before_rtr_takes_no_datagram(void **state)
{
	struct upair *p = *state;

	move_to(&p->b, IBV_QPS_RESET, 0);
	move_to(&p->b, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	await_read(&p->b);
	move_to(&p->b, IBV_QPS_RTR, 0);
	expect_only_next(p, 1);
}

static void datagram_without_a_receive_waits_for_one_and_then_no_longer(void **state)
{
	struct upair *p = *state;
	struct ud *ud = to_stag_qp(p->b.qp)->ud;

	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	await(atomic_load(&ud->n_held) == 1);
	receive(&p->b, 1, 0, 200);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	send_to_b(p, 3, 4);
	expect_sent(p, 3);
	await(atomic_load(&ud->n_held) == 1);
	await(atomic_load(&ud->n_held) == 0);
	receive(&p->b, 2, 0, 200);
	expect_only_next(p, 2);
}

/* ---- which requests fail ---- */

static void expect_failure(struct upair *p, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	receive(&p->a, 11, 0, 200);
	send_to_b(p, 1, 4);
	send_wr(p, wr);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, wr->wr_id, status);
	expect_wc(p->a.rcq, 11, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(p->a.qp->state, IBV_QPS_ERR);
	send_to_b(p, 3, 4);
	expect_wc(p->a.scq, 3, IBV_WC_WR_FLUSH_ERR);
}

static void longer_than_the_mtu_is_a_length_error(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 0);
	struct ibv_send_wr wr = request(p, 2, &sge);
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_port(p->a.ctx, 1, &port), 0);
	sge.length = (128u << port.active_mtu) + 1;
	expect_failure(p, &wr, IBV_WC_LOC_LEN_ERR);
}

static void write_read_and_atomic_are_operation_errors(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						 IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (unsigned i = 0; i < 3; i++) {
		struct upair *p;
		struct ibv_sge sge;
		struct ibv_send_wr wr;

		close_pair(state);
		open_pair(state);
		p = *state;
		sge = piece(&p->a, 0, 8);
		wr = request(p, 2, &sge);
		wr.opcode = ops[i];
		expect_failure(p, &wr, IBV_WC_LOC_QP_OP_ERR);
	}
}

static void memory_that_is_not_registered_is_a_protection_error(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->a, 0, 8);
	struct ibv_send_wr wr = request(p, 2, &sge);

	sge.lkey ^= 0xff;
	expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
}

static void receive_in_memory_that_is_not_registered_fails(void **state)
{
	struct upair *p = *state;
	struct ibv_sge sge = piece(&p->b, 0, 200);
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	sge.lkey ^= 0xff;
	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
	send_to_b(p, 2, 4);
	expect_sent(p, 2);
	expect_wc(p->b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	await(__atomic_load_n(&p->b.qp->state, __ATOMIC_RELAXED) == IBV_QPS_ERR);
}

/* ---- address handles ---- */

static void expect_no_ah(struct upair *p, struct ibv_ah_attr *a)
{
	errno = 0;
	assert_null(ibv_create_ah(p->a.pd, a));
	assert_int_equal(errno, EINVAL);
}

static void impossible_address_is_refused(void **state)
{
	struct upair *p = *state;
	struct ibv_ah_attr a = here(&p->a);

	a.is_global = 0;
	expect_no_ah(p, &a);
	a = here(&p->a);
	a.port_num = 2;
	expect_no_ah(p, &a);
	a = here(&p->a);
	a.grh.sgid_index = 200;
	expect_no_ah(p, &a);
	a = here(&p->a);
	memset(&a.grh.dgid, 0, sizeof(a.grh.dgid));
	expect_no_ah(p, &a);
}

static void domain_with_an_address_handle_is_in_use(void **state)
{
	struct upair *p = *state;
	struct ibv_pd *pd = ibv_alloc_pd(p->a.ctx);
	struct ibv_ah_attr a = here(&p->a);
	struct ibv_ah *ah = ibv_create_ah(pd, &a);

	assert_non_null(ah);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void waiting_request_outlives_its_address_handle(void **state)
{
	struct upair *p = *state;

	move_to(&p->a, IBV_QPS_RESET, 0);
	move_to(&p->a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 4);
	assert_int_equal(ibv_destroy_ah(p->ah), 0);
	p->ah = new_ah(&p->a);
	move_to(&p->a, IBV_QPS_RTR, 0);
	move_to(&p->a, IBV_QPS_RTS, IBV_QP_SQ_PSN);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
}

/* ---- many ---- */

#define MANY 20000

struct sender {
	struct upair *p;
	pthread_t thread;
};

static void *send_many(void *arg)
{
	struct upair *p = ((struct sender *)arg)->p;
	uint32_t posted = 0, done = 0;

	while (done < MANY) {
		struct ibv_wc wc;

		if (posted < MANY && posted - done < DEPTH) {
			uint32_t *at = (uint32_t *)(p->a.buf + posted % DEPTH * 64);
			struct ibv_sge sge = piece(&p->a, posted % DEPTH * 64, 64);
			struct ibv_send_wr wr = request(p, posted, &sge), *bad;

			*at = posted++;
			if (ibv_post_send(p->a.qp, &wr, &bad))
				abort();
		} else if (ibv_poll_cq(p->a.scq, 1, &wc) == 1) {
			if (wc.status || wc.wr_id != done++)
				abort();
		}
	}
	return NULL;
}

/* On one machine, as long as receives are posted in time. */
static void nothing_is_lost_and_nothing_overtakes(void **state)
{
	struct upair *p = *state;
	struct sender s = {.p = p};

	for (uint64_t i = 0; i < DEPTH; i++)
		receive(&p->b, i, i * 256, 256);
	assert_int_equal(pthread_create(&s.thread, NULL, send_many, &s), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		uint32_t seen;

		expect_wc(p->b.rcq, i % DEPTH, IBV_WC_SUCCESS);
		memcpy(&seen, p->b.buf + i % DEPTH * 256 + GRH, sizeof(seen));
		assert_int_equal(seen, i);
		receive(&p->b, i % DEPTH, i % DEPTH * 256, 256);
	}
	pthread_join(s.thread, NULL);
}

/* A socket by the name of a queue pair, which nobody reads. */
static void receiver_that_does_not_read_does_not_stop_the_sender_for_ever(void **state)
{
	struct upair *p = *state;
	struct sockaddr_storage name;
	uint32_t qpn = p->b.qp->qp_num + 0x20;
	int len = ud_socket_name(qpn, &name), fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&name, (socklen_t)len), 0);
	for (uint64_t i = 0; i < DEPTH; i++) {
		struct ibv_sge sge = piece(&p->a, 0, 1024);
		struct ibv_send_wr wr = request(p, i, &sge);

		wr.wr.ud.remote_qpn = qpn;
		send_wr(p, &wr);
	}
	for (uint64_t i = 0; i < DEPTH; i++)
		expect_sent(p, i);
	receive(&p->b, 1, 0, 200);
	expect_only_next(p, 1);
	close(fd);
}

/* ---- receivers that do not read ---- */

#define STALLED 4

struct stalled { /* sockets by the names of queue pairs, which nobody reads */
	uint32_t qpn[STALLED];
	int fd[STALLED];
};

static void open_stalled(struct upair *p, struct stalled *s)
{
	for (uint32_t i = 0; i < STALLED; i++) {
		struct sockaddr_storage name;
		int len;

		s->qpn[i] = p->b.qp->qp_num + 0x20 + i;
		len = ud_socket_name(s->qpn[i], &name);
		s->fd[i] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(s->fd[i], (struct sockaddr *)&name, (socklen_t)len), 0);
	}
}

static void close_stalled(struct stalled *s)
{
	for (unsigned i = 0; i < STALLED; i++)
		close(s->fd[i]);
}

static void send_to(struct upair *p, uint32_t qpn, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = piece(&p->a, 0, len);
	struct ibv_send_wr wr = request(p, id, &sge);

	wr.wr.ud.remote_qpn = qpn;
	send_wr(p, &wr);
}

/* Returns how long b's datagram took. */
static uint64_t time_one(struct upair *p, uint32_t stalled, uint64_t id, uint32_t len)
{
	uint64_t start, took;

	receive(&p->b, id, 0, 200);
	start = clock_ns();
	send_to(p, stalled, id, len);
	send_to_b(p, id, 8);
	expect_wc(p->b.rcq, id, IBV_WC_SUCCESS);
	took = clock_ns() - start;
	expect_sent(p, id);
	expect_sent(p, id);
	return took;
}

static bool is_given_up(struct upair *p, uint32_t qpn)
{
	struct stag_qp *qp = to_stag_qp(p->a.qp);
	bool found = false;

	lock_acquire(&qp->tx_lock);
	for (unsigned i = 0; i < qp->ud->n_full; i++)
		found |= qp->ud->full[i].qpn == qpn && qp->ud->full[i].given_up;
	lock_release(&qp->tx_lock);
	return found;
}

static bool all_is_sent(struct upair *p)
{
	struct stag_qp *qp = to_stag_qp(p->a.qp);
	bool sent;

	lock_acquire(&qp->tx_lock);
	sent = qp->sq.tx == qp->sq.put;
	lock_release(&qp->tx_lock);
	return sent;
}

/* Between datagrams to one that does not read, b gets each of its own, and the sender waits once. */
static void stopped_receiver_delays_the_others_once(void **state)
{
	struct upair *p = *state;
	struct stalled s;
	uint64_t id = 0;

	open_stalled(p, &s);
	while (!is_given_up(p, s.qpn[0]))
		assert_in_range(time_one(p, s.qpn[0], id++, 1024), 0, UD_PATIENCE_NS - 1);
	for (unsigned i = 0; i < 2 * DEPTH; i++) {
		receive(&p->b, id, 0, 200);
		send_to(p, s.qpn[0], id, 1024);
		send_to_b(p, id, 8);
		assert_true(all_is_sent(p)); /* by the posts */
		expect_sent(p, id);
		expect_sent(p, id);
		expect_wc(p->b.rcq, id++, IBV_WC_SUCCESS);
	}
	close_stalled(&s);
}

/* Posts as many datagrams as travel together. Returns how many. */
static unsigned send_train(struct upair *p, uint32_t qpn)
{
	uint32_t mtu = to_stag_qp(p->a.qp)->ud->mtu;
	struct ibv_sge sge = piece(&p->a, 0, mtu);
	struct ibv_send_wr wr[DEPTH];
	unsigned n = UD_TRAIN / (DATAGRAM_HDR + mtu);

	for (unsigned i = 0; i < n; i++) {
		wr[i] = request(p, 7, &sge);
		wr[i].wr.ud.remote_qpn = qpn;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	send_wr(p, wr);
	return n;
}

static void send_train_and_one(struct upair *p, uint32_t stalled)
{
	unsigned n;

	receive(&p->b, 1, 0, 200);
	n = send_train(p, stalled);
	send_to_b(p, 2, 8);
	expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS);
	while (n--)
		expect_sent(p, 7);
	expect_sent(p, 2);
}

/* As on a machine where net.core.wmem_max is low. */
static void shrink_send_buffer(struct upair *p)
{
	int fd = to_stag_qp(p->a.qp)->ud->tx_fd, room = 2 * UD_TRAIN;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
}

/* What they have not read fills the sending socket's own buffer, too. */
static void stopped_receivers_do_not_take_the_room_of_another(void **state)
{
	struct upair *p = *state;
	struct stalled s;

	open_stalled(p, &s);
	send_to(p, s.qpn[0], 7, 8);
	expect_sent(p, 7);
	shrink_send_buffer(p);
	for (unsigned i = 0; i < STALLED; i++)
		while (!is_given_up(p, s.qpn[i]))
			send_train_and_one(p, s.qpn[i]);
	for (unsigned i = 0; i < DEPTH; i++)
		send_train_and_one(p, s.qpn[i % STALLED]);
	close_stalled(&s);
}

/* It gets what is sent from then on. */
static void receiver_that_reads_again_is_served_again(void **state)
{
	struct upair *p = *state;
	uint8_t buf[DATAGRAM_MAX];
	struct stalled s;
	uint64_t id = 0;

	open_stalled(p, &s);
	while (!is_given_up(p, s.qpn[0]))
		time_one(p, s.qpn[0], id++, 16);
	while (recv(s.fd[0], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	send_to(p, s.qpn[0], id, 16);
	expect_sent(p, id);
	assert_int_equal(recv(s.fd[0], buf, sizeof(buf), MSG_DONTWAIT), DATAGRAM_HDR + 16);
	assert_false(is_given_up(p, s.qpn[0]));
	close_stalled(&s);
}

/* ---- strangers ---- */

/* A datagram to b as a peer at this port would send it. */
static struct datagram claim(struct upair *p, uint16_t port)
{
	struct ibv_ah_attr a = here(&p->a);
	struct datagram d = {
		.src_qpn = (uint32_t)port << 8 | 3,
		.dst_qpn = p->b.qp->qp_num,
		.qkey = QKEY,
		.length = 4,
	};

	memcpy(d.sgid, a.grh.dgid.raw, 16);
	memcpy(d.dgid, a.grh.dgid.raw, 16);
	return d;
}

static int open_stranger(struct upair *p, struct sockaddr_in *to, uint16_t *port)
{
	struct ibv_ah_attr a = here(&p->a);
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t len = sizeof(own);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	*to = (struct sockaddr_in){.sin_family = AF_INET,
				   .sin_port = htons(qpn_port(p->b.qp->qp_num))};
	memcpy(&to->sin_addr, a.grh.dgid.raw + 12, 4);
	own.sin_addr = to->sin_addr;
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &len), 0);
	*port = ntohs(own.sin_port);
	return fd;
}

static void throw(int fd, const struct sockaddr_in *to, const uint8_t *bytes, size_t len)
{
	assert_int_equal(sendto(fd, bytes, len, 0, (const struct sockaddr *)to, sizeof(*to)), len);
}

/* After the last one, which is right, has arrived, all before it were handled. */
static void forged_and_damaged_datagrams_are_dropped(void **state)
{
	struct upair *p = *state;
	struct sockaddr_in to;
	uint16_t port;
	int fd = open_stranger(p, &to, &port);
	uint8_t buf[DATAGRAM_MAX] = {0};
	struct datagram d;

	receive(&p->b, 1, 0, 200);
	for (unsigned bit = 0; bit < (DATAGRAM_HDR + 4) * 8; bit++) {
		d = claim(p, port);
		datagram_encode(&d, buf);
		datagram_seal(buf, 4);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		throw(fd, &to, buf, DATAGRAM_HDR + 4);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	throw(fd, &to, buf, 0);
	throw(fd, &to, buf, DATAGRAM_HDR);
	d = claim(p, port + 1); /* the number of another port's queue pair */
	datagram_encode(&d, buf);
	throw(fd, &to, buf, DATAGRAM_HDR + 4);
	d = claim(p, port);
	d.dgid[15] ^= 1; /* sent to another address */
	datagram_encode(&d, buf);
	throw(fd, &to, buf, DATAGRAM_HDR + 4);
	d = claim(p, port);
	d.dst_qpn ^= 0x100; /* of another port */
	datagram_encode(&d, buf);
	throw(fd, &to, buf, DATAGRAM_HDR + 4);
	d = claim(p, port);
	memcpy(buf + DATAGRAM_HDR, "good", 4);
	datagram_encode(&d, buf);
	datagram_seal(buf, 4);
	throw(fd, &to, buf, DATAGRAM_HDR + 4);
	assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).src_qp, d.src_qpn);
	assert_memory_equal(p->b.buf + GRH, "good", 4);
	close(fd);
}

/* ---- multicast ---- */

static union ibv_gid groups[] = {
	{.raw = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3}},
	{.raw = {0xff, 0x01, 0, 0, 0, 2, 0xc9, 0x85, [15] = 1}}, /* perftest's */
};

/* Other processes that run these tests at the same time have groups of their own. */
static void choose_groups(void)
{
	uint32_t pid = (uint32_t)getpid();

	for (unsigned i = 0; i < 3; i++)
		groups[0].raw[13 + i] = groups[1].raw[8 + i] = (uint8_t)(pid >> 8 * i);
}

static struct ibv_ah *group_ah(struct upair *p, const union ibv_gid *mgid)
{
	struct ibv_ah_attr a = here(&p->a);

	a.grh.dgid = *mgid;
	return ibv_create_ah(p->a.pd, &a);
}

static void send_to_group(struct upair *p, struct ibv_ah *ah, uint64_t id, uint32_t qkey)
{
	struct ibv_sge sge = piece(&p->a, 0, 4);
	struct ibv_send_wr wr = request(p, id, &sge);

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = qkey;
	send_wr(p, &wr);
	expect_sent(p, id);
}

static void every_member_but_the_sender_gets_a_copy(void **state)
{
	struct upair *p = *state;
	struct uend c;

	uend_open(&c, false);
	to_rts_(&c);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_ah *ah = group_ah(p, &groups[i]);

		assert_int_equal(ibv_attach_mcast(p->a.qp, &groups[i], 0), 0);
		assert_int_equal(ibv_attach_mcast(p->b.qp, &groups[i], 0), 0);
		assert_int_equal(ibv_attach_mcast(c.qp, &groups[i], 0), 0);
		receive(&p->a, 1, 1000, 200);
		receive(&p->b, 2, 0, 200);
		receive(&c, 3, 0, 200);
		memcpy(p->a.buf, "many", 4);
		send_to_group(p, ah, 4, QKEY);
		expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
		expect_wc(c.rcq, 3, IBV_WC_SUCCESS);
		assert_memory_equal(p->b.buf + GRH, "many", 4);
		assert_memory_equal(c.buf + GRH, "many", 4);
		expect_nothing(p->a.rcq);
		assert_int_equal(ibv_detach_mcast(p->a.qp, &groups[i], 0), 0);
		assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[i], 0), 0);
		assert_int_equal(ibv_detach_mcast(c.qp, &groups[i], 0), 0);
		ibv_destroy_ah(ah);
	}
	uend_close(&c);
}

/* The index of a GID of IPv6, or -1. */
static int index_of_v6(struct uend *e)
{
	struct gid_entry entry;

	for (int i = 0; i < (int)gid_table_len(); i++)
		if (gid_get((unsigned)i, &entry) && !gid_is_v4(&entry.gid))
			return i;
	return -1;
}

static void member_hears_a_sender_of_ipv6(void **state)
{
	struct upair *p = *state;
	struct ibv_ah_attr a = here(&p->a);
	int index = index_of_v6(&p->a);
	struct ibv_ah *ah;

	if (index < 0)
		skip();
	a.grh.dgid = groups[1];
	a.grh.sgid_index = (uint8_t)index;
	ah = ibv_create_ah(p->a.pd, &a);
	assert_non_null(ah);
	assert_int_equal(ibv_attach_mcast(p->b.qp, &groups[1], 0), 0);
	receive(&p->b, 2, 0, 200);
	send_to_group(p, ah, 4, QKEY);
	assert_int_equal(expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS).sl, 0x9);
	assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[1], 0), 0);
	ibv_destroy_ah(ah);
}

static void datagram_of_ipv6_arrives_with_a_grh_of_ipv6(void **state)
{
	struct upair *p = *state;
	int index = index_of_v6(&p->a);
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1};
	struct gid_entry entry;
	struct grh g;

	if (index < 0)
		skip();
	gid_get((unsigned)index, &entry);
	a.grh.dgid = entry.gid;
	a.grh.sgid_index = (uint8_t)index;
	ibv_destroy_ah(p->ah);
	p->ah = ibv_create_ah(p->a.pd, &a);
	assert_non_null(p->ah);
	if (far)
		to_stag_ah(p->ah)->path.way = UD_FAR;
	receive(&p->b, 1, 0, 200);
	send_to_b(p, 2, 5);
	assert_int_equal(expect_wc(p->b.rcq, 1, IBV_WC_SUCCESS).sl, 0x9);
	assert_int_equal(grh_get(p->b.buf, &g), 0);
	assert_int_equal(g.version, 6);
	assert_memory_equal(g.sgid, entry.gid.raw, 16);
	assert_memory_equal(g.dgid, entry.gid.raw, 16);
}

static void member_with_another_qkey_or_detached_gets_nothing(void **state)
{
	struct upair *p = *state;
	struct ibv_ah *ah = group_ah(p, &groups[0]);
	struct uend c;

	uend_open(&c, false);
	to_rts_(&c);
	assert_int_equal(ibv_attach_mcast(p->b.qp, &groups[0], 0), 0);
	assert_int_equal(ibv_attach_mcast(c.qp, &groups[0], 0), 0);
	assert_int_equal(ibv_detach_mcast(c.qp, &groups[0], 0), 0);
	receive(&p->b, 2, 0, 200);
	receive(&c, 3, 0, 200);
	send_to_group(p, ah, 4, QKEY + 1);
	send_to_group(p, ah, 5, QKEY);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
	expect_nothing(p->b.rcq);
	expect_nothing(c.rcq);
	assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[0], 0), 0);
	ibv_destroy_ah(ah);
	uend_close(&c);
}

static void member_cannot_be_destroyed(void **state)
{
	struct upair *p = *state;

	assert_int_equal(ibv_attach_mcast(p->b.qp, &groups[0], 0), 0);
	assert_int_equal(ibv_destroy_qp(p->b.qp), EBUSY);
	assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[0], 0), 0);
	assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[0], 0), EINVAL);
}

static void only_datagrams_and_only_groups_are_attached(void **state)
{
	struct upair *p = *state;
	struct ibv_ah_attr a = here(&p->a);
	struct end rc;

	end_open(&rc, NULL);
	assert_int_equal(ibv_attach_mcast(rc.qp, &groups[0], 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(p->a.qp, &a.grh.dgid, 0), EINVAL);
	end_close(&rc);
}

static void hear_group_in_child(struct upair *p)
{
	struct upair child = {.ah = NULL};
	struct ibv_ah *ah;

	uend_open(&child.a, false);
	uend_open(&child.b, false);
	to_rts_(&child.a);
	to_rts_(&child.b);
	ah = group_ah(&child, &groups[0]);
	assert_int_equal(ibv_attach_mcast(child.b.qp, &groups[0], 0), 0);
	receive(&child.b, 2, 0, 200);
	send_to_group(&child, ah, 4, QKEY);
	expect_wc(child.b.rcq, 2, IBV_WC_SUCCESS);
	assert_int_equal(ibv_detach_mcast(child.b.qp, &groups[0], 0), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	uend_close(&child.a);
	uend_close(&child.b);
}

/* Runs in a child, which a failed assertion ends. Returns its wait status. */
static int run_child(void (*fn)(struct upair *p), struct upair *p)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		fn(p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void forked_child_joins_the_groups_of_its_parent(void **state)
{
	struct upair *p = *state;
	struct ibv_ah *ah = group_ah(p, &groups[0]);

#ifdef __SANITIZE_THREAD__
	skip(); /* TSan: the child of a multithreaded process cannot start threads */
#endif
	assert_int_equal(ibv_attach_mcast(p->b.qp, &groups[0], 0), 0);
	assert_int_equal(run_child(hear_group_in_child, p), 0);
	move_to(&p->b, IBV_QPS_RESET, 0); /* it has heard the child, too */
	to_rts_(&p->b);
	receive(&p->b, 2, 0, 200);
	send_to_group(p, ah, 4, QKEY);
	expect_wc(p->b.rcq, 2, IBV_WC_SUCCESS);
	assert_int_equal(ibv_detach_mcast(p->b.qp, &groups[0], 0), 0);
	ibv_destroy_ah(ah);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(datagram_arrives_with_its_source_and_a_grh),
		TEST(grh_says_addresses_class_and_hop_limit),
		TEST(every_length_up_to_the_mtu_arrives),
		TEST(pieces_are_gathered_and_scattered),
		TEST(inline_data_is_taken_at_the_post),
		TEST(immediate_arrives),
		TEST(requests_built_in_place_are_sent),
		TEST(a_built_request_without_an_address_is_refused),
		TEST(a_post_without_an_address_is_refused),
		TEST(a_queue_pair_sends_to_itself),
		TEST(sleeper_is_woken),
		TEST(arming_beside_a_completion_raises_its_event),
		TEST(only_a_solicited_datagram_wakes_who_waits_for_those),
		cmocka_unit_test_setup_teardown(shared_receive_queue_is_used, open_pair_srq,
						close_pair),
		cmocka_unit_test_setup_teardown(late_receive_of_a_shared_queue_gets_the_datagram,
						open_pair_srq, close_pair),
		TEST(answer_by_the_completion_reaches_the_sender),
		TEST(attributes_from_a_completion_are_those_of_its_sender),
		TEST(datagram_to_an_address_that_is_no_gid_can_be_answered),
		TEST(request_posted_before_rts_is_sent_then),
		TEST(queue_pair_is_used_again_after_reset),
		TEST(reset_drops_what_waits_for_a_receive),
		cmocka_unit_test_setup_teardown(reset_drops_what_waits_for_a_receive, open_pair_srq,
						close_pair),
		cmocka_unit_test_setup_teardown(reset_ends_the_wait_for_a_shared_receive,
						open_pair_srq, close_pair),
		TEST(sleeper_is_woken_after_a_reset_of_a_paused_queue_pair),
		TEST(a_drained_queue_is_reported_if_the_program_asked),
		TEST(error_flushes_both_queues),
		TEST(wrong_qkey_is_dropped),
		TEST(highest_bit_selects_the_queue_pairs_own_qkey),
		TEST(receive_without_room_is_not_taken),
		TEST(number_of_nobody_is_a_success_for_the_sender),
		TEST(connected_queue_pair_takes_no_datagram),
		TEST(queue_pair_before_rtr_takes_no_datagram),
		TEST(datagram_without_a_receive_waits_for_one_and_then_no_longer),
		TEST(longer_than_the_mtu_is_a_length_error),
		TEST(write_read_and_atomic_are_operation_errors),
		TEST(memory_that_is_not_registered_is_a_protection_error),
		TEST(receive_in_memory_that_is_not_registered_fails),
		TEST(impossible_address_is_refused),
		TEST(domain_with_an_address_handle_is_in_use),
		TEST(waiting_request_outlives_its_address_handle),
		TEST(every_member_but_the_sender_gets_a_copy),
		TEST(member_hears_a_sender_of_ipv6),
		TEST(datagram_of_ipv6_arrives_with_a_grh_of_ipv6),
		TEST(member_with_another_qkey_or_detached_gets_nothing),
		TEST(member_cannot_be_destroyed),
		TEST(forked_child_joins_the_groups_of_its_parent),
		TEST(only_datagrams_and_only_groups_are_attached),
		TEST(forged_and_damaged_datagrams_are_dropped),
	};
	const struct CMUnitTest near_tests[] = {
		TEST(nothing_is_lost_and_nothing_overtakes),
		TEST(receiver_that_does_not_read_does_not_stop_the_sender_for_ever),
		TEST(stopped_receiver_delays_the_others_once),
		TEST(stopped_receivers_do_not_take_the_room_of_another),
		TEST(receiver_that_reads_again_is_served_again),
	};
	int failed;

	choose_groups();
	far = argc > 1 && !strcmp(argv[1], "far");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (!far)
		failed += cmocka_run_group_tests(near_tests, NULL, NULL);
	return failed;
}
