// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tls.c - encrypted connections: which modes and keys meet, and what strangers at the port achieve.
 */
#include "story.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stag/stagdv.h"
#include "tls/tls.h"

static const uint8_t key_a[32] = "a key of thirty-two bytes, as is";
static const uint8_t key_b[32] = "another one, which is as long...";

static const struct stagdv_tls_attr psk = {
	.identity = "alice", .psk = key_a, .psk_len = sizeof(key_a)};
static const struct stagdv_tls_attr wrong_psk = {
	.identity = "alice", .psk = key_b, .psk_len = sizeof(key_b)};
static const struct stagdv_tls_attr node = {
	.cert = CERTS "/node.pem", .key = CERTS "/node.key", .ca = CERTS "/ca.pem"};
static const struct stagdv_tls_attr client = {
	.cert = CERTS "/client.pem", .key = CERTS "/client.key", .ca = CERTS "/ca.pem"};
static const struct stagdv_tls_attr stranger = {
	.cert = CERTS "/stranger.pem", .key = CERTS "/stranger.key", .ca = CERTS "/ca.pem"};

static void encrypt_id(struct rdma_cm_id *id, const struct stagdv_tls_attr *attr,
		       enum stagdv_tls_mode mode)
{
	struct stagdv_tls *tls = NULL;
	char why[256] = "";

	if (attr && stagdv_create_tls(&tls, attr, sizeof(*attr), why, sizeof(why)))
		fail_msg("%s", why);
	assert_int_equal(stagdv_set_tls(id, tls, mode), 0);
	if (tls)
		stagdv_destroy_tls(tls);
}

static struct rdma_cm_id *listen_with(struct rdma_event_channel *ch,
				      const struct stagdv_tls_attr *attr, enum stagdv_tls_mode mode)
{
	struct sockaddr_storage any = address(IPV4, 0);
	struct rdma_cm_id *id = id_new(ch);

	encrypt_id(id, attr, mode);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 64), 0);
	return id;
}

static void open_with(struct couple *c, const struct stagdv_tls_attr *active,
		      enum stagdv_tls_mode active_mode, const struct stagdv_tls_attr *passive,
		      enum stagdv_tls_mode passive_mode)
{
	struct rdma_conn_param param = {.private_data = "hi", .private_data_len = 2};

	*c = (struct couple){.active_ch = channel_new(), .passive_ch = channel_new()};
	c->listener = listen_with(c->passive_ch, passive, passive_mode);
	c->active = id_resolved(c->active_ch, IPV4, id_port(c->listener));
	encrypt_id(c->active, active, active_mode);
	assert_int_equal(rdma_connect(c->active, &param), 0);
}

static void establish(struct couple *c)
{
	c->passive = expect_request(c->passive_ch);
	give_qp(c->passive);
	assert_int_equal(rdma_accept(c->passive, NULL), 0);
	expect_status(c->active_ch, RDMA_CM_EVENT_ESTABLISHED);
	expect_status(c->passive_ch, RDMA_CM_EVENT_ESTABLISHED);
}

static struct stagdv_tls_info info_of(struct rdma_cm_id *id)
{
	struct stagdv_tls_info info;

	assert_int_equal(stagdv_query_tls(id, &info, sizeof(info)), 0);
	return info;
}

static void close_unmet(struct couple *c)
{
	id_gone(c->active);
	id_gone(c->listener);
	rdma_destroy_event_channel(c->active_ch);
	rdma_destroy_event_channel(c->passive_ch);
}

/* ---- which modes meet ---- */

static void a_request_shows_who_asks(void **state)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_REQUIRED, &psk, STAGDV_TLS_REQUIRED);
	c.passive = expect_request(c.passive_ch);
	assert_string_equal(info_of(c.passive).peer, "alice");
	assert_true(info_of(c.passive).by_key);
	give_qp(c.passive);
	assert_int_equal(rdma_accept(c.passive, NULL), 0);
	expect_status(c.active_ch, RDMA_CM_EVENT_ESTABLISHED);
	expect_status(c.passive_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_string_equal(info_of(c.passive).peer, "alice");
	couple_close(&c);
}

static void certificates_connect_without_crc(void **state)
{
	struct stagdv_qp_attr attr;
	struct couple c;

	open_with(&c, &client, STAGDV_TLS_REQUIRED, &node, STAGDV_TLS_REQUIRED);
	establish(&c);
	assert_string_equal(info_of(c.active).peer, "node");
	assert_string_equal(info_of(c.passive).peer, "client");
	assert_string_equal(info_of(c.active).version, "TLSv1.3");
	assert_int_equal(stagdv_query_qp(c.active->qp, &attr, sizeof(attr)), 0);
	assert_false(attr.crc); /* TLS protects the bytes already */
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	expect_end(c.passive_ch);
	couple_close(&c);
}

