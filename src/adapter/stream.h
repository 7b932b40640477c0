/* SPDX-License-Identifier: BSD-2-Clause */
/* stream.h - an ordered stream of bytes in both directions. */
#ifndef STAG_STREAM_H
#define STAG_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "tls/tls.h"

struct stream;
struct stream_tls;
struct trace_conn;

/*
 * A queue pair uses its stream through these, whatever it is. send and recv return a count, 0
 * at end of file (recv), or -errno; -EAGAIN if nothing can be moved now.
 */
struct stream_ops {
	ssize_t (*send)(struct stream *s, const struct iovec *iov, int n);
	ssize_t (*recv)(struct stream *s, const struct iovec *iov, int n);
	void (*shutdown)(struct stream *s);   /* sends FIN; bytes sent before still arrive */
	void (*abort)(struct stream *s);      /* drops everything; the peer sees a reset */
	void (*close)(struct stream *s);      /* frees it; bytes sent before still arrive */
	int (*ready)(struct stream *s);	      /* POLLIN, POLLOUT: what would not block */
	unsigned (*emss)(struct stream *s);   /* present size of a TCP segment's payload */
	unsigned (*unsent)(struct stream *s); /* bytes not yet acknowledged by the peer */
};

struct stream {
	const struct stream_ops *ops;
	int fd;			  /* to wait on; -1 where there is none */
	ino_t inode;		  /* of the socket: a descriptor with another one is not ours */
	struct trace_conn *trace; /* NULL unless STAG_TRACE */
	struct stream_tls *tls;	  /* NULL: not encrypted */
	/*
	 * More can be received than the descriptor shows. Whoever stops receiving must then continue by itself. Protected
	 * like recv.
	 */
	bool buffered;
	unsigned alive_s; /* stream_keep_alive() */
	uint64_t tx_calls, rx_calls, tx_again, rx_again, tx_bytes, rx_bytes;
	struct sockaddr_storage local, peer;
};

/* Takes a connected, non-blocking TCP socket over, unless it fails. */
int stream_open_tcp(struct stream **out, int fd, bool initiator);

#define STREAM_MIN_ALIVE_S 12
#define STREAM_MAX_ALIVE_S 120 /* of a new stream */

/* Sets after how many seconds a peer whose host has vanished is noticed, also if nothing is sent to it: within the limits. */
void stream_keep_alive(struct stream *s, unsigned seconds);

/*
 * Makes TLS of a stream that no byte has passed yet. Then nothing but stream_tls_handshake() may be called, until it
 * returns 0; -EAGAIN: again, when the descriptor has what stream_tls_events() says. Closing needs the engine lock from
 * then on.
 */
int stream_start_tls(struct stream *s, struct tls_context *context, enum tls_side side,
		     char why[TLS_WHY_LEN]);
int stream_tls_handshake(struct stream *s);
short stream_tls_events(const struct stream *s);
/* Returns the reason of the stream's last error; empty without TLS. */
const char *stream_tls_why(const struct stream *s);
/* Returns NULL for a stream that is not encrypted, or not yet. */
const struct tls_info *stream_tls_info(const struct stream *s);

static inline void stream_close(struct stream *s)
{
	if (s)
		s->ops->close(s);
}

#endif
