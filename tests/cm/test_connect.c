// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_connect.c - two ids of one process: which events come, in which order, with which contents;
 * addresses; and destruction in every state.
 */
#include "story.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void sequence_on(const char *host)
{
	struct couple c;

	couple_open(&c, host);
	expect_silence(c.active_ch, 0);
	expect_silence(c.passive_ch, 0);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	expect_end(c.passive_ch);
	assert_int_equal(rdma_disconnect(c.passive), 0); /* a second call must do no harm */
	expect_silence(c.active_ch, 20);
	expect_silence(c.passive_ch, 0);
	couple_close(&c);
}

static void events_come_in_order_on_ipv4(void **state)
{
	sequence_on(IPV4);
}

static void events_come_in_order_on_ipv6(void **state)
{
	sequence_on(IPV6);
}

static void passive_side_can_disconnect(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	assert_int_equal(rdma_disconnect(c.passive), 0);
	expect_end(c.passive_ch);
	expect_end(c.active_ch);
	couple_close(&c);
}

static void both_sides_disconnecting_at_once_see_one_end_each(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	assert_int_equal(rdma_disconnect(c.passive), 0);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.passive_ch);
	expect_end(c.active_ch);
	expect_silence(c.passive_ch, 20);
	expect_silence(c.active_ch, 0);
	couple_close(&c);
}

static void destroyed_queue_pair_disconnects_both_sides(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	rdma_destroy_qp(c.active);
	expect_end(c.active_ch);
	expect_end(c.passive_ch);
	couple_close(&c);
}

