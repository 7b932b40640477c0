// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_session.c - TLS over a socket: who is let in, that every byte arrives in order, and what a hostile peer achieves.
 */
#include "tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const uint8_t key_a[32] = "a key of thirty-two bytes, as is";
static const uint8_t key_b[32] = "another one, which is as long...";

static const struct tls_config node = {
	.cert = CERTS "/node.pem", .key = CERTS "/node.key", .ca = CERTS "/ca.pem"};
static const struct tls_config client = {
	.cert = CERTS "/client.pem", .key = CERTS "/client.key", .ca = CERTS "/ca.pem"};
static const struct tls_config stranger = {
	.cert = CERTS "/stranger.pem", .key = CERTS "/stranger.key", .ca = CERTS "/ca.pem"};
static const struct tls_config psk = {.identity = "alice", .psk = key_a, .psk_len = sizeof(key_a)};
static const struct tls_config wrong_psk = {
	.identity = "alice", .psk = key_b, .psk_len = sizeof(key_b)};

struct pair {
	struct tls_context *context[2];
	struct tls_session *s[2]; /* TLS_CLIENT, TLS_SERVER */
	int fd[2];
	int err[2];
};

static struct tls_context *context_of(const struct tls_config *cfg)
{
	char why[TLS_WHY_LEN] = "";
	struct tls_context *c = NULL;

	if (tls_context_create(&c, cfg, why))
		fail_msg("%s", why);
	return c;
}

static void make_sockets(int fd[2])
{
	int small = 4096;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
}

/* Opens both sides, and steps them in turns until neither goes on. */
static void shake(struct pair *p, const struct tls_config *c, const struct tls_config *s)
{
	char why[TLS_WHY_LEN];

	*p = (struct pair){.context = {context_of(c), context_of(s)}};
	make_sockets(p->fd);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tls_open(&p->s[i], p->context[i], p->fd[i], (enum tls_side)i, why),
				 0);
		p->err[i] = -EAGAIN;
	}
	for (int n = 0; n < 100; n++)
		for (int i = 0; i < 2; i++)
			if (p->err[i] == -EAGAIN)
				p->err[i] = tls_handshake(p->s[i]);
}

static void part(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		tls_close(p->s[i]);
		tls_context_put(p->context[i]);
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	}
}

static void connect_pair(struct pair *p, const struct tls_config *c, const struct tls_config *s)
{
	shake(p, c, s);
	if (p->err[0] || p->err[1])
		fail_msg("client: %s; server: %s", tls_why(p->s[0]), tls_why(p->s[1]));
}

static ssize_t send_one(struct tls_session *s, const void *data, size_t len)
{
	struct iovec v = {(void *)data, len};

	return tls_sendv(s, &v, 1);
}

static ssize_t recv_one(struct tls_session *s, void *to, size_t len)
{
	struct iovec v = {to, len};

	return tls_recvv(s, &v, 1);
}

static void assert_talk(struct pair *p)
{
	char got[16] = "";

	for (int i = 0; i < 2; i++) {
		assert_int_equal(send_one(p->s[i], "hello", 5), 5);
		assert_int_equal(recv_one(p->s[!i], got, sizeof(got)), 5);
		assert_memory_equal(got, "hello", 5);
		assert_int_equal(recv_one(p->s[!i], got, sizeof(got)), -EAGAIN);
		assert_false(tls_pending(p->s[!i]));
	}
}

/* ---- who is let in ---- */

static void certificates_of_one_authority_connect(void **state)
{
	struct tls_info info;
	struct pair p;

	connect_pair(&p, &client, &node);
	assert_talk(&p);
	tls_describe(p.s[TLS_CLIENT], &info);
	assert_string_equal(info.version, "TLSv1.3");
	assert_string_equal(info.cipher, "TLS_AES_128_GCM_SHA256");
	assert_string_equal(info.peer, "node");
	assert_false(info.psk);
	tls_describe(p.s[TLS_SERVER], &info);
	assert_string_equal(info.peer, "client");
	part(&p);
}

