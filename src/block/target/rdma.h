/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h - a connection over verbs: PDUs in sends, data by RDMA Write and Read.
 *
 * It speaks iSER (RFC 7145), with a header of its own before each PDU; or one-shot, where the adapter's header has the
 * STag and the PDU is the whole send (iscsi.h says how the two are told apart). Either way a command's data goes to and from
 * the memory that it lent, in pieces of the target's choosing, and its response gives that memory back.
 *
 * Receives are posted ahead for all that the peer may send: during login one, as long as a login is; then as many as
 * the window has commands, and immediate ones, as long as was agreed. A peer that sends more than that has its
 * connection ended by the adapter. All that leaves goes through one queue, in order: a response is behind its data.
 */
#ifndef STAG_BLOCK_RDMA_H
#define STAG_BLOCK_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "block/target/target.h"

#define LOGIN_BYTES  8192		  /* data of a login, or of what it answers */
#define AHS_ROOM     256		  /* MaxAHSLength, where none was declared */
#define HEADERS	     (ISER_LEN + BHS_LEN) /* at most */
#define LARGE_BYTES  (HEADERS + LOGIN_BYTES + 4)
#define FIRST_BYTES  512 /* of a receive: as long as commands are, and most else */
#define SMALL_BYTES  256 /* of messages: responses with sense, rejects */
#define REPLY_BYTES  SCSI_REPLY_MAX
#define NUM_RECEIVES (SESSION_WINDOW + SESSION_IMMEDIATE + 16)
#define NUM_SMALL    (2 * SESSION_WINDOW)
#define NUM_LARGE    8
#define NUM_REPLIES  16
#define SEND_DEPTH   256
#define RDMA_BATCH   32 /* completions, or receives, at once */

/* A PDU on its way out. */
struct target_message {
	struct target_verb verb;
	struct list *home; /* the list it goes back to */
	uint8_t *bytes;
	uint32_t len;
	bool closes; /* and gives back this STag of the peer's */
	uint32_t stag;
};

struct target_receive {
	struct target_verb verb;
	uint8_t *bytes, *more; /* in two pieces */
	uint32_t size, more_size;
	uint32_t lkey;
};

/* Bytes of a reply, where the adapter finds them. */
struct target_reply_slot {
	struct list link;
	uint8_t *bytes;
};

struct target_rdma {
	struct target_conn conn;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct list busy;   /* in the portal's list: its completions are polled */
	unsigned int quiet; /* so often there was none */
	struct iser_hello peer;
	bool spoken; /* something has come: it is known which of the two it speaks */
	bool one_shot;
	bool crc;
	bool accepted;
	bool broken; /* it ends at the next flush */

	/* memory for messages out, and for logins in */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct target_message messages[NUM_SMALL + NUM_LARGE];
	struct target_reply_slot replies[NUM_REPLIES];
	struct list small, large, free_replies;
	struct target_receive login;

	/* memory for all that comes after it */
	uint8_t *window;
	size_t window_bytes;
	struct ibv_mr *window_mr;
	struct target_receive receives[NUM_RECEIVES];
	struct list taken; /* receives that are not posted: what came in them has been looked at */

	struct list queue;  /* verbs that are not posted yet */
	struct list posted; /* to the send queue */
	unsigned int n_posted;
};

static inline struct target_rdma *to_rdma(struct target_conn *c)
{
	return container_of(c, struct target_rdma, conn);
}

/* rdma_rx.c */
int target_rdma_post_login(struct target_rdma *r);  /* the one receive that a login needs */
int target_rdma_post_window(struct target_rdma *r); /* those of full feature phase */
void target_rdma_received(struct target_rdma *r, struct target_receive *v, const struct ibv_wc *wc);
void target_rdma_repost(struct target_rdma *r); /* what was received into is used again */

/* rdma_tx.c */
void target_rdma_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
void target_rdma_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len);
void target_rdma_data_in(struct target_piece *p, bool with_status);
void target_rdma_data_out(struct target_piece *p);
void target_rdma_forget(struct target_task *k);
int target_rdma_post(struct target_rdma *r); /* as much of the queue as there is room for */
void target_rdma_sent(struct target_rdma *r, struct target_verb *v);
void target_rdma_tx_drop(struct target_rdma *r); /* the queue pair is gone: all comes back */

/* rdma.c */
extern const struct target_transport target_rdma_iser, target_rdma_one_shot;
void target_rdma_query(const struct target_rdma *r,
		       struct stagdv_qp_attr *attr); /* as a standard one if it does not say */

#endif
