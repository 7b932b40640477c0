/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - an initiator's line over verbs: PDUs in sends, and the commands' memory lent to the target.
 *
 * One implementation of two languages: one-shot, where the adapter's header has the STag and the PDU is the whole send, and
 * iSER (RFC 7145). iscsi.h says how they are told apart. And two ways to lend:
 *
 *   shots      the software adapter's: memory of any shape in the post that sends the command; the peer's close, or
 *              stagdv_withdraw(), takes it back. Needed for one-shot; used for iSER too, where there is such an adapter
 *   regions    any adapter's: the key of a region that has it all, registered for the command if it was not lent before
 *              (stag_block_lend()). What is in several places goes through one of our own
 *
 * Receives are posted ahead for each answer that the target may owe, and some more. All are as long as a login's answer.
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
#define VERBS_CONTROLS	  16 /* PDUs out that are no commands */
#define VERBS_UNEXPECTED  32 /* PDUs in that are no answers */
#define VERBS_OWN_KEYS	  4  /* regions made for one command */
#define VERBS_BATCH	  32 /* completions, receives in one post */
#define VERBS_SPARE_SENDS 16 /* that are done, and whose places are not given back yet */

/* What a command has lent: the table of paragraph 32, by the command's index. */
struct initiator_loan {
	bool open;
	uint32_t stag, reference;
	struct ibv_mr *own[VERBS_OWN_KEYS]; /* registered for it alone */
	unsigned int n_own;
	uint8_t *copy; /* its data in one place; of a read it goes to the others at the end */
};

/* Memory that a command is about to lend. */
struct initiator_lending {
	struct ibv_sge *sge; /* its pieces */
	int n;
	uint64_t base; /* the address of the first byte to the target */
	uint32_t rkey; /* of the region that has it all */
};

enum initiator_verbs_stage { VERBS_ADDRESS, VERBS_ROUTE, VERBS_CONNECT, VERBS_UP };

struct initiator_verbs_line {
	struct initiator_line line;
	enum initiator_verbs_stage stage;
	const struct dv *dv; /* NULL: no shots */
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool one_shot;	 /* what is spoken */
	uint64_t looked; /* for events, the last time */

	/* sleeping */
	bool armed;
	struct ibv_wc early[VERBS_BATCH]; /* found while arming */
	int n_early;

	/* bodies: of commands, controls and receives, in this order */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct initiator_loan *loans;
	uint32_t n_cmds, n_receives;
	uint32_t free_controls[VERBS_CONTROLS], n_free_controls;
	uint32_t unsignaled; /* posted since the last that gives its place back */

	struct ibv_recv_wr again[VERBS_BATCH]; /* receives to post once more */
	struct ibv_sge again_sge[VERBS_BATCH];
	unsigned int n_again;

	/* The last command that lends in one post: it goes out with the next one, or with the flush. */
	struct initiator_cmd *held;
	struct initiator_lending held_memory;
	uint32_t held_len; /* of its body */

	struct iovec iov[STAGDV_ADVERTISE_SGE];
	struct ibv_sge
		sge[2][STAGDV_ADVERTISE_SGE]; /* the held one's, and that of the one behind it */
	unsigned int turn;		      /* which of them is whose */
};

static inline struct initiator_verbs_line *to_verbs_line(struct initiator_line *l)
{
	return container_of(l, struct initiator_verbs_line, line);
}

/* What a completion is of: in wr_id, above the number. */
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
int initiator_lend_command(struct initiator_verbs_line *v, struct initiator_cmd *c,
			   struct initiator_lending *out); /* 0, or an errno value */
void initiator_lend_opened(struct initiator_verbs_line *v, struct initiator_loan *l, uint32_t stag,
			   uint32_t reference);
void initiator_lend_closed(struct initiator_verbs_line *v,
			   struct initiator_loan *l); /* by the target */
void initiator_lend_end(struct initiator_verbs_line *v,
			struct initiator_loan *l); /* all that is left of it */
void initiator_lend_copy_back(struct initiator_verbs_line *v,
			      const struct initiator_cmd *c); /* what was read: where it belongs */
int initiator_lend_register(struct initiator_line *l, struct initiator_region *r);
void initiator_lend_deregister(struct initiator_line *l, struct initiator_region *r);
int initiator_lend_register_all(
	struct initiator_verbs_line *v); /* all that the caller lent: 0, -errno */
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
