/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.h - looking at a server that runs: who is looked at, and who looks.
 *
 * A socket in a directory that is this user's alone, $XDG_RUNTIME_DIR/stag or /tmp/stag-UID: who connects says a word, and is
 * told as JSON. Those of a stagd that the system started are in /run/stag: who may go there looks there, too.
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

/* kind: what it serves; its number is this process's. -errno: nobody can look; it may be closed, and run, all the same. */
int control_open(struct control *c, const char *kind,
		 json_t *(*answer)(void *arg, const char *word), void *arg);
/* In a directory of its own; NULL: as above. It is made, and has to be this user's alone. */
int control_open_in(struct control *c, const char *dir, const char *kind,
		    json_t *(*answer)(void *arg, const char *word), void *arg);
void control_close(struct control *c);
void control_attend(const struct control *c);		   /* whoever waits at fd: is answered */
void control_run(struct control *c, const sigset_t *ends); /* until one of them comes */

/* Who looks. NULL: there is no such server of this user's, or it does not say, in 5 seconds. A list: of a process that serves several. */
json_t *control_ask(const char *kind, int pid, const char *word);
/* A list; may be empty. All are asked at once: who says nothing in 2 seconds is not in it. */
json_t *control_ask_all(const char *kind, const char *word);
json_t *control_ask_others(const char *kind, const char *word); /* likewise, without this process */
/* Likewise, and who says nothing in a second is in it: {"pid", "answers": false}. pid: that one alone; 0: all. */
json_t *control_ask_each(const char *kind, int pid, const char *word);

#endif