static void equal_keys_connect(void **state)
{
	struct tls_info info;
	struct pair p;

	connect_pair(&p, &psk, &psk);
	assert_talk(&p);
	tls_describe(p.s[TLS_SERVER], &info);
	assert_string_equal(info.peer, "alice");
	assert_string_equal(info.version, "TLSv1.3");
	assert_true(info.psk);
	part(&p);
}

static int find_bob(void *arg, const char *identity, uint8_t key[TLS_PSK_MAX])
{
	if (strcmp(identity, arg) != 0)
		return -ENOKEY;
	memcpy(key, key_b, sizeof(key_b));
	return sizeof(key_b);
}

static void the_server_looks_keys_up_by_identity(void **state)
{
	struct tls_config bob = {.identity = "bob", .psk = key_b, .psk_len = sizeof(key_b)};
	struct tls_config server = {.find_psk = find_bob, .arg = "bob"};
	struct tls_info info;
	struct pair p;

	connect_pair(&p, &bob, &server);
	tls_describe(p.s[TLS_SERVER], &info);
	assert_string_equal(info.peer, "bob");
	part(&p);
	shake(&p, &psk, &server); /* alice */
	assert_true(p.err[0] < 0 && p.err[0] != -EAGAIN && p.err[1] < 0 && p.err[1] != -EAGAIN);
	part(&p);
}

/* A server of TLS 1.3 refuses a client's certificate after the client's handshake is done. */
static int last_error(struct pair *p, int side)
{
	char byte;

	if (p->err[side])
		return p->err[side];
	return (int)recv_one(p->s[side], &byte, 1);
}

static void assert_refused(const struct tls_config *c, const struct tls_config *s)
{
	struct pair p;

	shake(&p, c, s);
	for (int i = 0; i < 2; i++) {
		assert_true(last_error(&p, i) < 0);
		assert_int_not_equal(last_error(&p, i), -EAGAIN);
		assert_int_not_equal(tls_why(p.s[i])[0], '\0');
	}
	part(&p);
}

static void a_wrong_key_is_refused(void **state)
{
	assert_refused(&wrong_psk, &psk);
}

static void a_certificate_of_another_authority_is_refused(void **state)
{
	assert_refused(&client, &stranger);
	assert_refused(&stranger, &node);
}

static void a_clients_certificate_cannot_pose_as_a_node(void **state)
{
	assert_refused(&node, &client);
}

static void a_client_without_certificate_is_refused(void **state)
{
	struct tls_config anonymous = {.ca = CERTS "/ca.pem"};

	assert_refused(&anonymous, &node);
}

static void a_server_without_authority_takes_anonymous_clients(void **state)
{
	struct tls_config anonymous = {.ca = CERTS "/ca.pem"}, server = node;
	struct tls_info info;
	struct pair p;

	server.ca = NULL;
	connect_pair(&p, &anonymous, &server);
	tls_describe(p.s[TLS_SERVER], &info);
	assert_string_equal(info.peer, "");
	assert_talk(&p);
	part(&p);
}

/* It has the certificate for when it is a client. */
static void a_server_with_keys_takes_no_anonymous_clients(void **state)
{
	struct tls_config anonymous = {.ca = CERTS "/ca.pem"}, server = node, users = node;
	struct pair p;

	server.ca = users.ca = NULL;
	server.identity = psk.identity;
	server.psk = psk.psk;
	server.psk_len = psk.psk_len;
	users.find_psk = find_bob;
	users.arg = "bob";
	assert_refused(&anonymous, &server);
	assert_refused(&client, &server);
	assert_refused(&anonymous, &users);
	connect_pair(&p, &psk, &server);
	assert_talk(&p);
	part(&p);
}

static void the_name_in_the_certificate_is_checked(void **state)
{
	struct tls_config named = client;
	struct pair p;

	named.name = "node.test";
	connect_pair(&p, &named, &node);
	part(&p);
	named.name = "127.0.0.1";
	connect_pair(&p, &named, &node);
	part(&p);
	named.name = "other.test";
	assert_refused(&named, &node);
	named.name = "127.0.0.2";
	assert_refused(&named, &node);
}

