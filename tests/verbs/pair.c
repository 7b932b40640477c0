// SPDX-License-Identifier: BSD-2-Clause
/*
 * pair.c - see pair.h.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

struct ibv_device *find_stag(struct ibv_device **list)
{
	for (; *list; list++)
		if (strcmp(ibv_get_device_name(*list), "stag0") == 0)
			return *list;
	return NULL;
}

struct ibv_context *open_stag(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list);

	struct ibv_device *dev = find_stag(list);

	assert_non_null(dev);

	struct ibv_context *ctx = ibv_open_device(dev);

	assert_non_null(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&at, sizeof(at)), 0);
	fd[1] = accept(listener, NULL, NULL);
	assert_true(fd[1] >= 0);
	close(listener);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fcntl(fd[i], F_SETFL, O_NONBLOCK), 0);
}

static void attach(struct ibv_qp *qp, int fd, bool initiator)
{
	struct qp_link link = {.initiator = initiator,
			       .crc = true,
			       .mpa_rev = 2,
			       .stag_peer = true,
			       .caps = MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU |
				       MPA_EXT_SEND_IMM | MPA_EXT_FLUSH,
			       .ird = 16,
			       .ord = 16};
	struct stream *s;

	assert_int_equal(stream_open_tcp(&s, fd, initiator), 0);
	engine_lock();
	assert_int_equal(qp_attach(to_stag_qp(qp), s, &link), 0);
	engine_unlock();
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = PAIR_ACCESS};

	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

static struct ibv_qp *new_qp(struct pair *p)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = p->pd,
		.send_ops_flags = WR_SUPPORTED_OPS,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(p->ctx, &attr);

	assert_non_null(qp);
	to_init(qp);
	return qp;
}

struct pair *pair_open(void)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	int fd[2];

	assert_non_null(p);
	p->ctx = open_stag();
	p->pd = ibv_alloc_pd(p->ctx);
	assert_non_null(p->pd);
	p->cq_ex = ibv_create_cq_ex(p->ctx, &cq_attr);
	assert_non_null(p->cq_ex);
	p->cq = ibv_cq_ex_to_cq(p->cq_ex);
	p->mine = p->buf;
	p->theirs = p->buf + PAIR_BUF;
	p->mr = ibv_reg_mr(p->pd, p->buf, sizeof(p->buf), PAIR_ACCESS);
	assert_non_null(p->mr);
	p->a = new_qp(p);
	p->b = new_qp(p);
	assert_int_equal(engine_start(), 0);
	tcp_pair(fd);
	attach(p->a, fd[0], true);
	attach(p->b, fd[1], false);
	return p;
}

void pair_close(struct pair *p)
{
	assert_int_equal(ibv_destroy_qp(p->a), 0);
	assert_int_equal(ibv_destroy_qp(p->b), 0);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	assert_int_equal(ibv_destroy_cq(p->cq), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->ctx), 0);
	free(p);
}

struct ibv_wc wait_wc(struct pair *p)
{
	uint64_t until = clock_ns() + 30 * NS_PER_S;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(p->cq, 1, &wc)))
		if (clock_ns() > until)
			fail_msg("no completion within the time limit");
	assert_int_equal(n, 1);
	return wc;
}

void post_recv(struct pair *p, struct ibv_qp *qp, uint64_t wr_id, void *addr, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)addr, .length = len, .lkey = p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}
