// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_streams.c - tests of rsockets, with both ends in this process.
 *
 * The peer is a thread where a test needs one. Addresses are loopback addresses; STAG_TEST_ADDR
 * sets another (that of a real adapter).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rsocket.h>

#include "asleep.h"

#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define PATIENCE_MS 30000

/* Two connected sockets, and the listening one. */
struct pair {
	int listener;
	int a, b; /* a connected, b was accepted */
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Returns the byte at offset i of every test stream. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static void fill(uint8_t *buf, size_t len, uint64_t from)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = byte_at(from + i);
}

static void expect_bytes(const uint8_t *buf, size_t len, uint64_t from)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != byte_at(from + i))
			fail_msg("byte %zu of the stream is wrong", (size_t)(from + i));
}

static socklen_t address(int domain, struct sockaddr_storage *out)
{
	const char *other = getenv("STAG_TEST_ADDR");
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	out->ss_family = (sa_family_t)domain;
	if (domain == AF_INET) {
		inet_pton(AF_INET, other ? other : "127.0.0.1", &in->sin_addr);
		return sizeof(*in);
	}
	in6->sin6_addr = in6addr_loopback;
	return sizeof(*in6);
}

/* Listens on a port that the system chooses; *at is its address. */
static int listen_somewhere(int domain, struct sockaddr_storage *at, int backlog)
{
	socklen_t len = address(domain, at);
	int fd = rsocket(domain, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(rbind(fd, (struct sockaddr *)at, len), 0);
	assert_int_equal(rlisten(fd, backlog), 0);
	len = sizeof(*at);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)at, &len), 0);
	return fd;
}

