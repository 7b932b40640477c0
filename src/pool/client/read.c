// SPDX-License-Identifier: BSD-2-Clause
/*
 * read.c - one-sided reads: the steps of pool_read and pool_lookup, many of them in one post.
 *
 * Destination of a step's bytes: short ones go to the op's own buffer. A longer value goes directly to the
 * program's memory if that was lent (READ only), or if it has a body (body.c), which is long enough for a
 * registration; otherwise to a buffer of the library, from which it is copied once its hash was checked. The
 * bytes at `to` are undefined before the read is done.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define HEADER sizeof(struct pool_object)

static bool is_get(const struct op *op)
{
	return op->io.op == STAG_POOL_GET;
}

static struct pool_read *reading(struct op *op)
{
	return is_get(op) ? &op->lookup.read : &op->read;
}

static bool wants_body(const struct op *op)
{
	return is_get(op) ? op->lookup.reading && op->lookup.read.body : op->read.body;
}

static void want_bytes(const struct op *op, uint64_t *address, uint64_t *length)
{
	*address = is_get(op) ? op->lookup.address : op->read.address;
	*length = is_get(op) ? op->lookup.length : op->read.length;
}

/* ---- freshness ------------------------------------------------------------------------------ */

/*
 * An adapter that enforces no lease serves reads whatever has become of its node. There, reads are delivered when
 * the node, queried later, has answered that it is primary: so it was primary when its memory was read. One query
 * is in flight at a time, about everything that was read before it.
 */
static void deliver(struct stag_pool *p, struct op *op, int error)
{
	if (!(p->link.facts.flags & NODE_UNLEASED)) {
		client_op_finish(p, op, error);
		return;
	}
	op->outcome.error = error;
	op->stage = OP_READ;
	client_op_push(&p->queue.unproven, op);
}

static void finish_proving(struct stag_pool *p, int error)
{
	struct op *op;

	while ((op = client_op_pop(&p->queue.proving)))
		client_op_finish(p, op, error ? error : op->outcome.error);
}

void read_prove(struct stag_pool *p)
{
	struct op *op;

	if (!p->queue.unproven.first || p->queue.prover || p->link.stage != LINK_UP)
		return;
	p->queue.proving = p->queue.unproven;
	p->queue.unproven = (struct client_op_list){0};
	op = client_op_get(p);
	if (!op) {
		finish_proving(p, ENOMEM);
		return;
	}
	op->io = (struct stag_pool_io){0};
	op->wire_op = POOL_OP_FRESH;
	op->whose = OP_FOR_US;
	op->stage = OP_TO_ASK;
	client_op_push_front(&p->queue.to_ask, op);
	p->queue.prover = op;
}

/* Delivers the reads that this FRESH request was about. One of a lost link is ignored: it proves nothing. */
void read_proven(struct stag_pool *p, const struct op *prover, int error)
{
	if (prover != p->queue.prover)
		return;
	p->queue.prover = NULL;
	finish_proving(p, error);
}

/* ---- outcomes ----------------------------------------------------------------------------- */

/* Lets the node serve the read instead. */
static void ask_instead(struct stag_pool *p, struct op *op)
{
	p->counts.asked_reads++;
	memory_release(p, op);
	op->stage = OP_TO_ASK;
	client_op_push(&p->queue.to_ask, op);
}

static void read_done(struct stag_pool *p, struct op *op)
{
	const struct pool_read *r = reading(op);

	op->outcome.ptr = r->ptr;
	op->outcome.ptr.key = p->link.facts.key;
	op->outcome.version = r->version;
	op->outcome.length = r->value_length;
	p->counts.reads++;
	if (r->value_length > op->io.length) {
		deliver(p, op, EMSGSIZE);
		return;
	}
	if (r->value_length != 0 && op->stored + r->at != (uint8_t *)op->io.to)
		memmove(op->io.to, op->stored + r->at, r->value_length);
	deliver(p, op, 0);
}

