// SPDX-License-Identifier: BSD-2-Clause
/* client.c - admission: the visitor's side of admit.h, and what both sides compute. */
#include "pool/admit/mac.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <openssl/rand.h>

static const char magic[] = {'S', 't', 'g', 'P'};

struct admit_head admit_head(enum admit_kind kind, enum admit_as as)
{
	struct admit_head h = {.version = ADMIT_VERSION, .kind = (uint8_t)kind, .as = (uint8_t)as};

	memcpy(h.magic, magic, sizeof(magic));
	return h;
}

bool admit_is_head(const void *greeting, size_t len, enum admit_kind kind)
{
	struct admit_head h;

	if (len < sizeof(h))
		return false;
	memcpy(&h, greeting, sizeof(h));
	return memcmp(h.magic, magic, sizeof(magic)) == 0 && h.version == ADMIT_VERSION &&
	       h.kind == kind;
}

static bool mac_parts(EVP_MAC_CTX *c, const void *key, size_t key_len, const struct mac_part *parts,
		      unsigned int num_parts, uint8_t mac[ADMIT_MAC_LEN])
{
	char digest[] = "SHA256";
	OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
			       OSSL_PARAM_construct_end()};
	size_t len;

	if (!EVP_MAC_init(c, key, key_len, params))
		return false;
	for (unsigned int i = 0; i < num_parts; i++)
		if (parts[i].len && !EVP_MAC_update(c, parts[i].at, parts[i].len))
			return false;
	return EVP_MAC_final(c, mac, &len, ADMIT_MAC_LEN) && len == ADMIT_MAC_LEN;
}

bool admit_mac(const void *key, size_t key_len, const struct mac_part *parts,
	       unsigned int num_parts, uint8_t mac[ADMIT_MAC_LEN])
{
	EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *c = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
	bool good = c && mac_parts(c, key, key_len, parts, num_parts, mac);

	EVP_MAC_CTX_free(c);
	EVP_MAC_free(hmac);
	return good;
}

static bool session_mac(const struct admit_session *s, const char *secret, const char first[16],
			const struct admit_head *head, const void *facts, size_t facts_len,
			uint8_t *mac)
{
	uint8_t as = (uint8_t)s->as;
	const struct mac_part parts[] = {
		{first, 16},
		{&as, 1},
		{s->uuid, ROLL_UUID_LEN},
		{s->mark, ADMIT_MARK_LEN},
		{s->nonce, ADMIT_NONCE_LEN},
		{s->ticket, ADMIT_TICKET_LEN},
		{head, head ? sizeof(*head) : 0},
		{facts, facts_len},
	};

	return admit_mac(secret, strlen(secret), parts, sizeof(parts) / sizeof(parts[0]), mac);
}

bool admit_proof_mac(const struct admit_session *s, const char *secret, uint8_t mac[ADMIT_MAC_LEN])
{
	return session_mac(s, secret, "stag pool client", NULL, NULL, 0, mac);
}

bool admit_welcome_mac(const struct admit_session *s, const char *secret,
		       const struct admit_head *head, const void *facts, size_t facts_len,
		       uint8_t mac[ADMIT_MAC_LEN])
{
	return session_mac(s, secret, "stag pool node  ", head, facts, facts_len, mac);
}

int admit_say_hello(struct admit_session *s, enum admit_as as, const char *name, void *out)
{
	struct admit_hello hello = {.head = admit_head(ADMIT_HELLO, as)};

	if (!name_is_valid(name))
		return -EINVAL;
	*s = (struct admit_session){.as = as};
	if (!admit_mark_name(name, s->mark) || RAND_bytes(s->nonce, sizeof(s->nonce)) != 1)
		return -EIO;
	memcpy(hello.mark, s->mark, sizeof(hello.mark));
	memcpy(hello.nonce, s->nonce, sizeof(hello.nonce));
	memcpy(out, &hello, sizeof(hello));
	return sizeof(hello);
}

static int refusal_error(const void *said, size_t len)
{
	struct admit_head h;

	if (len < sizeof(h))
		return -EPROTO;
	memcpy(&h, said, sizeof(h));
	if (memcmp(h.magic, magic, sizeof(magic)) == 0 && h.version != ADMIT_VERSION)
		return -EPROTONOSUPPORT;
	if (!admit_is_head(said, len, ADMIT_REFUSAL))
		return -EPROTO;
	return h.extra ? -EAGAIN : -EACCES;
}

int admit_say_proof(struct admit_session *s, const char *secret, const void *challenge, size_t len,
		    uint64_t *epoch, char primary[ROLL_ADDRESS_LEN], void *out)
{
	struct admit_proof proof = {.head = admit_head(ADMIT_PROOF, s->as)};
	struct admit_challenge c;
	uint8_t mac[ADMIT_MAC_LEN];
	uint64_t at;

	/* The reject may carry more bytes than the challenge: some adapters pad private data. */
	if (len < sizeof(c) || !admit_is_head(challenge, len, ADMIT_CHALLENGE))
		return refusal_error(challenge, len);
	memcpy(&c, challenge, sizeof(c));
	if (c.primary[ROLL_ADDRESS_LEN - 1])
		return -EPROTO;
	memcpy(s->ticket, c.ticket, sizeof(s->ticket));
	memcpy(s->uuid, c.uuid, sizeof(s->uuid));
	memcpy(proof.nonce, s->nonce, sizeof(proof.nonce));
	memcpy(proof.ticket, c.ticket, sizeof(proof.ticket));
	memcpy(proof.mark, s->mark, sizeof(proof.mark));
	if (!admit_proof_mac(s, secret, mac))
		return -EIO;
	memcpy(proof.mac, mac, sizeof(proof.mac));
	memcpy(&at, c.epoch, sizeof(at));
	*epoch = le64toh(at);
	strcpy(primary, c.primary);
	memcpy(out, &proof, sizeof(proof));
	return sizeof(proof);
}

int admit_hear_welcome(struct admit_session *s, const char *secret, const void *welcome, size_t len,
		       const void **facts)
{
	uint8_t mac[ADMIT_MAC_LEN];
	struct admit_welcome w;

	if (len < sizeof(w) || !admit_is_head(welcome, len, ADMIT_WELCOME))
		return refusal_error(welcome, len);
	memcpy(&w, welcome, sizeof(w));
	if (w.facts_len > len - sizeof(w))
		return -EPROTO;
	*facts = (const uint8_t *)welcome + sizeof(w);
	if (!admit_welcome_mac(s, secret, &w.head, *facts, w.facts_len, mac) ||
	    CRYPTO_memcmp(mac, w.mac, sizeof(mac)) != 0)
		return -EACCES;
	s->rights = w.head.extra;
	return w.facts_len;
}
