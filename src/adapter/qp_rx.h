/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_rx.h - the receiving side's private declarations: the parser of a stream.
 *
 * All of it is protected by the queue pair's rx_lock.
 */
#ifndef STAG_QP_RX_H
#define STAG_QP_RX_H

#include "adapter/mirror.h"
#include "adapter/qp.h"

#define STAGE	   16384
#define CATCH	   64	/* bytes to read behind a large payload: the trailer and the next header */
#define BULK	   4096 /* payload that counts as large there */
#define TAIL	   64	/* last bytes of a write, which are placed last: see ends_write() */
#define MAX_READS  16	/* reads of the stream in a row */
#define MARKED	   (2 * FPDU_MAX_LEN) /* raw bytes of a stream with markers */
#define STAGE_LONG (2 * FPDU_MAX_LEN) /* if long FPDUs are staged: see bytes_needed() */

enum rx_step { RX_HEADER, RX_PAYLOAD, RX_TRAILER };

struct rx_span {
	struct peer_buffer *buffer;
	uint32_t at, len;
};

/* rx_store.c: a write to storage, from the stream to the lane. */
struct rx_landing {
	struct peer_buffer *buffer; /* being filled, up to `used` */
	struct stag_medium *medium;
	uint32_t used;
	uint32_t start, len; /* the part of it that is good and not in the lane yet */
	uint32_t stag;	     /* its destination */
	uint64_t to;
	struct rx_span span[2]; /* the place of the present segment */
	unsigned n_span;
};

/* The region that a write goes to, directly or through a window. */
struct rx_into {
	struct key_slot *region; /* NULL: none */
	uint32_t stag;		 /* the region's own tag */
	uint64_t life;
	uint64_t off; /* of the segment in the region */
};

/* rx_mirror.c */
struct rx_mirroring {
	/* the segment that some mirrors still have to take; region NULL: none */
	struct rx_into rest;
	uint32_t rest_len;
	uint64_t next;	     /* number of the first mirror that has not taken it */
	struct rx_into kick; /* region whose mirrors have unsent forwards */
	struct mirror_gates gates;
	bool stalled;
	uint64_t turn; /* mirror_turns() at the last try */
};

enum rx_end_kind { END_NONE, END_FAULT, END_TERMINATED, END_CLOSED };

struct rx_end { /* how the stream ended, kept while earlier completions are held */
	enum rx_end_kind kind;
	struct terminate term;
	enum ibv_event_type event;
	bool clean;
};

struct qp_rx {
	uint8_t *stage;
	uint32_t stage_size, head, tail; /* not yet consumed: [head, tail) */
	uint8_t *marked;		 /* with markers: raw bytes of the stream */
	uint32_t marked_len;
	uint64_t pos; /* stream offset of marked[0] */

	enum rx_step step;
	struct ddp_hdr h;
	uint32_t ulpdu_len;
	uint32_t seg_len, seg_done; /* payload of this segment: all, placed */
	bool verified;		    /* the CRC of this FPDU has been checked */
	uint32_t crc;
	uint8_t seg_hdr[DDP_UNTAGGED_LEN + RDMAP_ATOMIC_REQ_LEN]; /* kept for a Terminate */
	uint32_t seg_hdr_len;

	/* bytes of the next segments that were placed before their headers were read, */
	uint32_t pre_placed;
	struct ddp_hdr promise; /* and the header that the next one must have */

	uint32_t msn[QN_COUNT]; /* expected next, by queue */
	bool recv_open;		/* a send has begun, and not ended */
	uint32_t recv_off;
	struct rwqe *recv;	 /* the receive that it fills (a copy) */
	uint64_t write_len;	 /* of the present write message, so far */
	uint32_t last_write_len; /* of the last whole write, for its immediate */
	bool write_begun;
	struct wqe *read; /* our read whose response is coming in */

	uint64_t
		recv_until; /* a receive is missing, and is waited for until then, clock_ns(); or 0 */

	bool first_seen;
	bool kick_tx;
	bool stopped; /* nothing more is read from the stream */

	struct rx_into into; /* the region of this segment, if it writes to memory */
	struct key_map here; /* its memory, held if it is all staged; slot[0] NULL: not held */
	struct rx_mirroring mirroring;
	bool on_store; /* this segment writes to storage */
	bool waits;    /* this segment has no place yet */
	bool dropped;  /* roce0: this segment belongs to a request that waits for a receive */
	struct rx_landing landing;
	struct list held; /* completions held until earlier writes to storage are done */
	struct rx_end end;
};

enum outcome {
	MORE,
	GO_ON,
	WAIT,
	STOP
}; /* needs more bytes; made a step; cannot go on now; the stream has ended */

/* When a message raises a solicited event. EVENT_BY_BIT: with RDMAP_RSV_SE. */
enum rx_event { EVENT_NEVER, EVENT_ALWAYS, EVENT_BY_BIT };

