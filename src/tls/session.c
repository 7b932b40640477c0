// SPDX-License-Identifier: BSD-2-Clause
/*
 * session.c - one TLS connection over a socket. Part of stag-tls.so.
 *
 * OpenSSL encrypts into a buffer of ours, so that several records are sent by one system call, and so that a full
 * socket never leaves OpenSSL in the middle of a record. Bytes that were encrypted and could not be sent are "taken":
 * the caller hears of them when they are sent.
 *
 * If the kernel is to encrypt, OpenSSL has the socket itself during the handshake; and later, if the kernel can, when
 * bytes are sent to it as they are.
 *
 * A forked child uses no session of its parent: both would encrypt different bytes with the same key and nonce.
 */
#include "tls/openssl.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/lock.h"
#include "base/printable.h"

#define RECORD	     SSL3_RT_MAX_PLAIN_LENGTH
#define SEND_AT_ONCE (4 * RECORD)
#define KEY_RECORDS  (1u << 23) /* AES-GCM: a key may encrypt 2^24.5 records (RFC 8446 §5.5) */
#ifndef KERNEL_RECORDS
#define KERNEL_RECORDS (1u << 24) /* where the key cannot change: the session ends */
#endif
#define FREE_MESSAGES 32	 /* handshake messages after the handshake, */
#define MESSAGE_BYTES (1u << 20) /* and one more for each so many bytes */

struct tls_session {
	struct lock lock; /* protects everything below */
	struct tls_context *context;
	SSL *ssl;
	int fd;
	unsigned forks; /* of the process that opened it; constant */
	bool server, established, ended, by_kernel;
	bool said_end;	  /* the message that ends the session is sent, or in out */
	bool hold_finish; /* the end of the handshake waits in out for the first bytes */
	bool more;	  /* a read would return something without a byte from the socket */
	short events;
	int dead; /* -errno of the error that ended the session */
	char why[TLS_WHY_LEN];
	char claimed[TLS_IDENTITY_LEN]; /* server: the identity whose key was found */

	uint8_t *out; /* encrypted bytes, from out_at to out_len */
	size_t out_at, out_len, out_room;
	size_t taken; /* plain bytes in out that the caller does not know to be sent */
	uint8_t *gather;
	unsigned records;  /* sent with this key */
	unsigned messages; /* handshake messages received once established */
	uint64_t received;
};

/* ---- forks ---- */

static unsigned forks; /* before this process was made; written where there is one thread */

static void count_fork(void)
{
	forks++;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

/* Returns whether the session is a parent's, whose lock another thread may have held at the fork. */
static bool is_foreign(const struct tls_session *s)
{
	return s->forks != forks;
}

/* ---- SIGPIPE, which OpenSSL's own socket calls can raise ---- */

struct pipe_guard {
	bool on;
	sigset_t before;
};

static struct pipe_guard guard_pipe(const struct tls_session *s)
{
	struct pipe_guard g = {.on = s->context->kernel};
	sigset_t pipe_only, waiting;

	if (!g.on)
		return g;
	sigpending(&waiting);
	g.on = !sigismember(&waiting, SIGPIPE);
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_only, &g.before);
	return g;
}

static void unguard_pipe(const struct tls_session *s, struct pipe_guard *g)
{
	const struct timespec now = {0};
	sigset_t pipe_only;

	if (!s->context->kernel)
		return;
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	while (g->on && sigtimedwait(&pipe_only, NULL, &now) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &g->before, NULL);
}

/* ---- bytes between OpenSSL and the socket ---- */

static int bio_write(BIO *b, const char *data, int len)
{
	struct tls_session *s = BIO_get_data(b);
	size_t need = s->out_len + (size_t)len, room = s->out_room ? s->out_room : 4096;
	uint8_t *more;

	BIO_clear_retry_flags(b);
	if (need > s->out_room) {
		while (room < need)
			room *= 2;
		more = realloc(s->out, room);
		if (!more)
			return -1;
		s->out = more;
		s->out_room = room;
	}
	memcpy(s->out + s->out_len, data, (size_t)len);
	s->out_len = need;
	return len;
}

