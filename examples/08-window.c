// SPDX-License-Identifier: BSD-2-Clause
/*
 * 08-window - give a peer access to memory, and revoke it.
 *
 *     cc 08-window.c pair.c -libverbs -lrdmacm -o 08-window
 *     stag run -- ./08-window server
 *     stag run -- ./08-window client 127.0.0.1 PORT
 *
 * A window opens a part of a region to one peer under a key of its own. Opening and
 * closing are work requests: cheap, and in order with the sends that notify the
 * peer. A region's own key, by contrast, is valid until the region is deregistered.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_verbs.h>

#include "pair.h"

#define OFFSET 1000
#define LENGTH 64

static void post_and_wait(struct pair *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	errno = ibv_post_send(p->id->qp, wr, &bad);
	if (errno)
		die("ibv_post_send");
}

static void open_window(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};

	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey); /* a new key each time */
	bind.bind_mw.bind_info.mr = mr;
	bind.bind_mw.bind_info.addr = (uintptr_t)mr->addr + OFFSET;
	bind.bind_mw.bind_info.length = LENGTH;
	bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	post_and_wait(p, &bind);
	pair_wait_sent(p);
	mw->rkey = bind.bind_mw.rkey;
}

static void close_window(struct pair *p, struct ibv_mw *mw)
{
	struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};

	post_and_wait(p, &invalidate);
	pair_wait_sent(p);
}

/* The receive that is always posted is flushed when the connection ends. */
static void wait_for_the_end(struct pair *p)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(p->id, &wc) < 0)
		die("waiting for the end");
	printf("the peer used a closed window: %s\n", ibv_wc_status_str(wc.status));
}

static int serve(struct pair *p)
{
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(p->id->pd, IBV_MW_TYPE_2);
	struct place place;
	char done;

	if (!mr || !mw)
		die("region and window");
	strcpy(memory + OFFSET, "only while the window is open");
	open_window(p, mw, mr);
	place = (struct place){(uintptr_t)memory + OFFSET, mw->rkey, LENGTH};
	pair_tell(p, &place, sizeof(place));
	pair_hear(p, &done, sizeof(done));
	close_window(p, mw);
	pair_tell(p, "!", 1);
	wait_for_the_end(p);
	ibv_dealloc_mw(mw);
	ibv_dereg_mr(mr);
	return 0;
}

/* Reads the place. Returns the status. */
static enum ibv_wc_status read_place(struct pair *p, const struct place *place, struct ibv_mr *mr)
{
	struct ibv_sge to = {(uintptr_t)mr->addr, place->len, mr->lkey};
	struct ibv_send_wr read = {.sg_list = &to, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	struct ibv_wc wc;

	read.wr.rdma.remote_addr = place->addr;
	read.wr.rdma.rkey = place->rkey;
	post_and_wait(p, &read);
	if (rdma_get_send_comp(p->id, &wc) < 0)
		die("waiting for the read");
	return wc.status;
}

static int use_peer(struct pair *p)
{
	static char sink[LENGTH];
	struct ibv_mr *mr = ibv_reg_mr(p->id->pd, sink, sizeof(sink),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	enum ibv_wc_status first, second;
	struct place place;
	char closed;

	if (!mr)
		die("ibv_reg_mr");
	pair_hear(p, &place, sizeof(place));
	first = read_place(p, &place, mr);
	printf("open: %s, '%s'\n", ibv_wc_status_str(first), sink);
	pair_tell(p, "!", 1);
	pair_hear(p, &closed, sizeof(closed));
	second = read_place(p, &place, mr);
	printf("closed: %s\n", ibv_wc_status_str(second));
	ibv_dereg_mr(mr);
	return first != IBV_WC_SUCCESS || second == IBV_WC_SUCCESS;
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