/* The handlers of one kind of message. They return false when the stream has ended. */
struct rx_message {
	bool (*begin)(struct stag_qp *qp); /* checks a segment whose header is there */
	/*
	 * Acts on a segment that is placed and whose CRC is right. payload: of a control
	 * message, in the stage.
	 */
	bool (*end)(struct stag_qp *qp, const uint8_t *payload);
	/*
	 * Maps memory for the next bytes, at most len. NULL: a control message, whose whole
	 * FPDU is staged.
	 */
	enum key_fault (*target)(struct stag_qp *qp, uint32_t len, struct key_map *map);
	/* sends: reports RsvdULP; or NULL */
	bool (*use_ulp)(struct stag_qp *qp, struct ibv_wc *wc);
	enum rx_event event;
	bool is_request; /* awaits a response */
	bool from_sq;	 /* belongs to a request of the peer: see rc.h */
};

extern const struct rx_message rx_messages[RDMAP_OPCODES]; /* by enum rdmap_op; rx_message.c */

static inline bool rx_is_control(uint8_t opcode)
{
	return !rx_messages[opcode].target;
}

/* rx_place.c */
bool rx_stop_with(struct stag_qp *qp, struct wire_fault f);   /* logs the message */
bool rx_stop_logged(struct stag_qp *qp, struct wire_fault f); /* the caller has logged it */
bool rx_refuse_write(struct stag_qp *qp, enum key_fault f);
struct wire_fault rx_write_fault(enum key_fault f);
enum key_fault rx_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
			     uint64_t off, uint32_t len, struct key_map *map);
/* The same for callers that hold a key already: returns KEY_BUSY rather than wait. */
enum key_fault rx_try_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
				 uint64_t off, uint32_t len, struct key_map *map);
/* Map memory for the next bytes of a write, a read response or a send, at most len of them. */
enum key_fault rx_write_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
enum key_fault rx_response_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
enum key_fault rx_recv_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
/* for this message */
enum key_fault rx_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
void rx_complete_recv(struct stag_qp *qp, enum ibv_wc_status status, const struct ibv_wc *more,
		      bool solicited);
bool rx_stop_locally(struct stag_qp *qp);
bool rx_target_fault(struct stag_qp *qp, enum key_fault f);
void rx_scatter(const struct key_map *map, const uint8_t *from);
bool rx_place(struct stag_qp *qp, const uint8_t *from, uint32_t len);
void rx_crc_pieces(struct qp_rx *rx, const struct key_map *map, size_t n);
bool rx_keep_promise(struct stag_qp *qp);
void rx_take_back(struct stag_qp *qp);
uint32_t rx_tail_of(const struct qp_rx *rx);
bool rx_may_place(struct stag_qp *qp, uint32_t *n);

/* rx_message.c */
bool rx_begin_segment(struct stag_qp *qp);
bool rx_end_segment(struct stag_qp *qp, const uint8_t *payload);

/* rx_wait.c */
bool rx_wait_for_receive(struct stag_qp *qp); /* false: no longer */

/* rx_store.c */
enum outcome rx_store_begin(struct stag_qp *qp);
enum key_fault rx_store_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
bool rx_store_end(struct stag_qp *qp);	/* accepts the segment, whose CRC is right */
bool rx_store_land(struct stag_qp *qp); /* hands the bytes that came of a write to the lane */
void rx_store_rest(struct stag_qp *qp);
void rx_store_dry(struct stag_qp *qp);	/* the stream has no more bytes for now */
void rx_store_stop(struct stag_qp *qp); /* the stream has ended */
/* are there writes that have not reached their level? */
bool rx_must_hold(const struct stag_qp *qp);
/*
 * Returns the number of the last write so far: a response to the present message waits for that
 * write.
 */
uint64_t rx_gate(const struct stag_qp *qp);
/* KEY_BUSY: no memory */
enum key_fault rx_store_read(struct stag_qp *qp, const struct rdmap_read_req *r,
			     struct peer_request **out, uint64_t *gate);
enum key_fault rx_store_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *r,
			       struct peer_request **out);
enum key_fault rx_store_check(struct stag_qp *qp, const struct rdmap_flush_req *r);
enum key_fault rx_store_flush(struct stag_qp *qp, struct peer_request **out);
void rx_hold_receive(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited);
bool rx_hold_read(struct stag_qp *qp);
void rx_drop_held(struct stag_qp *qp, bool flush);

/* rx_mirror.c */
/* WAIT: call rx_mirror_rest() before the next message */
enum outcome rx_mirror_write(struct stag_qp *qp);
enum outcome rx_mirror_rest(struct stag_qp *qp);
enum outcome rx_mirror_pass(struct stag_qp *qp); /* before a message other than a write */
void rx_mirror_kick(struct stag_qp *qp);	 /* before the receiver stops reading for now */
bool rx_mirror_may_go(struct stag_qp *qp);	 /* is it stalled, and may a retry succeed? */

/* qp_rx.c */
/* ends the stream, behind the held completions */
void rx_end(struct stag_qp *qp, const struct rx_end *end);
void rx_end_now(struct stag_qp *qp);
void rx_resume(struct stag_qp *qp);

/* rx_read.c */
uint32_t rx_staged(const struct qp_rx *rx);
ssize_t rx_read_some(struct stag_qp *qp, bool *full);

#endif
