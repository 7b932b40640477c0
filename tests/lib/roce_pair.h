/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roce_pair.h - queue pairs of roce0, connected by GID and number, as programs without a connection manager do it.
 *
 * White-box: the tests are linked with the library's objects. STAG_DEVICE does not matter.
 */
#ifndef STAG_TEST_ROCE_PAIR_H
#define STAG_TEST_ROCE_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <infiniband/verbs.h>

#include "await.h"

#define ROCE_BUF 65536
#define ROCE_ACCESS                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

struct end { /* one queue pair with everything that it needs */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq; /* or NULL */
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* of buf, with all rights */
	uint8_t *buf;
	size_t size;
};

/* Attributes of a connection; zeroes mean the defaults of roce_defaults. */
struct ways {
	unsigned access; /* qp_access_flags */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t rd_atomic; /* both depths */
	bool with_srq;
	bool uc;			 /* unreliable connections */
	bool no_retries, no_rnr_retries; /* a count of 0 */
	bool no_rights;			 /* access is 0 */
	bool no_reads;			 /* max_dest_rd_atomic is 0 */
	size_t size;			 /* of buf; 0: ROCE_BUF */
};

struct roce_pair {
	struct end a, b;
};

void end_open(struct end *e, const struct ways *w); /* in RESET */
void end_close(struct end *e);
void to_init(struct end *e, const struct ways *w);
/* On the path to queue pair number qpn of this machine. */
void to_rtr(struct end *e, uint32_t qpn, const struct ways *w);
void to_rtr_by(struct end *e, uint32_t qpn, struct ibv_global_route path, const struct ways *w);
void to_rts(struct end *e, const struct ways *w);
void end_connect(struct end *e, uint32_t qpn, const struct ways *w); /* from RESET to RTS */
void end_move(struct end *e, enum ibv_qp_state to);		     /* with the state alone */

void end_drain(struct end *e); /* to SQD; returns when its requests are done */

void roce_open(struct roce_pair *p, const struct ways *w); /* both in RTS; NULL: the defaults */
void roce_close(struct roce_pair *p);

/* Requests: signalled; of buf + off, to or from the other end's buf + off. */
void post_op(struct end *e, enum ibv_wr_opcode op, uint64_t id, size_t off, uint32_t len,
	     const struct end *to);
int try_post(struct end *e, struct ibv_send_wr *wr);
void post_send_(struct end *e, uint64_t id, size_t off, uint32_t len);
void post_recv_(struct end *e, uint64_t id, size_t off, uint32_t len);
void post_add(struct end *e, uint64_t id, size_t off, const struct end *to, size_t at, uint64_t by);

struct ibv_wc next_wc(struct ibv_cq *cq); /* waits for a completion, a minute at most */
struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
void expect_nothing(struct ibv_cq *cq);			    /* is there no completion now? */
void expect_event(struct end *e, enum ibv_event_type type); /* waits for it */
void expect_no_event(struct end *e);
void expect_qp_state(struct end *e, enum ibv_qp_state state);
void await_qp_state(struct end *e, enum ibv_qp_state state);
/* A message and its answer each way: everything before has been carried out. */
void exchange(struct roce_pair *p);

#endif
