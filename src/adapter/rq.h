/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rq.h - a ring of receive work requests.
 */
#ifndef STAG_RQ_H
#define STAG_RQ_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

struct rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length;
	struct ibv_sge sge[]; /* max_sge of them */
};

/* A ring of receive work requests; rwqe i is at mem + (i & mask) * stride. */
struct rq {
	uint8_t *mem;
	size_t stride;
	uint32_t mask;
	uint32_t put, get;
	uint32_t max_wr, max_sge;
};

int rq_init(struct rq *rq, uint32_t max_wr, uint32_t max_sge);
void rq_free(struct rq *rq);
/* Copies a request into the ring. Returns -ENOMEM if it is full, or -EINVAL. */
int rq_put(struct rq *rq, const struct ibv_recv_wr *wr);
/* Logs why rq_put() refused; owner: what has the ring, "qp" or "srq". */
void rq_log_refused(const struct rq *rq, const struct ibv_recv_wr *wr, int err, const char *owner,
		    uint32_t number);
struct rwqe *rq_peek(struct rq *rq); /* the oldest, or NULL */

#endif
