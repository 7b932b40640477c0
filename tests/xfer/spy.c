// SPDX-License-Identifier: BSD-2-Clause
/*
 * spy.c - intercepts posts and completions: see spy.h.
 */
#include "spy.h"

#include <stdlib.h>
#include <string.h>

#include "stag/xfer.h"

static struct spy *spy; /* a global, because the operations have no context argument */

bool spy_is_tagged(const struct spy_wr *wr)
{
	return wr->wr_id >> 48 == STAG_XFER_WR_ID_TAG;
}

bool spy_is_confirm(const struct spy_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ && wr->length == 0;
}

/* ---- posting ---- */

static struct spy_wr *append(struct spy_rail *r)
{
	if (r->head && r->head + r->count == r->room) {
		memmove(r->wrs, r->wrs + r->head, r->count * sizeof(*r->wrs));
		r->head = 0;
	}
	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->wrs = realloc(r->wrs, r->room * sizeof(*r->wrs));
		assert_non_null(r->wrs);
	}
	return &r->wrs[r->head + r->count++];
}

static void note_posted(struct spy_rail *r, const struct ibv_send_wr *wr)
{
	struct spy_wr *seen = append(r);

	assert_in_range(wr->num_sge, 0, SPY_MAX_SGE);
	*seen = (struct spy_wr){.wr_id = wr->wr_id,
				.opcode = wr->opcode,
				.rail = (unsigned int)(r - spy->rails),
				.num_sge = wr->num_sge,
				.remote_addr = wr->wr.rdma.remote_addr,
				.rkey = wr->wr.rdma.rkey};
	for (int i = 0; i < wr->num_sge; i++) {
		seen->sge[i] = wr->sg_list[i];
		seen->length += wr->sg_list[i].length;
	}
	if (spy->posted)
		spy->posted(spy, seen);
}

static struct spy_rail *rail_of(const struct ibv_qp *qp)
{
	for (unsigned int i = 0; i < PAIR_MAX_RAILS; i++)
		if (spy->rails[i].qp == qp)
			return &spy->rails[i];
	return NULL;
}

static int length_of(const struct ibv_send_wr *wr)
{
	int n = 0;

	for (; wr; wr = wr->next)
		n++;
	return n;
}

/* Posts only the first `give` of a list to the device. */
static int post_some(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, int give)
{
	struct ibv_send_wr *last = wr, *rest = wr, *stop = NULL;
	int err = 0;

	for (int i = 0; i < give; i++) {
		last = rest;
		rest = rest->next;
	}
	if (give) {
		last->next = NULL;
		err = spy->real.post_send(qp, wr, &stop);
		last->next = rest;
	}
	*bad = err || stop ? stop : rest;
	return err;
}

static int post_or_refuse(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int count = length_of(wr), refusal = 0, err;
	int give = spy->refuse ? spy->refuse(spy, count, &refusal) : count;

	if (give >= count)
		return spy->real.post_send(qp, wr, bad);
	err = post_some(qp, wr, bad, give);
	return err ? err : refusal;
}

static int spy_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct spy_rail *r = rail_of(qp);
	struct ibv_send_wr *stop = NULL;
	int err;

	if (!r)
		return spy->real.post_send(qp, wr, bad);
	err = post_or_refuse(qp, wr, &stop);
	for (; wr && wr != stop; wr = wr->next)
		note_posted(r, wr);
	if (err || stop)
		*bad = stop;
	return err;
}

/* ---- completing ---- */

static struct spy_rail *rail_by_number(uint32_t qp_num)
{
	for (unsigned int i = 0; i < PAIR_MAX_RAILS; i++) {
		if (spy->rails[i].qp && spy->rails[i].qp_num == qp_num)
			return &spy->rails[i];
		if (spy->old[i].qp && spy->old[i].qp_num == qp_num)
			return &spy->old[i];
	}
	return NULL;
}

static struct spy_wr *find(struct spy_rail *r, uint64_t wr_id)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->wrs[r->head + i].wr_id == wr_id)
			return &r->wrs[r->head + i];
	return NULL;
}

static bool is_iwarp(void)
{
	return spy->device->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* Returns whether the completion of `last` proves that wr, posted no later, is done. */
static bool completion_proves(const struct spy_wr *last, const struct spy_wr *wr)
{
	if (last->opcode == IBV_WR_RDMA_READ || !is_iwarp())
		return true;
	/* On iWARP a write may complete before a read that was posted earlier. */
	return spy->write_completion_proves && wr->opcode == IBV_WR_RDMA_WRITE;
}

/* Retires proven work requests in order: an unproven one holds back those behind it. */
static void retire(struct spy_rail *r)
{
	while (r->count && r->wrs[r->head].done) {
		const struct spy_wr *wr = &r->wrs[r->head++];

		r->count--;
		if (spy->proven)
			spy->proven(spy, wr);
	}
}

static void prove_until(struct spy_rail *r, const struct spy_wr *last)
{
	for (struct spy_wr *wr = &r->wrs[r->head]; wr <= last; wr++)
		wr->done |= completion_proves(last, wr);
	retire(r);
}

static void note_completed(const struct ibv_wc *wc)
{
	struct spy_rail *r = rail_by_number(wc->qp_num);
	struct spy_wr *wr = r ? find(r, wc->wr_id) : NULL;

	if (!wr)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		if (spy->failed)
			spy->failed(spy, wr, wc->status);
	} else {
		prove_until(r, wr);
	}
}

static int spy_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int n = spy->real.poll_cq(cq, max, wc);

	for (int i = 0; i < n; i++)
		note_completed(&wc[i]);
	return n;
}

/* ---- starting and stopping ---- */

static void set_qp(struct spy_rail *r, struct ibv_qp *qp)
{
	*r = (struct spy_rail){.qp = qp, .qp_num = qp ? qp->qp_num : 0};
}

void spy_start(struct spy *s, struct pair *p)
{
	assert_null(spy);
	spy = s;
	s->device = p->context;
	s->real = p->context->ops;
	memset(s->rails, 0, sizeof(s->rails));
	memset(s->old, 0, sizeof(s->old));
	for (unsigned int i = 0; i < p->wish.rails; i++)
		set_qp(&s->rails[i], pair_qp(p, i));
	p->context->ops.post_send = spy_post_send;
	p->context->ops.poll_cq = spy_poll_cq;
}

void spy_stop(struct spy *s)
{
	s->device->ops.post_send = s->real.post_send;
	s->device->ops.poll_cq = s->real.poll_cq;
	for (unsigned int i = 0; i < PAIR_MAX_RAILS; i++) {
		free(s->rails[i].wrs);
		free(s->old[i].wrs);
	}
	spy = NULL;
}

void spy_rebind(struct spy *s, unsigned int rail, struct ibv_qp *qp)
{
	spy_forget(s, rail);
	s->old[rail] = s->rails[rail];
	set_qp(&s->rails[rail], qp);
}

void spy_forget(struct spy *s, unsigned int rail)
{
	free(s->old[rail].wrs);
	set_qp(&s->old[rail], NULL);
}
