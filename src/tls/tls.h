/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tls.h - TLS 1.3 over a connected TCP socket, without blocking.
 *
 * The code that calls OpenSSL is a module, stag-tls.so, which is loaded when the first context is created: a program
 * that uses no TLS does not load OpenSSL, and libstag-verbs.so, which is preloaded into programs of others, is not
 * linked to it.
 *
 * How to use it:
 *
 *	char why[TLS_WHY_LEN];
 *	struct tls_config cfg = {.cert = ..., .key = ..., .ca = ...};            by certificates,
 *	struct tls_config cfg = {.identity = ..., .psk = ..., .psk_len = ...};   or by a pre-shared key,
 *	struct tls_config cfg = {.find_psk = lookup, .arg = users};              or, for a server, by the keys of its users
 *	tls_context_create(&context, &cfg, why);          once, for both directions; files are read now
 *
 *	tls_first_byte(fd)                                a server's: TLS_HELLO or a protocol's own first byte
 *	tls_open(&s, context, fd, TLS_SERVER, why);       fd is non-blocking, and stays the caller's
 *	while ((err = tls_handshake(s)) == -EAGAIN)
 *		poll fd for tls_events(s);                or return to the event loop, which calls again
 *	if (err) log tls_why(s); 
 *	tls_describe(s, &info);                           whom the peer proved to be: info.peer
 *
 *	n = tls_sendv(s, iov, count);  n = tls_recvv(s, iov, count);    as sendmsg() and readv(), with -errno
 *	if (tls_pending(s)) call tls_recvv() again without waiting for fd: bytes are decrypted already
 *	tls_shutdown(s); shutdown(fd, SHUT_WR);           an orderly end
 *	tls_close(s); close(fd);
 *
 * Any thread may call; the calls on one session are serialised by a lock of its own. No call blocks, and none raises
 * SIGPIPE. In a forked child, the sessions of its parent do nothing (-ENOTCONN).
 *
 * Of the other rooms, this one includes base.
 */
#ifndef STAG_TLS_H
#define STAG_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define TLS_WHY_LEN	 256
#define TLS_IDENTITY_LEN 129 /* with its zero byte */
#define TLS_PSK_MIN	 16  /* bytes of a pre-shared key */
#define TLS_PSK_MAX	 64
#define TLS_HELLO	 0x16 /* first byte of a TLS connection: a handshake record */

/*
 * OFF: neither offered nor accepted. ALLOWED: a server accepts both; a client tries TLS, and then
 * plain if the server does not speak it, which an attacker between them can bring about. REQUIRED: nothing else is
 * accepted.
 */
enum tls_mode { TLS_OFF, TLS_ALLOWED, TLS_REQUIRED };
enum tls_side { TLS_CLIENT, TLS_SERVER };

struct tls_context;
struct tls_session;

/*
 * Names are those of PEM files. A server needs cert and key, or pre-shared keys; with ca it demands a certificate of
 * its clients, or a key that it knows. With cert alone it lets anybody in; with keys and no ca only who has a key. A
 * client needs ca, or a pre-shared key. Strings are copied.
 */
struct tls_config {
	const char *cert; /* own certificate, then those that lead to the CA */
	const char *key;  /* its private key, readable by the owner only, not encrypted */
	const char
		*ca; /* certificates of the authorities that peers' certificates must come from */
	const char
		*name; /* a client's: DNS name or address in the server's certificate; NULL: any */

	/* A client's pre-shared key. Servers accept it, too, unless they have find_psk. */
	const char *identity;
	const uint8_t *psk;
	size_t psk_len;

	/*
	 * A server's: writes the key of an identity, and returns its length, or -errno if there is none. Called during
	 * a handshake, with the session's lock held: must not call this session.
	 */
	int (*find_psk)(void *arg, const char *identity, uint8_t key[TLS_PSK_MAX]);
	void *arg; /* must outlive the context and its sessions */

	bool kernel; /* let the kernel encrypt, if it can, and OpenSSL was built for it */
};

/* What is in force, once the handshake is done. */
struct tls_info {
	char version[16]; /* "TLSv1.3" */
	char cipher[40];  /* "TLS_AES_128_GCM_SHA256" */
	/* the client's identity (to a server, if psk), or the common name in the peer's certificate; empty: anonymous */
	char peer[TLS_IDENTITY_LEN];
	bool psk;			    /* proved by a pre-shared key, not by certificates */
	bool kernel_sends, kernel_receives; /* the kernel encrypts, decrypts */
};

