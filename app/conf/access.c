// SPDX-License-Identifier: BSD-2-Clause
/*
 * access.c - tokens of the management API and their roles (access.h).
 */
#include "access.h"

#include <stdlib.h>
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include "conf.h"

/* ---- roles ------------------------------------------------------------------------------ */

static const char *const role_words[] = {"none", "look", "operate", "administer"};

const char *role_word(enum role role)
{
	return role_words[role];
}

bool role_parse(const char *word, enum role *role)
{
	for (enum role r = ROLE_LOOK; r <= ROLE_ADMINISTER; r++)
		if (strcmp(role_words[r], word) == 0) {
			*role = r;
			return true;
		}
	return false;
}

/* ---- a token ---------------------------------------------------------------------------- */

bool token_is_valid(const char *text)
{
	size_t len = strlen(text);

	return len >= TOKEN_MIN && len <= TOKEN_MAX &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			    "0123456789-._~+/=") == len;
}

bool token_hash(const char *text, unsigned char hash[TOKEN_HASH_LEN])
{
	return EVP_Digest(text, strlen(text), hash, NULL, EVP_sha256(), NULL) == 1;
}

void token_make(char text[TOKEN_ROOM])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char bytes[TOKEN_ROOM - 1];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		abort(); /* never short for so few bytes */
	for (size_t i = 0; i < sizeof(bytes); i++)
		text[i] = digits[bytes[i] % 64];
	text[sizeof(bytes)] = '\0';
	explicit_bzero(bytes, sizeof(bytes));
}

void token_to_hex(const unsigned char hash[TOKEN_HASH_LEN], char hex[TOKEN_HEX_LEN + 1])
{
	for (size_t i = 0; i < TOKEN_HASH_LEN; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

bool token_from_hex(const char *hex, unsigned char hash[TOKEN_HASH_LEN])
{
	if (strlen(hex) != TOKEN_HEX_LEN || strspn(hex, "0123456789abcdef") != TOKEN_HEX_LEN)
		return false;
	for (size_t i = 0; i < TOKEN_HASH_LEN; i++) {
		const char two[] = {hex[2 * i], hex[2 * i + 1], '\0'};

		hash[i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return true;
}

/* ---- all of them --------------------------------------------------------------------------- */

bool access_add(struct access *a, const struct token *token)
{
	struct token *list = realloc(a->list, (a->count + 1) * sizeof(*list));

	if (!list)
		return false;
	a->list = list;
	list[a->count] = *token;
	list[a->count].file = token->file ? strdup(token->file) : NULL;
	return list[a->count++].file || !token->file;
}

static bool add_section(struct access *a, const struct conf_token *c)
{
	struct token token = {
		.role = (enum role)(c->role + ROLE_LOOK), .file = c->file, .dropin = c->at.dropin};

	memcpy(token.name, c->at.name, strnlen(c->at.name, NAME_LEN - 1));
	memcpy(token.hash, c->token_hash, sizeof(token.hash));
	return access_add(a, &token);
}

static bool add_token_of_api(struct access *all, const struct conf_api *a)
{
	struct token token = {.name = CONF_API_TOKEN, .role = ROLE_ADMINISTER};

	if (!a || !a->token)
		return true;
	token.file = a->token_file;
	return token_hash(a->token, token.hash) && access_add(all, &token);
}

struct access *access_of(const struct conf *conf)
{
	struct access *a = calloc(1, sizeof(*a));
	const struct conf_token *s = NULL;
	bool good = a;

	if (a)
		a->refs = 1;
	if (good)
		good = add_token_of_api(a, conf_find(conf, &conf_api_kind, ""));
	while (good && (s = conf_next(conf, &conf_token_kind, s)))
		good = add_section(a, s);
	if (good)
		good = roots_collect(a, conf);
	if (good)
		return a;
	access_put(a);
	return NULL;
}

struct access *access_without(const struct access *a, const char *name)
{
	struct access *copy = calloc(1, sizeof(*copy));
	bool good = copy;

	if (copy)
		copy->refs = 1;
	for (unsigned int i = 0; good && i < a->count; i++)
		if (strcmp(a->list[i].name, name) != 0)
			good = access_add(copy, &a->list[i]);
	if (good && roots_copy(copy, a))
		return copy;
	access_put(copy);
	return NULL;
}

struct access *access_get(struct access *a)
{
	__atomic_add_fetch(&a->refs, 1, __ATOMIC_RELAXED);
	return a;
}

void access_put(struct access *a)
{
	if (!a || __atomic_sub_fetch(&a->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	for (unsigned int i = 0; i < a->count; i++)
		free(a->list[i].file);
	roots_free(a);
	if (a->list)
		explicit_bzero(a->list, a->count * sizeof(*a->list));
	free(a->list);
	free(a);
}

/* Compares with every one, so that the time says nothing about which it is. */
const struct token *access_find_hash(const struct access *a, const unsigned char *hash)
{
	const struct token *found = NULL;

	for (unsigned int i = 0; i < a->count; i++)
		if (CRYPTO_memcmp(a->list[i].hash, hash, TOKEN_HASH_LEN) == 0)
			found = &a->list[i];
	return found;
}

const struct token *access_find(const struct access *a, const char *text)
{
	unsigned char hash[TOKEN_HASH_LEN];

	return token_hash(text, hash) ? access_find_hash(a, hash) : NULL;
}

const struct token *access_named(const struct access *a, const char *name)
{
	for (unsigned int i = 0; i < a->count; i++)
		if (strcmp(a->list[i].name, name) == 0)
			return &a->list[i];
	return NULL;
}
