// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs_tx.c - PDUs to the target, in sends: commands, with the memory that they lend, and other PDUs.
 */
#include "block/initiator/verbs.h"

#include <errno.h>
#include <string.h>

#define SIGNAL_EVERY VERBS_SPARE_SENDS
/* Offsets of the STags in an iSER header. */
enum { WRITE_STAG_AT = 4, READ_STAG_AT = 16 };

static uint32_t head_of(const struct initiator_verbs_line *v)
{
	return v->one_shot ? 0 : ISER_LEN;
}

/* Writes the iSER header, if any, and the BHS. Returns their length. */
static uint32_t write_head(const struct initiator_verbs_line *v, uint8_t *body,
			   const struct iser *lent, struct pdu *p)
{
	const struct stag_block *b = v->line.b;

	if (b->state >= INIT_PROBE)
		p->exp_stat_sn = b->session.exp_stat_sn;
	if (!v->one_shot)
		iscsi_iser_encode(lent, body);
	iscsi_pdu_encode(p, body + head_of(v));
	return head_of(v) + BHS_LEN;
}

static uint32_t pad(uint8_t *body, uint32_t len, uint32_t data)
{
	memset(body + len + data, 0, iscsi_pdu_pad(data));
	return len + data + iscsi_pdu_pad(data);
}

static int post_result(const struct initiator_verbs_line *v, int error)
{
	return error == 0 ? 0
			  : block_fail(error, "%s: cannot post a send: %s",
				       v->line.b->config.url.host, strerror(error));
}

/* ---- commands -------------------------------------------------------------------------------- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Immediate data is all of the command's data, or none. */
static bool is_immediate(const struct initiator_verbs_line *v, const struct initiator_cmd *c)
{
	const struct keys *k = &v->line.b->session.keys;

	return c->writes && k->immediate_data &&
	       c->length <= least(least(k->first_burst, k->target_recv), VERBS_DATA);
}

/* The software adapter frees entries of the send queue by itself; others need a signaled completion now and then. */
static unsigned int signal_sometimes(struct initiator_verbs_line *v)
{
	if (v->dv || ++v->unsignaled < SIGNAL_EVERY)
		return 0;
	v->unsignaled = 0;
	return IBV_SEND_SIGNALED;
}

/*
 * Posts the held command with the memory that it lends (figure 4 of "One-shot RDMA", path 500). more: another post
 * follows at once.
 */
static int post_held(struct initiator_verbs_line *v, bool more)
{
	struct initiator_cmd *c = v->held;
	struct ibv_sge body = {0};
	struct stagdv_advertise wr = {.sg_list = &body, .num_sge = 1};
	uint32_t stag;
	int error;

	if (!c)
		return 0;
	v->held = NULL;
	body = (struct ibv_sge){(uintptr_t)initiator_verbs_body(v, VERBS_COMMAND, c->index),
				v->held_len, v->mr->lkey};
	wr.wr_id = initiator_verbs_id(VERBS_COMMAND, c->index);
	wr.send_flags = more ? STAGDV_SEND_MORE : 0;
	wr.memory = v->held_memory.sge;
	wr.num_memory = v->held_memory.n;
	wr.access = c->reads ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	wr.iova = v->one_shot ? 0 : v->held_memory.base;
	wr.reference = c->itt;
	wr.stag_at = v->one_shot ? -1 : c->reads ? READ_STAG_AT : WRITE_STAG_AT;
	error = v->dv->advertise(v->id->qp, &wr, &stag);
	if (error)
		return post_result(v, error);
	c->sent = true;
	initiator_lend_opened(v, &v->loans[c->index], stag, c->itt);
	return 0;
}

int initiator_verbs_flush(struct initiator_line *l)
{
	return post_held(to_verbs_line(l), false);
}

/* Posts an ordinary send, after the held command. */
static int post_plain(struct initiator_verbs_line *v, struct initiator_cmd *c, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)initiator_verbs_body(v, VERBS_COMMAND, c->index), len,
			      v->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = initiator_verbs_id(VERBS_COMMAND, c->index),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = signal_sometimes(v)};
	struct ibv_send_wr *bad;
	int rc = post_held(v, true);

	if (rc == 0)
		rc = post_result(v, ibv_post_send(v->id->qp, &wr, &bad));
	c->sent |= rc == 0;
	return rc;
}

static int hold_command(struct initiator_verbs_line *v, struct initiator_cmd *c,
			const struct initiator_lending *lent, uint32_t len)
{
	int rc = post_held(v, true);

	v->held = c;
	v->held_memory = *lent;
	v->held_len = len;
	return rc;
}

static int send_lending(struct initiator_verbs_line *v, struct initiator_cmd *c, struct pdu *p)
{
	uint8_t *body = initiator_verbs_body(v, VERBS_COMMAND, c->index);
	struct initiator_lending lent = {0};
	struct iser header = {0};
	uint32_t len;
	int error = c->length ? initiator_lend_command(v, c, &lent) : 0;

	if (error)
		return error;
	if (c->length)
		header = (struct iser){c->writes, c->reads,  lent.rkey,
				       lent.rkey, lent.base, lent.base};
	len = write_head(v, body, &header, p);
	if (lent.n && v->dv)
		return hold_command(v, c, &lent, len);
	if (lent.n)
		initiator_lend_opened(v, &v->loans[c->index], lent.rkey, c->itt);
	return post_plain(v, c, len);
}

static int send_immediate(struct initiator_verbs_line *v, struct initiator_cmd *c, struct pdu *p)
{
	static const struct iser nothing;
	uint8_t *body = initiator_verbs_body(v, VERBS_COMMAND, c->index);
	uint32_t head;

	p->data_len = c->length;
	head = write_head(v, body, &nothing, p);
	initiator_cmd_gather(c, 0, c->length, body + head);
	return post_plain(v, c, pad(body, head, c->length));
}

int initiator_verbs_command(struct initiator_line *l, struct initiator_cmd *c, struct pdu *p)
{
	struct initiator_verbs_line *v = to_verbs_line(l);
	int rc = is_immediate(v, c) && c->length ? send_immediate(v, c, p) : send_lending(v, c, p);

	l->b->info.counters.posts += rc == 0;
	return rc;
}

/* ---- other PDUs --------------------------------------------------------------------------- */

int initiator_verbs_send(struct initiator_line *l, struct pdu *p, const void *data, uint32_t len)
{
	static const struct iser nothing;
	struct initiator_verbs_line *v = to_verbs_line(l);
	struct ibv_send_wr wr = {
		.num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_sge sge;
	uint8_t *body;
	uint32_t n, head;
	int rc;

	if (len > VERBS_DATA || v->n_free_controls == 0)
		return block_fail(ENOBUFS, "%s: the target does not receive what it is sent",
				  l->b->config.url.host);
	n = v->free_controls[--v->n_free_controls];
	body = initiator_verbs_body(v, VERBS_CONTROL, n);
	p->data_len = len;
	head = write_head(v, body, &nothing, p);
	if (len)
		memcpy(body + head, data, len);
	sge = (struct ibv_sge){(uintptr_t)body, pad(body, head, len), v->mr->lkey};
	wr.wr_id = initiator_verbs_id(VERBS_CONTROL, n);
	wr.sg_list = &sge;
	l->b->info.counters.posts++;
	rc = post_held(v, true);
	return rc == 0 ? post_result(v, ibv_post_send(v->id->qp, &wr, &bad)) : rc;
}