static int bio_read(BIO *b, char *data, int len)
{
	struct tls_session *s = BIO_get_data(b);
	ssize_t n;

	BIO_clear_retry_flags(b);
	do
		n = recv(s->fd, data, (size_t)len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		BIO_set_retry_read(b);
	if (n == 0)
		BIO_set_flags(b, BIO_FLAGS_IN_EOF);
	return (int)n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	if (cmd == BIO_CTRL_EOF)
		return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
	return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stag");

	if (m && BIO_meth_set_write(m, bio_write) && BIO_meth_set_read(m, bio_read) &&
	    BIO_meth_set_ctrl(m, bio_ctrl))
		bio_method = m;
}

static BIO *open_bio(struct tls_session *s)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	BIO *b;

	pthread_once(&once, make_bio_method);
	b = bio_method ? BIO_new(bio_method) : NULL;
	if (b) {
		BIO_set_data(b, s);
		BIO_set_init(b, 1);
	}
	return b;
}

/* Sends what is encrypted. Returns 0 if nothing is left, -EAGAIN or -errno. */
static int flush(struct tls_session *s)
{
	while (s->out_at < s->out_len) {
		ssize_t n = send(s->fd, s->out + s->out_at, s->out_len - s->out_at,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			s->events = POLLOUT;
			return -errno;
		}
		s->out_at += (size_t)n;
	}
	s->out_at = s->out_len = 0;
	return 0;
}

/* ---- errors ---- */

static int die(struct tls_session *s, int err, const char *text)
{
	if (!s->dead) {
		s->dead = err;
		error_text_set(s->why, sizeof(s->why), err, "%s", text);
	}
	return s->dead;
}

/* Returns whether the peer's alert is one of those by which servers answer a wrong or unknown key. */
static bool refuses_key(const struct tls_session *s, int code)
{
	return !s->established && !s->server && s->context->psk.len &&
	       (code == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
		code == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
		code == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE);
}

static int die_of_openssl(struct tls_session *s)
{
	char reason[TLS_WHY_LEN - 64], text[TLS_WHY_LEN];
	long verify = SSL_get_verify_result(s->ssl);
	int code = ERR_GET_REASON(ERR_peek_error());
	bool cut = code == SSL_R_UNEXPECTED_EOF_WHILE_READING;

	openssl_reason(reason, sizeof(reason));
	if (cut)
		return die(s, -ECONNRESET,
			   s->established ? "the stream was cut: the peer did not say that it ends"
					  : "the peer closed the connection");
	if (!s->established && verify != X509_V_OK && code == SSL_R_CERTIFICATE_VERIFY_FAILED) {
		snprintf(text, sizeof(text), "the peer's certificate is not accepted: %s",
			 X509_verify_cert_error_string(verify));
		return die(s, -EACCES, text);
	}
	if (refuses_key(s, code)) {
		snprintf(text, sizeof(text),
			 "the peer refuses our pre-shared key: it has another, or none (%s)",
			 reason);
		return die(s, -EACCES, text);
	}
	return die(s, s->established ? -EBADMSG : -EPROTO, reason);
}

/* Handles a call of OpenSSL that returned ret <= 0. Returns -EAGAIN, -ENODATA at the orderly end, or -errno. */
static int call_failed(struct tls_session *s, int ret, int sys)
{
	switch (SSL_get_error(s->ssl, ret)) {
	case SSL_ERROR_WANT_READ:
		s->events = POLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		s->events = POLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		s->ended = true;
		return -ENODATA;
	case SSL_ERROR_SYSCALL:
		ERR_clear_error();
		if (!sys)
			return die(s, -ECONNRESET, "the peer closed the connection");
		return die(s, -sys, strerror(sys));
	default:
		return die_of_openssl(s);
	}
}

/* ---- pre-shared keys ---- */

int session_find_psk(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **out)
{
	struct tls_session *s = SSL_get_app_data(ssl);
	struct tls_context *c = s->context;
	uint8_t key[TLS_PSK_MAX];
	int n = -ENOKEY;

	*out = NULL;
	s->claimed[0] = '\0';
	if (!len || len >= sizeof(s->claimed) || memchr(identity, 0, len))
		return 1;
	memcpy(s->claimed, identity, len);
	s->claimed[len] = '\0';
	if (c->find_psk) {
		n = c->find_psk(c->arg, s->claimed, key);
	} else if (c->psk.len && strcmp(s->claimed, c->psk.identity) == 0) {
		n = (int)c->psk.len;
		memcpy(key, c->psk.key, c->psk.len);
	}
	if (n >= TLS_PSK_MIN && n <= TLS_PSK_MAX)
		*out = psk_session(ssl, key, (size_t)n);
	explicit_bzero(key, sizeof(key));
	if (!*out)
		s->claimed[0] = '\0';
	return 1;
}

