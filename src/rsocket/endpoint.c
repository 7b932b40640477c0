// SPDX-License-Identifier: BSD-2-Clause
/*
 * endpoint.c - the verbs objects of a connection: queues, buffers, regions.
 *
 * They are created when the device is known, before the connection is made. Each buffer is a region
 * of its own, so that a peer can write the ring and the slots, and nothing else.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
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

/* Reduces the requested sizes to the device's limits. */
static int fit_queues(struct rsocket *rs)
{
	struct ibv_device_attr attr;
	int ret = ibv_query_device(rs->conn.id->verbs, &attr);
	unsigned max;

	if (ret)
		return -ret;
	if (attr.max_qp_wr < RS_QUEUE_MIN + RS_RECV_SPARE)
		return -ENOTSUP;
	max = (unsigned)attr.max_qp_wr - RS_RECV_SPARE;
	if (max > RS_QUEUE_MAX)
		max = RS_QUEUE_MAX;
	rs->opt.config.sq_size = clamp_queue(rs->opt.config.sq_size, max);
	rs->opt.config.rq_size = clamp_queue(rs->opt.config.rq_size, max);
	return 0;
}

static unsigned receives(const struct rsocket *rs)
{
	return rs->opt.config.rq_size + RS_RECV_SPARE;
}

static int make_cq(struct rsocket *rs)
{
	rs->ep.comp = ibv_create_comp_channel(rs->conn.id->verbs);
	if (!rs->ep.comp)
		return -errno;
	/* All woken threads try to read the event; only one of them gets it. */
	if (set_nonblocking(rs->ep.comp->fd))
		return -errno;
	rs->ep.cq = ibv_create_cq(rs->conn.id->verbs, (int)(rs->opt.config.sq_size + receives(rs)),
				  rs, rs->ep.comp, 0);
	return rs->ep.cq ? 0 : -errno;
}

static int make_qp(struct rsocket *rs)
{
	struct ibv_qp_init_attr attr = {.qp_context = rs,
					.send_cq = rs->ep.cq,
					.recv_cq = rs->ep.cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = rs->opt.config.sq_size,
						.max_recv_wr = receives(rs),
						.max_send_sge = 2,
						.max_recv_sge = 1,
						.max_inline_data = rs->opt.config.inline_size}};

	if (rs->ep.msg_mode && attr.cap.max_inline_data < RS_MSG_LEN)
		attr.cap.max_inline_data = RS_MSG_LEN;
	if (rdma_create_qp(rs->conn.id, NULL, &attr))
		return -errno;
	if (rs->ep.msg_mode && attr.cap.max_inline_data < RS_MSG_LEN)
		return -ENOTSUP;
	/* The device may allow more inline data; no more than requested is used. */
	if (attr.cap.max_inline_data < rs->opt.config.inline_size)
		rs->opt.config.inline_size = (uint16_t)attr.cap.max_inline_data;
	return 0;
}

static size_t slots_size(const struct rsocket *rs)
{
	return RS_SLOTS * sizeof(struct rs_region) +
	       rs->opt.config.iomaps * sizeof(struct rs_iomap);
}

static int make_buffers(struct rsocket *rs)
{
	const int ours = IBV_ACCESS_LOCAL_WRITE;
	const int theirs = ours | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = rs->conn.id->qp->pd;
	int ret;

	if ((ret = rs_buffer_new(&rs->ep.sbuf, pd, rs->opt.config.sbuf_size, ours)) ||
	    (ret = rs_buffer_new(&rs->ep.rbuf, pd, rs->opt.config.rbuf_size, theirs)) ||
	    (ret = rs_buffer_new(&rs->ep.msgs, pd, receives(rs) * RS_MSG_LEN, ours)) ||
	    (ret = rs_buffer_new(&rs->ep.ctrl, pd, RS_CTRL_MAX * sizeof(struct rs_region), ours)) ||
	    (ret = rs_buffer_new(&rs->ep.slots, pd, slots_size(rs), theirs)))
		return ret;
	if (!rs->opt.config.iomaps)
		return 0;
	rs->iomap.targets = calloc(rs->opt.config.iomaps, sizeof(*rs->iomap.targets));
	return rs->iomap.targets ? 0 : -ENOMEM;
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

	assert(lock_held(&rs->lock));
	rs->ep.msg_mode = rs->conn.id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	if ((ret = fit_queues(rs)) || (ret = make_cq(rs)) || (ret = make_qp(rs)) ||
	    (ret = make_buffers(rs)) ||
	    (ret = flow_rx_init(&rs->rx, rs->opt.config.rbuf_size, rs->opt.config.rq_size)) ||
	    (ret = post_first_receives(rs))) {
		log_info("rsocket %d: cannot create its queue pair and buffers: errno %d", rs->fd,
			 -ret);
		return ret;
	}
	rs->sq.left = rs->opt.config.sq_size - RS_CTRL_WRS;
	rs->ep.open = true;
	return 0;
}

void rs_endpoint_close(struct rsocket *rs)
{
	if (rs->conn.id && rs->conn.id->qp)
		rdma_destroy_qp(rs->conn.id);
	if (rs->ep.cq) {
		ibv_ack_cq_events(rs->ep.cq, rs->ep.cq_unacked);
		ibv_destroy_cq(rs->ep.cq);
	}
	if (rs->ep.comp)
		ibv_destroy_comp_channel(rs->ep.comp);
	rs_buffer_free(&rs->ep.slots);
	rs_buffer_free(&rs->ep.ctrl);
	rs_buffer_free(&rs->ep.msgs);
	rs_buffer_free(&rs->ep.rbuf);
	rs_buffer_free(&rs->ep.sbuf);
	free(rs->iomap.targets);
	flow_rx_free(&rs->rx);
	rs->ep.open = false;
}

void rs_offer_make(const struct rsocket *rs, struct rs_offer *offer)
{
	*offer = (struct rs_offer){.credits = rs->opt.config.rq_size,
				   .iomaps = rs->opt.config.iomaps,
				   .slots = {.addr = (uintptr_t)rs->ep.slots.at,
					     .key = rs->ep.slots.mr->rkey,
					     .length = RS_SLOTS},
				   .data = {.addr = (uintptr_t)rs->ep.rbuf.at,
					    .key = rs->ep.rbuf.mr->rkey,
					    .length = rs->opt.config.rbuf_size / 2}};
}

void rs_offer_take(struct rsocket *rs, const struct rs_offer *offer)
{
	rs->ep.peer = *offer;
	flow_tx_init(&rs->tx, rs->opt.config.sbuf_size, offer);
}