static socklen_t length_of(const struct sockaddr_storage *at)
{
	return at->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int connect_to(const struct sockaddr_storage *at)
{
	int fd = rsocket(at->ss_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(rconnect(fd, (struct sockaddr *)at, length_of(at)), 0);
	return fd;
}

static struct pair *pair_of(int domain)
{
	struct sockaddr_storage at;
	struct pair *p = calloc(1, sizeof(*p));

	p->listener = listen_somewhere(domain, &at, 5);
	p->a = connect_to(&at); /* it is accepted before raccept() is called, as TCP does */
	p->b = raccept(p->listener, NULL, NULL);
	assert_true(p->b >= 0);
	return p;
}

static int make_pair(void **state)
{
	*state = pair_of(AF_INET);
	return 0;
}

static void close_socket_pair(int *fd)
{
	if (*fd >= 0)
		assert_int_equal(rclose(*fd), 0);
	*fd = -1;
}

static int close_pair_state(void **state)
{
	struct pair *p = *state;

	close_socket_pair(&p->a);
	close_socket_pair(&p->b);
	close_socket_pair(&p->listener);
	free(p);
	return 0;
}

static void send_all(int fd, uint64_t from, size_t len)
{
	uint8_t *buf = malloc(len);

	fill(buf, len, from);
	assert_int_equal(rsend(fd, buf, len, 0), len);
	free(buf);
}

static void receive_all(int fd, uint64_t from, size_t len)
{
	uint8_t *buf = malloc(len);

	assert_int_equal(rrecv(fd, buf, len, MSG_WAITALL), len);
	expect_bytes(buf, len, from);
	free(buf);
}

static void expect_end(int fd)
{
	char c;

	assert_int_equal(rrecv(fd, &c, 1, 0), 0);
}

static void set_nonblocking(int fd)
{
	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
}

static short poll_for(int fd, short events, int timeout)
{
	struct pollfd p = {.fd = fd, .events = events};

	rpoll(&p, 1, timeout);
	return p.revents;
}

/* ---- the peer: a thread that echoes the stream up to its end */

static void *echo(void *arg)
{
	int fd = *(int *)arg;
	static __thread uint8_t buf[300000];
	ssize_t n;

	while ((n = rrecv(fd, buf, sizeof(buf), 0)) > 0)
		if (rsend(fd, buf, (size_t)n, 0) != n)
			return (void *)1;
	return (void *)(uintptr_t)(n < 0 || rshutdown(fd, SHUT_WR));
}

/* Sends from one thread while this one receives: otherwise two full rings would deadlock. */
struct sending {
	int fd;
	uint64_t from;
	size_t len;
};

static void *send_thread(void *arg)
{
	struct sending *s = arg;

	send_all(s->fd, s->from, s->len);
	return NULL;
}

static void exchange(int fd, uint64_t from, size_t len)
{
	struct sending s = {.fd = fd, .from = from, .len = len};
	pthread_t thread;

	pthread_create(&thread, NULL, send_thread, &s);
	receive_all(fd, from, len);
	pthread_join(thread, NULL);
}

/* ---- tests */

static void expect_echo_of_all_sizes(int domain)
{
	static const size_t sizes[] = {1,     2,      4,      63,     64,      65,
				       1000,  4095,   4096,   65535,  65536,   65537,
				       99999, 131072, 131073, 262144, 1000003, 8 << 20};
	void *state = pair_of(domain), *failed;
	struct pair *p = state;
	uint64_t at = 0;
	pthread_t far;

	pthread_create(&far, NULL, echo, &p->b);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		exchange(p->a, at, sizes[i]);
		at += sizes[i];
	}
	assert_int_equal(rshutdown(p->a, SHUT_WR), 0);
	expect_end(p->a);
	pthread_join(far, &failed);
	assert_null(failed);
	close_pair_state(&state);
}

static void messages_of_all_sizes_are_echoed(void **state)
{
	expect_echo_of_all_sizes(AF_INET);
}

static void messages_of_all_sizes_are_echoed_over_ipv6(void **state)
{
	if (getenv("STAG_TEST_ADDR"))
		skip();
	expect_echo_of_all_sizes(AF_INET6);
}

/* As many in flight as one thread can have, which is half of the window. */
static void many_small_messages_keep_their_order(void **state)
{
	struct pair *p = *state;

	for (int round = 0; round < 400; round++) {
		for (int i = 0; i < 190; i++)
			send_all(p->a, (uint64_t)(round * 190 + i), 1);
		receive_all(p->b, (uint64_t)(round * 190), 190);
	}
}

static void pieces_are_gathered_and_scattered(void **state)
{
	struct pair *p = *state;
	uint8_t out[300], in[300] = {0};
	struct iovec from[] = {{out, 100}, {out + 100, 0}, {out + 100, 7}, {out + 107, 193}};
	struct iovec to[] = {{in, 1}, {in + 1, 250}, {in + 251, 0}, {in + 251, 49}};
	struct msghdr msg = {.msg_iov = to, .msg_iovlen = COUNT(to)};

	fill(out, sizeof(out), 0);
	assert_int_equal(rwritev(p->a, from, COUNT(from)), sizeof(out));
	assert_int_equal(rrecvmsg(p->b, &msg, MSG_WAITALL), sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
}

static void a_peek_leaves_the_data(void **state)
{
	struct pair *p = *state;
	uint8_t buf[10];

	send_all(p->a, 0, 10);
	assert_int_equal(rrecv(p->b, buf, 4, MSG_PEEK), 4);
	assert_int_equal(rrecv(p->b, buf, 10, MSG_PEEK), 10);
	expect_bytes(buf, 10, 0);
	receive_all(p->b, 0, 10);
}

static void a_nonblocking_read_without_data_returns_eagain(void **state)
{
	struct pair *p = *state;
	char c;

	assert_int_equal(rrecv(p->b, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	set_nonblocking(p->b);
	assert_int_equal(rfcntl(p->b, F_GETFL), O_NONBLOCK);
	assert_int_equal(rread(p->b, &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

/* Sends without blocking until the socket is full, and returns the number of bytes. */
static size_t send_until_full(int fd)
{
	uint8_t buf[5000];
	size_t sent = 0;

	for (;;) {
		ssize_t n;

		fill(buf, sizeof(buf), sent);
		n = rsend(fd, buf, sizeof(buf), 0);
		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			if (!(poll_for(fd, POLLOUT, 50) & POLLOUT))
				return sent;
			continue;
		}
		sent += (size_t)n;
	}
}

static void a_nonblocking_write_to_a_full_socket_returns_eagain(void **state)
{
	struct pair *p = *state;
	size_t sent;

	set_nonblocking(p->a);
	sent = send_until_full(p->a);
	assert_true(sent >= 65536); /* half of the ring, at least */

	receive_all(p->b, 0, sent);
	assert_true(poll_for(p->a, POLLOUT, PATIENCE_MS) & POLLOUT);
}

static void poll_reports_pollin_only_with_data(void **state)
{
	struct pair *p = *state;

	assert_int_equal(poll_for(p->b, POLLIN, 0), 0);
	assert_int_equal(poll_for(p->b, POLLIN | POLLOUT, 0), POLLOUT);
	send_all(p->a, 0, 1);
	assert_int_equal(poll_for(p->b, POLLIN, PATIENCE_MS), POLLIN);
	receive_all(p->b, 0, 1);
	assert_int_equal(poll_for(p->b, POLLIN, 0), 0);
}

static void poll_waits_for_its_timeout(void **state)
{
	struct pair *p = *state;
	uint64_t start = now_ms();

	assert_int_equal(poll_for(p->b, POLLIN, 60), 0);
	assert_true(now_ms() - start >= 59);
}

/* An action of another thread, once this one sleeps. */
struct later {
	pid_t sleeper;
	int fd;
	atomic_bool woken;
};

static void *send_later(void *arg)
{
	struct later *l = arg;

	await_asleep(l->sleeper);
	send_all(l->fd, 0, 1);
	return NULL;
}

static void a_sleeping_poll_is_woken_by_data(void **state)
{
	struct pair *p = *state;
	struct later later = {.sleeper = gettid(), .fd = p->a};
	pthread_t thread;

	pthread_create(&thread, NULL, send_later, &later);
	assert_int_equal(poll_for(p->b, POLLIN, PATIENCE_MS), POLLIN);
	pthread_join(thread, NULL);
}

static void *write_later(void *arg)
{
	struct later *l = arg;

	await_asleep(l->sleeper);
	assert_int_equal(write(l->fd, "x", 1), 1);
	return NULL;
}

static void rsockets_and_files_are_polled_together(void **state)
{
	struct pair *p = *state;
	int pipes[2];
	pthread_t thread;

	assert_int_equal(pipe(pipes), 0);
	struct pollfd fds[] = {{.fd = p->b, .events = POLLIN},
			       {.fd = pipes[0], .events = POLLIN},
			       {.fd = -1, .events = POLLIN}};
	struct later later = {.sleeper = gettid(), .fd = pipes[1]};

	pthread_create(&thread, NULL, write_later, &later);
	assert_int_equal(rpoll(fds, 3, PATIENCE_MS), 1);
	assert_int_equal(fds[0].revents, 0);
	assert_int_equal(fds[1].revents, POLLIN);
	assert_int_equal(fds[2].revents, 0);
	pthread_join(thread, NULL);

	send_all(p->a, 0, 1);
	while (!fds[0].revents)
		assert_true(rpoll(fds, 3, PATIENCE_MS) >= 1);
	assert_int_equal(fds[1].revents, POLLIN);
	close(pipes[0]);
	close(pipes[1]);
}

static void poll_of_files_alone_works(void **state)
{
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(poll_for(pipes[0], POLLIN, 0), 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(poll_for(pipes[0], POLLIN, 0), POLLIN);
	close(pipes[0]);
	close(pipes[1]);
}

static void select_handles_rsockets_and_files(void **state)
{
	struct pair *p = *state;
	struct timeval soon = {.tv_usec = 1000};
	fd_set in, out;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(p->b, &in);
	assert_int_equal(rselect(p->b + 1, &in, NULL, NULL, &soon), 0);
	assert_false(FD_ISSET(p->b, &in));

	send_all(p->a, 0, 1);
	FD_SET(p->b, &in);
	FD_SET(1, &out);
	FD_SET(p->b, &out);
	while (rselect(p->b + 1, &in, &out, NULL, NULL) != 3)
		FD_SET(p->b, &in);
	assert_true(FD_ISSET(p->b, &in) && FD_ISSET(p->b, &out) && FD_ISSET(1, &out));
}

/* One reader and one writer sleep on the same socket; each is woken by its own condition. */
static void a_reader_and_a_writer_share_a_socket(void **state)
{
	struct pair *p = *state;
	struct sending up = {.fd = p->a, .len = 4 << 20}, down = {.fd = p->b, .len = 4 << 20};
	pthread_t t[2];

	pthread_create(&t[0], NULL, send_thread, &up);
	pthread_create(&t[1], NULL, send_thread, &down);
	receive_all(p->a, 0, 2 << 20);
	receive_all(p->b, 0, 4 << 20);
	receive_all(p->a, 2 << 20, 2 << 20);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}

static void *echo_pair(void *arg)
{
	struct pair *p = arg;
	pthread_t far;

	pthread_create(&far, NULL, echo, &p->b);
	for (uint64_t i = 0; i < 20; i++)
		exchange(p->a, i * 30011, 30011);
	rshutdown(p->a, SHUT_WR);
	pthread_join(far, NULL);
	return NULL;
}

static void data_of_many_sockets_stays_apart(void **state)
{
	struct pair *pairs[8];
	pthread_t threads[8];

	for (size_t i = 0; i < COUNT(pairs); i++) {
		pairs[i] = pair_of(AF_INET);
		pthread_create(&threads[i], NULL, echo_pair, pairs[i]);
	}
	for (size_t i = 0; i < COUNT(pairs); i++) {
		void *one = pairs[i];

		pthread_join(threads[i], NULL);
		close_pair_state(&one);
	}
}

static void shutdown_of_one_direction_leaves_the_other(void **state)
{
	struct pair *p = *state;

	send_all(p->a, 0, 100);
	assert_int_equal(rshutdown(p->a, SHUT_WR), 0);
	receive_all(p->b, 0, 100);
	expect_end(p->b);

	send_all(p->b, 0, 1000);
	receive_all(p->a, 0, 1000);
	assert_int_equal(rsend(p->a, "x", 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

/* Unread data stays readable after the connection has ended. */
static void data_sent_before_a_close_arrives(void **state)
{
	struct pair *p = *state;

	send_all(p->a, 0, 120000);
	close_socket_pair(&p->a);
	receive_all(p->b, 0, 120000);
	expect_end(p->b);
}

/* Sends more than the peer's ring holds: rsend() itself waits, so rclose() loses nothing. */
static void *send_and_close(void *arg)
{
	struct pair *p = arg;

	send_all(p->a, 0, 3 << 20);
	close_socket_pair(&p->a);
	return NULL;
}

static void a_close_behind_a_long_stream_loses_nothing(void **state)
{
	struct pair *p = *state;
	pthread_t thread;

	pthread_create(&thread, NULL, send_and_close, p);
	receive_all(p->b, 0, 3 << 20);
	expect_end(p->b);
	pthread_join(thread, NULL);
}

static void *close_later(void *arg)
{
	struct later *l = arg;

	await_asleep(l->sleeper);
	rclose(l->fd);
	return NULL;
}

/* rstream reads errno when a read returns 0, and retries forever if it is EAGAIN. */
static void end_of_stream_does_not_change_errno(void **state)
{
	struct pair *p = *state;
	struct later later = {.sleeper = gettid(), .fd = p->a};
	pthread_t thread;

	p->a = -1;
	pthread_create(&thread, NULL, close_later, &later);
	errno = 0;
	expect_end(p->b); /* after a sleep */
	assert_int_equal(errno, 0);
	pthread_join(thread, NULL);
}

static void a_closed_peer_is_reported_as_hangup(void **state)
{
	struct pair *p = *state;

	close_socket_pair(&p->a);
	while (!(poll_for(p->b, POLLIN, PATIENCE_MS) & POLLHUP))
		;
	assert_true(poll_for(p->b, POLLIN, 0) & POLLIN);
	expect_end(p->b);
	assert_int_equal(rsend(p->b, "x", 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

/* A program may take a hangup for the end of the stream, as rstream does. */
static void data_is_polled_before_the_hangup_behind_it(void **state)
{
	struct pair *p = *state;

	send_all(p->a, 0, 100);
	close_socket_pair(&p->a);
	assert_int_equal(poll_for(p->b, POLLIN, PATIENCE_MS), POLLIN);
	receive_all(p->b, 0, 100);
	assert_true(poll_for(p->b, POLLIN, PATIENCE_MS) & POLLIN);
	expect_end(p->b);
	assert_true(poll_for(p->b, 0, PATIENCE_MS) & POLLHUP);
}

/* A connection that breaks without a shutdown message is an error, not the end of the stream. */
static void a_reset_is_an_error_not_the_end_of_stream(void **state)
{
	struct pair *p = *state;
	struct linger at_once = {.l_onoff = 1};
	char c;

	assert_int_equal(rsetsockopt(p->a, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	close_socket_pair(&p->a);
	assert_int_equal(rrecv(p->b, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	assert_true(poll_for(p->b, POLLIN, 0) & POLLERR);
}

static void a_close_does_not_wait_for_the_peers_program(void **state)
{
	struct pair *p = *state;
	uint64_t start = now_ms();

	send_all(p->a, 0, 1000);
	close_socket_pair(&p->a);
	assert_true(now_ms() - start < 9000); /* a close that waits for the program takes 10 s */
}

/* A thread that sleeps in rrecv() returns when another closes its socket. */
static void a_close_wakes_threads_sleeping_on_the_socket(void **state)
{
	struct pair *p = *state;
	struct later later = {.sleeper = gettid(), .fd = p->b};
	pthread_t thread;
	char c;

	p->b = -1;
	pthread_create(&thread, NULL, close_later, &later);
	assert_true(rrecv(later.fd, &c, 1, 0) <= 0);
	pthread_join(thread, NULL);
	assert_int_equal(rrecv(later.fd, &c, 1, 0), -1);
	assert_int_equal(errno, EBADF);
}

/*
 * The peer learns of the mapping with the next data, and its writes arrive before its later data.
 */
static void mapped_memory_is_written_by_the_peer(void **state)
{
	struct sockaddr_storage at;
	static uint8_t mapped[200000], other[64], data[200000];
	int listener = listen_somewhere(AF_INET, &at, 1), a, b, entries = 4;
	off_t offset;

	a = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rsetsockopt(a, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)), 0);
	assert_int_equal(rconnect(a, (struct sockaddr *)&at, length_of(&at)), 0);
	b = raccept(listener, NULL, NULL);

	offset = riomap(b, mapped, sizeof(mapped), PROT_WRITE, 0, 1000);
	assert_int_equal(offset, 1000);
	assert_int_equal(riomap(b, other, sizeof(other), PROT_WRITE, 0, -1),
			 (off_t)(uintptr_t)other);
	assert_int_equal(riomap(b, other, sizeof(other), PROT_NONE, 0, 0), 0);
	assert_int_equal(riomap(b, other, sizeof(other), PROT_READ, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	send_all(b, 0, 1);
	receive_all(a, 0, 1);

	fill(data, sizeof(data), 0);
	assert_int_equal(riowrite(a, data, sizeof(data), 1000, 0), sizeof(data));
	assert_int_equal(riowrite(a, data, 14, (off_t)(uintptr_t)other + 50, 0), 14);
	assert_int_equal(riowrite(a, data, 10, 5, 0), 0); /* no mapping has this offset */
	send_all(a, 0, 1);
	receive_all(b, 0, 1);
	assert_memory_equal(mapped, data, sizeof(data));
	assert_memory_equal(other + 50, data, 14);

	/* A write is truncated at the end of the mapping. */
	assert_int_equal(riowrite(a, data, 100, 1000 + sizeof(mapped) - 30, 0), 30);
	assert_int_equal(riounmap(b, mapped, sizeof(mapped)), 0);
	assert_int_equal(riounmap(b, mapped, sizeof(mapped)), -1);
	close_socket_pair(&a);
	close_socket_pair(&b);
	close_socket_pair(&listener);
}

static void without_iomap_entries_mapping_fails(void **state)
{
	struct pair *p = *state;
	uint8_t buf[10];

	assert_int_equal(riomap(p->b, buf, sizeof(buf), PROT_WRITE, 0, 0), -1);
	assert_int_equal(errno, ENOMEM);
}

static void a_nonblocking_connect_completes_in_the_background(void **state)
{
	struct sockaddr_storage at;
	int listener = listen_somewhere(AF_INET, &at, 1), b, err;
	int a = rsocket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(err);

	set_nonblocking(a);
	set_nonblocking(listener);
	assert_int_equal(raccept(listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(rconnect(a, (struct sockaddr *)&at, length_of(&at)), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(poll_for(listener, POLLIN, PATIENCE_MS), POLLIN);
	b = raccept(listener, NULL, NULL);
	assert_true(b >= 0);
	assert_int_equal(poll_for(a, POLLOUT, PATIENCE_MS), POLLOUT);
	assert_int_equal(rgetsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	assert_int_equal(err, 0);
	assert_int_equal(rconnect(a, (struct sockaddr *)&at, length_of(&at)), -1);
	assert_int_equal(errno, EISCONN);

	send_all(a, 0, 10);
	receive_all(b, 0, 10);
	close_socket_pair(&a);
	close_socket_pair(&b);
	close_socket_pair(&listener);
}

/* Sets an address without a listener: that of a socket that is closed again. */
static void address_without_listener(struct sockaddr_storage *at)
{
	int fd = listen_somewhere(AF_INET, at, 1);

	close_socket_pair(&fd);
}

static void a_refused_connect_returns_econnrefused(void **state)
{
	struct sockaddr_storage at;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	address_without_listener(&at);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&at, length_of(&at)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close_socket_pair(&fd);
}

static void a_refused_nonblocking_connect_is_an_error_to_poll(void **state)
{
	struct sockaddr_storage at;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), err = 0;
	socklen_t len = sizeof(err);

	address_without_listener(&at);
	set_nonblocking(fd);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&at, length_of(&at)), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_true(poll_for(fd, POLLOUT, PATIENCE_MS) & POLLERR);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	assert_int_equal(err, ECONNREFUSED);
	close_socket_pair(&fd);
}

/* Connects: with more connections than the backlog allows, the rest wait and none is refused. */
static void *connect_in_thread(void *arg)
{
	int fd = connect_to(arg);

	expect_end(fd);
	close_socket_pair(&fd);
	return NULL;
}

static void connections_beyond_the_backlog_wait(void **state)
{
	struct sockaddr_storage at;
	int listener = listen_somewhere(AF_INET, &at, 1);
	pthread_t callers[6];

	for (size_t i = 0; i < COUNT(callers); i++)
		pthread_create(&callers[i], NULL, connect_in_thread, &at);
	for (size_t i = 0; i < COUNT(callers); i++) {
		struct sockaddr_storage who;
		socklen_t len = sizeof(who);
		int fd = raccept(listener, (struct sockaddr *)&who, &len);

		assert_true(fd >= 0);
		assert_int_equal(who.ss_family, AF_INET);
		close_socket_pair(&fd);
	}
	for (size_t i = 0; i < COUNT(callers); i++)
		pthread_join(callers[i], NULL);
	close_socket_pair(&listener);
}

static void getsockname_and_getpeername_return_both_ends(void **state)
{
	struct pair *p = *state;
	struct sockaddr_in a, b;
	socklen_t len = sizeof(a);

	assert_int_equal(rgetsockname(p->a, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(len, sizeof(a));
	assert_int_equal(rgetpeername(p->b, (struct sockaddr *)&b, &len), 0);
	assert_int_equal(a.sin_port, b.sin_port);
	assert_int_equal(a.sin_addr.s_addr, b.sin_addr.s_addr);
	assert_int_equal(rgetpeername(p->a, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(rgetsockname(p->b, (struct sockaddr *)&b, &len), 0);
	assert_int_equal(a.sin_port, b.sin_port);
}

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(rgetsockopt(fd, level, name, &value, &len), 0);
	assert_int_equal(len, sizeof(value));
	return value;
}

static int set_option(int fd, int level, int name, int value)
{
	return rsetsockopt(fd, level, name, &value, sizeof(value));
}

static void options_are_kept(void **state)
{
	static const struct {
		int level, name, set, get;
	} cases[] = {
		{SOL_SOCKET, SO_RCVBUF, 10000, 20000}, {SOL_SOCKET, SO_SNDBUF, 50000, 100000},
		{SOL_SOCKET, SO_SNDBUF, 1, 4096},      {SOL_SOCKET, SO_KEEPALIVE, 1, 1},
		{SOL_SOCKET, SO_OOBINLINE, 1, 1},      {SOL_SOCKET, SO_REUSEADDR, 1, 1},
		{IPPROTO_TCP, TCP_NODELAY, 1, 1},      {IPPROTO_TCP, TCP_KEEPIDLE, 33, 33},
		{SOL_RDMA, RDMA_SQSIZE, 100, 100},     {SOL_RDMA, RDMA_RQSIZE, 90, 90},
		{SOL_RDMA, RDMA_INLINE, 16, 16},       {SOL_RDMA, RDMA_IOMAPSIZE, 200, 128},
	};
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(set_option(fd, cases[i].level, cases[i].name, cases[i].set), 0);
		assert_int_equal(option(fd, cases[i].level, cases[i].name), cases[i].get);
	}
	assert_int_equal(set_option(fd, SOL_SOCKET, SO_TYPE, 1), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0), -1);
	assert_int_equal(errno, EINVAL);
	close_socket_pair(&fd);
}

static void queue_sizes_cannot_change_while_connected(void **state)
{
	struct pair *p = *state;

	assert_int_equal(set_option(p->a, SOL_RDMA, RDMA_SQSIZE, 100), -1);
	assert_int_equal(errno, EINVAL);
}

/* The smallest queues and buffers possible still carry a stream. */
static void smallest_queues_and_buffers_work(void **state)
{
	struct sockaddr_storage at;
	socklen_t len = address(AF_INET, &at);
	struct pair p = {.listener = rsocket(AF_INET, SOCK_STREAM, 0),
			 .a = rsocket(AF_INET, SOCK_STREAM, 0)};
	pthread_t far;

	for (int i = 0; i < 2; i++) {
		int fd = i ? p.a : p.listener;

		set_option(fd, SOL_RDMA, RDMA_SQSIZE, 1);
		set_option(fd, SOL_RDMA, RDMA_RQSIZE, 1);
		set_option(fd, SOL_RDMA, RDMA_INLINE, 0);
		set_option(fd, SOL_SOCKET, SO_SNDBUF, 1);
		set_option(fd, SOL_SOCKET, SO_RCVBUF, 1);
	}
	assert_int_equal(rbind(p.listener, (struct sockaddr *)&at, len), 0);
	assert_int_equal(rlisten(p.listener, 1), 0);
	len = sizeof(at);
	rgetsockname(p.listener, (struct sockaddr *)&at, &len);
	assert_int_equal(rconnect(p.a, (struct sockaddr *)&at, length_of(&at)), 0);
	p.b = raccept(p.listener, NULL, NULL);

	pthread_create(&far, NULL, echo, &p.b);
	exchange(p.a, 0, 300000);
	rshutdown(p.a, SHUT_WR);
	pthread_join(far, NULL);
	close_socket_pair(&p.a);
	close_socket_pair(&p.b);
	close_socket_pair(&p.listener);
}

static void datagram_sockets_are_refused(void **state)
{
	assert_int_equal(rsocket(AF_INET, SOCK_DGRAM, 0), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
	assert_int_equal(errno, ENOTSUP);
}

static void a_descriptor_that_is_no_rsocket_is_ebadf(void **state)
{
	char c = 0;

	assert_int_equal(rsend(1, &c, 1, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(rrecv(1000000, &c, 1, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(rclose(-1), -1);
	assert_int_equal(errno, EBADF);
}

static void an_unconnected_socket_neither_sends_nor_receives(void **state)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	char c = 0;

	assert_int_equal(rsend(fd, &c, 1, 0), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(rrecv(fd, &c, 1, 0), -1);
	assert_int_equal(errno, ENOTCONN);
	close_socket_pair(&fd);
}

static void ignore_signal(int signal)
{
}

static void *interrupt_later(void *arg)
{
	struct later *l = arg;

	await_asleep(l->sleeper);
	while (!atomic_load(&l->woken)) { /* a signal that comes before it sleeps has no effect */
		tgkill(getpid(), l->sleeper, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

static void a_signal_interrupts_a_sleeping_read(void **state)
{
	struct pair *p = *state;
	struct sigaction act = {.sa_handler = ignore_signal};
	struct later later = {.sleeper = gettid()};
	pthread_t thread;
	char c;

	sigaction(SIGUSR1, &act, NULL);
	pthread_create(&thread, NULL, interrupt_later, &later);
	assert_int_equal(rrecv(p->b, &c, 1, 0), -1);
	assert_int_equal(errno, EINTR);
	atomic_store(&later.woken, true);
	pthread_join(thread, NULL);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_hundred_connections_leak_no_descriptors(void **state)
{
	void *one = pair_of(AF_INET);
	int before;

	close_pair_state(&one); /* objects that are created once exist now */
	before = open_descriptors();
	for (int i = 0; i < 100; i++) {
		one = pair_of(AF_INET);
		close_pair_state(&one);
	}
	assert_int_equal(open_descriptors(), before);
}

#define WITH_PAIR(f) cmocka_unit_test_setup_teardown(f, make_pair, close_pair_state)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_all_sizes_are_echoed),
		cmocka_unit_test(messages_of_all_sizes_are_echoed_over_ipv6),
		WITH_PAIR(many_small_messages_keep_their_order),
		WITH_PAIR(pieces_are_gathered_and_scattered),
		WITH_PAIR(a_peek_leaves_the_data),
		WITH_PAIR(a_nonblocking_read_without_data_returns_eagain),
		WITH_PAIR(a_nonblocking_write_to_a_full_socket_returns_eagain),
		WITH_PAIR(poll_reports_pollin_only_with_data),
		WITH_PAIR(poll_waits_for_its_timeout),
		WITH_PAIR(a_sleeping_poll_is_woken_by_data),
		WITH_PAIR(rsockets_and_files_are_polled_together),
		cmocka_unit_test(poll_of_files_alone_works),
		WITH_PAIR(select_handles_rsockets_and_files),
		WITH_PAIR(a_reader_and_a_writer_share_a_socket),
		cmocka_unit_test(data_of_many_sockets_stays_apart),
		WITH_PAIR(shutdown_of_one_direction_leaves_the_other),
		WITH_PAIR(data_sent_before_a_close_arrives),
		WITH_PAIR(a_close_behind_a_long_stream_loses_nothing),
		WITH_PAIR(end_of_stream_does_not_change_errno),
		WITH_PAIR(a_closed_peer_is_reported_as_hangup),
		WITH_PAIR(data_is_polled_before_the_hangup_behind_it),
		WITH_PAIR(a_reset_is_an_error_not_the_end_of_stream),
		WITH_PAIR(a_close_does_not_wait_for_the_peers_program),
		WITH_PAIR(a_close_wakes_threads_sleeping_on_the_socket),
		cmocka_unit_test(mapped_memory_is_written_by_the_peer),
		WITH_PAIR(without_iomap_entries_mapping_fails),
		cmocka_unit_test(a_nonblocking_connect_completes_in_the_background),
		cmocka_unit_test(a_refused_connect_returns_econnrefused),
		cmocka_unit_test(a_refused_nonblocking_connect_is_an_error_to_poll),
		cmocka_unit_test(connections_beyond_the_backlog_wait),
		WITH_PAIR(getsockname_and_getpeername_return_both_ends),
		cmocka_unit_test(options_are_kept),
		WITH_PAIR(queue_sizes_cannot_change_while_connected),
		cmocka_unit_test(smallest_queues_and_buffers_work),
		cmocka_unit_test(datagram_sockets_are_refused),
		cmocka_unit_test(a_descriptor_that_is_no_rsocket_is_ebadf),
		cmocka_unit_test(an_unconnected_socket_neither_sends_nor_receives),
		WITH_PAIR(a_signal_interrupts_a_sleeping_read),
		cmocka_unit_test(a_hundred_connections_leak_no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