static void allowed_meets_off_in_plain(void **state)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_ALLOWED, NULL, STAGDV_TLS_OFF);
	establish(&c);
	assert_false(info_of(c.active).encrypted);
	assert_false(info_of(c.passive).encrypted);
	couple_close(&c);
	open_with(&c, NULL, STAGDV_TLS_OFF, &psk, STAGDV_TLS_ALLOWED);
	establish(&c);
	assert_false(info_of(c.passive).encrypted);
	couple_close(&c);
}

static void allowed_meets_allowed_encrypted(void **state)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_ALLOWED, &psk, STAGDV_TLS_ALLOWED);
	establish(&c);
	assert_true(info_of(c.active).encrypted);
	assert_true(info_of(c.passive).encrypted);
	couple_close(&c);
}

/* Accepts a connection, and returns it when its hello has begun. */
static int accept_hello(int listener)
{
	int fd = raw_accept(listener);
	uint8_t first;

	raw_recv(fd, &first, 1);
	assert_int_equal(first, TLS_HELLO);
	return fd;
}

/* The peer resets the connection on our hello, twice, and no descriptor is left to try it without TLS. */
static void a_retry_without_tls_that_cannot_begin_is_an_error(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rlimit all, none;
	struct rdma_cm_id *id;
	uint16_t port;
	int listener = raw_listen(IPV4, &port), fd;

	id = id_resolved(ch, IPV4, port);
	encrypt_id(id, &psk, STAGDV_TLS_ALLOWED);
	assert_int_equal(rdma_connect(id, NULL), 0);
	raw_reset(accept_hello(listener));
	fd = accept_hello(listener);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	none = all;
	none.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	raw_reset(fd);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_CONNECT_ERROR), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	close(listener);
	id_gone(id);
	rdma_destroy_event_channel(ch);
}

static void plain_is_refused_where_tls_is_required(void **state)
{
	struct couple c;

	open_with(&c, NULL, STAGDV_TLS_OFF, &psk, STAGDV_TLS_REQUIRED);
	expect_status(c.active_ch, RDMA_CM_EVENT_REJECTED);
	expect_silence(c.passive_ch, 0);
	close_unmet(&c);
}

static void who_requires_tls_does_not_go_on_without(void **state)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_REQUIRED, NULL, STAGDV_TLS_OFF);
	assert_int_equal(expect_status(c.active_ch, RDMA_CM_EVENT_CONNECT_ERROR), -EPROTONOSUPPORT);
	expect_silence(c.passive_ch, 0);
	close_unmet(&c);
}

static void assert_no_meeting(const struct stagdv_tls_attr *active,
			      const struct stagdv_tls_attr *passive, enum stagdv_tls_mode mode)
{
	struct couple c;

	open_with(&c, active, mode, passive, mode);
	expect_status(c.active_ch, RDMA_CM_EVENT_CONNECT_ERROR);
	expect_silence(c.passive_ch, 0);
	close_unmet(&c);
}

static void wrong_keys_do_not_meet(void **state)
{
	assert_no_meeting(&wrong_psk, &psk, STAGDV_TLS_REQUIRED);
	assert_no_meeting(&wrong_psk, &psk, STAGDV_TLS_ALLOWED); /* nor in plain then */
}

static void certificates_of_strangers_do_not_meet(void **state)
{
	assert_no_meeting(&client, &stranger, STAGDV_TLS_REQUIRED);
	assert_no_meeting(&stranger, &node, STAGDV_TLS_REQUIRED);
	assert_no_meeting(&node, &client, STAGDV_TLS_ALLOWED);
}

static void an_id_in_use_keeps_its_choice(void **state)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_REQUIRED, &psk, STAGDV_TLS_REQUIRED);
	establish(&c);
	assert_int_equal(stagdv_set_tls(c.active, NULL, STAGDV_TLS_OFF), EINVAL);
	assert_int_equal(stagdv_set_tls(c.listener, NULL, STAGDV_TLS_OFF), EINVAL);
	assert_int_equal(stagdv_set_tls(c.listener, NULL, STAGDV_TLS_REQUIRED), EINVAL);
	couple_close(&c);
}

#define MANY 40

