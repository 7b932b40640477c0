/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * admit.h - admission: challenge and response in the private data of two connect requests.
 *
 *	visitor (a client, or a node)                  node
 *	connect: hello {mark, C}          ------->
 *	                                  <-------     reject: challenge {S, pool, epoch, where the primary is}
 *	connect: proof {mark, C, S, mac}  ------->
 *	                                  <-------     accept: welcome {mac, rights, facts}
 *
 * A greeting of a visitor has 56 bytes at most, because the connection managers of InfiniBand and RoCE carry no more in a
 * connect request; they carry 148 in a reject and 196 in an accept. They also pad with zeroes: so greetings have a fixed
 * length, with zeroes in unused fields, and may arrive with more bytes behind them.
 *
 * The mark is the first 8 bytes of the SHA-256 of the visitor's name (admit_mark_name()). It identifies a user and hides
 * nothing. Users whose marks are the same are refused when they are configured. A node that connects to another one proves
 * the secret that all nodes share, and says its name later.
 *
 * Each mac is HMAC-SHA256 with the secret of that user, over what is above, the pool and what the visitor is. S is a time
 * stamp, and a MAC of the node's own over it, the mark, C, what the visitor is, and its address: so the node recognises its
 * own challenges without storing them, and a flood of hellos costs it no memory. Why this admits only visitors that know
 * the secret, and makes a visitor trust only a node that knows it:
 *
 * - Replay of a proof. S is good once, for 10 seconds, from one address, in one process. A used S is remembered until it
 *   has expired. The greeting has the low 32 bits of the time stamp, but the MAC covers all of it: when they wrap, after
 *   52 days, an old S is not good again.
 * - Replay of a welcome. It covers C, of 96 random bits, new with each hello: a false node that has recorded N welcomes
 *   for a user has one that fits with a chance of N in 2^96.
 * - Reflection. The first words under the macs of proof and welcome differ, and so do those of a client and of a node. A
 *   proof is never a welcome, and a proof of a client is never one of a node, even if their secrets were the same.
 * - Truncation. A proof has the first 16 bytes of its mac: a forger hits with a chance of 2^-128, and has one attempt a
 *   connection, of which few are allowed (below). S has 8 bytes of a MAC. A forged S, which takes 2^64 connections, does
 *   not admit anybody: the proof for it still needs the secret.
 * - Guessing a secret. A wrong proof gets a bare refusal, and failures are rate-limited by address; while many fail for a
 *   mark, or at all, an address that has failed once waits. A right proof is never refused because other addresses fail. An
 *   unknown mark is treated like a wrong secret, and takes as long. But an attacker who sees an admission on the network, or
 *   answers in a node's place, can test guesses at leisure: use long random secrets, or TLS by certificates.
 * - Names with the same mark. A visitor of another name with a user's mark, which takes 2^64 names to find, still needs
 *   the secret of that user, and then it is that user.
 * - Relays. An attacker who answers at a node's address can pass the greetings on to the node, and then has the connection.
 *   The address in S only makes it use one host for that. TLS is the protection: with keys, the key of the connection is
 *   made of the same secret, and the proof must be of the same name (pool_tls_is_of()); with certificates, the visitor
 *   checks the node's.
 *
 * While a secret is rotated, the proof may be made with either one, and the welcome is made with the same.
 *
 * Time is an argument, in nanoseconds. Of the other rooms of src/pool, this one includes role (names and lengths of the
 * roll).
 */
#ifndef STAG_POOL_ADMIT_H
#define STAG_POOL_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "dv/private_data.h"
#include "pool/role/roll.h"
#include "pool/admit/users.h"

/* 1: names were hashed without a key; 2: greetings of visitors had names, and up to 144 bytes */
#define ADMIT_VERSION	  3
#define ADMIT_ASK_MAX	  PRIVATE_IN_REQUEST
#define ADMIT_REJECT_MAX  PRIVATE_IN_REJECT
#define ADMIT_MAX	  PRIVATE_IN_ACCEPT /* of any greeting */
#define ADMIT_NONCE_LEN	  12
#define ADMIT_TICKET_LEN  12 /* bytes of S */
#define ADMIT_MAC_LEN	  32
#define ADMIT_PROOF_LEN	  16 /* the part of a proof's mac that is sent */
#define ADMIT_ADDRESS_MAX 16 /* of a host: source_of_address() */

enum admit_kind { ADMIT_HELLO = 1, ADMIT_CHALLENGE, ADMIT_PROOF, ADMIT_WELCOME, ADMIT_REFUSAL };
enum admit_as { ADMIT_CLIENT = 1, ADMIT_NODE };

struct admit_head {
	uint8_t magic[4]; /* "StgP" */
	uint8_t version;  /* ADMIT_VERSION */
	uint8_t kind;
	uint8_t as;    /* enum admit_as: what the visitor is */
	uint8_t extra; /* welcome: rights; refusal: 1 if a later retry may succeed */
};

