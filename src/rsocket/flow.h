/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * flow.h - flow control: the two directions of a stream, as numbers.
 *
 * The receiving side has a ring, granted to the peer one half at a time, and a limit of messages in
 * flight. The sending side knows the halves that it was granted, its position in them, and how many
 * messages it may still send; and it has a ring of its own, from which writes are posted.
 *
 * Nothing here touches memory or posts: a test can run both ends of a connection against each
 * other. The caller serialises the calls, by the socket's lock.
 */
#ifndef STAG_RSOCKET_FLOW_H
#define STAG_RSOCKET_FLOW_H

#include "rsocket/proto.h"

/* Received data that is not read yet, and room that can be granted to the peer again. */
struct flow_rx {
	uint32_t size;	   /* bytes of the ring; even */
	uint32_t read_at;  /* offset of the first unread byte */
	uint32_t unread;   /* bytes announced and not read */
	uint32_t granted;  /* bytes that the peer may still write */
	uint32_t freed;	   /* bytes read, or never granted, since the last half was granted */
	uint32_t give_at;  /* offset of the half to grant next */
	uint16_t window;   /* limit of messages in flight or unread */
	uint16_t seq;	   /* messages that were read */
	uint16_t seq_due;  /* the peer is notified when seq reaches this */
	uint32_t *lengths; /* lengths of the unread messages: a ring of lengths_mask + 1 */
	uint32_t lengths_mask, put, get;
};

/* A grant to announce to the peer. */
struct flow_grant {
	bool half;	   /* grants a half of the ring, too */
	uint32_t give_at;  /* its offset */
	uint32_t length;   /* its size */
	unsigned slot;	   /* the peer's slot in which to announce it */
	uint16_t seq_stop; /* number up to which the peer may send messages */
};

/*
 * The peer fills the slots in turn, each as soon as all data in its previous buffer has been read,
 * and announces it by the same message that counts the messages read. So a message tells whether a
 * slot has been filled, and no slot is read while it may be half written.
 */
struct flow_tx {
	uint32_t size; /* bytes of the send ring */
	uint32_t used; /* bytes in it that are not sent yet */
	uint32_t put_at;
	/* buffers that the peer granted; an unused one has length 0 */
	struct rs_region target[RS_SLOTS];
	uint64_t end[RS_SLOTS]; /* value of `sent` when the target was used up */
	unsigned at;		/* the target in use */
	unsigned next;		/* the slot that the peer fills next */
	uint64_t sent;		/* messages; the peer sees the lower 16 bits */
	uint16_t window;	/* limit of messages in flight or unread */
	uint16_t seq_stop;	/* number up to which messages may be sent, 16 bits */
	uint32_t uncounted;	/* messages without data: librdmacm never counts those as read */
};

/* A piece of the send ring: `first` bytes at `at`, then `rest` at its start. */
struct flow_span {
	uint32_t at, first, rest;
};

/* Returns 0 or -ENOMEM; flow_rx_free() frees the memory. */
int flow_rx_init(struct flow_rx *rx, uint32_t ring_size, uint16_t window);
void flow_rx_free(struct flow_rx *rx);

/* The peer announces that it wrote `len` bytes. Returns -EPROTO if it was not granted that many. */
int flow_rx_arrived(struct flow_rx *rx, uint32_t len);

/* Counts a message without data, once it is processed. */
void flow_rx_counted(struct flow_rx *rx);

/* Returns the bytes that can be read at read_at up to the end of the ring. */
uint32_t flow_rx_contiguous(const struct flow_rx *rx);
void flow_rx_consume(struct flow_rx *rx, uint32_t len);

/* Returns whether a grant should be announced to the peer. */
bool flow_rx_due(const struct flow_rx *rx);

/* Returns the grant, which the caller announces. */
struct flow_grant flow_rx_grant(struct flow_rx *rx);

void flow_tx_init(struct flow_tx *tx, uint32_t ring_size, const struct rs_offer *peer);

/* Returns the bytes that the next message may carry: 0 without a credit or a buffer. */
uint32_t flow_tx_window(const struct flow_tx *tx);
uint32_t flow_tx_space(const struct flow_tx *tx); /* of the send ring */

/* Allocates room for one message of len <= window bytes in the peer's buffer. */
struct rs_region flow_tx_aim(struct flow_tx *tx, uint32_t len);

/* Returns whether a message without data may be sent: it needs a credit, too. */
bool flow_tx_credit(const struct flow_tx *tx);
void flow_tx_counted(struct flow_tx *tx);

/* Allocates len <= space bytes of the send ring; they are freed in the same order. */
struct flow_span flow_tx_reserve(struct flow_tx *tx, uint32_t len);
void flow_tx_release(struct flow_tx *tx, uint32_t len);

/* The peer granted credits. Returns the slot that it has filled as well, or -1. */
int flow_tx_granted(struct flow_tx *tx, uint16_t seq_stop);
void flow_tx_refill(struct flow_tx *tx, const struct rs_region *region); /* contents of the slot */

#endif
