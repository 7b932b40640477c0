/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * secrets.h - the file of a pool's users, their rights and secrets: lines of
 *
 *	NAME RIGHTS SECRET [also=SECRET] [prefix=PREFIX]...
 *
 * RIGHTS are read, write, admin and node, separated by commas. SECRET has 16 to 128 characters without blanks. With
 * also=, another secret is accepted, too, while the secret is rotated. With prefixes,
 * the user may read and write only values whose names begin with one of them; they contain no blanks. Text after a # is a comment. One line has the right "node": nodes authenticate with its secret, under their own names. Only the
 * file's owner may read it.
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
	char also[STAG_POOL_SECRET_MAX + 1]; /* another one that is accepted, too; empty: none */
	uint32_t num_prefixes;
	const char *prefixes[STAG_POOL_PREFIXES_MAX]; /* of names; allocated */
};

struct secrets {
	struct secret *list;
	unsigned int count;
};

/* Returns -EPERM if others may read the file, -EBADMSG if a line is invalid, which it logs. */
int secrets_load(int dir, const char *name, struct secrets *secrets);
/* Parses a text in memory; `what` names it in messages. */
int secrets_parse(const char *text, const char *what, struct secrets *secrets);
/*
 * Replaces the secrets in the line with the right "node" of a file; other lines and comments stay as they are. also: "" or
 * the second one. -ENOENT: there is no such line; -ELOOP: the file is a symbolic link; -EPERM: the file is another user's, who could not read it afterwards.
 */
int secrets_replace_node(int dir, const char *name, const char *secret, const char *also);
int secrets_save(int dir, const char *name, const struct secrets *secrets);
void secrets_free(struct secrets *secrets); /* overwrites the secrets in memory */

int secret_make(char text[STAG_POOL_SECRET_MAX + 1]); /* generates a random secret */
const struct secret *secrets_find(const struct secrets *secrets, const char *name);
const struct secret *secrets_of_nodes(const struct secrets *secrets);

#endif
