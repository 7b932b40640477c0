/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * users.h - the users that a node admits: names with a secret and rights.
 *
 * The one entry with USER_RIGHT_NODE is the pool's own: nodes prove to each other that they know its secret, under their
 * own names.
 */
#ifndef STAG_POOL_USERS_H
#define STAG_POOL_USERS_H

#include <stdint.h>

#include "base/name.h"
#include "stag/pool.h"

#define USER_RIGHT_NODE (1u << 3) /* beside STAG_POOL_RIGHT_* */

struct user {
	char name[NAME_LEN];
	uint32_t rights; /* STAG_POOL_RIGHT_*, USER_RIGHT_NODE */
	char secret[STAG_POOL_SECRET_MAX + 1];
};

struct users {
	struct user *list;
	unsigned int count;
};

const struct user *users_find(const struct users *users, const char *name); /* NULL: unknown */
const struct user *users_find_node(const struct users *users); /* the nodes' entry; NULL: none */
void users_free(struct users *users); /* overwrites the secrets, and frees the list */

#endif
