/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * openssl.h - what the files of stag-tls.so share. Private to this folder.
 */
#ifndef STAG_TLS_OPENSSL_H
#define STAG_TLS_OPENSSL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "tls/module.h"

struct tls_context {
	atomic_uint refs;
	SSL_CTX *ctx;
	bool has_cert, has_ca, kernel;
	char *name;
	struct tls_psk psk; /* len 0: none */
	int (*find_psk)(void *arg, const char *identity, uint8_t key[TLS_PSK_MAX]);
	void *arg;
};

int context_create(struct tls_context **out, const struct tls_config *cfg, char why[TLS_WHY_LEN]);
struct tls_context *context_get(struct tls_context *c);
void context_put(struct tls_context *c);

/* Makes the session of TLS 1.3 that stands for a pre-shared key; NULL without memory. */
SSL_SESSION *psk_session(SSL *ssl, const uint8_t *key, size_t len);
/* The server's side of a pre-shared key: notes whom the client claims to be. */
int session_find_psk(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **out);
int session_use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *len,
		    SSL_SESSION **out);

int session_open(struct tls_session **out, struct tls_context *c, int fd, enum tls_side side,
		 char why[TLS_WHY_LEN]);
void session_hold_finish(struct tls_session *s);
int session_handshake(struct tls_session *s);
short session_events(struct tls_session *s);
const char *session_why(struct tls_session *s);
void session_describe(struct tls_session *s, struct tls_info *out);
int session_export(struct tls_session *s, const char *label, uint8_t *out, size_t len);
ssize_t session_sendv(struct tls_session *s, const struct iovec *iov, int n);
ssize_t session_recvv(struct tls_session *s, const struct iovec *iov, int n);
bool session_pending(struct tls_session *s);
int session_shutdown(struct tls_session *s);
int session_rekey(struct tls_session *s);
void session_close(struct tls_session *s);

/* Writes OpenSSL's first recorded error in words, and forgets all of them. */
void openssl_reason(char *to, size_t size);

#endif
