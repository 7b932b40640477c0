/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon.h - the interface of the daemon for the management API: its services, and calls to change them.
 *
 * A daemon has services, one for each section of its INI file: nodes of pools ([pool NAME]), pools that it only watches
 * ([watch NAME]), stores ([store NAME]) and targets ([target NAME]). Sections are in the main file (--config), or in drop-ins,
 * STATE/conf.d/KIND-NAME.ini, one section each, which are read after it. A drop-in's section replaces one of the same kind and
 * name in the main file. These calls write drop-ins, and never the main file.
 *
 * All calls are safe from any thread. Only daemon_pool_get() waits for the network.
 *
 * Calls return 0 or -errno, and describe the error in `why` (size bytes; may be NULL): object, cause and, if there is one, the
 * next step. `why` may have several lines, one for each fault.
 */
#ifndef STAG_APP_DAEMON_H
#define STAG_APP_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access.h"
#include "conf.h"
#include "event.h"
#include "stag/block.h"
#include "stag/pool.h"
#include "stag/store.h"

struct daemon;

/*
 * The calls of app/api that main.c passes to the daemon, so that it starts and stops [api] with the services. start returns NULL
 * and sets why on failure. stop waits for the API's threads, which may be in a reload: so a reload never calls it. status returns
 * the "api" of daemon_status(); the caller owns it.
 */
struct api;

struct daemon_api {
	struct api *(*start)(struct daemon *d, const struct conf_api *conf, struct access *access,
			     char *why, size_t size);
	/* Returns -errno if start() could not listen on its port. */
	int (*check)(const struct conf_api *conf, char *why, size_t size);
	/* Begins to accept connections; once the daemon's status has the API. */
	int (*open)(struct api *api, char *why, size_t size);
	void (*stop)(struct api *api);
	/* Replaces tokens and roots: those that are gone are refused from now on, also on open connections. conf NULL: as before. */
	void (*change)(struct api *api, const struct conf_api *conf, struct access *access);
	json_t *(*status)(struct api *api);
};

/* Reads the file and its drop-ins and starts everything, or nothing: then it logs why and returns NULL. api NULL: no [api]. */
struct daemon *daemon_start(const char *config, const struct daemon_api *api);
void daemon_stop(struct daemon *d); /* in reverse order of start; a primary hands over first */

/*
 * Returns the status of everything, with counters; the caller owns it. H is a histogram: {"count","sum_ns","max_ns","buckets":
 * [[upper_ns,count],...]}, absent if the library does not keep it. "origin": {"file": PATH, "line": N, "dropin": true|false}.
 * "now_ns": CLOCK_MONOTONIC when the counters were read; for a watched pool, when its nodes last answered.
 *
 *	{"version", "pid", "name": [daemon] name or the host's, "started": RFC3339, "uptime_s", "config": PATH, "state": DIRECTORY, "user",
 *	 "pools": [{"name", "node", "kind": "served", "port", "advertise", "now_ns", "origin", "uuid", "role", "epoch", "number", "why",
 *		    "size", "used", "objects", "bytes", "names", "clients", "changes", "reads", "records", "record_bytes", "mirrored_bytes",
 *		    "promotions", "lapses", "resyncs", "refused", "primary": NAME|null, "lag": records that the slowest standby is behind|null,
 *		    "nodes": [{"name", "address", "role", "number", "lag", "done", "total"}], "latency": {"change": H, "replication": H}}],
 *	 "watches": [{"name", "kind": "watched", "where", "now_ns", "origin", "answers": true|false, "error": TEXT|null, "since_s",
 *		    and while it answers: "uuid", "epoch", "number", "size", "used", "objects", "bytes", "names", "primary", "lag", "nodes"}],
 *	 "stores": [{"name", "path", "port", "now_ns", "origin", "label", "uuid", "size", "used", "largest_gap", "block", "generation", "copies",
 *		    "partitions": [{"name", "id", "offset", "size", "alignment", "order", "level", "cache_ms", "rights": [WORDS]}],
 *		    "counters": {"reads", "writes", "flushes", "atomics", "read_bytes", "written_bytes", "errors", "cache_hits", "cache_misses",
 *		    "cache_bytes", "connections", "refused", "evicted"}, "latency": {"read": H, "write": H, "flush": H}}],
 *	 "targets": [{"name", "iqn", "alias", "port", "now_ns", "origin", "luns": [{"lun", "where", "read_only", "write_back", "block"}], "sessions":
 *		    [{"id", "initiator", "address", "transport", "encoding", "counters"}], "counters": {...}, "latency": {"read": H, "write": H}}],
 *	 "api": {"listen", "socket", "token": true|false, "token_file", "console": true|false, ...} | null}
 *
 * role: "primary", "standby", "joining", "waiting", "refused", "unreachable".
 */