static void a_key_does_not_replace_an_unknown_certificate(void **state)
{
	assert_refused(&psk, &node);
	assert_refused(&client, &psk);
}

static void both_ends_export_the_same_secret(void **state)
{
	uint8_t a[32], b[32], c[32];
	struct pair p, q;

	connect_pair(&p, &psk, &psk);
	connect_pair(&q, &psk, &psk);
	assert_int_equal(tls_export(p.s[0], "stag test", a, 32), 0);
	assert_int_equal(tls_export(p.s[1], "stag test", b, 32), 0);
	assert_int_equal(tls_export(q.s[0], "stag test", c, 32), 0);
	assert_memory_equal(a, b, 32);
	assert_memory_not_equal(a, c, 32);
	part(&p);
	part(&q);
}

/* ---- files ---- */

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void secrets_that_others_can_read_are_refused(void **state)
{
	char path[] = "/tmp/stag-tls-XXXXXX", why[TLS_WHY_LEN];
	struct tls_psk got;

	close(mkstemp(path));
	write_file(path, "alice:000102030405060708090a0b0c0d0e0f\n", 0644);
	assert_int_equal(tls_psk_read(path, &got, why), -EACCES);
	assert_non_null(strstr(why, "0644"));
	chmod(path, 0600);
	assert_int_equal(tls_psk_read(path, &got, why), 0);
	assert_string_equal(got.identity, "alice");
	assert_int_equal(got.len, 16);
	assert_int_equal(got.key[15], 15);
	unlink(path);
}

static void malformed_keys_are_refused(void **state)
{
	static const char *const bad[] = {"",
					  "alice",
					  ":000102030405060708090a0b0c0d0e0f",
					  "alice:0001",
					  "alice:000102030405060708090a0b0c0d0e0",
					  "alice:000102030405060708090a0b0c0d0e0fx"};
	char path[] = "/tmp/stag-tls-XXXXXX", why[TLS_WHY_LEN];
	struct tls_psk got;

	close(mkstemp(path));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_file(path, bad[i], 0600);
		assert_int_equal(tls_psk_read(path, &got, why), -EINVAL);
	}
	unlink(path);
}

static void files_that_do_not_fit_are_named(void **state)
{
	struct tls_config other = {.cert = CERTS "/node.pem", .key = CERTS "/client.key"};
	struct tls_config missing = {.ca = CERTS "/none.pem"}, empty = {.ca = "/dev/null"};
	struct tls_context *c;
	char why[TLS_WHY_LEN];

	assert_true(tls_context_create(&c, &other, why) < 0);
	assert_non_null(strstr(why, "client.key"));
	assert_true(tls_context_create(&c, &missing, why) < 0);
	assert_non_null(strstr(why, "none.pem"));
	assert_true(tls_context_create(&c, &empty, why) < 0);
	assert_non_null(strstr(why, "/dev/null"));
}

static void a_context_without_secrets_serves_nobody(void **state)
{
	struct tls_config nothing = {0};
	struct tls_context *c = context_of(&nothing);
	struct tls_session *s;
	char why[TLS_WHY_LEN];

	assert_int_equal(tls_open(&s, c, 0, TLS_SERVER, why), -ENOKEY);
	assert_int_equal(tls_open(&s, c, 0, TLS_CLIENT, why), -ENOKEY);
	tls_context_put(c);
}

static void modes_have_words(void **state)
{
	assert_int_equal(tls_mode_parse("off"), TLS_OFF);
	assert_int_equal(tls_mode_parse("allowed"), TLS_ALLOWED);
	assert_int_equal(tls_mode_parse("required"), TLS_REQUIRED);
	assert_int_equal(tls_mode_parse("on"), -EINVAL);
	assert_string_equal(tls_mode_name(TLS_ALLOWED), "allowed");
}

