// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_strangers.c - connections to a port of roce0's queue pairs that are not from their peers. */
#include "roce_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/reach.h"
#include "base/shortage.h"
#include "wire/wire.h"

static int open_pair(void **state)
{
	struct roce_pair *p = calloc(1, sizeof(*p));

	roce_open(p, NULL);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	roce_close(*state);
	free(*state);
	return 0;
}

static int open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	return fd;
}

static void connect_to(int fd, const struct end *e)
{
	struct sockaddr_in lo = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(e->qp->qp_num >> 8)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};

	assert_int_equal(connect(fd, (struct sockaddr *)&lo, sizeof(lo)), 0);
}

static int call(const struct end *e)
{
	int fd = open_socket();

	connect_to(fd, e);
	return fd;
}

static unsigned guests_of(const struct qp_port *port)
{
	unsigned n;

	engine_lock();
	n = port->n_guests;
	engine_unlock();
	return n;
}

/* What a itself would say to b. */
static struct hello as_peer(const struct roce_pair *p)
{
	struct hello h = {
		.kind = HELLO_ASK,
		.type = HELLO_RC,
		.caps = 0x1ff,
		.from_qpn = p->a.qp->qp_num,
		.to_qpn = p->b.qp->qp_num,
		.process = 1,
		.epoch = 1,
	};
	union ibv_gid gid;

	ibv_query_gid(p->a.ctx, 1, 0, &gid);
	memcpy(h.from_gid, gid.raw, 16);
	memcpy(h.to_gid, gid.raw, 16);
	return h;
}

/* Returns the kind of the answer, or 0 if the connection ends without one. */
static int ask(const struct end *e, const struct hello *h)
{
	uint8_t buf[HELLO_LEN];
	struct hello answer;
	int fd = call(e), kind = 0;

	hello_encode(h, buf);
	assert_int_equal(send(fd, buf, sizeof(buf), MSG_NOSIGNAL), sizeof(buf));
	if (recv(fd, buf, sizeof(buf), MSG_WAITALL) == sizeof(buf)) {
		assert_int_equal(hello_decode(buf, sizeof(buf), &answer), HELLO_LEN);
		kind = answer.kind;
	}
	close(fd);
	return kind;
}

static void bytes_that_are_no_hello_end_the_connection(void **state)
{
	static const char *const texts[] = {"MPA ID Req Frame", "GET / HTTP/1.0\r\n\r\n", "stagX"};
	struct roce_pair *p = *state;
	char c;

	for (int i = 0; i < 3; i++) {
		int fd = call(&p->b);

		assert_true(send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL) > 0);
		assert_true(recv(fd, &c, 1, 0) <= 0);
		close(fd);
	}
	exchange(p);
}

static void a_stranger_gets_the_same_answer_whatever_is_wrong(void **state)
{
	struct roce_pair *p = *state;
	struct hello h;

	h = as_peer(p);
	h.to_qpn++; /* nobody's */
	h.to_qpn = (h.to_qpn & 0xffffff00u) | 255;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	h = as_peer(p);
	h.from_qpn ^= 0x100;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	h = as_peer(p);
	h.from_gid[15] ^= 0x80;
	h.from_gid[13] ^= 0x80;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	h = as_peer(p);
	h.sq_psn = 12345;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	h = as_peer(p);
	h.type = HELLO_UC;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	h = as_peer(p);
	h.kind = HELLO_READY;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	exchange(p);
}

/* A peer that dies while it says hello, in both ways in which a connection can end. */
static void a_hello_that_is_cut_at_any_byte_is_forgotten(void **state)
{
	struct roce_pair *p = *state;
	struct qp_port *port = to_stag_qp(p->b.qp)->port;
	struct hello h = as_peer(p);
	uint8_t buf[HELLO_LEN];

	hello_encode(&h, buf);
	for (size_t len = 0; len < HELLO_LEN; len++) {
		struct linger now = {.l_onoff = len % 2};
		int fd = call(&p->b);

		assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), len);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fd);
	}
	exchange(p);
	await(guests_of(port) == 0);
}

/* A process that has got the port of one that is gone, and knows its queue pairs' numbers. */
static void another_process_does_not_take_the_place_of_a_peer_that_was_met(void **state)
{
	struct roce_pair *p = *state;
	struct hello h = as_peer(p);

	exchange(p);
	h.epoch = 1000;
	assert_int_equal(ask(&p->b, &h), HELLO_NO);
	exchange(p);
}

static bool was_dropped(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
}

static unsigned count_dropped(const int *fds, unsigned n)
{
	unsigned dropped = 0;

	for (unsigned i = 0; i < n; i++)
		dropped += was_dropped(fds[i]);
	return dropped;
}

/* The queue pair's own peer comes from the same address. */
static void the_oldest_silent_connections_make_room_for_a_peer(void **state)
{
	enum { MANY = REACH_MAX_OF_SOURCE + 88 };
	static int fds[MANY];
	struct roce_pair *p = *state;
	struct qp_port *port = to_stag_qp(p->b.qp)->port;

	for (int i = 0; i < MANY; i++)
		fds[i] = call(&p->b);
	await(count_dropped(fds, MANY) == MANY - REACH_MAX_OF_SOURCE);
	assert_int_equal(count_dropped(fds, MANY - REACH_MAX_OF_SOURCE),
			 MANY - REACH_MAX_OF_SOURCE);
	exchange(p);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	await(guests_of(port) == 0);
}

static void limit_descriptors(rlim_t most)
{
	struct rlimit l;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = most;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
}

/* When the engine looks for connections again; 0: it is not pausing. */
static uint64_t pause_of(struct qp_port *port)
{
	uint64_t until;

	engine_lock();
	until = port->accept_timer.armed ? port->accept_timer.deadline : 0;
	engine_unlock();
	return until;
}

/* Waits for a pause that ends then, or later. */
static uint64_t await_pause_until(struct qp_port *port, uint64_t earliest)
{
	uint64_t until;

	await((until = pause_of(port)) >= earliest);
	return until;
}

/* The connection waits in TCP's queue. Each try to accept it takes two wake-ups of the engine. */
static void a_process_without_descriptors_does_not_spin(void **state)
{
	enum { TRIES = 4, MOST_WAKEUPS = 40 };
	struct roce_pair *p = *state;
	struct qp_port *port = to_stag_qp(p->b.qp)->port;
	int fd = open_socket();
	struct rlimit was;
	uint64_t last, before;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	limit_descriptors(0);
	connect_to(fd, &p->b);
	last = await_pause_until(port, 1);
	before = atomic_load(&stag_totals.engine_wakeups);
	for (int i = 0; i < TRIES; i++)
		last = await_pause_until(port, last + SHORTAGE_PAUSE_MS * NS_PER_MS);
	assert_in_range(atomic_load(&stag_totals.engine_wakeups) - before, TRIES, MOST_WAKEUPS);
	limit_descriptors(was.rlim_cur);
	await(guests_of(port) == 1);
	close(fd);
	exchange(p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_that_are_no_hello_end_the_connection),
		TEST(a_stranger_gets_the_same_answer_whatever_is_wrong),
		TEST(a_hello_that_is_cut_at_any_byte_is_forgotten),
		TEST(another_process_does_not_take_the_place_of_a_peer_that_was_met),
		TEST(the_oldest_silent_connections_make_room_for_a_peer),
		TEST(a_process_without_descriptors_does_not_spin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
