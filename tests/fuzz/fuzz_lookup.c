// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_lookup.c - lookups of ids of datagrams: arbitrary messages, and both sides against peers that send them.
 *
 * The first byte chooses: a message; a script for a listener of ours, with three peers; or one for an id of ours that asks. The
 * scripts have steps of the peers, of the program and of time. The peers' sockets are real, because the answers go there.
 *
 * For any input: a message that is decoded is encoded to the same bytes; a listener sends nothing that is longer than its
 * question, or without a question; a request is presented only with the cookie that its peer was sent, and once; a lookup ends
 * once; and nothing is left when everything has been destroyed.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cm/ud.h"
#include "steps.h"

enum { MESSAGE, LISTENER, ASKER, KINDS };

#define PEERS	 3
#define IDS	 8 /* of the lookups of a peer, from 1 on */
#define CHILDREN 8

static struct rdma_event_channel *channel;
static struct sockaddr_storage addresses[PEERS]; /* of the peers */
static int sockets[PEERS];

/* ---- messages ------------------------------------------------------------ */

static void check_decoded(const uint8_t *p, size_t len)
{
	uint8_t again[LOOKUP_LEN];
	struct lookup_msg m;

	if (lookup_decode(p, len, &m))
		return;
	CHECK(len == LOOKUP_LEN && m.id && m.private_len <= LOOKUP_ASK_PRIVATE);
	CHECK(m.kind != LOOKUP_ANSWER || m.private_len <= LOOKUP_ANS_PRIVATE);
	CHECK(!m.qpn || lookup_is_number(m.qpn));
	lookup_encode(&m, again);
	CHECK(!memcmp(again, p, LOOKUP_LEN));
}

static void message(struct input in)
{
	struct lookup_msg m = {.kind = LOOKUP_ASK, .id = 1};
	uint8_t *exact = copy_of(in.p, in.len), repaired[LOOKUP_LEN];

	check_decoded(exact, in.len);
	free(exact);
	/* The same with what a fuzzer does not guess: the length, the magic, and the CRC. */
	m.kind = (uint8_t)take(&in, 1) & 3;
	m.status = (uint8_t)take(&in, 1) & 3;
	m.private_len = (uint8_t)(take(&in, 1) % (LOOKUP_ASK_PRIVATE + 1));
	m.id = take(&in, 8);
	m.cookie = take(&in, 1);
	m.qpn = (uint32_t)take(&in, 4);
	m.qkey = (uint32_t)take(&in, 1);
	for (unsigned i = 0; i < m.private_len; i++)
		m.private_data[i] = (uint8_t)take(&in, 1);
	lookup_encode(&m, repaired);
	check_decoded(repaired, sizeof(repaired));
}

/* ---- a listener of ours -------------------------------------------------- */

static struct rdma_cm_id *listener;
static struct rdma_cm_id *children[CHILDREN]; /* that the program has not destroyed */
static uint64_t cookies[PEERS][IDS + 1];
static unsigned asked[PEERS],
	answered[PEERS]; /* messages with which a peer asked, and that it got */
static bool presented[PEERS][IDS + 1];

static struct lookup_listener *lookups(void)
{
	return listener ? to_cm_id(listener)->lookups : NULL;
}

static void feed(unsigned peer, const uint8_t *p, size_t len)
{
	uint8_t *exact = copy_of(p, len);

	if (lookups()) {
		asked[peer]++;
		engine_lock();
		lookup_listener_take(lookups(), exact, len, &addresses[peer],
				     &to_cm_id(listener)->cm.route.addr.src_storage);
		engine_unlock();
	}
	free(exact);
}

/* The first byte of the private data says which lookup it is. */
static void step_ask(struct input *in)
{
	uint8_t what = (uint8_t)take(in, 1), buf[LOOKUP_LEN];
	unsigned peer = what % PEERS, id = 1 + (what >> 2) % IDS;
	struct lookup_msg m = {.kind = LOOKUP_ASK, .id = id, .private_len = 2};

	m.cookie = what & 0x80 ? take(in, 1) : cookies[peer][id];
	m.private_data[0] = (uint8_t)peer;
	m.private_data[1] = (uint8_t)id;
	lookup_encode(&m, buf);
	feed(peer, buf, sizeof(buf));
}

static void step_bytes(struct input *in)
{
	size_t len = take(in, 1);

	if (len > in->len)
		len = in->len;
	feed(0, in->p, len);
	in->p += len;
	in->len -= len;
}

