/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * users.h - the users that a node admits: names with a secret, rights, and perhaps prefixes of the names that they may use.
 *
 * The one entry with USER_RIGHT_NODE is the pool's own: nodes prove to each other that they know its secret, under their
 * own names. While a secret is rotated, an entry has two, and either is a proof.
 */
#ifndef STAG_POOL_USERS_H
#define STAG_POOL_USERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/name.h"
#include "stag/pool.h"

#define USER_RIGHT_NODE (1u << 3) /* beside STAG_POOL_RIGHT_* */

#define ADMIT_MARK_LEN 8

struct user {
	char name[NAME_LEN];
	uint8_t mark[ADMIT_MARK_LEN]; /* of the name */
	uint32_t rights;	      /* STAG_POOL_RIGHT_*, USER_RIGHT_NODE */
	char secret[STAG_POOL_SECRET_MAX + 1];
	char also[STAG_POOL_SECRET_MAX + 1]; /* another secret that is accepted, too; empty: none */
	uint32_t num_prefixes;		     /* 0: all names */
	char prefixes[STAG_POOL_PREFIXES_MAX][STAG_POOL_NAME_MAX + 1]; /* padded with zeroes */
	uint32_t clients; /* that are connected: for the node's thread only */
};

struct users {
	struct user *list;
	unsigned int count;
};

/* Computes the mark by which a name is known in greetings. Returns false without memory. */
bool admit_mark_name(const char *name, uint8_t mark[ADMIT_MARK_LEN]);

const struct user *users_find(const struct users *users, const char *name); /* NULL: unknown */
const struct user *users_find_mark(const struct users *users, const uint8_t mark[ADMIT_MARK_LEN]);
const struct user *users_find_node(const struct users *users); /* the nodes' entry; NULL: none */
/* The secrets of a user, by index: 0 is the one that the user's visitors try first. NULL: there is no such secret. */
#define USER_SECRETS 2u
const char *user_secret(const struct user *user, unsigned int which);
void users_free(struct users *users); /* overwrites the secrets, and frees the list */

#endif
