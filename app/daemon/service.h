/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * service.h - what stagd serves, of whatever kind: how it is started, changed, asked and stopped.
 *
 *	service_pool.c    a node of a pool
 *	service_watch.c   a pool that others serve
 *	service_store.c   a store
 *	service_target.c  a block target
 *	client.c          of the first two: a client of the pool
 *
 * Life: made and started by one thread, which holds daemon.changing; then in the daemon's list, where others find it and get a
 * reference; taken from the list; stopped when the last reference was put. Who has one: daemon.c, for whoever calls.
 */
#ifndef STAG_APP_SERVICE_H
#define STAG_APP_SERVICE_H

#include <pthread.h>

#include "base/lock.h"
#include "daemon.h"

#define OBJECT_MAX 144

struct service_kind;

struct service {
	const struct service_kind *kind;
	struct daemon *daemon;
	struct conf_section *conf; /* as it was started */
	struct conf_section *now;  /* with what has changed since: origin, users, items */
	char object[OBJECT_MAX];   /* in events */
	unsigned int refs;	   /* daemon.lock */
	struct service *next;	   /* likewise */
};

struct service_kind {
	const struct conf_kind *conf;
	const char *list; /* in the status: "pools" */
	size_t size;	  /* of its struct, which begins with a struct service */
	bool makes_way;	  /* it may be stopped and started again, and has all that it had */
	/* -errno: nothing is left, and why says what was wrong */
	int (*start)(struct service *s, char *why, size_t size);
	void (*stop)(struct service *s);
	/* Takes what it can of `to`, and says what it cannot. -errno: it is what it was. */
	int (*change)(struct service *s, struct conf_section *to, char *why, size_t size);
	/* As if that change had not been; NULL: it is changed back. */
	void (*undo)(struct service *s, struct conf_section *before);
	bool (*answers)(struct service *s);
	json_t *(*status)(struct service *s, const struct conf_section *now);
	void (*announce)(struct service *s, json_t *list); /* list NULL: to stdout, as text */
};

extern const struct service_kind pool_service, watch_service, store_service, target_service;

/* why, and -error. */
int service_fail(char *why, size_t size, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same, of a line of a section: "FILE:LINE: store disk: …". */
int service_fails(const struct conf_section *at, unsigned int line, char *why, size_t size,
		  int error, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* What differs and counts at the next start only, as an event; names what a change has taken already. */
void service_tell_rest(const struct service *s, const struct conf_section *to);

/* daemon.c: one that is served, or is about to be; the caller holds daemon.changing. */
struct service *daemon_find(struct daemon *d, const struct service_kind *kind, const char *name);
void daemon_put(struct service *s);
const char *daemon_path(const struct daemon *d); /* of the main file */

/* ---- client.c: calls on one client are made by one thread at a time -------------------------- */

struct client {
	struct daemon_pool use;
	struct lock lock;
	struct service *service;
	char user[64], secret[CONF_SECRET_MAX];
	char where[1024];
};

void client_init(struct client *c, struct service *s);
void client_name(struct client *c, const char *where, const char *user, const char *secret);
void client_end(struct client *c);
void client_lock(struct client *c); /* and opened, if it can be */
void client_unlock(struct client *c);

struct client *pool_client(struct service *s);
struct client *watch_client(struct service *s);
bool pool_has_refused(struct service *s); /* of the main loop */

/* ---- service_store.c, service_target.c ------------------------------------------------------- */

struct daemon_store *store_service_get(struct service *s);
const char *store_service_path(struct service *s);
json_t *store_service_counters(struct service *s); /* NULL: it does not say */
bool store_service_has_uuid(struct service *s, const char *uuid);
struct daemon_target *target_service_get(struct service *s);
json_t *target_service_answer(struct service *s, const char *word); /* to who looks (control.h) */

#endif