struct admit_hello {
	struct admit_head head;
	uint8_t mark[ADMIT_MARK_LEN];
	uint8_t nonce[ADMIT_NONCE_LEN];
};

struct admit_challenge {
	struct admit_head head;
	uint8_t ticket[ADMIT_TICKET_LEN];
	uint8_t uuid[ROLL_UUID_LEN];
	uint8_t epoch[8];		/* little endian */
	char primary[ROLL_ADDRESS_LEN]; /* address of the primary; empty: this node, or unknown */
};

struct admit_proof {
	struct admit_head head;
	uint8_t mark[ADMIT_MARK_LEN];
	uint8_t nonce[ADMIT_NONCE_LEN];
	uint8_t ticket[ADMIT_TICKET_LEN];
	uint8_t mac[ADMIT_PROOF_LEN];
};

struct admit_welcome {
	struct admit_head head;
	uint8_t facts_len; /* because private data may arrive padded */
	uint8_t zero[7];
	uint8_t mac[ADMIT_MAC_LEN]; /* the caller's facts follow */
};

#define ADMIT_FACTS_MAX (ADMIT_MAX - sizeof(struct admit_welcome))

_Static_assert(sizeof(struct admit_hello) <= ADMIT_ASK_MAX, "private data");
_Static_assert(sizeof(struct admit_proof) <= ADMIT_ASK_MAX, "private data");
_Static_assert(sizeof(struct admit_challenge) <= ADMIT_REJECT_MAX, "private data");

/* The state of one admission, on both sides. */
struct admit_session {
	enum admit_as as;
	uint8_t mark[ADMIT_MARK_LEN];
	char name
		[ROLL_NAME_LEN]; /* at the node: of the user, or '#' and the mark, if no user has it */
	uint32_t rights;
	uint8_t uuid[ROLL_UUID_LEN];
	uint8_t nonce[ADMIT_NONCE_LEN];
	uint8_t ticket[ADMIT_TICKET_LEN];
	unsigned int secret; /* at the node: which of the user's secrets was proven (users.h) */
};

/* ---- at the node ----------------------------------------------------------------------- */

struct admit;

/* Facts that a challenge tells the visitor. */
struct admit_place {
	uint64_t epoch;
	const char *primary; /* its address; NULL: this node, or unknown */
};

enum admit_verdict {
	ADMIT_NO,  /* reject, with what is in reply */
	ADMIT_YES, /* accept, with admit_make_welcome() */
};

/*
 * Keeps a pointer to the users, which admit_use() replaces. Returns NULL if memory runs out, or there are no
 * random numbers.
 */
struct admit *admit_create(const uint8_t uuid[ROLL_UUID_LEN], const struct users *users);
void admit_destroy(struct admit *a);
void admit_use(struct admit *a, const struct users *users);

/*
 * Judges a greeting: private data of a connect request from a host, `address` (source_of_address(), base/source.h). reply holds ADMIT_MAX
 * bytes; *reply_len is set. The session has the mark and a name of the visitor that tried to prove itself, also if it was refused;
 * an empty name: none tried.
 */
enum admit_verdict admit_judge(struct admit *a, uint64_t now, const void *address,
			       size_t address_len, const struct admit_place *place,
			       const void *greeting, size_t len, void *reply, size_t *reply_len,
			       struct admit_session *session);
/* Writes the private data of the accept. Returns its length, or -errno. */
int admit_make_welcome(struct admit *a, const struct admit_session *session, const void *facts,
		       size_t facts_len, void *reply);

/* ---- at the visitor ------------------------------------------------------------------------ */

/* Each returns the length of what it wrote to out, at most ADMIT_ASK_MAX, or -errno. */
int admit_say_hello(struct admit_session *s, enum admit_as as, const char *name, void *out);
/*
 * Answers a challenge with a proof, and sets *epoch and `primary` as in the challenge. -EACCES: the node
 * refused us for good; -EAGAIN: for now; -EPROTONOSUPPORT: it speaks another version; -EPROTO: not a challenge.
 */
int admit_say_proof(struct admit_session *s, const char *secret, const void *challenge, size_t len,
		    uint64_t *epoch, char primary[ROLL_ADDRESS_LEN], void *out);
/*
 * Checks the private data of the accept, or of a reject. Returns the length of the facts, which are in
 * `welcome` at *facts. -EACCES: the node refused us for good, or accepted without knowing our secret
 * (disconnect then); -EAGAIN: it refused us for now; -EPROTONOSUPPORT: it speaks another version; -EPROTO: neither a
 * welcome nor a refusal.
 */
int admit_hear_welcome(struct admit_session *s, const char *secret, const void *welcome, size_t len,
		       const void **facts);

#endif
