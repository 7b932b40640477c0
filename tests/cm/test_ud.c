// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ud.c - ids of the datagram service (RDMA_PS_UDP) on roce0: lookups between two ids, with bare sockets as peers, and
 * beside strangers.
 */
#include "ud_story.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct town { /* a listener, and a channel for the ids that ask */
	struct rdma_event_channel *ch, *asking;
	struct rdma_cm_id *listener;
	uint16_t port;
};

static int open_town(void **state)
{
	struct town *t = calloc(1, sizeof(*t));

	t->ch = channel_new();
	t->asking = channel_new();
	t->listener = ud_listening(t->ch, IPV4);
	t->port = id_port(t->listener);
	*state = t;
	return 0;
}

static int close_town(void **state)
{
	struct town *t = *state;

	if (t->listener)
		rdma_destroy_id(t->listener);
	rdma_destroy_event_channel(t->ch);
	rdma_destroy_event_channel(t->asking);
	free(t);
	return 0;
}

static void expect_no_more(struct rdma_event_channel *ch)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, 0), 0);
}

static void assert_filled_up(const struct rdma_ud_param *p, const char *text, unsigned len)
{
	const uint8_t *data = p->private_data;

	assert_int_equal(p->private_data_len, len);
	assert_memory_equal(data, text, strlen(text));
	for (size_t i = strlen(text); i < len; i++)
		assert_int_equal(data[i], 0);
}

static void ask(struct rdma_cm_id *id, const char *text)
{
	struct rdma_conn_param param = {.private_data = text,
					.private_data_len = (uint8_t)strlen(text)};

	assert_int_equal(rdma_connect(id, &param), 0);
}

static void accept_with(struct rdma_cm_id *id, const char *text)
{
	struct rdma_conn_param param = {.private_data = text,
					.private_data_len = (uint8_t)strlen(text)};

	assert_int_equal(rdma_accept(id, &param), 0);
}

/* ---- two ids ---- */

static void check_lookup(struct town *t, const char *host)
{
	struct rdma_cm_id *id = ud_resolved(t->asking, host, t->port), *child;
	struct rdma_ud_param found;
	struct rdma_cm_event *ev;
	struct mail near, far;

	ud_give_qp(id);
	mail_open(&near, id);
	ask(id, "may I?");
	ev = expect_event(t->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(ev->listen_id, t->listener);
	assert_filled_up(&ev->param.ud, "may I?", LOOKUP_ASK_PRIVATE);
	child = ev->id;
	rdma_ack_cm_event(ev);
	assert_int_equal(rdma_get_src_port(child), htons(t->port));
	assert_int_equal(rdma_get_dst_port(child), rdma_get_src_port(id));
	ud_give_qp(child);
	mail_open(&far, child);
	mail_expect(&far);
	accept_with(child, "you may");

	ev = expect_event(t->asking, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->status, 0);
	assert_ptr_equal(ev->id, id);
	found = ev->param.ud;
	assert_filled_up(&found, "you may", LOOKUP_ANS_PRIVATE);
	assert_int_equal(found.qp_num, child->qp->qp_num);
	assert_int_equal(found.qkey, RDMA_UDP_QKEY);
	assert_int_equal(found.ah_attr.is_global, 1);
	assert_int_equal(found.ah_attr.port_num, 1);
	rdma_ack_cm_event(ev);
	expect_no_more(t->ch); /* the passive side hears nothing of it */

	mail_send(&near, &found, "hello");
	mail_read(&far, "hello");
	mail_close(&near);
	mail_close(&far);
}

static void lookup_finds_number_key_and_path(void **state)
{
	check_lookup(*state, IPV4);
}

static void lookup_works_over_ipv6_and_with_a_wildcard(void **state)
{
	struct town *t = *state;

	rdma_destroy_id(t->listener);
	t->listener = ud_listening(t->ch, "::");
	t->port = id_port(t->listener);
	check_lookup(t, IPV6);
	check_lookup(t, IPV4);
	check_lookup(t, "127.0.0.9");
}

static void rejection_is_unreachable_with_status_2(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;
	struct rdma_cm_event *ev;

	ask(id, "may I?");
	child = expect_request(t->ch);
	assert_int_equal(rdma_reject(child, "no", 2), 0);
	ev = expect_event(t->asking, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_equal(ev->status, LOOKUP_REJECTED);
	assert_filled_up(&ev->param.ud, "no", LOOKUP_ANS_PRIVATE);
	rdma_ack_cm_event(ev);
	rdma_destroy_id(child);
	rdma_destroy_id(id);
}

static void request_that_is_destroyed_is_rejected(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port);

	ask(id, "");
	rdma_destroy_id(expect_request(t->ch));
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_UNREACHABLE), LOOKUP_REJECTED);
	rdma_destroy_id(id);
}