static void requests_arrive_in_the_order_of_connecting(void **state)
{
	struct rdma_event_channel *active_ch = channel_new(), *passive_ch = channel_new();
	struct rdma_cm_id *listener = listen_with(passive_ch, &node, STAGDV_TLS_REQUIRED);
	struct rdma_cm_id *active[MANY];

	for (int i = 0; i < MANY; i++) {
		active[i] = id_resolved(active_ch, IPV4, id_port(listener));
		encrypt_id(active[i], &client, STAGDV_TLS_REQUIRED);
	}
	for (int i = 0; i < MANY; i++) {
		uint8_t number = (uint8_t)i;
		struct rdma_conn_param p = {.private_data = &number, .private_data_len = 1};

		assert_int_equal(rdma_connect(active[i], &p), 0);
	}
	for (int i = 0; i < MANY; i++) {
		struct rdma_cm_event *e = expect_event(passive_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = e->id;

		assert_int_equal(*(const uint8_t *)e->param.conn.private_data, i);
		rdma_ack_cm_event(e);
		assert_int_equal(rdma_reject(id, NULL, 0), 0);
		rdma_destroy_id(id);
		expect_status(active_ch, RDMA_CM_EVENT_REJECTED);
	}
	for (int i = 0; i < MANY; i++)
		id_gone(active[i]);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(active_ch);
	rdma_destroy_event_channel(passive_ch);
}

/* ---- a peer that speaks TLS by hand ---- */

struct by_hand {
	struct tls_context *context;
	struct tls_session *s;
	int fd;
};

static void wait_for(struct by_hand *h, short events)
{
	struct pollfd p = {.fd = h->fd, .events = events};

	assert_true(poll(&p, 1, PATIENCE_MS) > 0);
}

static void hand_begin(struct by_hand *h, int fd, enum tls_side side)
{
	struct tls_config cfg = {.identity = "alice", .psk = key_a, .psk_len = sizeof(key_a)};
	char why[TLS_WHY_LEN] = "";

	h->fd = fd;
	assert_int_equal(fcntl(h->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(tls_context_create(&h->context, &cfg, why), 0);
	assert_int_equal(tls_open(&h->s, h->context, h->fd, side, why), 0);
}

static void hand_open(struct by_hand *h, uint16_t port)
{
	hand_begin(h, raw_connect(IPV4, port), TLS_CLIENT);
}

static void hand_accept(struct by_hand *h, int listener)
{
	hand_begin(h, raw_accept(listener), TLS_SERVER);
}

static void hand_shake(struct by_hand *h)
{
	int err;

	while ((err = tls_handshake(h->s)) == -EAGAIN)
		wait_for(h, tls_events(h->s));
	assert_int_equal(err, 0);
}

static void hand_send(struct by_hand *h, const void *data, size_t len)
{
	struct iovec v = {(void *)data, len};

	assert_int_equal(tls_sendv(h->s, &v, 1), (ssize_t)len);
}

static void hand_recv(struct by_hand *h, void *data, size_t len)
{
	struct iovec v = {data, len};
	ssize_t n;

	while ((n = tls_recvv(h->s, &v, 1)) == -EAGAIN)
		wait_for(h, POLLIN);
	assert_int_equal(n, (ssize_t)len);
}

static void hand_close(struct by_hand *h)
{
	tls_close(h->s);
	tls_context_put(h->context);
	close(h->fd);
}

/* Answers a hello. The client's end of the handshake comes with its Request. */
static void hand_answer(struct by_hand *h)
{
	wait_for(h, POLLIN);
	assert_int_equal(tls_handshake(h->s), -EAGAIN);
}

static void hand_reset(struct by_hand *h)
{
	tls_close(h->s);
	tls_context_put(h->context);
	raw_reset(h->fd);
}

/* Connects by hand, to a queue pair of ours. */
static void hand_connect(struct by_hand *h, struct couple *c)
{
	struct mpa_frame req = plain_request();
	uint8_t frame[MPA_FRAME_MAX];
	int len = mpa_encode(&req, frame, sizeof(frame));

	*c = (struct couple){.passive_ch = channel_new()};
	c->listener = listen_with(c->passive_ch, &psk, STAGDV_TLS_REQUIRED);
	hand_open(h, id_port(c->listener));
	hand_shake(h);
	hand_send(h, frame, (size_t)len);
	c->passive = expect_request(c->passive_ch);
	give_qp(c->passive);
	assert_int_equal(rdma_accept(c->passive, NULL), 0);
	hand_recv(h, frame, MPA_FRAME_LEN);
	expect_status(c->passive_ch, RDMA_CM_EVENT_ESTABLISHED);
}

static void hand_disconnect(struct by_hand *h, struct couple *c)
{
	expect_end(c->passive_ch);
	id_gone(c->passive);
	rdma_destroy_id(c->listener);
	rdma_destroy_event_channel(c->passive_ch);
	hand_close(h);
}

/* Returns the next asynchronous event of the queue pair's device. */
static enum ibv_event_type async_event(struct rdma_cm_id *id)
{
	struct pollfd p = {.fd = id->verbs->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	assert_true(poll(&p, 1, PATIENCE_MS) > 0);
	assert_int_equal(ibv_get_async_event(id->verbs, &e), 0);
	ibv_ack_async_event(&e);
	return e.event_type;
}

static void a_forged_record_ends_the_connection(void **state)
{
	struct by_hand h;
	struct couple c;

	hand_connect(&h, &c);
	raw_send(h.fd, "\x17\x03\x03\x00\x20 thirty-two bytes of nonsense..", 37);
	assert_int_equal(async_event(c.passive), IBV_EVENT_QP_FATAL);
	hand_disconnect(&h, &c);
}

static void a_cut_within_a_record_is_no_orderly_end(void **state)
{
	struct by_hand h;
	struct couple c;

	hand_connect(&h, &c);
	raw_send(h.fd, "\x17\x03\x03\x00\x20 cut", 9);
	shutdown(h.fd, SHUT_WR);
	assert_int_equal(async_event(c.passive), IBV_EVENT_QP_FATAL);
	hand_disconnect(&h, &c);
}

static void a_cut_between_records_is_no_orderly_end(void **state)
{
	struct by_hand h;
	struct couple c;

	hand_connect(&h, &c);
	shutdown(h.fd, SHUT_WR);
	assert_int_equal(async_event(c.passive), IBV_EVENT_QP_FATAL);
	hand_disconnect(&h, &c);
}

static void bytes_behind_the_request_are_refused(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = listen_with(ch, &psk, STAGDV_TLS_REQUIRED);
	struct mpa_frame req = plain_request();
	uint8_t frame[MPA_FRAME_MAX + 1] = {0};
	struct by_hand h;
	int len = mpa_encode(&req, frame, MPA_FRAME_MAX);

	hand_open(&h, id_port(listener));
	hand_shake(&h);
	hand_send(&h, frame, (size_t)len + 1);
	assert_int_equal(fcntl(h.fd, F_SETFL, 0), 0);
	expect_end_of_data(h.fd);
	expect_silence(ch, 0);
	hand_close(&h);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

/* ---- the dial queue ---- */

static struct rdma_cm_id *connecting(struct rdma_event_channel *ch, uint16_t port)
{
	struct rdma_cm_id *id = id_resolved(ch, IPV4, port);

	encrypt_id(id, &psk, STAGDV_TLS_REQUIRED);
	assert_int_equal(rdma_connect(id, NULL), 0);
	return id;
}

static void expect_secured_request(int listener)
{
	uint8_t frame[MPA_FRAME_LEN];
	struct by_hand h;

	hand_accept(&h, listener);
	hand_shake(&h);
	hand_recv(&h, frame, sizeof(frame));
	hand_close(&h);
}

/*
 * The second connection is secured, and waits for the first one's Request; it is reset, and the first one leaves the queue
 * before the second one dials again.
 */
static void reset_a_secured_one(const struct place *engine, struct rdma_event_channel *ch)
{
	struct rdma_cm_id *first, *second;
	struct by_hand h;
	uint16_t port;
	int listener = raw_listen(IPV4, &port), fd;

	first = connecting(ch, port);
	fd = accept_hello(listener);
	second = connecting(ch, port);
	hand_accept(&h, listener);
	hand_answer(&h);
	engine_catches_up(engine);
	hand_reset(&h);
	engine_catches_up(engine);
	id_gone(first);
	expect_secured_request(listener);
	id_gone(second);
	close(fd);
	close(listener);
}

static void a_secured_connection_that_was_reset_dials_again(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct place *engine;

	assert_int_equal(place_open((void **)&engine), 0);
	for (int round = 0; round < 20; round++)
		reset_a_secured_one(engine, ch);
	assert_int_equal(place_close((void **)&engine), 0);
	rdma_destroy_event_channel(ch);
}

/* ---- strangers beside an honest client ---- */

#define STRANGERS 200

/* Records what a client of TLS says first. */
static size_t record_hello(uint8_t *to, size_t room)
{
	uint16_t port;
	int listening = raw_listen(IPV4, &port), fd;
	struct by_hand h;
	ssize_t n;

	hand_open(&h, port);
	assert_int_equal(tls_handshake(h.s), -EAGAIN);
	fd = raw_accept(listening);
	n = recv(fd, to, room, 0);
	assert_true(n > 100);
	close(fd);
	close(listening);
	hand_close(&h);
	return (size_t)n;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns how long an honest client takes to be connected. */
static double honest_meeting(struct rdma_cm_id *listener, struct rdma_event_channel *ch)
{
	struct couple c = {.active_ch = channel_new(), .passive_ch = ch, .listener = listener};
	double begin, took;

	c.active = id_resolved(c.active_ch, IPV4, id_port(listener));
	encrypt_id(c.active, &psk, STAGDV_TLS_REQUIRED);
	begin = seconds();
	assert_int_equal(rdma_connect(c.active, NULL), 0);
	establish(&c);
	took = seconds() - begin;
	assert_int_equal(rdma_disconnect(c.active), 0);
	expect_end(c.active_ch);
	expect_end(ch);
	id_gone(c.active);
	id_gone(c.passive);
	rdma_destroy_event_channel(c.active_ch);
	return took;
}

/* In turns: a hello without an end, half a hello, garbage that begins as one does, and silence. */
static int one_stranger(uint16_t port, int i, const uint8_t *hello, size_t len)
{
	int fd = raw_connect(IPV4, port);

	switch (i % 4) {
	case 0:
		raw_send(fd, hello, len);
		break;
	case 1:
		raw_send(fd, hello, len / 2);
		break;
	case 2:
		raw_send(fd, "\x16\x03\x01\x00\x10garbage, garbage", 21);
		break;
	}
	return fd;
}

static void strangers_do_not_delay_an_honest_client(void **state)
{
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = listen_with(ch, &psk, STAGDV_TLS_REQUIRED);
	int fd[STRANGERS];
	uint8_t hello[2048];
	size_t len = record_hello(hello, sizeof(hello));
	double took = 0, alone;

	for (int try = 0; try < 10; try++) { /* the machine may stall, too */
		for (int i = 0; i < STRANGERS; i++)
			fd[i] = one_stranger(id_port(listener), i, hello, len);
		took = honest_meeting(listener, ch);
		for (int i = 0; i < STRANGERS; i++)
			close(fd[i]);
		if (took < 1)
			break;
	}
	alone = took < 1 ? 0 : honest_meeting(listener, ch);
	if (took >= 1 && took > 4 * alone)
		fail_msg("an honest client was connected after %.1f s, alone after %.1f s", took,
			 alone);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

static int connect_from(const char *host, uint16_t port)
{
	struct sockaddr_storage from = address(host, 0), to = address(IPV4, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	return fd;
}

/* Hellos of one address. */
static void gather_crowd(int *fd, int n, uint16_t port)
{
	uint8_t hello[2048];
	size_t len = record_hello(hello, sizeof(hello));

	for (int i = 0; i < n; i++) {
		fd[i] = connect_from("127.0.0.2", port);
		raw_send(fd[i], hello, len);
	}
}

static void disperse_crowd(const int *fd, int n)
{
	for (int i = 0; i < n; i++)
		close(fd[i]);
}

static int n_answered(const int *fd, int n)
{
	int answered = 0;
	char byte;

	for (int i = 0; i < n; i++)
		answered += recv(fd[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
	return answered;
}

struct slow {
	atomic_int left; /* so many times, */
	int ms;		 /* so long */
};

/* Finding alice's key takes a while. Then the engine has no time for handshakes for thrice as long. */
static int find_slowly(void *arg, const char *identity, uint8_t *key)
{
	struct slow *slow = arg;

	if (strcmp(identity, "alice") == 0 && atomic_fetch_sub(&slow->left, 1) > 0)
		poll(NULL, 0, slow->ms);
	memcpy(key, key_a, sizeof(key_a));
	return sizeof(key_a);
}

#define CROWD	 40
#define CROWD_MS 10 /* a handshake of the crowd; all of them take four times forty times as long */

/* Returns how many of a crowd were answered before a client from elsewhere, whose hello came after all of theirs. */
static int served_before_another_source(void)
{
	struct stagdv_tls_attr bob = {.identity = "bob", .psk = key_a, .psk_len = sizeof(key_a)};
	struct couple c = {.active_ch = channel_new(), .passive_ch = channel_new()};
	struct slow slow = {.left = CROWD, .ms = CROWD_MS};
	struct stagdv_tls_attr users = {.find_psk = find_slowly, .arg = &slow};
	int fd[CROWD], n;

	c.listener = listen_with(c.passive_ch, &users, STAGDV_TLS_REQUIRED);
	c.active = id_resolved(c.active_ch, IPV4, id_port(c.listener));
	encrypt_id(c.active, &bob, STAGDV_TLS_REQUIRED);
	gather_crowd(fd, CROWD, id_port(c.listener));
	assert_int_equal(rdma_connect(c.active, NULL), 0);
	c.passive = expect_request(c.passive_ch);
	n = n_answered(fd, CROWD);
	disperse_crowd(fd, CROWD);
	id_gone(c.passive);
	close_unmet(&c);
	return n;
}

static void a_crowd_of_one_source_does_not_delay_another(void **state)
{
	int n = CROWD;

	for (int try = 0; try < 5 && n > CROWD / 2; try++) /* this thread may stall, too */
		n = served_before_another_source();
	assert_in_range(n, 0, CROWD / 2);
}

static bool is_hung_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

/* Returns how many bytes there are, once there are any. */
static int n_received(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n;

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
	return n;
}

static int child_meets(void)
{
	struct couple c;

	open_with(&c, &psk, STAGDV_TLS_REQUIRED, &psk, STAGDV_TLS_REQUIRED);
	establish(&c);
	return info_of(c.active).encrypted ? 0 : 1;
}

#define FEW 5

/* The child has a copy of its parent's handshakes, which wait. */
static void forked_child_leaves_its_parents_handshakes_alone(void **state)
{
	struct slow slow = {.left = 1, .ms = 100};
	struct stagdv_tls_attr users = {.find_psk = find_slowly, .arg = &slow};
	struct rdma_event_channel *ch = channel_new();
	struct rdma_cm_id *listener = listen_with(ch, &users, STAGDV_TLS_REQUIRED);
	int fd[FEW], status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	skip(); /* TSan forbids threads in a forked child */
#endif
	gather_crowd(fd, FEW, id_port(listener));
	assert_true(n_received(fd[0]) > 0); /* the others wait now */
	pid = fork();
	if (pid == 0)
		_exit(child_meets());
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (int i = 0; i < FEW; i++) {
		assert_int_equal(n_received(fd[i]), n_received(fd[0])); /* one answer each */
		assert_false(is_hung_up(fd[i]));
	}
	disperse_crowd(fd, FEW);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
}

/* ---- files ---- */

static void what_is_wrong_is_said(void **state)
{
	struct stagdv_tls_attr attr = {.ca = CERTS "/none.pem"};
	struct stagdv_tls *tls;
	char why[256] = "";

	assert_int_not_equal(stagdv_create_tls(&tls, &attr, sizeof(attr), why, sizeof(why)), 0);
	assert_non_null(strstr(why, "none.pem"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_shows_who_asks),
		cmocka_unit_test(certificates_connect_without_crc),
		cmocka_unit_test(allowed_meets_off_in_plain),
		cmocka_unit_test(allowed_meets_allowed_encrypted),
		cmocka_unit_test(a_retry_without_tls_that_cannot_begin_is_an_error),
		cmocka_unit_test(plain_is_refused_where_tls_is_required),
		cmocka_unit_test(who_requires_tls_does_not_go_on_without),
		cmocka_unit_test(wrong_keys_do_not_meet),
		cmocka_unit_test(certificates_of_strangers_do_not_meet),
		cmocka_unit_test(an_id_in_use_keeps_its_choice),
		cmocka_unit_test(requests_arrive_in_the_order_of_connecting),
		cmocka_unit_test(a_forged_record_ends_the_connection),
		cmocka_unit_test(a_cut_within_a_record_is_no_orderly_end),
		cmocka_unit_test(a_cut_between_records_is_no_orderly_end),
		cmocka_unit_test(bytes_behind_the_request_are_refused),
		cmocka_unit_test(a_secured_connection_that_was_reset_dials_again),
		cmocka_unit_test(strangers_do_not_delay_an_honest_client),
		cmocka_unit_test(a_crowd_of_one_source_does_not_delay_another),
		cmocka_unit_test(forked_child_leaves_its_parents_handshakes_alone),
		cmocka_unit_test(what_is_wrong_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
