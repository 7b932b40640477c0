// SPDX-License-Identifier: BSD-2-Clause
/*
 * xfer_hand.c - transfers posted by hand, without the transfer manager.
 *
 * The fastest way with plain verbs: lists of work requests, the last one of each signalled, and a
 * full queue. At the end there is the same confirmation that the bytes were placed: on iWARP, a
 * read that is posted after them.
 */
#include "part.h"

#include <string.h>

#define MAX_LIST 256
#define CHUNKS	 16 /* in flight */

static struct ibv_send_wr wrs[MAX_LIST];
static struct ibv_sge sges[MAX_LIST];

/* wr_id is the number of work requests that a completion retires. */
static uint64_t reap_completions(struct bench_link *l)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(l->by_hand.cq, 16, wc);
	uint64_t done = 0;

	if (n < 0)
		bench_die("ibv_poll_cq failed");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			bench_die("a work request failed: %s", ibv_wc_status_str(wc[i].status));
		done += wc[i].wr_id;
	}
	return done;
}

static void post_list(struct bench_link *l, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(l->by_hand.qp, wr, &bad);

	if (err)
		bench_die("ibv_post_send: %s", strerror(err));
}

static enum ibv_wr_opcode opcode_of(enum stag_xfer_op op)
{
	return op == STAG_XFER_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
}

/* All writes before this read have been placed when it completes. */
static void confirm_writes(struct bench_link *l, enum stag_xfer_op op)
{
	struct ibv_sge none = {(uintptr_t)l->memory, 0, l->mr->lkey};
	struct ibv_send_wr read = {.wr_id = 1,
				   .sg_list = &none,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED};

	if (!l->confirm || op == STAG_XFER_READ)
		return;
	read.wr.rdma.remote_addr = l->remote;
	read.wr.rdma.rkey = l->rkey;
	post_list(l, &read);
	while (!reap_completions(l))
		;
}

size_t hand_fill(struct bench_link *l, enum stag_xfer_op op, const struct stag_xfer_elem *elems,
		 size_t n, const struct hand_style *style)
{
	size_t list = n < style->list ? n : style->list;

	for (size_t i = 0; i < list; i++) {
		const struct stag_xfer_buf *b = elems[i].bufs;
		struct ibv_send_wr *wr = &wrs[i];

		sges[i] = (struct ibv_sge){b->addr, (uint32_t)b->length, b->lkey};
		wr->next = wr + 1;
		wr->sg_list = &sges[i];
		wr->num_sge = 1;
		wr->opcode = opcode_of(op);
		wr->send_flags = style->in_line ? IBV_SEND_INLINE : 0;
		wr->wr.rdma.remote_addr = elems[i].remote_addr;
		wr->wr.rdma.rkey = elems[i].rkey;
	}
	wrs[list - 1].next = NULL;
	wrs[list - 1].wr_id = list;
	wrs[list - 1].send_flags |= IBV_SEND_SIGNALED;
	return list;
}

void hand_post_each(struct bench_link *l, enum stag_xfer_op op, const struct stag_xfer_elem *elems,
		    size_t n, const struct hand_style *style)
{
	uint64_t posted = 0, done = 0;

	while (posted < n) {
		size_t list = hand_fill(l, op, elems + posted, n - posted, style);

		while (posted - done + list >= HAND_DEPTH) /* one entry is for the confirmation */
			done += reap_completions(l);
		post_list(l, wrs);
		posted += list;
		done += reap_completions(l);
	}
	while (done < posted)
		done += reap_completions(l);
	confirm_writes(l, op);
}

void hand_post_chunks(struct bench_link *l, enum stag_xfer_op op, uint64_t remote_offset,
		      char *local, uint32_t lkey, uint64_t bytes)
{
	uint64_t posted = 0, done = 0, at = 0;

	while (at < bytes) {
		uint64_t part = bytes - at < HAND_CHUNK ? bytes - at : HAND_CHUNK;
		struct ibv_sge sge = {(uintptr_t)local + at, (uint32_t)part, lkey};
		struct ibv_send_wr wr = {.wr_id = 1,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode_of(op),
					 .send_flags = IBV_SEND_SIGNALED};

		wr.wr.rdma.remote_addr = l->remote + remote_offset + at;
		wr.wr.rdma.rkey = l->rkey;
		while (posted - done >= CHUNKS)
			done += reap_completions(l);
		post_list(l, &wr);
		posted++;
		at += part;
	}
	while (done < posted)
		done += reap_completions(l);
	confirm_writes(l, op);
}