static void port_without_a_listener_is_unreachable_with_status_1(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port);

	rdma_destroy_id(t->listener);
	t->listener = NULL;
	ask(id, "");
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_UNREACHABLE), LOOKUP_NO_LISTENER);
	rdma_destroy_id(id);
}

static void listener_that_comes_a_moment_later_is_found(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;
	struct sockaddr_storage a = address(IPV4, t->port);

	rdma_destroy_id(t->listener);
	ask(id, "");
	t->listener = ud_id(t->ch);
	assert_int_equal(rdma_bind_addr(t->listener, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(t->listener, 0), 0);
	child = expect_request(t->ch);
	ud_give_qp(child);
	accept_with(child, "");
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
	id_gone(child);
	rdma_destroy_id(id);
}

static void private_data_has_the_limits_of_infiniband(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;
	uint8_t data[255] = {0};
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = LOOKUP_ASK_PRIVATE + 1};

	assert_int_equal(rdma_connect(id, &param), -1);
	assert_int_equal(errno, EINVAL);
	param.private_data_len = LOOKUP_ASK_PRIVATE;
	assert_int_equal(rdma_connect(id, &param), 0);
	child = expect_request(t->ch);
	ud_give_qp(child);
	param.private_data_len = LOOKUP_ANS_PRIVATE + 1;
	assert_int_equal(rdma_accept(child, &param), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_reject(child, data, LOOKUP_ANS_PRIVATE + 1), -1);
	assert_int_equal(errno, EINVAL);
	param.private_data_len = LOOKUP_ANS_PRIVATE;
	assert_int_equal(rdma_accept(child, &param), 0);
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
	id_gone(child);
	rdma_destroy_id(id);
}

static void queue_pair_of_an_id_is_ready_at_once(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_bound(t->asking, IPV4);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int mask;

	ud_give_qp(id);
	assert_int_equal(id->qp->state, IBV_QPS_RTS);
	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.qkey, RDMA_UDP_QKEY);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	assert_int_equal(attr.qkey, RDMA_UDP_QKEY);
	assert_int_equal(attr.port_num, 1);
	id_gone(id);
}

/* The number is any that the program has. */
static void queue_pair_of_the_programs_own_is_answered_with(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;
	struct rdma_conn_param param = {.qp_num = 0x123456};
	struct rdma_cm_event *ev;

	ask(id, "");
	child = expect_request(t->ch);
	assert_int_equal(rdma_accept(child, NULL), -1); /* with no queue pair at all */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_accept(child, &param), 0);
	ev = expect_event(t->asking, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->param.ud.qp_num, 0x123456);
	rdma_ack_cm_event(ev);
	rdma_destroy_id(child);
	rdma_destroy_id(id);
}

