/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.h - looking at a server that runs: who is looked at, and who looks.
 *
 * A socket in a directory that is this user's alone: who connects says a word, and is told as JSON.
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

/* kind: what it serves; its number is this process's. It complains where it cannot be looked at. */
void control_open(struct control *c, const char *kind,
		  json_t *(*answer)(void *arg, const char *word), void *arg);
void control_close(struct control *c);
void control_run(struct control *c, const sigset_t *ends); /* until one of them comes */

/* Who looks. NULL: there is no such server of this user's, or it does not say. */
json_t *control_ask(const char *kind, int pid, const char *word);
json_t *control_ask_all(const char *kind, const char *word); /* a list; may be empty */

#endif
