/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h - the other end of a stream, in memory: what it sends is what the target
 * puts there, what it gets is kept to be looked at.
 */
#ifndef STAG_FUZZ_PEER_H
#define STAG_FUZZ_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/stream.h"

#define PEER_ROOM (1 << 20)

struct peer {
	struct stream stream;	/* first; what the adapter holds */
	uint8_t in[PEER_ROOM];	/* what the peer has sent */
	size_t in_len, in_off;	/* all, taken */
	uint8_t out[PEER_ROOM]; /* what it got */
	size_t out_len;
	size_t piece; /* how much one call moves at most */
	bool full;    /* takes nothing at present */
	int end;      /* what recv gives behind the last byte: 0, or -errno */
	unsigned emss;
	bool shut, aborted, closed;
};

extern struct peer peer;

void peer_open(int fd);			    /* a fresh stream; fd is closed with it, unless -1 */
void peer_sends(const void *p, size_t len); /* more than there is room for: nothing */

#endif
