// SPDX-License-Identifier: BSD-2-Clause
/*
 * 03-remote-write - put bytes into another process's memory.
 *
 *     cc 03-remote-write.c pair.c -libverbs -lrdmacm -o 03-remote-write
 *     stag run -- ./03-remote-write server
 *     stag run -- ./03-remote-write client 127.0.0.1 PORT
 *
 * The server lends a region: it sends its address and key, and does nothing more.
 * A write gives the server no completion, so the client sends a message when it is
 * done; the message cannot overtake the write.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "pair.h"

static const char text[] = "written from afar";

static int serve(struct pair *p)
{
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	place = (struct place){(uintptr_t)memory, mr->rkey, sizeof(memory)};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	printf("my memory says '%s'\n", memory + 100);
	ibv_dereg_mr(mr);
	return strcmp(memory + 100, text) != 0;
}

static int use_peer(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, (void *)text, sizeof(text), 0);
	struct ibv_sge from = {(uintptr_t)text, sizeof(text), mr ? mr->lkey : 0};
	struct ibv_send_wr write = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_send_wr *bad;
	struct place place;

	if (!mr)
		die("ibv_reg_mr");
	pair_hear(p, &place, sizeof(place));

	/* Any place within the region is possible: here 100 bytes after its beginning. */
	write.wr.rdma.remote_addr = place.addr + 100;
	write.wr.rdma.rkey = place.rkey;
	write.send_flags = IBV_SEND_SIGNALED;
	errno = ibv_post_send(p->id->qp, &write, &bad);
	if (errno)
		die("ibv_post_send");
	pair_wait_sent(p);

	pair_tell(p, "!", 1);
	printf("wrote %zu bytes to key 0x%08x\n", sizeof(text), place.rkey);
	ibv_dereg_mr(mr);
	return 0;
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
