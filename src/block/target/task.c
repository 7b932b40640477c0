// SPDX-License-Identifier: BSD-2-Clause
/*
 * task.c - one SCSI command: its data in pieces between transport and unit, then its status.
 *
 * A piece is as much data as a buffer holds. A task has up to TASK_PIECES in flight, and waits for a buffer only when it
 * has no piece at all. Units complete pieces in any order; data-in is sent in order. The response goes out when the status
 * is known and no data is expected any more. This holds for failed commands, too: RFC 7143 §11.4 requires that solicited
 * and announced data arrives before the response.
 */
#include "block/target/target.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/log.h"

static const struct target_transport *transport_of(const struct target_task *t)
{
	return t->session->conn->ops;
}

/* ---- states ------------------------------------------------------------------------- */

const char *target_task_state_name(enum target_task_state state)
{
	static const char *const names[] = {
		[TASK_NEW] = "new",
		[TASK_CANCELLED] = "cancelled",
		[TASK_READING] = "reading",
		[TASK_REPLYING] = "replying",
		[TASK_WRITING] = "writing",
		[TASK_COLLECTING] = "collecting",
		[TASK_WORKING] = "working",
		[TASK_ENDING] = "ending",
		[TASK_RESPONDED] = "responded",
		[TASK_ABORTED] = "aborted",
	};

	return names[state];
}

#define FROM(state) (1u << TASK_##state)

/* The only writer of t->state. Not logged: commands are the data path. */
static void set_state(struct target_task *t, enum target_task_state to)
{
	static const uint16_t legal_from[] = {
		[TASK_CANCELLED] = FROM(NEW),
		[TASK_READING] = FROM(NEW),
		[TASK_REPLYING] = FROM(NEW) | FROM(COLLECTING) | FROM(WORKING),
		[TASK_WRITING] = FROM(NEW),
		[TASK_COLLECTING] = FROM(NEW),
		[TASK_WORKING] = FROM(NEW) | FROM(COLLECTING) | FROM(WORKING),
		[TASK_ENDING] = FROM(NEW) | FROM(READING) | FROM(REPLYING) | FROM(WRITING) |
				FROM(COLLECTING) | FROM(WORKING),
		[TASK_RESPONDED] = FROM(READING) | FROM(REPLYING) | FROM(ENDING),
		[TASK_ABORTED] = FROM(CANCELLED) | FROM(READING) | FROM(REPLYING) | FROM(WRITING) |
				 FROM(COLLECTING) | FROM(WORKING) | FROM(ENDING),
	};
	bool legal = legal_from[to] & 1u << t->state;

	if (!legal)
		log_err("block: task 0x%x: %s -> %s is not a legal change of state", t->itt,
			target_task_state_name(t->state), target_task_state_name(to));
	assert(legal);
	t->state = to;
}

/* The only writer of p->state but for target_piece_new(). */
static void set_piece_state(struct target_piece *p, enum target_piece_state to)
{
	static const uint8_t legal_from[] = {
		[PIECE_AT_UNIT] = 1u << PIECE_NEW | 1u << PIECE_MOVING,
		[PIECE_READY] = 1u << PIECE_NEW | 1u << PIECE_AT_UNIT,
		[PIECE_MOVING] = 1u << PIECE_NEW | 1u << PIECE_READY,
	};

	assert(legal_from[to] & 1u << p->state);
	(void)legal_from;
	p->state = to;
}

static bool is_over(const struct target_task *t)
{
	return t->state == TASK_RESPONDED || target_task_is_aborted(t);
}

static bool takes_data_out(const struct target_task *t)
{
	return t->state == TASK_WRITING || t->state == TASK_COLLECTING;
}

/* ---- pieces ------------------------------------------------------------------------- */

/*
 * Allocates a piece with a buffer for the next len bytes. Returns NULL if there is no buffer now (the task waits for one),
 * or no memory (t->result is set).
 */
static struct target_piece *get_piece(struct target_task *t, uint32_t len)
{
	struct target_session *s = t->session;
	struct units_buffer *b = target_buffer(s, t->n_pieces ? NULL : &t->wait);
	struct target_piece *p;

