/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h - a connection over verbs: PDUs in sends, data by RDMA Write and Read.
 *
 * The protocol is iSER (RFC 7145), with an iSER header before each PDU, or one-shot, where the adapter's header has the
 * STag and the PDU is the whole send (iscsi.h says how the two are distinguished). In both a command's data moves to and
 * from the memory that its send lent, in pieces that the target chooses, and the response closes that memory.
 *
 * Receives are posted for all that the peer may send: during login one, large enough for a login; then one for each
 * command of the window, and for immediate requests, of the negotiated length. If a peer sends more, the adapter ends
 * the connection. All sends and RDMA operations go through one queue, in order: a response follows its data.
 */
#ifndef STAG_BLOCK_RDMA_H
#define STAG_BLOCK_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "block/target/target.h"

#define LOGIN_BYTES  8192		  /* data of a login request or response */
#define AHS_ROOM     256		  /* MaxAHSLength, if none was declared */
#define HEADERS	     (ISER_LEN + BHS_LEN) /* at most */
#define LARGE_BYTES  (HEADERS + LOGIN_BYTES + 4)
#define FIRST_BYTES  512 /* of a receive: enough for commands, and most other PDUs */
#define SMALL_BYTES  256 /* of a message: responses with sense data, rejects */
#define REPLY_BYTES  SCSI_REPLY_MAX
#define NUM_RECEIVES (SESSION_WINDOW + SESSION_IMMEDIATE + 16)
#define NUM_SMALL    (2 * SESSION_WINDOW)
#define NUM_LARGE    8
#define NUM_REPLIES  16
#define SEND_DEPTH   256
#define RDMA_BATCH   32 /* completions per poll, receives per post */

/* A PDU to be sent. */
struct target_message {
	struct target_verb verb;
	struct list *home; /* the free list that it returns to */
	uint8_t *bytes;
	uint32_t len;
	bool closes; /* with Invalidate of this STag of the peer */
	uint32_t stag;
};

struct target_receive {
	struct target_verb verb;
	uint8_t *bytes, *more; /* two parts */
	uint32_t size, more_size;
	uint32_t lkey;
};

/* Registered memory for the bytes of a reply. */
struct target_reply_slot {
	struct list link;
	uint8_t *bytes;
};

struct target_rdma {
	struct target_conn conn;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct list busy;   /* in the portal's list: its completions are polled */
	unsigned int quiet; /* empty polls in a row */
	struct iser_hello peer;
	bool spoken; /* a message has arrived: the protocol is known */
	bool one_shot;
	bool crc;
	bool accepted;
	bool broken; /* ends at the next flush */

	/* memory for messages, and for the receive of a login */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct target_message messages[NUM_SMALL + NUM_LARGE];
	struct target_reply_slot replies[NUM_REPLIES];
	struct list small, large, free_replies;
	struct target_receive login;

	/* memory for the receives of full feature phase */
	uint8_t *window;
	size_t window_bytes;
	struct ibv_mr *window_mr;
	struct target_receive receives[NUM_RECEIVES];
	struct list taken; /* receives to be posted again: their contents have been handled */

	struct list queue;  /* not posted yet */
	struct list posted; /* to the send queue */
	unsigned int n_posted;
};

static inline struct target_rdma *to_rdma(struct target_conn *c)
{
	return container_of(c, struct target_rdma, conn);
}

/* rdma_rx.c */
int target_rdma_post_login(struct target_rdma *r);  /* posts the receive for a login */
int target_rdma_post_window(struct target_rdma *r); /* posts those of full feature phase */
void target_rdma_received(struct target_rdma *r, struct target_receive *v, const struct ibv_wc *wc);
void target_rdma_repost(struct target_rdma *r); /* posts handled receives again */

/* rdma_tx.c */
void target_rdma_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
void target_rdma_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len);
void target_rdma_data_in(struct target_piece *p, bool with_status);
void target_rdma_data_out(struct target_piece *p);
void target_rdma_forget(struct target_task *k);
int target_rdma_post(struct target_rdma *r); /* posts as much as the send queue has room for */
void target_rdma_sent(struct target_rdma *r, struct target_verb *v);
void target_rdma_tx_drop(struct target_rdma *r); /* returns everything: the queue pair is gone */

/* rdma.c */
extern const struct target_transport target_rdma_iser, target_rdma_one_shot;
/* Queries the queue pair; an adapter without stagdv counts as standard iWARP. */
void target_rdma_query(const struct target_rdma *r, struct stagdv_qp_attr *attr);

#endif
