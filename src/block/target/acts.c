// SPDX-License-Identifier: BSD-2-Clause
/*
 * acts.c - the audit log of commands and requests: what the rights of an initiator did not allow, and what it did to others, which is
 * to preempt or clear their reservations, and to reset units.
 *
 * Commands that only move data are not reported.
 */
#include "block/target/target.h"

#include <stdio.h>

#define ACTION	    64
#define NUMBER(lun) ((unsigned int)((lun) >> 48 & SCSI_VIEW_LUN_MAX))

#define OPCODE_PERSIST_OUT 0x5f

enum {
	PERSIST_CLEAR = 3,
	PERSIST_PREEMPT = 4
}; /* service actions (SPC-5, PERSISTENT RESERVE OUT) */

static void report(struct target_session *s, const char *what, uint64_t lun,
		   enum stag_audit_outcome outcome, const char *why)
{
	char action[ACTION];

	snprintf(action, sizeof(action), "%s, LUN %u", what, NUMBER(lun));
	target_audit(s->conn, action, outcome, why);
}

static const char *reservation_word(const struct scsi_cmd *c)
{
	uint8_t action = c->cdb[1] & 0x1f;

	if (c->cdb[0] != OPCODE_PERSIST_OUT)
		return NULL;
	return action == PERSIST_CLEAR	   ? "clear reservations"
	       : action == PERSIST_PREEMPT ? "preempt reservation"
					   : NULL;
}

void target_audit_command(const struct target_task *t)
{
	const struct scsi_cmd *c = &t->cmd;
	const char *word;
	char text[32];

	if (!audit_is_on() || !t->session->conn)
		return;
	word = reservation_word(c);
	if (c->denied) {
		snprintf(text, sizeof(text), "command 0x%02x", c->cdb[0]);
		report(t->session, text, c->lun, STAG_AUDIT_REFUSED, c->denied);
	} else if (word && c->status == SCSI_GOOD) {
		report(t->session, word, c->lun, STAG_AUDIT_ALLOWED, NULL);
	} else if (word && c->status == SCSI_RESERVATION_CONFLICT) {
		report(t->session, word, c->lun, STAG_AUDIT_FAILED, "reservation conflict");
	}
}

static const char *reset_word(uint8_t function)
{
	switch (function) {
	case TMF_CLEAR_TASK_SET:
		return "clear task set";
	case TMF_LUN_RESET:
		return "reset unit";
	case TMF_TARGET_WARM_RESET:
		return "reset target (warm)";
	case TMF_TARGET_COLD_RESET:
		return "reset target (cold)";
	default:
		return NULL;
	}
}

void target_audit_reset(struct target_session *s, const struct pdu *p, uint8_t function,
			enum task_outcome outcome)
{
	const char *word = reset_word(function);
	bool hidden;

	if (!word || !audit_is_on())
		return;
	hidden = outcome == TASK_NO_LUN && scsi_hides(s->nexus, p->lun);
	if (outcome == TASK_FUNCTION_COMPLETE)
		report(s, word, p->lun, STAG_AUDIT_ALLOWED, NULL);
	else if (outcome == TASK_NOT_AUTHORIZED || hidden)
		report(s, word, p->lun, STAG_AUDIT_REFUSED,
		       hidden ? "no right to this unit" : "no right to reset");
}
