// SPDX-License-Identifier: BSD-2-Clause
/* roce_peer.c - a process of its own with a queue pair of roce0. */
#include "roce_peer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLAG  "--peer"
#define AHEAD 32 /* requests under way */

void post_at(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t len, uint64_t addr,
	     uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, len, e->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .imm_data = htobe32(7)};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	assert_int_equal(try_post(e, &wr), 0);
}

/* ---- the peer ---- */

struct role {
	struct end e;
	int fd;
	bool sleeps, loads;
	struct order load;
	unsigned under_way;
	uint32_t received, recv_len;
	uint64_t posted;
};

/* Receives that completed are posted again. */
static void poll_receives(struct role *r)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(r->e.rcq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		r->received++;
		post_recv_(&r->e, wc.wr_id, 0, r->recv_len);
	}
}

static void make_load(struct role *r)
{
	const struct order *o = &r->load;
	struct ibv_wc wc;

	while (ibv_poll_cq(r->e.scq, 1, &wc) == 1) {
		r->under_way--;
		r->loads &= wc.status == IBV_WC_SUCCESS;
	}
	while (r->loads && r->under_way < AHEAD) {
		post_at(&r->e, o->op, r->posted++, o->len, o->addr, o->rkey);
		r->under_way++;
	}
}

static void connect_as_far(struct role *r, const struct order *o)
{
	if (o->to >= IBV_QPS_INIT)
		to_init(&r->e, &o->ways);
	if (o->to >= IBV_QPS_RTR)
		to_rtr(&r->e, o->qpn, &o->ways);
	if (o->to >= IBV_QPS_RTS)
		to_rts(&r->e, &o->ways);
}

static enum ibv_wc_status post_and_wait(struct role *r, const struct order *o)
{
	struct ibv_wc wc;

	post_at(&r->e, o->op, r->posted++, o->len, o->addr, o->rkey);
	while (ibv_poll_cq(r->e.scq, 1, &wc) == 0)
		poll_receives(r);
	return wc.status;
}

static void carry_out(struct role *r, const struct order *o, struct answer *a)
{
	switch (o->verb) {
	case ORDER_CONNECT:
		connect_as_far(r, o);
		break;
	case ORDER_MOVE:
		end_move(&r->e, o->to);
		break;
	case ORDER_RECV:
		r->recv_len = o->len;
		for (uint32_t i = 0; i < o->count; i++)
			post_recv_(&r->e, i, 0, o->len);
		break;
	case ORDER_LOAD:
		r->load = *o;
		r->loads = true;
		break;
	case ORDER_POST:
		a->status = post_and_wait(r, o);
		break;
	case ORDER_ASK:
		break;
	case ORDER_SLEEP:
		r->sleeps = true;
		break;
	}
}

static void tell(struct role *r, struct answer a)
{
	poll_receives(r);
	a.qpn = r->e.qp->qp_num;
	a.addr = (uintptr_t)r->e.buf;
	a.rkey = r->e.mr->rkey;
	a.received = r->received;
	if (send(r->fd, &a, sizeof(a), MSG_NOSIGNAL) != sizeof(a))
		_exit(1);
}

static void serve(struct role *r)
{
	for (;;) {
		struct order o;
		struct answer a = {0};
		ssize_t n = recv(r->fd, &o, sizeof(o), r->sleeps ? 0 : MSG_DONTWAIT);

		if (n == sizeof(o)) {
			carry_out(r, &o, &a);
			tell(r, a);
		} else if (n >= 0) {
			_exit(0); /* the test is over */
		}
		if (!r->sleeps) {
			poll_receives(r);
			make_load(r);
			sched_yield();
		}
	}
}

void peer_main(int argc, char **argv)
{
	struct role r = {0};

	if (argc < 3 || strcmp(argv[1], FLAG) != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r.fd = atoi(argv[2]);
	end_open(&r.e, NULL);
	tell(&r, (struct answer){0});
	serve(&r);
}

/* ---- the test ---- */

static void hear(struct peer *p)
{
	assert_int_equal(recv(p->fd, &p->is, sizeof(p->is), MSG_WAITALL), sizeof(p->is));
}

void peer_start(struct peer *p, const char *ports)
{
	int pair[2];
	char fd[16];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	p->fd = pair[0];
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		int mine = dup(pair[1]); /* without CLOEXEC */

		snprintf(fd, sizeof(fd), "%d", mine);
		setenv("STAG_PORTS", ports, 1);
		execl("/proc/self/exe", "peer", FLAG, fd, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	hear(p);
}

void peer_order(struct peer *p, const struct order *o)
{
	assert_int_equal(send(p->fd, o, sizeof(*o), MSG_NOSIGNAL), sizeof(*o));
	hear(p);
}

void peer_connect(struct peer *p, const struct end *e, const struct ways *w, enum ibv_qp_state to)
{
	struct order o = {.verb = ORDER_CONNECT, .to = to, .qpn = e->qp->qp_num};

	if (w)
		o.ways = *w;
	peer_order(p, &o);
}

void peer_move(struct peer *p, enum ibv_qp_state to)
{
	peer_order(p, &(struct order){.verb = ORDER_MOVE, .to = to});
}

void peer_recv(struct peer *p, unsigned count, uint32_t len)
{
	peer_order(p, &(struct order){.verb = ORDER_RECV, .count = count, .len = len});
}

static struct order request(enum verb verb, enum ibv_wr_opcode op, uint32_t len,
			    const struct end *to)
{
	return (struct order){.verb = verb,
			      .op = op,
			      .len = len,
			      .addr = (uintptr_t)to->buf,
			      .rkey = to->mr->rkey};
}

void peer_load(struct peer *p, enum ibv_wr_opcode op, uint32_t len, const struct end *to)
{
	struct order o = request(ORDER_LOAD, op, len, to);

	peer_order(p, &o);
}

enum ibv_wc_status peer_post(struct peer *p, enum ibv_wr_opcode op, uint32_t len,
			     const struct end *to)
{
	struct order o = request(ORDER_POST, op, len, to);

	peer_order(p, &o);
	return p->is.status;
}

uint32_t peer_received(struct peer *p)
{
	peer_order(p, &(struct order){.verb = ORDER_ASK});
	return p->is.received;
}

void peer_kill(struct peer *p)
{
	if (!p->pid)
		return;
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(p->fd);
	p->pid = 0;
}

void peer_pause(struct peer *p)
{
	int status;

	assert_int_equal(kill(p->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
}

void peer_continue(struct peer *p)
{
	assert_int_equal(kill(p->pid, SIGCONT), 0);
}
