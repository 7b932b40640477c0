// SPDX-License-Identifier: BSD-2-Clause
/*
 * session.c - PDUs from the target: sequence numbers, data, responses, pings and asynchronous messages.
 *
 * The target is not trusted: a PDU that does not match a command in flight ends the line.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"

#define INDEX_MASK 0xffffu

int initiator_violation(struct stag_block *b, const char *fmt, ...)
{
	char words[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	b->info.counters.violations++;
	log_warn("block %s: the target broke the protocol: %s", b->config.url.target, words);
	return block_fail(EPROTO, "%s: the target broke the protocol: %s", b->config.url.host,
			  words);
}

struct initiator_cmd *initiator_find(struct stag_block *b, uint32_t itt)
{
	uint32_t index = itt & INDEX_MASK;
	struct initiator_cmd *c = index <= b->config.depth ? &b->io.cmds[index] : NULL;

	/* Only commands in flight have their tag set. */
	return c && c->itt == itt && itt != TAG_NONE ? c : NULL;
}

int initiator_send(struct stag_block *b, struct pdu *p, const void *data, uint32_t len)
{
	p->immediate = true;
	p->cmd_sn = b->session.cmd_sn;
	return b->line->ops->send(b->line, p, data, len);
}

/* ---- numbers --------------------------------------------------------------------------- */

static bool has_status(const struct pdu *p)
{
	switch (p->opcode) {
	case DATA_IN:
		return p->flags & DATA_STATUS;
	case NOP_IN:
		return p->itt != TAG_NONE;
	case R2T:
		return false;
	}
	return true;
}

static void update_numbers(struct stag_block *b, const struct pdu *p)
{
	if (has_status(p) && sn_le(b->session.exp_stat_sn, p->stat_sn))
		b->session.exp_stat_sn = p->stat_sn + 1;
	/* RFC 7143 §4.2.2.1: invalid or older numbers are ignored. */
	if (sn_le(p->exp_cmd_sn - 1, p->max_cmd_sn) && sn_le(b->session.max_cmd_sn, p->max_cmd_sn))
		b->session.max_cmd_sn = p->max_cmd_sn;
	b->session.heard = b->now;
	b->session.pinged = 0;
}

/* ---- data-in ------------------------------------------------------------------------------ */

struct initiator_cmd *initiator_data_in(struct stag_block *b, const struct pdu *p)
{
	struct initiator_cmd *c = initiator_find(b, p->itt);

	if (c && c->reads && p->data_sn == c->data_sn && p->offset == c->got &&
	    p->data_len <= c->length - c->got)
		return c;
	initiator_violation(b, "Data-In of %u bytes at %u for task 0x%x, which expects %u at %u",
			    p->data_len, p->offset, p->itt, c ? c->length - c->got : 0,
			    c ? c->got : 0);
	return NULL;
}

int initiator_data_came(struct stag_block *b, struct initiator_cmd *c, const struct pdu *p)
{
	update_numbers(b, p);
	c->got += p->data_len;
	c->data_sn++;
	return p->flags & DATA_STATUS ? initiator_io_response(b, c, 0, p->status, NULL, 0) : 0;
}

/* ---- the rest ------------------------------------------------------------------------------- */

static int receive_response(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	struct initiator_cmd *c = initiator_find(b, p->itt);
	uint32_t len = 0;

	if (!c)
		return initiator_violation(b, "response for unknown task 0x%x", p->itt);
	if (p->data_len >= 2) {
		len = get_be16(data);
		len = len > p->data_len - 2 ? p->data_len - 2 : len;
		data += 2;
	}
	return initiator_io_response(b, c, p->code, p->status, data, len);
}

static int receive_r2t(struct stag_block *b, const struct pdu *p)
{
	struct initiator_cmd *c = initiator_find(b, p->itt);

	if (!c || !b->line->ops->r2t)
		return initiator_violation(b, "R2T for unknown task 0x%x", p->itt);
	return b->line->ops->r2t(b->line, c, p);
}

static int receive_nop(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	struct pdu answer = {.opcode = NOP_OUT,
			     .flags = PDU_FINAL,
			     .lun = p->lun,
			     .itt = TAG_NONE,
			     .ttt = p->ttt};

	if (p->ttt == TAG_NONE)
		return 0;
	return initiator_send(b, &answer, data,
			      p->data_len < b->session.keys.peer_recv_max
				      ? p->data_len
				      : b->session.keys.peer_recv_max);
}

