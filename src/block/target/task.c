// SPDX-License-Identifier: BSD-2-Clause
/*
 * task.c - one SCSI command: its data in pieces between transport and unit, then its status.
 *
 * A piece is as much as a buffer holds; a task has a few under way, and waits for a buffer only when it has none. Units
 * are done with pieces in any order; data-in leaves in order. When the status is known and no data is under way, the
 * response goes out. So it is with errors, too: RFC 7143 §11.4 wants what was asked for, or announced, to come first.
 */
#include "block/target/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/histogram.h"

static const struct target_transport *transport_of(const struct target_task *t)
{
	return t->session->conn->ops;
}

/* ---- pieces ------------------------------------------------------------------------- */

/* NULL: later, or never (result says so). */
static struct target_piece *get_piece(struct target_task *t, uint32_t len)
{
	struct stag_block_target *target = t->session->target;
	struct units_buffer *b = target_buffer(target, t->n_pieces ? NULL : &t->wait);
	struct target_piece *p;

	if (!b)
		return NULL;
	p = target_piece_new(t, b, b->bytes, t->next, len);
	if (!p) {
		units_put_buffer(target->units, b);
		t->result = -EIO;
		return NULL;
	}
	t->next += len;
	return p;
}

/* As much as there is of the unit's own memory, where the transport can use that. NULL: it is copied. */
static struct target_piece *borrow_piece(struct target_task *t)
{
	uint32_t left = t->total - t->next, lkey;
	const struct target_transport *ops = transport_of(t);
	struct target_piece *p;

	if (!left || !ops->borrows || !ops->borrows(t->session->conn))
		return NULL;
	p = target_piece_new(t, NULL, NULL, t->next, left < LUN_BORROW_MAX ? left : LUN_BORROW_MAX);
	if (!p)
		return NULL;
	p->io.op = t->cmd.io.op;
	p->io.verify = t->cmd.io.verify;
	p->io.offset = t->cmd.io.offset + p->offset;
	p->io.length = p->len;
	p->bytes = lun_borrow(t->cmd.unit, &p->io, &lkey);
	if (!p->bytes) {
		target_piece_free(p);
		return NULL;
	}
	p->borrowed = true;
	p->lkey = lkey;
	t->next += p->len;
	return p;
}

static uint32_t next_len(const struct target_task *t, uint32_t end)
{
	return end - t->next < UNITS_BUFFER ? end - t->next : UNITS_BUFFER;
}

/* ---- beginning and end ------------------------------------------------------------------ */

static void pump(struct target_task *t);

static void wake(struct target_waiter *w)
{
	pump(container_of(w, struct target_task, wait));
}

/* All but the reply, which is large, and written before it is read. */
static void clear(struct target_task *t)
{
	size_t from = offsetof(struct target_task, cmd.reply),
	       to = offsetof(struct target_task, cmd.reply_len);

	memset(t, 0, from);
	memset((uint8_t *)t + to, 0, sizeof(*t) - to);
}

/* Too long a CDB is cut: no command of ours is that long, and its own length tells. */
static void take_cdb(struct scsi_cmd *c, const struct pdu *p, const uint8_t *ahs)
{
	struct ahs a;
	uint32_t at = 0;

	memcpy(c->cdb, p->cdb, sizeof(p->cdb));
	c->cdb_len = sizeof(p->cdb);
	while (iscsi_ahs_next(ahs, p->ahs_len, &at, &a) > 0) {
		uint32_t room = SCSI_CDB_MAX - c->cdb_len, n = a.len < room ? a.len : room;

		if (a.type != AHS_CDB || c->cdb_len > sizeof(p->cdb))
			continue;
		memcpy(c->cdb + c->cdb_len, a.bytes, n);
		c->cdb_len += n;
	}
}

