/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon.h - the daemon, as the management API sees it: what is served, and how that is changed.
 *
 * A daemon has services, each made of a section of its INI file: nodes of pools ([pool NAME]), pools that it only watches
 * ([watch NAME]), stores ([store NAME]) and targets ([target NAME]). Sections are in the main file (--config), or in drop-ins,
 * STATE/conf.d/KIND-NAME.ini, one section each, which are read after it. A drop-in's section takes the place of one with the
 * same kind and name in the main file. What is changed through here is written to drop-ins, the main file never.
 *
 * Threads: all calls are made from any thread. None of them waits for another's network, but daemon_pool_get().
 *
 * Calls return 0 or -errno, and say in `why` (size bytes; may be NULL) what is wrong, as a sentence that names object, cause and,
 * where there is one, the next step. `why` may have several lines, one a fault.
 */
#ifndef STAG_APP_DAEMON_H
#define STAG_APP_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "event.h"
#include "stag/block.h"
#include "stag/pool.h"
#include "stag/store.h"

struct daemon;

/*
 * What main.c gives the daemon so that it starts and stops [api] with the rest; app/api has these. start: NULL, and why. stop waits for its
 * threads: so a reload never stops it. status: the "api" of daemon_status(); the caller's.
 */
struct api;

struct daemon_api {
	struct api *(*start)(struct daemon *d, const struct conf_api *conf, char *why, size_t size);
	void (*stop)(struct api *api);
	json_t *(*status)(struct api *api);
};

/*
 * Reads the file and its drop-ins, and starts all of it, or nothing: NULL, having told why (event.h). api: NULL: there is none.
 */
struct daemon *daemon_start(const char *config, const struct daemon_api *api);
void daemon_stop(struct daemon *d); /* in reverse order; a primary hands over first */

/*
 * All that there is to know, with counters; the caller's. H is a histogram: {"count","sum_ns","max_ns","buckets":[[upper_ns,count],...]}, and
 * absent where the library does not have it. "origin": {"file": PATH, "line": N, "dropin": true|false}. "now_ns": CLOCK_MONOTONIC, when
 * its counters were read; of a watched pool, when it told of itself.
 *
 *	{"version", "pid", "name": [daemon] name or the host's, "started": RFC3339, "uptime_s", "config": PATH, "state": DIRECTORY, "user",
 *	 "pools": [{"name", "node", "kind": "served", "port", "advertise", "now_ns", "origin", "uuid", "role", "epoch", "number", "why",
 *		    "size", "used", "objects", "bytes", "names", "clients", "changes", "reads", "records", "record_bytes", "mirrored_bytes",
 *		    "promotions", "lapses", "resyncs", "refused", "primary": NAME|null, "lag": records that the worst standby is behind|null,
 *		    "nodes": [{"name", "address", "role", "number", "lag", "done", "total"}], "latency": {"change": H, "replication": H}}],
 *	 "watches": [{"name", "kind": "watched", "where", "now_ns", "origin", "answers": true|false, "error": TEXT|null, "since_s",
 *		    and while it answers: "uuid", "epoch", "number", "size", "used", "objects", "bytes", "names", "primary", "lag", "nodes"}],
 *	 "stores": [{"name", "path", "port", "now_ns", "origin", "label", "uuid", "size", "used", "largest_gap", "block", "generation", "copies",
 *		    "partitions": [{"name", "id", "offset", "size", "alignment", "order", "level", "cache_ms", "rights": [WORDS]}],
 *		    "counters": {"reads", "writes", "flushes", "atomics", "read_bytes", "written_bytes", "errors", "cache_hits", "cache_misses",
 *		    "cache_bytes"}, "latency": {"read": H, "write": H, "flush": H}}],
 *	 "targets": [{"name", "iqn", "alias", "port", "now_ns", "origin", "luns": [{"lun", "where", "read_only", "write_back", "block"}], "sessions":
 *		    [{"id", "initiator", "address", "transport", "encoding", "counters"}], "counters": {...}, "latency": {"read": H, "write": H}}],
 *	 "api": {"listen", "socket", "token": true|false, "console": true|false} | null}
 *
 * role: "primary", "standby", "joining", "waiting", "refused", "unreachable".
 */
json_t *daemon_status(struct daemon *d);

/*
 * One service of these, {…} as in its list above; NULL: there is none. kind: "pool" (served here), "watch", "store", "target".
 */
json_t *daemon_service_status(struct daemon *d, const char *kind, const char *name);

/* ---- changes: one at a time, all or nothing ----------------------------------------------- */

/*
 * The files are read again, as at SIGHUP: what is new starts, what is gone stops, what has changed takes it on. A fault in them, or
 * something that cannot start: nothing has changed. -EBADMSG: a fault in the files; other: of what could not start.
 */
int daemon_reload(struct daemon *d, char *why, size_t size);

/*
 * Makes a service, or gives it other settings: ini is its settings, "NAME = VALUE" lines without a section's head. Written as a
 * drop-in, then reloaded. -EBADMSG: a fault in it (why: "FILE:LINE: ..."; line 1 of the drop-in is its head); -EINVAL: no such kind, no name;
 * others: it cannot start, and nothing has changed.
 */
int daemon_apply(struct daemon *d, const char *kind, const char *name, const char *ini, char *why,
		 size_t size);

/* One setting of a service there is, e.g. "lun.3", "partition.goods"; value NULL: it goes. -ENOENT: no such service or setting. As daemon_apply(). */
int daemon_set(struct daemon *d, const char *kind, const char *name, const char *setting,
	       const char *value, char *why, size_t size);

/* The drop-in goes, and with it the service. -ENOENT: there is none; -EPERM: it is in the main file, which people edit. */
int daemon_withdraw(struct daemon *d, const char *kind, const char *name, char *why, size_t size);

/* Its settings as they are in its file, lines of "NAME = VALUE"; free() it. NULL: no such service. */
char *daemon_settings(struct daemon *d, const char *kind, const char *name);

/* ---- services in use --------------------------------------------------------------------- */

/*
 * get: by its name; NULL: there is none. It stays until put, even if a reload removes it meanwhile, which waits for that: do
 * not hold it while waiting for a client. Each get is put once. Do not call the functions above with one held.
 */

/* Between get and put it is this thread's alone; partitions may be added, changed, removed. */
struct daemon_store {
	const char *name, *path;
	struct stag_store *store;
	struct stag_store_server *server;
};

struct daemon_store *daemon_store_get(struct daemon *d, const char *name);
void daemon_store_put(struct daemon_store *s);

/* Any number of threads have it at once: the library's calls on it are good for that. */
struct daemon_target {
	const char *name, *iqn;
	struct stag_block_target *target;
};

struct daemon_target *daemon_target_get(struct daemon *d, const char *name);
void daemon_target_put(struct daemon_target *t);

/*
 * A pool that is served here, or watched; of both the served one. client: opened at the first get, as a user that may administer
 * if there is one (`user`); between get and put this thread's alone. NULL: it cannot be had, and `why` says so; the next get tries
 * again. Its operations wait 3 seconds for a primary at most. Where one ends with ENOTCONN or ETIMEDOUT, daemon_pool_lost():
 * the next get opens it anew.
 */
struct daemon_pool {
	const char *name;
	struct stag_pool *client;
	struct stag_pool_node *node; /* NULL: it is only watched */
	const char *node_name;	     /* likewise */
	const char *user;
	char why[256];
};

struct daemon_pool *daemon_pool_get(struct daemon *d, const char *name);
void daemon_pool_put(struct daemon_pool *p);
void daemon_pool_lost(struct daemon_pool *p);

#endif
