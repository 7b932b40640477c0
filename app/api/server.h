/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * server.h - definitions that listener.c, lobby.c, timeouts.c, server.c, audit.c and stream.c share.
 */
#ifndef STAG_APP_API_SERVER_H
#define STAG_APP_API_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "api.h"
#include "base/list.h"
#include "base/lock.h"
#include "http.h"

struct MHD_Daemon;
struct MHD_Connection;
struct MHD_Response;

/* ---- timeouts.c ------------------------------------------------------------------- */

/* States of a connection. Connections that are IDLE or in the HEAD may be closed to make room for others. */
enum phase { PHASE_HEAD, PHASE_BUSY, PHASE_STREAM, PHASE_IDLE };

/* A client's connection. */
struct client_conn {
	struct client_conn *next, **at;
	int fd;
	bool is_local;	     /* of the Unix socket */
	bool leaves;	     /* it was closed to make room; its thread has not ended yet */
	unsigned int source; /* hash of its address */
	enum phase phase;
	uint64_t since; /* of the phase */
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
	unsigned int count
		[2]; /* likewise: of TCP, of the Unix socket; without streams and those that leave */
	unsigned int coming[2]; /* likewise: have room, and are not in the list yet */
	uint64_t promised[2];	/* likewise: when the last of those got it */
	unsigned int open;	/* likewise: all of them */
	bool stopping;		/* likewise */
	pthread_t thread;
	bool has_thread;
};

int timeouts_start(struct timeouts *p);
void timeouts_stop(struct timeouts *p);
struct client_conn *timeouts_admit(struct timeouts *p, int fd,
				   bool is_local); /* NULL: out of memory */
void timeouts_dismiss(struct timeouts *p, struct client_conn *g);
void timeouts_begins(struct timeouts *p, struct client_conn *g); /* a request's head was received */
void timeouts_received(struct timeouts *p, struct client_conn *g,
		       size_t bytes); /* so much of its body was received */
void timeouts_works(struct timeouts *p,
		    struct client_conn *g); /* the request was received; its handler runs */
void timeouts_streams(struct timeouts *p, struct client_conn *g); /* a stream of events is sent */
void timeouts_answers(struct timeouts *p, struct client_conn *g,
		      size_t bytes); /* an answer of this size is being sent */
void timeouts_idles(struct timeouts *p, struct client_conn *g); /* the answer was sent */
/*
 * Makes room for a connection, which timeouts_admit() takes: closes the one that has been idle for longest, of the source that has
 * most, if there are `most`. Returns false if all are busy.
 */
bool timeouts_make_room(struct timeouts *p, bool is_local, unsigned int most);
void timeouts_cancel(struct timeouts *p, bool is_local); /* that connection does not come */

/* ---- listener.c ------------------------------------------------------------------------- */

/* A socket that the API listens on. */
struct listener {
	struct api *api;
	struct guard guard;
	struct MHD_Daemon *mhd; /* NULL: not started */
	bool is_tls;
	bool refuses; /* only TLS is allowed, and this is not */
	int fd;
	char *path;   /* of a Unix socket; NULL: TCP */
	dev_t device; /* of the socket that we created, to remove no other */
	ino_t inode;
	uint16_t port;
};

/* Return 0, or -errno and set why. */
int listener_open_tcp(struct listener *d, const char *listen, char *why, size_t size);
/* group: whose members may connect, too; NULL: only this user. */
int listener_open_unix(struct listener *d, const char *path, const char *group, char *why,
		       size_t size);
void listener_close(
	struct listener *d); /* closes the socket; libmicrohttpd must be stopped before */
/* Parses "HOST[:PORT]" with a literal address, and tells whether it is loopback. Returns -EINVAL for any other text. */
int listener_address(const char *listen, struct sockaddr_storage *a, socklen_t *len,
		     bool *is_loopback);

/* ---- lobby.c ---------------------------------------------------------------------- */

#define LOBBY_DOORS   2
#define LOBBY_SOURCES 1024
#define LOBBY_PEEK    (16 << 10)

/* A socket that accepts, and who takes the connections. */
struct door {
	int fd;			      /* -1: none */
	struct listener *plain, *tls; /* tls NULL: none */
	struct list ready;	      /* guests that wait for room */
};

struct lobby {
	struct door doors[LOBBY_DOORS];
	struct timeouts *timeouts;
	unsigned int most, active; /* limits: in here, and of connections with a request */
	int epoll, wake;
	pthread_t thread;
	bool runs;
	atomic_bool stopping, is_full; /* is_full: some wait for room; lobby_wake() tells of it */
	atomic_uint waits;	       /* connections in here */
	struct list guests;	       /* that wait for bytes */
	struct list sources[LOBBY_SOURCES];
	unsigned int counts[LOBBY_SOURCES];
	uint64_t seed, swept;
	char bytes[LOBBY_PEEK];
};

/* Accepts connections at the doors, which the caller sets before, and hands those with a request over. Returns -errno. */
int lobby_start(struct lobby *l, struct timeouts *timeouts, unsigned int idle, unsigned int active);
void lobby_stop(struct lobby *l);  /* closes what waits; safe after a start that failed */
void lobby_close(struct lobby *l); /* after that, and after the last call of lobby_wake() */
void lobby_wake(struct lobby *l);  /* a connection has ended: from any thread */

/* ---- server.c --------------------------------------------------------------------- */

struct api {
	struct listener tcp, tls, local; /* tls has the socket of tcp */
	struct lobby lobby;
	struct timeouts timeouts;
	struct daemon *daemon;
	char *listen, *hosts;
	struct lock lock; /* protects the fields of this group */
	struct access *access;
	enum role socket_role; /* of peers of the Unix socket other than this user and root */
	size_t body_max;
	unsigned int connections, max_streams, max_idle;
	char *tls_cert, *tls_key; /* PEM; NULL: no TLS */
	bool console;
	struct history *history;
	atomic_bool stopping;
	atomic_uint streams, working; /* numbers of open streams, and of running handlers */
	atomic_size_t held;	      /* bytes of bodies in memory */
	atomic_ullong requests, refused;
};

struct access *api_access(struct api *api); /* takes a reference */

/* ---- audit.c ---------------------------------------------------------------------- */

/* Reports the request to the audit log if it changed something or was refused; after its answer is known. */
void audit_request(const struct request *r, int fd);
void peer_text(int fd, char *text, size_t size); /* "10.0.0.7:41288", "uid 1000 pid 4711" */

/* ---- stream.c --------------------------------------------------------------------- */

/* Returns an endless text/event-stream. NULL: there are too many streams, or memory ran out. */
struct MHD_Response *stream_response(struct api *api, int fd, const struct who *who,
				     uint64_t since);

#endif