struct target_task *target_task_new(struct target_session *s, const struct pdu *p,
				    const uint8_t *ahs)
{
	struct target_task *t = target_task_alloc(s->target);

	if (!t)
		return NULL;
	clear(t);
	t->session = s;
	t->born = ++s->target->births;
	t->since = clock_ns();
	t->itt = p->itt;
	t->cmd_sn = p->cmd_sn;
	t->immediate = p->immediate;
	t->wait.go = wake;
	list_init(&t->wait.link);
	list_init(&t->pieces);
	list_init(&t->wanted);
	take_cdb(&t->cmd, p, ahs);
	t->cmd.nexus = s->nexus;
	t->cmd.lun = p->lun;
	t->cmd.expected = p->expected;
	t->cmd.reads = p->flags & CMD_READ;
	t->cmd.writes = p->flags & CMD_WRITE;
	t->expected_in = t->cmd.reads && !t->cmd.writes ? p->expected : 0;
	t->expected_out = t->cmd.writes && !t->cmd.reads ? p->expected : 0;
	list_add_tail(&s->buckets[t->itt % TASK_BUCKETS], &t->link);
	s->n_tasks++;
	s->n_immediate += t->immediate;
	return t;
}

static void end(struct target_task *t)
{
	struct target_session *s = t->session;
	struct stag_block_target *target = s->target;

	list_for_each_safe (it, &t->pieces)
		target_piece_free(list_entry(it, struct target_piece, link));
	if (t->collected)
		target_piece_put(target, t->collected);
	if (t->begun)
		scsi_release(&t->cmd);
	if (!t->responded)
		target_session_retire(s, t->immediate);
	list_del(&t->wait.link);
	list_del(&t->link);
	s->n_tasks--;
	s->n_immediate -= t->immediate;
	target_task_put(target, t);
	target_session_maybe_free(s);
}

static void hold(struct target_task *t)
{
	t->flying++;
}

/* Who held it, or a call that has come, lets go. */
static void let_go(struct target_task *t)
{
	if (t->aborted)
		t->session->target->tmf_due = true;
	if (--t->flying == 0 && t->phase != TASK_NEW && (t->aborted || t->responded))
		end(t);
}

/* ---- the status ------------------------------------------------------------------------------ */

static void fill_residual(const struct target_task *t, struct pdu *p)
{
	uint32_t expected = t->cmd.expected, moved = t->done;

	if (t->cmd.status == SCSI_GOOD && t->cmd.want > expected) {
		p->flags |= RES_OVER;
		p->residual = t->cmd.want - expected;
	} else if (moved < expected) {
		p->flags |= RES_UNDER;
		p->residual = expected - moved;
	}
}

/* done counts what is handed over by now. */
void target_task_fill(const struct target_task *t, struct pdu *p)
{
	p->itt = t->itt;
	p->status = t->cmd.status;
	fill_residual(t, p);
}

static void count_time(const struct target_task *t, struct stag_histogram *h)
{
	if (t->cmd.status == SCSI_GOOD)
		histogram_count(h, clock_ns() - t->since);
}

static void count(const struct target_task *t, struct stag_block_counters *c)
{
	c->commands++;
	c->errors += t->cmd.status != SCSI_GOOD;
	if (t->cmd.io.length == 0)
		return;
	if (t->cmd.io.op == LUN_READ && t->expected_in) {
		c->reads++;
		c->read_bytes += t->done;
		count_time(t, &c->read_times);
	} else if (t->cmd.io.op == LUN_WRITE && t->expected_out) {
		c->writes++;
		c->written_bytes += t->done;
		count_time(t, &c->write_times);
	}
}

/* From here on it is as if it had ended: the window opens, it is counted. */
static void mark_responded(struct target_task *t)
{
	t->responded = true;
	target_session_retire(t->session, t->immediate);
	count(t, &t->session->counters);
	count(t, &t->session->target->counters);
}

static void judge(struct target_task *t)
{
	if (t->judged)
		return;
	t->judged = true;
	if (t->result == -EBADMSG)
		scsi_fail(&t->cmd, SCSI_ABORTED_COMMAND, 0x47,
			  0x05); /* protocol service CRC error */
	else if (t->result == -EOPNOTSUPP)
		scsi_fail(&t->cmd, SCSI_ILLEGAL_REQUEST, 0x24, 0x00); /* invalid field in CDB */
	else
		scsi_end(&t->cmd, t->result);
}

