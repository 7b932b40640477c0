// SPDX-License-Identifier: BSD-2-Clause
/*
 * 18-datagrams - one queue pair that sends to any peer, and answers the sender.
 *
 *     cc 18-datagrams.c meet.c -libverbs -o 18-datagrams
 *     stag run --device roce -- ./18-datagrams server
 *     stag run --device roce -- ./18-datagrams client 127.0.0.1 PORT
 *
 * A UD queue pair has no peer: each work request names one, by an address handle, a queue pair number and its key.
 * Datagrams may be lost, so the client asks again until it is answered.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "meet.h"

#define Q_KEY 0x11111111u /* of the receiving queue pair; others do not get in */
#define GRH   40 /* bytes at the beginning of each receive, where the sender's address is put */
#define TEXT  64

struct card {
	uint32_t qp_num;
	union ibv_gid gid;
};

static char memory[GRH + TEXT + TEXT], *const in = memory, *const out = memory + GRH + TEXT;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void post_receive(void)
{
	struct ibv_sge to = {(uintptr_t)in, GRH + TEXT, mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad;

	errno = ibv_post_recv(qp, &receive, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void send_text(struct ibv_ah *ah, uint32_t qp_num, const char *text)
{
	struct ibv_sge from = {(uintptr_t)out, TEXT, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	wr.wr.ud = (typeof(wr.wr.ud)){ah, qp_num, Q_KEY};
	snprintf(out, TEXT, "%s", text);
	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Brings a UD queue pair to RTS: there is no peer to name. */
static void make_ready(void)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

	errno = ibv_modify_qp(qp, &init, mask);
	if (!errno)
		errno = ibv_modify_qp(qp, &rtr, IBV_QP_STATE);
	if (!errno)
		errno = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (errno)
		die("ibv_modify_qp");
}

static void create(struct ibv_context *context)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_UD, .sq_sig_all = 1};

	attr.cap = (struct ibv_qp_cap){
		.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	pd = ibv_alloc_pd(context);
	cq = attr.send_cq = attr.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	mr = pd ? ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE) : NULL;
	qp = cq && mr ? ibv_create_qp(pd, &attr) : NULL;
	if (!qp)
		die("ibv_create_qp");
}

/* Returns false if no datagram is there. */
static bool take_datagram(struct ibv_wc *wc)
{
	while (meet_try(cq, wc))
		if (wc->opcode == IBV_WC_RECV)
			return true;
	return false;
}

/* Answers: the receive has the sender's address, its completion the queue pair number. */
static void answer(struct ibv_wc *wc)
{
	struct ibv_ah *ah = ibv_create_ah_from_wc(pd, wc, (struct ibv_grh *)in, 1);

	if (!ah)
		die("ibv_create_ah_from_wc");
	printf("queue pair 0x%06x asks '%.*s'\n", wc->src_qp, TEXT, in + GRH);
	post_receive();
	send_text(ah, wc->src_qp, "datagram");
	ibv_destroy_ah(ah);
}

/* Asks once a second until there is an answer. */
static void ask(const struct meeting *m, const struct card *peer)
{
	struct ibv_global_route grh = {peer->gid, .sgid_index = m->gid_index, .hop_limit = 64};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = grh};
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	struct ibv_wc wc;

	if (!ah)
		die("ibv_create_ah");
	for (time_t asked = 0; !take_datagram(&wc); asked = time(NULL))
		if (asked != time(NULL))
			send_text(ah, peer->qp_num, "what are you?");
	printf("the answer is '%.*s'\n", TEXT, in + GRH);
	ibv_destroy_ah(ah);
}

int main(int argc, char **argv)
{
	struct card mine, peer;
	struct meeting m;
	struct ibv_wc wc;

	meet(&m, argc, argv);
	create(m.context);
	make_ready();
	post_receive();
	mine = (struct card){qp->qp_num, m.gid};
	meet_exchange(&m, &mine, &peer, sizeof(mine));
	if (!m.server)
		ask(&m, &peer);
	else /* until the client has its answer, and says so on the socket */
		while (!meet_peer_waits(&m))
			if (take_datagram(&wc))
				answer(&wc);
	meet_exchange(&m, "!", &peer, 1);
	ibv_destroy_qp(qp);
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	meet_end(&m);
	return 0;
}
