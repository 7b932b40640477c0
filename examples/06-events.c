// SPDX-License-Identifier: BSD-2-Clause
/*
 * 06-events - sleep until something is complete, as in an event loop.
 *
 *     cc 06-events.c pair.c -libverbs -lrdmacm -o 06-events
 *     stag run -- ./06-events server
 *     stag run -- ./06-events client 127.0.0.1 PORT
 *
 * An armed completion queue raises one event at its next completion, on a channel
 * whose descriptor poll(2) understands. The order matters: arm, poll the queue
 * once more, and only then sleep; otherwise a completion that came in between is
 * missed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "pair.h"

#define ROUNDS 16
#define BLOCK  65536

static char memory[BLOCK];

static int serve(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, BLOCK, IBV_ACCESS_REMOTE_READ);
	struct place place;
	char done;

	if (!mr)
		die("ibv_reg_mr");
	memset(memory, 'x', BLOCK);
	place = (struct place){(uintptr_t)memory, mr->rkey, BLOCK};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	ibv_dereg_mr(mr);
	return 0;
}

static void post_read(struct pair *p, const struct place *place, const struct ibv_mr *mr)
{
	struct ibv_sge to = {(uintptr_t)memory, BLOCK, mr->lkey};
	struct ibv_send_wr read = {.sg_list = &to,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	read.wr.rdma.remote_addr = place->addr;
	read.wr.rdma.rkey = place->rkey;
	errno = ibv_post_send(p->id->qp, &read, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Reaps completions. Returns how many. */
static int reap_completions(struct ibv_cq *cq)
{
	struct ibv_wc wc[ROUNDS];
	int n = ibv_poll_cq(cq, ROUNDS, wc);

	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	return n;
}

/* An event loop calls this when the descriptor is readable. */
static void handle_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(channel, &cq, &context)) {
		if (errno == EAGAIN)
			return;
		die("ibv_get_cq_event");
	}
	ibv_ack_cq_events(cq, 1);
}

static int use_peer(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, BLOCK,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_comp_channel *channel = p->id->send_cq_channel;
	struct pollfd sleeper = {channel->fd, POLLIN, 0};
	int complete = 0, wakes = 0, n;
	struct place place;

	if (!mr)
		die("ibv_reg_mr");
	pair_hear(p, &place, sizeof(place));
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	for (int i = 0; i < ROUNDS; i++)
		post_read(p, &place, mr);
	while (complete < ROUNDS) {
		errno = ibv_req_notify_cq(p->id->send_cq, 0);
		if (errno)
			die("ibv_req_notify_cq");
		n = reap_completions(p->id->send_cq);
		complete += n;
		if (n)
			continue;
		poll(&sleeper, 1, -1);
		wakes++;
		handle_event(channel);
	}
	printf("%d reads, slept %d times\n", complete, wakes);
	/* pair_tell() sleeps on the same channel, which has to block for it. */
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK);
	pair_tell(p, "!", 1);
	ibv_dereg_mr(mr);
	return memory[0] != 'x' || memory[BLOCK - 1] != 'x';
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