static void respond(struct target_task *t)
{
	struct pdu p = {.opcode = SCSI_RESPONSE, .flags = PDU_FINAL};
	uint8_t sense[2 + SCSI_SENSE_MAX];
	uint32_t len = t->cmd.sense_len;

	mark_responded(t);
	target_task_fill(t, &p);
	put_be16(sense, (uint16_t)len);
	memcpy(sense + 2, t->cmd.sense, len);
	target_conn_number(t->session->conn, &p, true);
	transport_of(t)->respond(t, &p, sense, len ? 2 + len : 0);
}

/* ---- data-in ----------------------------------------------------------------------------------- */

static void at_unit(struct target_task *t, struct target_piece *p, uint32_t len,
		    void (*done)(struct lun_io *, int))
{
	const struct lun_io *whole = &t->cmd.io;

	p->state = PIECE_AT_UNIT;
	p->io.op = whole->op;
	p->io.fua = whole->fua;
	p->io.verify = whole->verify;
	p->io.offset = whole->offset + p->offset;
	p->io.length = len;
	p->io.iov[0] = (struct iovec){p->bytes, len};
	p->io.n_iov = 1;
	p->io.where = 0;
	p->io.done = done;
	hold(t);
	lun_start(t->cmd.unit, &p->io);
}

/* A difference is told before an error, and the first of several. */
static void note(struct target_task *t, const struct target_piece *p, int result)
{
	uint64_t where = p->offset + p->io.where;
	bool first = t->result == 0 || (result == -EILSEQ && t->result != -EILSEQ);

	if (!first && (result != t->result || where >= t->cmd.io.where))
		return;
	t->cmd.io.where = where;
	t->result = result;
}

static void was_read(struct lun_io *io, int result)
{
	struct target_piece *p = container_of(io, struct target_piece, io);
	struct target_task *t = p->task;

	p->state = PIECE_READY;
	if (result != 0 || t->aborted) {
		note(t, p, result);
		target_piece_free(p);
	}
	pump(t);
	let_go(t);
}

static struct target_piece *first_unmoved(const struct target_task *t)
{
	list_for_each (it, &t->pieces)
		if (list_entry(it, struct target_piece, link)->state != PIECE_MOVING)
			return list_entry(it, struct target_piece, link);
	return NULL;
}

/* The last one: its status goes with it where it can. */
static void hand_over_last(struct target_task *t, struct target_piece *p)
{
	bool with_status;

	judge(t);
	with_status = transport_of(t)->collapses && t->cmd.status == SCSI_GOOD &&
		      t->cmd.sense_len == 0 && !t->first_open;
	if (with_status)
		mark_responded(t);
	else
		t->phase = TASK_OVER;
	transport_of(t)->data_in(p, with_status);
}

static void hand_over(struct target_task *t, struct target_piece *p)
{
	p->state = PIECE_MOVING;
	t->done += p->len;
	hold(t);
	if (t->done == t->total)
		hand_over_last(t, p);
	else
		transport_of(t)->data_in(p, false);
}

/* One step further: is there another? */
static bool step_in(struct target_task *t)
{
	struct target_piece *p = first_unmoved(t);

	if (t->result != 0) {
		if (p && p->state == PIECE_READY) {
			target_piece_free(p);
			return true;
		}
		if (t->n_pieces)
			return false;
		judge(t);
		t->phase = TASK_OVER;
		return true;
	}
	if (p && p->state == PIECE_READY) {
		hand_over(t, p);
		return true;
	}
	if (t->next >= t->total || t->n_pieces >= TASK_PIECES)
		return false;
	p = borrow_piece(t);
	if (p) {
		p->state = PIECE_READY;
		return true;
	}
	p = get_piece(t, next_len(t, t->total));
	if (!p)
		return t->result != 0;
	/* The last block is read whole, whatever is wanted of it. */
	at_unit(t, p, t->next == t->total ? t->unit_end - p->offset : p->len, was_read);
	return true;
}

/* ---- data-out ----------------------------------------------------------------------------------- */