static void request_is_answered_once(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;

	ask(id, "");
	assert_int_equal(rdma_connect(id, NULL), -1);
	assert_int_equal(errno, EINVAL);
	child = expect_request(t->ch);
	ud_give_qp(child);
	accept_with(child, "");
	assert_int_equal(rdma_accept(child, NULL), -1);
	assert_int_equal(rdma_reject(child, NULL, 0), -1);
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(rdma_disconnect(id), 0); /* there is nothing to disconnect */
	assert_int_equal(rdma_disconnect(child), 0);
	rdma_destroy_qp(child);
	expect_no_more(t->asking);
	expect_no_more(t->ch);
	rdma_destroy_id(child);
	rdma_destroy_id(id);
}

static void request_outlives_its_listener(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;

	ask(id, "");
	child = expect_request(t->ch);
	rdma_destroy_id(t->listener);
	t->listener = NULL;
	ud_give_qp(child);
	accept_with(child, "");
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
	id_gone(child);
	rdma_destroy_id(id);
}

static void listener_goes_with_requests_that_were_not_fetched(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port);
	struct pollfd p = {.fd = t->ch->fd, .events = POLLIN};

	ask(id, "");
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	rdma_destroy_id(t->listener);
	t->listener = NULL;
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_UNREACHABLE), LOOKUP_NO_LISTENER);
	rdma_destroy_id(id);
}

static void lookup_under_way_can_be_destroyed(void **state)
{
	struct town *t = *state;

	for (int i = 0; i < 20; i++) {
		struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port);

		ask(id, "");
		rdma_destroy_id(id);
	}
}

/* Returns whether an id of connections can have the port of a bound id of datagrams. */
static bool shares_its_port(struct rdma_event_channel *ch, struct rdma_cm_id *bound)
{
	struct rdma_cm_id *id = id_new(ch);
	int err = rdma_bind_addr(id, (struct sockaddr *)&bound->route.addr.src_addr);

	rdma_destroy_id(id);
	return !err;
}

static void port_is_not_that_of_connections(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_bound(t->asking, IPV4), *other = ud_id(t->asking);

	assert_int_equal(rdma_bind_addr(other, &id->route.addr.src_addr), -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_destroy_id(other);
	while (!shares_its_port(t->asking, id)) { /* some other process has it */
		rdma_destroy_id(id);
		id = ud_bound(t->asking, IPV4);
	}
	rdma_destroy_id(id);
}

static void *serve_one(void *arg)
{
	struct rdma_cm_id *listener = arg, *child;

	assert_int_equal(rdma_get_request(listener, &child), 0);
	ud_give_qp(child);
	assert_int_equal(rdma_accept(child, NULL), 0);
	rdma_destroy_ep(child);
	assert_int_equal(rdma_get_request(listener, &child), 0);
	assert_int_equal(rdma_reject(child, NULL, 0), 0);
	rdma_destroy_ep(child);
	return NULL;
}

static void synchronous_ids_wait_for_the_answer(void **state)
{
	struct rdma_cm_id *listener = ud_listening(NULL, IPV4), *id;
	struct sockaddr_storage a = address(IPV4, id_port(listener));
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, serve_one, listener), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
		assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
		assert_int_equal(rdma_resolve_route(id, 1000), 0);
		assert_int_equal(rdma_connect(id, NULL), i ? -1 : 0);
		assert_int_equal(id->event->event,
				 i ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_ESTABLISHED);
		rdma_destroy_id(id);
	}
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
}

static int ask_and_greet(uint16_t port)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *id = ud_resolved(ch, IPV4, port);
	struct rdma_cm_event *ev;
	struct rdma_ud_param to;
	struct mail m;

	ud_give_qp(id);
	mail_open(&m, id);
	ask(id, "child");
	ev = expect_event(ch, RDMA_CM_EVENT_ESTABLISHED);
	to = ev->param.ud;
	rdma_ack_cm_event(ev);
	mail_send(&m, &to, "from another process");
	mail_close(&m);
	rdma_destroy_event_channel(ch);
	return 0;
}

