/* SPDX-License-Identifier: BSD-2-Clause */
/* trace.h - a record of the bytes of streams, and of datagrams, as pcapng. */
#ifndef STAG_TRACE_H
#define STAG_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct datagram;
struct hello;
struct trace_conn;

/*
 * Returns NULL if tracing is off or impossible (logged once). local and peer: addresses of the
 * packets.
 */
struct trace_conn *trace_open(const struct sockaddr_storage *local,
			      const struct sockaddr_storage *peer, bool initiator);
/*
 * Records the hellos of two queue pairs of roce0, which began the stream before it was opened here. The
 * trace shows them as private data of an MPA Request and a Reply, which are not on the wire: with them Wireshark
 * understands the FPDUs that follow.
 */
void trace_hellos(struct trace_conn *t, const struct hello *ask, const struct hello *ready);
void trace_bytes(struct trace_conn *t, bool sent, const struct iovec *iov, int n, size_t len);
void trace_close(struct trace_conn *t, bool reset); /* writes FIN or RST packets, and frees */

/* Records a datagram, with d->length bytes of payload, as the RoCE v2 packet that it stands for. */
void trace_datagram(bool sent, const struct datagram *d, const uint8_t *payload);

#endif
