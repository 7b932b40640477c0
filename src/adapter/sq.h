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

#define RTR_STAG 1 /* the tag in messages without payload that need one */

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
	struct stag_mr *mr; /* fast registration: the region; bind: the region below the window */
	uint64_t bind_addr, bind_len;
	unsigned bind_access;
	/* The rest belongs to the adapter. */
	bool done;	 /* may be retired when it is the oldest */
	bool retired;	 /* has completed out of order; only its entry is still in use */
	uint8_t status;	 /* enum ibv_wc_status, if done */
	bool sent;	 /* the stream has taken all of it; reads still await their data */
	uint16_t error;	 /* storage: the errno value behind IBV_WC_REM_OP_ERR */
	uint64_t tx_end; /* stream offset after its last byte */
	uint32_t rx_off; /* reads: bytes received */
	uint32_t number; /* roce0: of the request, on its stream; 0: not framed */
};

struct sq {
	struct wqe *wqe;
	uint8_t *slab; /* memory for SGEs and inline data */
	uint32_t mask, max_wr, max_sge, max_inline;
	uint32_t put;	   /* next free */
	uint32_t tx;	   /* next to transmit */
	uint32_t get;	   /* oldest not retired */
	uint32_t reserved; /* entries from put on that are being filled (ibv_wr_*) */

	/* latency.c */
	struct wqe *timed;    /* the request that is being timed; or NULL */
	uint64_t timed_since; /* clock_ns() */
	struct sample sample;
};

/* Returns -errno as ibv_post_send() does; *bad is the first request not taken. */
int qp_post_send(struct stag_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_fast_reg(struct stag_qp *qp, const struct stagdv_fast_reg *wr);
int qp_post_barrier(struct stag_qp *qp, const struct stagdv_barrier *b);
int qp_post_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
int qp_post_close(struct stag_qp *qp, const struct stagdv_close *c);
int qp_bind_mw1(struct stag_qp *qp, struct stag_mw *mw, struct ibv_mw_bind *bind);

/*
 * For builders of work requests (sq.c, src/verbs/wr.c). They take the next free entry (NULL:
 * the queue is full), fill it, check it, and publish all entries taken since, at once, or drop
 * them. sq_check() returns the error of ibv_post_send().
 */
bool sq_may_post(struct stag_qp *qp); /* does the state allow it? once for each list of requests */
struct wqe *sq_take(struct stag_qp *qp);
int sq_check(struct stag_qp *qp, const struct wqe *w);
void sq_publish(struct stag_qp *qp); /* and transmits them */
void sq_drop(struct stag_qp *qp);    /* and withdraws STags that they were to advertise */
/* Takes, fills and checks an entry that advertises memory. Returns -errno. */
int sq_add_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
/* Set the entry's payload. Return -EINVAL, and log it, if it is more than the queue pair takes. */
int sq_set_inline(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_data_buf *buf);
int sq_set_sges(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_sge *sge);

/* For other files of the adapter. */
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
