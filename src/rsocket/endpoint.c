// SPDX-License-Identifier: BSD-2-Clause
/*
 * endpoint.c - the verbs objects of a connection: queues, buffers, regions.
 *
 * Made when the device is known, before the connection is. Each buffer is
 * registered on its own, so that a peer can write the ring and the slots, and
 * nothing else.
 */
#include "rsocket/rsocket.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/nonblock.h"

#define PAGE 4096

int rs_buffer_new(struct rs_buffer *b, struct ibv_pd *pd, size_t size, int access)
{
	size_t rounded = (size + PAGE - 1) / PAGE * PAGE;
	int err;

	b->at = aligned_alloc(PAGE, rounded ? rounded : PAGE);
	if (!b->at)
		return -ENOMEM;
	memset(b->at, 0, size);
	b->mr = ibv_reg_mr(pd, b->at, size, access);
	if (b->mr)
		return 0;

	err = errno;
	free(b->at);
	b->at = NULL;
	return -err;
}

void rs_buffer_free(struct rs_buffer *b)
{
	if (b->mr)
		ibv_dereg_mr(b->mr);
	free(b->at);
	*b = (struct rs_buffer){0};
}

static uint16_t clamp_queue(unsigned want, unsigned max)
{
	if (want < RS_QUEUE_MIN)
		want = RS_QUEUE_MIN;
	return (uint16_t)(want < max ? want : max);
}

/* What the device can do bounds what was asked for. */
static int fit_queues(struct rsocket *rs)
{
	struct ibv_device_attr attr;
	int ret = ibv_query_device(rs->id->verbs, &attr);
	unsigned max;

	if (ret)
		return -ret;
	if (attr.max_qp_wr < RS_QUEUE_MIN + RS_RECV_SPARE)
		return -ENOTSUP;
	max = (unsigned)attr.max_qp_wr - RS_RECV_SPARE;
	if (max > RS_QUEUE_MAX)
		max = RS_QUEUE_MAX;
	rs->config.sq_size = clamp_queue(rs->config.sq_size, max);
	rs->config.rq_size = clamp_queue(rs->config.rq_size, max);
	return 0;
}

static unsigned receives(const struct rsocket *rs)
{
	return rs->config.rq_size + RS_RECV_SPARE;
}

static int make_cq(struct rsocket *rs)
{
	rs->comp = ibv_create_comp_channel(rs->id->verbs);
	if (!rs->comp)
		return -errno;
	/* Whoever is woken tries to take the event; only one of them gets it. */
	if (set_nonblocking(rs->comp->fd))
		return -errno;
	rs->cq = ibv_create_cq(rs->id->verbs, (int)(rs->config.sq_size + receives(rs)), rs,
			       rs->comp, 0);
	return rs->cq ? 0 : -errno;
}

static int make_qp(struct rsocket *rs)
{
	struct ibv_qp_init_attr attr = {.qp_context = rs,
					.send_cq = rs->cq,
					.recv_cq = rs->cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = rs->config.sq_size,
						.max_recv_wr = receives(rs),
						.max_send_sge = 2,
						.max_recv_sge = 1,
						.max_inline_data = rs->config.inline_size}};

	if (rs->msg_mode && attr.cap.max_inline_data < RS_MSG_LEN)
		attr.cap.max_inline_data = RS_MSG_LEN;
	if (rdma_create_qp(rs->id, NULL, &attr))
		return -errno;
	if (rs->msg_mode && attr.cap.max_inline_data < RS_MSG_LEN)
		return -ENOTSUP;
	/* The device may allow more; no more than was asked for is used. */
	if (attr.cap.max_inline_data < rs->config.inline_size)
		rs->config.inline_size = (uint16_t)attr.cap.max_inline_data;
	return 0;
}

static size_t slots_size(const struct rsocket *rs)
{
	return RS_SLOTS * sizeof(struct rs_region) + rs->config.iomaps * sizeof(struct rs_iomap);
}

static int make_buffers(struct rsocket *rs)
{
	const int ours = IBV_ACCESS_LOCAL_WRITE;
	const int theirs = ours | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = rs->id->qp->pd;
	int ret;

	if ((ret = rs_buffer_new(&rs->sbuf, pd, rs->config.sbuf_size, ours)) ||
	    (ret = rs_buffer_new(&rs->rbuf, pd, rs->config.rbuf_size, theirs)) ||
	    (ret = rs_buffer_new(&rs->msgs, pd, receives(rs) * RS_MSG_LEN, ours)) ||
	    (ret = rs_buffer_new(&rs->ctrl, pd, RS_CTRL_MAX * sizeof(struct rs_region), ours)) ||
	    (ret = rs_buffer_new(&rs->slots, pd, slots_size(rs), theirs)))
		return ret;
	if (!rs->config.iomaps)
		return 0;
	rs->target_iomaps = calloc(rs->config.iomaps, sizeof(*rs->target_iomaps));
	return rs->target_iomaps ? 0 : -ENOMEM;
}

static int post_first_receives(struct rsocket *rs)
{
	for (uint32_t i = 0; i < receives(rs); i++) {
		int ret = rs_post_receives(rs, &i, 1);

		if (ret)
			return ret;
	}
	return 0;
}

int rs_endpoint_open(struct rsocket *rs)
{
	int ret;

	rs->msg_mode = rs->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	if ((ret = fit_queues(rs)) || (ret = make_cq(rs)) || (ret = make_qp(rs)) ||
	    (ret = make_buffers(rs)) ||
	    (ret = flow_rx_init(&rs->rx, rs->config.rbuf_size, rs->config.rq_size)) ||
	    (ret = post_first_receives(rs))) {
		log_info("rsocket %d: no endpoint: errno %d", rs->fd, -ret);
		return ret;
	}
	rs->sq_left = rs->config.sq_size - RS_CTRL_WRS;
	rs->open = true;
	return 0;
}

void rs_endpoint_close(struct rsocket *rs)
{
	if (rs->id && rs->id->qp)
		rdma_destroy_qp(rs->id);
	if (rs->cq) {
		ibv_ack_cq_events(rs->cq, rs->cq_unacked);
		ibv_destroy_cq(rs->cq);
	}
	if (rs->comp)
		ibv_destroy_comp_channel(rs->comp);
	rs_buffer_free(&rs->slots);
	rs_buffer_free(&rs->ctrl);
	rs_buffer_free(&rs->msgs);
	rs_buffer_free(&rs->rbuf);
	rs_buffer_free(&rs->sbuf);
	free(rs->target_iomaps);
	flow_rx_free(&rs->rx);
	rs->open = false;
}

void rs_offer_make(const struct rsocket *rs, struct rs_offer *offer)
{
	*offer = (struct rs_offer){.credits = rs->config.rq_size,
				   .iomaps = rs->config.iomaps,
				   .slots = {.addr = (uintptr_t)rs->slots.at,
					     .key = rs->slots.mr->rkey,
					     .length = RS_SLOTS},
				   .data = {.addr = (uintptr_t)rs->rbuf.at,
					    .key = rs->rbuf.mr->rkey,
					    .length = rs->config.rbuf_size / 2}};
}

void rs_offer_take(struct rsocket *rs, const struct rs_offer *offer)
{
	rs->peer = *offer;
	flow_tx_init(&rs->tx, rs->config.sbuf_size, offer);
}
