// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_hostile.c - attacks on the handshake: peers that send what no client or server does, and one in between who
 * changes bytes. Each ends in an error, without waiting for more than there is; and whoever is let in talks to
 * whom he believes to.
 */
#include "tls/tls.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "dice.h"

#define RECORD_HEADER 5

static const uint8_t secret[32] = "a key of thirty-two bytes, as is";
static const struct tls_config psk = {
	.identity = "alice", .psk = secret, .psk_len = sizeof(secret)};
static const struct tls_config node = {
	.cert = CERTS "/node.pem", .key = CERTS "/node.key", .ca = CERTS "/ca.pem"};
static const struct tls_config client = {
	.cert = CERTS "/client.pem", .key = CERTS "/client.key", .ca = CERTS "/ca.pem"};

/* One side of ours, and the socket of whoever plays the other. */
struct side {
	struct tls_context *context;
	struct tls_session *s;
	int fd, peer;
};

static void side_open(struct side *x, const struct tls_config *cfg, enum tls_side which)
{
	char why[TLS_WHY_LEN];
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
	*x = (struct side){.fd = fd[0], .peer = fd[1]};
	assert_int_equal(tls_context_create(&x->context, cfg, why), 0);
	assert_int_equal(tls_open(&x->s, x->context, x->fd, which, why), 0);
}

static void side_close(struct side *x)
{
	tls_close(x->s);
	tls_context_put(x->context);
	close(x->fd);
	close(x->peer);
}

