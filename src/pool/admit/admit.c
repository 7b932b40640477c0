// SPDX-License-Identifier: BSD-2-Clause
/* admit.c - admission: the node's side of admit.h. */
#include "pool/admit/admit.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "base/siphash.h"
#include "pool/admit/mac.h"

#define TICKET_LIFE (10 * NS_PER_S)
#define TICK_SHIFT  20 /* the time stamp of a ticket counts units of 2^20 ns */
#define USED_SETS                                                                                  \
	4096 /* sets of used tickets, which are remembered until they have expired: 32768, or slightly fewer */
#define USED_WAYS     8
#define NUM_LIMITS    1024
#define ADDRESS_SETS  1024 /* of addresses that have failed lately */
#define ADDRESS_WAYS  8
#define ADDRESS_TRIES 8 /* failures at once, by address; one more every half second */
#define ADDRESS_AGAIN (NS_PER_S / 2)
#define NAME_TRIES                                                                                 \
	32 /* failures at once, by mark. Anybody can fail for a name: beyond these, only addresses that have failed wait */
#define NAME_AGAIN (NS_PER_S / 8)
#define ALL_TRIES  1024 /* failures at once, of everybody; the same */
#define ALL_AGAIN  (NS_PER_S / 512)

/* A rate limit: failures, which are forgotten one by one. */
struct rate_limit {
	unsigned int failures;
	uint64_t since; /* when the first failure happened, or a failure was last forgotten */
};

/* The failures of an address: of no other one, because others' failures must not refuse a right proof. */
struct failing {
	struct rate_limit limit;
	uint8_t address[ADMIT_ADDRESS_MAX]; /* padded with zeroes */
	uint8_t length;
};

struct used_ticket {
	uint64_t made;
	uint8_t ticket[ADMIT_TICKET_LEN];
};

struct admit {
	uint8_t uuid[ROLL_UUID_LEN];
	uint8_t own_key[32]; /* random for each process: for tickets, and to hash marks */
	const struct users *users;
	struct used_ticket used[USED_SETS][USED_WAYS];
	struct failing by_address[ADDRESS_SETS][ADDRESS_WAYS];
	struct rate_limit by_name[NUM_LIMITS], of_all; /* marks share an entry by chance */
};

struct admit *admit_create(const uint8_t uuid[ROLL_UUID_LEN], const struct users *users)
{
	struct admit *a = calloc(1, sizeof(*a));

	if (!a || RAND_bytes(a->own_key, sizeof(a->own_key)) != 1) {
		free(a);
		return NULL;
	}
	memcpy(a->uuid, uuid, ROLL_UUID_LEN);
	a->users = users;
	return a;
}

void admit_destroy(struct admit *a)
{
	if (a)
		OPENSSL_cleanse(a, sizeof(*a));
	free(a);
}

void admit_use(struct admit *a, const struct users *users)
{
	a->users = users;
}

struct visitor {
	const void *address;
	size_t address_len;
	enum admit_as as;
	const uint8_t *mark, *nonce;
};

/*
 * All users of this machine share 127.0.0.1 and ::1: a limit there would let one of them lock the others out. It would not slow
 * down guessing, either, because each of them may use all of 127.0.0.0/8.
 */
static bool is_loopback(const struct visitor *v)
{
	static const uint8_t six[8];
	const uint8_t *bytes = v->address;

	return v->address_len == sizeof(struct in_addr)
		       ? bytes[0] == 127
		       : v->address_len == sizeof(six) && memcmp(bytes, six, sizeof(six)) == 0;
}

/* ---- rate limits ---------------------------------------------------------------------- */

static uint32_t hash(const struct admit *a, const void *bytes, size_t len)
{
	uint64_t key[2];

	memcpy(key, a->own_key, sizeof(key));
	return (uint32_t)siphash(key, bytes, len);
}

/* Forgets the failures whose time has passed. Returns how many are left. */
static unsigned int failures_of(struct rate_limit *p, uint64_t now, uint64_t again)
{
	uint64_t forgotten = now > p->since ? (now - p->since) / again : 0;

	if (forgotten) {
		p->failures = forgotten < p->failures ? p->failures - (unsigned int)forgotten : 0;
		p->since += forgotten * again;
	}
	return p->failures;
}

static void count_failure(struct rate_limit *p, uint64_t now)
{
	if (p->failures++ == 0)
		p->since = now;
}

