/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * server.h - definitions that listener.c, timeouts.c, server.c and stream.c share.
 */
#ifndef STAG_APP_API_SERVER_H
#define STAG_APP_API_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "api.h"
#include "base/lock.h"
#include "http.h"

struct MHD_Daemon;
struct MHD_Connection;
struct MHD_Response;

/* ---- timeouts.c ------------------------------------------------------------------- */

/* A client's connection. */
struct client_conn {
	struct client_conn *next, **at;
	int fd;
	uint64_t until; /* deadline, CLOCK_MONOTONIC in ns; 0: none */
	uint64_t began; /* start of its request */
};

/*
 * Deadlines of connections. libmicrohttpd restarts its own timeout at every byte, so a client that sends one byte a second could
 * keep a connection forever. A thread shuts down the sockets of connections past their deadline; their own threads clean up.
 */
struct timeouts {
	struct lock lock;
	pthread_cond_t changed;
	struct client_conn *conns; /* protected by lock, with their fields */
	unsigned int count;	   /* likewise */
	bool stopping;		   /* likewise */
	pthread_t thread;
	bool has_thread;
};

int timeouts_start(struct timeouts *p);
void timeouts_stop(struct timeouts *p);
struct client_conn *timeouts_admit(struct timeouts *p, int fd); /* NULL: out of memory */
void timeouts_dismiss(struct timeouts *p, struct client_conn *g);
void timeouts_begins(struct timeouts *p, struct client_conn *g); /* a request's head was received */
void timeouts_received(struct timeouts *p, struct client_conn *g,
		       size_t bytes); /* so much of its body was received */
void timeouts_works(struct timeouts *p,
		    struct client_conn *g); /* the request was received; its handler runs */
void timeouts_answers(struct timeouts *p, struct client_conn *g,
		      size_t bytes); /* an answer of this size is being sent */
void timeouts_idles(struct timeouts *p, struct client_conn *g); /* the answer was sent */

/* ---- listener.c ------------------------------------------------------------------------- */

/* A socket that the API listens on. */
struct listener {
	struct api *api;
	struct guard guard;
	struct MHD_Daemon *mhd; /* NULL: not started */
	int fd;
	char *path;   /* of a Unix socket; NULL: TCP */
	dev_t device; /* of the socket that we created, to remove no other */
	ino_t inode;
	uint16_t port;
};

/* Return 0, or -errno and set why. */
int listener_open_tcp(struct listener *d, const char *listen, char *why, size_t size);
int listener_open_unix(struct listener *d, const char *path, char *why, size_t size);
void listener_close(
	struct listener *d); /* closes the socket; libmicrohttpd must be stopped before */
/* Parses "HOST[:PORT]" with a literal address, and tells whether it is loopback. Returns -EINVAL for any other text. */
int listener_address(const char *listen, struct sockaddr_storage *a, socklen_t *len,
		     bool *is_loopback);

/* ---- server.c --------------------------------------------------------------------- */

struct api {
	struct listener tcp, local;
	struct timeouts timeouts;
	struct daemon *daemon;
	char *listen, *token, *hosts;
	size_t body_max;
	unsigned int connections;
	bool console;
	struct history *history;
	atomic_bool stopping;
	atomic_uint streams, working; /* numbers of open streams, and of running handlers */
	atomic_size_t held;	      /* bytes of bodies in memory */
	atomic_ullong requests, refused;
};

/* ---- stream.c --------------------------------------------------------------------- */

/* Returns an endless text/event-stream. NULL: there are too many streams, or memory ran out. */
struct MHD_Response *stream_response(struct api *api, int fd, uint64_t since);

#endif
