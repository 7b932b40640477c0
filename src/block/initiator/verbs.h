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
struct loan {
	bool open;
	uint32_t stag, reference;
	struct ibv_mr *own[VERBS_OWN_KEYS]; /* registered for it alone */
	unsigned int n_own;
	uint8_t *copy; /* its data in one place; of a read it goes to the others at the end */
};

/* Memory that a command is about to lend. */
struct lending {
	struct ibv_sge *sge; /* its pieces */
	int n;
	uint64_t base; /* the address of the first byte to the target */
	uint32_t rkey; /* of the region that has it all */
};

enum verbs_stage { VERBS_ADDRESS, VERBS_ROUTE, VERBS_CONNECT, VERBS_UP };

struct verbs_line {
	struct line line;
	enum verbs_stage stage;
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
	struct loan *loans;
	uint32_t n_cmds, n_receives;
	uint32_t free_controls[VERBS_CONTROLS], n_free_controls;
	uint32_t unsignaled; /* posted since the last that gives its place back */

	struct ibv_recv_wr again[VERBS_BATCH]; /* receives to post once more */
	struct ibv_sge again_sge[VERBS_BATCH];
	unsigned int n_again;

	/* The last command that lends in one post: it goes out with the next one, or with the flush. */
	struct cmd *held;
	struct lending held_memory;
	uint32_t held_len; /* of its body */

	struct iovec iov[STAGDV_ADVERTISE_SGE];
	struct ibv_sge
		sge[2][STAGDV_ADVERTISE_SGE]; /* the held one's, and that of the one behind it */
	unsigned int turn;		      /* which of them is whose */
};

static inline struct verbs_line *to_verbs_line(struct line *l)
{
	return container_of(l, struct verbs_line, line);
}

/* What a completion is of: in wr_id, above the number. */
enum verbs_kind { VERBS_COMMAND, VERBS_CONTROL, VERBS_RECEIVE };

static inline uint64_t verbs_id(enum verbs_kind kind, uint32_t n)
{
	return (uint64_t)kind << 32 | n;
}

static inline uint8_t *verbs_body(const struct verbs_line *v, enum verbs_kind kind, uint32_t n)
{
	uint32_t first = kind == VERBS_COMMAND ? 0 : v->n_cmds;

	return v->memory +
	       (size_t)(first + (kind == VERBS_RECEIVE ? VERBS_CONTROLS : 0) + n) * VERBS_BODY;
}

/* lend.c */
int lend_command(struct verbs_line *v, struct cmd *c,
		 struct lending *out); /* 0, or an errno value */
void lend_opened(struct verbs_line *v, struct loan *l, uint32_t stag, uint32_t reference);
void lend_closed(struct verbs_line *v, struct loan *l);	    /* by the target */
void lend_end(struct verbs_line *v, struct loan *l);	    /* all that is left of it */
void lend_bring(struct verbs_line *v, const struct cmd *c); /* what was read: where it belongs */
int lend_region(struct line *l, struct lent *r);
void lend_no_region(struct line *l, struct lent *r);
int lend_regions(struct verbs_line *v); /* all that the caller lent: 0, -errno */
void lend_no_regions(struct verbs_line *v);

/* verbs_tx.c */
int verbs_send(struct line *l, struct pdu *p, const void *data, uint32_t len);
int verbs_command(struct line *l, struct cmd *c, struct pdu *p);
int verbs_flush(struct line *l);

/* verbs_rx.c */
int verbs_post_receives(struct verbs_line *v); /* all */
int verbs_received(struct verbs_line *v, uint32_t n, const struct ibv_wc *wc);
int verbs_repost(struct verbs_line *v);

#endif