static void destroy_queues(struct rdma_cm_id *id)
{
	assert_int_equal(ibv_destroy_cq(id->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(id->recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(id->send_cq_channel), 0);
	assert_int_equal(ibv_destroy_comp_channel(id->recv_cq_channel), 0);
}

/* ibv_destroy_qp() does not notify the id: rdma_disconnect() detects it. */
static void queue_pair_destroyed_without_the_id_is_noticed(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	assert_int_equal(ibv_destroy_qp(c.active->qp), 0);
	c.active->qp = NULL;
	expect_end(c.passive_ch);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	destroy_queues(c.active);
	couple_close(&c);
}

static void destroyed_id_disconnects_the_peer(void **state)
{
	struct rdma_cm_id was;
	struct couple c;

	couple_open(&c, IPV4);
	was = *c.active;
	/* Before its queue pair, against the rules. */
	assert_int_equal(rdma_destroy_id(c.active), 0);
	expect_end(c.passive_ch);
	assert_int_equal(ibv_destroy_qp(was.qp), 0);
	destroy_queues(&was);
	c.active = id_new(c.active_ch);
	couple_close(&c);
}

static void queue_pair_in_error_disconnects(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct couple c;

	couple_open(&c, IPV4);
	assert_int_equal(ibv_modify_qp(c.passive->qp, &attr, IBV_QP_STATE), 0);
	expect_end(c.passive_ch);
	expect_end(c.active_ch);
	couple_close(&c);
}

/* Messages sent before the end arrive, although queue pair and id are destroyed immediately. */
static void messages_sent_before_destruction_arrive(void **state)
{
	char said[] = "goodbye", heard[16];
	struct ibv_mr *mr_said, *mr_heard;
	struct couple c;
	struct ibv_wc wc;

	couple_open(&c, IPV4);
	mr_said = rdma_reg_msgs(c.active, said, sizeof(said));
	mr_heard = rdma_reg_msgs(c.passive, heard, sizeof(heard));
	assert_int_equal(rdma_post_recv(c.passive, NULL, heard, sizeof(heard), mr_heard), 0);
	assert_int_equal(
		rdma_post_send(c.active, NULL, said, sizeof(said), mr_said, IBV_SEND_SIGNALED), 0);
	assert_int_equal(rdma_get_send_comp(c.active, &wc), 1);
	assert_int_equal(rdma_disconnect(c.active), 0);
	id_gone(c.active);
	assert_int_equal(rdma_get_recv_comp(c.passive, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(heard, said);
	expect_end(c.passive_ch);
	rdma_dereg_mr(mr_said);
	rdma_dereg_mr(mr_heard);
	c.active = id_new(c.active_ch);
	couple_close(&c);
}

/* ---- contents of events ---- */

/* On roce0 the program always sees all of a message's private data, zeroes behind what was sent. */
static void expect_private(const struct rdma_cm_event *ev, const uint8_t *data, size_t len,
			   size_t of_roce)
{
	const uint8_t *got = ev->param.conn.private_data;
	size_t seen = on_roce() ? of_roce : len;

	assert_int_equal(ev->param.conn.private_data_len, seen);
	if (len)
		assert_memory_equal(got, data, len);
	for (size_t i = len; i < seen; i++)
		assert_int_equal(got[i], 0);
}

static void private_data_goes_both_ways(void **state)
{
	static const uint8_t sizes[] = {0, 1, 55, 56, 195, 196, 251, 252, 255};
	uint8_t data[255];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(255 - i);
	for (unsigned i = 0; i < sizeof(sizes) && (!on_roce() || sizes[i] <= CM_REP_PRIVATE); i++) {
		uint8_t asked = on_roce() && sizes[i] > CM_REQ_PRIVATE ? CM_REQ_PRIVATE : sizes[i];
		struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
		struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
		struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
		struct rdma_conn_param param = {.private_data = data, .private_data_len = asked};
		struct rdma_cm_event *ev;

		assert_int_equal(rdma_connect(id, &param), 0);
		ev = expect_event(pch, RDMA_CM_EVENT_CONNECT_REQUEST);
		expect_private(ev, data, asked, CM_REQ_PRIVATE);
		child = ev->id;
		rdma_ack_cm_event(ev);
		give_qp(child);
		param.private_data_len = sizes[i];
		assert_int_equal(rdma_accept(child, &param), 0);
		ev = expect_event(ach, RDMA_CM_EVENT_ESTABLISHED);
		expect_private(ev, data, sizes[i], CM_REP_PRIVATE);
		rdma_ack_cm_event(ev);
		id_gone(id);
		id_gone(child);
		id_gone(listener);
		rdma_destroy_event_channel(ach);
		rdma_destroy_event_channel(pch);
	}
}

static void reject_with(const uint8_t *data, uint8_t len)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *child;
	struct rdma_cm_id *id = id_resolved(ach, IPV4, id_port(listener));
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, NULL), 0);
	child = expect_request(pch);
	assert_int_equal(rdma_reject(child, data, len), 0);
	ev = expect_event(ach, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ev->status, rejected_by_program());
	expect_private(ev, data, len, CM_REJ_PRIVATE);
	rdma_ack_cm_event(ev);
	id_gone(child);
	id_gone(id);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void reject_data_reaches_the_active_side(void **state)
{
	static const uint8_t sizes[] = {0, 1, 9, 148, 196, 255};
	uint8_t data[255];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i + 1);
	for (unsigned i = 0; i < sizeof(sizes) && (!on_roce() || sizes[i] <= CM_REJ_PRIVATE); i++)
		reject_with(data, sizes[i]);
}

static void child_id_inherits_from_its_listener(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener, *child, *id;
	struct sockaddr_storage any = address("0.0.0.0", 0);
	int mark;

	assert_int_equal(rdma_create_id(pch, &listener, &mark, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
	assert_null(listener->verbs); /* a wildcard has no device */
	assert_int_not_equal(id_port(listener), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	id = id_resolved(ach, IPV4, id_port(listener));
	assert_int_equal(rdma_connect(id, NULL), 0);
	child = expect_request(pch);
	assert_ptr_equal(child->context, &mark);
	assert_ptr_equal(child->channel, pch);
	assert_ptr_equal(child->verbs, id->verbs);
	assert_ptr_equal(child->pd, id->pd);
	assert_int_equal(child->port_num, 1);
	assert_int_equal(child->ps, RDMA_PS_TCP);
	assert_int_equal(child->qp_type, IBV_QPT_RC);
	assert_int_equal(rdma_get_src_port(child), rdma_get_src_port(listener));
	assert_int_equal(rdma_get_dst_port(child), rdma_get_src_port(id));
	assert_int_equal(((struct sockaddr_in *)rdma_get_local_addr(child))->sin_addr.s_addr,
			 htonl(INADDR_LOOPBACK));
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void connecting_without_a_listener_is_rejected(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id;
	uint16_t port;
	int fd = raw_bind(IPV4, &port);

	id = id_resolved(ch, IPV4, port);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_REJECTED), rejected_without_listener());
	id_gone(id);
	rdma_destroy_event_channel(ch);
	close(fd);
}

/* ---- addresses ---- */

static void specific_address_has_a_device(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = id_new(ch);
	struct sockaddr_storage a = address(IPV4, 0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_non_null(id->verbs);
	assert_non_null(id->pd);
	assert_int_not_equal(id_port(id), 0);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

static void wildcard_destination_is_loopback(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0);
	struct rdma_cm_id *id = id_resolved(ach, "0.0.0.0", id_port(listener));

	assert_int_equal(rdma_connect(id, NULL), 0);
	rdma_destroy_id(expect_request(pch));
	assert_int_equal(expect_status(ach, RDMA_CM_EVENT_REJECTED), rejected_by_program());
	id_gone(id);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

/*
 * A listener on :: accepts IPv4 peers too, and reports them as IPv4, unless it is set to IPv6 only.
 */
static void dual_listener_reports_ipv4_peers_as_ipv4(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_new(pch), *child, *id;
	struct sockaddr_storage any = address("::", 0);
	int off = 0;

	assert_int_equal(
		rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &off, sizeof(off)),
		0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	id = id_resolved(ach, IPV4, id_port(listener));
	assert_int_equal(rdma_connect(id, NULL), 0);
	child = expect_request(pch);
	assert_int_equal(rdma_get_local_addr(child)->sa_family, AF_INET);
	assert_int_equal(rdma_get_peer_addr(child)->sa_family, AF_INET);
	id_gone(id);
	id_gone(child);
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

static void two_families_share_a_port_with_afonly(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *four = id_listening(ch, "0.0.0.0", 0), *six = id_new(ch);
	struct sockaddr_storage any = address("::", id_port(four));
	int on = 1;

	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(
		rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(six, 0), 0);
	rdma_destroy_id(four);
	rdma_destroy_id(six);
	rdma_destroy_event_channel(ch);
}

/* The option may be set after binding: the socket below is bound once more. */
static void afonly_works_on_a_bound_id(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *six = id_new(ch), *four = id_new(ch);
	struct sockaddr_storage any = address("::", 0), any4;
	int on = 1;

	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any), 0);
	any4 = address("0.0.0.0", id_port(six));
	assert_int_equal(
		rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
	assert_int_equal(ntohs(((struct sockaddr_in *)&any4)->sin_port), id_port(six));
	assert_int_equal(rdma_bind_addr(four, (struct sockaddr *)&any4), 0);
	rdma_destroy_id(four);
	rdma_destroy_id(six);
	rdma_destroy_event_channel(ch);
}

static void port_in_use_is_reported_by_bind(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *first = id_new(ch), *second = id_new(ch);
	struct sockaddr_storage a = address(IPV4, 0);

	assert_int_equal(rdma_bind_addr(first, (struct sockaddr *)&a), 0);
	a = address(IPV4, id_port(first));
	for (int listening = 0; listening < 2; listening++) {
		assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&a), -1);
		assert_int_equal(errno, EADDRINUSE);
		if (!listening)
			assert_int_equal(rdma_listen(first, 0), 0);
	}
	rdma_destroy_id(first);
	rdma_destroy_id(second);
	rdma_destroy_event_channel(ch);
}

/* A server that restarts finds its port free, though old connections are in TIME_WAIT. */
static void port_of_ended_connections_is_free(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *again = id_new(ch);
	struct sockaddr_storage a;
	struct couple c;

	couple_open(&c, IPV4);
	a = address(IPV4, id_port(c.listener));
	assert_int_equal(rdma_disconnect(c.passive), 0); /* so that TIME_WAIT is on this side */
	expect_end(c.passive_ch);
	expect_end(c.active_ch);
	couple_close(&c);
	assert_int_equal(rdma_bind_addr(again, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(again, 0), 0);
	rdma_destroy_id(again);
	rdma_destroy_event_channel(ch);
}

/* ---- destruction ---- */

static void ids_can_be_destroyed_in_every_state(void **state)
{
	struct rdma_event_channel *ch = channel_new(), *pch = channel_new();
	struct sockaddr_storage a = address(IPV4, 0), to;
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *id;

	to = address(IPV4, id_port(listener));
	for (int steps = 0; steps <= 5; steps++) {
		id = id_new(ch);
		if (steps == 1)
			assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
		if (steps >= 2)
			assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1), 0);
		if (steps >= 3)
			assert_int_equal(rdma_resolve_route(id, 1), 0);
		if (steps >= 4)
			give_qp(id);
		if (steps >= 5)
			assert_int_equal(rdma_connect(id, NULL), 0);
		id_gone(id);
		/* Its pending events are discarded with it. */
		expect_silence(ch, steps == 5 ? 20 : 0);
	}
	id_gone(listener);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(pch);
}

static void listener_may_be_destroyed_before_its_children(void **state)
{
	struct couple c;

	couple_open(&c, IPV4);
	rdma_destroy_id(c.listener);
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	expect_end(c.passive_ch);
	c.listener = id_new(c.passive_ch);
	couple_close(&c);
}

static void *accept_in_thread(void *id)
{
	assert_int_equal(rdma_accept(id, NULL), 0);
	return NULL;
}

/*
 * The same as in cmtime: one thread accepts, another gets the event, and destroys the id before
 * accept returns.
 */
static void id_may_be_destroyed_while_accept_returns(void **state)
{
	struct rdma_event_channel *ach = channel_new(), *pch = channel_new();
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 0), *id, *child;
	pthread_t thread;

	for (int i = 0; i < 20; i++) {
		id = id_resolved(ach, IPV4, id_port(listener));
		assert_int_equal(rdma_connect(id, NULL), 0);
		child = expect_request(pch);
		give_qp(child);
		assert_int_equal(pthread_create(&thread, NULL, accept_in_thread, child), 0);
		assert_int_equal(expect_status(pch, RDMA_CM_EVENT_ESTABLISHED), 0);
		id_gone(child);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(expect_status(ach, RDMA_CM_EVENT_ESTABLISHED), 0);
		expect_end(ach);
		id_gone(id);
	}
	id_gone(listener);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(pch);
}

/* ---- many ---- */

static void twenty_clients_are_kept_apart(void **state)
{
	enum { CLIENTS = 20 };
	struct rdma_event_channel *pch = channel_new(), *ach[CLIENTS];
	struct rdma_cm_id *listener = id_listening(pch, IPV4, 3), *id[CLIENTS], *child[CLIENTS];
	unsigned established = 0;

	for (int i = 0; i < CLIENTS; i++) {
		uint8_t who = (uint8_t)i;
		struct rdma_conn_param param = {.private_data = &who, .private_data_len = 1};

		ach[i] = channel_new();
		id[i] = id_resolved(ach[i], IPV4, id_port(listener));
		assert_int_equal(rdma_connect(id[i], &param), 0);
	}
	for (int i = 0; i < CLIENTS;) {
		struct rdma_cm_event *ev;
		struct pollfd p = {.fd = pch->fd, .events = POLLIN};

		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(rdma_get_cm_event(pch, &ev), 0);
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			uint8_t who = *(const uint8_t *)ev->param.conn.private_data;
			struct rdma_conn_param param = {.private_data = &who,
							.private_data_len = 1};

			child[i++] = ev->id;
			give_qp(ev->id);
			assert_int_equal(rdma_accept(ev->id, &param), 0);
		} else {
			assert_int_equal(ev->event, RDMA_CM_EVENT_ESTABLISHED);
			established++;
		}
		rdma_ack_cm_event(ev);
	}
	while (established < CLIENTS) {
		assert_int_equal(expect_status(pch, RDMA_CM_EVENT_ESTABLISHED), 0);
		established++;
	}
	for (int i = 0; i < CLIENTS; i++) {
		struct rdma_cm_event *ev = expect_event(ach[i], RDMA_CM_EVENT_ESTABLISHED);

		assert_int_equal(*(const uint8_t *)ev->param.conn.private_data, i);
		rdma_ack_cm_event(ev);
		id_gone(id[i]);
		rdma_destroy_event_channel(ach[i]);
	}
	for (int i = 0; i < CLIENTS; i++)
		id_gone(child[i]);
	id_gone(listener);
	rdma_destroy_event_channel(pch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_in_order_on_ipv4),
		cmocka_unit_test(events_come_in_order_on_ipv6),
		cmocka_unit_test(passive_side_can_disconnect),
		cmocka_unit_test(both_sides_disconnecting_at_once_see_one_end_each),
		cmocka_unit_test(destroyed_id_disconnects_the_peer),
		cmocka_unit_test(messages_sent_before_destruction_arrive),
		cmocka_unit_test(private_data_goes_both_ways),
		cmocka_unit_test(reject_data_reaches_the_active_side),
		cmocka_unit_test(child_id_inherits_from_its_listener),
		cmocka_unit_test(connecting_without_a_listener_is_rejected),
		cmocka_unit_test(specific_address_has_a_device),
		cmocka_unit_test(wildcard_destination_is_loopback),
		cmocka_unit_test(dual_listener_reports_ipv4_peers_as_ipv4),
		cmocka_unit_test(two_families_share_a_port_with_afonly),
		cmocka_unit_test(afonly_works_on_a_bound_id),
		cmocka_unit_test(port_in_use_is_reported_by_bind),
		cmocka_unit_test(port_of_ended_connections_is_free),
		cmocka_unit_test(ids_can_be_destroyed_in_every_state),
		cmocka_unit_test(listener_may_be_destroyed_before_its_children),
		cmocka_unit_test(id_may_be_destroyed_while_accept_returns),
		cmocka_unit_test(twenty_clients_are_kept_apart),
	};

	/* On roce0 a connection does not end with its queue pairs. */
	const struct CMUnitTest of_stag0[] = {
		cmocka_unit_test(destroyed_queue_pair_disconnects_both_sides),
		cmocka_unit_test(queue_pair_destroyed_without_the_id_is_noticed),
		cmocka_unit_test(queue_pair_in_error_disconnects),
	};

	if (cmocka_run_group_tests_name("cm connect", tests, NULL, NULL))
		return 1;
	return on_roce() ? 0 : cmocka_run_group_tests_name("on stag0", of_stag0, NULL, NULL);
}
