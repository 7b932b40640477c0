/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tls.h - a pool's encrypted connections: by pre-shared keys, which are made of its secrets, or by certificates.
 *
 * A visitor's identity is "client:NAME:HINT" or "node:NAME:HINT"; its key is HMAC-SHA256 of that with the secret of the
 * name. The hint tells which secret, while a name has two. Without it (earlier versions) it is the first one. So
 * whoever completes the handshake knows the secret, as the proof of admission shows once more; and the proof must be of
 * the same name. Somebody in between who relays both knows no key.
 *
 * With certificates, both sides have one of the same authority, and a visitor demands that the node's is for the address
 * that it connects to. So nobody in between can pass for the node. The proof of admission says who the visitor is.
 */
#ifndef STAG_POOL_TLS_H
#define STAG_POOL_TLS_H

#include "dv/dv.h"
#include "pool/admit/admit.h"

#define POOL_TLS_KEY_LEN  32
#define POOL_TLS_HINT_LEN 8 /* hexadecimal digits */
#define POOL_TLS_NAME_LEN (ROLL_NAME_LEN + 8 + 1 + POOL_TLS_HINT_LEN)
#define POOL_TLS_HOSTS	  16

/* PEM files: all of them, or none. */
struct pool_tls_files {
	const char *cert, *key, *ca;
};

/* What a visitor connects with. Not safe for threads. */
struct pool_tls {
	uint32_t mode;		/* enum stag_pool_tls */
	struct stagdv_tls *psk; /* NULL: not by a key */
	char *cert, *key, *ca;	/* NULL: not by certificates */
	/* By certificates, for each host: its name must be in the certificate. */
	struct pool_tls_host {
		char name[ROLL_ADDRESS_LEN];
		struct stagdv_tls *tls;
	} hosts[POOL_TLS_HOSTS];
	unsigned int next; /* host to forget if another one needs room */
};

/* secret NULL: without a hint. Returns false without memory. */
bool pool_tls_identity(enum admit_as as, const char *name, const char *secret,
		       char out[POOL_TLS_NAME_LEN]);
/* Returns which of the user's secrets the hint of an identity means, or NULL. */
const char *pool_tls_secret(const struct user *user, const char *identity);
/* Returns false without memory. */
bool pool_tls_key(const char *identity, const char *secret, uint8_t key[POOL_TLS_KEY_LEN]);

/* Checks the mode and the files together, without reading them. Returns an errno value, with its text set. */
int pool_tls_check(uint32_t mode, const struct pool_tls_files *files);
/* Makes a visitor's. Reads the files, if there are any. Returns an errno value, with its text set. */
int pool_tls_open(struct pool_tls *t, uint32_t mode, const struct pool_tls_files *files,
		  enum admit_as as, const char *name, const char *secret);
/*
 * Connects with another secret from now on, or without the hint that nodes of earlier versions do not know. Returns an
 * errno value, with its text set; then it is as before. Certificates stay.
 */
int pool_tls_rekey(struct pool_tls *t, enum admit_as as, const char *name, const char *secret,
		   bool hinted);
void pool_tls_close(struct pool_tls *t); /* one that was not opened is all zero */
/* Prepares an id for a connection to an address, HOST[:PORT]. Returns -errno: it must not connect then. */
int pool_tls_prepare(struct pool_tls *t, struct rdma_cm_id *id, const char *address);
bool pool_tls_is_on(const struct pool_tls *t);
/* Returns what the status of a failed connection says about TLS, or NULL: nothing. */
const char *pool_tls_why(const struct pool_tls *t, int status);
/* Writes the host of HOST[:PORT], as it is in a certificate. */
void pool_tls_host_of(const char *address, char host[ROLL_ADDRESS_LEN]);

/* Sets a listener's on its id, if there is one. Returns -errno. */
int pool_tls_set(struct rdma_cm_id *id, struct stagdv_tls *tls, uint32_t mode);
/* Fills in what is in force on a connection; returns false if it is not encrypted. */
bool pool_tls_query(struct rdma_cm_id *id, struct stagdv_tls_info *info);
void pool_tls_free(struct stagdv_tls *tls);
/* Returns whether a connection that is encrypted by a key is that of this session's name. */
bool pool_tls_is_of(struct rdma_cm_id *id, const struct admit_session *s);

#endif
