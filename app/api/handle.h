/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle.h - the handlers: one for each route, in the file of its noun.
 */
#ifndef STAG_APP_API_HANDLE_H
#define STAG_APP_API_HANDLE_H

#include <stdio.h>

#include "daemon.h"
#include "http.h"
#include "server.h"

#define HANDLER(name) void handle_##name(struct request *r);
ROUTE_NAMES(HANDLER)

#define WHY_MAX 512

/* Answers 404: "there is no KIND 'NAME'". */
void answer_none(struct request *r, const char *kind, const char *name);
/* What daemon_apply() and its like said. */
void answer_daemon(struct request *r, int rc, const char *why);
/* {"items": the list of this name in the daemon's status} */
void answer_list(struct request *r, const char *name);

/* The service that the path names: its status; and it is served no more. handle.c */
void answer_service(struct request *r, const char *kind);
void withdraw_service(struct request *r, const char *kind);
/* Before one is made, and after. true: there is one of that name, and it was answered. */
bool answer_taken(struct request *r, const char *kind, const char *name);
void answer_made(struct request *r, const char *kind, const char *name);

/* The pool that the path names, with its client, to be put; NULL: it was answered. handle_pools.c */
struct daemon_pool *pool_get(struct request *r);

/* What all stagd of this user on this machine say of themselves; ours is the first. handle.c */
json_t *daemons_json(struct daemon *d);

/* ---- settings of a section of the INI file, as they are made of a body ------------- */

struct settings {
	FILE *file; /* NULL: no memory */
	char *text;
	size_t length;
};

void settings_open(struct settings *s);
/* A line for each setting of the section that the body has and its handler does not act on itself. */
void settings_put(struct settings *s, const struct request *r, const struct conf_kind *section);
/* Makes the service of them, and closes them. -errno, and it was answered. */
int settings_apply(struct settings *s, struct request *r, const char *kind, const char *name);

#endif