	if (!b)
		return NULL;
	p = target_piece_new(t, b, b->bytes, t->next, len);
	if (!p) {
		target_buffer_put(s, b);
		t->result = -EIO;
		return NULL;
	}
	t->next += len;
	return p;
}

/* Makes a piece of the unit's own memory, if the transport can use that. Returns NULL if the data has to be copied. */
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

static void advance_task(struct target_task *t);

static void on_buffer(struct target_waiter *w)
{
	advance_task(container_of(w, struct target_task, wait));
}

/* Zeroes all but the reply, which is large, and is written before it is read. */
static void clear_task(struct target_task *t)
{
	size_t from = offsetof(struct target_task, cmd.reply),
	       to = offsetof(struct target_task, cmd.reply_len);

	memset(t, 0, from);
	memset((uint8_t *)t + to, 0, sizeof(*t) - to);
}

/* Truncates a CDB that is too long: no supported command has one, and cdb_len keeps it from being mistaken. */
static void copy_cdb(struct scsi_cmd *c, const struct pdu *p, const uint8_t *ahs)
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
	clear_task(t);
	t->session = s;
	t->born = ++s->target->tasks.born;
	t->since = clock_ns();
	t->itt = p->itt;
	t->cmd_sn = p->cmd_sn;
	t->immediate = p->immediate;
	t->wait.go = on_buffer;
	list_init(&t->wait.link);
	list_init(&t->pieces);
	list_init(&t->wanted);
	copy_cdb(&t->cmd, p, ahs);
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

static void free_task(struct target_task *t)
{
	struct target_session *s = t->session;
	struct stag_block_target *target = s->target;

	list_for_each_safe (it, &t->pieces)
		target_piece_free(list_entry(it, struct target_piece, link));
	if (t->collected)
		target_piece_put(target, t->collected);
	scsi_release(&t->cmd); /* does nothing for a task that was not started */
	if (t->state != TASK_RESPONDED)
		target_session_retire(s, t->immediate);
	target_buffer_forget(s, &t->wait);
	list_del(&t->link);
	s->n_tasks--;
	s->n_immediate -= t->immediate;
	target_task_put(target, t);
	target_session_maybe_free(s);
}

static void get_task(struct target_task *t)
{
	t->refs++;
}

