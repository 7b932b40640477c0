// SPDX-License-Identifier: BSD-2-Clause
/*
 * rdma_tx.c - sends, RDMA Writes and RDMA Reads: one queue, posted as the send queue has room.
 */
#include "block/target/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN 64

static struct target_piece *piece_of(struct target_verb *v)
{
	return container_of(v, struct target_piece, verb);
}

static struct target_message *message_of(struct target_verb *v)
{
	return container_of(v, struct target_message, verb);
}

static void enqueue(struct target_rdma *r, struct target_verb *v)
{
	list_add_tail(&r->queue, &v->link);
	target_conn_dirty(&r->conn);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Returns NULL if all messages are in flight: the peer does not receive them. */
static struct target_message *get_message(struct target_rdma *r, uint32_t len)
{
	struct list *from = len <= SMALL_BYTES && !list_empty(&r->small) ? &r->small : &r->large;
	struct target_message *m;

	if (list_empty(from))
		return NULL;
	m = list_entry(from->next, struct target_message, verb.link);
	list_del(&m->verb.link);
	m->verb.kind = VERB_SEND;
	m->closes = false;
	return m;
}

static struct target_message *make_message(struct target_rdma *r, struct pdu *p, const void *data,
					   uint32_t len)
{
	static const struct iser nothing;
	uint32_t head = r->one_shot ? 0 : ISER_LEN, pad = iscsi_pdu_pad(len);
	struct target_message *m;

	m = len > LOGIN_BYTES ? NULL : get_message(r, head + BHS_LEN + len + pad);
	if (!m) {
		r->broken = true;
		target_conn_dirty(&r->conn);
		return NULL;
	}
	m->len = head + BHS_LEN + len + pad;
	if (head)
		iscsi_iser_encode(&nothing, m->bytes);
	p->data_len = len;
	iscsi_pdu_encode(p, m->bytes + head);
	if (len)
		memcpy(m->bytes + head + BHS_LEN, data, len);
	memset(m->bytes + head + BHS_LEN + len, 0, pad);
	return m;
}

/* Posts the receives of full feature phase before the last login response goes out. */
static void prepare_full_feature(struct target_rdma *r, const struct pdu *p)
{
	const uint8_t ends = LOGIN_TRANSIT | STAGE_FULL;
	int rc;

	if (p->opcode != LOGIN_RESPONSE || p->status_class)
		return;
	rc = (p->flags & ends) == ends ? target_rdma_post_window(r) : target_rdma_post_login(r);
	if (rc != 0)
		r->broken = true;
}

void target_rdma_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len)
{
	struct target_rdma *r = to_rdma(c);
	struct target_message *m;

	if (c->state == CONN_DEAD)
		return;
	prepare_full_feature(r, p);
	m = make_message(r, p, data, len);
	if (m)
		enqueue(r, &m->verb);
}

void target_rdma_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len)
{
	struct target_rdma *r = to_rdma(k->session->conn);
	struct target_message *m = make_message(r, p, data, len);

	if (m) {
		m->closes = k->lent && (r->one_shot || r->peer.invalidates);
		m->stag = k->stag;
		enqueue(r, &m->verb);
	}
	if (k->lent)
		target_stags_ended(k, !m	  ? STAGDV_STAG_ORPHANED
				      : m->closes ? STAGDV_STAG_CLOSED
						  : STAGDV_STAG_WITHDRAWN);
}

/* ---- data ------------------------------------------------------------------------------------ */

void target_rdma_data_in(struct target_piece *p, bool with_status)
{
	p->verb.kind = VERB_WRITE;
	p->slot = NULL;
	enqueue(to_rdma(p->task->session->conn), &p->verb);
}

void target_rdma_data_out(struct target_piece *p)
{
	p->verb.kind = VERB_READ;
	p->slot = NULL;
	enqueue(to_rdma(p->task->session->conn), &p->verb);
}

/* Removes what is queued. Posted requests complete by themselves: the adapter uses their memory. */
void target_rdma_forget(struct target_task *k)
{
	struct target_rdma *r = to_rdma(k->session->conn);

	if (k->lent)
		target_stags_ended(k, STAGDV_STAG_ORPHANED);
	list_for_each_safe (it, &r->queue) {
		struct target_verb *v = list_entry(it, struct target_verb, link);

		if (v->kind == VERB_SEND || piece_of(v)->task != k)
			continue;
		list_del(&v->link);
		target_piece_moved(piece_of(v), -ECANCELED);
	}
}

/* ---- posting ----------------------------------------------------------------------------------- */