/* Returns what the kernel does, as the public headers have it: 1, it encrypts; 2, it decrypts; 3, both. */
static inline uint8_t tls_kernel_bits(const struct tls_info *i)
{
	return (uint8_t)(i->kernel_sends | i->kernel_receives << 1);
}

/* ---- contexts ---- */

/* Returns 0, or -errno with the reason in why. -ENOSYS: stag-tls.so or OpenSSL is not installed. */
int tls_context_create(struct tls_context **out, const struct tls_config *cfg,
		       char why[TLS_WHY_LEN]);
struct tls_context *tls_context_get(struct tls_context *c); /* adds a reference; c may be NULL */
void tls_context_put(struct tls_context *c); /* drops one; each session holds one. c may be NULL */

/* Parses off, allowed or required. Returns an enum tls_mode, or -EINVAL. */
int tls_mode_parse(const char *word);
const char *tls_mode_name(enum tls_mode mode);

/* A file of one line, "identity:key", the key in hexadecimal digits, readable by the owner only. */
struct tls_psk {
	char identity[TLS_IDENTITY_LEN];
	uint8_t key[TLS_PSK_MAX];
	size_t len;
};
int tls_psk_read(const char *path, struct tls_psk *out, char why[TLS_WHY_LEN]);

/*
 * Reads a file of secrets whole. Returns its length, or -errno and the reason: if others than the owner may access the
 * file, or the owner is neither this user nor root. The caller frees and wipes *text.
 */
ssize_t tls_read_private(const char *path, char **text, char why[TLS_WHY_LEN]);

/* ---- sessions ---- */

/*
 * Peeks at the first byte of an accepted connection. Returns it, -EAGAIN if it has not arrived, -ENODATA at the end of
 * the stream, or -errno.
 */
int tls_first_byte(int fd);

/* Returns 0, or -errno and the reason: the context cannot serve this side. fd stays the caller's. */
int tls_open(struct tls_session **out, struct tls_context *c, int fd, enum tls_side side,
	     char why[TLS_WHY_LEN]);
/*
 * A client's, before the handshake: its last message is sent together with the first bytes of tls_sendv(), so that the
 * server's handshake ends when they arrive, and not before.
 */
void tls_hold_finish(struct tls_session *s);
/* Goes on with the handshake. Returns 0 when it is done, -EAGAIN, or -errno (tls_why()). */
int tls_handshake(struct tls_session *s);
/* Returns what the last call that returned -EAGAIN waits for: POLLIN, POLLOUT. */
short tls_events(struct tls_session *s);
/* Returns the reason of the last error; valid until tls_close(). */
const char *tls_why(struct tls_session *s);
void tls_describe(struct tls_session *s, struct tls_info *out);
/* Derives key material that only the two ends of this session know (RFC 8446 §7.5). Returns 0 or -errno. */
int tls_export(struct tls_session *s, const char *label, uint8_t *out, size_t len);

/*
 * Encrypts and sends from the beginning of iov, up to 64 KiB a call. Returns how many bytes were sent, -EAGAIN, or
 * -errno. After -EAGAIN the next call must begin with the same bytes: they may be encrypted already.
 */
ssize_t tls_sendv(struct tls_session *s, const struct iovec *iov, int n);
/*
 * Receives and decrypts. Returns a count, 0 at an orderly end, -EAGAIN, -ECONNRESET if the stream was cut (the peer
 * did not say that it ends), -EBADMSG if a record was forged or broken, or -errno.
 */
ssize_t tls_recvv(struct tls_session *s, const struct iovec *iov, int n);
/* Returns whether tls_recvv() would return something without a byte from the socket. */
bool tls_pending(struct tls_session *s);
/* Tells the peer that no more bytes follow. Returns 0 when that is sent, -EAGAIN: call again; or -errno. */
int tls_shutdown(struct tls_session *s);
/* Changes the key of what this side sends, with the next byte. Done by itself before a key has encrypted too much. */
int tls_rekey(struct tls_session *s);
void tls_close(
	struct tls_session *s); /* frees it; no other call may be in progress. s may be NULL */

#endif
