/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ask.h - asking several processes at once, each at its Unix socket: one that is stopped, or hostile, takes no longer than the time
 * that all are given, and no more memory than a bound.
 */
#ifndef STAG_APP_ASK_H
#define STAG_APP_ASK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct ask {
	struct sockaddr_un to;
	socklen_t size;
	int pid;
	uid_t uid; /* who has to be there, by the kernel's word; (uid_t)-1: whoever is */
	int fd;	   /* -1: not yet, or no more */
	int error; /* errno value; EINPROGRESS while it is asked; ETIMEDOUT: it says nothing */
	char *text;
	size_t length, room;
};

struct asks {
	struct ask *ask;
	size_t n;
};

#define ASK_ANYBODY ((uid_t)-1)

/* One more, unless there are very many, or no memory. */
void asks_add(struct asks *all, const struct sockaddr_un *to, socklen_t size, int pid, uid_t uid);
/* All are told the line; what they say until they hang up is their text. */
void asks_run(struct asks *all, const char *line, uint64_t patience_ns);
void asks_drop(struct asks *all);

#endif
