// SPDX-License-Identifier: BSD-2-Clause
/*
 * ask.c - requests to the node: messages, sequence numbers, answers.
 *
 * All waiting requests go into as few messages as possible. A change keeps its sequence number until it is
 * answered, so that whichever node is primary then carries it out exactly once. Every later request acknowledges
 * the answers up to a sequence number.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ANSWER_INLINE (NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_ANSWER_HEADER)

/* ---- sequences --------------------------------------------------------------------------- */

/* Returns false if too many earlier changes are unanswered. */
static bool assign_sequence(struct stag_pool *p, struct op *op)
{
	if (op->sequence != 0)
		return true;
	if (!ask_is_change(op)) {
		op->sequence = CLIENT_OWN | (uint64_t)(op->serial & INT32_MAX) << 32 | op->index;
		return true;
	}
	if (p->self.window[p->self.next_sequence % POOL_WINDOW])
		return false;
	op->sequence = p->self.next_sequence++;
	p->self.window[op->sequence % POOL_WINDOW] = op;
	return true;
}

void ask_release(struct stag_pool *p, struct op *op)
{
	if (op->sequence != 0 && !(op->sequence & CLIENT_OWN))
		p->self.window[op->sequence % POOL_WINDOW] = NULL;
	op->sequence = 0;
	while (p->self.lowest < p->self.next_sequence &&
	       !p->self.window[p->self.lowest % POOL_WINDOW])
		p->self.lowest++;
}

/* ---- requests ---------------------------------------------------------------------------- */

static bool has_value(const struct op *op)
{
	return pool_op_takes((uint8_t)op->io.op, POOL_TAKES_VALUE);
}

static bool is_read(const struct op *op)
{
	return pool_op_reads(op->wire_op);
}

static bool is_upload(const struct op *op)
{
	return has_value(op) && op->io.length > POOL_DIRECT_MAX;
}

static uint8_t flags_of(const struct op *op)
{
	uint8_t flags = 0;

	if (pool_op_is_own(op->wire_op))
		return 0;
	if (has_value(op))
		flags |= POOL_HAS_VALUE;
	if (pool_op_takes((uint8_t)op->io.op, POOL_TAKES_PTR))
		flags |= POOL_HAS_PTR;
	if (op->io.flags & STAG_POOL_COMPARE)
		flags |= POOL_COMPARE;
	if (op->io.flags & STAG_POOL_EXCLUSIVE)
		flags |= POOL_EXCLUSIVE;
	return flags;
}

/*
 * Lends a long value: the node fetches it through the STag that its message advertises, or through the key of a
 * region.
 */
static int lend_value(struct stag_pool *p, struct op *op, struct pool_request *rq)
{
	int access = p->link.one_shot ? 0 : IBV_ACCESS_REMOTE_READ;
	uint32_t lkey, rkey;
	int rc = memory_use(p, op, op->io.from, op->io.length, access, &lkey, &rkey);

	rq->source = POOL_SOURCE_PULL;
	rq->source_address = (uintptr_t)op->io.from;
	rq->key = p->link.one_shot ? 0 : rkey;
	return rc;
}

/* Lends a large buffer, which the node writes the value to. */
static int lend_room(struct stag_pool *p, struct op *op, struct pool_request *rq)
{
	uint32_t lkey, rkey;
	int rc = memory_use(p, op, op->io.to, op->io.length,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &lkey, &rkey);

	rq->source = POOL_SOURCE_PULL;
	rq->source_address = (uintptr_t)op->io.to;
	rq->key = rkey;
	return rc;
}