/* Reads what the peers were sent. */
static void collect(void)
{
	for (unsigned peer = 0; peer < PEERS; peer++) {
		uint8_t buf[LOOKUP_LEN + 1];
		ssize_t n;

		while ((n = recv(sockets[peer], buf, sizeof(buf), MSG_DONTWAIT)) >= 0) {
			struct lookup_msg m;

			CHECK(n == LOOKUP_LEN && !lookup_decode(buf, (size_t)n, &m));
			CHECK(m.kind == LOOKUP_PROVE || m.kind == LOOKUP_ANSWER);
			/* each presented request may have one answer more than messages */
			CHECK(++answered[peer] <= asked[peer] + IDS);
			if (m.id <= IDS && m.kind == LOOKUP_PROVE)
				cookies[peer][m.id] = m.cookie;
			if (m.id <= IDS && m.kind == LOOKUP_ANSWER)
				CHECK(presented[peer][m.id]);
		}
	}
}

static void keep(struct rdma_cm_id *child)
{
	for (int i = 0; i < CHILDREN; i++) {
		if (children[i])
			continue;
		children[i] = child;
		return;
	}
	CHECK(rdma_destroy_id(child) == 0);
}

static void on_request(const struct rdma_cm_event *ev)
{
	const uint8_t *data = ev->param.ud.private_data;

	CHECK(ev->event == RDMA_CM_EVENT_CONNECT_REQUEST && ev->listen_id == listener);
	CHECK(ev->param.ud.private_data_len == LOOKUP_ASK_PRIVATE);
	free(copy_of(data, LOOKUP_ASK_PRIVATE));
	CHECK(data[0] < PEERS && data[1] >= 1 && data[1] <= IDS);
	CHECK(cookies[data[0]][data[1]] && !presented[data[0]][data[1]]);
	presented[data[0]][data[1]] = true;
}

static void step_fetch(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *child;

	if (rdma_get_cm_event(channel, &ev)) {
		CHECK(errno == EAGAIN);
		return;
	}
	child = ev->id;
	on_request(ev);
	CHECK(rdma_ack_cm_event(ev) == 0);
	keep(child);
}

static void step_answer(struct input *in)
{
	uint8_t data[255] = {0}, how = (uint8_t)take(in, 1);
	struct rdma_cm_id **child = &children[how % CHILDREN];
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = (uint8_t)take(in, 1),
					.qp_num = (uint32_t)take(in, 3)};

	if (!*child)
		return;
	if (how & 0x40) {
		CHECK(rdma_destroy_id(*child) == 0);
		*child = NULL;
	} else if (how & 0x80) {
		rdma_reject(*child, data, param.private_data_len);
	} else {
		rdma_accept(*child, &param);
	}
}

static void destroy_listener(void)
{
	if (listener)
		CHECK(rdma_destroy_id(listener) == 0);
	listener = NULL;
}

static void step_listener(struct input *in)
{
	switch (take(in, 1) % 10) {
	case 0:
		step_bytes(in);
		break;
	case 1:
	case 2:
	case 3:
		step_ask(in);
		break;
	case 4:
	case 5:
		step_fetch();
		break;
	case 6:
	case 7:
		step_answer(in);
		break;
	case 8:
		steps_pass_time();
		break;
	default:
		if (take(in, 1) == 77)
			destroy_listener();
		break;
	}
	collect();
}

static void run_listener(struct input in)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memset(cookies, 0, sizeof(cookies));
	memset(asked, 0, sizeof(asked));
	memset(answered, 0, sizeof(answered));
	memset(presented, 0, sizeof(presented));
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_UDP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(listener, 4) == 0);
	while (in.len)
		step_listener(&in);
	for (int i = 0; i < CHILDREN; i += 2) { /* some before the listener, some after it */
		if (children[i])
			CHECK(rdma_destroy_id(children[i]) == 0);
		children[i] = NULL;
	}
	destroy_listener();
	for (int i = 0; i < CHILDREN; i++) {
		if (children[i])
			CHECK(rdma_destroy_id(children[i]) == 0);
		children[i] = NULL;
	}
	collect();
	steps_check_idle();
}

/* ---- an id of ours that asks --------------------------------------------- */

static struct rdma_cm_id *asker;
static unsigned outcomes;