int session_use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *len,
		    SSL_SESSION **out)
{
	struct tls_session *s = SSL_get_app_data(ssl);
	struct tls_psk *psk = &s->context->psk;

	*out = NULL;
	if (!psk->len || (md && EVP_MD_get_type(md) != NID_sha256))
		return 1;
	*out = psk_session(ssl, psk->key, psk->len);
	*identity = (const unsigned char *)psk->identity;
	*len = strlen(psk->identity);
	return *out != NULL;
}

/* ---- the session ---- */

/* Counts handshake messages that follow the handshake: each costs this side more than the peer. */
static void note_message(int writing, int version, int type, const void *buf, size_t len, SSL *ssl,
			 void *arg)
{
	struct tls_session *s = arg;

	if (!writing && type == SSL3_RT_HANDSHAKE && s->established)
		s->messages++;
}

static int check_usable(const struct tls_context *c, enum tls_side side, char *why)
{
	if (side == TLS_SERVER && !c->has_cert && !c->psk.len && !c->find_psk)
		return error_text_set(why, TLS_WHY_LEN, -ENOKEY,
				      "a TLS server needs a certificate or a pre-shared key");
	if (side == TLS_CLIENT && !c->has_ca && !c->psk.len)
		return error_text_set(why, TLS_WHY_LEN, -ENOKEY,
				      "a TLS client needs a CA or a pre-shared key");
	return 0;
}

/* Sets the name that a server's certificate must have. */
static bool expect_name(SSL *ssl, const char *name)
{
	X509_VERIFY_PARAM *p = SSL_get0_param(ssl);

	if (X509_VERIFY_PARAM_set1_ip_asc(p, name))
		return true;
	ERR_clear_error();
	return SSL_set_tlsext_host_name(ssl, name) && X509_VERIFY_PARAM_set1_host(p, name, 0);
}

/* A server that knows keys, and no authority, lets nobody in without a key, though a certificate would do for TLS. */
static bool admits_by_key_only(const struct tls_context *c)
{
	return !c->has_ca && (c->psk.len || c->find_psk);
}

static bool set_side(struct tls_session *s)
{
	const struct tls_context *c = s->context;

	if (s->server) {
		SSL_set_accept_state(s->ssl);
		if (admits_by_key_only(c))
			SSL_certs_clear(s->ssl);
		SSL_set_verify(s->ssl,
			       c->has_ca ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
					 : SSL_VERIFY_NONE,
			       NULL);
		return true;
	}
	SSL_set_connect_state(s->ssl);
	SSL_set_verify(s->ssl, SSL_VERIFY_PEER, NULL);
	return !c->name || expect_name(s->ssl, c->name);
}

int session_open(struct tls_session **out, struct tls_context *c, int fd, enum tls_side side,
		 char why[TLS_WHY_LEN])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err = check_usable(c, side, why);
	struct tls_session *s;
	BIO *b = NULL;

	if (err)
		return err;
	pthread_once(&once, watch_forks);
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_text_set(why, TLS_WHY_LEN, -ENOMEM, "out of memory");
	lock_init(&s->lock);
	s->context = context_get(c);
	s->fd = fd;
	s->forks = forks;
	s->server = side == TLS_SERVER;
	s->events = POLLIN;
	s->ssl = SSL_new(c->ctx);
	if (s->ssl)
		b = c->kernel ? BIO_new_socket(fd, BIO_NOCLOSE) : open_bio(s);
	if (!b) {
		session_close(s);
		return error_text_set(why, TLS_WHY_LEN, -ENOMEM, "out of memory");
	}
	SSL_set_bio(s->ssl, b, b);
	SSL_set_app_data(s->ssl, s);
	SSL_set_msg_callback(s->ssl, note_message);
	SSL_set_msg_callback_arg(s->ssl, s);
	if (!set_side(s)) {
		session_close(s);
		return error_text_set(why, TLS_WHY_LEN, -EINVAL, "%s is not a name", c->name);
	}
	*out = s;
	return 0;
}

