// SPDX-License-Identifier: BSD-2-Clause
/*
 * abort.c - aborts commands that time out, so that their memory is the caller's again.
 *
 *   NONE -> TASK (ABORT TASK) -> UNIT (LOGICAL UNIT RESET) -> the line is closed
 *     ^       |                    |
 *     +-------+--------------------+      the target has aborted the command
 *
 * One command is aborted at a time, the oldest. It fails with ETIMEDOUT; other commands that a reset aborts are sent again, as
 * after a lost line.
 */
#include "block/initiator/initiator.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"

#define FIRST_TAG 0x81000000u
#define TAGS	  0x00ffffffu

static const char *const request_names[] = {"nothing", "ABORT TASK", "LOGICAL UNIT RESET"};

static int send_request(struct stag_block *b, enum abort_step step, const struct initiator_cmd *c)
{
	struct pdu p = {.opcode = TASK_REQUEST,
			.flags = PDU_FINAL | (step == ABORT_TASK ? TMF_ABORT_TASK : TMF_LUN_RESET),
			.lun = initiator_io_lun(b),
			.itt = FIRST_TAG | (b->abort.count++ & TAGS),
			.ref_tag = step == ABORT_TASK ? c->itt : TAG_NONE,
			.ref_cmd_sn = step == ABORT_TASK ? c->cmd_sn : 0};

	log_warn("block %s: command 0x%08x timed out after %llu ms: sending %s",
		 b->config.url.target, c->itt,
		 (unsigned long long)(b->config.command_ns / NS_PER_MS), request_names[step]);
	b->abort.step = step;
	b->abort.tag = p.itt;
	b->abort.itt = c->itt;
	b->abort.end = b->now + b->config.abort_ns;
	return initiator_send(b, &p, NULL, 0);
}

static int give_up(struct stag_block *b)
{
	struct initiator_cmd *c = initiator_find(b, b->abort.itt);

	b->abort.step = ABORT_NONE;
	if (c && c->request)
		initiator_io_aborted(b, c, ETIMEDOUT);
	return block_fail(ETIMEDOUT, "%s: a command timed out, and the target does not abort it",
			  b->config.url.target);
}

static int escalate(struct stag_block *b)
{
	struct initiator_cmd *c = initiator_find(b, b->abort.itt);

	if (!c) { /* its response has arrived meanwhile */
		b->abort.step = ABORT_NONE;
		return 0;
	}
	return b->abort.step == ABORT_TASK ? send_request(b, ABORT_UNIT, c) : give_up(b);
}

static struct initiator_cmd *oldest(const struct stag_block *b)
{
	return list_empty(&b->io.in_flight)
		       ? NULL
		       : list_entry(b->io.in_flight.next, struct initiator_cmd, link);
}

int initiator_abort_tick(struct stag_block *b)
{
	const struct initiator_cmd *c = oldest(b);

	if (b->abort.step != ABORT_NONE)
		return b->now >= b->abort.end ? escalate(b) : 0;
	if (!b->config.command_ns || !c || b->now - c->sent_at < b->config.command_ns)
		return 0;
	return send_request(b, ABORT_TASK, c);
}

uint64_t initiator_abort_alarm(const struct stag_block *b)
{
	const struct initiator_cmd *c = oldest(b);

	if (b->abort.step != ABORT_NONE)
		return b->abort.end;
	return b->config.command_ns && c ? c->sent_at + b->config.command_ns : 0;
}

/* Ends the aborted command: a response of its own would have arrived before this one. */
static int finish_abort(struct stag_block *b, enum abort_step step)
{
	struct initiator_cmd *c = initiator_find(b, b->abort.itt);
	bool probes = c && !c->request;

	b->abort.step = ABORT_NONE;
	if (c && !probes)
		initiator_io_aborted(b, c, ETIMEDOUT);
	if (step == ABORT_TASK)
		return probes ? -ETIMEDOUT : 0;
	initiator_io_requeue(b);
	return initiator_probe_resume(b);
}

int initiator_abort_response(struct stag_block *b, const struct pdu *p)
{
	if (b->abort.step == ABORT_NONE || p->itt != b->abort.tag)
		return 0; /* a late response to an earlier request */
	if (p->code == TASK_FUNCTION_COMPLETE ||
	    (p->code == TASK_NO_TASK && b->abort.step == ABORT_TASK))
		return finish_abort(b, b->abort.step);
	return escalate(b);
}
