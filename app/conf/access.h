/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.h - who may use the management API, and which paths its requests may name.
 *
 * A token is random text that its bearer sends. Only its hash is kept: in the INI file ([token NAME]), and in memory. A path in a
 * request must be below a root, a directory of the INI file. A struct access never changes; a reload replaces it, and whoever
 * still uses the old one holds a reference.
 *
 *	access.c  tokens and roles
 *	roots.c   paths
 */
#ifndef STAG_APP_ACCESS_H
#define STAG_APP_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/name.h"

/* Roles: rights of a client; each role includes those before it. */
enum role {
	ROLE_NONE,
	ROLE_LOOK,	 /* status, metrics, events: nothing that users have stored */
	ROLE_OPERATE,	 /* switch over, check, reload; read and write values */
	ROLE_ADMINISTER, /* create and remove; tokens; the audit log */
};

#define TOKEN_MIN      16 /* characters of a token */
#define TOKEN_MAX      256
#define TOKEN_ROOM     44 /* of one that token_make() makes, with its terminating zero */
#define TOKEN_HASH_LEN 32
#define TOKEN_HEX_LEN  (2 * TOKEN_HASH_LEN)

const char *role_word(enum role role);
bool role_parse(const char *word, enum role *role); /* look, operate, administer */

struct token {
	char name[NAME_LEN];
	enum role role;
	unsigned char hash[TOKEN_HASH_LEN];
	char *file;  /* that holds the token, or NULL */
	bool dropin; /* it was made by the API or by 'stag token', and can be revoked by them */
};

struct access {
	unsigned int refs; /* atomic */
	unsigned int count;
	struct token *list;
	unsigned int num_roots;
	char **roots; /* directories; absolute */
	unsigned int num_own;
	char **own; /* files and directories of the daemon's own: no request may use one as storage */
};

struct conf;

bool token_is_valid(const char *text); /* its length and characters */
bool token_hash(const char *text, unsigned char hash[TOKEN_HASH_LEN]);
void token_make(char text[TOKEN_ROOM]); /* 32 random bytes */
void token_to_hex(const unsigned char hash[TOKEN_HASH_LEN], char hex[TOKEN_HEX_LEN + 1]);
bool token_from_hex(const char *hex, unsigned char hash[TOKEN_HASH_LEN]);

/* Collects the tokens of [api] and of each [token NAME], and the roots. Returns NULL if memory runs out. */
struct access *access_of(const struct conf *conf);
struct access *access_get(struct access *a);
void access_put(struct access *a); /* NULL: does nothing */
/* Returns a copy without the token of that name; NULL if memory runs out. */
struct access *access_without(const struct access *a, const char *name);
/* Adds a token while nobody else has the struct. Returns false if memory runs out. */
bool access_add(struct access *a, const struct token *token);
/* Return NULL if there is none. The time that access_find() takes tells nothing about the tokens. */
const struct token *access_find(const struct access *a, const char *text);
const struct token *access_find_hash(const struct access *a, const unsigned char *hash);
const struct token *access_named(const struct access *a, const char *name);

/* ---- roots.c ------------------------------------------------------------------------------ */

/* Adds the directories of [api] roots or, without that setting, those that the file uses already. Returns false if memory runs out. */
bool roots_collect(struct access *a, const struct conf *conf);
bool roots_copy(struct access *to, const struct access *from); /* false: memory runs out */
void roots_free(struct access *a);

/*
 * Checks that an absolute path is below a root, with every symbolic link followed. The last part need not exist. Returns the path
 * without links in *real, to be freed: nobody but root and this user can replace a directory in it, so it stays what was checked.
 * Returns -EXDEV (it is not below a root), -EPERM (others may change a directory on the way), -ENOSYS (the kernel cannot check it), another -errno; why
 * says it.
 */
int roots_resolve(const struct access *a, const char *path, char **real, char *why, size_t size);
/*
 * Is this path, which roots_resolve() returned, one of the daemon's own files or below one of its directories: INI files and
 * drop-ins, secrets, tokens, keys, the audit log, the state of its pools and targets? As storage, it would let a client that may
 * write there decide what the daemon does.
 */
bool roots_is_own(const struct access *a, const char *real);
/* Returns why a root does not protect (others may write there), for warnings; NULL: it does. */
const char *root_weakness(const char *root);

#endif