static void say(const struct side *x, const void *data, size_t len)
{
	assert_int_equal(send(x->peer, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Returns the first message of a client. */
static size_t make_hello(const struct tls_config *cfg, uint8_t *to, size_t room)
{
	struct side x;
	ssize_t n;

	side_open(&x, cfg, TLS_CLIENT);
	assert_int_equal(tls_handshake(x.s), -EAGAIN);
	n = recv(x.peer, to, room, 0);
	assert_true(n > RECORD_HEADER);
	side_close(&x);
	return (size_t)n;
}

/* ---- what no client sends ---- */

/* Returns what a server's handshake returns to these bytes, which no end follows. */
static int answer_to(const void *data, size_t len)
{
	struct side x;
	int err;

	side_open(&x, &node, TLS_SERVER);
	say(&x, data, len);
	err = tls_handshake(x.s);
	side_close(&x);
	return err;
}

static void lengths_beyond_the_limit_are_not_waited_for(void **state)
{
	assert_int_equal(answer_to("\x16\x03\x01\xff\xff\x01\xff\xff\xff", 9), -EPROTO);
	assert_int_equal(answer_to("\x16\x03\x01\x00\x04\x01\xff\xff\xff", 9), -EPROTO);
}

static void other_records_than_a_hello_are_refused(void **state)
{
	uint8_t hello[2048];
	size_t len = make_hello(&client, hello, sizeof(hello));

	assert_int_equal(answer_to("\x17\x03\x03\x00\x05hello", 10), -EPROTO);
	assert_int_equal(answer_to("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9), -EPROTO);
	assert_int_equal(answer_to("GET / HTTP/1.0\r\n\r\n", 18), -EPROTO);
	assert_int_equal(answer_to("\x15\x03\x01\x00\x02\x02\x28", 7), -EPROTO);
	hello[RECORD_HEADER] = 11; /* a certificate comes first */
	assert_int_equal(answer_to(hello, len), -EPROTO);
}

static void older_versions_are_refused(void **state)
{
	/* TLS 1.2, ECDHE-RSA-AES128-GCM-SHA256, no extensions */
	uint8_t old[RECORD_HEADER + 4 + 41] = "\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03";

	memcpy(old + RECORD_HEADER + 4 + 2 + 32 + 1, "\x00\x02\xc0\x2f\x01\x00", 6);
	assert_int_equal(answer_to(old, sizeof(old)), -EPROTO);
}

/* Records that mean nothing cost the server work as long as it reads them. */
static void nothing_without_end_is_refused(void **state)
{
	static const char *const empty[] = {"\x16\x03\x01\x00\x00", "\x14\x03\x03\x00\x01\x01",
					    "\x15\x03\x01\x00\x02\x01\x5a"};
	static const size_t len[] = {5, 6, 7};

	for (int i = 0; i < 3; i++) {
		int err = -EAGAIN, n;
		struct side x;

		side_open(&x, &node, TLS_SERVER);
		for (n = 0; n < 1000 && err == -EAGAIN; n++) {
			say(&x, empty[i], len[i]);
			err = tls_handshake(x.s);
		}
		assert_int_equal(err, -EPROTO);
		side_close(&x);
	}
}

static void a_hello_that_is_cut_anywhere_is_an_error(void **state)
{
	uint8_t hello[2048];
	size_t len = make_hello(&psk, hello, sizeof(hello));

	for (size_t n = 0; n < len; n++) {
		struct side x;

		side_open(&x, &psk, TLS_SERVER);
		if (n)
			say(&x, hello, n);
		assert_int_equal(tls_handshake(x.s), -EAGAIN);
		shutdown(x.peer, SHUT_WR);
		assert_int_equal(tls_handshake(x.s), -ECONNRESET);
		side_close(&x);
	}
}

/* Also with records of one byte. */
static void a_second_hello_is_refused(void **state)
{
	uint8_t hello[2048], wire[4096];
	size_t len = make_hello(&client, hello, sizeof(hello));
	struct side x;

	side_open(&x, &node, TLS_SERVER);
	for (size_t i = RECORD_HEADER; i < len; i++) {
		assert_int_equal(tls_handshake(x.s), -EAGAIN);
		say(&x, "\x16\x03\x01\x00\x01", RECORD_HEADER);
		say(&x, &hello[i], 1);
	}
	assert_int_equal(tls_handshake(x.s), -EAGAIN);
	assert_true(recv(x.peer, wire, sizeof(wire), 0) > 0); /* it has answered the first */
	say(&x, hello, len);
	assert_int_equal(tls_handshake(x.s), -EPROTO);
	side_close(&x);
}

/* ---- somebody in between ---- */

/* Changes a random part: a bit, a byte, a length, or some bytes are lost or repeated. Returns the new length. */
static size_t spoil(uint8_t *data, size_t len, size_t room)
{
	size_t at = dice(len), n = 1 + dice(40);

	switch (dice(5)) {
	case 0:
		data[at] ^= (uint8_t)(1u << dice(8));
		return len;
	case 1:
		data[at] = (uint8_t)dice(256);
		return len;
	case 2:
		memset(data + at, 0xff, len - at < 2 ? len - at : 2);
		return len;
	case 3:
		n = n < len - at ? n : len - at;
		memmove(data + at, data + at + n, len - at - n);
		return len - n;
	default:
		n = n < len - at ? n : len - at;
		n = n < room - len ? n : room - len;
		memmove(data + at + n, data + at, len - at);
		return len + n;
	}
}

/* Passes what one side sent on to the other; the message number *left in a changed form. */
static bool pass(const struct side *from, const struct side *to, int *left)
{
	uint8_t wire[8192];
	ssize_t n = recv(from->peer, wire, sizeof(wire) / 2, 0);
	size_t len = (size_t)n;

	if (n <= 0)
		return false;
	if ((*left)-- == 0)
		len = spoil(wire, len, sizeof(wire));
	if (len)
		send(to->peer, wire, len, MSG_NOSIGNAL);
	return true;
}

static void assert_talk(struct side x[2])
{
	uint8_t out[2][16];

	for (int i = 0; i < 2; i++)
		assert_int_equal(tls_export(x[i].s, "test", out[i], sizeof(out[i])), 0);
	assert_memory_equal(out[0], out[1], sizeof(out[0]));
}

/* Returns whether both were content. */
static bool handshake_through(const struct tls_config *c, const struct tls_config *s, int message)
{
	int err[2] = {-EAGAIN, -EAGAIN};
	struct side x[2];
	bool moved = true;

	side_open(&x[TLS_CLIENT], c, TLS_CLIENT);
	side_open(&x[TLS_SERVER], s, TLS_SERVER);
	while (moved) {
		moved = false;
		for (int i = 0; i < 2; i++) {
			if (err[i] == -EAGAIN)
				err[i] = tls_handshake(x[i].s);
			moved |= pass(&x[i], &x[!i], &message);
		}
	}
	for (int i = 0; i < 2; i++)
		shutdown(x[i].peer, SHUT_WR);
	for (int i = 0; i < 2; i++)
		if (err[i] == -EAGAIN)
			err[i] = tls_handshake(x[i].s);
	for (int i = 0; i < 2; i++) /* the end of the stream ends every handshake */
		assert_int_not_equal(err[i], -EAGAIN);
	if (!err[0] && !err[1])
		assert_talk(x);
	for (int i = 0; i < 2; i++)
		side_close(&x[i]);
	return !err[0] && !err[1];
}

/* Messages: hello, the server's flight, the client's. */
static void run_relay(const struct tls_config *c, const struct tls_config *s, unsigned long rounds)
{
	unsigned long content = 0;

	assert_true(handshake_through(c, s, 1000)); /* unchanged */
	for (unsigned long i = 0; i < rounds; i++)
		content += handshake_through(c, s, (int)dice(3));
	assert_in_range(content, 0, rounds / 4); /* a version number that nobody looks at */
}

static void changed_handshakes_by_key_fail(void **state)
{
	run_relay(&psk, &psk, scaled(300));
}

static void changed_handshakes_by_certificates_fail(void **state)
{
	run_relay(&client, &node, scaled(200));
}

/* ---- after the handshake ---- */

/* TLS 1.3 has no renegotiation: a hello on an established connection is not even encrypted. */
static void renegotiation_ends_the_session(void **state)
{
	uint8_t hello[2048], got[16];
	size_t len = make_hello(&psk, hello, sizeof(hello));
	struct iovec v = {got, sizeof(got)};
	int err[2] = {-EAGAIN, -EAGAIN}, never = 1000;
	struct side x[2];

	side_open(&x[TLS_CLIENT], &psk, TLS_CLIENT);
	side_open(&x[TLS_SERVER], &psk, TLS_SERVER);
	while (err[0] || err[1])
		for (int i = 0; i < 2; i++) {
			if (err[i])
				err[i] = tls_handshake(x[i].s);
			assert_true(err[i] == 0 || err[i] == -EAGAIN);
			pass(&x[i], &x[!i], &never);
		}
	say(&x[TLS_SERVER], hello, len);
	assert_int_equal(tls_recvv(x[TLS_SERVER].s, &v, 1), -EBADMSG);
	assert_int_equal(tls_sendv(x[TLS_SERVER].s, &v, 1), -EBADMSG);
	for (int i = 0; i < 2; i++)
		side_close(&x[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths_beyond_the_limit_are_not_waited_for),
		cmocka_unit_test(other_records_than_a_hello_are_refused),
		cmocka_unit_test(older_versions_are_refused),
		cmocka_unit_test(nothing_without_end_is_refused),
		cmocka_unit_test(a_hello_that_is_cut_anywhere_is_an_error),
		cmocka_unit_test(a_second_hello_is_refused),
		cmocka_unit_test(changed_handshakes_by_key_fail),
		cmocka_unit_test(changed_handshakes_by_certificates_fail),
		cmocka_unit_test(renegotiation_ends_the_session),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
