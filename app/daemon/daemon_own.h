/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon_own.h - the daemon, as its own files see it.
 *
 *	daemon.c    the list of services: found, held, told
 *	change.c    start, reload, and what the management API changes
 *	controls.c  the sockets at which others look (control.h)
 *
 * Locks: `changing` is held by whoever starts, changes or stops services, one at a time, for as long as that takes. `lock` is for the
 * list and what it says of its services, for moments. changing before lock; a store's or client's own lock is between them.
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
	int ends[2]; /* closed: the thread is to end */
	bool runs;
};

struct daemon {
	struct lock changing;
	struct lock lock;
	pthread_cond_t put;	   /* a reference */
	struct service *services;  /* in the order in which they were started */
	struct service *pending;   /* likewise; of a change that is not done: nobody else's */
	char *path;		   /* of the main file */
	struct conf_section *conf; /* [daemon], as it was started */
	struct conf_section *api_conf;
	const struct daemon_api *api_calls;
	struct api *api;
	struct controls controls;
	struct timespec started;
	uint64_t started_ns;
};

/* In which order they are started; back to front: stopped. */
extern const struct service_kind *const service_kinds[];
extern const unsigned int num_service_kinds;

/* daemon.c */
struct service *service_new(struct daemon *d, const struct service_kind *kind,
			    struct conf_section *conf);
void service_free(struct service *s);
void daemon_list(struct daemon *d, struct service *s);	 /* behind the others */
void daemon_unlist(struct daemon *d, struct service *s); /* returns when nobody has it any more */
struct service *daemon_get(struct daemon *d, const struct service_kind *kind, const char *name);
/* All of them, each to be put; free() the array. */
struct service **daemon_get_all(struct daemon *d, unsigned int *n);

json_t *daemon_api_status(struct daemon *d); /* null: there is none */

/* controls.c: an event where they cannot be had */
void controls_open(struct daemon *d);
void controls_close(struct daemon *d);

#endif
