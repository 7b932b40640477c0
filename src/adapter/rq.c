// SPDX-License-Identifier: BSD-2-Clause
/*
 * rq.c - a ring of receive work requests, for queue pairs and shared queues.
 *
 * The ring has no lock: its owner has.
 */
#include "adapter/rq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device.h"
#include "adapter/misuse.h"
#include "base/log.h"

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int rq_init(struct rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t entries = round_up_pow2(max_wr);

	*rq = (struct rq){
		.stride = sizeof(struct rwqe) + max_sge * sizeof(struct ibv_sge),
		.mask = entries - 1,
		.max_wr = max_wr,
		.max_sge = max_sge,
	};
	if (max_wr == 0)
		return 0;
	rq->mem = calloc(entries, rq->stride);
	return rq->mem ? 0 : -ENOMEM;
}

void rq_free(struct rq *rq)
{
	free(rq->mem);
	rq->mem = NULL;
}

static struct rwqe *entry(const struct rq *rq, uint32_t i)
{
	return (struct rwqe *)(rq->mem + (i & rq->mask) * rq->stride);
}

int rq_put(struct rq *rq, const struct ibv_recv_wr *wr)
{
	struct rwqe *w;
	uint64_t len = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return -EINVAL;
	if (rq->put - rq->get >= rq->max_wr)
		return -ENOMEM;
	w = entry(rq, rq->put);
	/* Copied first: a program's list (libiscsi's) may be unaligned. */
	if (wr->num_sge)
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
	for (int i = 0; i < wr->num_sge; i++)
		len += w->sge[i].length;
	if (len > STAG_MAX_MSG)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->num_sge = (uint32_t)wr->num_sge;
	w->length = (uint32_t)len;
	rq->put++;
	return 0;
}

void rq_log_refused(const struct rq *rq, const struct ibv_recv_wr *wr, int err, const char *owner,
		    uint32_t number)
{
	unsigned long long id = wr->wr_id;

	if (err == -ENOMEM) /* some programs post until the queue is full */
		log_info("%s %u: post_recv of wr_id 0x%llx: the queue is full, it has %u", owner,
			 number, id, rq->max_wr);
	else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		misuse(owner, number,
		       "%s %u: post_recv of wr_id 0x%llx: %d SGEs, the queue was made with %u",
		       owner, number, id, wr->num_sge, rq->max_sge);
	else
		misuse(__func__, number,
		       "%s %u: post_recv of wr_id 0x%llx: the buffers are longer than 4 GiB", owner,
		       number, id);
}

struct rwqe *rq_peek(struct rq *rq)
{
	return rq->put == rq->get ? NULL : entry(rq, rq->get);
}