static int receive_async(struct stag_block *b, const struct pdu *p)
{
	switch (p->event) {
	case ASYNC_LOGOUT:
	case ASYNC_DROP_CONNECTION:
	case ASYNC_DROP_SESSION:
		log_info("block %s: the target requests a new session", b->config.url.target);
		return -ESHUTDOWN;
	}
	return 0;
}

/* Collects a list, from one response or several. */
static int receive_text(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	struct pdu next = {
		.opcode = TEXT_REQUEST, .flags = PDU_FINAL, .itt = p->itt, .ttt = p->ttt};

	if (!b->text.list || b->text.done || p->itt != b->text.tag)
		return initiator_violation(b, "unsolicited text response");
	if (iscsi_text_collect(b->text.list, data, p->data_len) != 0)
		return initiator_violation(b, "text response longer than %d bytes", TEXT_MAX);
	b->text.done = p->flags & PDU_FINAL;
	return b->text.done ? 0 : initiator_send(b, &next, NULL, 0);
}

static int receive_reject(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	/* A wrong data digest is reported by the response of the command, too. */
	if (p->code == REJECT_DATA_DIGEST)
		return 0;
	return initiator_violation(b, "it rejected a %s: reason %u",
				   p->data_len >= BHS_LEN ? iscsi_pdu_name(data[0] & 0x3f) : "PDU",
				   p->code);
}

/* ---- a login's ------------------------------------------------------------------------------- */

static int send_login(struct stag_block *b)
{
	struct pdu p;

	initiator_login_request(b->session.login, &p);
	return b->line->ops->send(b->line, &p, b->session.login->out.bytes,
				  b->session.login->out.len);
}

static void begin_session(struct stag_block *b, const struct pdu *p)
{
	const struct initiator_login *e = b->session.login;

	b->session.keys = e->keys.agreed;
	b->session.tsih = p->tsih;
	b->session.cmd_sn = e->cmd_sn;
	b->session.exp_stat_sn = p->stat_sn + 1;
	b->session.max_cmd_sn = p->max_cmd_sn;
	b->session.heard = b->now;
	b->session.pinged = 0;
	b->info.counters.logins++;
	b->info.transport = b->line->ops->kind;
	b->info.encoding = b->line->encoding;
}

static int receive_login(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	int rc = initiator_login_receive(b->session.login, p, data);

	switch (rc) {
	case ENTRY_GOES_ON:
		return send_login(b);
	case ENTRY_DONE:
		if (b->line->ops->rdma && !b->config.discovery &&
		    !b->session.login->keys.agreed.rdma_extensions)
			return block_fail(EPROTONOSUPPORT,
					  "the target does not support iSER (RDMAExtensions=No)");
		begin_session(b, p);
		initiator_set_state(b, b->config.discovery ? INIT_LIVE : INIT_PROBE);
		return b->config.discovery ? 0 : initiator_probe_begin(b, true);
	case ENTRY_REDIRECTED:
		return -EREMCHG;
	}
	return rc;
}

int initiator_received(struct stag_block *b, const struct pdu *p, const uint8_t *data)
{
	if (b->state == INIT_LOGIN)
		return receive_login(b, p, data);
	update_numbers(b, p);
	switch (p->opcode) {
	case SCSI_RESPONSE:
		return receive_response(b, p, data);
	case R2T:
		return receive_r2t(b, p);
	case NOP_IN:
		return receive_nop(b, p, data);
	case ASYNC_MESSAGE:
		return receive_async(b, p);
	case TEXT_RESPONSE:
		return receive_text(b, p, data);
	case LOGOUT_RESPONSE:
		b->session.logged_out = true;
		return 0;
	case TASK_RESPONSE:
		return initiator_abort_response(b, p);
	case REJECT:
		return receive_reject(b, p, data);
	}
	return initiator_violation(b, "unexpected %s", iscsi_pdu_name(p->opcode));
}

int initiator_connected(struct stag_block *b)
{
	initiator_set_state(b, INIT_LOGIN);
	b->attempt.was_connected = true;
	return send_login(b);
}
