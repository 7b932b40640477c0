/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon_own.h - the daemon's private header.
 *
 *	daemon.c    the list of services: lookup, references, status
 *	change.c    start, reload, and changes by the management API
 *	token.c     tokens of the API
 *	controls.c  the control sockets that `stag` queries (control.h)
 *
 * Locks: a thread that starts, changes or stops services holds `changing` all the while. `lock` protects the list and the fields of
 * services that say so, and is held briefly. Order: changing, then a store's or client's lock, then lock.
 */
#ifndef STAG_APP_DAEMON_OWN_H
#define STAG_APP_DAEMON_OWN_H

#include <pthread.h>
#include <time.h>

#include "base/lock.h"
#include "control.h"
#include "service.h"

struct controls {
	struct control store, block, stagd;
	pthread_t thread;
	int ends[2]; /* a pipe; closing ends[1] stops the thread */
	bool runs;
};

struct daemon {
	struct lock changing;
	struct lock lock;
	pthread_cond_t put;	  /* signalled when a reference was dropped */
	struct service *services; /* in the order of their start */
	struct service *
		pending; /* likewise; started by a change in progress, invisible to other threads */
	char *path;	 /* of the main file */
	struct conf_section *conf; /* [daemon] at the start */
	struct conf_section *api_conf;
	const struct daemon_api *api_calls;
	struct api *api;
	struct access *access; /* in force; protected by lock */
	struct controls controls;
	struct timespec started;
	uint64_t started_ns;
};

/* port.c: fails with -EADDRINUSE if the section's service could not listen on its port. */
int port_check(const struct conf_section *s, char *why, size_t size);

/* The order of start; services stop in reverse. */
extern const struct service_kind *const service_kinds[];
extern const unsigned int num_service_kinds;

/* daemon.c */
struct service *service_new(struct daemon *d, const struct service_kind *kind,
			    struct conf_section *conf);
void service_free(struct service *s);
void daemon_list(struct daemon *d, struct service *s); /* appends it */
void daemon_unlist(struct daemon *d,
		   struct service *s); /* waits until all references are dropped */
struct service *daemon_get(struct daemon *d, const struct service_kind *kind, const char *name);
/* Returns all services with a reference each, which the caller puts, in an array that it frees. */
struct service **daemon_get_all(struct daemon *d, unsigned int *n);

json_t *daemon_api_status(struct daemon *d); /* JSON null if there is none */

/* token.c: reads the API's own token, or makes one if conf names no file. Returns -errno and sets why if it cannot. */
int token_make_own(struct daemon *d, struct conf_api *conf, char *why, size_t size);
void daemon_set_access(struct daemon *d, struct access *access); /* takes the reference */

/* change.c: writes a drop-in (text NULL: removes it) and reloads. The caller holds changing. */
int daemon_replace_dropin(struct daemon *d, const char *file, const char *text, char *why,
			  size_t size);
int daemon_remove_dropin(struct daemon *d, const char *file, char *why,
			 size_t size); /* without reloading */

/* controls.c: logs a warning if the sockets cannot be created */
void controls_open(struct daemon *d);
void controls_close(struct daemon *d);

#endif
