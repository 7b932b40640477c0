// SPDX-License-Identifier: BSD-2-Clause
/*
 * 07-counters - what the adapter did for a thousand small writes.
 *
 *     cc 07-counters.c pair.c -lstag-verbs -libverbs -lrdmacm -o 07-counters
 *     ./07-counters server
 *     ./07-counters client 127.0.0.1 PORT
 *
 * stagdv.h has what verbs lack, for the software adapter only. A program that is
 * linked with libstag-verbs needs no 'stag run'. Writes that are posted as a list
 * leave in one system call.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <infiniband/verbs.h>
#include <stag/stagdv.h>

#include "pair.h"

#define WRITES 1024
#define LIST   16
#define SIZE   64

static char memory[SIZE];

static int serve(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, SIZE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	place = (struct place){(uintptr_t)memory, mr->rkey, SIZE};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	ibv_dereg_mr(mr);
	return 0;
}

/* Posts one list of writes; the completion of the last one covers all. */
static void write_list(struct pair *p, const struct place *place, const struct ibv_mr *mr)
{
	struct ibv_sge from = {(uintptr_t)memory, SIZE, mr->lkey};
	struct ibv_send_wr list[LIST], *bad;

	for (int i = 0; i < LIST; i++) {
		list[i] = (struct ibv_send_wr){.next = i + 1 < LIST ? &list[i + 1] : NULL,
					       .sg_list = &from,
					       .num_sge = 1,
					       .opcode = IBV_WR_RDMA_WRITE};
		list[i].wr.rdma.remote_addr = place->addr;
		list[i].wr.rdma.rkey = place->rkey;
	}
	list[LIST - 1].send_flags = IBV_SEND_SIGNALED;
	errno = ibv_post_send(p->id->qp, list, &bad);
	if (errno)
		die("ibv_post_send");
	pair_wait_sent(p);
}

static int use_peer(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, SIZE, 0);
	struct stagdv_counters a, b;
	struct place place;

	if (!mr)
		die("ibv_reg_mr");
	pair_hear(p, &place, sizeof(place));
	if (!stagdv_is_supported(p->id->verbs->device) ||
	    stagdv_query_qp_counters(p->id->qp, &a, sizeof(a))) {
		fprintf(stderr, "this needs the software adapter\n");
		return 1;
	}
	for (int i = 0; i < WRITES / LIST; i++)
		write_list(p, &place, mr);
	stagdv_query_qp_counters(p->id->qp, &b, sizeof(b));
	printf("%" PRIu64 " messages with %" PRIu64 " bytes of payload: %" PRIu64
	       " bytes in %" PRIu64 " system calls\n",
	       b.tx_msgs - a.tx_msgs, b.tx_payload - a.tx_payload, b.tx_bytes - a.tx_bytes,
	       b.tx_calls - a.tx_calls);
	pair_tell(p, "!", 1);
	ibv_dereg_mr(mr);
	return b.tx_msgs - a.tx_msgs != WRITES || b.tx_payload - a.tx_payload != WRITES * SIZE ||
	       b.tx_calls - a.tx_calls >= WRITES;
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
