/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_tx.h - the sending side's private declarations: a batch of FPDUs.
 *
 * All of it is protected by the queue pair's tx_lock.
 */
#ifndef STAG_QP_TX_H
#define STAG_QP_TX_H

#include <assert.h>

#include "adapter/device.h"
#include "adapter/qp.h"

#define TX_IOV	     128
#define TX_FPDU_IOV  24	   /* most pieces of payload in one FPDU */
#define TX_BUF	     65536 /* headers, CRCs and short payloads of a batch */
#define TX_COPY	     1024  /* payloads up to this size are copied rather than referred to, */
#define TX_PIECE     1024  /* and those whose pieces have up to this size, on average, */
#define TX_GATHER    8064  /* so much of them in one FPDU, which the peer reads in one go */
#define TX_FPDU_BUF  (TX_GATHER + 128) /* most bytes of the buffer for one FPDU */
#define TX_FETCH     4096 /* a message up to this size is prefetched during the CRC of the one before */
#define TX_BATCH     (1 << 20) /* most bytes of a batch */
#define TX_BATCH_CRC (1 << 19) /* the same with CRC, which reads them first: keep them in cache */
#define TX_BOUNCE    TX_BATCH_CRC
#define TX_LINE	     64 /* alignment of each payload in the bounce buffer */
#define TX_STORED    8	/* most buffers of storage in one FPDU */
#define TX_RUN	     8	/* batches in a row, before the caller goes on */

/* which side's access it is: our request, or our response to the peer */
enum tx_for { FOR_US, FOR_PEER };

struct tx_ref { /* memory that the batch refers to */
	struct key_slot *slot;
	uint32_t stag;
	uint64_t life;
	uint64_t *cell; /* hazard of a guarded region, while the references are held */
	int upto;	/* index of the last piece of the batch in this memory */
	enum tx_for who;
};

/* A read or an atomic of the peer that awaits its response. */
struct response {
	bool is_atomic;
	union {
		struct rdmap_read_req read;
		struct rdmap_atomic_req atomic;
	};
	uint32_t off;		    /* reads: bytes framed so far */
	uint32_t number;	    /* roce0: of the request */
	struct peer_request *store; /* source of the data on storage; or NULL */
	uint64_t gate; /* number of the peer's write to storage that has to be done first */
};

struct response_ring {
	struct response *at;
	uint32_t size, put, get; /* size: IRD, and one for an RTR that is a read */
	uint32_t mask;		 /* entries - 1: put and get may wrap around */
};

struct read_ring {
	struct wqe *at[STAG_MAX_RD_ATOM];
	uint32_t put, get;
};

enum tx_open { /* the kind of message that is begun and not ended */
	       OPEN_NONE,
	       OPEN_SQ,
	       OPEN_RESPONSE,
	       OPEN_FORWARD,
};

struct qp_tx {
	/* the batch */
	struct iovec iov[TX_IOV];
	int n, cur;
	struct tx_ref ref[TX_IOV];
	unsigned n_ref;
	bool refs_held;
	uint32_t buf_used, bytes;
	uint8_t buf[TX_BUF];
	struct peer_buffer *buffers[TX_IOV]; /* of storage, held until the batch is sent */
	unsigned n_buffers;
	uint8_t *bounce; /* copies of read data for the CRC: the memory may change meanwhile */
	uint32_t bounce_used;

	uint64_t queued, sent; /* stream offsets: all framed; all taken by the stream */
	uint32_t sent_idx;     /* SQ index: all requests before it are sent */
	unsigned mulpdu;
	uint32_t msn[QN_COUNT];

	enum tx_open open;
	bool response_next; /* alternates while there are responses and requests */
	uint32_t off;	    /* bytes framed of the SQ's open message */
	bool imm_due;	    /* the write is framed, its immediate is not */
	uint32_t sge, sge_off;

	struct response_ring irq; /* the peer's reads and atomics that await their response */
	struct read_ring orq;	  /* our own */

	struct forwards *fwd; /* tx_forward.c; NULL unless a mirror uses the queue pair */

	bool held; /* nothing may be sent yet (link.wait_first, link.hold_until) */
	bool rtr_due;
	bool closing; /* send FIN when everything is sent */
	bool fin_sent;
	bool dead;	  /* the stream refused a send, or the last message is out */
	bool bad_request; /* the next request cannot be framed: fail it when the batch is out */
	struct wire_fault response_fault; /* why a response cannot be given */

