/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool_use.h - stag pool: what its files share.
 *
 *	pool.c          the command line
 *	pool_where.c    finds the nodes of a pool, and the user to authenticate as
 *	pool_wait.c     waits for what is about to come
 *	pool_list.c     list: the pools that this user has
 *	pool_make.c     create, join: make a directory for a node
 *	pool_value.c    put, get, update, rm, ls
 *	pool_incr.c     incr
 *	pool_shell.c    shell: many commands over one connection
 *	pool_edit.c     edits a line of the shell, with completion and history
 *	pool_status.c   status, watch, switchover, forget
 *	pool_load.c     load: make many changes, then check them
 */
#ifndef STAG_APP_POOL_USE_H
#define STAG_APP_POOL_USE_H

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registry.h"
#include "cli.h"
#include "secrets.h"
#include "stag/pool.h"

#define POOL_LOAD_CLIENTS     4
#define POOL_LOAD_CLIENTS_MAX 64
#define POOL_LOAD_SIZE	      64 /* bytes of a value */
#define POOL_LOAD_SIZE_MAX    (64u << 10)

struct pool_use {
	/* its name, a node's directory or INI file, or HOST[:PORT],...; NULL: STAG_POOL, or the only pool */
	const char *pool;
	char **args; /* the arguments after it */
	int num_args;
	const char *user, *secret_file, *tls, *tls_cert, *tls_key, *tls_ca;
	const char *node, *dir, *roll, *address, *advertise, *port, *size, *memory, *clients;
	const char *from, *secrets;
	const char *version, *value, *file, *pointer, *by;
	double wait;	 /* seconds, for what is about to come */
	double interval; /* of watch: seconds */
	uint64_t count;	 /* of watch: 0: no end */
	double seconds;	 /* of load: 0: no end */
	uint32_t load_clients, load_size;
	struct stag_pool *shared; /* the shell's connection, or NULL */
	bool in_script;		  /* commands are read from standard input */
	bool json, exclusive, insert, details, serve, force, overwrite;
};

/* ---- pool_wait.c ----------------------------------------------------------- */

struct pool_wait {
	uint64_t since, until, nap_ns;
	double seconds; /* 0: does not wait */
	bool quiet, has_thread;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t end;
	bool ended, told;
	char whom[1200]; /* "": not known yet */
};

/* Begins to wait, for u->wait seconds at most. pool_wait_end() is required. */
void pool_wait_begin(struct pool_wait *w, const struct pool_use *u);
void pool_wait_end(struct pool_wait *w);
/* Says for whom, as "waiting up to 10 s for ...", once it takes more than a moment. */
void pool_wait_for(struct pool_wait *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Naps before the next attempt. Returns false if the time is over. */
bool pool_wait_more(struct pool_wait *w);
int pool_wait_left_ms(const struct pool_wait *w);

/* ---- pool_where.c ---------------------------------------------------------- */

struct pool_where {
	char name[1024];  /* for messages */
	char nodes[1024]; /* as stag_pool_open() takes them */
	char user[SECRET_NAME_LEN];
	char secret[STAG_POOL_SECRET_MAX + 1];
	uint32_t tls;						      /* enum stag_pool_tls */
	char tls_cert[PATH_MAX], tls_key[PATH_MAX], tls_ca[PATH_MAX]; /* "": none */
};

enum pool_found {
	POOL_FOUND,
	POOL_NOT_YET, /* it may be made soon */
	POOL_WRONG,   /* it has complained */
};

/*
 * Returns the first node of the pool of this name that this user has, or NULL with *found: POOL_NOT_YET, or POOL_WRONG if there
 * are several such pools.
 */
const struct registry_node *pool_use_registered(const struct registry *r, const char *pool,
						enum pool_found *found);
/* Finds a pool of the registry. Returns false after it has complained. */
bool pool_use_find_registered(const struct pool_use *u, const struct registry *r,
			      const struct registry_node *first, struct pool_where *w);
/* Opens a pool that was found. Returns NULL without complaining. timeout_ms: as in struct stag_pool_attr */
struct stag_pool *pool_use_connect(const struct pool_use *u, struct pool_where *w, int retry_ms,
				   int timeout_ms);
/* Finds and opens the pool, and waits for it. Returns NULL after it has complained. */
struct stag_pool *pool_use_open(const struct pool_use *u, int retry_ms);
/* Closes it, unless it is the shell's. */
void pool_use_close(const struct pool_use *u, struct stag_pool *pool);

/* ---- pool.c ---------------------------------------------------------------- */

struct pool_verb {
	struct cli_verb cli;
	int (*run)(const struct pool_use *u);
	enum { ALONE, WITH_ADAPTER } needs;
	/* what must follow POOL; if no more than that is given, POOL was left out */
	enum { NOTHING, A_NODE, A_NAME, A_VALUE } follows;
	enum { NOT_IN_SHELL, IN_SHELL } shell; /* is it a command of the shell, too? */
};

extern const struct cli_noun pool_noun; /* its verbs are struct pool_verb */

/* ---- pool_edit.c: lines that a user types ---------------------------------- */

/* What may follow the words that are typed so far. */
struct pool_offers {
	char **list;
	size_t count, room;
	size_t typed; /* how many bytes of the line the word to complete has, quotes included */
	bool goes_on; /* no space follows the word */
};

/* Finds what may stand at the end of this text. */
typedef void (*pool_complete_fn)(const char *text, struct pool_offers *offers);
void pool_offers_add(struct pool_offers *o, const char *word);
void pool_offers_free(struct pool_offers *o);

/* Begins to read lines from the terminal. Returns false if it has no line editing. */
bool pool_edit_begin(const char *prompt, pool_complete_fn complete);
/* Returns the next line, which is valid until the next call; NULL at the end. */
const char *pool_edit_line(void);
void pool_edit_end(void);

/* ---- pool_value.c: one operation -------------------------------------------- */

/*
 * Parses the arguments after the pool: a name, unless --pointer is given, then a value or nothing. word NULL: there is no
 * value. Returns false after it has complained.
 */
bool pool_value_target(const struct pool_use *u, struct stag_pool_io *io, const char **what,
		       const char **word);
/* Runs an operation and waits for it, with progress; what: its name. Returns done->error. */
int pool_value_run(struct stag_pool *pool, const struct stag_pool_io *io, const char *what,
		   struct stag_pool_done *done);
/* Explains why an operation failed, and what to do. */
void pool_value_explain(const char *what, const struct stag_pool_done *d,
			const struct stag_pool_io *io);
json_t *pool_value_json(const char *name, const struct stag_pool_ptr *ptr, uint64_t version,
			uint64_t length);

/* ---- pool_make.c, pool_value.c, pool_incr.c, pool_status.c, pool_load.c, pool_list.c: exit codes ------------------------ */

int pool_use_create(const struct pool_use *u);
int pool_use_join(const struct pool_use *u);

int pool_use_put(const struct pool_use *u);
int pool_use_get(const struct pool_use *u);
int pool_use_update(const struct pool_use *u);
int pool_use_incr(const struct pool_use *u);
int pool_use_rm(const struct pool_use *u);
int pool_use_ls(const struct pool_use *u);

int pool_use_status(const struct pool_use *u);
int pool_use_watch(const struct pool_use *u);
int pool_use_switchover(const struct pool_use *u);
int pool_use_forget(const struct pool_use *u);

int pool_use_shell(const struct pool_use *u);

int pool_use_load(const struct pool_use *u);
int pool_use_secret(const struct pool_use *u); /* u->pool: rotate or status; u->args: the pool */

int pool_use_list(const struct pool_use *u);

#endif