/* Lets OpenSSL encrypt into our buffer from now on: the kernel cannot do it. */
static int leave_socket(struct tls_session *s)
{
	BIO *b = open_bio(s);

	if (!b)
		return die(s, -ENOMEM, "out of memory");
	SSL_set0_wbio(s->ssl, b);
	return 0;
}

/*
 * Writes the common name in a certificate. Returns -EINVAL if the name cannot be told whole: a part of it may be
 * another's name.
 */
static int common_name(X509 *x, char *to, size_t room)
{
	X509_NAME *subject = X509_get_subject_name(x);
	int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1), len;
	unsigned char *text = NULL;
	bool fits;

	to[0] = '\0';
	if (at < 0)
		return 0;
	len = ASN1_STRING_to_UTF8(&text,
				  X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
	fits = len >= 0 && (size_t)len < room && !memchr(text, 0, (size_t)len);
	if (fits) {
		memcpy(to, text, (size_t)len);
		to[len] = '\0';
	}
	OPENSSL_free(text);
	return fits ? 0 : -EINVAL;
}

static int established(struct tls_session *s)
{
	X509 *x = SSL_get0_peer_certificate(s->ssl);
	char name[TLS_IDENTITY_LEN];

	if (x && common_name(x, name, sizeof(name)))
		return die(s, -EACCES,
			   "the name in the peer's certificate is too long, or has a zero byte");
	s->by_kernel = s->context->kernel && BIO_get_ktls_send(SSL_get_wbio(s->ssl));
	if (s->context->kernel && !s->by_kernel && leave_socket(s))
		return s->dead;
	s->established = true;
	s->more = SSL_has_pending(s->ssl);
	return 0;
}

void session_hold_finish(struct tls_session *s)
{
	HOLD_FOR_SCOPE(&s->lock);

	s->hold_finish = !s->context->kernel; /* where OpenSSL itself sends it */
}

int session_handshake(struct tls_session *s)
{
	struct pipe_guard g;
	int ret, err, sys;

	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);
	if (s->dead || s->established)
		return s->dead;
	ERR_clear_error();
	g = guard_pipe(s);
	errno = 0;
	ret = SSL_do_handshake(s->ssl);
	sys = errno;
	unguard_pipe(s, &g);
	if (ret == 1 && s->hold_finish)
		return established(s);
	err = ret == 1 ? 0 : call_failed(s, ret, sys);
	ret = flush(s); /* also the alert that tells the peer why */
	if (err && err != -EAGAIN)
		return err == -ENODATA ? die(s, -ECONNRESET, "the peer closed the connection")
				       : err;
	if (ret && ret != -EAGAIN)
		return die(s, ret, strerror(-ret));
	if (ret || err)
		return -EAGAIN;
	return established(s);
}

short session_events(struct tls_session *s)
{
	if (is_foreign(s))
		return 0;
	HOLD_FOR_SCOPE(&s->lock);

	return s->events;
}

const char *session_why(struct tls_session *s)
{
	return s->why;
}

static void describe_peer(struct tls_session *s, struct tls_info *out)
{
	X509 *x = SSL_get0_peer_certificate(s->ssl);

	out->psk = SSL_session_reused(s->ssl); /* no tickets: nothing else is resumed */
	if (out->psk && s->server)
		strcpy(out->peer, s->claimed);
	else if (!out->psk && x)
		common_name(x, out->peer, sizeof(out->peer));
	make_printable(out->peer);
}

void session_describe(struct tls_session *s, struct tls_info *out)
{
	*out = (struct tls_info){0};
	if (is_foreign(s))
		return;
	HOLD_FOR_SCOPE(&s->lock);
	if (!s->established)
		return;
	strncpy(out->version, SSL_get_version(s->ssl), sizeof(out->version) - 1);
	strncpy(out->cipher, SSL_get_cipher_name(s->ssl), sizeof(out->cipher) - 1);
	describe_peer(s, out);
	out->kernel_sends = s->by_kernel;
	out->kernel_receives = s->context->kernel && BIO_get_ktls_recv(SSL_get_rbio(s->ssl));
}

