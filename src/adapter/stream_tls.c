// SPDX-License-Identifier: BSD-2-Clause
/*
 * stream_tls.c - a TCP connection as a stream of bytes, encrypted by TLS.
 *
 * A plain stream becomes an encrypted one before its first byte (stream_start_tls()). The session has a lock of its
 * own, a leaf: one thread may send while another receives. Bytes are counted and traced as the queue pair sees them,
 * not as they are on the wire.
 */
#include "adapter/stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "adapter/engine.h"
#include "adapter/trace.h"
#include "base/clock.h"

#define END_RETRY_NS (5 * NS_PER_MS)

struct stream_tls {
	const struct stream_ops *tcp;
	struct tls_session *session;
	struct tls_info info; /* empty until the handshake is done, then constant */
	struct stream *stream;
	bool aborted;
	struct timer end; /* the socket had no room for the message that ends the session */
};

static ssize_t tls_stream_send(struct stream *s, const struct iovec *iov, int n)
{
	ssize_t done = tls_sendv(s->tls->session, iov, n);

	s->tx_calls++;
	if (done < 0) {
		s->tx_again += done == -EAGAIN;
		return done;
	}
	s->tx_bytes += (uint64_t)done;
	if (s->trace)
		trace_bytes(s->trace, true, iov, n, (size_t)done);
	return done;
}

static ssize_t tls_stream_recv(struct stream *s, const struct iovec *iov, int n)
{
	ssize_t done = tls_recvv(s->tls->session, iov, n);

	s->rx_calls++;
	s->buffered = tls_pending(s->tls->session);
	if (done < 0) {
		s->rx_again += done == -EAGAIN;
		return done;
	}
	s->rx_bytes += (uint64_t)done;
	if (s->trace && done > 0)
		trace_bytes(s->trace, false, iov, n, (size_t)done);
	return done;
}

/* Ends the session, then the direction of TCP; later, if the socket has no room now. */
static void end_session(struct timer *t)
{
	struct stream_tls *tls = container_of(t, struct stream_tls, end);

	if (tls_shutdown(tls->session) == -EAGAIN)
		timer_set(t, clock_ns() + END_RETRY_NS, end_session);
	else
		tls->tcp->shutdown(tls->stream);
}

static void tls_stream_shutdown(struct stream *s)
{
	end_session(&s->tls->end);
}

static void tls_stream_abort(struct stream *s)
{
	s->tls->aborted = true;
	s->tls->tcp->abort(s);
}

static void tls_stream_close(struct stream *s)
{
	struct stream_tls *tls = s->tls;

	assert(engine_locked());
	timer_cancel(&tls->end);
	if (!tls->aborted)
		tls_shutdown(tls->session); /* harmless if it was sent before */
	tls_close(tls->session);
	tls->tcp->close(s);
	free(tls);
}

static int tls_stream_ready(struct stream *s)
{
	return s->tls->tcp->ready(s) | (s->buffered ? POLLIN : 0);
}

static unsigned tls_stream_emss(struct stream *s)
{
	return s->tls->tcp->emss(s);
}

static unsigned tls_stream_unsent(struct stream *s)
{
	return s->tls->tcp->unsent(s);
}

static const struct stream_ops tls_ops = {
	.send = tls_stream_send,
	.recv = tls_stream_recv,
	.shutdown = tls_stream_shutdown,
	.abort = tls_stream_abort,
	.close = tls_stream_close,
	.ready = tls_stream_ready,
	.emss = tls_stream_emss,
	.unsent = tls_stream_unsent,
};

int stream_start_tls(struct stream *s, struct tls_context *context, enum tls_side side,
		     char why[TLS_WHY_LEN])
{
	struct stream_tls *tls = calloc(1, sizeof(*tls));
	int err = tls ? tls_open(&tls->session, context, s->fd, side, why) : -ENOMEM;

	assert(!s->tls);
	if (err) {
		free(tls);
		return err;
	}
	if (side == TLS_CLIENT)
		tls_hold_finish(tls->session);
	tls->tcp = s->ops;
	tls->stream = s;
	s->tls = tls;
	s->ops = &tls_ops;
	return 0;
}

int stream_tls_handshake(struct stream *s)
{
	int err = tls_handshake(s->tls->session);

	if (!err) {
		tls_describe(s->tls->session, &s->tls->info);
		s->buffered = tls_pending(s->tls->session);
	}
	return err;
}

short stream_tls_events(const struct stream *s)
{
	return tls_events(s->tls->session);
}

const char *stream_tls_why(const struct stream *s)
{
	return s->tls ? tls_why(s->tls->session) : "";
}

const struct tls_info *stream_tls_info(const struct stream *s)
{
	return s->tls && s->tls->info.version[0] ? &s->tls->info : NULL;
}
