// SPDX-License-Identifier: BSD-2-Clause
/*
 * context.c - certificates and keys that sessions use. Part of stag-tls.so.
 */
#include "tls/openssl.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/error_text.h"

/* The fastest first, on processors with AES instructions. */
#define CIPHERS	   "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define READ_AHEAD (64 << 10)
#define CERT_LIST  (32 << 10) /* bytes of a peer's certificates */

/* Whether OpenSSL can let the kernel encrypt. */
#ifdef OPENSSL_NO_KTLS
#define CAN_USE_KERNEL false
#else
#define CAN_USE_KERNEL true
#endif

static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};

void openssl_reason(char *to, size_t size)
{
	unsigned long code = ERR_peek_error();
	const char *text = ERR_reason_error_string(code);

	error_text_set(to, size, 0, "%s", text ? text : "unknown error");
	ERR_clear_error();
}

static int fail(char *why, const char *what, const char *path)
{
	char reason[128];

	openssl_reason(reason, sizeof(reason));
	return error_text_set(why, TLS_WHY_LEN, -EINVAL, "%s %s: %s", what, path, reason);
}

/* Answers the question for a key's passphrase: there is nobody to ask. */
static int no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	return -1;
}

static int use_key(SSL_CTX *ctx, const char *path, char *why)
{
	EVP_PKEY *key = NULL;
	char *text = NULL;
	ssize_t n = tls_read_private(path, &text, why);
	BIO *in;
	int ok;

	if (n < 0)
		return (int)n;
	in = BIO_new_mem_buf(text, (int)n);
	if (in)
		key = PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL);
	ok = key && SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
	EVP_PKEY_free(key);
	BIO_free(in);
	explicit_bzero(text, (size_t)n);
	free(text);
	return ok ? 0 : fail(why, "the private key", path);
}

/* Reads certificates to the end of the file, and passes each to fn. Returns how many, or -errno. */
static int each_certificate(const char *path, int (*fn)(SSL_CTX *, X509 *, int), SSL_CTX *ctx,
			    char *why)
{
	BIO *in = BIO_new_file(path, "r");
	X509 *x;
	int n = 0, ok = 1;

	if (!in)
		return fail(why, "cannot read", path);
	while (ok && (x = PEM_read_bio_X509(in, NULL, no_passphrase, NULL))) {
		ok = fn(ctx, x, n++);
		X509_free(x);
	}
	BIO_free(in);
	if (!ok || !n)
		return fail(why, "no certificate can be used from", path);
	ERR_clear_error(); /* of the end of the file */
	return n;
}

static int add_own(SSL_CTX *ctx, X509 *x, int n)
{
	return n ? SSL_CTX_add1_chain_cert(ctx, x) : SSL_CTX_use_certificate(ctx, x);
}

static int add_authority(SSL_CTX *ctx, X509 *x, int n)
{
	return X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x);
}

static int load_files(struct tls_context *c, const struct tls_config *cfg, char *why)
{
	int err = 0;

	if (!cfg->cert != !cfg->key)
		return error_text_set(why, TLS_WHY_LEN, -EINVAL,
				      "a certificate and its private key come together");
	if (cfg->cert)
		err = each_certificate(cfg->cert, add_own, c->ctx, why);
	if (err >= 0 && cfg->key)
		err = use_key(c->ctx, cfg->key, why);
	if (err >= 0 && cfg->ca)
		err = each_certificate(cfg->ca, add_authority, c->ctx, why);
	c->has_cert = cfg->cert != NULL;
	c->has_ca = cfg->ca != NULL;
	return err < 0 ? err : 0;
}

static int take_psk(struct tls_context *c, const struct tls_config *cfg, char *why)
{
	c->find_psk = cfg->find_psk;
	c->arg = cfg->arg;
	if (!cfg->identity)
		return 0;
	if (cfg->psk_len < TLS_PSK_MIN || cfg->psk_len > TLS_PSK_MAX || !*cfg->identity ||
	    strlen(cfg->identity) >= TLS_IDENTITY_LEN)
		return error_text_set(why, TLS_WHY_LEN, -EINVAL,
				      "a pre-shared key has %d to %d bytes, its identity up to %d",
				      TLS_PSK_MIN, TLS_PSK_MAX, TLS_IDENTITY_LEN - 1);
	strcpy(c->psk.identity, cfg->identity);
	memcpy(c->psk.key, cfg->psk, cfg->psk_len);
	c->psk.len = cfg->psk_len;
	return 0;
}

/* TLS 1.3 only, without tickets, renegotiation or early data. */
static void set_options(struct tls_context *c)
{
	SSL_CTX *ctx = c->ctx;

	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(ctx, CIPHERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
					 (c->kernel ? SSL_OP_ENABLE_KTLS : 0));
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY); /* a read ends after each record */
	SSL_CTX_set_max_cert_list(ctx, CERT_LIST);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_AHEAD);
	SSL_CTX_set_psk_find_session_callback(ctx, session_find_psk);
	SSL_CTX_set_psk_use_session_callback(ctx, session_use_psk);
}

static void context_free(struct tls_context *c)
{
	SSL_CTX_free(c->ctx);
	free(c->name);
	explicit_bzero(c, sizeof(*c));
	free(c);
}

int context_create(struct tls_context **out, const struct tls_config *cfg, char why[TLS_WHY_LEN])
{
	struct tls_context *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return error_text_set(why, TLS_WHY_LEN, -ENOMEM, "out of memory");
	/* The adapter's thread may use sessions while the process exits. */
	OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
	atomic_init(&c->refs, 1);
	c->kernel = cfg->kernel && CAN_USE_KERNEL;
	c->ctx = SSL_CTX_new(TLS_method());
	c->name = cfg->name ? strdup(cfg->name) : NULL;
	if (!c->ctx || (cfg->name && !c->name)) {
		context_free(c);
		return error_text_set(why, TLS_WHY_LEN, -ENOMEM, "out of memory");
	}
	set_options(c);
	err = load_files(c, cfg, why);
	if (!err)
		err = take_psk(c, cfg, why);
	if (err) {
		context_free(c);
		return err;
	}
	*out = c;
	return 0;
}

struct tls_context *context_get(struct tls_context *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

void context_put(struct tls_context *c)
{
	if (atomic_fetch_sub(&c->refs, 1) == 1)
		context_free(c);
}

SSL_SESSION *psk_session(SSL *ssl, const uint8_t *key, size_t len)
{
	SSL_SESSION *session = SSL_SESSION_new();
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);

	if (session && cipher && SSL_SESSION_set1_master_key(session, key, len) &&
	    SSL_SESSION_set_cipher(session, cipher) &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}
