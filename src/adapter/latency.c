// SPDX-License-Identifier: BSD-2-Clause
/*
 * latency.c - the latency of requests, from the post to the completion.
 *
 * Only samples are timed (base/sample.h): reading the clock twice costs a tenth of a short
 * write. A queue pair times one request at a time.
 */
#include "adapter/latency.h"

#include <assert.h>

#include "adapter/qp.h"
#include "base/clock.h"

struct histogram latency_times[LATENCY_KINDS];

const char *latency_kind_str(enum latency_kind kind)
{
	switch (kind) {
	case LATENCY_SEND:
		return "send";
	case LATENCY_WRITE:
		return "write";
	case LATENCY_READ:
		return "read";
	case LATENCY_ATOMIC:
		return "atomic";
	case LATENCY_FLUSH:
		return "flush";
	case LATENCY_KINDS:
		break;
	}
	return "unknown";
}

/* Returns LATENCY_KINDS for a request that needs no peer: it is done at once. */
static enum latency_kind kind_of(const struct wqe *w)
{
	switch (w->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case STAG_WR_ADVERTISE:
	case STAG_WR_CLOSE:
		return LATENCY_SEND;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return LATENCY_WRITE;
	case IBV_WR_RDMA_READ:
		return LATENCY_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return LATENCY_ATOMIC;
	case STAG_WR_BARRIER:
		return LATENCY_FLUSH;
	default:
		return LATENCY_KINDS;
	}
}

/* Picks any request of the list: the first waits for no other, and the last for all. */
void latency_begin(struct stag_qp *qp)
{
	struct sq *sq = &qp->sq;
	uint64_t posts = qp->stats.counters.posts + sq->reserved;
	struct wqe *w;

	assert(qp_tx_locked(qp));
	if (!sq->reserved)
		return;
	w = &sq->wqe[(sq->put + sample_dice(&sq->sample) % sq->reserved) & sq->mask];
	sample_take(&sq->sample, posts);
	if (kind_of(w) == LATENCY_KINDS)
		return;
	sq->timed = w;
	sq->timed_since = clock_ns();
}

void latency_end(struct stag_qp *qp, enum ibv_wc_status status)
{
	struct sq *sq = &qp->sq;
	enum latency_kind kind = kind_of(sq->timed);
	uint64_t ns;

	assert(qp_tx_locked(qp));
	sq->timed = NULL;
	if (status != IBV_WC_SUCCESS)
		return;
	ns = clock_ns() - sq->timed_since;
	histogram_add(&qp->stats.times, ns);
	histogram_add(&latency_times[kind], ns);
}