static void processes_find_each_other(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *child;
	struct mail m;
	int status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	skip(); /* it allows a forked child no threads */
#endif
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(ask_and_greet(t->port));
	child = expect_request(t->ch);
	ud_give_qp(child);
	mail_open(&m, child);
	mail_expect(&m);
	accept_with(child, "");
	mail_read(&m, "from another process");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	mail_close(&m);
}

/* ---- bare sockets ---- */

static void messages_that_are_lost_are_repeated(void **state)
{
	struct town *t = *state;
	struct lookup_msg m = {0}, again, answer;
	struct rdma_cm_id *id;
	uint16_t port, from;
	int fd = udp_open(IPV4, &port);

	id = ud_resolved(t->asking, IPV4, port);
	ask(id, "text");
	m = udp_recv(fd, &from);
	assert_int_equal(m.kind, LOOKUP_ASK);
	assert_int_equal(from, id_port(id));
	for (int i = 0; i < 3; i++) {
		again = udp_recv(fd, NULL);
		assert_memory_equal(&again, &m, sizeof(m));
	}
	udp_send(fd, IPV4, from,
		 &(struct lookup_msg){.kind = LOOKUP_PROVE, .id = m.id, .cookie = 77});
	while (m.cookie != 77) /* repetitions without the cookie may be on the way */
		m = udp_recv(fd, NULL);
	again = udp_recv(fd, NULL);
	assert_int_equal(again.cookie, 77);
	answer = (struct lookup_msg){
		.kind = LOOKUP_ANSWER, .id = m.id, .qpn = 0x123456, .qkey = RDMA_UDP_QKEY};
	udp_send(fd, IPV4, from, &answer);
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
	rdma_destroy_id(id);
	close(fd);
}

static void messages_that_make_no_sense_are_ignored(void **state)
{
	struct town *t = *state;
	struct lookup_msg m, wrong;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	uint16_t port, from, other;
	int fd = udp_open(IPV4, &port), stranger = udp_open(IPV4, &other);

	id = ud_resolved(t->asking, IPV4, port);
	ask(id, "");
	m = udp_recv(fd, &from);
	wrong = (struct lookup_msg){.kind = LOOKUP_ANSWER, .id = m.id + 1, .qpn = 7};
	udp_send(fd, IPV4, from, &wrong); /* of another lookup */
	udp_send(fd, IPV4, from, &m);	  /* its own question */
	wrong.id = m.id;
	udp_send(stranger, IPV4, from, &wrong); /* from another address */
	wrong.private_len = LOOKUP_ANS_PRIVATE + 1;
	udp_send(fd, IPV4, from, &wrong);
	udp_send(
		fd, IPV4, from,
		&(struct lookup_msg){
			.kind = LOOKUP_ANSWER, .id = m.id, .qpn = 0x123456, .qkey = RDMA_UDP_QKEY});
	ev = expect_event(t->asking, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->param.ud.qp_num, 0x123456);
	rdma_ack_cm_event(ev);
	rdma_destroy_id(id);
	close(fd);
	close(stranger);
}

/* As hardware does it: an id has one Q_Key. */
static void answer_with_another_q_key_is_an_error(void **state)
{
	struct town *t = *state;
	struct lookup_msg m;
	struct rdma_cm_id *id;
	uint16_t port, from;
	int fd = udp_open(IPV4, &port);

	id = ud_resolved(t->asking, IPV4, port);
	ud_give_qp(id);
	ask(id, "");
	m = udp_recv(fd, &from);
	udp_send(fd, IPV4, from,
		 &(struct lookup_msg){
			 .kind = LOOKUP_ANSWER, .id = m.id, .qpn = 0x123456, .qkey = 5});
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ADDR_ERROR), -EINVAL);
	id_gone(id);
	close(fd);
}

