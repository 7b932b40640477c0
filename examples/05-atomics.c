// SPDX-License-Identifier: BSD-2-Clause
/*
 * 05-atomics - a counter and a lock in another process's memory.
 *
 *     cc 05-atomics.c pair.c -libverbs -lrdmacm -o 05-atomics
 *     stag run -- ./05-atomics server
 *     stag run -- ./05-atomics client 127.0.0.1 PORT
 *
 * An atomic changes 8 bytes and returns their previous value. On iWARP that is
 * RFC 7306, which not every peer supports; two stag adapters do.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <infiniband/verbs.h>

#include "pair.h"

enum { COUNTER, LOCK, WORDS };

static int serve(struct pair *p)
{
	static uint64_t memory[WORDS] = {[COUNTER] = 100};
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	place = (struct place){(uintptr_t)memory, mr->rkey, sizeof(memory)};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	printf("counter %" PRIu64 ", lock %" PRIu64 "\n", memory[COUNTER], memory[LOCK]);
	ibv_dereg_mr(mr);
	return memory[COUNTER] != 115 || memory[LOCK] != 7;
}

/* Executes one atomic on a word of the place. Returns its previous value. */
static uint64_t atomic(struct pair *p, const struct place *place, unsigned word,
		       enum ibv_wr_opcode op, uint64_t compare_or_add, uint64_t swap)
{
	static uint64_t before;
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, &before, sizeof(before), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge to = {(uintptr_t)&before, sizeof(before), mr ? mr->lkey : 0};
	struct ibv_send_wr wr = {
		.sg_list = &to, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (!mr)
		die("ibv_reg_mr");
	wr.wr.atomic.remote_addr = place->addr + word * sizeof(uint64_t);
	wr.wr.atomic.rkey = place->rkey;
	wr.wr.atomic.compare_add = compare_or_add;
	wr.wr.atomic.swap = swap;
	errno = ibv_post_send(p->id->qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
	pair_wait_sent(p);
	ibv_dereg_mr(mr);
	return before;
}

static int use_peer(struct pair *p)
{
	struct place place;
	uint64_t first, second, owner, late;

	pair_hear(p, &place, sizeof(place));
	first = atomic(p, &place, COUNTER, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
	second = atomic(p, &place, COUNTER, IBV_WR_ATOMIC_FETCH_AND_ADD, 10, 0);
	owner = atomic(p, &place, LOCK, IBV_WR_ATOMIC_CMP_AND_SWP, 0,
		       7); /* free: 7 gets the lock */
	late = atomic(p, &place, LOCK, IBV_WR_ATOMIC_CMP_AND_SWP, 0,
		      8); /* taken: 8 does not get it */
	printf("the counter was %" PRIu64 ", then %" PRIu64 "; the lock was %" PRIu64
	       ", then %" PRIu64 "'s\n",
	       first, second, owner, late);
	pair_tell(p, "!", 1);
	return first != 100 || second != 105 || owner != 0 || late != 7;
}

int main(int argc, char **argv)
{
	struct pair p;
	int rc;

	pair_open(&p, argc, argv);
	rc = p.server ? serve(&p) : use_peer(&p);
	pair_close(&p);
	return rc;
}
