// SPDX-License-Identifier: BSD-2-Clause
/*
 * rdma_rx.c - PDUs that come in sends: what they lend, and what becomes of them.
 */
#include "block/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stag/stagdv.h"
#include "wire/wire.h"

/* A PDU in a receive, taken apart. */
struct arrival {
	struct pdu pdu;
	const uint8_t *bhs, *ahs, *data;
	bool decoded;
	struct iser lent;
};

/* ---- receives ------------------------------------------------------------------------- */

/* Posts those in the list, and empties it. */
static int post_receives(struct rdma *r, struct list *list)
{
	struct ibv_recv_wr wr[RDMA_BATCH], *bad;
	struct ibv_sge sge[RDMA_BATCH];
	int rc = 0;

	while (rc == 0 && !list_empty(list)) {
		int n = 0;

		for (; n < RDMA_BATCH && !list_empty(list); n++) {
			struct receive *v = list_entry(list->next, struct receive, verb.link);

			list_del(&v->verb.link);
			sge[n] = (struct ibv_sge){(uintptr_t)v->bytes, v->size, v->lkey};
			wr[n] = (struct ibv_recv_wr){.wr_id = (uintptr_t)&v->verb,
						     .next = &wr[n + 1],
						     .sg_list = &sge[n],
						     .num_sge = 1};
		}
		wr[n - 1].next = NULL;
		conn_count_all(&r->conn, posts, n);
		rc = -ibv_post_recv(r->id->qp, wr, &bad);
	}
	return rc;
}

int rdma_post_login(struct rdma *r)
{
	list_add_tail(&r->taken, &r->login.verb.link);
	return post_receives(r, &r->taken);
}

int rdma_post_window(struct rdma *r)
{
	const struct keys *keys = &r->conn.login->keys.agreed;
	uint32_t data = keys->target_recv < LOGIN_BYTES ? keys->target_recv : LOGIN_BYTES;
	uint32_t size = (HEADERS + AHS_ROOM + data + 7) & ~7u;

	r->window = calloc(NUM_RECEIVES, size);
	if (!r->window)
		return -ENOMEM;
	r->window_mr = ibv_reg_mr(units_pd(r->conn.target->units), r->window,
				  (size_t)NUM_RECEIVES * size, IBV_ACCESS_LOCAL_WRITE);
	if (!r->window_mr)
		return -errno;
	conn_count(&r->conn, registrations);
	for (unsigned int i = 0; i < NUM_RECEIVES; i++) {
		r->receives[i] = (struct receive){.verb = {.kind = VERB_RECEIVE},
						  .bytes = r->window + (size_t)i * size,
						  .size = size,
						  .lkey = r->window_mr->lkey};
		list_add_tail(&r->taken, &r->receives[i].verb.link);
	}
	return post_receives(r, &r->taken);
}

void rdma_repost(struct rdma *r)
{
	if (r->conn.state == CONN_FULL && post_receives(r, &r->taken) != 0)
		conn_end(&r->conn);
}

/* ---- commands ---------------------------------------------------------------------------- */

/* What is wrong with what it lends; NULL: nothing. */
static const char *lending_fault(const struct arrival *a)
{
	const struct pdu *p = &a->pdu;

	if ((p->flags & CMD_READ) && p->expected && !a->lent.read)
		return "a read that lends no memory";
	if ((p->flags & CMD_WRITE) && p->expected && !a->lent.write)
		return "a write that lends no memory";
	return NULL;
}

/* There is no immediate data: byte 0 is where the base is. */
static void take_lent(struct rdma *r, struct task *k, const struct arrival *a)
{
	bool reads = a->pdu.flags & CMD_READ;

	if (!(reads ? a->lent.read : a->lent.write))
		return;
	k->stag = reads ? a->lent.read_stag : a->lent.write_stag;
	k->base = reads ? a->lent.read_base : a->lent.write_base;
	stags_lent(k);
}

static void take_command(struct rdma *r, const struct arrival *a)
{
	struct task *k = session_admit(r->conn.session, &a->pdu, a->bhs, a->ahs, lending_fault(a));

	if (!k)
		return;
	take_lent(r, k, a);
	session_command(k);
}

/* ---- PDUs ----------------------------------------------------------------------------------- */

static void deliver(struct rdma *r, const struct arrival *a)
{
	struct conn *c = &r->conn;
	bool full = c->state == CONN_FULL;

	c->heard = c->target->now;
	if (full && (!a->decoded || !pdu_from_initiator(a->pdu.opcode)))
		conn_refuse(c, REJECT_NOT_SUPPORTED, a->bhs);
	else if (full && a->pdu.opcode == DATA_OUT)
		conn_violation(c, "data that was not asked for");
	else if (full && a->pdu.opcode == SCSI_COMMAND)
		take_command(r, a);
	else
		conn_received(c, &a->pdu, a->bhs, a->data);
}

/* The first message tells which of the two the peer speaks: by then the adapters have agreed. */
static void find_language(struct rdma *r)
{
	struct stagdv_qp_attr attr;

	if (r->spoken)
		return;
	r->spoken = true;
	rdma_query(r, &attr);
	r->crc = attr.crc;
	if (!r->peer.one_shot || !r->conn.target->rdma.one_shot ||
	    attr.one_shot == STAGDV_ONE_SHOT_NONE)
		return;
	r->one_shot = true;
	r->conn.encoding = attr.one_shot;
	r->conn.ops = &rdma_one_shot;
}

/* What the adapter's header lent. It is for whichever way the data goes. */
static void lend_one_shot(const struct ibv_wc *wc, struct iser *lent)
{
	*lent = (struct iser){0};
	lent->read = lent->write = wc->wc_flags & STAGDV_WC_ADVERTISED;
	lent->read_stag = lent->write_stag = wc->invalidated_rkey;
}

/* NULL, or what is wrong. */
static const char *take_apart(const struct rdma *r, const struct receive *v,
			      const struct ibv_wc *wc, struct arrival *a)
{
	uint32_t head = r->one_shot ? 0 : ISER_LEN, len = wc->byte_len, ahs, data;

	if (len > v->size || len < head + BHS_LEN)
		return "a send that is too short for a PDU";
	if (r->one_shot)
		lend_one_shot(wc, &a->lent);
	else if (iser_decode(v->bytes, len, &a->lent) != 0)
		return "a send without iSER's header";
	a->bhs = v->bytes + head;
	pdu_lengths(a->bhs, &ahs, &data);
	len -= head + BHS_LEN;
	if (ahs > len || data > len - ahs || len - ahs - data > 3)
		return "a PDU of another length than its send";
	a->ahs = a->bhs + BHS_LEN;
	a->data = a->ahs + ahs;
	a->decoded = pdu_decode(a->bhs, &a->pdu) == 0;
	return NULL;
}

void rdma_received(struct rdma *r, struct receive *v, const struct ibv_wc *wc)
{
	struct conn *c = &r->conn;
	struct arrival a;
	const char *fault;

	find_language(r);
	fault = take_apart(r, v, wc, &a);
	if (fault && c->state != CONN_CLOSING)
		conn_violation(c, "%s", fault);
	else if (!fault && (c->state == CONN_LOGIN || c->state == CONN_FULL))
		deliver(r, &a);
	if (v != &r->login)
		list_add_tail(&r->taken, &v->verb.link);
}
