/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle.h - the handlers, one for each route, in the file of their noun; and what they share.
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
/* Answers with the error of daemon_apply() and similar calls. */
void answer_daemon(struct request *r, int rc, const char *why);
/* Answers {NAME: the list of this name in the daemon's status}. */
void answer_list(struct request *r, const char *name);

/* Answer with the status of the service that the path names, and remove that service. handle.c */
void answer_service(struct request *r, const char *kind);
void withdraw_service(struct request *r, const char *kind);
/* Answers 409 and returns true if there is a service of that name already. answer_made() answers 201 with its status. */
bool answer_taken(struct request *r, const char *kind, const char *name);
void answer_made(struct request *r, const char *kind, const char *name);

/* Returns the pool that the path names with an open client, to be put; or NULL after answering. handle_pools.c */
struct daemon_pool *pool_get(struct request *r);

/* Returns the status of every stagd of this user on this machine; this one is the first. handle.c */
json_t *daemons_json(struct daemon *d);

/* ---- paths.c ------------------------------------------------------------------------------ */

enum path_use {
	PATH_STORE, /* storage, as PATH_LUN: the daemon's own files are refused */
	PATH_LUN,   /* PATH or PATH:PARTITION */
	PATH_OTHER, /* a secret, a roll: what the daemon reads there it checks */
};

/*
 * Checks the path in a field of the body (or "file:PATH") against the roots, and replaces it by the one without symbolic links.
 * A value that names no file (store:, mem:, etcd:) stays. Returns false after answering.
 */
bool path_check(struct request *r, json_t *o, const char *field, enum path_use use);

/* ---- settings of a section of the INI file, made from a body ------------- */

struct settings {
	FILE *file; /* NULL: out of memory */
	char *text;
	size_t length;
};

void settings_open(struct settings *s);
/* Adds a line for each field of the body that is a setting of the section, except those that the handler acts on itself. */
void settings_put(struct settings *s, const struct request *r, const struct conf_kind *section);
/* Creates the service and frees the settings. Returns -errno after answering if that fails. */
int settings_apply(struct settings *s, struct request *r, const char *kind, const char *name);

#endif
