// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_reach.c - how queue pairs of roce0 meet, against peers that say arbitrary hellos, in pieces, and hang up.
 *
 * The input is a script: clients connect to the port, and the queue pair connects to a listener of ours; both sides say
 * hellos that are right but for one field, or any bytes; the queue pair's state changes; time passes. The connections are real.
 *
 * For any input: a queue pair gets a stream only from a hello with the right numbers, that is newer than the last one, and, if
 * it has met its peer, of that peer; and nothing is left open.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/rc.h"
#include "adapter/reach.h"
#include "steps.h"

#define CALLS 6 /* connections at a time */

static struct stag_ctx *ctx;
static struct stag_pd *pd;
static struct stag_cq *cq;
static struct stag_qp *qp;
static int listener = -1, calls[CALLS];
static union ibv_gid gid;
static uint16_t our_port;
static uint8_t buf[64];
static struct stag_mr *mr;
static bool was_right; /* has a right hello been said, in this life? */

/* ---- connections ---- */

static void set_up(int fd)
{
	struct linger now = {.l_onoff = 1}; /* no TIME_WAIT */

	CHECK(!setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
}

static void hang_up(int i, bool politely)
{
	if (calls[i] < 0)
		return;
	if (politely)
		shutdown(calls[i], SHUT_WR);
	else {
		close(calls[i]);
		calls[i] = -1;
	}
}

static void call(int i)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(qp->ibv.qp_num >> 8)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};

	hang_up(i, false);
	calls[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(calls[i] >= 0);
	set_up(calls[i]);
	CHECK(!connect(calls[i], (struct sockaddr *)&to, sizeof(to)));
}

static void take_call(int i)
{
	hang_up(i, false);
	calls[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (calls[i] >= 0)
		set_up(calls[i]);
}

static void say(int i, const void *p, size_t len)
{
	if (calls[i] >= 0)
		(void)!send(calls[i], p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- hellos ---- */

static struct hello right_hello(void)
{
	const struct reach *r = &qp->rc->reach;
	struct hello h = {
		.kind = HELLO_ASK,
		.type = qp->ibv.qp_type == IBV_QPT_UC ? HELLO_UC : HELLO_RC,
		.caps = 0x1ff,
		.ird = 4,
		.from_qpn = qp->config.attr.dest_qp_num,
		.to_qpn = qp->ibv.qp_num,
		.process = r->met ? r->peer_process : 7,
		.life = r->met ? r->peer_life : 0,
		.epoch = r->peer_epoch + 1,
	};

	memcpy(h.from_gid, gid.raw, 16);
	memcpy(h.to_gid, gid.raw, 16);
	return h;
}

/* Changes one field. Returns whether the numbers are still right. */
static bool change(struct hello *h, uint8_t field, uint32_t by)
{
	switch (field) {
	case 0:
		h->kind ^= by;
		return true;
	case 1:
		h->type ^= by;
		return h->type == (qp->ibv.qp_type == IBV_QPT_UC ? HELLO_UC : HELLO_RC);
	case 2:
		h->flags ^= by;
		return true;
	case 3:
		h->caps ^= by;
		return true;
	case 4:
		h->from_qpn ^= by & HELLO_MAX_24;
		return !(by & HELLO_MAX_24);
	case 5:
		h->to_qpn ^= by & HELLO_MAX_24;
		return !(by & HELLO_MAX_24);
	case 6:
		h->from_gid[by >> 8 & 15] ^= by;
		return true; /* it may be another of ours */
	case 7:
		h->to_gid[by >> 8 & 15] ^= by;
		return true;
	case 8:
		h->sq_psn ^= by & HELLO_MAX_24;
		return true; /* matters in one direction only */
	case 9:
		h->rq_psn ^= by & HELLO_MAX_24;
		return true;
	case 10:
		h->process ^= by;
		return true;
	case 11:
		h->life ^= by;
		return true;
	case 12:
		h->epoch += by;
		return true;
	default:
		return true;
	}
}

static void say_hello(struct input *in, int i)
{
	struct hello h = right_hello();
	uint8_t what = (uint8_t)take(in, 1), bytes[HELLO_LEN];
	size_t most = take(in, 1);

	if (what & 16)
		h.kind = HELLO_READY;
	was_right |= change(&h, what & 15, (uint32_t)take(in, 4));
	hello_encode(&h, bytes);
	say(i, bytes, most && most < HELLO_LEN ? most : HELLO_LEN);
}

static void say_bytes(struct input *in, int i)
{
	size_t len = take(in, 1);

	if (len > in->len)
		len = in->len;
	was_right |= len > 0; /* it may be the rest of one */
	say(i, in->p, len);
	in->p += len;
	in->len -= len;
}

static void hear(int i)
{
	uint8_t junk[4096];

	if (calls[i] >= 0)
		(void)!recv(calls[i], junk, sizeof(junk), MSG_DONTWAIT);
}

/* ---- the queue pair ---- */

static void move(enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = (uint32_t)our_port << 8 | 7,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.rnr_retry = 7,
		.retry_cnt = 7,
		.timeout = 14,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = gid},
	};
	bool uc = qp->ibv.qp_type == IBV_QPT_UC;
	int mask = 0;

	if (to == IBV_QPS_INIT)
		mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (to == IBV_QPS_RTR)
		mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (uc ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (to == IBV_QPS_RTS && qp->ibv.state == IBV_QPS_RTR)
		mask = IBV_QP_SQ_PSN | (uc ? 0
					   : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							IBV_QP_MAX_QP_RD_ATOMIC);
	if (!qp_modify(qp, &a, IBV_QP_STATE | mask) && to == IBV_QPS_RESET)
		was_right = false;
}

static void post(void)
{
	struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), mr->ibv.lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, *bad;

	qp_post_send(qp, &wr, &bad);
}

/* ---- the script ---- */

struct met {
	bool met;
	uint64_t process;
	uint32_t life, epoch, our_life;
};

static struct met whom(void)
{
	const struct reach *r = &qp->rc->reach;

	return (struct met){r->met, r->peer_process, r->peer_life, r->peer_epoch, r->life};
}

static void run(void)
{
	struct ibv_wc wc;

	for (int i = 0; i < 3; i++) {
		steps_ready();
		steps_run();
	}
	while (qp_progress(qp))
		;
	steps_run();
	while (cq_poll(cq, 1, &wc) == 1)
		;
}

static void check_met(const struct met *before)
{
	struct met now = whom();

	CHECK(atomic_load(&qp->state) != QP_RTS || (now.met && was_right));
	if (!before->met || now.our_life != before->our_life)
		return;
	CHECK(now.met && now.process == before->process && now.life == before->life);
	CHECK((int32_t)(now.epoch - before->epoch) >= 0);
}

static void step(struct input *in)
{
	uint8_t what = (uint8_t)take(in, 1);
	int i = what >> 4 & 7;
	struct met before = whom();

	if (i >= CALLS)
		i = 0;
	switch (what & 15) {
	case 0:
	case 1:
		call(i);
		break;
	case 2:
	case 3:
	case 4:
		say_hello(in, i);
		break;
	case 5:
		say_bytes(in, i);
		break;
	case 6:
		hang_up(i, false);
		break;
	case 7:
		hang_up(i, true);
		break;
	case 8:
		take_call(i);
		break;
	case 9:
		hear(i);
		break;
	case 10:
	case 11:
		post();
		break;
	case 12:
		steps_pass_time();
		break;
	default:
		move((enum ibv_qp_state)(take(in, 1) % 7));
		break;
	}
	if (!(what & 0x80))
		run();
	check_met(&before);
}

static void open_listener(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&a, sizeof(a)));
	CHECK(!listen(listener, 64) && !getsockname(listener, (struct sockaddr *)&a, &len));
	our_port = ntohs(a.sin_port);
}