static struct rate_limit *limit_of_name(struct admit *a, const struct visitor *v)
{
	uint8_t key[1 + ADMIT_MARK_LEN];

	key[0] = (uint8_t)v->as;
	memcpy(key + 1, v->mark, ADMIT_MARK_LEN);
	return &a->by_name[hash(a, key, sizeof(key)) % NUM_LIMITS];
}

static struct failing *set_of_address(struct admit *a, const struct visitor *v)
{
	return a->by_address[hash(a, v->address, v->address_len) % ADDRESS_SETS];
}

/* Returns NULL if the address has not failed lately, or not within memory. */
static struct rate_limit *limit_of_address(struct admit *a, const struct visitor *v)
{
	struct failing *set = set_of_address(a, v);

	for (unsigned int i = 0; i < ADDRESS_WAYS; i++)
		if (set[i].length == v->address_len &&
		    memcmp(set[i].address, v->address, v->address_len) == 0)
			return &set[i].limit;
	return NULL;
}

/* Takes the place of the address with the fewest failures. */
static struct rate_limit *add_address(struct admit *a, const struct visitor *v, uint64_t now)
{
	struct failing *set = set_of_address(a, v), *least = NULL;
	unsigned int fewest = 0;

	for (unsigned int i = 0; i < ADDRESS_WAYS; i++) {
		unsigned int failures = failures_of(&set[i].limit, now, ADDRESS_AGAIN);

		if (least && failures >= fewest)
			continue;
		least = &set[i];
		fewest = failures;
	}
	*least = (struct failing){.length = (uint8_t)v->address_len};
	memcpy(least->address, v->address, v->address_len);
	return &least->limit;
}

/*
 * Returns whether a proof may be checked. Others can fail for any name, so what they do makes no difference to an address
 * that has not failed itself; what that costs is bounded by what an address may try.
 */
static bool may_try(struct admit *a, uint64_t now, const struct visitor *v)
{
	struct rate_limit *address = limit_of_address(a, v);
	unsigned int failures = address ? failures_of(address, now, ADDRESS_AGAIN) : 0;

	if (failures == 0 || is_loopback(v))
		return true;
	return failures < ADDRESS_TRIES &&
	       failures_of(limit_of_name(a, v), now, NAME_AGAIN) < NAME_TRIES &&
	       failures_of(&a->of_all, now, ALL_AGAIN) < ALL_TRIES;
}

static void note_failure(struct admit *a, uint64_t now, const struct visitor *v)
{
	struct rate_limit *address = limit_of_address(a, v);

	count_failure(address ? address : add_address(a, v, now), now);
	count_failure(limit_of_name(a, v), now);
	count_failure(&a->of_all, now);
}

/* ---- tickets ------------------------------------------------------------------------------ */

/* made: in ticks. The ticket has the low 32 bits of it, and its MAC covers all. */
static bool make_ticket(struct admit *a, uint64_t made, const struct visitor *v,
			uint8_t ticket[ADMIT_TICKET_LEN])
{
	uint8_t as = (uint8_t)v->as, mac[ADMIT_MAC_LEN];
	uint32_t low = htole32((uint32_t)made);
	uint64_t when = htole64(made);
	const struct mac_part parts[] = {{"ticket", 6},
					 {&when, sizeof(when)},
					 {&as, 1},
					 {v->mark, ADMIT_MARK_LEN},
					 {v->nonce, ADMIT_NONCE_LEN},
					 {v->address, v->address_len}};

	if (!admit_mac(a->own_key, sizeof(a->own_key), parts, sizeof(parts) / sizeof(parts[0]),
		       mac))
		return false;
	memcpy(ticket, &low, sizeof(low));
	memcpy(ticket + sizeof(low), mac, ADMIT_TICKET_LEN - sizeof(low));
	return true;
}

/* Returns the last tick until now whose low bits are those of the ticket. */
static uint64_t tick_of(const uint8_t *ticket, uint64_t now)
{
	uint64_t tick = now >> TICK_SHIFT;
	uint32_t low;

	memcpy(&low, ticket, sizeof(low));
	return tick - (uint32_t)((uint32_t)tick - le32toh(low));
}

