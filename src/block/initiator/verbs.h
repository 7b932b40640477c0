/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - an initiator's line over verbs: PDUs in sends, and the memory of commands lent to the target.
 *
 * One implementation of two protocols: one-shot, where the adapter's header has the STag and the PDU is the whole send, and
 * iSER (RFC 7145). iscsi.h says how they are distinguished. There are two ways to lend memory:
 *
 *   shots      of the software adapter: memory of any shape is lent by the post that sends the command, until the peer closes
 *              it, or stagdv_withdraw() does. Required for one-shot; also used for iSER with this adapter
 *   regions    of any adapter: the key of a region that contains all data, registered for the command unless the caller lent it
 *              before (stag_block_lend()). Data that is in several places is copied to one region
 *
 * Receives are posted for each response that the target may owe, and some more. Each is large enough for a login response.
 */
#ifndef STAG_BLOCK_INITIATOR_VERBS_H
#define STAG_BLOCK_INITIATOR_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "block/initiator/initiator.h"
#include "dv/dv.h"
#include "stag/stagdv.h"

#define VERBS_DATA	  INITIATOR_SMALL
#define VERBS_BODY	  (ISER_LEN + BHS_LEN + VERBS_DATA + 4)
#define VERBS_CONTROLS	  16 /* outgoing PDUs other than commands */
#define VERBS_UNEXPECTED  32 /* incoming PDUs other than responses */
#define VERBS_OWN_KEYS	  4  /* regions registered for one command */
#define VERBS_BATCH	  32 /* completions per poll, receives per post */
#define VERBS_SPARE_SENDS 16 /* sends that are done, and whose queue entries are not free yet */

/* The memory that a command has lent: an entry of the table in paragraph 32 of "One-shot RDMA", by the command's index. */
struct initiator_loan {
	bool open;
	uint32_t stag, reference;
	struct ibv_mr *own[VERBS_OWN_KEYS]; /* regions registered for this command */
	unsigned int n_own;
	uint8_t *copy; /* of the data, or NULL; copied back after a read */
};

/* Memory that a command is about to lend. */
struct initiator_lending {
	struct ibv_sge *sge; /* its parts */
	int n;
	uint64_t base; /* address of the first byte, for the target */
	uint32_t rkey; /* of the region that contains all of it */
};

enum initiator_verbs_stage { VERBS_ADDRESS, VERBS_ROUTE, VERBS_CONNECT, VERBS_UP };

struct initiator_verbs_line {
	struct initiator_line line;
	enum initiator_verbs_stage stage;
	const struct dv *dv; /* NULL: not the software adapter, so regions are lent */
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool one_shot;	 /* the protocol: one-shot, else iSER */
	uint64_t looked; /* clock_ns() of the last poll for events */

	/* sleeping */
	bool armed;
	struct ibv_wc early[VERBS_BATCH]; /* completions found while arming */
	int n_early;

	/* bodies of commands, controls and receives, in this order */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct initiator_loan *loans;
	uint32_t n_cmds, n_receives;
	uint32_t free_controls[VERBS_CONTROLS], n_free_controls;
	uint32_t unsignaled; /* sends posted since the last signaled one */

	struct ibv_recv_wr again[VERBS_BATCH]; /* receives to be posted again */
	struct ibv_sge again_sge[VERBS_BATCH];
	unsigned int n_again;

	/* The last command that lends by its post: posted together with the next one, or by a flush. */
	struct initiator_cmd *held;
	struct initiator_lending held_memory;
	uint32_t held_len; /* of its body */

	struct iovec iov[STAGDV_ADVERTISE_SGE];
	struct ibv_sge sge[2][STAGDV_ADVERTISE_SGE]; /* of the held command, and of the next one */
	unsigned int turn;			     /* index of the array to use next, modulo 2 */
};

static inline struct initiator_verbs_line *to_verbs_line(struct initiator_line *l)
{
	return container_of(l, struct initiator_verbs_line, line);
}

/* The kind of a work request: in the high half of wr_id, above the number. */
enum initiator_verbs_kind { VERBS_COMMAND, VERBS_CONTROL, VERBS_RECEIVE };

static inline uint64_t initiator_verbs_id(enum initiator_verbs_kind kind, uint32_t n)
{
	return (uint64_t)kind << 32 | n;
}

static inline uint8_t *initiator_verbs_body(const struct initiator_verbs_line *v,
					    enum initiator_verbs_kind kind, uint32_t n)
{
	uint32_t first = kind == VERBS_COMMAND ? 0 : v->n_cmds;

	return v->memory +
	       (size_t)(first + (kind == VERBS_RECEIVE ? VERBS_CONTROLS : 0) + n) * VERBS_BODY;
}

/* lend.c */
/* Chooses the memory that a command lends. Returns 0 or a positive errno value. */
int initiator_lend_command(struct initiator_verbs_line *v, struct initiator_cmd *c,
			   struct initiator_lending *out);
void initiator_lend_opened(struct initiator_verbs_line *v, struct initiator_loan *l, uint32_t stag,
			   uint32_t reference);
/* Notes that the target has closed the STag. */
void initiator_lend_closed(struct initiator_verbs_line *v, struct initiator_loan *l);
/* Withdraws the STag if it is open, and frees the rest. */
void initiator_lend_end(struct initiator_verbs_line *v, struct initiator_loan *l);
/* Copies the data of a read from the copy to the caller's memory. */
void initiator_lend_copy_back(struct initiator_verbs_line *v, const struct initiator_cmd *c);
int initiator_lend_register(struct initiator_line *l, struct initiator_region *r);
void initiator_lend_deregister(struct initiator_line *l, struct initiator_region *r);
int initiator_lend_register_all(struct initiator_verbs_line *v); /* Returns 0 or -errno. */
void initiator_lend_deregister_all(struct initiator_verbs_line *v);

/* verbs_tx.c */
int initiator_verbs_send(struct initiator_line *l, struct pdu *p, const void *data, uint32_t len);
int initiator_verbs_command(struct initiator_line *l, struct initiator_cmd *c, struct pdu *p);
int initiator_verbs_flush(struct initiator_line *l);

/* verbs_rx.c */
int initiator_verbs_post_receives(struct initiator_verbs_line *v); /* all */
int initiator_verbs_received(struct initiator_verbs_line *v, uint32_t n, const struct ibv_wc *wc);
int initiator_verbs_repost(struct initiator_verbs_line *v);

#endif