static void source_must_prove_its_address(void **state)
{
	struct town *t = *state;
	struct lookup_msg guess = {.kind = LOOKUP_ASK, .id = 9, .cookie = 12345}, proof;
	uint16_t port;
	int fd = udp_open(IPV4, &port);

	udp_send(fd, IPV4, t->port, &guess);
	proof = udp_recv(fd, NULL);
	assert_int_equal(proof.kind, LOOKUP_PROVE);
	guess.cookie = proof.cookie;
	guess.id++; /* the cookie is that of another lookup */
	udp_send(fd, IPV4, t->port, &guess);
	assert_int_equal(udp_recv(fd, NULL).kind, LOOKUP_PROVE);
	expect_no_more(t->ch);
	close(fd);
}

static void answer_is_repeated_for_each_repetition(void **state)
{
	struct town *t = *state;
	struct lookup_msg m, first, second;
	struct rdma_cm_id *child;
	uint16_t port;
	int fd = udp_open(IPV4, &port);

	m = udp_ask(fd, IPV4, t->port, 9);
	udp_send(fd, IPV4, t->port, &m); /* before it is answered: nothing follows from it */
	child = expect_request(t->ch);
	ud_give_qp(child);
	accept_with(child, "yes");
	first = udp_recv(fd, NULL);
	assert_int_equal(first.kind, LOOKUP_ANSWER);
	id_gone(child);
	udp_send(fd, IPV4, t->port, &m);
	second = udp_recv(fd, NULL);
	assert_int_equal(first.qpn, second.qpn);
	assert_int_equal(first.private_len, second.private_len);
	expect_no_more(t->ch);
	close(fd);
}

/* ---- strangers ---- */

#define FLOOD "127.0.0.2" /* another source */
#define MANY  3000

/* One source asks for more than there is room for; another one gets its turn, and memory has a limit. */
static void sources_take_turns(void **state)
{
	struct town *t = *state;
	struct pollfd p = {.fd = t->ch->fd, .events = POLLIN};
	unsigned before = 0, all = 0;
	uint16_t port, honest_port;
	int fd = udp_open(FLOOD, &port), honest = udp_open(IPV4, &honest_port);

	for (uint64_t i = 1; i <= MANY; i++)
		udp_ask(fd, IPV4, t->port, i);
	udp_ask(honest, IPV4, t->port, 1);
	udp_ask(fd, IPV4, t->port, MANY + 1); /* its proof says that the honest one is there */
	for (; poll(&p, 1, 0) == 1; all++) {
		struct rdma_cm_id *child = expect_request(t->ch);

		if (rdma_get_dst_port(child) == htons(honest_port))
			before = all;
		rdma_destroy_id(child);
	}
	assert_in_range(before, 1, 66);	  /* those that were presented already, and one more */
	assert_in_range(all, 1024, 1100); /* and what was presented */
	assert_int_equal(udp_recv(honest, NULL).kind, LOOKUP_ANSWER);
	close(fd);
	close(honest);
}

struct flood {
	atomic_bool over;
	uint16_t port;
};

/* Noise, and requests without a proof, as fast as they go. */
static void *flood(void *arg)
{
	struct flood *f = arg;
	struct sockaddr_storage a = address(IPV4, f->port);
	struct lookup_msg m = {.kind = LOOKUP_ASK};
	uint8_t buf[LOOKUP_LEN];
	uint16_t port;
	int fd = udp_open(FLOOD, &port);

	while (!atomic_load(&f->over)) {
		m.id++;
		lookup_encode(&m, buf);
		if (m.id % 4 == 0)
			buf[m.id % LOOKUP_LEN] ^= 1;
		sendto(fd, buf, m.id % 16 ? LOOKUP_LEN : m.id % LOOKUP_LEN, MSG_DONTWAIT,
		       (struct sockaddr *)&a, sizeof(a));
	}
	close(fd);
	return NULL;
}