/* Returns whether this process made the ticket, for this visitor, and it has not expired. */
static bool is_ticket_good(struct admit *a, uint64_t now, const struct visitor *v,
			   const uint8_t *ticket)
{
	uint8_t mine[ADMIT_TICKET_LEN];
	uint64_t made = tick_of(ticket, now);

	return make_ticket(a, made, v, mine) &&
	       CRYPTO_memcmp(mine, ticket, ADMIT_TICKET_LEN) == 0 &&
	       now - (made << TICK_SHIFT) < TICKET_LIFE;
}

/* A ticket ends with a MAC, so tickets spread evenly over the sets. */
static struct used_ticket *set_of(struct admit *a, const uint8_t *ticket)
{
	uint32_t at;

	memcpy(&at, ticket + ADMIT_TICKET_LEN - sizeof(at), sizeof(at));
	return a->used[at % USED_SETS];
}

/*
 * Uses a ticket up: it admits once. Wrong proofs use none, so that strangers cannot fill the table. -EACCES: it was used;
 * -EAGAIN: too many at once.
 */
static int use_ticket(struct admit *a, uint64_t now, const uint8_t *ticket)
{
	struct used_ticket *set = set_of(a, ticket), *free_one = NULL;

	for (unsigned int i = 0; i < USED_WAYS; i++) {
		struct used_ticket *u = &set[i];

		if (u->made == 0 || now - u->made >= TICKET_LIFE)
			free_one = u;
		else if (memcmp(u->ticket, ticket, ADMIT_TICKET_LEN) == 0)
			return -EACCES;
	}
	if (!free_one)
		return -EAGAIN;
	free_one->made = now ? now : 1;
	memcpy(free_one->ticket, ticket, ADMIT_TICKET_LEN);
	return 0;
}

/* ---- greetings ------------------------------------------------------------------------------ */

static size_t make_refusal(void *reply, bool later)
{
	struct admit_head head = admit_head(ADMIT_REFUSAL, 0);

	head.extra = later;
	memcpy(reply, &head, sizeof(head));
	return sizeof(head);
}

static size_t make_challenge(struct admit *a, uint64_t now, const struct visitor *v,
			     const struct admit_place *place, void *reply)
{
	struct admit_challenge c = {.head = admit_head(ADMIT_CHALLENGE, v->as)};
	uint64_t epoch = htole64(place->epoch);

	if (!make_ticket(a, now >> TICK_SHIFT, v, c.ticket))
		return make_refusal(reply, true);
	memcpy(c.uuid, a->uuid, sizeof(c.uuid));
	memcpy(c.epoch, &epoch, sizeof(epoch));
	if (place->primary)
		strncpy(c.primary, place->primary, sizeof(c.primary) - 1);
	memcpy(reply, &c, sizeof(c));
	return sizeof(c);
}

static const struct user *user_of(const struct admit *a, enum admit_as as,
				  const uint8_t mark[ADMIT_MARK_LEN])
{
	const struct user *s =
		as == ADMIT_NODE ? users_find_node(a->users) : users_find_mark(a->users, mark);

	return s && (as == ADMIT_NODE || !(s->rights & USER_RIGHT_NODE)) ? s : NULL;
}

/* Names a visitor for the logs: a name has no '#', and nodes say their names after they are admitted. */
static void name_visitor(struct admit_session *session, const struct user *user)
{
	int at = 1;

	if (user && session->as == ADMIT_CLIENT) {
		memcpy(session->name, user->name, sizeof(session->name));
		return;
	}
	strcpy(session->name, "#");
	for (unsigned int i = 0; i < ADMIT_MARK_LEN; i++)
		at += sprintf(session->name + at, "%02x", session->mark[i]);
}

/* Compares the proof with that of one of the user's secrets. */
static bool is_proof_of(const struct admit_session *session, const struct admit_proof *proof,
			const char *secret)
{
	uint8_t mac[ADMIT_MAC_LEN];
	bool same;

	if (!admit_proof_mac(session, secret, mac))
		return false;
	same = CRYPTO_memcmp(mac, proof->mac, sizeof(proof->mac)) == 0;
	OPENSSL_cleanse(mac, sizeof(mac));
	return same;
}

/*
 * Checks the proof, and fills in the session. Takes the same time whether a user has the mark or not, and has one secret
 * or two.
 */
static bool is_proven(struct admit *a, const struct visitor *v, const struct admit_proof *proof,
		      struct admit_session *session)
{
	static const char nobody[] =
		"there is nobody of that name: 0123456789 0123456789 0123456789 0";
	const struct user *s = user_of(a, v->as, v->mark);
	bool proven = false;

