/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool_use.h - stag pool: what its files share.
 *
 *	pool.c          the command line
 *	pool_where.c    finds the nodes of a pool, and the user to authenticate as
 *	pool_make.c     create, join: make a directory for a node
 *	pool_value.c    put, get, update, rm, ls
 *	pool_status.c   status, watch, switchover, forget
 *	pool_load.c     load: make many changes, then check them
 */
#ifndef STAG_APP_POOL_USE_H
#define STAG_APP_POOL_USE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "secrets.h"
#include "stag/pool.h"

#define POOL_LOAD_CLIENTS     4
#define POOL_LOAD_CLIENTS_MAX 64
#define POOL_LOAD_SIZE	      64 /* bytes of a value */
#define POOL_LOAD_SIZE_MAX    (64u << 10)

struct pool_use {
	const char *pool; /* its name, a node's directory or INI file, or HOST[:PORT],... */
	char **args;	  /* the arguments after it */
	int num_args;
	const char *user, *secret_file;
	const char *node, *dir, *roll, *address, *advertise, *port, *size, *memory, *clients;
	const char *from, *secrets;
	const char *version, *value, *pointer;
	double interval; /* of watch: seconds */
	uint64_t count;	 /* of watch: 0: no end */
	double seconds;	 /* of load: 0: no end */
	uint32_t load_clients, load_size;
	bool json, exclusive, insert, details, serve, force, overwrite;
};

/* ---- pool_where.c ---------------------------------------------------------- */

struct pool_where {
	char nodes[1024]; /* as stag_pool_open() takes them */
	char user[SECRET_NAME_LEN];
	char secret[STAG_POOL_SECRET_MAX + 1];
};

/* Finds the INI file of the first node of a pool on this machine, in conf_state_dir(). Returns false if there is none. */
bool pool_use_first_ini(const char *pool, char *path, size_t size);
/* Does one of these nodes have this port? The node whose INI file is `but` does not count. */
bool pool_use_has_port(const char *pool, unsigned int port, const char *but);
/* Returns false after it has complained. */
bool pool_use_find(const struct pool_use *u, struct pool_where *w);
/* Returns NULL after it has complained. */
struct stag_pool *pool_use_open(const struct pool_use *u, int retry_ms);

/* ---- pool_make.c, pool_value.c, pool_status.c, pool_load.c: exit codes ------------------------ */

int pool_use_create(const struct pool_use *u);
int pool_use_join(const struct pool_use *u);

int pool_use_put(const struct pool_use *u);
int pool_use_get(const struct pool_use *u);
int pool_use_update(const struct pool_use *u);
int pool_use_rm(const struct pool_use *u);
int pool_use_ls(const struct pool_use *u);

int pool_use_status(const struct pool_use *u);
int pool_use_watch(const struct pool_use *u);
int pool_use_switchover(const struct pool_use *u);
int pool_use_forget(const struct pool_use *u);

int pool_use_load(const struct pool_use *u);

#endif
