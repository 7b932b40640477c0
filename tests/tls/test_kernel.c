// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_kernel.c - sessions whose bytes the kernel encrypts: how much one key may encrypt, and what is displayed.
 *
 * Few machines have such a kernel. So the session is compiled here as if OpenSSL had handed its key over: what is sent
 * is not encrypted, and the peer, who would not understand it, takes the bytes from the socket.
 */
#include "tls/openssl.h"

#include <openssl/bio.h>

#undef OPENSSL_NO_KTLS
#undef BIO_get_ktls_send
#define BIO_get_ktls_send(b) 1
#define KERNEL_RECORDS	     64

#include "tls/context.c"
#include "tls/session.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const uint8_t key[32] = "a key of thirty-two bytes, as is";
static char big[48 << 10];

struct pair {
	struct tls_session *s[2]; /* TLS_CLIENT, whose bytes the kernel encrypts; TLS_SERVER */
	int fd[2];
};

static void open_side(struct pair *p, enum tls_side side)
{
	struct tls_config cfg = {.identity = "alice",
				 .psk = key,
				 .psk_len = sizeof(key),
				 .kernel = side == TLS_CLIENT};
	struct tls_context *c;
	char why[TLS_WHY_LEN];

	assert_int_equal(context_create(&c, &cfg, why), 0);
	assert_int_equal(session_open(&p->s[side], c, p->fd[side], side, why), 0);
	context_put(c);
}

static void connect_pair(struct pair *p)
{
	int err[2] = {-EAGAIN, -EAGAIN};

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p->fd),
			 0);
	open_side(p, TLS_CLIENT);
	open_side(p, TLS_SERVER);
	while (err[0] == -EAGAIN || err[1] == -EAGAIN)
		for (int i = 0; i < 2; i++)
			if (err[i] == -EAGAIN)
				err[i] = session_handshake(p->s[i]);
	assert_int_equal(err[0], 0);
	assert_int_equal(err[1], 0);
}

static void part(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		session_close(p->s[i]);
		close(p->fd[i]);
	}
}

/* Sends, and takes all from the peer's socket. Returns what the send returned. */
static ssize_t send_bytes(struct pair *p, size_t length)
{
	static char taken[sizeof(big)];
	ssize_t sent = session_sendv(p->s[TLS_CLIENT], &(struct iovec){big, length}, 1);

	for (ssize_t left = sent, n; left > 0; left -= n) {
		n = recv(p->fd[TLS_SERVER], taken, (size_t)left, 0);
		assert_true(n > 0);
	}
	return sent;
}

static void a_key_encrypts_no_more_small_messages_than_it_may(void **state)
{
	struct pair p;

	connect_pair(&p);
	for (unsigned int i = 0; i < KERNEL_RECORDS; i++)
		assert_int_equal(send_bytes(&p, 1), 1);
	assert_int_equal(send_bytes(&p, 1), -EKEYEXPIRED);
	assert_int_equal(send_bytes(&p, 1), -EKEYEXPIRED);
	assert_non_null(strstr(session_why(p.s[TLS_CLIENT]), "connect again"));
	part(&p);
}

static void each_record_of_a_large_message_counts(void **state)
{
	struct pair p;
	unsigned int records = 0;

	connect_pair(&p);
	while (records < KERNEL_RECORDS) {
		assert_int_equal(send_bytes(&p, sizeof(big)), sizeof(big));
		records += sizeof(big) / RECORD + 1;
	}
	assert_int_equal(send_bytes(&p, sizeof(big)), -EKEYEXPIRED);
	part(&p);
}

static void a_change_of_keys_that_fails_counts_on(void **state)
{
	struct pair p;

	connect_pair(&p);
	for (unsigned int i = 0; i < KERNEL_RECORDS; i++)
		assert_int_equal(send_bytes(&p, 1), 1);
	assert_int_equal(session_rekey(p.s[TLS_CLIENT]), -EOPNOTSUPP);
	assert_int_equal(send_bytes(&p, 1), -EKEYEXPIRED);
	part(&p);
}

/* OpenSSL 3.0 hands over only the key of what is sent. */
static void the_directions_are_told_apart(void **state)
{
	struct tls_info info;
	struct pair p;

	connect_pair(&p);
	session_describe(p.s[TLS_CLIENT], &info);
	assert_true(info.kernel_sends);
	assert_false(info.kernel_receives);
	assert_int_equal(tls_kernel_bits(&info), 1);
	session_describe(p.s[TLS_SERVER], &info);
	assert_int_equal(tls_kernel_bits(&info), 0);
	part(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_encrypts_no_more_small_messages_than_it_may),
		cmocka_unit_test(each_record_of_a_large_message_counts),
		cmocka_unit_test(a_change_of_keys_that_fails_counts_on),
		cmocka_unit_test(the_directions_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
