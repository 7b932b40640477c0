// SPDX-License-Identifier: BSD-2-Clause
/*
 * link.c - see link.h.
 */
#include "link.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define DEPTH 16

static struct rdma_addrinfo *address(uint16_t port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res = NULL;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", service, &hints, &res), 0);
	return res;
}

void links_open(struct links *l)
{
	struct rdma_addrinfo *a = address(0, RAI_PASSIVE);

	memset(l, 0, sizeof(*l));
	assert_int_equal(rdma_create_ep(&l->listener, a, NULL, NULL), 0);
	rdma_freeaddrinfo(a);
	assert_int_equal(rdma_listen(l->listener, 8), 0);
	l->port = ntohs(rdma_get_src_port(l->listener));
	assert_non_null(l->listener->verbs);
	l->pd = ibv_alloc_pd(l->listener->verbs);
	assert_non_null(l->pd);
}

void links_close(struct links *l)
{
	assert_int_equal(ibv_dealloc_pd(l->pd), 0);
	rdma_destroy_ep(l->listener);
}

static struct ibv_qp_init_attr queues(struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = 1,
			.max_send_sge = 2,
			.max_recv_sge = 1},
	};
}

static struct rdma_conn_param depths(void)
{
	return (struct rdma_conn_param){.responder_resources = DEPTH, .initiator_depth = DEPTH};
}

static void *do_connect(void *arg)
{
	struct link_end *e = arg;
	struct rdma_conn_param p = depths();

	assert_int_equal(rdma_connect(e->near, &p), 0);
	return NULL;
}

void link_open(struct links *l, struct link_end *e, struct ibv_pd *near_pd, struct ibv_cq *near_cq,
	       struct ibv_cq *far_cq)
{
	struct rdma_addrinfo *a = address(l->port, 0);
	struct ibv_qp_init_attr near = queues(near_cq), far = queues(far_cq);
	struct rdma_conn_param p = depths();
	pthread_t thread;

	assert_int_equal(rdma_create_ep(&e->near, a, near_pd, &near), 0);
	rdma_freeaddrinfo(a);
	assert_int_equal(pthread_create(&thread, NULL, do_connect, e), 0);
	assert_int_equal(rdma_get_request(l->listener, &e->far), 0);
	assert_int_equal(rdma_create_qp(e->far, l->pd, &far), 0);
	assert_int_equal(rdma_accept(e->far, &p), 0);
	pthread_join(thread, NULL);
}

void link_close(struct link_end *e)
{
	rdma_disconnect(e->near);
	rdma_destroy_qp(e->near);
	rdma_destroy_id(e->near);
	rdma_destroy_qp(e->far);
	rdma_destroy_id(e->far);
}