static int make_request(struct stag_pool *p, struct op *op, struct pool_request *rq)
{
	*rq = (struct pool_request){
		.op = op->wire_op,
		.flags = flags_of(op),
		.name = op->name,
		.name_length = op->name_length,
		.length = (uint32_t)op->io.length,
		.sequence = op->sequence,
		.acknowledged = p->self.lowest - 1,
		.version = op->io.version,
		.ptr = op->io.ptr,
		.value = op->io.from,
	};
	if (has_value(op) && op->way == WAY_STAGED)
		return stage_request(p, op, rq);
	if (has_value(op) && op->way == WAY_PULLED)
		return lend_value(p, op, rq);
	if (is_read(op) && op->io.length > ANSWER_INLINE)
		return lend_room(p, op, rq);
	return 0;
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct client_message *message_get(struct stag_pool *p)
{
	struct client_message *m = p->device.free_messages;

	if (m)
		p->device.free_messages = m->next;
	return m;
}

static void message_put(struct stag_pool *p, struct client_message *m)
{
	if (m->posted || m->unanswered != 0)
		return;
	m->next = p->device.free_messages;
	p->device.free_messages = m;
}

/* staged: the op whose value is written before the message; NULL: none. */
static int post_message(struct stag_pool *p, struct client_message *m, size_t length,
			struct op *staged)
{
	struct ibv_sge sge = {.addr = (uintptr_t)m->bytes,
			      .length = (uint32_t)length,
			      .lkey = p->device.messages_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_MESSAGE, m->index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	m->posted = true;
	if (staged)
		return stage_post(p, staged, &wr);
	return -ibv_post_send(p->link.id->qp, &wr, &bad);
}

/* Posts the value's memory together with the message that advertises it. */
static int post_advertising(struct stag_pool *p, struct client_message *m, size_t length,
			    struct op *op)
{
	struct ibv_sge sge = {.addr = (uintptr_t)m->bytes,
			      .length = (uint32_t)length,
			      .lkey = p->device.messages_mr->lkey};
	struct ibv_sge memory = {
		.addr = (uintptr_t)op->io.from,
		.length = (uint32_t)op->io.length,
		.lkey = op->loan ? op->loan->mr->lkey : op->mr->lkey,
	};
	struct stagdv_advertise wr = {
		.wr_id = wr_id_of(WR_MESSAGE, m->index),
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.memory = &memory,
		.num_memory = 1,
		.access = IBV_ACCESS_REMOTE_READ,
		.iova = (uintptr_t)op->io.from,
		.reference = op->index,
		.stag_at = -1,
	};
	int rc;

	m->posted = true;
	rc = -p->conf.dv->advertise(p->link.id->qp, &wr, &op->stag);
	op->advertised = rc == 0;
	return rc;
}

static void mark_asked(struct stag_pool *p, struct op *op, struct client_message *m)
{
	if (op->sent)
		p->counts.retries++;
	op->stage = OP_ASKED;
	op->message = m;
	op->sent = true;
	m->unanswered++;
	p->queue.asking++;
	p->queue.uploads += is_upload(op);
}

static enum op_way choose_way(const struct stag_pool *p, struct op *op)
{
	if (!has_value(op))
		return WAY_INLINE;
	if (stage_find(p, op->io.length, &op->slot))
		return WAY_STAGED;
	return op->io.length > CLIENT_INLINE ? WAY_PULLED : WAY_INLINE;
}

/* A message has room for one such key: the one that it advertises, or invalidates. */
static bool needs_own_message(const struct stag_pool *p, const struct op *op)
{
	return op->way == WAY_STAGED || (op->way == WAY_PULLED && p->link.one_shot);
}

static bool may_ask(struct stag_pool *p, struct op *op)
{
	return p->queue.asking + p->link.enrolling < p->conf.requests &&
	       (p->self.enrolled || !ask_is_change(op)) &&
	       (!is_upload(op) || p->queue.uploads < POOL_MAX_UPLOADS) && assign_sequence(p, op);
}

/* Returns whether a switchover without a name has happened: another node is primary. */
static bool is_switched(const struct stag_pool *p, const struct op *op)
{
	return op->wire_op == POOL_OP_SWITCH && op->sent && op->name_length == 0 &&
	       p->link.epoch > op->io.version;
}

/* Appends a request. Returns 0, -ENOBUFS if the message is full, or 1 if the op needs no request. */
static int append_request(struct stag_pool *p, struct op *op, struct client_message *m,
			  size_t *used)
{
	struct pool_request rq;
	int rc;

	if (is_switched(p, op)) {
		client_op_pop(&p->queue.to_ask);
		client_op_finish(p, op, 0);
		return 1;
	}
	if (op->wire_op == POOL_OP_SWITCH)
		op->io.version = p->link.epoch;
	rc = make_request(p, op, &rq);
	if (rc == 0)
		rc = pool_message_request(m->bytes, NODE_MESSAGE, used, &rq);
	if (rc == -ENOBUFS)
		return rc;
	client_op_pop(&p->queue.to_ask);
	if (rc != 0) {
		client_op_finish(p, op, -rc);
		return 1;
	}
	mark_asked(p, op, m);
	return 0;
}

/* Fills the message. An op whose memory is advertised, or whose value is staged, gets a message of its own. */
static struct op *fill_message(struct stag_pool *p, struct client_message *m, size_t *used)
{
	struct op *op;
	int rc;

	while ((op = p->queue.to_ask.first) && may_ask(p, op)) {
		bool alone;

		op->way = (uint8_t)choose_way(p, op);
		alone = needs_own_message(p, op);
		if (alone && m->unanswered != 0)
			break;
		rc = append_request(p, op, m, used);
		if (rc == -ENOBUFS)
			break;
		if (alone && rc == 0)
			return op;
	}
	return NULL;
}

static int send_one(struct stag_pool *p, struct client_message *m)
{
	struct op *op;
	size_t used = 0;
	int rc;

	pool_message_start(m->bytes, NODE_MESSAGE, &used, POOL_MESSAGE_REQUESTS, p->link.epoch);
	op = fill_message(p, m, &used);
	if (m->unanswered == 0) {
		message_put(p, m);
		return -EAGAIN;
	}
	if (op && op->way == WAY_PULLED)
		rc = post_advertising(p, m, used, op);
	else
		rc = post_message(p, m, used, op);
	return rc == 0 ? 0 : -ENOTCONN;
}

/* Sends a request about this client itself: ATTACH or ENROL. */
static int ask_about_us(struct stag_pool *p, uint8_t op, uint64_t epoch)
{
	struct client_message *m = message_get(p);
	struct pool_request rq = {
		.op = op,
		.sequence = CLIENT_OWN,
		.key = NODE_ENROL_LATER,
		.version = p->self.enrolled,
		.ptr = {.address = p->self.id[0], .generation = p->self.id[1]},
	};
	size_t used = 0;

	if (!m)
		return -EAGAIN;
	pool_message_start(m->bytes, NODE_MESSAGE, &used, POOL_MESSAGE_REQUESTS, epoch);
	pool_message_request(m->bytes, NODE_MESSAGE, &used, &rq);
	return post_message(p, m, used, NULL) == 0 ? 0 : -ENOTCONN;
}

/* Returns whether a change waits for a slot for its outcome, and none is requested yet. */
static bool needs_slot(const struct stag_pool *p)
{
	return !p->self.enrolled && !p->link.enrolling && p->link.stage == LINK_UP &&
	       p->queue.to_ask.first && ask_is_change(p->queue.to_ask.first) &&
	       p->queue.asking < p->conf.requests;
}

void ask_pump(struct stag_pool *p)
{
	struct client_message *m;
	int rc = 0;

	if (needs_slot(p)) {
		rc = ask_about_us(p, POOL_OP_ENROL, p->link.epoch);
		p->link.enrolling = rc == 0;
	}
	while (rc == 0 && p->link.stage == LINK_UP && p->queue.to_ask.first) {
		m = message_get(p);
		rc = m ? send_one(p, m) : -EAGAIN;
	}
	if (rc == -ENOTCONN)
		link_lost(p, clock_ns());
}

int ask_attach(struct stag_pool *p)
{
	return ask_about_us(p, POOL_OP_ATTACH, 0);
}

void ask_sent(struct stag_pool *p, uint32_t message)
{
	struct client_message *m = &p->device.messages[message % NODE_DEPTH];

	m->posted = false;
	message_put(p, m);
}

/* ---- answers ----------------------------------------------------------------------------- */

static struct op *find_asked(struct stag_pool *p, uint64_t sequence)
{
	uint32_t index = (uint32_t)sequence;
	struct op *op = NULL;

	if (!(sequence & CLIENT_OWN))
		op = p->self.window[sequence % POOL_WINDOW];
	else if (index < p->queue.num_ops)
		op = p->queue.ops[index];
	return op && op->stage == OP_ASKED && op->sequence == sequence ? op : NULL;
}

/* Copies the value of a read that the node served, or the bytes of another answer. Returns 0 or an errno value. */
static int copy_answer(struct op *op, const struct pool_answer *a)
{
	if (is_read(op) && (op->io.length > ANSWER_INLINE || a->length == 0))
		return a->ptr.length <= op->io.length ? 0 : EPROTO;
	if (is_read(op)) {
		if (a->length > op->io.length || a->length != a->ptr.length)
			return EPROTO;
		memcpy(op->io.to, a->bytes, a->length);
		return 0;
	}
	if (!pool_op_is_own(op->wire_op) || a->length == 0)
		return 0;
	op->answer = malloc(a->length);
	if (!op->answer)
		return ENOMEM;
	memcpy(op->answer, a->bytes, a->length);
	return 0;
}

static void handle_answer(struct stag_pool *p, struct op *op, const struct pool_answer *a)
{
	int error = (int)a->status;

	if (--op->message->unanswered == 0)
		message_put(p, op->message);
	op->message = NULL;
	p->queue.asking--;
	p->queue.uploads -= is_upload(op);
	op->outcome.ptr = a->ptr;
	op->outcome.version = a->version;
	op->outcome.length = pool_op_is_own(op->wire_op) ? a->length : a->ptr.length;
	if (error == 0)
		error = copy_answer(op, a);
	client_op_finish(p, op, error);
}

bool ask_handle_message(struct stag_pool *p, const void *bytes, size_t length)
{
	struct pool_message message;
	struct pool_answer answer;
	struct op *op;
	size_t where = 0;

	if (pool_message_read(bytes, length, &where, &message) != 0 ||
	    message.kind != POOL_MESSAGE_ANSWERS)
		return false;
	for (unsigned int i = 0; i < message.count; i++) {
		if (pool_answer_read(bytes, length, &where, &answer) != 0)
			return false;
		if (p->link.stage == LINK_ATTACHING) {
			if (answer.op != POOL_OP_ATTACH)
				return false;
			link_attached(p, &message, &answer);
			if (p->link.stage != LINK_UP)
				return true;
			continue;
		}
		if (answer.op == POOL_OP_STAGING) {
			if (!stage_hear(p, &answer))
				return false;
			continue;
		}
		if (answer.op == POOL_OP_ENROL && p->link.enrolling) {
			link_enrolled(p, &message, &answer);
			if (p->link.stage != LINK_UP)
				return true;
			continue;
		}
		op = find_asked(p, answer.sequence);
		if (!op || message.epoch != p->link.epoch)
			return false;
		handle_answer(p, op, &answer);
	}
	return true;
}

void ask_closed(struct stag_pool *p, uint32_t stag)
{
	for (uint64_t s = p->self.lowest; s < p->self.next_sequence; s++) {
		struct op *op = p->self.window[s % POOL_WINDOW];

		if (op && op->advertised && op->stag == stag)
			op->advertised = false;
	}
}

/* ---- the link is lost --------------------------------------------------------------------- */

static void requeue_asked(struct stag_pool *p, struct op *op)
{
	memory_release(p, op);
	op->message = NULL;
	op->stage = OP_TO_ASK;
}

void ask_lost(struct stag_pool *p)
{
	p->queue.asking = p->queue.uploads = 0;
	p->device.free_messages = NULL;
	for (uint32_t i = 0; i < NODE_DEPTH; i++) {
		p->device.messages[i].posted = false;
		p->device.messages[i].unanswered = 0;
		message_put(p, &p->device.messages[i]);
	}
	for (uint32_t i = 0; i < p->queue.num_ops; i++) {
		if (p->queue.ops[i]->stage == OP_ASKED && !ask_is_change(p->queue.ops[i])) {
			requeue_asked(p, p->queue.ops[i]);
			client_op_push(&p->queue.to_ask, p->queue.ops[i]);
		}
	}
	/* Changes go first, in their order, before requests that were never sent. */
	for (uint64_t s = p->self.next_sequence; s-- > p->self.lowest;) {
		struct op *op = p->self.window[s % POOL_WINDOW];

		if (op && op->sequence == s && op->stage == OP_ASKED) {
			requeue_asked(p, op);
			client_op_push_front(&p->queue.to_ask, op);
		}
	}
}

/* Fails the changes that wait: none of them was sent. */
void ask_not_enrolled(struct stag_pool *p, int error)
{
	struct client_op_list all = p->queue.to_ask;
	struct op *op;

	p->queue.to_ask = (struct client_op_list){0};
	while ((op = client_op_pop(&all))) {
		if (ask_is_change(op))
			client_op_finish(p, op, error);
		else
			client_op_push(&p->queue.to_ask, op);
	}
}

void ask_forgotten(struct stag_pool *p)
{
	struct client_op_list all = p->queue.to_ask;
	struct op *op;

	p->queue.to_ask = (struct client_op_list){0};
	while ((op = client_op_pop(&all))) {
		bool unknown = op->sent && ask_is_change(op);

		ask_release(p, op);
		op->stage = OP_TO_ASK;
		if (unknown)
			client_op_finish(p, op, ESTALE);
		else
			client_op_push(&p->queue.to_ask, op);
	}
	client_new_id(p);
}
