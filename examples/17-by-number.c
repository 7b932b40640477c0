// SPDX-License-Identifier: BSD-2-Clause
/*
 * 17-by-number - connect two queue pairs without rdma_cm, as MPI and NCCL do.
 *
 *     cc 17-by-number.c meet.c -libverbs -o 17-by-number
 *     stag run --device roce -- ./17-by-number server
 *     stag run --device roce -- ./17-by-number client 127.0.0.1 PORT
 *
 * Each side tells the other its queue pair number, its GID and the number of its first packet. With these,
 * ibv_modify_qp() brings it from RESET by INIT and RTR (ready to receive) to RTS (ready to send).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "meet.h"

/* What the other side has to know. */
struct card {
	uint32_t qp_num, psn, rkey, pad;
	uint64_t addr;
	union ibv_gid gid;
};

static char memory[4096];

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *what)
{
	errno = ibv_modify_qp(qp, attr, mask);
	if (errno)
		die(what);
}

/* INIT: receives may be posted. What the peer may do is said here. */
static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	       "INIT");
}

/* RTR: who the peer is, and how to get there. The peer need not be as far. */
static void to_rtr(struct ibv_qp *qp, const struct meeting *m, const struct card *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer->gid,
				    .sgid_index = m->gid_index,
				    .hop_limit = 64}},
	};

	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	       "RTR");
}

/* RTS: how long to wait for an answer (4.096 us * 2^timeout), and how often to try again. */
static void to_rts(struct ibv_qp *qp, uint32_t psn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .sq_psn = psn,
				   .timeout = 18,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .max_rd_atomic = 1};

	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC,
	       "RTS");
}

/* A write with a number for the peer: it consumes a receive there, which tells that all bytes are placed. */
static void write_text(struct ibv_qp *qp, const struct ibv_mr *mr, const struct card *peer)
{
	struct ibv_sge from = {(uintptr_t)memory, sizeof("connected by number"), mr->lkey};
	struct ibv_send_wr write = {.sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				    .send_flags = IBV_SEND_SIGNALED,
				    .imm_data = htonl(17),
				    .wr.rdma = {peer->addr, peer->rkey}};
	struct ibv_send_wr *bad;

	strcpy(memory, "connected by number");
	errno = ibv_post_send(qp, &write, &bad);
	if (errno)
		die("ibv_post_send");
}

int main(int argc, char **argv)
{
	struct meeting m;
	meet(&m, argc, argv);

	struct ibv_pd *pd = ibv_alloc_pd(m.context);
	struct ibv_cq *cq = ibv_create_cq(m.context, 4, NULL, NULL, 0);
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, sizeof(memory),
					    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
			       : NULL;
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1}};
	struct ibv_qp *qp = mr && cq ? ibv_create_qp(pd, &attr) : NULL;
	struct ibv_recv_wr receive = {0}, *bad;
	if (!qp)
		die("ibv_create_qp");

	struct card mine = {qp->qp_num, 1000, mr->rkey, 0, (uintptr_t)memory, m.gid}, peer;
	meet_exchange(&m, &mine, &peer, sizeof(mine));
	to_init(qp);
	errno = ibv_post_recv(qp, &receive, &bad);
	if (errno)
		die("ibv_post_recv");
	to_rtr(qp, &m, &peer);
	to_rts(qp, mine.psn);

	if (m.server) {
		struct ibv_wc wc = meet_wait(cq);
		printf("number %u arrived; my memory says '%s'\n", ntohl(wc.imm_data), memory);
	} else {
		write_text(qp, mr, &peer);
		meet_wait(cq);
		printf("wrote to queue pair 0x%06x\n", peer.qp_num);
	}
	/* Neither may go before the other is done. */
	meet_exchange(&m, "!", &peer, 1);

	ibv_destroy_qp(qp);
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	meet_end(&m);
	return 0;
}
