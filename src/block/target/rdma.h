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
struct message {
	struct verb verb;
	struct list *home; /* the list it goes back to */
	uint8_t *bytes;
	uint32_t len;
	bool closes; /* and gives back this STag of the peer's */
	uint32_t stag;
};

struct receive {
	struct verb verb;
	uint8_t *bytes, *more; /* in two pieces */
	uint32_t size, more_size;
	uint32_t lkey;
};

/* Bytes of a reply, where the adapter finds them. */
struct reply_slot {
	struct list link;
	uint8_t *bytes;
};

struct rdma {
	struct conn conn;
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
	struct message messages[NUM_SMALL + NUM_LARGE];
	struct reply_slot replies[NUM_REPLIES];
	struct list small, large, free_replies;
	struct receive login;

	/* memory for all that comes after it */
	uint8_t *window;
	size_t window_bytes;
	struct ibv_mr *window_mr;
	struct receive receives[NUM_RECEIVES];
	struct list taken; /* receives that are not posted: what came in them has been looked at */

	struct list queue;  /* verbs that are not posted yet */
	struct list posted; /* to the send queue */
	unsigned int n_posted;
};

static inline struct rdma *to_rdma(struct conn *c)
{
	return container_of(c, struct rdma, conn);
}

/* rdma_rx.c */
int rdma_post_login(struct rdma *r);  /* the one receive that a login needs */
int rdma_post_window(struct rdma *r); /* those of full feature phase */
void rdma_received(struct rdma *r, struct receive *v, const struct ibv_wc *wc);
void rdma_repost(struct rdma *r); /* what was received into is used again */

/* rdma_tx.c */
void rdma_send(struct conn *c, struct pdu *p, const void *data, uint32_t len);
void rdma_respond(struct task *k, struct pdu *p, const void *data, uint32_t len);
void rdma_data_in(struct piece *p, bool with_status);
void rdma_data_out(struct piece *p);
void rdma_forget(struct task *k);
int rdma_post(struct rdma *r); /* as much of the queue as there is room for */
void rdma_sent(struct rdma *r, struct verb *v);
void rdma_tx_drop(struct rdma *r); /* the queue pair is gone: all comes back */

/* rdma.c */
extern const struct transport rdma_iser, rdma_one_shot;
void rdma_query(const struct rdma *r,
		struct stagdv_qp_attr *attr); /* as a standard one if it does not say */

#endif