/* Copies a reply, which is in the task and not registered, to registered memory. */
static bool place_reply(struct target_rdma *r, struct target_piece *p)
{
	if (p->buffer || p->borrowed)
		return true;
	if (list_empty(&r->free_replies))
		return false;
	p->slot = list_entry(r->free_replies.next, struct target_reply_slot, link);
	list_del(&p->slot->link);
	memcpy(p->slot->bytes, p->bytes, p->len);
	return true;
}

/* Work requests of one post. */
struct chain {
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN];
	int n;
};

static void describe_data(const struct target_rdma *r, const struct target_piece *p,
			  struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	bool reads = p->verb.kind == VERB_READ;
	uint32_t from = reads ? p->got : 0;
	uint8_t *bytes = p->slot ? p->slot->bytes : p->bytes + from;

	*sge = (struct ibv_sge){(uintptr_t)bytes, p->len - from, p->slot ? r->mr->lkey : p->lkey};
	wr->opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->send_flags = reads ? IBV_SEND_SIGNALED : 0;
	wr->wr.rdma.remote_addr = p->task->base + p->offset + from;
	wr->wr.rdma.rkey = p->task->stag;
}

static void describe_message(const struct target_rdma *r, const struct target_message *m,
			     struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){(uintptr_t)m->bytes, m->len, r->mr->lkey};
	wr->opcode = m->closes ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
	wr->send_flags = m->closes && r->one_shot ? STAGDV_SEND_CLOSE : 0;
	wr->invalidate_rkey = m->stag;
}

static void add(const struct target_rdma *r, struct chain *c, struct target_verb *v)
{
	struct ibv_send_wr *wr = &c->wr[c->n];

	wr->wr_id = (uintptr_t)v;
	wr->sg_list = &c->sge[c->n];
	wr->num_sge = 1;
	if (v->kind == VERB_SEND)
		describe_message(r, message_of(v), wr, wr->sg_list);
	else
		describe_data(r, piece_of(v), wr, wr->sg_list);
	if (c->n)
		c->wr[c->n - 1].next = wr;
	c->n++;
}

/* Fills a chain with as many as the send queue has room for, and counts them as posted. */
static void fill(struct target_rdma *r, struct chain *c)
{
	c->n = 0;
	while (!list_empty(&r->queue) && r->n_posted < SEND_DEPTH && c->n < CHAIN) {
		struct target_verb *v = list_entry(r->queue.next, struct target_verb, link);

		if (v->kind != VERB_SEND && !place_reply(r, piece_of(v)))
			break;
		add(r, c, v);
		list_del(&v->link);
		list_add_tail(&r->posted, &v->link);
		r->n_posted++;
	}
}

/*
 * Signals the last request of a post only: requests complete in order. Reads are signalled each, as their data has
 * arrived then.
 */
int target_rdma_post(struct target_rdma *r)
{
	struct chain c;
	struct ibv_send_wr *bad;
	int rc = 0;

	do {
		fill(r, &c);
		if (c.n == 0)
			break;
		c.wr[c.n - 1].next = NULL;
		c.wr[c.n - 1].send_flags |= IBV_SEND_SIGNALED;
		target_conn_count_all(&r->conn, posts, c.n);
		rc = -ibv_post_send(r->id->qp, c.wr, &bad);
	} while (rc == 0 && c.n == CHAIN);
	return rc;
}

/* ---- coming back --------------------------------------------------------------------------------- */

static void give_back(struct target_rdma *r, struct target_verb *v, int result)
{
	struct target_piece *p;

	if (v->kind == VERB_SEND) {
		list_add_tail(message_of(v)->home->next,
			      &v->link); /* first in the list: it is likely in a cache */
		return;
	}
	p = piece_of(v);
	if (p->slot)
		list_add_tail(&r->free_replies, &p->slot->link);
	p->slot = NULL;
	if (v->kind == VERB_READ && result == 0)
		p->got = p->len;
	target_piece_moved(p, result);
}

/* Completes a request and all before it. If the connection ends during this, the rest has been given back. */
void target_rdma_sent(struct target_rdma *r, struct target_verb *v)
{
	struct target_verb *first;

	r->conn.moved = r->conn.target->loop.now;
	if (!list_empty(&r->queue))
		target_conn_dirty(&r->conn);
	do {
		first = list_entry(r->posted.next, struct target_verb, link);
		list_del(&first->link);
		r->n_posted--;
		give_back(r, first, 0);
	} while (first != v && !list_empty(&r->posted));
}

void target_rdma_tx_drop(struct target_rdma *r)
{
	struct list *lists[] = {&r->posted, &r->queue};

	for (int i = 0; i < 2; i++)
		while (!list_empty(lists[i])) {
			struct target_verb *v =
				list_entry(lists[i]->next, struct target_verb, link);

			list_del(&v->link);
			give_back(r, v, -ECANCELED);
		}
	r->n_posted = 0;
}
