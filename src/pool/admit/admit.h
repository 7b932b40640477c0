/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * admit.h - who comes in: challenge and response in the private data of two connects.
 *
 *	who comes                                      node
 *	connect: hello {name, C}          ------->
 *	                                  <-------     reject: challenge {S, pool, epoch, where the primary is}
 *	connect: proof {name, C, S, mac}  ------->
 *	                                  <-------     accept: welcome {mac, rights, facts}
 *
 * C and S are used once. Each mac is HMAC-SHA256 with the secret of that name, over different first words, so that none
 * can be given back as the other; the welcome's covers the facts, too. S is made so that the node can tell its own
 * without keeping those that it gave: a flood of hellos costs it nothing. Whose proof is wrong gets a bare refusal, and
 * loses patience of the node's by name and by address; a name that nobody has is treated like a wrong secret.
 *
 * Time is an argument, in nanoseconds. Greetings are of fixed length, zeroes where nothing is said, and may come
 * with more behind them: some adapters pad.
 *
 * Of the other rooms of src/pool, this one includes role (names and lengths of the roll).
 */
#ifndef STAG_POOL_ADMIT_H
#define STAG_POOL_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/role/roll.h"
#include "pool/admit/users.h"

#define ADMIT_MAX	196 /* private data, of any greeting */
#define ADMIT_NONCE_LEN 16
#define ADMIT_TICKET_LEN                                                                           \
	24 /* of S: when it was made, and a mac over that and whom it was made for */
#define ADMIT_MAC_LEN 32

enum admit_kind { ADMIT_HELLO = 1, ADMIT_CHALLENGE, ADMIT_PROOF, ADMIT_WELCOME, ADMIT_REFUSAL };
enum admit_as { ADMIT_CLIENT = 1, ADMIT_NODE };

struct admit_head {
	uint8_t magic[4]; /* "StgP" */
	uint8_t version;  /* 1 */
	uint8_t kind;
	uint8_t as;    /* admit_as, of who comes */
	uint8_t extra; /* welcome: rights; refusal: 1 if it is worth trying again later */
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
	char primary[ROLL_ADDRESS_LEN]; /* where it is, empty: here, or not known */
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
	uint8_t facts_len; /* private data may come padded */
	uint8_t zero[7];
	uint8_t mac[ADMIT_MAC_LEN]; /* facts of the caller's follow */
};

#define ADMIT_FACTS_MAX (ADMIT_MAX - sizeof(struct admit_welcome))

_Static_assert(sizeof(struct admit_challenge) <= 148, "InfiniBand rejects with no more");
_Static_assert(sizeof(struct admit_proof) <= ADMIT_MAX, "private data");

/* What a proof is about, on both sides. */
struct admit_session {
	enum admit_as as;
	char name[ROLL_NAME_LEN];
	uint32_t rights;
	uint8_t uuid[ROLL_UUID_LEN];
	uint8_t nonce[ADMIT_NONCE_LEN];
	uint8_t ticket[ADMIT_TICKET_LEN];
};

/* ---- at the node ----------------------------------------------------------------------- */

struct admit;

/* What is said to whoever asks. */
struct admit_place {
	uint64_t epoch;
	const char *primary; /* address; NULL: here, or not known */
};

enum admit_verdict {
	ADMIT_NO,  /* reject with what is in reply */
	ADMIT_YES, /* accept with admit_welcome() */
};

/*
 * Keeps a pointer to the users, which admit_use() replaces. Returns NULL if memory or random numbers are not to be had.
 */
struct admit *admit_create(const uint8_t uuid[ROLL_UUID_LEN], const struct users *users);
void admit_destroy(struct admit *a);
void admit_use(struct admit *a, const struct users *users);

/*
 * greeting: private data of a connect from `address` (without its port: who has one address has all of them).
 * reply holds ADMIT_MAX bytes; *reply_len is set.
 */
enum admit_verdict admit_judge(struct admit *a, uint64_t now, const void *address,
			       size_t address_len, const struct admit_place *place,
			       const void *greeting, size_t len, void *reply, size_t *reply_len,
			       struct admit_session *session);
/* The accept's private data: its length, or -errno. */
int admit_make_welcome(struct admit *a, const struct admit_session *session, const void *facts,
		       size_t facts_len, void *reply);

/* ---- who comes ----------------------------------------------------------------------------- */

/* Each gives the length of what it wrote to out, ADMIT_MAX bytes at most, or -errno. */
int admit_say_hello(struct admit_session *s, enum admit_as as, const char *name, void *out);
/*
 * What the node said, to what we said: a proof, and what it told us besides. -EACCES: it refused us, -EAGAIN: for now.
 * -EPROTO: that is no challenge.
 */
int admit_say_proof(struct admit_session *s, const char *secret, const void *challenge, size_t len,
		    uint64_t *epoch, char primary[ROLL_ADDRESS_LEN], void *out);
/* Length of the facts, which are in `welcome` at *facts. -EACCES: it does not know our secret; go away. */
int admit_hear_welcome(struct admit_session *s, const char *secret, const void *welcome, size_t len,
		       const void **facts);

#endif
