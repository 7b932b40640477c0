/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.h - control sockets: a running server answers queries about itself.
 *
 * The sockets are in a directory that only this user can access, $XDG_RUNTIME_DIR/stag or /tmp/stag-UID; those of a stagd that
 * systemd started are in /run/stag, which is searched, too. A client sends a word and receives JSON.
 */
#ifndef STAG_APP_CONTROL_H
#define STAG_APP_CONTROL_H

#include <jansson.h>
#include <signal.h>

struct control {
	int fd; /* -1: none */
	char path[108];
	json_t *(*answer)(void *arg, const char *word);
	void *arg;
};

#define STAGD_KIND	 "stagd"
#define CONTROL_WORD_MAX 128

/* Listens on DIR/KIND-PID. Returns -errno if that fails; control_run() and control_close() are safe even then. */
int control_open(struct control *c, const char *kind,
		 json_t *(*answer)(void *arg, const char *word), void *arg);
/* Does the same in this directory (NULL: the default), which is created; only this user may have access to it. */
int control_open_in(struct control *c, const char *dir, const char *kind,
		    json_t *(*answer)(void *arg, const char *word), void *arg);
void control_close(struct control *c);
void control_attend(const struct control *c); /* answers one waiting client */
void control_run(struct control *c,
		 const sigset_t *ends); /* answers clients until one of the signals */

/* Queries one server. Returns NULL if this user has no such server, or after 5 seconds; an array if the process serves several. */
json_t *control_query(const char *kind, int pid, const char *word);
/* Queries all servers at once. Returns an array of the responses within 2 seconds. */
json_t *control_query_all(const char *kind, const char *word);
json_t *control_query_others(const char *kind, const char *word); /* without this process */
/* Likewise within 1 second; a silent server is {"pid", "answers": false}. pid: only this process; 0: all. */
json_t *control_query_each(const char *kind, int pid, const char *word);

#endif