/* Returns whether a body is next that does not fit the program's buffer: it is not read. */
static bool is_too_long(const struct op *op)
{
	return wants_body(op) &&
	       (is_get(op) ? op->lookup.read.length : op->read.length) > op->io.length;
}

static void read_body(struct stag_pool *p, struct op *op)
{
	int rc = body_start(p, op);

	op->stored = op->io.to;
	if (rc != 0)
		client_op_finish(p, op, -rc);
}

static void step_read(struct stag_pool *p, struct op *op, enum pool_step step)
{
	switch (step) {
	case POOL_MORE:
		if (is_too_long(op)) {
			read_done(p, op);
			return;
		}
		if (wants_body(op)) {
			read_body(p, op);
			return;
		}
		op->stage = OP_TO_READ;
		client_op_push(&p->queue.to_read, op);
		return;
	case POOL_DONE:
		read_done(p, op);
		return;
	case POOL_GONE:
		p->counts.reads++;
		deliver(p, op, ENOENT);
		return;
	case POOL_ASK:
		ask_instead(p, op);
		return;
	}
}

/* ---- destinations -------------------------------------------------------------------------- */

static int to_small(struct stag_pool *p, struct op *op, struct ibv_sge *sge, uint64_t length)
{
	const struct slab *slab = p->queue.slabs;

	while (op < slab->ops || op >= slab->ops + sizeof(slab->ops) / sizeof(slab->ops[0]))
		slab = slab->next;
	op->head = op->small;
	op->stored = op->small + HEADER;
	sge[0] = (struct ibv_sge){(uintptr_t)op->small, (uint32_t)length, slab->mr->lkey};
	return 1;
}

static int to_buffer(struct stag_pool *p, struct op *op, struct ibv_sge *sge, uint64_t length)
{
	int rc = memory_buffer(p, op, length);

	if (rc != 0)
		return rc;
	op->head = op->buffer->bytes;
	op->stored = op->buffer->bytes + HEADER;
	sge[0] = (struct ibv_sge){(uintptr_t)op->head, (uint32_t)length, op->buffer->mr->lkey};
	return 1;
}

/* Reads the header to the op's own buffer, and the bytes behind it to the program's memory. */
static int to_both(struct stag_pool *p, struct op *op, struct ibv_sge *sge, uint64_t length)
{
	uint32_t lkey, rkey;
	int rc = memory_use(p, op, op->io.to, op->io.length, IBV_ACCESS_LOCAL_WRITE, &lkey, &rkey);

	if (rc != 0)
		return rc;
	to_small(p, op, sge, HEADER);
	op->stored = op->io.to;
	sge[1] = (struct ibv_sge){(uintptr_t)op->io.to, (uint32_t)(length - HEADER), lkey};
	return 2;
}

/* Returns the number of pieces, or -errno. */
static int place_value(struct stag_pool *p, struct op *op, struct ibv_sge *sge, uint64_t length)
{
	if (length <= CLIENT_SMALL)
		return to_small(p, op, sge, length);
	if (!is_get(op) && length - HEADER <= op->io.length &&
	    memory_is_lent(p, op->io.to, op->io.length))
		return to_both(p, op, sge, length);
	return to_buffer(p, op, sge, length);
}

/* ---- posting ------------------------------------------------------------------------------- */

struct batch {
	struct ibv_send_wr wr[CLIENT_BATCH];
	struct ibv_sge sge[CLIENT_BATCH][2];
	int n;
};

static void add_work(struct stag_pool *p, struct batch *b, struct op *op)
{
	struct ibv_send_wr *wr = &b->wr[b->n];
	uint64_t address, length;
	int pieces;

	want_bytes(op, &address, &length);
	pieces = place_value(p, op, b->sge[b->n], length);
	if (pieces < 0) {
		client_op_finish(p, op, -pieces);
		return;
	}
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id_of(WR_READ, op->index),
		.sg_list = b->sge[b->n],
		.num_sge = pieces,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = address, .rkey = p->link.facts.rkey},
	};
	if (b->n > 0)
		b->wr[b->n - 1].next = wr;
	b->n++;
	op->stage = OP_READING;
	p->queue.reading++;
}

