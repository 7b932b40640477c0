// SPDX-License-Identifier: BSD-2-Clause
/* test_both.c - rdma_cm where STAG_DEVICE names both devices: one listener serves the peers of both. */
#include "story.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char *device_of(struct rdma_cm_id *id)
{
	return ibv_get_device_name(id->verbs->device);
}

static void each_peer_gets_the_device_that_it_speaks(void **state)
{
	struct cm_message of_roce = some_message(CM_REQ);
	struct mpa_frame of_iwarp = enhanced_request();
	struct place *p = *state;
	struct rdma_cm_id *id;
	struct raw_frame rep;
	int fd = raw_connect(IPV4, p->port);

	raw_say(fd, &of_roce);
	id = expect_request(p->ch);
	assert_string_equal(device_of(id), "roce0");
	give_qp(id);
	assert_int_equal(rdma_accept(id, NULL), 0);
	raw_hear(fd, CM_REP);
	id_gone(id);
	close(fd);

	fd = raw_connect(IPV4, p->port);
	raw_send_frame(fd, &of_iwarp);
	id = expect_request(p->ch);
	assert_string_equal(device_of(id), "stag0");
	give_qp(id);
	assert_int_equal(rdma_accept(id, NULL), 0);
	raw_recv_frame(fd, true, &rep);
	id_gone(id);
	close(fd);
}

static void a_peer_that_speaks_neither_is_dropped(void **state)
{
	struct place *p = *state;
	int fd = raw_connect(IPV4, p->port);

	raw_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
	expect_end_of_data(fd);
	expect_silence(p->ch, 0);
}

/* The queue pairs of all its connections are in this domain. */
static void a_listener_with_a_domain_serves_its_device_only(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST,
				      .ai_port_space = RDMA_PS_TCP},
			     *res;
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct mpa_frame of_iwarp = enhanced_request();
	struct cm_message of_roce = some_message(CM_REQ);
	struct ibv_pd *pd = ibv_alloc_pd(devices[0]);
	struct rdma_cm_id *listener, *id;
	uint8_t first;
	int fd;

	assert_string_equal(ibv_get_device_name(devices[0]->device), "roce0");
	assert_int_equal(rdma_getaddrinfo(IPV4, "0", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&listener, res, pd, &attr), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	fd = raw_connect(IPV4, id_port(listener));
	raw_send_frame(fd, &of_iwarp);
	raw_recv(fd, &first, 1);
	assert_int_equal(first, CM_MESSAGE_FIRST);
	expect_end_of_data(fd);
	fd = raw_connect(IPV4, id_port(listener));
	raw_say(fd, &of_roce);
	assert_int_equal(rdma_get_request(listener, &id), 0);
	assert_ptr_equal(id->qp->pd, pd);
	rdma_destroy_ep(id);
	close(fd);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(res);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	rdma_free_devices(devices);
}

static void give_qp_of(struct rdma_cm_id *id, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rdma_create_qp(id, pd, &attr), 0);
}

/* An id connects with the device of its queue pair: here each with both. */
static void the_queue_pair_decides_how_an_id_connects(void **state)
{
	struct place *p = *state;
	struct rdma_event_channel *ch = channel_new();
	struct ibv_context **devices = rdma_get_devices(NULL);

	for (int i = 0; devices[i]; i++) {
		struct rdma_cm_id *id = id_resolved(ch, IPV4, p->port), *child;
		struct ibv_pd *pd = ibv_alloc_pd(devices[i]);

		assert_string_equal(device_of(id), "roce0");
		rdma_destroy_qp(id);
		give_qp_of(id, pd);
		assert_int_equal(rdma_connect(id, NULL), 0);
		child = expect_request(p->ch);
		assert_ptr_equal(child->verbs, devices[i]);
		give_qp(child);
		assert_int_equal(rdma_accept(child, NULL), 0);
		assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ESTABLISHED), 0);
		assert_int_equal(expect_status(p->ch, RDMA_CM_EVENT_ESTABLISHED), 0);
		id_gone(id);
		id_gone(child);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	}
	rdma_free_devices(devices);
	rdma_destroy_event_channel(ch);
}

/* The queue pair of a request has to have the device that the peer speaks. */
static void a_request_does_not_change_its_device(void **state)
{
	struct mpa_frame of_iwarp = enhanced_request();
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct ibv_pd *pd = ibv_alloc_pd(devices[0]);
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct place *p = *state;
	int fd = raw_connect(IPV4, p->port);
	struct rdma_cm_id *id;

	raw_send_frame(fd, &of_iwarp);
	id = expect_request(p->ch);
	errno = 0;
	assert_int_equal(rdma_create_qp(id, pd, &attr), -1);
	assert_int_equal(errno, EINVAL);
	id_gone(id);
	close(fd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	rdma_free_devices(devices);
}

#define PLACE(f) cmocka_unit_test_setup_teardown(f, place_open, place_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE(each_peer_gets_the_device_that_it_speaks),
		PLACE(a_peer_that_speaks_neither_is_dropped),
		PLACE(a_listener_with_a_domain_serves_its_device_only),
		PLACE(the_queue_pair_decides_how_an_id_connects),
		PLACE(a_request_does_not_change_its_device),
	};

	return cmocka_run_group_tests_name("cm both", tests, NULL, NULL);
}
