/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * admit.h - admission: challenge and response in the private data of two connect requests.
 *
 *	visitor (a client, or a node)                  node
 *	connect: hello {name, C}          ------->
 *	                                  <-------     reject: challenge {S, pool, epoch, where the primary is}
 *	connect: proof {name, C, S, mac}  ------->
 *	                                  <-------     accept: welcome {mac, rights, facts}
 *
 * C and S are used once. Each mac is HMAC-SHA256 with the secret of that name. Their first words differ, so that a mac
 * cannot be reflected as the other one; the welcome's mac also covers the facts. S lets the node recognise its own
 * challenges without storing them, so a flood of hellos costs it no memory. A wrong proof gets a bare refusal, and failures are
 * rate-limited by address; while many fail for a name, or at all, an address that has failed once waits. A right proof is never
 * refused because other addresses fail. An unknown name is treated like a wrong secret. While a secret is rotated, the
 * proof may be made with either one, and the welcome is made with the same.
 *
 * Time is an argument, in nanoseconds. Greetings have a fixed length, with zeroes in unused fields, and may arrive with
 * more bytes behind them, because some adapters pad.
 *
 * Of the other rooms of src/pool, this one includes role (names and lengths of the roll).
 */
#ifndef STAG_POOL_ADMIT_H
#define STAG_POOL_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "pool/role/roll.h"
#include "pool/admit/users.h"

#define ADMIT_VERSION	  2   /* 1: names were hashed without a key */
#define ADMIT_MAX	  196 /* bytes of private data, of any greeting */
#define ADMIT_NONCE_LEN	  16
#define ADMIT_TICKET_LEN  24 /* bytes of S: a time stamp, and a MAC over it and the visitor */
#define ADMIT_MAC_LEN	  32
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
	uint8_t nonce[ADMIT_NONCE_LEN];
	char name[ROLL_NAME_LEN];
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
	uint8_t nonce[ADMIT_NONCE_LEN];
	uint8_t ticket[ADMIT_TICKET_LEN];
	uint8_t mac[ADMIT_MAC_LEN];
	char name[ROLL_NAME_LEN];
};

struct admit_welcome {
	struct admit_head head;
	uint8_t facts_len; /* because private data may arrive padded */
	uint8_t zero[7];
	uint8_t mac[ADMIT_MAC_LEN]; /* the caller's facts follow */
};

#define ADMIT_FACTS_MAX (ADMIT_MAX - sizeof(struct admit_welcome))

_Static_assert(sizeof(struct admit_challenge) <= 148, "InfiniBand rejects with no more");
_Static_assert(sizeof(struct admit_proof) <= ADMIT_MAX, "private data");

/* The state of one admission, on both sides. */
struct admit_session {
	enum admit_as as;
	char name[ROLL_NAME_LEN];
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
 * bytes; *reply_len is set. The session's name is that of who tried to prove itself, also if it was refused; empty: nobody
 * tried.
 */
enum admit_verdict admit_judge(struct admit *a, uint64_t now, const void *address,
			       size_t address_len, const struct admit_place *place,
			       const void *greeting, size_t len, void *reply, size_t *reply_len,
			       struct admit_session *session);
/* Writes the private data of the accept. Returns its length, or -errno. */
int admit_make_welcome(struct admit *a, const struct admit_session *session, const void *facts,
		       size_t facts_len, void *reply);

/* ---- at the visitor ------------------------------------------------------------------------ */

/* Each returns the length of what it wrote to out, at most ADMIT_MAX, or -errno. */
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
