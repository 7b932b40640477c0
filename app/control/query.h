/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * query.h - queries several processes at once, each by its Unix socket. A process that hangs or is hostile costs no more than the
 * time limit of all, and a bounded amount of memory.
 */
#ifndef STAG_APP_QUERY_H
#define STAG_APP_QUERY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct query {
	struct sockaddr_un to;
	socklen_t size;
	int pid;
	uid_t uid; /* that the peer must have, by SO_PEERCRED; QUERY_ANY_UID: any */
	int fd;	   /* -1: not connected yet, or finished */
	int error; /* errno value; EINPROGRESS while in flight, ETIMEDOUT without a response */
	char *text;
	size_t length, room;
};

struct queries {
	struct query *list;
	size_t n;
	size_t most;   /* bytes of one response; 0: QUERY_MOST */
	size_t budget; /* bytes of all responses together; 0: no limit */
	size_t held;   /* of which this many are taken */
};

#define QUERY_MOST  (16u << 20)
#define QUERY_DEPTH 16 /* of nested objects and arrays in a response */

#define QUERY_ANY_UID ((uid_t)-1)

/* Adds a query; does nothing if there are very many, or if memory runs out. */
void queries_add(struct queries *all, const struct sockaddr_un *to, socklen_t size, int pid,
		 uid_t uid);
/* Sends the line to all, and collects their responses until each closes its connection or the time is over. */
void queries_run(struct queries *all, const char *line, uint64_t timeout_ns);
void queries_free(struct queries *all);
/* Parses a response. NULL: there is none, it is not JSON, or it is nested too deeply. */
json_t *query_json(const struct query *a);

#endif