static void flood_does_not_stop_an_honest_lookup(void **state)
{
	struct town *t = *state;
	struct flood f = {.port = t->port};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, flood, &f), 0);
	for (int i = 0; i < 10; i++) {
		struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;

		ask(id, "honest");
		child = expect_request(t->ch);
		ud_give_qp(child);
		accept_with(child, "");
		assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_ESTABLISHED), 0);
		id_gone(child);
		rdma_destroy_id(id);
	}
	atomic_store(&f.over, true);
	pthread_join(thread, NULL);
}

/* ---- with a short STAG_CONNECT_TIMEOUT ---- */

static void silence_is_unreachable_in_time(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id;
	uint16_t port;
	int fd = udp_open(IPV4, &port);

	id = ud_resolved(t->asking, IPV4, port);
	ask(id, "");
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	rdma_destroy_id(id);
	close(fd);
}

static void answer_that_comes_too_late_is_heard_by_nobody(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *id = ud_resolved(t->asking, IPV4, t->port), *child;

	ask(id, "");
	child = expect_request(t->ch);
	assert_int_equal(expect_status(t->asking, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	ud_give_qp(child);
	accept_with(child, "");
	expect_no_more(t->asking);
	id_gone(child);
	rdma_destroy_id(id);
}

static void answers_are_forgotten(void **state)
{
	struct town *t = *state;
	struct rdma_cm_id *child;
	struct lookup_msg m;
	uint16_t port;
	int fd = udp_open(IPV4, &port);
	struct pollfd p = {.fd = t->ch->fd, .events = POLLIN};

	m = udp_ask(fd, IPV4, t->port, 9);
	child = expect_request(t->ch);
	assert_int_equal(rdma_reject(child, NULL, 0), 0);
	rdma_destroy_id(child);
	do { /* until it counts as a new one */
		assert_int_equal(udp_recv(fd, NULL).kind, LOOKUP_ANSWER);
		udp_send(fd, IPV4, t->port, &m);
	} while (poll((struct pollfd[]){p, {.fd = fd, .events = POLLIN}}, 2, PATIENCE_MS) == 1 &&
		 poll(&p, 1, 0) == 0);
	rdma_destroy_id(expect_request(t->ch));
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_town, close_town)

int main(int argc, char **argv)
{
	const struct CMUnitTest in_time[] = {
		TEST(processes_find_each_other), /* first: it forks */
		TEST(lookup_finds_number_key_and_path),
		TEST(lookup_works_over_ipv6_and_with_a_wildcard),
		TEST(rejection_is_unreachable_with_status_2),
		TEST(request_that_is_destroyed_is_rejected),
		TEST(port_without_a_listener_is_unreachable_with_status_1),
		TEST(listener_that_comes_a_moment_later_is_found),
		TEST(private_data_has_the_limits_of_infiniband),
		TEST(queue_pair_of_an_id_is_ready_at_once),
		TEST(queue_pair_of_the_programs_own_is_answered_with),
		TEST(request_is_answered_once),
		TEST(request_outlives_its_listener),
		TEST(listener_goes_with_requests_that_were_not_fetched),
		TEST(lookup_under_way_can_be_destroyed),
		TEST(port_is_not_that_of_connections),
		TEST(synchronous_ids_wait_for_the_answer),
		TEST(messages_that_are_lost_are_repeated),
		TEST(messages_that_make_no_sense_are_ignored),
		TEST(answer_with_another_q_key_is_an_error),
		TEST(source_must_prove_its_address),
		TEST(answer_is_repeated_for_each_repetition),
		TEST(sources_take_turns),
		TEST(flood_does_not_stop_an_honest_lookup),
	};
	const struct CMUnitTest late[] = {
		TEST(silence_is_unreachable_in_time),
		TEST(answer_that_comes_too_late_is_heard_by_nobody),
		TEST(answers_are_forgotten),
	};

	if (argc > 1)
		return cmocka_run_group_tests(late, NULL, NULL);
	return cmocka_run_group_tests(in_time, NULL, NULL);
}
