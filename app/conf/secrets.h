/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * secrets.h - who may come in, with what rights: a file of lines
 *
 *	NAME RIGHTS SECRET
 *
 * RIGHTS are read, write, admin, node, with commas between them. SECRET is 16 to 128 characters without blanks. What
 * follows a # is a comment. The one line with the right "node" is the pool's own: nodes prove themselves with its
 * secret, under their own names. The file is its owner's only.
 */
#ifndef STAG_SECRETS_H
#define STAG_SECRETS_H

#include <stddef.h>
#include <stdint.h>

#include "base/name.h"
#include "stag/pool.h"

#define SECRET_NAME_LEN NAME_LEN

enum secret_right {
	RIGHT_READ = STAG_POOL_RIGHT_READ,
	RIGHT_WRITE = STAG_POOL_RIGHT_WRITE,
	RIGHT_ADMIN = STAG_POOL_RIGHT_ADMIN,
	RIGHT_NODE = 8
};

struct secret {
	char name[SECRET_NAME_LEN];
	uint32_t rights;
	char text[STAG_POOL_SECRET_MAX + 1];
};

struct secrets {
	struct secret *list;
	unsigned int count;
};

/* -EPERM: others may read it. -EBADMSG: a line is wrong, and the log says which. */
int secrets_load(int dir, const char *name, struct secrets *secrets);
/* The same of a text that is there already; `what` is for messages. */
int secrets_parse(const char *text, const char *what, struct secrets *secrets);
int secrets_save(int dir, const char *name, const struct secrets *secrets);
void secrets_free(struct secrets *secrets); /* leaves nothing in memory */

int secret_make(char text[STAG_POOL_SECRET_MAX + 1]); /* a new one, that nobody guesses */
const struct secret *secrets_find(const struct secrets *secrets, const char *name);
const struct secret *secrets_of_nodes(const struct secrets *secrets);

#endif
