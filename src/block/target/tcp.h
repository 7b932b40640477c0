/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tcp.h - a connection over TCP: PDUs to and from a socket that never waits.
 *
 * Reading (tcp_rx.c) knows where a PDU's data goes when its header is there: what has come with the header is copied,
 * the rest is read to its place. Writing (tcp_tx.c) gathers headers and the memory of the pieces, many PDUs a call.
 *
 *   HEADER -> DATA -> TAIL -> HEADER      WAIT: like DATA, but there is no buffer for it yet
 *       \----> WAIT -^
 */
#ifndef STAG_BLOCK_TCP_H
#define STAG_BLOCK_TCP_H

#include "block/target/target.h"

#define RX_BYTES     16384
#define TX_INLINE    256	/* data that is copied into the queue itself */
#define TX_MAX_BYTES (1u << 20) /* of copied data, then nothing more is read */
#define TX_MAX_PDUS  1024	/* and so many PDUs */
#define HEADER_MAX   (BHS_LEN + AHS_MAX + DIGEST_LEN)

enum rx_state { RX_HEADER, RX_WAIT, RX_DATA, RX_TAIL };

/* A PDU on its way out. */
struct out {
	struct list link;
	struct piece *piece; /* comes back when this is out; NULL: none */
	uint32_t sent;	     /* of all that follows */
	uint32_t head_len, data_len, tail_len;
	const uint8_t *data;
	uint8_t *copied; /* data, to be freed; NULL: inline, or a piece's */
	uint8_t head[BHS_LEN + DIGEST_LEN];
	uint8_t tail[3 + DIGEST_LEN];
	uint8_t small[TX_INLINE];
};

struct tcp {
	struct conn conn;
	struct watch watch;
	uint32_t events; /* that are watched for */
	bool broken;	 /* memory ran out: it ends at the next flush */
	bool shut;	 /* our half is closed */
	bool heard;	 /* it has said something */
	bool reading;	 /* tcp_read() is at it, further out */

	struct {
		enum rx_state state;
		uint32_t head, tail; /* of buffer */
		uint8_t bhs[BHS_LEN];
		struct pdu pdu;
		uint8_t *to;	   /* where data goes; NULL: nowhere */
		uint32_t left;	   /* of it, to come */
		uint8_t *control;  /* data of requests that are no commands */
		struct task *task; /* whose command or data it is */
		struct piece *piece;
		bool ignored; /* it is as if it were not there */
		struct waiter wait;
		uint8_t buffer[RX_BYTES];
	} rx;

	struct {
		struct list queue;
		unsigned int n;
		uint32_t copied; /* bytes */
		bool blocked;	 /* the socket is full */
	} tx;
};

static inline struct tcp *to_tcp(struct conn *c)
{
	return container_of(c, struct tcp, conn);
}

/* tcp_rx.c */
void tcp_read(struct tcp *t);	 /* what there is, for a while */
void tcp_rx_drop(struct tcp *t); /* what is under way */
void tcp_rx_forget(struct tcp *t, struct task *k);
void tcp_rx_wake(struct waiter *w); /* there are buffers again */
bool tcp_rx_waits(const struct tcp *t);

/* tcp_tx.c */
void tcp_send(struct conn *c, struct pdu *p, const void *data, uint32_t len);
void tcp_respond(struct task *k, struct pdu *p, const void *data, uint32_t len);
void tcp_data_in(struct piece *p, bool with_status);
void tcp_data_out(struct piece *p);
void tcp_ask(struct task *k); /* R2Ts, as many as may be out */
int tcp_write(struct tcp *t); /* 0: all, or the socket is full; -errno: it is lost */
void tcp_tx_drop(struct tcp *t);
bool tcp_tx_is_full(const struct tcp *t);

/* tcp.c */
void tcp_watch(struct tcp *t);
void tcp_resume(struct conn *c);

#endif
