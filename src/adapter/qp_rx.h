/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_rx.h - the receiving side's own: where the parser of a stream stands.
 *
 * All of it under the queue pair's rx_lock.
 */
#ifndef STAG_QP_RX_H
#define STAG_QP_RX_H

#include "adapter/adapter.h"

#define STAGE	  16384
#define WHOLE	  8192 /* with CRC: an FPDU up to this is in the stage as a whole first */
#define CATCH	  64   /* of what follows a large payload: the trailer and the next header */
#define BULK	  4096 /* what counts as large there */
#define TAIL	  64   /* of a write: placed last, see ends_write() */
#define MAX_READS 16   /* in one go */
#define FULL	  (MPA_MAX_ULPDU - DDP_TAGGED_LEN) /* payload of a promised segment */
#define MARKED	  (2 * FPDU_MAX_LEN)		   /* raw bytes of a stream with markers */

enum rx_step { RX_HEADER, RX_PAYLOAD, RX_TRAILER };

struct qp_rx {
	uint8_t *stage;
	uint32_t stage_size, head, tail; /* not yet consumed: [head, tail) */
	uint8_t *marked;		 /* with markers: the stream as it comes */
	uint32_t marked_len;
	uint64_t pos; /* stream offset of marked[0] */

	enum rx_step step;
	struct ddp_hdr h;
	uint32_t ulpdu_len;
	uint32_t seg_len, seg_done; /* payload of this segment: all, placed */
	bool verified;		    /* its CRC was checked already */
	uint32_t crc;
	uint8_t seg_hdr[DDP_UNTAGGED_LEN + RDMAP_ATOMIC_REQ_LEN]; /* for a Terminate */
	uint32_t seg_hdr_len;

	uint32_t pre_placed;	/* bytes of the next segments that are in their place already, */
	struct ddp_hdr promise; /* if the next header is what this says */

	uint32_t msn[QN_COUNT]; /* expected next */
	bool recv_open;		/* a send has begun */
	uint32_t recv_off;
	struct rwqe *recv;	 /* where it goes (a copy) */
	uint64_t write_len;	 /* of the write message in progress */
	uint32_t last_write_len; /* of the last whole one, for its immediate */
	bool write_begun;
	struct wqe *read; /* the read being answered */

	bool first_seen;
	bool kick_tx;
	bool stopped; /* the stream is done with, one way or the other */
};

enum outcome { MORE, GO_ON, STOP }; /* needs bytes; made a step; the stream is over */

/* rx_place.c */
bool rx_stop_with(struct stag_qp *qp, struct wire_fault f);
struct wire_fault rx_write_fault(enum key_fault f);
enum key_fault rx_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
			     uint64_t off, uint32_t len, struct key_map *map);
/* For who holds a place already: KEY_BUSY rather than a wait. */
enum key_fault rx_try_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
				 uint64_t off, uint32_t len, struct key_map *map);
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
bool rx_is_control(uint8_t opcode);

/* rx_read.c */
uint32_t rx_staged(const struct qp_rx *rx);
ssize_t rx_read_some(struct stag_qp *qp, bool *full);

#endif
