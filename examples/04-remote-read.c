// SPDX-License-Identifier: BSD-2-Clause
/*
 * 04-remote-read - fetch bytes from another process's memory.
 *
 *     cc 04-remote-read.c pair.c -libverbs -lrdmacm -o 04-remote-read
 *     stag run -- ./04-remote-read server
 *     stag run -- ./04-remote-read client 127.0.0.1 PORT
 *
 * The server's program takes no part in the read: it waits for the final message
 * while its adapter answers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "pair.h"

#define HEADER 8

static const char text[] = "header: and the body behind it";

static int serve(struct pair *p)
{
	struct ibv_mr *mr =
		ibv_reg_mr(p->id->pd, (void *)text, sizeof(text), IBV_ACCESS_REMOTE_READ);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	place = (struct place){(uintptr_t)text, mr->rkey, sizeof(text)};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	printf("the client has read my memory\n");
	ibv_dereg_mr(mr);
	return 0;
}

static int use_peer(struct pair *p)
{
	static struct {
		char body[64];
		char header[HEADER + 1];
	} sink;
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, &sink, sizeof(sink),
				       /* iWARP: the response is a write to the sink */
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge to[2];
	struct ibv_send_wr read = {.sg_list = to, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	struct ibv_send_wr rest, *bad;
	struct place place;

	if (!mr)
		die("ibv_reg_mr");
	pair_hear(p, &place, sizeof(place));

	/* Hardware iWARP reads into one buffer only, so this is a list of two reads. */
	to[0] = (struct ibv_sge){(uintptr_t)sink.header, HEADER, mr->lkey};
	to[1] = (struct ibv_sge){(uintptr_t)sink.body, place.len - HEADER, mr->lkey};
	read.wr.rdma.remote_addr = place.addr;
	read.wr.rdma.rkey = place.rkey;
	rest = read;
	rest.sg_list = &to[1];
	rest.wr.rdma.remote_addr = place.addr + HEADER;
	rest.send_flags = IBV_SEND_SIGNALED; /* completions are in order: this one covers both */
	read.next = &rest;
	errno = ibv_post_send(p->id->qp, &read, &bad);
	if (errno)
		die("ibv_post_send");
	pair_wait_sent(p);

	printf("header '%s', body '%s'\n", sink.header, sink.body);
	pair_tell(p, "!", 1);
	ibv_dereg_mr(mr);
	return strncmp(sink.header, text, HEADER) || strcmp(sink.body, text + HEADER);
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