static void was_written(struct lun_io *io, int result)
{
	struct target_piece *p = container_of(io, struct target_piece, io);
	struct target_task *t = p->task;

	if (result != 0)
		note(t, p, result);
	else
		t->done += p->len;
	target_piece_free(p);
	pump(t);
	let_go(t);
}

static void fetch(struct target_task *t, struct target_piece *p)
{
	p->state = PIECE_MOVING;
	hold(t);
	transport_of(t)->data_out(p);
}

static void next_of(struct target_task *t, enum scsi_next n);

/* It is where it belongs already. */
static void was_put(struct target_task *t, struct target_piece *p)
{
	int result = lun_return(&p->io);

	p->borrowed = false;
	if (result != 0)
		note(t, p, result);
	else
		t->done += p->len;
	target_piece_free(p);
}

/* All of a piece's data is here. */
static void has_come(struct target_task *t, struct target_piece *p)
{
	if (t->bad_data && t->result == 0)
		t->result = -EBADMSG;
	if (t->result != 0) {
		target_piece_free(p);
		return;
	}
	if (p->borrowed) {
		was_put(t, p);
		return;
	}
	if (t->phase == TASK_WRITES) {
		at_unit(t, p, p->len, was_written);
		return;
	}
	list_del(&p->link);
	t->n_pieces--;
	t->collected = p;
	t->done = p->len;
	memset(p->bytes + p->len, 0, t->cmd.out_len - p->len);
	next_of(t, scsi_collected(&t->cmd, p->bytes));
}

/* Unsolicited data is all here: it is the beginning of the first piece. */
static void use_first(struct target_task *t)
{
	struct target_piece *p = t->first;

	t->first = NULL;
	p->len = t->total < UNITS_BUFFER ? t->total : UNITS_BUFFER;
	p->got = t->first_got < p->len ? t->first_got : p->len;
	t->next = p->len;
	if (p->got == p->len)
		has_come(t, p);
	else
		fetch(t, p);
}

static bool step_out(struct target_task *t)
{
	struct target_piece *p;

	if (t->first_open)
		return false;
	if (t->starved || t->result != 0 || (t->next >= t->total && t->phase == TASK_WRITES)) {
		if (t->first)
			target_piece_free(t->first);
		if (t->n_pieces)
			return false;
		judge(t);
		t->phase = TASK_OVER;
		return true;
	}
	if (t->first) {
		use_first(t);
		return true;
	}
	if ((t->phase == TASK_COLLECTS && (t->n_pieces || t->collected)) || t->next > t->total ||
	    t->n_pieces >= TASK_PIECES)
		return false;
	p = t->phase == TASK_WRITES ? borrow_piece(t) : NULL;
	if (!p)
		p = get_piece(t, next_len(t, t->total));
	if (!p)
		return t->result != 0;
	if (p->len)
		fetch(t, p);
	else
		has_come(t, p);
	return true;
}

/* ---- phases ----------------------------------------------------------------------------------------- */

static bool step_over(struct target_task *t)
{
	if (t->first && !t->first_open)
		target_piece_free(t->first);
	if (t->responded || t->first_open || t->r2ts || !list_empty(&t->wanted))
		return false;
	respond(t);
	return false;
}

static bool step(struct target_task *t)
{
	switch (t->phase) {
	case TASK_READS:
		return step_in(t);
	case TASK_WRITES:
	case TASK_COLLECTS:
		return step_out(t);
	case TASK_OVER:
		return step_over(t);
	case TASK_NEW:
	case TASK_WORKS:
		return false;
	}
	return false;
}

/* As far as it goes. Calls that come meanwhile, from within, leave the rest to who is at it. */
static void pump(struct target_task *t)
{
	if (t->pumping)
		return;
	t->pumping = true;
	hold(t);
	while (!t->aborted && !t->responded && step(t))
		;
	t->pumping = false;
	let_go(t);
}

static void was_worked(struct lun_io *io, int result)
{
	struct target_task *t = container_of(io, struct target_task, cmd.io);

	if (!t->aborted)
		next_of(t, scsi_worked(&t->cmd, result));
	pump(t);
	let_go(t);
}

