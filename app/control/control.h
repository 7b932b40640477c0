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
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct control {
	int fd; /* -1: none */
	char path[108];
	json_t *(*answer)(void *arg, const char *word);
	void *arg;
};

#define CONTROL_SYSTEM_DIR                                                                         \
	"/run/stag" /* of a stagd that systemd started; only systemd creates it */
#define STAGD_KIND	 "stagd"
#define CONTROL_WORD_MAX 128

/* Listens on DIR/KIND-PID. Returns -errno if that fails; control_run() and control_close() are safe even then. */
int control_open(struct control *c, const char *kind,
		 json_t *(*answer)(void *arg, const char *word), void *arg);
/* Does the same in this directory (NULL: the default), which is created; only this user may have access to it. */
int control_open_in(struct control *c, const char *dir, const char *kind,
		    json_t *(*answer)(void *arg, const char *word), void *arg);
/* Finds or creates that directory (wanted NULL: the default). Returns false if others have access to it. */
bool control_directory(const char *wanted, char *path, size_t size);
void control_close(struct control *c);
/* The process that the answer() in progress is for; for the audit log. */
void control_client(uid_t *uid, int *pid);
void control_attend(const struct control *c); /* answers one waiting client */
/* Answers clients until one of the signals comes, and returns it. */
int control_run(struct control *c, const sigset_t *ends);

/* Queries one server. Returns NULL if this user has no such server, or after 5 seconds; an array if the process serves several. */
json_t *control_query(const char *kind, int pid, const char *word);
/* Likewise for a word that changes something: waits 5 minutes, because the server may complete what nobody waits for any more. */
json_t *control_order(const char *kind, int pid, const char *word);
/* Queries all servers at once. Returns an array of the responses within 2 seconds. */
json_t *control_query_all(const char *kind, const char *word);
json_t *control_query_others(const char *kind, const char *word); /* without this process */
/* Likewise within 1 second; a silent server is {"pid", "answers": false}. pid: only this process; 0: all. */
json_t *control_query_each(const char *kind, int pid, const char *word);

#endif
