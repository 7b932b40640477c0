// SPDX-License-Identifier: BSD-2-Clause
/*
 * 11-store - a counter and a line of text on storage, near and far.
 *
 *     cc 11-store.c -lstag -libverbs -lrdmacm -o 11-store
 *     stag store format ./shop.img --size 16M --partition goods=8M
 *     stag store set ./shop.img goods --allow local:write --allow remote:write
 *     stag run -- ./11-store ./shop.img:goods
 *
 *     stag store serve ./shop.img &
 *     stag run -- ./11-store 127.0.0.1/goods
 *
 * The same program uses both: its argument says where to connect. A partition is read and written
 * like the memory of a peer, and keeps its contents when the program ends: each run counts one more
 * visitor.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <stag/store.h>

#define COUNTER 0
#define TEXT	4096
#define LENGTH	64

struct memory {
	uint64_t before; /* the counter before the addition */
	char text[LENGTH];
};

static void die(const char *what)
{
	fprintf(stderr, "11-store: %s\n", what);
	exit(1);
}

static void wait_for(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die(n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
}

static void post_request(struct stag_store_endpoint *e, struct ibv_send_wr *wr, struct ibv_mr *mr,
			 void *at, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)at, length, mr->lkey};
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(e->qp, wr, &bad))
		die("ibv_post_send");
	wait_for(e->qp->send_cq);
}

static void add_one(struct stag_store_endpoint *e, struct ibv_mr *mr, struct memory *m)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};

	wr.wr.atomic.remote_addr = e->base + COUNTER;
	wr.wr.atomic.rkey = e->rkey;
	wr.wr.atomic.compare_add = 1;
	post_request(e, &wr, mr, &m->before, sizeof(m->before));
}

static void transfer_text(struct stag_store_endpoint *e, struct ibv_mr *mr, struct memory *m,
			  enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {.opcode = opcode};

	wr.wr.rdma.remote_addr = e->base + TEXT;
	wr.wr.rdma.rkey = e->rkey;
	post_request(e, &wr, mr, m->text, LENGTH);
}

int main(int argc, char **argv)
{
	struct stag_store_connect_attr attr = {0}; /* defaults: the endpoint makes its own queues */
	struct stag_store_endpoint *e;
	struct memory *m;
	struct ibv_mr *mr;

	if (argc != 2)
		die("usage: 11-store PATH:PARTITION | HOST[:PORT]/PARTITION");
	e = stag_store_connect(argv[1], &attr);
	if (!e)
		die(stag_store_error());
	m = calloc(1, sizeof(*m));
	mr = m ? ibv_reg_mr(e->qp->pd, m, sizeof(*m), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!mr)
		die("ibv_reg_mr");

	printf("%s: %" PRIu64 " bytes, %s\n", argv[1], e->size, e->id ? "far" : "near");
	add_one(e, mr, m);
	transfer_text(e, mr, m, IBV_WR_RDMA_READ);
	printf("visitor %" PRIu64 "; the last one left '%s'\n", m->before + 1, m->text);
	snprintf(m->text, LENGTH, "greetings from visitor %" PRIu64, m->before + 1);
	transfer_text(e, mr, m, IBV_WR_RDMA_WRITE);
	transfer_text(e, mr, m, IBV_WR_RDMA_READ); /* now it has arrived, near or far */

	stag_store_disconnect(e);
	ibv_dereg_mr(mr);
	free(m);
	return 0;
}