void read_start(struct stag_pool *p, struct op *op)
{
	op->stage = OP_TO_READ;
	client_op_push(&p->queue.to_read, op);
}

/*
 * Starts from the beginning: the region's place is known once a link is up, and steps on a lost link are void.
 * Returns false if the pointer leads to no object of this pool.
 */
static bool begin_read(struct stag_pool *p, struct op *op)
{
	const struct node_facts *f = &p->link.facts;
	struct pool_place here = {.base = f->address,
				  .size = f->size,
				  .index_at = f->index_at,
				  .num_buckets = f->num_buckets,
				  .name_key = {f->name_key[0], f->name_key[1]},
				  .key = f->key};
	uint32_t hint = op->io.length < CLIENT_LOOK ? (uint32_t)op->io.length : CLIENT_LOOK;

	op->begun = true;
	if (is_get(op)) {
		pool_lookup_start(&op->lookup, &here, op->name, op->name_length, hint);
		return true;
	}
	pool_read_start(&op->read, f->address, f->size, &op->io.ptr, NULL, 0);
	return op->read.length != 0 && op->io.ptr.key == f->key && op->io.ptr.generation != 0;
}

static void fill_batch(struct stag_pool *p, struct batch *b)
{
	while (b->n < CLIENT_BATCH && p->queue.reading < p->conf.depth && p->queue.to_read.first) {
		struct op *op = client_op_pop(&p->queue.to_read);

		if (!(p->link.facts.rights & STAG_POOL_RIGHT_READ))
			client_op_finish(p, op, EACCES);
		else if (p->link.facts.flags & NODE_LIMITED)
			ask_instead(p, op);
		else if (!op->begun && !begin_read(p, op))
			step_read(p, op, POOL_GONE);
		else
			add_work(p, b, op);
	}
}

void read_pump(struct stag_pool *p)
{
	struct batch b;
	struct ibv_send_wr *bad;

	while (p->link.stage == LINK_UP && p->queue.to_read.first &&
	       p->queue.reading < p->conf.depth) {
		b.n = 0;
		fill_batch(p, &b);
		if (b.n != 0 && ibv_post_send(p->link.id->qp, b.wr, &bad) != 0)
			link_lost(p, clock_ns());
	}
	body_pump(p);
}

/* ---- completions ----------------------------------------------------------------------------- */

void read_arrived(struct stag_pool *p, uint32_t index, bool is_piece)
{
	struct op *op = index < p->queue.num_ops ? p->queue.ops[index] : NULL;
	unsigned int tries;
	enum pool_step next;

	if (!op || op->stage != OP_READING || wants_body(op) != is_piece)
		return;
	if (is_piece && !body_arrived(p, op))
		return;
	p->queue.reading--;
	tries = reading(op)->tries;
	if (is_get(op) && !op->lookup.reading)
		next = pool_lookup_feed(&op->lookup, op->small, NULL);
	else if (is_get(op))
		next = pool_lookup_feed(&op->lookup, op->head, is_piece ? NULL : op->stored);
	else
		next = pool_read_feed(&op->read, op->head, is_piece ? NULL : op->stored);
	p->counts.retried_reads += next == POOL_MORE && reading(op)->tries > tries;
	step_read(p, op, next);
}

void read_lost(struct stag_pool *p)
{
	p->queue.unproven = p->queue.proving = (struct client_op_list){0};
	p->queue.prover = NULL;
	for (uint32_t i = 0; i < p->queue.num_ops; i++) {
		struct op *op = p->queue.ops[i];

		if (op->stage == OP_READING || op->stage == OP_READ) {
			memory_release(p, op);
			read_start(p, op);
		}
		if (op->stage == OP_TO_READ)
			op->begun = false;
	}
	p->queue.reading = 0;
	body_lost(p);
}
