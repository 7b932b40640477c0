/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * server.h - the API's server: what door.c, patience.c, server.c and stream.c share.
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

/* ---- patience.c ------------------------------------------------------------------- */

/* A connection. */
struct guest {
	struct guest *next, **at;
	int fd;
	uint64_t until; /* CLOCK_MONOTONIC, ns: it is cut off then; 0: not */
	uint64_t began; /* when its request did */
};

/*
 * libmicrohttpd's time limit begins anew with every byte: who sends one every second keeps a connection for ever. So a
 * thread looks at all of them, and shuts those down whose time is over; their own threads do the rest.
 */
struct patience {
	struct lock lock;
	pthread_cond_t changed;
	struct guest *guests; /* under lock, as their fields are */
	unsigned int count;   /* likewise */
	bool stopping;	      /* likewise */
	pthread_t thread;
	bool has_thread;
};

int patience_start(struct patience *p);
void patience_stop(struct patience *p);
struct guest *patience_admit(struct patience *p, int fd); /* NULL: no memory */
void patience_dismiss(struct patience *p, struct guest *g);
void patience_begins(struct patience *p, struct guest *g); /* a request's head is here */
void patience_received(struct patience *p, struct guest *g, size_t bytes); /* so much of its body */
void patience_works(struct patience *p, struct guest *g);		   /* it is all here */
void patience_answers(struct patience *p, struct guest *g,
		      size_t bytes);			  /* so much is to be sent */
void patience_idles(struct patience *p, struct guest *g); /* it was sent */

/* ---- door.c ------------------------------------------------------------------------- */

/* Where we listen. */
struct door {
	struct api *api;
	struct guard guard;
	struct MHD_Daemon *mhd; /* NULL: it is closed */
	int fd;
	char *path;   /* of a Unix socket; NULL: TCP */
	dev_t device; /* and what we made there */
	ino_t inode;
	uint16_t port;
};

/* 0, or -errno and why. */
int door_open_tcp(struct door *d, const char *listen, char *why, size_t size);
int door_open_unix(struct door *d, const char *path, char *why, size_t size);
void door_close(struct door *d); /* the socket only */
/* "HOST[:PORT]" -> a literal address; is it only for this machine? -EINVAL. */
int door_address(const char *listen, struct sockaddr_storage *a, socklen_t *len, bool *is_loopback);

/* ---- server.c --------------------------------------------------------------------- */

struct api {
	struct door tcp, local;
	struct patience patience;
	struct daemon *daemon;
	char *listen, *token, *hosts;
	size_t body_max;
	unsigned int connections;
	bool console;
	struct history *history;
	atomic_bool stopping;
	atomic_uint streams, working; /* requests that are streams, or have a handler at work */
	atomic_size_t held;	      /* bytes of bodies */
	atomic_ullong requests, refused;
};

/* ---- stream.c --------------------------------------------------------------------- */

/* text/event-stream, until the client or we have enough; NULL: there are too many, or no memory. */
struct MHD_Response *stream_response(struct api *api, int fd, uint64_t since);

#endif