	session->rights = s ? s->rights : 0;
	memcpy(session->uuid, a->uuid, ROLL_UUID_LEN);
	memcpy(session->nonce, proof->nonce, ADMIT_NONCE_LEN);
	memcpy(session->ticket, proof->ticket, ADMIT_TICKET_LEN);
	for (unsigned int i = 0; i < USER_SECRETS; i++) {
		const char *secret = s ? user_secret(s, i) : NULL;

		if (!is_proof_of(session, proof, secret ? secret : nobody) || !secret)
			continue;
		session->secret = i;
		proven = true;
	}
	return proven;
}

static bool is_head(const struct admit_head *h, const void *greeting, size_t len,
		    enum admit_kind kind, size_t fixed)
{
	return len >= fixed && admit_is_head(greeting, len, kind) &&
	       (h->as == ADMIT_CLIENT || h->as == ADMIT_NODE) && h->extra == 0;
}

static enum admit_verdict judge_proof(struct admit *a, uint64_t now, struct visitor *v,
				      const struct admit_proof *proof, void *reply,
				      size_t *reply_len, struct admit_session *session)
{
	int rc;

	session->as = v->as;
	memcpy(session->mark, v->mark, sizeof(session->mark));
	name_visitor(session, user_of(a, v->as, v->mark));
	if (!may_try(a, now, v)) {
		*reply_len = make_refusal(reply, true);
		return ADMIT_NO;
	}
	/*
	 * An unknown or expired ticket: a restarted node does not know tickets of its predecessor. No secret was
	 * tried.
	 */
	if (!is_ticket_good(a, now, v, proof->ticket)) {
		*reply_len = make_refusal(reply, true);
		return ADMIT_NO;
	}
	rc = is_proven(a, v, proof, session) ? use_ticket(a, now, proof->ticket) : -EACCES;
	if (rc == 0)
		return ADMIT_YES;
	if (rc == -EAGAIN) {
		*reply_len = make_refusal(reply, true);
		return ADMIT_NO;
	}
	note_failure(a, now, v);
	*reply_len = make_refusal(reply, false);
	return ADMIT_NO;
}

enum admit_verdict admit_judge(struct admit *a, uint64_t now, const void *address,
			       size_t address_len, const struct admit_place *place,
			       const void *greeting, size_t len, void *reply, size_t *reply_len,
			       struct admit_session *session)
{
	struct visitor v = {.address = address, .address_len = address_len};
	struct admit_head head;
	struct admit_hello hello;
	struct admit_proof proof;

	assert(address_len > 0 && address_len <= ADMIT_ADDRESS_MAX);
	*reply_len = make_refusal(reply, false);
	*session = (struct admit_session){0};
	if (len < sizeof(head))
		return ADMIT_NO;
	memcpy(&head, greeting, sizeof(head));
	v.as = head.as;
	if (is_head(&head, greeting, len, ADMIT_HELLO, sizeof(hello))) {
		memcpy(&hello, greeting, sizeof(hello));
		v.mark = hello.mark;
		v.nonce = hello.nonce;
		*reply_len = make_challenge(a, now, &v, place, reply);
		return ADMIT_NO;
	}
	if (!is_head(&head, greeting, len, ADMIT_PROOF, sizeof(proof)))
		return ADMIT_NO;
	memcpy(&proof, greeting, sizeof(proof));
	v.mark = proof.mark;
	v.nonce = proof.nonce;
	return judge_proof(a, now, &v, &proof, reply, reply_len, session);
}

int admit_make_welcome(struct admit *a, const struct admit_session *session, const void *facts,
		       size_t facts_len, void *reply)
{
	struct admit_welcome w = {.head = admit_head(ADMIT_WELCOME, session->as)};
	const struct user *s = user_of(a, session->as, session->mark);
	const char *secret = s ? user_secret(s, session->secret) : NULL;

	if (facts_len > ADMIT_FACTS_MAX)
		return -EMSGSIZE;
	w.head.extra = (uint8_t)session->rights;
	w.facts_len = (uint8_t)facts_len;
	if (!secret || !admit_welcome_mac(session, secret, &w.head, facts, facts_len, w.mac))
		return -EACCES;
	memcpy(reply, &w, sizeof(w));
	if (facts_len)
		memcpy((uint8_t *)reply + sizeof(w), facts, facts_len);
	return (int)(sizeof(w) + facts_len);
}