static void start(void)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct stag_qp *first;
	struct gid_entry e;

	if (ctx)
		return;
	CHECK(ctx_create(FACE_ROCE, &ctx) == 0 && pd_alloc(ctx, &pd) == 0);
	CHECK(cq_create(ctx, 1024, NULL, NULL, false, &cq) == 0);
	CHECK(mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf, IBV_ACCESS_LOCAL_WRITE, NULL, &mr) == 0);
	init.send_cq = init.recv_cq = &cq->ibv;
	init.pd = &pd->ibv;
	CHECK(qp_create(ctx, &init, &first) == 0); /* the port stays open */
	steps_keep_watches();
	CHECK(gid_get(0, &e));
	gid = e.gid;
	open_listener();
}

static void make_qp(uint8_t how)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = &cq->ibv,
		.recv_cq = &cq->ibv,
		.cap = {.max_send_wr = 8, .max_send_sge = 1},
		.qp_type = how & 1 ? IBV_QPT_UC : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &pd->ibv,
	};

	CHECK(qp_create(ctx, &init, &qp) == 0);
	if (how & 2)
		move(IBV_QPS_INIT);
	if (how & 4)
		move(IBV_QPS_RTR);
	if (how & 8)
		move(IBV_QPS_RTS);
}

static void end(void)
{
	int fd;

	for (int i = 0; i < CALLS; i++)
		hang_up(i, false);
	run();
	CHECK(qp_destroy(qp) == 0);
	for (int i = 0; i < 3; i++) {
		steps_ready();
		steps_run();
	}
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		set_up(fd);
		close(fd);
	}
	steps_check_idle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	steps_begin();
	start();
	was_right = false;
	for (int i = 0; i < CALLS; i++)
		calls[i] = -1;
	make_qp((uint8_t)take(&in, 1));
	for (int n = 0; in.len && n < 200; n++)
		step(&in);
	end();
	return 0;
}
