// SPDX-License-Identifier: BSD-2-Clause
/*
 * stage.c - values that are written to a slot in the node's memory before their request.
 *
 * The node's adapter forwards them to the standbys as they arrive, and its software has nothing to fetch. The
 * request invalidates the slot (a send with invalidate); the node announces when it is open again. A lost link
 * loses its slots: unanswered values are written again, to the next primary's.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <string.h>

/*
 * Shorter values are faster in the message. Those longer than POOL_DIRECT_MAX are not staged: the node fetches
 * them.
 */
#define STAGE_MIN 8192u

bool stage_find(const struct stag_pool *p, size_t length, uint8_t *slot)
{
	const uint32_t shorts = (1u << NODE_SHORTS) - 1;
	uint32_t open = p->link.open;

	if (length < STAGE_MIN || length > POOL_DIRECT_MAX)
		return false;
	open &= length <= NODE_SHORT ? shorts : ~shorts;
	if (open == 0)
		return false;
	*slot = (uint8_t)__builtin_ctz(open);
	return true;
}

int stage_request(struct stag_pool *p, struct op *op, struct pool_request *rq)
{
	uint32_t lkey, rkey;

	rq->source = POOL_SOURCE_STAGED;
	rq->source_address = p->link.facts.staging_address + node_slot_at(op->slot);
	return memory_use(p, op, op->io.from, op->io.length, 0, &lkey, &rkey);
}

int stage_post(struct stag_pool *p, struct op *op, struct ibv_send_wr *message)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)op->io.from,
		.length = (uint32_t)op->io.length,
		.lkey = op->loan ? op->loan->mr->lkey : op->mr->lkey,
	};
	uint32_t rkey = p->link.slot_rkey[op->slot];
	struct ibv_send_wr wr = {
		.wr_id = message->wr_id,
		.next = message,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {p->link.facts.staging_address + node_slot_at(op->slot), rkey},
	};
	struct ibv_send_wr *bad;

	message->opcode = IBV_WR_SEND_WITH_INV;
	message->invalidate_rkey = rkey;
	p->link.open &= ~(1u << op->slot);
	return -ibv_post_send(p->link.id->qp, &wr, &bad);
}

bool stage_hear(struct stag_pool *p, const struct pool_answer *answer)
{
	struct node_slot opened;

	if (p->link.facts.staging_length == 0 || answer->length % sizeof(opened) != 0)
		return false;
	for (uint32_t at = 0; at < answer->length; at += sizeof(opened)) {
		memcpy(&opened, (const uint8_t *)answer->bytes + at, sizeof(opened));
		if (opened.slot >= NODE_SLOTS || (p->link.open & 1u << opened.slot))
			return false;
		p->link.open |= 1u << opened.slot;
		p->link.slot_rkey[opened.slot] = opened.rkey;
	}
	return true;
}