/* ---- bytes ---- */

#define STREAM (3 << 20)

struct traffic {
	struct tls_session *s;
	int fd;
	unsigned seed;
	bool rekeys;
};

static uint8_t byte_at(unsigned seed, size_t at)
{
	return (uint8_t)((at * 2654435761u >> 13) + seed);
}

static void wait_fd(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	assert_true(poll(&p, 1, 60000) > 0);
}

/* Splits n bytes into up to 5 pieces of odd sizes. */
static int split(uint8_t *at, size_t n, struct iovec v[5], unsigned *dice)
{
	int count = 0;

	while (n) {
		size_t len = (size_t)rand_r(dice) % (rand_r(dice) % 3 ? 300 : 40000);

		if (count == 4 || len > n)
			len = n;
		v[count++] = (struct iovec){at, len};
		at += len;
		n -= len;
	}
	return count;
}

static void *send_stream(void *arg)
{
	struct traffic *t = arg;
	unsigned dice = t->seed;
	uint8_t *data = malloc(STREAM);
	struct iovec v[5];
	size_t at = 0;

	for (size_t i = 0; i < STREAM; i++)
		data[i] = byte_at(t->seed, i);
	while (at < STREAM) {
		size_t len = 1 + (size_t)rand_r(&dice) % 100000;
		int n;

		if (len > STREAM - at)
			len = STREAM - at;
		n = split(data + at, len, v, &dice);
		for (;;) { /* until some of it is sent, the same bytes are offered */
			ssize_t done = tls_sendv(t->s, v, n);

			assert_true(done > 0 || done == -EAGAIN);
			if (done > 0) {
				at += (size_t)done;
				break;
			}
			wait_fd(t->fd, POLLOUT);
		}
		if (t->rekeys && rand_r(&dice) % 16 == 0)
			assert_int_equal(tls_rekey(t->s), 0);
	}
	free(data);
	return NULL;
}

static void *recv_stream(void *arg)
{
	struct traffic *t = arg;
	unsigned dice = t->seed + 1;
	uint8_t *data = malloc(100000);
	struct iovec v[5];
	size_t at = 0;

	while (at < STREAM) {
		size_t len = 1 + (size_t)rand_r(&dice) % 100000;
		int n;
		ssize_t got;

		if (len > STREAM - at)
			len = STREAM - at;
		n = split(data, len, v, &dice);
		got = tls_recvv(t->s, v, n);
		if (got == -EAGAIN) {
			assert_false(tls_pending(t->s));
			wait_fd(t->fd, POLLIN);
			continue;
		}
		assert_true(got > 0);
		for (ssize_t i = 0; i < got; i++)
			assert_int_equal(data[i], byte_at(t->seed, at + (size_t)i));
		at += (size_t)got;
		if (!tls_pending(t->s) && at < STREAM && len > (size_t)got)
			wait_fd(t->fd, POLLIN); /* nothing was left behind in the session */
	}
	free(data);
	return NULL;
}

static void run_traffic(const struct tls_config *c, const struct tls_config *s, bool rekeys)
{
	struct traffic t[4];
	pthread_t threads[4];
	struct pair p;

	connect_pair(&p, c, s);
	for (int i = 0; i < 4; i++) /* 0, 1 send; 2 receives what 1 sends, 3 what 0 sends */
		t[i] = (struct traffic){.s = p.s[i % 2],
					.fd = p.fd[i % 2],
					.seed = i == 0 || i == 3,
					.rekeys = rekeys};
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i < 2 ? send_stream : recv_stream, &t[i]),
			0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	part(&p);
}

static void bytes_arrive_in_order_in_both_directions_at_once(void **state)
{
	run_traffic(&client, &node, false);
}

static void bytes_arrive_while_keys_change(void **state)
{
	run_traffic(&psk, &psk, true);
}

/* The kernel can encrypt TCP only. */
static void bytes_arrive_where_the_kernel_should_encrypt_and_cannot(void **state)
{
	struct tls_config by_kernel = psk;

	by_kernel.kernel = true;
	run_traffic(&by_kernel, &by_kernel, false);
}