static void fetch_outcome(void)
{
	struct rdma_cm_event *ev;

	while (rdma_get_cm_event(channel, &ev) == 0) {
		const struct rdma_ud_param *p = &ev->param.ud;

		CHECK(ev->id == asker);
		if (ev->event == RDMA_CM_EVENT_ESTABLISHED ||
		    ev->event == RDMA_CM_EVENT_UNREACHABLE)
			CHECK(++outcomes == 1);
		if (ev->event == RDMA_CM_EVENT_ESTABLISHED)
			CHECK(lookup_is_number(p->qp_num) && p->ah_attr.is_global &&
			      p->private_data_len == LOOKUP_ANS_PRIVATE);
		if (ev->event >= RDMA_CM_EVENT_CONNECT_REQUEST)
			free(copy_of(p->private_data, p->private_data_len));
		CHECK(rdma_ack_cm_event(ev) == 0);
	}
	CHECK(errno == EAGAIN);
}

static void told(const uint8_t *p, size_t len)
{
	struct cm_id *id = to_cm_id(asker);
	uint8_t *exact = copy_of(p, len);

	engine_lock();
	if (id->lookup)
		lookup_take(id->lookup, exact, len);
	engine_unlock();
	free(exact);
}

/* A message with the right id, so that the fuzzer need not guess it. */
static void step_message(struct input *in)
{
	struct cm_id *id = to_cm_id(asker);
	struct lookup_msg m = {.kind = (uint8_t)take(in, 1) & 3,
			       .status = (uint8_t)take(in, 1) & 3};
	uint8_t buf[LOOKUP_LEN];

	m.id = id->lookup ? id->lookup->ask.id + !take(in, 1) : 1;
	m.cookie = take(in, 1);
	m.qpn = (uint32_t)take(in, 3);
	m.qkey = (uint32_t)take(in, 4);
	m.private_len = (uint8_t)(take(in, 1) % (LOOKUP_ASK_PRIVATE + 1));
	lookup_encode(&m, buf);
	told(buf, sizeof(buf));
}

static void check_asked(void)
{
	uint8_t buf[LOOKUP_LEN + 1];
	struct lookup_msg m;
	ssize_t n;

	while ((n = recv(sockets[0], buf, sizeof(buf), MSG_DONTWAIT)) >= 0)
		CHECK(n == LOOKUP_LEN && !lookup_decode(buf, (size_t)n, &m) &&
		      m.kind == LOOKUP_ASK);
}

static void step_asker(struct input *in)
{
	size_t len;

	switch (take(in, 1) % 4) {
	case 0:
		len = take(in, 1);
		len = len < in->len ? len : in->len;
		told(in->p, len);
		in->p += len;
		in->len -= len;
		break;
	case 1:
	case 2:
		step_message(in);
		break;
	default:
		steps_pass_time();
		break;
	}
	steps_ready();
	check_asked();
	fetch_outcome();
}

static void run_asker(struct input in)
{
	uint8_t data[255] = {0};
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = (uint8_t)(take(&in, 1) % (LOOKUP_ASK_PRIVATE + 1))};

	outcomes = 0;
	CHECK(rdma_create_id(channel, &asker, NULL, RDMA_PS_UDP) == 0);
	CHECK(rdma_resolve_addr(asker, NULL, (struct sockaddr *)&addresses[0], 1000) == 0);
	CHECK(rdma_resolve_route(asker, 1000) == 0);
	CHECK(rdma_connect(asker, &param) == 0);
	while (in.len)
		step_asker(&in);
	CHECK(rdma_destroy_id(asker) == 0);
	asker = NULL;
	check_asked();
	steps_check_idle();
}

/* ---- the input ----------------------------------------------------------- */

static void start(void)
{
	if (channel)
		return;
	setenv("STAG_DEVICE", "roce", 1);
	channel = rdma_create_event_channel();
	CHECK(channel && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	for (unsigned i = 0; i < PEERS; i++) {
		struct sockaddr_in a = {.sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
		socklen_t len = sizeof(addresses[i]);

		sockets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		CHECK(sockets[i] >= 0 && bind(sockets[i], (struct sockaddr *)&a, sizeof(a)) == 0);
		CHECK(getsockname(sockets[i], (struct sockaddr *)&addresses[i], &len) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned kind = (unsigned)take(&in, 1) % KINDS;

	if (kind == MESSAGE) {
		message(in);
		return 0;
	}
	steps_begin();
	start();
	if (kind == LISTENER)
		run_listener(in);
	else
		run_asker(in);
	return 0;
}
