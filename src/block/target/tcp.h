/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tcp.h - a connection over TCP: PDUs to and from a non-blocking socket.
 *
 * When a header has been read (tcp_rx.c), the place of the PDU's data is known: bytes that arrived together with the header are
 * copied, the rest is read to its place. Writing (tcp_tx.c) gathers headers and the memory of pieces, many PDUs per system call.
 *
 * States of reading:
 *
 *   HEADER -> DATA -> TAIL -> HEADER      WAIT: there is no buffer for the data yet
 *       \----> WAIT -^
 *
 * Before that (tcp_first.c), the first bytes tell what the connection is; if TLS is not off, PDUs may be inside of TLS:
 *
 *   FIRST -> SHAKES -> PDUS
 *      \-----------------^
 */
#ifndef STAG_BLOCK_TCP_H
#define STAG_BLOCK_TCP_H

#include "block/target/target.h"

#define RX_BYTES     16384
#define TX_INLINE    256	/* bytes of data that are copied into the queue entry itself */
#define TX_MAX_BYTES (1u << 20) /* of copied data in the queue: with more, reading pauses */
#define TX_MAX_PDUS  1024	/* in the queue: with more, reading pauses */
#define HEADER_MAX   (BHS_LEN + AHS_MAX + DIGEST_LEN)

/* The first byte of an RDMA connection, which no PDU of a login has: of stag0 it is that of MPA's Request. */
static inline bool is_rdma_first(int byte)
{
	return byte == 'M' || byte == 's';
}

enum tcp_stage { TCP_FIRST, TCP_SHAKES, TCP_PDUS };
enum rx_state { RX_HEADER, RX_WAIT, RX_DATA, RX_TAIL };

/* A PDU in the send queue. */
struct target_tcp_pdu {
	struct list link;
	struct target_piece *piece; /* to be returned when this PDU has been sent, or NULL */
	uint32_t sent;		    /* bytes of head, data and tail together */
	uint32_t head_len, data_len, tail_len;
	const uint8_t *data;
	uint8_t *copied; /* data, to be freed; NULL: the data is in small, or in a piece */
	uint8_t head[BHS_LEN + DIGEST_LEN];
	uint8_t tail[3 + DIGEST_LEN];
	uint8_t small[TX_INLINE];
};

struct target_tcp {
	struct target_conn conn;
	struct target_watch watch;
	uint32_t events; /* in the epoll set */
	bool broken;	 /* memory ran out: ends at the next flush */
	bool shut;	 /* this side is shut down */
	bool heard;	 /* the first byte has arrived */
	enum tcp_stage stage;
	struct tls_session *tls; /* NULL: not encrypted */
	struct {
		struct list link; /* in target->tls.waiting */
		uint32_t events;  /* that the handshake waits for */
		size_t wanted;	  /* bytes of the first message; 0: not known */
	} shake;
	bool reading; /* target_tcp_read() is running, further out in the call stack */

	struct {
		enum rx_state state;
		uint32_t head, tail; /* of buffer */
		uint8_t bhs[BHS_LEN];
		struct pdu pdu;
		uint8_t *to;		  /* place of the next byte of data; NULL: it is dropped */
		uint32_t left;		  /* bytes of data still to come */
		uint8_t *control;	  /* data of requests other than commands */
		struct target_task *task; /* that the command or data belongs to */
		struct target_piece *piece;
		bool ignored; /* the PDU is dropped */
		struct target_waiter wait;
		uint8_t *
			buffer; /* RX_BYTES, not zeroed: pages that an idle connection does not touch cost nothing */
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
void target_tcp_read(struct target_tcp *t);    /* reads and handles PDUs, for a limited time */
void target_tcp_rx_drop(struct target_tcp *t); /* drops the PDU that is being read */
void target_tcp_rx_forget(struct target_tcp *t, struct target_task *k);
void target_tcp_rx_wake(struct target_waiter *w); /* a buffer is free again */
bool target_tcp_rx_waits(const struct target_tcp *t);
/* Returns whether bytes are decrypted that no event of the socket will announce. */
bool target_tcp_rx_has_more(const struct target_tcp *t);

/* tcp_tx.c */
void target_tcp_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
void target_tcp_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len);
void target_tcp_data_in(struct target_piece *p, bool with_status);
void target_tcp_data_out(struct target_piece *p);
void target_tcp_send_r2ts(struct target_task *k); /* as many as MaxOutstandingR2T allows */
/* Writes what is queued. Returns 0, also if the socket is full, or -errno if the connection is lost. */
int target_tcp_write(struct target_tcp *t);
void target_tcp_tx_drop(struct target_tcp *t);
bool target_tcp_tx_is_full(const struct target_tcp *t);

/* tcp_first.c */
/* Handles events of a connection before its PDUs. Returns true if the event is for them. */
bool target_tcp_begin(struct target_tcp *t, uint32_t events);
void target_tcp_shake(struct target_tcp *t); /* goes on with the handshake */

/* tcp.c */
void target_tcp_watch(struct target_tcp *t);
void target_tcp_resume(struct target_conn *c);

#endif
