// SPDX-License-Identifier: BSD-2-Clause
/*
 * body.c - bodies of long values: read in pieces, directly to the program's memory, and hashed as they arrive.
 *
 * Few pieces are in flight at a time, of one value after the other: so the bytes to be hashed are still in the
 * processor's cache, and short reads do not wait for long. Pieces arrive in the order in which they were posted.
 */
#include "pool/client/client.h"

#include <errno.h>

#include "base/clock.h"

#define PIECE (128u << 10)

static struct pool_read *reading(struct op *op)
{
	return op->io.op == STAG_POOL_GET ? &op->lookup.read : &op->read;
}

static uint32_t piece_at(struct op *op, uint64_t at)
{
	uint64_t left = reading(op)->length - at;

	return left < PIECE ? (uint32_t)left : PIECE;
}

static int post_next_piece(struct stag_pool *p, struct op *op)
{
	struct ibv_sge sge = {(uintptr_t)op->io.to + op->posted, piece_at(op, op->posted),
			      op->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_BODY, op->index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {reading(op)->address + op->posted, p->link.facts.rkey},
	};
	struct ibv_send_wr *bad;
	int rc = -ibv_post_send(p->link.id->qp, &wr, &bad);

	if (rc == 0) {
		op->posted += sge.length;
		p->queue.pieces++;
	}
	return rc;
}

void body_pump(struct stag_pool *p)
{
	int rc = 0;

	while (rc == 0 && p->link.stage == LINK_UP && p->queue.pieces < CLIENT_PIECES &&
	       p->queue.bodies.first) {
		struct op *op = p->queue.bodies.first;

		rc = post_next_piece(p, op);
		if (rc == 0 && op->posted == reading(op)->length)
			client_op_pop(&p->queue.bodies);
	}
	if (rc != 0)
		link_lost(p, clock_ns());
}

int body_start(struct stag_pool *p, struct op *op)
{
	uint32_t rkey;
	int rc;

	if (!op->hashing)
		op->hashing = pool_hashing_new();
	if (!op->hashing)
		return -ENOMEM;
	rc = memory_use(p, op, op->io.to, op->io.length, IBV_ACCESS_LOCAL_WRITE, &op->lkey, &rkey);
	if (rc != 0)
		return rc;
	pool_hashing_start(op->hashing);
	op->posted = op->arrived = 0;
	op->stage = OP_READING;
	p->queue.reading++;
	client_op_push(&p->queue.bodies, op);
	return 0;
}

bool body_arrived(struct stag_pool *p, struct op *op)
{
	uint32_t length = piece_at(op, op->arrived);

	p->queue.pieces--;
	body_pump(p);		     /* the adapter continues while we hash */
	if (op->stage != OP_READING) /* posting it has lost the link */
		return false;
	pool_hashing_add(op->hashing, (const uint8_t *)op->io.to + op->arrived, length);
	op->arrived += length;
	if (op->arrived < reading(op)->length)
		return false;
	reading(op)->hash = pool_hashing_end(op->hashing);
	return true;
}

void body_lost(struct stag_pool *p)
{
	p->queue.bodies = (struct client_op_list){0};
	p->queue.pieces = 0;
}
