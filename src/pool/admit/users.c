// SPDX-License-Identifier: BSD-2-Clause
/*
 * users.c - the list of users that a node admits (users.h).
 */
#include "pool/admit/users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

bool admit_mark_name(const char *name, uint8_t mark[ADMIT_MARK_LEN])
{
	static const char first[] = "stag pool name:";
	char text[sizeof(first) + NAME_LEN];
	uint8_t digest[EVP_MAX_MD_SIZE];
	int len = snprintf(text, sizeof(text), "%s%.*s", first, NAME_LEN - 1, name);

	if (EVP_Digest(text, (size_t)len, digest, NULL, EVP_sha256(), NULL) != 1)
		return false;
	memcpy(mark, digest, ADMIT_MARK_LEN);
	return true;
}

const char *user_secret(const struct user *u, unsigned int which)
{
	if (which == 0)
		return u->secret;
	return which == 1 && u->also[0] ? u->also : NULL;
}

void users_free(struct users *u)
{
	if (u->list)
		OPENSSL_cleanse(u->list, u->count * sizeof(*u->list));
	free(u->list);
	*u = (struct users){0};
}

const struct user *users_find(const struct users *u, const char *name)
{
	for (unsigned int i = 0; i < u->count; i++)
		if (strcmp(u->list[i].name, name) == 0)
			return &u->list[i];
	return NULL;
}

const struct user *users_find_mark(const struct users *u, const uint8_t mark[ADMIT_MARK_LEN])
{
	for (unsigned int i = 0; i < u->count; i++)
		if (memcmp(u->list[i].mark, mark, ADMIT_MARK_LEN) == 0)
			return &u->list[i];
	return NULL;
}

const struct user *users_find_node(const struct users *u)
{
	for (unsigned int i = 0; i < u->count; i++)
		if (u->list[i].rights & USER_RIGHT_NODE)
			return &u->list[i];
	return NULL;
}
