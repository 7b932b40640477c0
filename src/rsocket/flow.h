/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * flow.h - who may send how much: the two directions of a stream, as numbers.
 *
 * The receiving side has a ring, given to the peer one half at a time, and a
 * number of messages that may be on their way. The sending side knows the
 * halves that it was given, its place in them, and how many messages it may
 * still send; and it has a ring of its own, from which writes are posted.
 *
 * No memory is touched here, and nothing is posted: a test can run both ends
 * of a connection against each other. The caller holds the socket's lock.
 */
#ifndef STAG_RSOCKET_FLOW_H
#define STAG_RSOCKET_FLOW_H

#include "rsocket/proto.h"

/* What arrived and was not read yet, and what can be given back to the peer. */
struct flow_rx {
	uint32_t size;	   /* of the ring; even */
	uint32_t read_at;  /* offset of the first unread byte */
	uint32_t unread;   /* bytes that were announced and not read */
	uint32_t granted;  /* bytes that the peer may still write */
	uint32_t freed;	   /* bytes read, or never given, since the last half was given */
	uint32_t give_at;  /* offset of the half to give next */
	uint16_t window;   /* messages that may be on their way or unread */
	uint16_t seq;	   /* messages that were read */
	uint16_t seq_due;  /* when seq gets here, the peer is told */
	uint32_t *lengths; /* of the unread messages: a ring of lengths_mask + 1 */
	uint32_t lengths_mask, put, get;
};

/* What to tell the peer. */
struct flow_grant {
	bool half;	   /* a half of the ring is given, too */
	uint32_t give_at;  /* its offset */
	uint32_t length;   /* its size */
	unsigned slot;	   /* where in the peer's slots to announce it */
	uint16_t seq_stop; /* the peer may send messages up to this number */
};

/*
 * The peer fills the slots in turn, each as soon as all that was written to its
 * last buffer has been read, and says so with the same message that counts the
 * messages read. So a message tells whether a slot has been filled, and no slot
 * is looked at while it may be half written.
 */
struct flow_tx {
	uint32_t size; /* of the send ring */
	uint32_t used; /* bytes in it that are not sent yet */
	uint32_t put_at;
	struct rs_region target[RS_SLOTS]; /* what the peer gave; an empty one has length 0 */
	uint64_t end[RS_SLOTS];		   /* what `sent` was when the target was used up */
	unsigned at;			   /* the target in use */
	unsigned next;			   /* the slot that the peer fills next */
	uint64_t sent;			   /* messages; the peer knows 16 bits of it */
	uint16_t window;		   /* messages that may be on their way or unread */
	uint16_t seq_stop;		   /* messages that may be sent, as 16 bits */
	uint32_t uncounted; /* messages without data: librdmacm never counts those as read */
};

/* A piece of the send ring: `first` bytes at `at`, then `rest` at its start. */
struct flow_span {
	uint32_t at, first, rest;
};

/* 0 or -ENOMEM; flow_rx_free() gives the memory back. */
int flow_rx_init(struct flow_rx *rx, uint32_t ring_size, uint16_t window);
void flow_rx_free(struct flow_rx *rx);

/* The peer says that `len` bytes were written. -EPROTO if it had no leave to. */
int flow_rx_arrived(struct flow_rx *rx, uint32_t len);

/* A message that carries no data still counts, once it is dealt with. */
void flow_rx_counted(struct flow_rx *rx);

/* Bytes that can be read at read_at without going round. */
uint32_t flow_rx_contiguous(const struct flow_rx *rx);
void flow_rx_consume(struct flow_rx *rx, uint32_t len);

/* Is there something that the peer should be told? */
bool flow_rx_due(const struct flow_rx *rx);

/* What to tell it; the caller does. */
struct flow_grant flow_rx_grant(struct flow_rx *rx);

void flow_tx_init(struct flow_tx *tx, uint32_t ring_size, const struct rs_offer *peer);

/* Bytes that the next message may carry: 0 without a credit or a buffer. */
uint32_t flow_tx_window(const struct flow_tx *tx);
uint32_t flow_tx_space(const struct flow_tx *tx); /* of the send ring */

/* Takes the place for one message of len <= window bytes in the peer's buffer. */
struct rs_region flow_tx_aim(struct flow_tx *tx, uint32_t len);

/* A message without data also needs a credit. */
bool flow_tx_credit(const struct flow_tx *tx);
void flow_tx_counted(struct flow_tx *tx);

/* Takes len <= space bytes of the send ring; they come back in the same order. */
struct flow_span flow_tx_reserve(struct flow_tx *tx, uint32_t len);
void flow_tx_release(struct flow_tx *tx, uint32_t len);

/* The peer gave credits. The slot that it has filled as well, or -1. */
int flow_tx_granted(struct flow_tx *tx, uint16_t seq_stop);
void flow_tx_refill(struct flow_tx *tx, const struct rs_region *region); /* what was in it */

#endif