	uint8_t *marked; /* an FPDU without markers, and again with them */
};

/* The only writer of tx->open: a message is ended before another is begun. */
static inline void tx_set_open(struct qp_tx *tx, enum tx_open to)
{
	assert(to == OPEN_NONE || tx->open == OPEN_NONE || tx->open == to);
	tx->open = to;
}

struct mark { /* a position in a batch, to return to */
	int n;
	size_t last_len;
	unsigned n_ref;
	uint32_t buf_used, bytes, bounce_used;
};

struct fpdu {
	uint8_t *start; /* its length field; the header follows */
	size_t hdr_len; /* with the header's sum, if it has one */
	size_t payload;
	bool flat;   /* the payload follows the header in the buffer */
	int first;   /* otherwise: index of its first piece in the iov */
	int pieces;  /* pieces of the regions that the payload comes from */
	bool summed; /* crc covers header and payload already */
	uint32_t crc;
};

/* tx_fpdu.c */
void tx_refs_put(struct qp_tx *tx);
struct mark tx_mark(const struct qp_tx *tx);
void tx_back_to(struct qp_tx *tx, const struct mark *m);
uint8_t *tx_own_bytes(struct qp_tx *tx, size_t len);
void tx_foreign_bytes(struct qp_tx *tx, const struct iovec *piece);
void tx_keep_refs(struct qp_tx *tx, struct key_map *map, enum tx_for who);
enum key_fault tx_refs_get_again(struct qp_tx *tx);
/* key_get() for the batch. KEY_BUSY: retry when the batch is sent. */
enum key_fault tx_key_get(struct stag_qp *qp, uint32_t stag, struct stag_qp *peer, uint64_t to,
			  uint64_t len, unsigned access, struct key_map *map);
/* Before fpdu_begin(): gives the header of so much data a sum of its own if the peer wants one. */
void tx_sum_header(const struct stag_qp *qp, struct ddp_hdr *h, size_t payload);
struct fpdu fpdu_begin(struct qp_tx *tx, const struct ddp_hdr *h);
void fpdu_end(struct stag_qp *qp, const struct fpdu *f, const struct ddp_hdr *h);
uint8_t *fpdu_own_payload(struct qp_tx *tx, struct fpdu *f, size_t len);
struct ddp_hdr tx_untagged(struct qp_tx *tx, enum rdmap_op op, enum ddp_qn qn);
void tx_copy_pieces(uint8_t *to, const struct key_map *map);
void fpdu_sum_copy(struct fpdu *f, const struct ddp_hdr *h, uint8_t *to, const struct key_map *map);
void tx_promise_full(const struct stag_qp *qp, struct ddp_hdr *h, size_t left);

/* tx_request.c */
bool tx_request_may_go(const struct stag_qp *qp, const struct wqe *w);
bool tx_frame_request(struct stag_qp *qp);

void tx_await(struct stag_qp *qp, struct wqe *w); /* enqueues it for its response */

/* tx_forward.c */
bool tx_forwards_wait(const struct stag_qp *qp);
bool tx_forward_may_go(const struct stag_qp *qp);
bool tx_forward_is_first(const struct stag_qp *qp); /* does it go before the next request? */
bool tx_frame_forward(struct stag_qp *qp);
/* Is w the read that confirms forwards, and is that read in flight? There is at most one. */
bool tx_is_ask(const struct stag_qp *qp, const struct wqe *w);
bool tx_is_asking(const struct stag_qp *qp);

/* tx_response.c */
/* Returns room for a copy that does not change between the CRC and the kernel's read, or NULL. */
uint8_t *tx_bounce_room(struct qp_tx *tx, size_t len);
/* Copies data beside the batch. Returns false if there is no room. */
bool tx_bounce_data(struct stag_qp *qp, const struct key_map *map, struct fpdu *f,
		    const struct ddp_hdr *h);
/* the oldest response, or more of the one that is begun */
bool tx_response_may_go(struct stag_qp *qp);
bool tx_frame_response(struct stag_qp *qp);
void tx_buffers_put(struct stag_qp *qp);
void tx_responses_drop(struct stag_qp *qp);

#endif