/* Drops a reference. The last one frees a task that is over, unless target_task_start() is still to come. */
static void put_task(struct target_task *t)
{
	if (target_task_is_aborted(t))
		t->session->target->tasks.tmf_due = true;
	if (--t->refs == 0 && (t->state == TASK_RESPONDED || t->state == TASK_ABORTED))
		free_task(t);
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

/* The command has ended for the initiator: the window opens, and the command is counted. Data may still be leaving. */
static void mark_responded(struct target_task *t)
{
	set_state(t, TASK_RESPONDED);
	target_session_retire(t->session, t->immediate);
	count(t, &t->session->counters);
	count(t, &t->session->target->counters);
	target_audit_command(t);
}

/* Turns t->result into status and sense. SCSI itself has set them in TASK_REPLYING and after SCSI_DONE. */
static void set_status(struct target_task *t)
{
	if (t->result == -EBADMSG)
		scsi_fail(&t->cmd, SCSI_ABORTED_COMMAND, 0x47,
			  0x05); /* protocol service CRC error */
	else if (t->result == -EOPNOTSUPP)
		scsi_fail(&t->cmd, SCSI_ILLEGAL_REQUEST, 0x24, 0x00); /* invalid field in CDB */
	else
		scsi_end(&t->cmd, t->result);
}

/* Ends a task whose data has been moved, or has failed: its response is due. */
static void end_data(struct target_task *t)
{
	set_status(t);
	set_state(t, TASK_ENDING);
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

static void start_at_unit(struct target_task *t, struct target_piece *p, uint32_t len,
			  void (*done)(struct lun_io *, int))
{
	const struct lun_io *whole = &t->cmd.io;

	set_piece_state(p, PIECE_AT_UNIT);
	p->io.op = whole->op;
	p->io.fua = whole->fua;
	p->io.verify = whole->verify;
	p->io.offset = whole->offset + p->offset;
	p->io.length = len;
	p->io.iov[0] = (struct iovec){p->bytes, len};
	p->io.n_iov = 1;
	p->io.where = 0;
	p->io.done = done;
	t->at_unit++;
	get_task(t);
	lun_start(t->cmd.unit, &p->io);
}

/* Keeps the failure to be reported: a miscompare before any other error, and the first of its kind in the data. */
static void note_failure(struct target_task *t, const struct target_piece *p, int result)
{
	uint64_t where = p->offset + p->io.where;
	bool first = t->result == 0 || (result == -EILSEQ && t->result != -EILSEQ);

	if (!first && (result != t->result || where >= t->cmd.io.where))
		return;
	t->cmd.io.where = where;
	t->result = result;
}

static void on_read(struct lun_io *io, int result)
{
	struct target_piece *p = container_of(io, struct target_piece, io);
	struct target_task *t = p->task;

	t->at_unit--;
	set_piece_state(p, PIECE_READY);
	if (result != 0 || target_task_is_aborted(t)) {
		note_failure(t, p, result);
		target_piece_free(p);
	}
	advance_task(t);
	put_task(t);
}

static struct target_piece *first_unmoved(const struct target_task *t)
{
	list_for_each (it, &t->pieces)
		if (list_entry(it, struct target_piece, link)->state != PIECE_MOVING)
			return list_entry(it, struct target_piece, link);
	return NULL;
}

/* Sends the last piece, together with the status if the transport can (RFC 7143 §11.7.3, phase collapse). */
static void send_last_piece(struct target_task *t, struct target_piece *p)
{
	bool with_status;

	if (t->state == TASK_READING)
		set_status(t);
	with_status = transport_of(t)->collapses && t->cmd.status == SCSI_GOOD &&
		      t->cmd.sense_len == 0 && !t->first_open;
	if (with_status)
		mark_responded(t);
	else
		set_state(t, TASK_ENDING);
	transport_of(t)->data_in(p, with_status);
}

static void send_piece(struct target_task *t, struct target_piece *p)
{
	set_piece_state(p, PIECE_MOVING);
	t->done += p->len;
	get_task(t);
	if (t->done == t->total)
		send_last_piece(t, p);
	else
		transport_of(t)->data_in(p, false);
}

/* Does one step of data-in. Returns whether another one may follow at once. */
static bool step_data_in(struct target_task *t)
{
	struct target_piece *p = first_unmoved(t);

	if (t->result != 0) {
		if (p && p->state == PIECE_READY) {
			target_piece_free(p);
			return true;
		}
		if (t->n_pieces)
			return false;
		end_data(t);
		return true;
	}
	if (p && p->state == PIECE_READY) {
		send_piece(t, p);
		return true;
	}
	if (t->next >= t->total || t->n_pieces >= TASK_PIECES)
		return false;
	p = borrow_piece(t);
	if (p) {
		set_piece_state(p, PIECE_READY);
		return true;
	}
	p = get_piece(t, next_len(t, t->total));
	if (!p)
		return t->result != 0;
	/* The unit reads whole blocks, even if the initiator expects only a part of the last one. */
	start_at_unit(t, p, t->next == t->total ? t->unit_end - p->offset : p->len, on_read);
	return true;
}

/* ---- data-out ----------------------------------------------------------------------------------- */

static void on_written(struct lun_io *io, int result)
{
	struct target_piece *p = container_of(io, struct target_piece, io);
	struct target_task *t = p->task;

	t->at_unit--;
	if (result != 0)
		note_failure(t, p, result);
	else
		t->done += p->len;
	target_piece_free(p);
	advance_task(t);
	put_task(t);
}

static void fetch_piece(struct target_task *t, struct target_piece *p)
{
	set_piece_state(p, PIECE_MOVING);
	get_task(t);
	transport_of(t)->data_out(p);
}

static void do_next(struct target_task *t, enum scsi_next n);

/* Ends a piece of the unit's own memory: the transport has written the data to its final place. */
static void finish_borrowed(struct target_task *t, struct target_piece *p)
{
	int result = lun_return(&p->io);

	p->borrowed = false;
	if (result != 0)
		note_failure(t, p, result);
	else
		t->done += p->len;
	target_piece_free(p);
}

/* Handles a piece all of whose data-out has arrived. */
static void piece_arrived(struct target_task *t, struct target_piece *p)
{
	if (t->fault == DATA_DAMAGED && t->result == 0)
		t->result = -EBADMSG;
	if (t->result != 0) {
		target_piece_free(p);
		return;
	}
	if (p->borrowed) {
		finish_borrowed(t, p);
		return;
	}
	if (t->state == TASK_WRITING) {
		start_at_unit(t, p, p->len, on_written);
		return;
	}
	list_del(&p->link);
	t->n_pieces--;
	t->collected = p;
	t->done = p->len;
	memset(p->bytes + p->len, 0, t->cmd.out_len - p->len);
	do_next(t, scsi_collected(&t->cmd, p->bytes));
}

/* Makes the first piece of the unsolicited data, which has all arrived, and fetches the rest of that piece. */
static void use_unsolicited(struct target_task *t)
{
	struct target_piece *p = t->first;

	t->first = NULL;
	p->len = t->total < UNITS_BUFFER ? t->total : UNITS_BUFFER;
	p->got = t->first_got < p->len ? t->first_got : p->len;
	t->next = p->len;
	if (p->got == p->len)
		piece_arrived(t, p);
	else
		fetch_piece(t, p);
}

/* Does one step of data-out. Returns whether another one may follow at once. */
static bool step_data_out(struct target_task *t)
{
	struct target_piece *p;

	if (t->first_open)
		return false;
	if (t->result != 0 || (t->next >= t->total && t->state == TASK_WRITING)) {
		if (t->first)
			target_piece_free(t->first);
		if (t->n_pieces)
			return false;
		end_data(t);
		return true;
	}
	if (t->first) {
		use_unsolicited(t);
		return true;
	}
	if ((t->state == TASK_COLLECTING && (t->n_pieces || t->collected)) || t->next > t->total ||
	    t->n_pieces >= TASK_PIECES)
		return false;
	p = t->state == TASK_WRITING ? borrow_piece(t) : NULL;
	if (!p)
		p = get_piece(t, next_len(t, t->total));
	if (!p)
		return t->result != 0;
	if (p->len)
		fetch_piece(t, p);
	else
		piece_arrived(t, p);
	return true;
}

/* ---- steps ------------------------------------------------------------------------------------------ */

/* Responds once no data-out is expected any more. */
static void step_response(struct target_task *t)
{
	if (t->first && !t->first_open)
		target_piece_free(t->first);
	if (t->first_open || t->r2ts || !list_empty(&t->wanted))
		return;
	respond(t);
}

static bool step(struct target_task *t)
{
	switch (t->state) {
	case TASK_READING:
	case TASK_REPLYING:
		return step_data_in(t);
	case TASK_WRITING:
	case TASK_COLLECTING:
		return step_data_out(t);
	case TASK_ENDING:
		step_response(t);
		return false;
	case TASK_NEW:
	case TASK_WORKING:
	case TASK_CANCELLED:
	case TASK_RESPONDED:
	case TASK_ABORTED:
		return false;
	}
	return false;
}

/* Does all steps that are possible now. A call from inside a step returns at once: the loop that is running goes on. */
static void advance_task(struct target_task *t)
{
	if (t->advancing)
		return;
	t->advancing = true;
	get_task(t);
	while (step(t))
		;
	t->advancing = false;
	put_task(t);
}

static void on_worked(struct lun_io *io, int result)
{
	struct target_task *t = container_of(io, struct target_task, cmd.io);

	t->at_unit--;
	if (!target_task_is_aborted(t))
		do_next(t, scsi_worked(&t->cmd, result));
	advance_task(t);
	put_task(t);
}

static void begin_reply(struct target_task *t)
{
	uint32_t len = t->cmd.reply_len < t->expected_in ? t->cmd.reply_len : t->expected_in;
	struct target_piece *p = NULL;

	if (len && t->cmd.status == SCSI_GOOD)
		p = target_piece_new(t, NULL, t->cmd.reply, 0, len);
	if (!p) { /* without memory the reply is empty, which the residual count shows */
		set_state(t, TASK_ENDING);
		return;
	}
	set_piece_state(p, PIECE_READY);
	set_state(t, TASK_REPLYING);
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

	set_state(t, TASK_WRITING);
	t->total = least(t->cmd.io.length, t->expected_out) / block * block;
}

static void do_next(struct target_task *t, enum scsi_next n)
{
	switch (n) {
	case SCSI_DONE:
		begin_reply(t);
		return;
	case SCSI_READ:
		set_state(t, TASK_READING);
		t->total = least(t->cmd.io.length, t->expected_in);
		t->unit_end = (uint32_t)t->cmd.io.length;
		if (t->total == 0)
			end_data(t);
		return;
	case SCSI_WRITE:
		begin_write(t);
		return;
	case SCSI_COLLECT:
		set_state(t, TASK_COLLECTING);
		t->total = least(t->cmd.out_len, t->expected_out);
		return;
	case SCSI_WORK:
		set_state(t, TASK_WORKING);
		t->cmd.io.done = on_worked;
		t->at_unit++;
		get_task(t);
		lun_start(t->cmd.unit, &t->cmd.io);
	}
}

/* Sets t->result if the data that came with the command is damaged, or if it is bidirectional: no supported command is. */
static bool is_unfit(struct target_task *t)
{
	if (t->fault == DATA_DAMAGED)
		t->result = -EBADMSG;
	else if (t->cmd.reads && t->cmd.writes)
		t->result = -EOPNOTSUPP;
	return t->result != 0;
}

void target_task_start(struct target_task *t)
{
	enum scsi_next n;

	get_task(t);
	if (t->state == TASK_CANCELLED) {
		set_state(t, TASK_ABORTED);
	} else if (t->fault == DATA_NO_MEMORY) {
		t->cmd.status = SCSI_TASK_SET_FULL;
		set_state(t, TASK_ENDING);
	} else {
		n = scsi_begin(t->session->target->scsi, &t->cmd);
		if (n != SCSI_DONE && is_unfit(t))
			end_data(t);
		else
			do_next(t, n);
	}
	advance_task(t);
	put_task(t);
}

/* ---- calls from transports ------------------------------------------------------------------------------ */

int target_task_first_buffer(struct target_task *t, struct target_waiter *w)
{
	struct target_session *s = t->session;
	struct units_buffer *b = target_buffer(s, w);

	if (!b)
		return -EAGAIN;
	t->first = target_piece_new(t, b, b->bytes, 0, UNITS_BUFFER);
	if (t->first)
		return 0;
	target_buffer_put(s, b);
	target_task_data_fault(t, DATA_NO_MEMORY);
	return 0;
}

void target_task_data_fault(struct target_task *t, enum target_data_fault fault)
{
	if (t->fault == DATA_GOOD)
		t->fault = fault;
}

void target_task_unsolicited(struct target_task *t, uint32_t len, bool final)
{
	t->first_got += len;
	if (!final)
		return;
	t->first_open = false;
	if (t->state != TASK_NEW && t->state != TASK_CANCELLED)
		advance_task(t);
}

void target_piece_moved(struct target_piece *p, int result)
{
	struct target_task *t = p->task;

	if (result != 0 && p->borrowed)
		lun_check_mapping(&p->io);
	if (takes_data_out(t) && result == 0)
		piece_arrived(t, p);
	else
		target_piece_free(p);
	advance_task(t);
	put_task(t);
}

void target_task_abort(struct target_task *t)
{
	if (is_over(t))
		return;
	get_task(t);
	set_state(t, t->state == TASK_NEW ? TASK_CANCELLED : TASK_ABORTED);
	target_buffer_forget(t->session, &t->wait);
	if (t->session->conn)
		transport_of(t)->forget(t);
	t->first_open = false;
	put_task(t);
}
