// SPDX-License-Identifier: BSD-2-Clause
/*
 * 18-datagrams - send to whom you like with one queue pair, and answer who wrote.
 *
 *     cc 18-datagrams.c meet.c -libverbs -o 18-datagrams
 *     stag run --device roce -- ./18-datagrams server
 *     stag run --device roce -- ./18-datagrams client 127.0.0.1 PORT
 *
 * A UD queue pair has no peer: each work request names one, by an address handle, a
 * queue pair number and its key. Datagrams may be lost, so the client asks again
 * until it is answered.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "meet.h"

#define Q_KEY 0x11111111u /* of the receiving queue pair; others do not get in */
#define GRH   40 /* bytes at the beginning of each receive, where the sender's address is put */
#define TEXT  64

struct card {
	uint32_t qp_num;
	union ibv_gid gid;
};

struct datagrams {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char in[GRH + TEXT], out[TEXT];
};

static void post_receive(struct datagrams *d)
{
	struct ibv_sge to = {(uintptr_t)d->in, sizeof(d->in), d->mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad;

	errno = ibv_post_recv(d->qp, &receive, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void send_text(struct datagrams *d, struct ibv_ah *ah, uint32_t qp_num, const char *text)
{
	struct ibv_sge from = {(uintptr_t)d->out, sizeof(d->out), d->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &from,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {ah, qp_num, Q_KEY}},
			   *bad;

	snprintf(d->out, sizeof(d->out), "%s", text);
	errno = ibv_post_send(d->qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Brings a UD queue pair to RTS: there is no peer to name. */
static void make_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};

	errno = ibv_modify_qp(qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (!errno)
		errno = ibv_modify_qp(qp, &rtr, IBV_QP_STATE);
	if (!errno)
		errno = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (errno)
		die("ibv_modify_qp");
}

static void create(struct datagrams *d, struct ibv_context *context)
{
	d->pd = ibv_alloc_pd(context);
	d->channel = ibv_create_comp_channel(context);
	d->cq = d->channel ? ibv_create_cq(context, 8, NULL, d->channel, 0) : NULL;
	d->mr = d->pd ? ibv_reg_mr(d->pd, d, sizeof(*d), IBV_ACCESS_LOCAL_WRITE) : NULL;

	struct ibv_qp_init_attr attr = {
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	d->qp = d->cq && d->mr ? ibv_create_qp(d->pd, &attr) : NULL;
	if (!d->qp)
		die("ibv_create_qp");
	make_ready(d->qp);
	post_receive(d);
}

static void destroy(struct datagrams *d)
{
	ibv_destroy_qp(d->qp);
	ibv_dereg_mr(d->mr);
	ibv_destroy_cq(d->cq);
	ibv_destroy_comp_channel(d->channel);
	ibv_dealloc_pd(d->pd);
}

/* Returns false if no datagram is there. */
static bool take_datagram(struct datagrams *d, struct ibv_wc *wc)
{
	while (ibv_poll_cq(d->cq, 1, wc) == 1) {
		if (wc->status != IBV_WC_SUCCESS) {
			errno = EIO;
			die(ibv_wc_status_str(wc->status));
		}
		if (wc->opcode == IBV_WC_RECV)
			return true;
	}
	return false;
}

/* Sleeps until a datagram arrives. Returns false after ms milliseconds (-1: never), or if the peer writes to the socket. */
static bool wait_for_datagram(struct datagrams *d, int sock, int ms, struct ibv_wc *wc)
{
	struct pollfd fds[] = {{d->channel->fd, POLLIN, 0}, {sock, POLLIN, 0}};
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		/* One that arrives between this call and poll() makes the channel readable. */
		if (ibv_req_notify_cq(d->cq, 0))
			die("ibv_req_notify_cq");
		if (take_datagram(d, wc))
			return true;
		if (poll(fds, 2, ms) <= 0 || fds[1].revents)
			return false;
		if (ibv_get_cq_event(d->channel, &cq, &context))
			die("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
}

/* Answers each datagram, until the client has its answer and says so on the socket. */
static void serve(struct datagrams *d, struct meeting *m)
{
	struct ibv_wc wc;

	while (wait_for_datagram(d, m->sock, -1, &wc)) {
		/* The receive has the sender's address; its queue pair number is in the completion. */
		struct ibv_ah *ah = ibv_create_ah_from_wc(d->pd, &wc, (struct ibv_grh *)d->in, 1);

		if (!ah)
			die("ibv_create_ah_from_wc");
		printf("queue pair 0x%06x asks '%.*s'\n", wc.src_qp, TEXT, d->in + GRH);
		post_receive(d);
		send_text(d, ah, wc.src_qp, "datagram");
		ibv_destroy_ah(ah);
	}
}

static void ask(struct datagrams *d, struct meeting *m, const struct card *peer)
{
	struct ibv_ah_attr to = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = peer->gid, .sgid_index = m->gid_index, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(d->pd, &to);
	struct ibv_wc wc;

	if (!ah)
		die("ibv_create_ah");
	do
		send_text(d, ah, peer->qp_num, "what are you?");
	while (!wait_for_datagram(d, m->sock, 200, &wc));
	printf("the answer is '%.*s'\n", TEXT, d->in + GRH);
	ibv_destroy_ah(ah);
}

int main(int argc, char **argv)
{
	static struct datagrams d;
	struct card mine = {0}, peer;
	struct meeting m;

	meet(&m, argc, argv);
	create(&d, m.context);
	mine.qp_num = d.qp->qp_num;
	mine.gid = m.gid;
	meet_exchange(&m, &mine, &peer, sizeof(mine));
	if (m.server)
		serve(&d, &m);
	else
		ask(&d, &m, &peer);
	meet_exchange(&m, "!", &peer, 1);
	destroy(&d);
	meet_end(&m);
	return 0;
}
