/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sq.h - the send queue: work requests from the post to the completion.
 */
#ifndef STAG_SQ_H
#define STAG_SQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/sample.h"
#include "stag/stagdv.h"

struct stag_mr;
struct stag_mw;
struct stag_qp;

/* Work request opcodes beyond enum ibv_wr_opcode */
#define STAG_WR_FAST_REG  0x80
#define STAG_WR_BARRIER	  0x81 /* stagdv_wr_barrier() */
#define STAG_WR_ADVERTISE 0x82 /* stagdv_post_send_advertise() */
#define STAG_WR_CLOSE	  0x83 /* stagdv_post_send_close() */

#define RTR_STAG 1 /* where a message without payload needs a tag, this one is named */

struct wqe {
	uint64_t wr_id;
	uint32_t opcode; /* enum ibv_wr_opcode or STAG_WR_* */
	uint32_t send_flags;
	uint32_t num_sge;
	uint32_t length;      /* of all SGEs or of the inline data */
	struct ibv_sge *sge;  /* this entry's own array (max_send_sge) */
	uint8_t *inline_data; /* NULL, or the payload, copied (max_inline bytes) */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm_or_inv; /* immediate (network order), or the STag that goes in the header */
	uint64_t compare_add, swap;
	struct stag_mw *mw; /* bind */
	struct stag_mr *mr; /* fast registration: memory from iov, else bind: the region */
	uint64_t bind_addr, bind_len;
	unsigned bind_access;
	/* from here the adapter's own */
	bool done;	 /* may be retired when it is the oldest */
	bool retired;	 /* has completed before its turn; only its entry is waited for */
	uint8_t status;	 /* enum ibv_wc_status, where done */
	bool sent;	 /* all of it is in the stream's hands; reads wait for their data still */
	uint16_t error;	 /* of a medium: the errno value behind IBV_WC_REM_OP_ERR */
	uint64_t tx_end; /* stream offset behind its last byte */
	uint32_t rx_off; /* reads: bytes that came */
};

struct sq {
	struct wqe *wqe;
	uint8_t *slab; /* SGEs and inline data */
	uint32_t mask, max_wr, max_sge, max_inline;
	uint32_t put;	   /* next free */
	uint32_t tx;	   /* next to transmit */
	uint32_t get;	   /* oldest not retired */
	uint32_t reserved; /* entries behind put that a builder fills (ibv_wr_*) */

	/* latency.c */
	struct wqe *timed;    /* the one whose time is taken; or NULL */
	uint64_t timed_since; /* clock_ns() */
	struct sample sample;
};

/* -errno as ibv_post_send(); *bad is the first request not taken. */
int qp_post_send(struct stag_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_fast_reg(struct stag_qp *qp, const struct stagdv_fast_reg *wr);
int qp_post_barrier(struct stag_qp *qp, const struct stagdv_barrier *b);
int qp_post_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
int qp_post_close(struct stag_qp *qp, const struct stagdv_close *c);
int qp_bind_mw1(struct stag_qp *qp, struct stag_mw *mw, struct ibv_mw_bind *bind);

/*
 * For builders of work requests (sq.c, src/verbs/wr.c): take
 * the next free entry (NULL: full), fill it, check it, and publish all entries
 * taken since at once; or drop them. sq_check() gives what ibv_post_send() would.
 */
bool sq_may_post(struct stag_qp *qp); /* is it in a state to take any? asked once a list */
struct wqe *sq_take(struct stag_qp *qp);
int sq_check(struct stag_qp *qp, const struct wqe *w);
void sq_publish(struct stag_qp *qp); /* and transmits */
void sq_drop(struct stag_qp *qp);    /* and withdraws what they were to lend */
/* Takes, fills and checks one that lends memory, in one; -errno. */
int sq_add_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
/* Copies a payload into the entry; -EINVAL when it is longer than max_inline. */
int sq_set_inline(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_data_buf *buf);
int sq_set_sges(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_sge *sge);

/* Inside the adapter */
void sq_retire(struct stag_qp *qp); /* completes the requests that are done, in order */
void sq_flush(struct stag_qp *qp);
void sq_complete(struct stag_qp *qp, const struct wqe *w); /* with its status */
int sq_post_prepared(struct stag_qp *qp, const struct wqe *model, size_t num,
		     const struct ibv_sge *sge);
/* Carries out a bind, an invalidation or a fast registration. */
void sq_complete_local(struct stag_qp *qp, struct wqe *w);
bool wqe_is_local(const struct wqe *w);
bool wqe_awaits_response(const struct wqe *w);

#endif