json_t *daemon_status(struct daemon *d);

/* Returns one service, as in its list above, or NULL. kind: "pool" (served here), "watch", "store", "target". */
json_t *daemon_service_status(struct daemon *d, const char *kind, const char *name);

/* ---- changes: one at a time, all or nothing ----------------------------------------------- */

/*
 * Reads the files again, as SIGHUP does: starts new services, stops those without a section, changes the others. If the files have
 * faults (-EBADMSG) or a service cannot start (another error), nothing has changed.
 */
int daemon_reload(struct daemon *d, char *why, size_t size);

/*
 * Creates a service or replaces its settings, by a drop-in and a reload. ini: lines NAME = VALUE without a section head. Returns
 * -EBADMSG if they have a fault (why: "FILE:LINE: ..."; line 1 of the drop-in is its head), -EINVAL for an unknown kind or an
 * invalid name, another error if it cannot start. On failure nothing has changed.
 */
int daemon_apply(struct daemon *d, const char *kind, const char *name, const char *ini, char *why,
		 size_t size);

/*
 * Changes one setting of an existing service, e.g. "lun.3" or "partition.goods"; value NULL removes it. Returns -ENOENT if there
 * is no such service or setting; else as daemon_apply().
 */
int daemon_set(struct daemon *d, const char *kind, const char *name, const char *setting,
	       const char *value, char *why, size_t size);

/*
 * Removes the drop-in and stops its service. Returns -ENOENT if there is none, -EPERM if the section is in the main file,
 * -EBUSY if data would be lost for ever, unless force.
 */
int daemon_withdraw(struct daemon *d, const char *kind, const char *name, bool force, char *why,
		    size_t size);

/* Returns the settings of a service as lines NAME = VALUE, to be freed; NULL: no such service. */
char *daemon_settings(struct daemon *d, const char *kind, const char *name);

/* ---- tokens of the API ---------------------------------------------------------------------- */

/*
 * Makes a token with a name and a role, by a drop-in and a reload, and returns it in text; it is kept nowhere. -EEXIST: there is
 * one of that name. Revokes one, without a reload: -ENOENT, -EPERM (it is in the main file).
 */
int daemon_token_create(struct daemon *d, const char *name, enum role role, char text[TOKEN_ROOM],
			char *why, size_t size);
int daemon_token_revoke(struct daemon *d, const char *name, char *why, size_t size);
/* Returns [{"name", "role", "file": PATH|null, "revocable": true|false}], without the tokens. */
json_t *daemon_tokens(struct daemon *d);

/* ---- services in use --------------------------------------------------------------------- */

/*
 * get looks a service up by its name and returns NULL if there is none. The reference keeps it alive until put; a reload that
 * removes the service waits for that, so do not hold one while waiting for a client, nor while calling the functions above.
 */

/* Between get and put only this thread uses it, and may add, change and remove partitions. */
struct daemon_store {
	const char *name, *path;
	struct stag_store *store;
	struct stag_store_server *server;
};

struct daemon_store *daemon_store_get(struct daemon *d, const char *name);
void daemon_store_put(struct daemon_store *s);

/* Several threads may hold it at once: the library's calls on a target are thread-safe. */
struct daemon_target {
	const char *name, *iqn;
	struct stag_block_target *target;
};

struct daemon_target *daemon_target_get(struct daemon *d, const char *name);
void daemon_target_put(struct daemon_target *t);

/*
 * A pool that is served here or watched; if both, the served one. The first get opens client, as a user with the right to
 * administer if there is one (`user`); between get and put only this thread uses it. It is NULL if opening fails; `why` says why,
 * and the next get tries again. Operations wait for a primary for at most 3 seconds. After one fails with ENOTCONN or ETIMEDOUT,
 * call daemon_pool_lost(), so that the next get reconnects.
 */
struct daemon_pool {
	const char *name;
	struct stag_pool *client;
	struct stag_pool_node *node; /* NULL: the pool is only watched */
	const char *node_name;	     /* likewise */
	const char *user;
	char why[256];
};

struct daemon_pool *daemon_pool_get(struct daemon *d, const char *name);
void daemon_pool_put(struct daemon_pool *p);
void daemon_pool_lost(struct daemon_pool *p);

#endif
