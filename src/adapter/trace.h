/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace.h - what passes a stream, as pcapng.
 */
#ifndef STAG_TRACE_H
#define STAG_TRACE_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct trace_conn;

/* NULL when tracing is off or cannot be (logged once). local and peer name the packets. */
struct trace_conn *trace_open(const struct sockaddr_storage *local,
			      const struct sockaddr_storage *peer, bool initiator);
void trace_bytes(struct trace_conn *t, bool sent, const struct iovec *iov, int n, size_t len);
void trace_close(struct trace_conn *t, bool reset); /* FIN or RST packets; frees */

#endif