static void begin_reply(struct target_task *t)
{
	uint32_t len = t->cmd.reply_len < t->expected_in ? t->cmd.reply_len : t->expected_in;
	struct target_piece *p;

	t->judged = true;
	t->phase = TASK_OVER;
	if (len == 0 || t->cmd.status != SCSI_GOOD)
		return;
	p = target_piece_new(t, NULL, t->cmd.reply, 0, len);
	if (!p)
		return; /* as if there were nothing to say: the residual tells */
	p->state = PIECE_READY;
	t->phase = TASK_READS;
	t->total = t->next = len;
	t->done = 0;
}

static uint32_t least(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

static void begin_write(struct target_task *t)
{
	uint32_t block = lun_facts(t->cmd.unit)->block;

	t->phase = TASK_WRITES;
	t->total = least(t->cmd.io.length, t->expected_out) / block * block;
}

static void next_of(struct target_task *t, enum scsi_next n)
{
	switch (n) {
	case SCSI_DONE:
		begin_reply(t);
		return;
	case SCSI_READ:
		t->phase = TASK_READS;
		t->total = least(t->cmd.io.length, t->expected_in);
		t->unit_end = (uint32_t)t->cmd.io.length;
		if (t->total == 0) {
			judge(t);
			t->phase = TASK_OVER;
		}
		return;
	case SCSI_WRITE:
		begin_write(t);
		return;
	case SCSI_COLLECT:
		t->phase = TASK_COLLECTS;
		t->total = least(t->cmd.out_len, t->expected_out);
		return;
	case SCSI_WORK:
		t->phase = TASK_WORKS;
		t->cmd.io.done = was_worked;
		hold(t);
		lun_start(t->cmd.unit, &t->cmd.io);
	}
}

/* What came is broken, or goes both ways: no command here does. */
static bool is_unfit(struct target_task *t)
{
	if (t->bad_data)
		t->result = -EBADMSG;
	else if (t->cmd.reads && t->cmd.writes)
		t->result = -EOPNOTSUPP;
	return t->result != 0;
}

void target_task_start(struct target_task *t)
{
	enum scsi_next n;

	hold(t);
	t->phase = TASK_OVER;
	if (!t->aborted && t->starved) {
		t->cmd.status = SCSI_TASK_SET_FULL;
		t->judged = true;
	} else if (!t->aborted) {
		n = scsi_begin(t->session->target->scsi, &t->cmd);
		t->begun = true;
		if (n != SCSI_DONE && is_unfit(t))
			judge(t);
		else
			next_of(t, n);
	}
	pump(t);
	let_go(t);
}

/* ---- calls from transports ------------------------------------------------------------------------------ */

int target_task_first_buffer(struct target_task *t, struct target_waiter *w)
{
	struct stag_block_target *target = t->session->target;
	struct units_buffer *b = target_buffer(target, w);

	if (!b)
		return -EAGAIN;
	t->first = target_piece_new(t, b, b->bytes, 0, UNITS_BUFFER);
	if (t->first)
		return 0;
	units_put_buffer(target->units, b);
	t->starved = true;
	return 0;
}

void target_task_unsolicited(struct target_task *t, uint32_t len, bool final)
{
	t->first_got += len;
	if (!final)
		return;
	t->first_open = false;
	if (t->phase != TASK_NEW)
		pump(t);
}

void target_piece_moved(struct target_piece *p, int result)
{
	struct target_task *t = p->task;

	if (result != 0 && p->borrowed)
		lun_check_mapping(&p->io);
	if (t->aborted || t->phase == TASK_READS || t->phase == TASK_OVER || result != 0)
		target_piece_free(p);
	else
		has_come(t, p);
	pump(t);
	let_go(t);
}

void target_task_abort(struct target_task *t)
{
	if (t->aborted || t->responded)
		return;
	hold(t);
	t->aborted = true;
	list_del(&t->wait.link);
	if (t->session->conn)
		transport_of(t)->forget(t);
	t->first_open = false;
	let_go(t);
}
