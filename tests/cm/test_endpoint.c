// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_endpoint.c - synchronous ids, rdma_create_ep() and rdma_getaddrinfo(), and the helpers of
 * <rdma/rdma_verbs.h> on top of them.
 */
#include "story.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_qp_init_attr small_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1};
}

struct server {
	pthread_t thread;
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *mr;
	char heard[32];
};

static struct rdma_addrinfo *lookup(const char *node, const char *service, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;

	assert_int_equal(rdma_getaddrinfo(node, service, &hints, &res), 0);
	return res;
}

static void server_listens(struct server *s)
{
	struct rdma_addrinfo *res = lookup(IPV4, "0", RAI_PASSIVE | RAI_NUMERICHOST);
	struct ibv_qp_init_attr attr = small_attr();

	assert_int_equal(rdma_create_ep(&s->listener, res, NULL, &attr), 0);
	assert_int_equal(rdma_listen(s->listener, 0), 0);
	rdma_freeaddrinfo(res);
}

static struct rdma_cm_id *client(struct server *s)
{
	struct ibv_qp_init_attr attr = small_attr();
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;
	char port[8];

	snprintf(port, sizeof(port), "%u", id_port(s->listener));
	res = lookup(IPV4, port, RAI_NUMERICHOST);
	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	return id;
}

