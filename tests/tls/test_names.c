// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_names.c - certificates whose names cannot be told whole: part of them may be another's name.
 */
#include "tls/tls.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "/tmp/test_names.XXXXXX", cert[64], key[64];

static FILE *open_file(const char *path, const char *mode)
{
	FILE *f = fopen(path, mode);

	assert_non_null(f);
	return f;
}

static void sign(X509 *x)
{
	FILE *f = open_file(CERTS "/ca.pem", "r");
	X509 *ca = PEM_read_X509(f, NULL, NULL, NULL);
	EVP_PKEY *ca_key;

	fclose(f);
	f = open_file(CERTS "/ca.key", "r");
	ca_key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
	fclose(f);
	assert_int_equal(X509_set_issuer_name(x, X509_get_subject_name(ca)), 1);
	assert_true(X509_sign(x, ca_key, EVP_sha256()) > 0);
	X509_free(ca);
	EVP_PKEY_free(ca_key);
}

static void set_name(X509 *x, const char *name, size_t len)
{
	X509_NAME_ENTRY *e = X509_NAME_ENTRY_create_by_NID(NULL, NID_commonName, V_ASN1_UTF8STRING,
							   (const unsigned char *)name, (int)len);

	assert_non_null(e);
	assert_int_equal(X509_NAME_add_entry(X509_get_subject_name(x), e, -1, 0), 1);
	X509_NAME_ENTRY_free(e);
}

/* Makes a certificate of the authority for any name: an authority may be careless. */
static void make_certificate(const char *name, size_t len)
{
	EVP_PKEY *pair = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	FILE *f;

	assert_true(pair && x);
	X509_set_version(x, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 77);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, pair);
	set_name(x, name, len);
	sign(x);
	f = open_file(cert, "w");
	assert_int_equal(PEM_write_X509(f, x), 1);
	fclose(f);
	f = open_file(key, "w");
	assert_int_equal(PEM_write_PrivateKey(f, pair, NULL, NULL, 0, NULL, NULL), 1);
	fclose(f);
	assert_int_equal(chmod(key, 0600), 0);
	EVP_PKEY_free(pair);
	X509_free(x);
}

/* Returns what the server's handshake returns to a client of that name. */
static int meet(const char *name, size_t len, struct tls_info *info)
{
	struct tls_config cfg[2] = {
		{.cert = cert, .key = key, .ca = CERTS "/ca.pem"},
		{.cert = CERTS "/node.pem", .key = CERTS "/node.key", .ca = CERTS "/ca.pem"}};
	struct tls_context *c[2];
	struct tls_session *s[2];
	int fd[2], err[2] = {-EAGAIN, -EAGAIN};
	char why[TLS_WHY_LEN];

	make_certificate(name, len);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tls_context_create(&c[i], &cfg[i], why), 0);
		assert_int_equal(tls_open(&s[i], c[i], fd[i], (enum tls_side)i, why), 0);
	}
	for (int n = 0; n < 100 && err[TLS_SERVER] == -EAGAIN; n++)
		for (int i = 0; i < 2; i++)
			if (err[i] == -EAGAIN)
				err[i] = tls_handshake(s[i]);
	tls_describe(s[TLS_SERVER], info);
	for (int i = 0; i < 2; i++) {
		tls_close(s[i]);
		tls_context_put(c[i]);
		close(fd[i]);
	}
	return err[TLS_SERVER];
}

static void a_name_is_told_whole(void **state)
{
	char longest[TLS_IDENTITY_LEN];
	struct tls_info info;

	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(meet("admin", 5, &info), 0);
	assert_string_equal(info.peer, "admin");
	assert_int_equal(meet(longest, sizeof(longest) - 1, &info), 0);
	assert_string_equal(info.peer, longest);
}

static void a_name_with_a_zero_byte_is_refused(void **state)
{
	struct tls_info info;

	assert_int_equal(meet("admin\0.evil.test", 16, &info), -EACCES);
	assert_string_equal(info.peer, "");
}

static void a_name_that_is_too_long_is_refused(void **state)
{
	char longer[TLS_IDENTITY_LEN];
	struct tls_info info;

	memset(longer, 'a', sizeof(longer));
	assert_int_equal(meet(longer, sizeof(longer), &info), -EACCES);
	assert_string_equal(info.peer, "");
}

static int make_directory(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(cert, sizeof(cert), "%s/cert", dir);
	snprintf(key, sizeof(key), "%s/key", dir);
	return 0;
}

static int remove_directory(void **state)
{
	unlink(cert);
	unlink(key);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_told_whole),
		cmocka_unit_test(a_name_with_a_zero_byte_is_refused),
		cmocka_unit_test(a_name_that_is_too_long_is_refused),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