static void several_records_are_read_by_one_call(void **state)
{
	uint8_t data[8] = "abcdefgh", got[8] = {0};
	struct iovec v[2] = {{got, 3}, {got + 3, 5}};
	struct pair p;

	connect_pair(&p, &psk, &psk);
	for (int i = 0; i < 4; i++)
		assert_int_equal(send_one(p.s[0], data + 2 * i, 2), 2);
	assert_int_equal(tls_recvv(p.s[1], v, 1), 3);
	assert_true(tls_pending(p.s[1]));
	assert_int_equal(tls_recvv(p.s[1], v + 1, 1), 5);
	assert_memory_equal(got, data, 8);
	part(&p);
}

/* ---- the end ---- */

static void an_orderly_end_is_told_from_a_cut(void **state)
{
	char byte;
	struct pair p;

	connect_pair(&p, &psk, &psk);
	assert_int_equal(send_one(p.s[0], "x", 1), 1);
	assert_int_equal(tls_shutdown(p.s[0]), 0);
	shutdown(p.fd[0], SHUT_WR);
	assert_int_equal(recv_one(p.s[1], &byte, 1), 1);
	assert_int_equal(recv_one(p.s[1], &byte, 1), 0);
	assert_int_equal(recv_one(p.s[1], &byte, 1), 0);
	part(&p);

	connect_pair(&p, &psk, &psk);
	assert_int_equal(send_one(p.s[0], "x", 1), 1);
	shutdown(p.fd[0], SHUT_WR);
	assert_int_equal(recv_one(p.s[1], &byte, 1), 1);
	assert_int_equal(recv_one(p.s[1], &byte, 1), -ECONNRESET);
	part(&p);
}