/* Accepts one request, receives one message, sends one, and disconnects. */
static void *serve_one_message(void *arg)
{
	struct server *s = arg;
	struct ibv_wc wc;

	assert_int_equal(rdma_get_request(s->listener, &s->id), 0);
	assert_non_null(s->id->qp);
	s->mr = rdma_reg_msgs(s->id, s->heard, sizeof(s->heard));
	assert_int_equal(rdma_post_recv(s->id, NULL, s->heard, sizeof(s->heard), s->mr), 0);
	assert_int_equal(rdma_accept(s->id, NULL), 0);
	assert_int_equal(s->id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_get_recv_comp(s->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_post_send(s->id, NULL, s->heard, wc.byte_len, s->mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(s->id, &wc), 1);
	assert_int_equal(rdma_disconnect(s->id), 0);
	rdma_dereg_mr(s->mr);
	rdma_destroy_ep(s->id);
	return NULL;
}

static void message_goes_there_and_back(void **state)
{
	char said[] = "once upon a time", heard[32];
	struct server s = {0};
	struct rdma_cm_id *id;
	struct ibv_mr *mr, *mr_said;
	struct ibv_wc wc;

	server_listens(&s);
	pthread_create(&s.thread, NULL, serve_one_message, &s);
	id = client(&s);
	assert_non_null(id->qp);
	assert_non_null(id->send_cq);
	assert_non_null(id->recv_cq_channel);
	mr = rdma_reg_msgs(id, heard, sizeof(heard));
	mr_said = rdma_reg_msgs(id, said, sizeof(said));
	assert_int_equal(rdma_post_recv(id, NULL, heard, sizeof(heard), mr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_post_send(id, NULL, said, sizeof(said), mr_said, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(heard, said);
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(rdma_disconnect(id), 0); /* no event is outstanding: it does not wait */
	assert_int_equal(rdma_disconnect(id), 0);
	pthread_join(s.thread, NULL);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(mr_said);
	rdma_destroy_ep(id);
	rdma_destroy_ep(s.listener);
}

static void *reject_one(void *arg)
{
	struct server *s = arg;

	assert_int_equal(rdma_get_request(s->listener, &s->id), 0);
	assert_int_equal(rdma_reject(s->id, NULL, 0), 0);
	rdma_destroy_ep(s->id);
	return NULL;
}

static void rejection_is_econnrefused(void **state)
{
	struct server s = {0};
	struct rdma_cm_id *id;

	server_listens(&s);
	pthread_create(&s.thread, NULL, reject_one, &s);
	id = client(&s);
	assert_int_equal(rdma_connect(id, NULL), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
	pthread_join(s.thread, NULL);
	rdma_destroy_ep(id);
	rdma_destroy_ep(s.listener);
}

/* ai_connect of an address becomes private data of the connection. */
static void *check_private_data(void *arg)
{
	struct server *s = arg;

	assert_int_equal(rdma_get_request(s->listener, &s->id), 0);
	assert_int_equal(s->id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(s->id->event->param.conn.private_data_len,
			 on_roce() ? CM_REQ_PRIVATE : 10);
	assert_memory_equal(s->id->event->param.conn.private_data, "firstthen ", 10);
	rdma_destroy_ep(s->id);
	return NULL;
}

static void endpoint_sends_private_data_of_its_address(void **state)
{
	struct rdma_conn_param param = {.private_data = "then ", .private_data_len = 5};
	struct ibv_qp_init_attr attr = small_attr();
	struct rdma_addrinfo *res;
	struct server s = {0};
	struct rdma_cm_id *id;
	char port[8];

	server_listens(&s);
	pthread_create(&s.thread, NULL, check_private_data, &s);
	snprintf(port, sizeof(port), "%u", id_port(s.listener));
	res = lookup(IPV4, port, RAI_NUMERICHOST);
	res->ai_connect = strdup("first");
	res->ai_connect_len = 5;
	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_connect(id, &param), -1);
	pthread_join(s.thread, NULL);
	rdma_destroy_ep(id);
	rdma_destroy_ep(s.listener);
}

static void request_of_an_asynchronous_id_is_einval(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = id_listening(ch, IPV4, 0), *id;

	assert_int_equal(rdma_get_request(listener, &id), -1);
	assert_int_equal(errno, EINVAL);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

/* ---- resources of an id ---- */

static void shared_receive_queue_serves_the_id(void **state)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr attr = small_attr();
	struct sockaddr_storage a = address(IPV4, 9);
	struct rdma_cm_id *id = id_new(NULL);
	char buf[8];
	struct ibv_mr *mr;

	assert_int_equal(rdma_create_srq(id, NULL, &srq), -1); /* no device yet */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(rdma_create_srq(id, NULL, &srq), 0);
	assert_non_null(id->srq);
	attr.cap.max_recv_wr = 0;
	attr.qp_type = IBV_QPT_RC;
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	assert_ptr_equal(id->qp->srq, id->srq);
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	assert_int_equal(rdma_post_recv(id, NULL, buf, sizeof(buf), mr), 0);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

static void completion_queues_of_the_program_are_used(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct sockaddr_storage a = address(IPV4, 9);
	struct rdma_cm_id *id = id_new(ch);
	struct ibv_qp_init_attr attr = small_attr();
	struct ibv_pd *pd;
	struct ibv_cq *cq;

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	pd = ibv_alloc_pd(id->verbs);
	cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	attr.qp_type = IBV_QPT_RC;
	attr.send_cq = attr.recv_cq = cq;
	assert_int_equal(rdma_create_qp(id, pd, &attr), 0);
	assert_ptr_equal(id->pd, pd);
	assert_ptr_equal(id->qp->send_cq, cq);
	assert_null(id->send_cq);
	rdma_destroy_qp(id);
	assert_null(id->qp);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

/*
 * As in rping -q: the program creates the queue pair and changes its state; the id only knows its
 * number.
 */
static void queue_pair_of_the_program_is_connected_by_number(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child, *id = id_new(ach);
	struct sockaddr_storage to = address(IPV4, id_port(listener));
	struct ibv_qp_init_attr init = small_attr();
	struct rdma_conn_param param = {0};
	struct ibv_qp_attr attr = {0};
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int mask;

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	assert_int_equal(expect_status(ach, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ach, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	pd = ibv_alloc_pd(id->verbs);
	cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	init.qp_type = IBV_QPT_RC;
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	param.qp_num = qp->qp_num;
	assert_int_equal(rdma_connect(id, &param), 0);
	child = expect_request(pch);
	give_qp(child);
	assert_int_equal(rdma_accept(child, NULL), 0);
	assert_int_equal(expect_status(ach, on_roce() ? RDMA_CM_EVENT_CONNECT_RESPONSE
						      : RDMA_CM_EVENT_ESTABLISHED),
			 0);
	for (enum ibv_qp_state s = IBV_QPS_RTR; s <= IBV_QPS_RTS; s++) {
		attr.qp_state = s;
		assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
		assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	}
	assert_int_equal(rdma_establish(id), 0);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_int_equal(rdma_disconnect(id), 0);
	expect_end(ach);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void device_list_has_the_device_of_the_id(void **state)
{
	struct sockaddr_storage a = address(IPV4, 9);
	struct rdma_cm_id *id = id_new(NULL);
	int n = 0;
	struct ibv_context **list = rdma_get_devices(&n);

	assert_int_equal(n, 1);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_ptr_equal(list[0], id->verbs);
	assert_null(list[1]);
	assert_int_equal(list[0]->device->transport_type,
			 on_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP);
	rdma_free_devices(list);
	rdma_destroy_id(id);
}

/* ---- addresses ---- */

static void names_are_resolved_to_addresses(void **state)
{
	struct rdma_addrinfo *res;

	assert_int_equal(rdma_getaddrinfo(IPV4, "7471", NULL, &res), 0); /* no hints */
	assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(res->ai_family, AF_INET);
	assert_int_equal(res->ai_dst_len, sizeof(struct sockaddr_in));
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, htons(7471));
	assert_null(res->ai_src_addr);
	rdma_freeaddrinfo(res);

	res = lookup(NULL, "7471", RAI_PASSIVE);
	assert_non_null(res->ai_src_addr);
	assert_null(res->ai_dst_addr);
	rdma_freeaddrinfo(res);
}

static void source_address_of_the_hints_is_kept(void **state)
{
	struct sockaddr_storage src = address(IPV4, 0);
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_UDP,
				      .ai_src_addr = (struct sockaddr *)&src,
				      .ai_src_len = sizeof(struct sockaddr_in)},
			     *res;

	assert_int_equal(rdma_getaddrinfo(IPV4, "1", &hints, &res), 0);
	assert_int_equal(res->ai_qp_type, IBV_QPT_UD);
	assert_int_equal(res->ai_src_len, sizeof(struct sockaddr_in));
	assert_memory_equal(res->ai_src_addr, &src, sizeof(struct sockaddr_in));
	rdma_freeaddrinfo(res);
}

static void resolving_an_invalid_name_is_an_error(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *res;

	assert_int_equal(rdma_getaddrinfo(NULL, NULL, NULL, &res), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_getaddrinfo("no address", "1", &hints, &res), EAI_NONAME);
	rdma_freeaddrinfo(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_goes_there_and_back),
		cmocka_unit_test(rejection_is_econnrefused),
		cmocka_unit_test(endpoint_sends_private_data_of_its_address),
		cmocka_unit_test(request_of_an_asynchronous_id_is_einval),
		cmocka_unit_test(shared_receive_queue_serves_the_id),
		cmocka_unit_test(completion_queues_of_the_program_are_used),
		cmocka_unit_test(queue_pair_of_the_program_is_connected_by_number),
		cmocka_unit_test(device_list_has_the_device_of_the_id),
		cmocka_unit_test(names_are_resolved_to_addresses),
		cmocka_unit_test(source_address_of_the_hints_is_kept),
		cmocka_unit_test(resolving_an_invalid_name_is_an_error),
	};

	return cmocka_run_group_tests_name("cm endpoint", tests, NULL, NULL);
}
