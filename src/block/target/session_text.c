// SPDX-License-Identifier: BSD-2-Clause
/*
 * session_text.c - text requests in full feature phase: SendTargets, and the few keys that may change.
 */
#include "block/target/target.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* RFC 7143, appendix C */
static void send_targets(struct target_session *s, const char *which, struct text_out *out)
{
	const char *name = s->target->config.rules.target;
	bool all = strcmp(which, "All") == 0;

	if (all && !s->discovery) {
		iscsi_text_add(out, "SendTargets", "Reject");
		return;
	}
	if (!all && strcasecmp(which, name) != 0 && (*which || s->discovery))
		return;
	iscsi_text_add(out, "TargetName", name);
	iscsi_text_addf(out, "TargetAddress", "%s,1", s->conn->local);
}

static void handle_pair(struct target_session *s, struct negotiation *n, const char *key,
			const char *value, struct text_out *out)
{
	if (strcmp(key, "SendTargets") == 0) {
		send_targets(s, value, out);
		return;
	}
	switch (iscsi_keys_receive(n, key, value, out)) {
	case KEY_ANSWERED:
		return;
	case KEY_UNKNOWN:
		iscsi_text_add(out, key, "NotUnderstood");
		return;
	case KEY_REPEATED:
	case KEY_WRONG_TIME:
		iscsi_text_add(out, key, "Reject");
	}
}

/* Handles a complete list. Returns false if it is malformed, or the answer is too long. */
static bool handle_list(struct target_session *s, struct text_out *out)
{
	struct negotiation n;
	const char *key, *value;
	uint32_t at = 0;
	int rc;

	iscsi_keys_begin(&n, s->conn->ops->rdma ? &s->target->config.rdma_rules.wishes
						: &s->target->config.rules.wishes);
	n.full = true;
	n.agreed = s->keys;
	while ((rc = iscsi_text_next(s->text, &at, &key, &value)) > 0)
		handle_pair(s, &n, key, value, out);
	s->keys.peer_recv_max = n.agreed.peer_recv_max;
	return rc == 0 && !out->full;
}

static void drop_list(struct target_session *s)
{
	free(s->text);
	s->text = NULL;
}

static void respond(struct target_session *s, const struct pdu *p)
{
	struct pdu r = {.opcode = TEXT_RESPONSE, .itt = p->itt, .ttt = TAG_NONE, .lun = p->lun};
	struct text_out *out = calloc(1, sizeof(*out));
	struct target_conn *c = s->conn;

	if (!out) {
		target_conn_end(c);
		return;
	}
	if (p->flags & PDU_FINAL)
		r.flags = PDU_FINAL;
	else
		r.ttt = target_session_ttt(s);
	if (!(p->flags & PDU_CONTINUE) &&
	    (!handle_list(s, out) || out->len > s->keys.peer_recv_max))
		target_conn_violation(c, "malformed text request");
	else
		target_conn_send(c, &r, out->bytes, out->len);
	free(out);
}

void target_session_text(struct target_session *s, const struct pdu *p, const void *data)
{
	struct target_conn *c = s->conn;

	if (p->ttt == TAG_NONE) /* a new negotiation begins */
		drop_list(s);
	if (!s->text)
		s->text = calloc(1, sizeof(*s->text));
	if (!s->text) {
		target_conn_end(c);
		return;
	}
	if (iscsi_text_collect(s->text, data, p->data_len) != 0 ||
	    (p->flags & (PDU_FINAL | PDU_CONTINUE)) == (PDU_FINAL | PDU_CONTINUE)) {
		target_conn_violation(c, "text request longer than %u bytes", s->text->len);
		return;
	}
	respond(s, p);
	if (c->session == s && !(p->flags & PDU_CONTINUE))
		drop_list(s);
}