static void the_other_direction_outlives_an_end(void **state)
{
	char byte;
	struct pair p;

	connect_pair(&p, &psk, &psk);
	assert_int_equal(tls_shutdown(p.s[0]), 0);
	assert_int_equal(recv_one(p.s[1], &byte, 1), 0);
	assert_int_equal(send_one(p.s[1], "y", 1), 1);
	assert_int_equal(recv_one(p.s[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	part(&p);
}

static void child_ends_session(struct tls_session *s)
{
	bool silent = tls_shutdown(s) == -ENOTCONN && send_one(s, "x", 1) == -ENOTCONN;

	tls_close(s);
	_exit(silent ? 0 : 1);
}

static void a_forked_child_says_nothing(void **state)
{
	int status = -1;
	struct pair p;
	pid_t pid;

	connect_pair(&p, &psk, &psk);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		child_ends_session(p.s[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_talk(&p);
	part(&p);
}

/* Takes what one side sent off the wire. */
static size_t intercept(struct pair *p, int from, uint8_t *wire, size_t room)
{
	ssize_t n = recv(p->fd[!from], wire, room, MSG_DONTWAIT);

	assert_true(n > 0);
	return (size_t)n;
}

static void a_flipped_bit_ends_the_session(void **state)
{
	uint8_t wire[256];
	char got[16];
	struct pair p;
	size_t n;

	connect_pair(&p, &psk, &psk);
	assert_int_equal(send_one(p.s[0], "hello", 5), 5);
	n = intercept(&p, 0, wire, sizeof(wire));
	wire[n / 2] ^= 4;
	assert_int_equal(send(p.fd[0], wire, n, 0), (ssize_t)n);
	assert_int_equal(recv_one(p.s[1], got, sizeof(got)), -EBADMSG);
	assert_int_equal(recv_one(p.s[1], got, sizeof(got)), -EBADMSG);
	assert_int_equal(send_one(p.s[1], "hello", 5), -EBADMSG);
	part(&p);
}

static void a_repeated_record_ends_the_session(void **state)
{
	uint8_t wire[256];
	char got[16];
	struct pair p;
	size_t n;

	connect_pair(&p, &psk, &psk);
	assert_int_equal(send_one(p.s[0], "hello", 5), 5);
	n = intercept(&p, 0, wire, sizeof(wire));
	for (int i = 0; i < 2; i++)
		assert_int_equal(send(p.fd[0], wire, n, 0), (ssize_t)n);
	assert_int_equal(recv_one(p.s[1], got, 5), 5);
	assert_int_equal(recv_one(p.s[1], got, 5), -EBADMSG);
	part(&p);
}

static void a_cut_within_a_record_is_an_error(void **state)
{
	uint8_t wire[256];
	char got[16];
	struct pair p;
	size_t n;

	connect_pair(&p, &psk, &psk);
	assert_int_equal(send_one(p.s[0], "hello", 5), 5);
	n = intercept(&p, 0, wire, sizeof(wire));
	assert_int_equal(send(p.fd[0], wire, n - 1, 0), (ssize_t)n - 1);
	assert_int_equal(recv_one(p.s[1], got, 5), -EAGAIN);
	assert_false(tls_pending(p.s[1]));
	shutdown(p.fd[0], SHUT_WR);
	assert_int_equal(recv_one(p.s[1], got, 5), -ECONNRESET);
	part(&p);
}

static void changing_keys_without_end_ends_the_session(void **state)
{
	char got[16];
	struct pair p;
	ssize_t n = 0;
	int i;

	connect_pair(&p, &psk, &psk);
	for (i = 0; i < 1000 && n >= 0; i++) {
		assert_int_equal(tls_rekey(p.s[0]), 0);
		assert_int_equal(send_one(p.s[0], "x", 1), 1);
		n = recv_one(p.s[1], got, 1);
	}
	assert_int_equal(n, -EPROTO);
	assert_in_range(i, 10, 100);
	part(&p);
}

/* ---- strangers ---- */

static void garbage_instead_of_a_hello_is_refused(void **state)
{
	struct tls_context *c = context_of(&node);
	unsigned dice = 1;

	for (int i = 0; i < 200; i++) {
		struct tls_session *s;
		char why[TLS_WHY_LEN];
		uint8_t junk[600];
		int fd[2], err;

		make_sockets(fd);
		for (size_t k = 0; k < sizeof(junk); k++)
			junk[k] = (uint8_t)rand_r(&dice);
		if (i % 2) /* looks like a handshake */
			memcpy(junk, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
		assert_int_equal(tls_open(&s, c, fd[1], TLS_SERVER, why), 0);
		assert_int_equal(send(fd[0], junk, sizeof(junk), 0), sizeof(junk));
		shutdown(fd[0], SHUT_WR);
		do
			err = tls_handshake(s);
		while (err == -EAGAIN);
		assert_true(err < 0);
		tls_close(s);
		close(fd[0]);
		close(fd[1]);
	}
	tls_context_put(c);
}

static void a_handshake_may_arrive_byte_by_byte(void **state)
{
	struct tls_context *c = context_of(&psk);
	struct tls_session *s[2];
	char why[TLS_WHY_LEN];
	int a[2], b[2], err[2] = {-EAGAIN, -EAGAIN};

	make_sockets(a); /* client - relay */
	make_sockets(b); /* relay - server */
	assert_int_equal(tls_open(&s[0], c, a[0], TLS_CLIENT, why), 0);
	assert_int_equal(tls_open(&s[1], c, b[1], TLS_SERVER, why), 0);
	while (err[0] == -EAGAIN || err[1] == -EAGAIN) {
		uint8_t byte;

		if (err[0] == -EAGAIN)
			err[0] = tls_handshake(s[0]);
		if (recv(a[1], &byte, 1, 0) == 1)
			assert_int_equal(send(b[0], &byte, 1, 0), 1);
		if (err[1] == -EAGAIN)
			err[1] = tls_handshake(s[1]);
		if (recv(b[0], &byte, 1, 0) == 1)
			assert_int_equal(send(a[1], &byte, 1, 0), 1);
	}
	assert_int_equal(err[0], 0);
	assert_int_equal(err[1], 0);
	for (int i = 0; i < 2; i++) {
		tls_close(s[i]);
		close(a[i]);
		close(b[i]);
	}
	tls_context_put(c);
}

static void a_handshake_that_is_cut_fails(void **state)
{
	struct tls_context *c = context_of(&psk);
	struct tls_session *s[2];
	char why[TLS_WHY_LEN];
	int fd[2];

	make_sockets(fd);
	for (int i = 0; i < 2; i++)
		assert_int_equal(tls_open(&s[i], c, fd[i], (enum tls_side)i, why), 0);
	assert_int_equal(tls_handshake(s[0]), -EAGAIN);
	shutdown(fd[0], SHUT_WR);
	while (tls_handshake(s[1]) == -EAGAIN)
		;
	assert_int_equal(tls_handshake(s[1]), -ECONNRESET);
	for (int i = 0; i < 2; i++) {
		tls_close(s[i]);
		close(fd[i]);
	}
	tls_context_put(c);
}

static void the_first_byte_tells_tls(void **state)
{
	int fd[2];

	make_sockets(fd);
	assert_int_equal(tls_first_byte(fd[1]), -EAGAIN);
	assert_int_equal(send(fd[0], "\x16M", 2, 0), 2);
	assert_int_equal(tls_first_byte(fd[1]), TLS_HELLO);
	assert_int_equal(tls_first_byte(fd[1]), TLS_HELLO);
	close(fd[0]);
	close(fd[1]);
	make_sockets(fd);
	close(fd[0]);
	assert_int_equal(tls_first_byte(fd[1]), -ENODATA);
	close(fd[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(certificates_of_one_authority_connect),
		cmocka_unit_test(equal_keys_connect),
		cmocka_unit_test(the_server_looks_keys_up_by_identity),
		cmocka_unit_test(a_wrong_key_is_refused),
		cmocka_unit_test(a_certificate_of_another_authority_is_refused),
		cmocka_unit_test(a_clients_certificate_cannot_pose_as_a_node),
		cmocka_unit_test(a_client_without_certificate_is_refused),
		cmocka_unit_test(a_server_without_authority_takes_anonymous_clients),
		cmocka_unit_test(a_server_with_keys_takes_no_anonymous_clients),
		cmocka_unit_test(the_name_in_the_certificate_is_checked),
		cmocka_unit_test(a_key_does_not_replace_an_unknown_certificate),
		cmocka_unit_test(both_ends_export_the_same_secret),
		cmocka_unit_test(secrets_that_others_can_read_are_refused),
		cmocka_unit_test(malformed_keys_are_refused),
		cmocka_unit_test(files_that_do_not_fit_are_named),
		cmocka_unit_test(a_context_without_secrets_serves_nobody),
		cmocka_unit_test(modes_have_words),
		cmocka_unit_test(bytes_arrive_in_order_in_both_directions_at_once),
		cmocka_unit_test(bytes_arrive_while_keys_change),
		cmocka_unit_test(bytes_arrive_where_the_kernel_should_encrypt_and_cannot),
		cmocka_unit_test(several_records_are_read_by_one_call),
		cmocka_unit_test(an_orderly_end_is_told_from_a_cut),
		cmocka_unit_test(the_other_direction_outlives_an_end),
		cmocka_unit_test(a_forked_child_says_nothing),
		cmocka_unit_test(a_flipped_bit_ends_the_session),
		cmocka_unit_test(a_repeated_record_ends_the_session),
		cmocka_unit_test(a_cut_within_a_record_is_an_error),
		cmocka_unit_test(changing_keys_without_end_ends_the_session),
		cmocka_unit_test(garbage_instead_of_a_hello_is_refused),
		cmocka_unit_test(a_handshake_may_arrive_byte_by_byte),
		cmocka_unit_test(a_handshake_that_is_cut_fails),
		cmocka_unit_test(the_first_byte_tells_tls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
