// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs_rx.c - PDUs from the target, in receives, and checks of the STags that they close.
 */
#include "block/initiator/verbs.h"

#include <errno.h>
#include <string.h>

/* ---- receives --------------------------------------------------------------------------- */

static void queue_receive(struct initiator_verbs_line *v, uint32_t n)
{
	struct ibv_sge *sge = &v->again_sge[v->n_again];
	struct ibv_recv_wr *wr = &v->again[v->n_again++];

	*sge = (struct ibv_sge){(uintptr_t)initiator_verbs_body(v, VERBS_RECEIVE, n), VERBS_BODY,
				v->mr->lkey};
	*wr = (struct ibv_recv_wr){
		.wr_id = initiator_verbs_id(VERBS_RECEIVE, n), .sg_list = sge, .num_sge = 1};
	if (wr > v->again)
		wr[-1].next = wr;
}

int initiator_verbs_repost(struct initiator_verbs_line *v)
{
	struct ibv_recv_wr *bad;
	int error;

	if (v->n_again == 0)
		return 0;
	v->n_again = 0;
	error = ibv_post_recv(v->id->qp, v->again, &bad);
	return error == 0 ? 0 : block_fail(error, "cannot post a receive: %s", strerror(error));
}

int initiator_verbs_post_receives(struct initiator_verbs_line *v)
{
	int rc = 0;

	for (uint32_t i = 0; i < v->n_receives && rc == 0; i++) {
		queue_receive(v, i);
		if (v->n_again == VERBS_BATCH)
			rc = initiator_verbs_repost(v);
	}
	return rc == 0 ? initiator_verbs_repost(v) : rc;
}

/* ---- closing STags -------------------------------------------------------------------------- */

/*
 * Paragraph 36 of "One-shot RDMA": the target must close the STag that the command has lent, and no other. A target that
 * names another one, which may belong to another command or to none, is not trusted any more.
 */
static int check_close(struct initiator_verbs_line *v, const struct initiator_cmd *c,
		       const struct ibv_wc *wc)
{
	const struct initiator_loan *l = &v->loans[c->index];
	bool counted = wc->wc_flags & STAGDV_WC_CLOSED; /* the completion has its reference */

	if (l->open && wc->invalidated_rkey == l->stag && v->dv &&
	    (!counted || wc->vendor_err == l->reference))
		return 0;
	return initiator_violation(v->line.b,
				   "it ended command 0x%08x, which lent STag 0x%08x with reference "
				   "0x%08x, and closes STag 0x%08x with reference 0x%08x",
				   c->itt, l->open ? l->stag : 0, l->open ? l->reference : 0,
				   wc->invalidated_rkey, counted ? wc->vendor_err : 0);
}

/* Sets the amount of data-in from the residual count: over RDMA data has no PDUs of its own. */
static void set_amount(struct initiator_verbs_line *v, struct initiator_cmd *c, const struct pdu *p)
{
	uint32_t missing = p->flags & RES_UNDER ? p->residual : 0;

	if (!c->reads)
		return;
	c->got = c->length - (missing < c->length ? missing : c->length);
	initiator_lend_copy_back(v, c);
}

static int settle_loan(struct initiator_verbs_line *v, const struct pdu *p, const struct ibv_wc *wc)
{
	struct stag_block *b = v->line.b;
	bool closes = wc->wc_flags & IBV_WC_WITH_INV;
	struct initiator_cmd *c = p->opcode == SCSI_RESPONSE ? initiator_find(b, p->itt) : NULL;
	struct initiator_loan *l = c ? &v->loans[c->index] : NULL;
	int rc = 0;

	if (!c)
		return closes ? initiator_violation(
					b, "it closed STag 0x%08x with a %s for task 0x%08x",
					wc->invalidated_rkey, iscsi_pdu_name(p->opcode), p->itt)
			      : 0;
	if (closes)
		rc = check_close(v, c, wc);
	else if (l->open && v->one_shot)
		rc = initiator_violation(b, "it ended command 0x%08x without closing STag 0x%08x",
					 c->itt, l->stag);
	if (rc != 0)
		return rc;
	if (closes)
		initiator_lend_closed(v, l);
	set_amount(v, c, p);
	return 0;
}

/* ---- PDUs ------------------------------------------------------------------------------------ */

/* Finds the PDU in a send of len bytes. Returns NULL after reporting a violation. */
static const uint8_t *find_pdu(struct initiator_verbs_line *v, const uint8_t *body, uint32_t len)
{
	uint32_t head = v->one_shot ? 0 : ISER_LEN, ahs, data;
	struct iser header;

	if (len < head + BHS_LEN || (head && iscsi_iser_decode(body, len, &header) != 0)) {
		initiator_violation(v->line.b, "a send of %u bytes without a PDU", len);
		return NULL;
	}
	iscsi_pdu_lengths(body + head, &ahs, &data);
	len -= head + BHS_LEN;
	if (ahs <= len && data <= len - ahs && len - ahs - data <= 3)
		return body + head;
	initiator_violation(v->line.b, "a PDU with %u bytes of data in a send with room for %u",
			    data, len);
	return NULL;
}

int initiator_verbs_received(struct initiator_verbs_line *v, uint32_t n, const struct ibv_wc *wc)
{
	const uint8_t *pdu = find_pdu(v, initiator_verbs_body(v, VERBS_RECEIVE, n), wc->byte_len);
	struct pdu p;
	int rc;

	if (!pdu)
		return -EPROTO;
	if (iscsi_pdu_decode(pdu, &p) != 0 || iscsi_pdu_from_initiator(p.opcode))
		return initiator_violation(v->line.b, "PDU with invalid opcode 0x%02x", pdu[0]);
	rc = settle_loan(v, &p, wc);
	if (rc == 0)
		rc = initiator_received(v->line.b, &p, pdu + BHS_LEN + p.ahs_len);
	if (rc != 0)
		return rc;
	queue_receive(v, n);
	return v->n_again == VERBS_BATCH ? initiator_verbs_repost(v) : 0;
}
