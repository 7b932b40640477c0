// SPDX-License-Identifier: BSD-2-Clause
/*
 * tmf.c - task management (RFC 7143 §11.5): aborts tasks, and responds when no unit works for them any more.
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdlib.h>

/* ---- which tasks ---------------------------------------------------------------------- */

static bool concerns(const struct target_tmf *f, const struct target_task *t)
{
	if (t->born > f->born)
		return false;
	switch ((enum scsi_tmf)f->function) {
	case TMF_ABORT_TASK:
		return t->session == f->session && t->itt == f->ref_tag;
	case TMF_ABORT_TASK_SET:
		return t->session == f->session && t->cmd.lun == f->lun;
	case TMF_CLEAR_TASK_SET:
	case TMF_LUN_RESET:
		return t->cmd.lun == f->lun;
	case TMF_TARGET_WARM_RESET:
	case TMF_TARGET_COLD_RESET:
		return true;
	case TMF_CLEAR_ACA:
		break;
	}
	return false;
}

typedef bool (*task_fn)(const struct target_tmf *f, struct target_task *t);

/* Calls fn for each task that the request concerns, until fn returns true. */
static bool each_task(const struct target_tmf *f, struct target_session *s, task_fn fn)
{
	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		list_for_each_safe (it, &s->buckets[i]) {
			struct target_task *t = list_entry(it, struct target_task, link);

			if (concerns(f, t) && fn(f, t))
				return true;
		}
	return false;
}

static bool each_session(struct stag_block_target *target, const struct target_tmf *f, task_fn fn)
{
	list_for_each_safe (it, &target->sessions.list)
		if (each_task(f, list_entry(it, struct target_session, link), fn))
			return true;
	return false;
}

static bool abort_one(const struct target_tmf *f, struct target_task *t)
{
	target_task_abort(t);
	return false;
}

static bool is_at_unit(const struct target_tmf *f, struct target_task *t)
{
	return target_task_is_aborted(t) && t->at_unit;
}

/* ---- answers ---------------------------------------------------------------------------- */

static void respond(struct target_session *s, uint32_t itt, enum task_outcome outcome)
{
	struct pdu p = {
		.opcode = TASK_RESPONSE, .flags = PDU_FINAL, .code = (uint8_t)outcome, .itt = itt};

	target_conn_send(s->conn, &p, NULL, 0);
}

/* RFC 7143 §11.5.1: a cold reset ends all connections. */
static void drop_all(struct stag_block_target *t, const struct target_session *asked)
{
	list_for_each_safe (it, &t->sessions.list) {
		struct target_session *s = list_entry(it, struct target_session, link);

		if (s->conn && s != asked)
			target_conn_end(s->conn);
	}
	target_conn_finish(asked->conn);
}

static void finish_tmf(struct stag_block_target *t, struct target_tmf *f)
{
	struct target_session *s = f->session;
	bool cold = f->function == TMF_TARGET_COLD_RESET;

	s->n_immediate -= f->immediate;
	target_session_retire(s, f->immediate);
	respond(s, f->itt, TASK_FUNCTION_COMPLETE);
	list_del(&f->link);
	free(f);
	if (cold)
		drop_all(t, s);
}

void target_tmf_finish_ready(struct stag_block_target *t)
{
	struct list *it;

	t->tasks.tmf_due = false;
again:
	for (it = t->tasks.tmfs.next; it != &t->tasks.tmfs; it = it->next) {
		struct target_tmf *f = list_entry(it, struct target_tmf, link);

		if (each_session(t, f, is_at_unit))
			continue;
		finish_tmf(t, f);
		goto again; /* a cold reset removes others from the list */
	}
}

void target_tmf_session_gone(struct target_session *s)
{
	list_for_each_safe (it, &s->target->tasks.tmfs) {
		struct target_tmf *f = list_entry(it, struct target_tmf, link);

		if (f->session != s)
			continue;
		list_del(&f->link);
		free(f);
	}
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Checks a request. Returns TASK_FUNCTION_COMPLETE if its tasks have to be aborted, else the response. */
static enum task_outcome check_request(struct target_session *s, const struct pdu *p,
				       uint8_t function)
{
	if (function == TMF_ABORT_TASK)
		return target_session_find(s, p->ref_tag) ? TASK_FUNCTION_COMPLETE : TASK_NO_TASK;
	if (function > TMF_TARGET_COLD_RESET)
		return function == 8 ? TASK_NO_REASSIGNMENT : TASK_NOT_SUPPORTED;
	switch (scsi_tmf(s->target->scsi, s->nexus, (enum scsi_tmf)function, p->lun)) {
	case 0:
		return TASK_FUNCTION_COMPLETE;
	case -ENOENT:
		return TASK_NO_LUN;
	case -EACCES:
		return TASK_NOT_AUTHORIZED;
	case -EOPNOTSUPP:
		return TASK_NOT_SUPPORTED;
	default:
		return TASK_REJECTED;
	}
}

void target_tmf_receive(struct target_session *s, const struct pdu *p)
{
	uint8_t function = p->flags & 0x7f;
	enum task_outcome outcome = check_request(s, p, function);
	struct target_tmf *f;

	target_audit_reset(s, p, function, outcome);
	f = outcome == TASK_FUNCTION_COMPLETE ? malloc(sizeof(*f)) : NULL;
	if (!f) {
		target_session_retire(s, p->immediate);
		respond(s, p->itt, outcome == TASK_FUNCTION_COMPLETE ? TASK_REJECTED : outcome);
		return;
	}
	*f = (struct target_tmf){.session = s,
				 .itt = p->itt,
				 .immediate = p->immediate,
				 .function = function,
				 .lun = p->lun,
				 .ref_tag = p->ref_tag,
				 .born = s->target->tasks.born};
	s->n_immediate += f->immediate;
	list_add_tail(&s->target->tasks.tmfs, &f->link);
	s->target->tasks.tmf_due = true;
	each_session(s->target, f, abort_one);
}
