// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn.c - a connection of a node: its queue pair, its messages, its end.
 *
 * All clients share one completion queue, all nodes another; each has room for everything that can be in flight. Any failure
 * ends the connection; its memory stays until the end of the round.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "stag/stagdv.h"

/* ---- completions ----------------------------------------------------------------------- */

void node_conn_completed(const struct ibv_wc *wc)
{
	struct node_work *w = (struct node_work *)(uintptr_t)wc->wr_id;
	struct node_conn *c = w->conn;

	if (c->over)
		return;
	if (wc->status == IBV_WC_SUCCESS) {
		w->done(w, wc);
		return;
	}
	log_debug("pool connection: %s", ibv_wc_status_str(wc->status));
	node_conn_leave(c);
}

static void message_received(struct node_work *w, const struct ibv_wc *wc)
{
	struct node_message *m = (struct node_message *)w;

	m->length = wc->byte_len;
	m->advertised = wc->wc_flags & STAGDV_WC_ADVERTISED ? wc->invalidated_rkey : 0;
	m->invalidated = wc->wc_flags & IBV_WC_WITH_INV ? wc->invalidated_rkey : 0;
	w->conn->ops->received(w->conn, m);
}

static void message_sent(struct node_work *w, const struct ibv_wc *wc)
{
	struct node_message *m = (struct node_message *)w;
	struct node_conn *c = w->conn;

	(void)wc;
	list_add_tail(&c->out, &m->link);
	c->unsent--;
	c->sent_at = c->node->now;
	if (c->ops->sent)
		c->ops->sent(c);
}

static void ignore_completion(struct node_work *w, const struct ibv_wc *wc)
{
	(void)w;
	(void)wc;
}

/* ---- posting ------------------------------------------------------------------------------ */

int node_conn_post(struct node_conn *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int rc;

	if (c->over)
		return -ENOTCONN;
	rc = -ibv_post_send(c->id->qp, wr, &bad);
	/* A list that was posted in part cannot be continued: its connection ends. */
	if (rc == -ENOMEM && bad == wr)
		return rc;
	if (rc != 0)
		node_conn_leave(c);
	return rc;
}

int node_conn_receive(struct node_conn *c, struct node_message *m)
{
	struct ibv_sge sge = {(uintptr_t)m->bytes, NODE_MESSAGE, c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uintptr_t)&m->work, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int rc;

	if (c->over)
		return -ENOTCONN;
	rc = -ibv_post_recv(c->id->qp, &wr, &bad);
	if (rc != 0)
		node_conn_leave(c);
	return rc;
}

struct node_message *node_conn_message(struct node_conn *c)
{
	struct node_message *m;

	if (c->over || list_empty(&c->out))
		return NULL;
	m = list_entry(c->out.next, struct node_message, link);
	list_del(&m->link);
	m->length = 0;
	return m;
}

int node_conn_send(struct node_conn *c, struct node_message *m)
{
	struct ibv_sge sge = {(uintptr_t)m->bytes, m->length, c->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&m->work,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	int rc = node_conn_post(c, &wr);

	if (rc != 0)
		node_conn_leave(
			c); /* the queue has room for all messages: more is a protocol fault */
	else if (c->unsent++ == 0)
		c->sent_at = c->node->now;
	return rc;
}

/* ---- life cycle ------------------------------------------------------------------------------ */

static int grow_cq(struct node_cq *q, int more)
{
	int size = q->size, rc;

	while (size - q->used < more)
		size *= 2;
	if (size != q->size) {
		rc = ibv_resize_cq(q->cq, size);
		if (rc != 0)
			return -rc;
		q->size = size;
	}
	q->used += more;
	return 0;
}

static int make_messages(struct node_conn *c, struct ibv_pd *pd)
{
	size_t size = (size_t)2 * c->depth * NODE_MESSAGE;
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	c->memory = at;
	c->mr = ibv_reg_mr(pd, at, size, IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr)
		return -errno;
	c->messages = calloc(2 * c->depth, sizeof(*c->messages));
	if (!c->messages)
		return -ENOMEM;
	for (unsigned int i = 0; i < 2 * c->depth; i++) {
		struct node_message *m = &c->messages[i];

		m->work = (struct node_work){i < c->depth ? message_received : message_sent, c};
		m->bytes = at + (size_t)i * NODE_MESSAGE;
		list_init(&m->link);
		if (i >= c->depth)
			list_add_tail(&c->out, &m->link);
	}
	return 0;
}

static void free_messages(struct node_conn *c)
{
	if (c->mr)
		ibv_dereg_mr(c->mr);
	if (c->memory)
		munmap(c->memory, (size_t)2 * c->depth * NODE_MESSAGE);
	free(c->messages);
	c->mr = NULL;
	c->memory = NULL;
	c->messages = NULL;
}

static int make_queues(struct node_conn *c, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->cq->cq,
		.recv_cq = c->cq->cq,
		.cap = {.max_send_wr = c->depth + c->sends,
			.max_recv_wr = c->depth,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
	};

	if (rdma_create_qp(c->id, pd, &attr) != 0)
		return -errno;
	for (unsigned int i = 0; i < c->depth; i++)
		if (node_conn_receive(c, &c->messages[i]) != 0)
			return -ENOMEM;
	return 0;
}

void node_conn_begin(struct node_conn *c, struct stag_pool_node *n, const struct node_conn_ops *ops,
		     struct rdma_cm_id *id)
{
	*c = (struct node_conn){.node = n, .ops = ops, .id = id};
	c->lost = (struct node_work){ignore_completion, c};
	list_init(&c->out);
	list_init(&c->link);
	list_add_tail(&n->conns, &c->link);
	id->context = c;
}

int node_conn_prepare(struct node_conn *c, struct node_cq *cq, struct ibv_pd *pd,
		      unsigned int depth, unsigned int sends)
{
	int rc = grow_cq(cq, (int)(2 * depth + sends));

	if (rc != 0)
		return rc;
	c->cq = cq;
	c->depth = depth;
	c->sends = sends;
	rc = make_messages(c, pd);
	return rc == 0 ? make_queues(c, pd) : rc;
}

void node_conn_leave(struct node_conn *c)
{
	if (c->over)
		return;
	c->over = true;
	list_del(&c->link);
	list_add_tail(&c->node->ended, &c->link);
}

/* Destroys the queue pair, and with it the work requests in flight; then the owner frees the rest. */
static void node_conn_free(struct node_conn *c)
{
	struct rdma_cm_id *id = c->id;

	c->ops->ended(c);
	if (c->up)
		rdma_disconnect(id);
	if (id->qp)
		rdma_destroy_qp(id);
	free_messages(c);
	if (c->cq)
		c->cq->used -= (int)(2 * c->depth + c->sends);
	c->ops->free(c);
	rdma_destroy_id(id);
}

void node_conns_free_ended(struct stag_pool_node *n)
{
	while (!list_empty(&n->ended)) {
		struct node_conn *c = list_entry(n->ended.next, struct node_conn, link);

		list_del(&c->link);
		node_conn_free(c);
	}
}
