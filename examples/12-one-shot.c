// SPDX-License-Identifier: BSD-2-Clause
/*
 * 12-one-shot - a command and its memory in one post, the end of both in one completion.
 *
 *     cc 12-one-shot.c pair.c $(pkg-config --cflags --libs stag-verbs) -libverbs -lrdmacm -o 12-one-shot
 *     ./12-one-shot server
 *     ./12-one-shot client 127.0.0.1 PORT
 *
 * The client is an initiator, in the words of storage: its command "store this" advertises the
 * memory with the data. The server reads the data, and its answer closes the STag: when the client
 * sees the answer, the STag is closed and freed. Compare 08-window, where each of these steps is a
 * work request of its own.
 */
#include <errno.h>
#include <stdio.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_verbs.h>
#include <stag/stagdv.h>

#include "pair.h"

#define BLOCK	 4096
#define COMMANDS 4

static struct ibv_wc next_message(struct pair *p)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(p->id, &wc) < 0 || wc.status != IBV_WC_SUCCESS)
		die("waiting for a message");
	if (rdma_post_recv(p->id, NULL, p->buffer[0], PAIR_MESSAGE, p->mr))
		die("rdma_post_recv");
	return wc;
}

static void fetch_data(struct pair *p, struct ibv_mr *to, uint32_t stag)
{
	struct ibv_sge sge = {(uintptr_t)to->addr, BLOCK, to->lkey};
	struct ibv_send_wr *bad, read = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_READ,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {.remote_addr = 0, .rkey = stag}};

	errno = ibv_post_send(p->id->qp, &read, &bad);
	if (errno)
		die("ibv_post_send");
	pair_wait_sent(p);
}

static int serve(struct pair *p)
{
	static char disk[BLOCK];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, disk, BLOCK,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	for (int i = 0; i < COMMANDS && mr; i++) {
		struct ibv_wc wc = next_message(p);
		struct stagdv_close answer = {.send_flags = IBV_SEND_SIGNALED,
					      .stag = wc.invalidated_rkey};

		if (!(wc.wc_flags & STAGDV_WC_ADVERTISED))
			return 1; /* not supported: the STag would be in the message */
		fetch_data(p, mr, wc.invalidated_rkey);
		printf("stored: %s\n", disk);
		errno = stagdv_post_send_close(p->id->qp, &answer);
		if (errno)
			die("stagdv_post_send_close");
		pair_wait_sent(p);
	}
	ibv_dereg_mr(mr);
	return 0;
}

/* Sends one command. Returns true if the answer closed the STag that it advertised. */
static bool store_block(struct pair *p, struct ibv_mr *mr, uint32_t number)
{
	struct ibv_sge memory = {(uintptr_t)mr->addr, BLOCK, mr->lkey};
	struct stagdv_advertise command = {
		.memory = &memory,
		.num_memory = 1,
		.access = IBV_ACCESS_REMOTE_READ,
		.reference = number,
		.stag_at = -1,
	};
	uint32_t stag;
	struct ibv_wc wc;

	snprintf(mr->addr, BLOCK, "block %u", number);
	errno = stagdv_post_send_advertise(p->id->qp, &command, &stag);
	if (errno)
		die("stagdv_post_send_advertise");
	wc = next_message(p);
	return (wc.wc_flags & STAGDV_WC_CLOSED) && wc.invalidated_rkey == stag &&
	       wc.vendor_err == number;
}

static int use_peer(struct pair *p)
{
	static char memory[BLOCK];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, BLOCK, IBV_ACCESS_LOCAL_WRITE);
	struct stagdv_counters c;

	for (uint32_t i = 0; i < COMMANDS; i++)
		if (!mr || !store_block(p, mr, i))
			die("a command");
	stagdv_query_qp_counters(p->id->qp, &c, sizeof(c));
	printf("%d commands: %llu posts, %llu completions, %llu STags, %llu closed\n", COMMANDS,
	       (unsigned long long)c.posts, (unsigned long long)c.completions,
	       (unsigned long long)c.advertised, (unsigned long long)c.closed);
	return ibv_dereg_mr(mr) != 0 || c.posts != COMMANDS || c.completions != COMMANDS;
}

int main(int argc, char **argv)
{
	struct pair p;
	int rc;

	pair_open(&p, argc, argv);
	if (!stagdv_is_supported(p.id->verbs->device))
		return 77;
	rc = p.server ? serve(&p) : use_peer(&p);
	pair_close(&p);
	return rc;
}
