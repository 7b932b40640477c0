/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * service.h - a service of any kind: how it is started, changed, queried and stopped.
 *
 *	service_pool.c    a node of a pool
 *	service_watch.c   a pool that other daemons serve
 *	service_store.c   a store
 *	service_target.c  a block target
 *	client.c          the pool's client, used by both
 *
 * Life: a thread that holds daemon.changing creates and starts it; in the daemon's list other threads find it and take references
 * (daemon_get()); it is removed from the list, and stopped when the last reference was dropped.
 */
#ifndef STAG_APP_SERVICE_H
#define STAG_APP_SERVICE_H

#include <limits.h>
#include <pthread.h>

#include "base/lock.h"
#include "daemon.h"

#define OBJECT_MAX 144

struct service_kind;

struct service {
	const struct service_kind *kind;
	struct daemon *daemon;
	struct conf_section *conf; /* at its start */
	struct conf_section *now;  /* after the last change: origin, users and items are current */
	char object[OBJECT_MAX];   /* its name in events */
	unsigned int refs;	   /* protected by daemon.lock */
	struct service *next;	   /* likewise */
};

struct service_kind {
	const struct conf_kind *conf;
	const char *list; /* its list in the status, e.g. "pools" */
	size_t size;	  /* of its struct, whose first member is a struct service */
	bool frees_port;  /* it can be stopped and restarted without loss, to free its port */
	/* Returns -errno and sets why if it fails; then nothing was started. */
	int (*start)(struct service *s, char *why, size_t size);
	void (*stop)(struct service *s);
	/* Applies the settings of `to` that need no restart. Returns -errno if it fails; then nothing has changed. */
	int (*change)(struct service *s, struct conf_section *to, char *why, size_t size);
	/* Undoes that change; NULL: change() back to `before`. */
	void (*undo)(struct service *s, struct conf_section *before);
	/* Says what would be lost for ever if the service were stopped now. Returns false if nothing would. May be NULL. */
	bool (*loses)(struct service *s, char *what, size_t size);
	bool (*answers)(struct service *s);
	json_t *(*status)(struct service *s, const struct conf_section *now);
	void (*announce)(struct service *s,
			 json_t *list); /* adds to list; NULL: prints text to stdout */
};

extern const struct service_kind pool_service, watch_service, store_service, target_service;

/* Sets why and returns -error. */
int service_fail(char *why, size_t size, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Does the same with the place in front: "FILE:LINE: store disk: …". */
int service_fails(const struct conf_section *at, unsigned int line, char *why, size_t size,
		  int error, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Logs which setting differs and takes effect only after a restart. */
void service_tell_rest(const struct service *s, const struct conf_section *to);

/* daemon.c: finds a service that runs or was started by the change in progress. Requires daemon.changing. */
struct service *daemon_find(struct daemon *d, const struct service_kind *kind, const char *name);
void daemon_put(struct service *s);
/* Returns whether this node of the pool runs in this daemon. */
bool daemon_serves_node(struct daemon *d, const char *pool, const char *node);
const char *daemon_path(const struct daemon *d); /* of the main file */

/* ---- client.c: one thread at a time uses a client -------------------------- */

struct client {
	struct daemon_pool use;
	struct lock lock;
	struct service *service;
	char user[64], secret[CONF_SECRET_MAX];
	char where[1024];
	uint32_t tls;					  /* enum stag_pool_tls */
	char cert[PATH_MAX], key[PATH_MAX], ca[PATH_MAX]; /* "": none */
};

void client_init(struct client *c, struct service *s);
void client_name(struct client *c, const char *where, const char *user, const char *secret);
/* How it connects; NULL: no file. */
void client_secure(struct client *c, uint64_t tls, const char *cert, const char *key,
		   const char *ca);
void client_end(struct client *c);
void client_lock(struct client *c); /* and opens it if it is closed */
void client_unlock(struct client *c);

struct client *pool_client(struct service *s);
struct client *watch_client(struct service *s);
bool pool_has_refused(struct service *s); /* for the main loop only */

/*
 * Returns whether stagd, which was told to stop, is not to stop, as the node has the only copy of a pool's values and others are in
 * the roll (ending.h); logs why. Sets *extend if a service manager is to wait longer. For the main loop only.
 */
bool pool_delays_end(struct service *s, bool *extend);
/* Logs that values are lost, if the node has the only copy. cause: "by SIGINT" */
void pool_tell_loss(struct service *s, const char *cause);

/* ---- service_store.c, service_target.c ------------------------------------------------------- */

struct daemon_store *store_service_get(struct service *s);
const char *store_service_path(struct service *s);
json_t *store_service_counters(struct service *s); /* NULL: they cannot be read */
bool store_service_has_uuid(struct service *s, const char *uuid);
struct daemon_target *target_service_get(struct service *s);
json_t *target_service_answer(struct service *s,
			      const char *word); /* to a query of a control socket (control.h) */

#endif
