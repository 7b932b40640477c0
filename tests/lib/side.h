/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * side.h - helpers of the adapter's tests: one side of a connection, with all objects that a
 * program has there, and checks of its state.
 *
 * A side keeps a ledger of its posts: a completion without a post, or a second one, fails the test.
 * Its regions lie between canaries. Every wait is for a condition and has a time limit (await.h).
 */
#ifndef STAG_TEST_SIDE_H
#define STAG_TEST_SIDE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <rdma/rdma_cma.h>

#include "await.h"

#define PATIENCE_MS 30000

/* ---- memory ------------------------------------------------------------ */

struct region {
	struct region *next;
	uint8_t *at; /* between two canaries */
	size_t len;
	struct ibv_mr *mr;
};

/* Fills with bytes that only this seed gives, and checks them. */
void fill(void *at, size_t len, unsigned seed);
void expect_filled(const void *at, size_t len, unsigned seed);
void expect_zeroes(const void *at, size_t len);

/* ---- a side ------------------------------------------------------------ */

#define NO_DEPTH (-1)

struct side_wish { /* a zero field selects the default */
	uint32_t send_wr, recv_wr, sge, inline_data, cqe;
	int ird, ord;	     /* default 8 */
	bool quiet;	     /* only IBV_SEND_SIGNALED work completes; else all does */
	bool channel;	     /* completion events, both queues */
	struct ibv_cq *cq;   /* for both directions; NULL: one of its own for each */
	struct ibv_pd *pd;   /* NULL: its own */
	uint32_t srq_wr;     /* receives come from an SRQ of this size */
	struct ibv_srq *srq; /* or from this one */
};

struct posted {
	bool quiet; /* completes only if it fails */
	bool done;
	bool settled; /* a test has checked its completion */
	struct ibv_wc wc;
};

struct side {
	struct side_wish wish;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *id;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct region *regions;
	struct posted *ledger; /* by wr_id - 1 */
	uint64_t n_posted;
};

/* The steps of a connection. */
void side_listen(struct side *s, const struct side_wish *w);
uint16_t side_port(const struct side *s); /* of a listening side, host order */
/* Waits for CONNECT_REQUEST: creates the queue pair of its id. */
void side_take_request(struct side *s);
int side_accept(struct side *s); /* rdma_accept() */
void side_resolve(struct side *s, const struct side_wish *w, uint16_t port);
void side_connect(struct side *s);
void side_close(struct side *s); /* checks the canaries */

/* Two sides of this process. */
struct pair {
	struct side a, b; /* a connected, b accepted */
};

void pair_open(struct pair *p, const struct side_wish *a, const struct side_wish *b);
void pair_close(struct pair *p);
void ping(struct pair *p); /* a send and a write, in both directions */

/* ---- posting ----------------------------------------------------------- */

struct region *lend_region(struct side *s, size_t len, int access);
struct region *own_region(struct side *s, size_t len); /* for local use */
void drop_region(struct side *s, struct region *r);    /* before the side is closed */
void check_canaries(const struct side *s);

struct ibv_sge piece(const struct region *r, size_t off, size_t len);

/* Each returns the work request's id. Zeroes in wr are filled in: wr_id; SIGNALED unless quiet. */
uint64_t post(struct side *s, struct ibv_send_wr *wr);
uint64_t post_receive(struct side *s, const struct region *r, size_t off, size_t len);
uint64_t post_send(struct side *s, const struct region *r, size_t off, size_t len);
uint64_t post_write(struct side *s, const struct region *from, size_t off, size_t len,
		    const struct region *to, size_t to_off);
uint64_t post_read(struct side *s, const struct region *sink, size_t off, size_t len,
		   const struct region *from, size_t from_off);
/* Enters a post into the ledger that the test makes itself. */
uint64_t note_posted(struct side *s, bool quiet);

/* ---- expecting --------------------------------------------------------- */

/* Return the next completion of the send or of the receive queue, which must be this one's. */
struct ibv_wc expect_sent(struct side *s, uint64_t wr_id);     /* successful */
struct ibv_wc expect_received(struct side *s, uint64_t wr_id); /* successful */
struct ibv_wc expect_failed(struct side *s, uint64_t wr_id, enum ibv_wc_status status);
struct ibv_wc await_wc(struct side *s, struct ibv_cq *cq); /* the next one of any kind */
bool poll_wc(struct side *s, struct ibv_cq *cq, struct ibv_wc *wc);
void expect_nothing(struct side *s); /* there is no completion */

/* Checks that every post has completed, once; those that no test has checked, as flushed. */
void expect_flushed(struct side *s);

void expect_state(const struct side *s, enum ibv_qp_state state);
void expect_cm(struct side *s, enum rdma_cm_event_type type);
void expect_disconnected(struct side *s);		     /* the event, and TIMEWAIT_EXIT */
void expect_cm_silence(struct side *s);			     /* there is no event */
enum ibv_event_type await_async(struct side *s);	     /* of its queue pair, CQs or SRQ */
void expect_async(struct side *s, enum ibv_event_type type); /* the next one is of this type */
void expect_no_async(struct side *s);
bool has_async(struct side *s);

#endif