int session_export(struct tls_session *s, const char *label, uint8_t *out, size_t len)
{
	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);

	if (!s->established)
		return -ENOTCONN;
	return SSL_export_keying_material(s->ssl, out, len, label, strlen(label), NULL, 0, 0) == 1
		       ? 0
		       : -EIO;
}

/* ---- sending ---- */

/* A position in the caller's bytes. */
struct cursor {
	const struct iovec *iov;
	int n;
	size_t at;
};

static void skip_empty(struct cursor *c)
{
	while (c->n && c->at == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->at = 0;
	}
}

/*
 * Returns the bytes of the next record: where they are, if they lie together, or copied. NULL: there are none, or no
 * memory (*len is then not 0).
 */
static const uint8_t *next_record(struct tls_session *s, struct cursor *c, size_t *len)
{
	size_t here, n;

	*len = 0;
	skip_empty(c);
	if (!c->n)
		return NULL;
	here = c->iov->iov_len - c->at;
	if (here >= RECORD || c->n == 1) {
		const uint8_t *p = (const uint8_t *)c->iov->iov_base + c->at;

		*len = here < RECORD ? here : RECORD;
		c->at += *len;
		return p;
	}
	if (!s->gather)
		s->gather = malloc(RECORD);
	for (; s->gather && c->n && *len < RECORD; skip_empty(c)) {
		here = c->iov->iov_len - c->at;
		n = here < RECORD - *len ? here : RECORD - *len;
		memcpy(s->gather + *len, (const uint8_t *)c->iov->iov_base + c->at, n);
		*len += n;
		c->at += n;
	}
	if (!s->gather)
		*len = RECORD;
	return s->gather;
}

static int rekey(struct tls_session *s)
{
	if (s->by_kernel) /* which OpenSSL cannot give another key */
		return -EOPNOTSUPP;
	s->records = 0;
	return SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 ? 0 : -EIO;
}

/* Encrypts up to SEND_AT_ONCE bytes into out. Returns how many, or -errno. */
static ssize_t encrypt(struct tls_session *s, struct cursor *c)
{
	size_t total = 0, len, done;
	const uint8_t *p;
	int ret, sys;

	while (total < SEND_AT_ONCE && (p = next_record(s, c, &len))) {
		if (++s->records >= KEY_RECORDS)
			rekey(s);
		errno = 0;
		ret = SSL_write_ex(s->ssl, p, len, &done);
		sys = errno;
		if (ret != 1 || done != len) {
			ret = call_failed(s, ret, sys);
			return ret == -EAGAIN ? die(s, -EIO, "cannot encrypt") : ret;
		}
		total += len;
		len = 0;
	}
	return !total && len ? -ENOMEM : (ssize_t)total;
}

