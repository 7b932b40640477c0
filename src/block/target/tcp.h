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
struct target_tcp_pdu {
	struct list link;
	struct target_piece *piece; /* comes back when this is out; NULL: none */
	uint32_t sent;		    /* of all that follows */
	uint32_t head_len, data_len, tail_len;
	const uint8_t *data;
	uint8_t *copied; /* data, to be freed; NULL: inline, or a piece's */
	uint8_t head[BHS_LEN + DIGEST_LEN];
	uint8_t tail[3 + DIGEST_LEN];
	uint8_t small[TX_INLINE];
};

struct target_tcp {
	struct target_conn conn;
	struct target_watch watch;
	uint32_t events; /* that are watched for */
	bool broken;	 /* memory ran out: it ends at the next flush */
	bool shut;	 /* our half is closed */
	bool heard;	 /* it has said something */
	bool reading;	 /* target_tcp_read() is at it, further out */

	struct {
		enum rx_state state;
		uint32_t head, tail; /* of buffer */
		uint8_t bhs[BHS_LEN];
		struct pdu pdu;
		uint8_t *to;		  /* where data goes; NULL: nowhere */
		uint32_t left;		  /* of it, to come */
		uint8_t *control;	  /* data of requests that are no commands */
		struct target_task *task; /* whose command or data it is */
		struct target_piece *piece;
		bool ignored; /* it is as if it were not there */
		struct target_waiter wait;
		uint8_t buffer[RX_BYTES];
	} rx;

	struct {
		struct list queue;
		unsigned int n;
		uint32_t copied; /* bytes */
		bool blocked;	 /* the socket is full */
	} tx;
};

static inline struct target_tcp *to_tcp(struct target_conn *c)
{
	return container_of(c, struct target_tcp, conn);
}

/* tcp_rx.c */
void target_tcp_read(struct target_tcp *t);    /* what there is, for a while */
void target_tcp_rx_drop(struct target_tcp *t); /* what is under way */
void target_tcp_rx_forget(struct target_tcp *t, struct target_task *k);
void target_tcp_rx_wake(struct target_waiter *w); /* there are buffers again */
bool target_tcp_rx_waits(const struct target_tcp *t);

/* tcp_tx.c */
void target_tcp_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
void target_tcp_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len);
void target_tcp_data_in(struct target_piece *p, bool with_status);
void target_tcp_data_out(struct target_piece *p);
void target_tcp_send_r2ts(struct target_task *k); /* R2Ts, as many as may be out */
int target_tcp_write(struct target_tcp *t); /* 0: all, or the socket is full; -errno: it is lost */
void target_tcp_tx_drop(struct target_tcp *t);
bool target_tcp_tx_is_full(const struct target_tcp *t);

/* tcp.c */
void target_tcp_watch(struct target_tcp *t);
void target_tcp_resume(struct target_conn *c);

#endif
