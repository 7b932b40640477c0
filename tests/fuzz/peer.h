/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h - the peer of a stream, in memory: it sends what the fuzz target provides,
 * and keeps what it receives for checks.
 */
#ifndef STAG_FUZZ_PEER_H
#define STAG_FUZZ_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/stream.h"

#define PEER_ROOM (1 << 20)

struct peer {
	struct stream stream;	/* first member; the adapter holds this */
	uint8_t in[PEER_ROOM];	/* bytes that the peer has sent */
	size_t in_len, in_off;	/* in total, read by the adapter */
	uint8_t out[PEER_ROOM]; /* bytes that it has received */
	size_t out_len;
	size_t piece; /* most bytes that one call moves */
	bool full;    /* accepts no bytes at present */
	int end;      /* result of recv after the last byte: 0, or -errno */
	unsigned emss;
	bool shut, aborted, closed;
};

extern struct peer peer;

void peer_open(int fd);			    /* a fresh stream; fd is closed with it, unless -1 */
void peer_sends(const void *p, size_t len); /* sends nothing if there is not enough room */

#endif