static size_t bytes_in(const struct iovec *iov, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* Reports bytes that an earlier call took, once they are sent. */
static ssize_t finish_taken(struct tls_session *s, const struct iovec *iov, int n)
{
	ssize_t done = (ssize_t)s->taken;

	if (bytes_in(iov, n) < s->taken)
		return die(s, -EIO, "other bytes than before were to be sent");
	s->taken = 0;
	return done;
}

/* Counts the records that the kernel has made of bytes sent by one call: the last one is as long as it comes. */
static void note_kernel_records(struct tls_session *s, size_t bytes)
{
	s->records += (unsigned int)(bytes / RECORD) + 1;
}

static ssize_t send_to_kernel(struct tls_session *s, const struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	ssize_t done;

	if (s->records >= KERNEL_RECORDS)
		return die(s, -EKEYEXPIRED,
			   "the key has encrypted all records that it may, and the kernel cannot "
			   "change it: connect again, or without STAG_TLS_KERNEL");
	do
		done = sendmsg(s->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (done < 0 && errno == EINTR);
	s->events = POLLOUT;
	if (done < 0)
		return -errno;
	note_kernel_records(s, (size_t)done);
	return done;
}

ssize_t session_sendv(struct tls_session *s, const struct iovec *iov, int n)
{
	struct cursor c = {.iov = iov, .n = n};
	ssize_t taken;
	int err;

	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);
	if (s->dead || !s->established)
		return s->dead ? s->dead : -ENOTCONN;
	if (s->by_kernel)
		return send_to_kernel(s, iov, n);
	err = s->hold_finish ? 0 : flush(s);
	if (err)
		return err;
	s->hold_finish = false;
	if (s->taken)
		return finish_taken(s, iov, n);
	ERR_clear_error();
	taken = encrypt(s, &c);
	if (taken <= 0)
		return taken;
	err = flush(s);
	if (err == -EAGAIN)
		s->taken = (size_t)taken;
	return err ? err : taken;
}

/* ---- receiving ---- */

static bool too_many_messages(const struct tls_session *s)
{
	return s->messages > FREE_MESSAGES + s->received / MESSAGE_BYTES;
}

/* Reads one record, or what is left of one. Returns a count, -ENODATA at the end, -EAGAIN or -errno. */
static ssize_t read_record(struct tls_session *s, void *to, size_t room)
{
	unsigned before;
	size_t got = 0;
	int ret, sys;

	do {
		before = s->messages;
		errno = 0;
		ret = SSL_read_ex(s->ssl, to, room, &got);
		sys = errno;
		if (too_many_messages(s))
			return die(s, -EPROTO, "the peer changes keys without end");
		if (ret == 1) {
			s->received += got;
			return (ssize_t)got;
		}
		ret = call_failed(s, ret, sys);
	} while (ret == -EAGAIN && s->messages != before);
	return ret;
}

static ssize_t receive(struct tls_session *s, const struct iovec *iov, int n)
{
	struct cursor c = {.iov = iov, .n = n};
	ssize_t total = 0, got;

	for (skip_empty(&c); c.n; skip_empty(&c)) {
		got = read_record(s, (uint8_t *)c.iov->iov_base + c.at, c.iov->iov_len - c.at);
		if (got < 0) {
			s->more = got != -EAGAIN; /* the end is told once more */
			return total ? total : got == -ENODATA ? 0 : got;
		}
		total += got;
		c.at += (size_t)got;
		s->more = SSL_has_pending(s->ssl);
		if (!s->more)
			break;
	}
	return total;
}

ssize_t session_recvv(struct tls_session *s, const struct iovec *iov, int n)
{
	struct pipe_guard g;
	ssize_t got;

	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);
	if (s->ended)
		return 0;
	if (s->dead || !s->established)
		return s->dead ? s->dead : -ENOTCONN;
	ERR_clear_error();
	g = guard_pipe(s);
	got = receive(s, iov, n);
	unguard_pipe(s, &g);
	if (!s->taken && !s->hold_finish)
		flush(s); /* an alert, or the answer to a change of keys; else with the next bytes */
	return got;
}

bool session_pending(struct tls_session *s)
{
	if (is_foreign(s))
		return false;
	HOLD_FOR_SCOPE(&s->lock);

	return s->more;
}

/* ---- the end ---- */

/* Returns -EAGAIN if a kernel that encrypts has no room; then OpenSSL sends the message when it is called again. */
static int say_end(struct tls_session *s)
{
	struct pipe_guard g = guard_pipe(s);
	int ret;

	ERR_clear_error();
	ret = SSL_shutdown(s->ssl);
	unguard_pipe(s, &g);
	s->said_end = ret >= 0 || SSL_get_error(s->ssl, ret) != SSL_ERROR_WANT_WRITE;
	ERR_clear_error();
	s->events = POLLOUT;
	return s->said_end ? 0 : -EAGAIN;
}

int session_shutdown(struct tls_session *s)
{
	int err = 0;

	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);
	if (s->dead || !s->established)
		return s->dead ? s->dead : -ENOTCONN;
	if (!s->said_end)
		err = say_end(s);
	if (!err)
		err = flush(s);
	return err && err != -EAGAIN ? die(s, err, strerror(-err)) : err;
}

int session_rekey(struct tls_session *s)
{
	if (is_foreign(s))
		return -ENOTCONN;
	HOLD_FOR_SCOPE(&s->lock);

	return s->established && !s->dead ? rekey(s) : -ENOTCONN;
}

void session_close(struct tls_session *s)
{
	if (is_foreign(s))
		return; /* a thread of the parent may have been changing it */
	SSL_free(s->ssl);
	context_put(s->context);
	lock_destroy(&s->lock);
	if (s->out)
		explicit_bzero(s->out, s->out_room);
	free(s->out);
	if (s->gather)
		explicit_bzero(s->gather, RECORD);
	free(s->gather);
	free(s);
}
